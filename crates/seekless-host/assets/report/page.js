"use strict";
// Draws what is in #data. Everything that the page says was computed before; here it is only shown.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const page = document.getElementById("page");
  const DASHES = ["none", "7 4", "2 3", "9 3 2 3"];
  const SYMBOLS = ["circle", "triangle", "square", "diamond", "star", "cross", "triangle2"];
  let marks = 0;

  // An element with attributes and children; children that are text are text, whatever is in them.
  function make(name, attributes = {}, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
      else if (value !== undefined && value !== null && value !== false) element.setAttribute(key, value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
    return element;
  }

  // Text in which `backticks` mark what is written to a computer.
  const prose = (text) => text.split(/`([^`]*)`/).map((part, index) => (index % 2 ? make("code", {}, part) : part));

  function download(name, type, text) {
    const url = URL.createObjectURL(new Blob([text], { type }));
    const link = make("a", { href: url, download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }

  const cell = (value) => (/[",\n]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value));
  const csv = (header, rows) => [header, ...rows].map((row) => row.map(cell).join(",")).join("\n") + "\n";

  function digits(number) {
    if (number === null || number === undefined) return "";
    const size = Math.abs(number);
    if (size >= 1e6) return d3.format(",.4~s")(number);
    if (size >= 100) return d3.format(",.0f")(number);
    if (size >= 1) return d3.format(".3~r")(number);
    return size === 0 ? "0" : d3.format(".3~r")(number);
  }

  // Round values within a range, for a logarithmic axis: powers of ten, and 2 and 5 between them where there is room.
  function round([from, to]) {
    const within = Math.log10(to / from) > 3 ? [1] : [1, 2, 5];
    const decades = d3.range(Math.floor(Math.log10(from)), Math.ceil(Math.log10(to)) + 1);
    return decades.flatMap((decade) => within.map((digit) => digit * 10 ** decade)).filter((value) => value >= from && value <= to);
  }

  // Long names as they fit beside turned ticks: their beginnings, or their ends where these tell more of them apart.
  function shortened(names) {
    const LONG = 26;
    const cuts = [(text) => `${text.slice(0, LONG - 1)}…`, (text) => `…${text.slice(1 - LONG)}`].map((cut) => (text) => (text.length > LONG ? cut(text) : text));
    return d3.greatest(cuts, (cut) => new Set(names.map(cut)).size);
  }

  // A plot with turned names below it, as tall as they are long.
  function below(names) {
    const marginBottom = Math.ceil(36 + 5.7 * (d3.max(names, (name) => name.length) ?? 0));
    return { height: 275 + marginBottom, marginBottom };
  }

  // A figure, with its state: which axes are logarithmic and which curves are hidden.
  function figure(drawing, experiment) {
    const numeric = drawing.panels.every((panel) => panel.curves.every((c) => c.marks.every((m) => typeof m.x === "number")));
    const distinct = (drawings, pick) => [...new Set(drawings.flatMap((one) => one.panels.flatMap((panel) => panel.curves.map(pick))))];
    // In all figures whose colours mean the same, a colour means the same.
    const alike = experiment.figures.filter((other) => other.colour_label === drawing.colour_label);
    const colours = distinct(alike, (curve) => curve.colour);
    const dashes = distinct([drawing], (curve) => curve.dash);
    const colour = (curve) => `var(--c${colours.indexOf(curve.colour) % 16})`;
    const dash = (curve) => (curve.source ? "1 4" : DASHES[Math.max(0, dashes.indexOf(curve.dash)) % DASHES.length]);
    // By shape as well as by colour; where dashes tell curves apart, the shapes go with them.
    const shape = (curve) => Math.max(0, dashes.length > 1 ? dashes.indexOf(curve.dash) : colours.indexOf(curve.colour));
    // Several sources of published points have symbols of their own.
    const symbol = (curve) => SYMBOLS[(shape(curve) + 3 * curve.variant) % SYMBOLS.length];
    // Published bars are pale, and each further source of them is paler.
    const strength = (curve) => (curve.source ? 0.45 / (1 + curve.variant) : 1);
    // What others lie on is wider, so that it is seen beneath them.
    const wider = (one) => 3 * Math.min(one.beneath, 3);
    const state = { xLog: drawing.x_log, yLog: drawing.y_log, hidden: new Set() };
    const panels = make("div", { class: "panels" });
    // One bar for each name: along, so that names can be read, and without a legend, which would repeat them.
    const along = drawing.chart === "bar" && drawing.panels.every((panel) => panel.curves.every((c) => c.marks.every((m) => m.x === c.name)));

    // Of the values of an axis whose ends are `room` pixels apart, from the least on those whose labels are beside the one before.
    function apart(values, label, log, ends, room) {
      const at = (log ? d3.scaleLog : d3.scaleLinear)(ends, [0, room]);
      const kept = [];
      for (const value of values.filter((value) => !log || value > 0).sort(d3.ascending)) {
        const last = kept.at(-1);
        if (last === undefined || at(value) - at(last) >= 6 + 3.5 * (label(last).length + label(value).length)) kept.push(value);
      }
      return kept;
    }

    function plot(panel, room) {
      const curves = panel.curves.filter((curve) => !state.hidden.has(curve.name));
      const every = drawing.panels.flatMap((p) => p.curves.filter((c) => !state.hidden.has(c.name)).flatMap((c) => c.marks));
      const points = curves.flatMap((curve) => curve.marks.map((mark) => ({ ...mark, curve })))
        .filter((point) => !state.yLog || point.y > 0);
      marks += points.length;
      const xs = [...new Set(every.map((mark) => mark.x))];
      const ys = every.flatMap((mark) => [mark.y, ...(mark.spread ?? [])]).filter((y) => !state.yLog || y > 0);
      // Half of the rounds are within.
      const spread = points.filter((point) => point.spread && (!state.yLog || point.spread[0] > 0));
      const [low, high] = [(point) => point.spread[0], (point) => point.spread[1]];
      const width = Math.min(drawing.panels.length > 1 ? 530 : 1080, room);
      const title = (point) => `${point.curve.name}\n${drawing.x_label}: ${point.x}\n${drawing.y_label}: ${digits(point.y)}${point.spread ? `, half of the rounds ${digits(point.spread[0])} to ${digits(point.spread[1])}` : ""}`;
      const bottom = state.yLog ? d3.min(ys) * 0.8 : Math.min(0, d3.min(ys) ?? 0);
      const from = drawing.y_from ?? bottom;
      const y = {
        type: state.yLog ? "log" : "linear", label: drawing.y_label, nice: !state.yLog, zero: false,
        domain: [state.yLog ? Math.max(from, bottom) : from, (d3.max(ys) ?? 1) * (state.yLog ? 1.25 : 1.03)],
      };
      // Labels of our own: those of a logarithmic scale leave out most of what is there.
      const axes = [Plot.gridY(state.yLog ? { ticks: round(y.domain) } : {})];
      if (state.yLog) axes.push(Plot.axisY(round(y.domain), { text: digits, label: drawing.y_label }));
      else axes.push(Plot.axisY({ label: drawing.y_label }));
      const common = { width, height: 340, marginTop: 30, marginLeft: 60, marginBottom: 42, style: { background: "transparent", fontSize: "12px" }, y };
      if (along) {
        const { label, ...scale } = y;
        const names = 20 + 7 * (d3.max(xs, (name) => name.length) ?? 0);
        // Where the window is narrow, a name is above its bar.
        const above = names > width * 0.4;
        const row = above ? 40 : 26;
        const [left, right] = [above ? 8 : names, 50];
        const ticks = state.yLog ? apart(round(y.domain), digits, true, y.domain, width - left - right) : [];
        return Plot.plot({
          width, height: 62 + row * xs.length, marginTop: 20, marginLeft: left, marginRight: right, marginBottom: 42,
          style: common.style, x: scale, y: { type: "band", domain: xs, padding: 0, axis: null }, color: { type: "identity" },
          marks: [
            Plot.gridX(state.yLog ? { ticks: round(y.domain) } : { ticks: width / 80 }),
            state.yLog ? Plot.axisX(ticks, { text: digits, label }) : Plot.axisX({ label, ticks: width / 80 }),
            above
              ? Plot.text(xs, { y: (name) => name, x: y.domain[0], text: (name) => name, dy: -11, textAnchor: "start", fontSize: 12 })
              : Plot.axisY({ label: null, tickSize: 0 }),
            Plot.barX(points, { y: "x", x1: y.domain[0], x2: "y", insetTop: above ? 20 : 3, insetBottom: 3, fill: (p) => colour(p.curve), fillOpacity: (p) => strength(p.curve) }),
            Plot.ruleY(spread, { y: "x", x1: low, x2: high, dy: above ? 8.5 : 0, strokeWidth: 2, strokeOpacity: 0.7 }),
            Plot.text(points, { y: "x", x: (p) => Math.max(p.y, p.spread?.[1] ?? p.y), text: (p) => digits(p.y), dx: 5, dy: above ? 8.5 : 0, textAnchor: "start", fontSize: 11 }),
            Plot.tip(points, Plot.pointerY({ y: "x", x: "y", title })),
          ],
        });
      }
      if (drawing.chart === "bar") {
        const names = curves.map((curve) => curve.name);
        // Numbers above bars that are narrower than a number would be in each other's way.
        const longest = d3.max(points, (p) => digits(p.y).length) ?? 0;
        const numbers = (width - 70) / (xs.length * names.length) > 6 + 6.5 * longest;
        // Names below that are longer than their bars are wide would, too: those are turned.
        const turned = xs.some((x) => 8 + 7 * String(x).length > (width - 70) / xs.length);
        const short = shortened(xs.map(String));
        return Plot.plot({
          ...common, ...(turned ? below(xs.map((x) => short(String(x)))) : {}),
          fx: { label: drawing.x_label, domain: xs, padding: 0.15 },
          x: { axis: null, domain: names, padding: 0.05 },
          marks: [
            ...axes,
            Plot.axisFx({ anchor: "bottom", label: drawing.x_label, ...(turned ? { tickFormat: (x) => short(String(x)), tickRotate: -60, labelAnchor: "right" } : {}) }),
            Plot.barY(points, { fx: "x", x: (p) => p.curve.name, y1: y.domain[0], y2: "y", fill: (p) => colour(p.curve), fillOpacity: (p) => strength(p.curve) }),
            Plot.ruleX(spread, { fx: "x", x: (p) => p.curve.name, y1: low, y2: high, strokeWidth: 2, strokeOpacity: 0.7 }),
            ...(numbers ? [Plot.text(points, { fx: "x", x: (p) => p.curve.name, y: "y", text: (p) => digits(p.y), dy: -7, fontSize: 11 })] : []),
            Plot.tip(points, Plot.pointerX({ fx: "x", x: (p) => p.curve.name, y: "y", title })),
          ],
          color: { type: "identity" },
        });
      }
      const x = numeric
        ? { type: state.xLog ? "log" : "linear", label: drawing.x_label, inset: 8 }
        : { type: "point", label: drawing.x_label, domain: xs };
      // Every value where there is room for it; of more, those that are not on another: of names every second, third or fourth.
      const wide = numeric ? 0 : d3.sum(xs, (x) => 8 + 7 * x.length) - (width - 80);
      const short = shortened(xs);
      const label = (d) => (numeric ? d3.format("~")(d) : wide > 0 ? short(d) : d);
      const needed = d3.sum(xs, (x) => (wide > 0 ? 14 : 8 + 7 * label(x).length));
      const shown = numeric ? apart(xs, label, state.xLog, d3.extent(xs.filter((x) => !state.xLog || x > 0)), width - 76) : xs.filter((_, index) => index % Math.max(1, Math.ceil(needed / (width - 80))) === 0);
      const axisX = numeric && xs.length > 14
        ? Plot.axisX({ label: drawing.x_label, ticks: width / 80 })
        : Plot.axisX(shown, { text: label, label: drawing.x_label, ...(wide > 0 ? { tickRotate: -60, labelAnchor: "right" } : {}) });
      const lines = curves.map((curve) => Plot.line(points.filter((p) => p.curve === curve), {
        x: "x", y: "y", stroke: colour(curve), strokeWidth: (curve.source ? 1.5 : 2) + wider(curve), strokeDasharray: dash(curve),
      }));
      const spreads = curves.map((curve) => Plot.ruleX(spread.filter((p) => p.curve === curve), { x: "x", y1: low, y2: high, stroke: colour(curve), strokeWidth: 1.5 }));
      const dots = curves.map((curve) => Plot.dot(points.filter((p) => p.curve === curve), {
        x: "x", y: "y", symbol: symbol(curve), r: (p) => (curve.source ? 5.5 : 3.5) + wider(p) * 0.8, stroke: colour(curve), strokeWidth: 1.7,
        fill: curve.source ? "none" : colour(curve),
      }));
      return Plot.plot({
        ...common, ...(wide > 0 ? below(xs.map(short)) : {}), x, r: { type: "identity" }, color: { type: "identity" },
        marks: [...axes, axisX, Plot.ruleY([y.domain[0]], { strokeOpacity: 0.4 }), ...lines, ...spreads, ...dots, Plot.tip(points, Plot.pointer({ x: "x", y: "y", title }))],
      });
    }

    // What is beside a figure takes 76 pixels of the window. A narrow window has narrow figures, with letters of the same size.
    function draw() {
      const room = Math.max(260, Math.min(1080, document.documentElement.clientWidth - 76));
      panels.replaceChildren(...drawing.panels.map((panel) => {
        const svg = plot(panel, room);
        svg.setAttribute("role", "img");
        svg.setAttribute("aria-label", `${drawing.title} ${panel.name}`.trim());
        return make("div", {}, panel.name ? make("h4", {}, panel.name) : "", svg);
      }));
    }

    const names = new Map();
    drawing.panels.forEach((panel) => panel.curves.forEach((curve) => names.has(curve.name) || names.set(curve.name, curve)));
    const legend = make("div", { class: "legend", role: "group", "aria-label": "curves" }, ...[...names.values()].map((curve) => {
      const swatch = drawing.chart === "bar"
        ? Plot.plot({ width: 14, height: 14, margin: 0, axis: null, marks: [Plot.dot([0], { x: 7, y: 7, r: 6, symbol: "square", fill: colour(curve), fillOpacity: strength(curve) })], x: { type: "identity" }, y: { type: "identity" }, color: { type: "identity" } })
        : Plot.plot({
          width: 34, height: 14, margin: 0, axis: null, x: { type: "identity" }, y: { type: "identity" }, color: { type: "identity" },
          marks: [
            Plot.line([[1, 7], [33, 7]], { stroke: colour(curve), strokeWidth: 2, strokeDasharray: dash(curve) }),
            Plot.dot([[17, 7]], { symbol: symbol(curve), r: curve.source ? 5 : 3.5, stroke: colour(curve), fill: curve.source ? "none" : colour(curve) }),
          ],
        });
      swatch.setAttribute("aria-hidden", "true");
      const button = make("button", { type: "button", "aria-pressed": "true", title: "show or hide" }, swatch, curve.name);
      button.addEventListener("click", () => {
        state.hidden.has(curve.name) ? state.hidden.delete(curve.name) : state.hidden.add(curve.name);
        button.setAttribute("aria-pressed", String(!state.hidden.has(curve.name)));
        draw();
      });
      return button;
    }));
    const toggle = (text, key) => {
      const box = make("input", { type: "checkbox" });
      box.checked = state[key];
      box.addEventListener("change", () => { state[key] = box.checked; draw(); });
      return make("label", {}, box, ` ${text}`);
    };
    const file = `${experiment.name}-${drawing.id}`;
    const rows = () => drawing.panels.flatMap((panel) => panel.curves.flatMap((c) => c.marks.map((m) => [panel.name, c.name, c.source || "measured", m.x, m.y])));
    const controls = make("div", { class: "controls" },
      numeric && drawing.chart !== "bar" ? toggle("log x", "xLog") : "", toggle(along ? "log x" : "log y", "yLog"),
      make("button", { type: "button", onclick: () => download(`${file}.csv`, "text/csv", csv(["panel", "curve", "source", drawing.x_label, drawing.y_label], rows())) }, "CSV"),
      make("button", { type: "button", onclick: () => download(`${file}.svg`, "image/svg+xml", standalone(drawing, panels, along ? null : legend)) }, "SVG"));
    draw();
    let drawn = document.documentElement.clientWidth;
    window.addEventListener("resize", () => {
      if (document.documentElement.clientWidth === drawn) return;
      drawn = document.documentElement.clientWidth;
      draw();
    });
    return make("figure", { id: `${experiment.name}-${drawing.id}` }, make("h3", {}, drawing.title), controls,
      drawing.panels.length ? panels : "", ...drawing.absent.map((line) => make("p", { class: "about" }, line)), along ? "" : legend,
      drawing.coinciding.length ? make("p", { class: "coinciding" }, `${drawing.coinciding.join("; ")}.`) : "",
      drawing.caption ? make("figcaption", {}, ...prose(drawing.caption)) : "");
  }

  // A figure as one SVG file, with the colours that are seen: its title, all panels beside each other, and its legend.
  function standalone(drawing, panels, legend) {
    const style = getComputedStyle(document.documentElement);
    const [ink, paper] = ["--ink", "--paper"].map((name) => style.getPropertyValue(name).trim());
    const resolve = (text) => text.replace(/var\((--[a-z0-9-]+)\)/g, (_, name) => style.getPropertyValue(name).trim() || "black");
    const write = (element) => resolve(new XMLSerializer().serializeToString(element));
    const text = (content, x, y, size, weight) => {
      const element = document.createElementNS("http://www.w3.org/2000/svg", "text");
      for (const [key, value] of Object.entries({ x, y, "font-size": size, "font-weight": weight })) element.setAttribute(key, value);
      element.textContent = content;
      return write(element);
    };
    const place = (svg, x, y) => {
      const copy = svg.cloneNode(true);
      // Letters reach a little below what a plot takes for its own.
      for (const [key, value] of Object.entries({ x, y, color: ink, overflow: "visible" })) copy.setAttribute(key, value);
      return write(copy);
    };
    const TOP = 34;
    let inner = text(drawing.title, 10, 22, 15, 600);
    let left = 0;
    let height = TOP;
    for (const div of panels.children) {
      const svg = div.querySelector("svg");
      const name = div.querySelector("h4");
      if (name) inner += text(name.textContent, left + 10, TOP + 16, 12, 600);
      inner += place(svg, left, TOP + 24);
      left += Number(svg.getAttribute("width")) + 16;
      height = Math.max(height, TOP + 24 + Number(svg.getAttribute("height")));
    }
    const said = [...drawing.coinciding, ...drawing.absent];
    // As wide as its letters may be.
    const width = Math.max(left, 20 + 9 * drawing.title.length, ...said.map((sentence) => 20 + 7 * sentence.length));
    let [x, y] = [10, height + 8];
    const shown = [...(legend ? legend.children : [])].filter((button) => button.getAttribute("aria-pressed") === "true");
    for (const button of shown) {
      const swatch = button.querySelector("svg");
      // Beside the name a button has the style of its swatch.
      const name = button.lastChild.textContent;
      const wide = Number(swatch.getAttribute("width")) + 24 + 7.5 * name.length;
      if (x > 10 && x + wide > width) [x, y] = [10, y + 20];
      inner += place(swatch, x, y) + text(name, x + Number(swatch.getAttribute("width")) + 6, y + 11, 12, 400);
      x += wide;
    }
    if (legend) height = y + 26;
    for (const sentence of said) {
      inner += text(sentence, 10, height + 6, 12, 400);
      height += 20;
    }
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="12" fill="${ink}"><rect width="100%" height="100%" fill="${paper}"/>${inner}</svg>\n`;
  }

  function table(header, rows, kind) {
    const head = make("tr", {}, ...header.map(([text, kind]) => make("th", { class: kind, scope: "col" }, text)));
    return make("div", { class: "scroll" }, make("table", { class: kind }, make("thead", {}, head), make("tbody", {}, ...rows)));
  }

  const VERDICTS = { holds: "\u2713 holds", differs: "\u2717 differs", open: "\u25CB not measured" };

  function claims(checked, quick) {
    const word = (verdict) => VERDICTS[verdict] + (quick && verdict !== "open" ? " (quick)" : "");
    return table([["", ""], ["claim", "text"], ["published", ""], ["counts as the same", ""], ["found here", "text"], ["cases", "number"]], checked.map(({ claim, verdict, cases, held, required, found }) =>
      make("tr", {},
        make("td", { class: `badge ${verdict}` }, word(verdict)),
        make("td", {}, ...prose(claim.text), make("small", {}, claim.source)),
        make("td", { "data-label": "published" }, claim.published ?? ""),
        make("td", { "data-label": "counts as the same" }, required, make("small", {}, make("code", {}, claim.metric))),
        make("td", { "data-label": "found here" }, found, claim.note ? make("small", {}, quick ? "of all points, not of this quick look: " : "", ...prose(claim.note)) : ""),
        make("td", { class: "number", "data-label": "cases" }, cases ? `${held} of ${cases}` : ""))), "claims");
  }

  function published(rows) {
    return table([["metric", ""], ["where", ""], ["reference", "number"], ["measured", "number"], ["deviation", "number"]], rows.map((row) =>
      make("tr", {},
        make("td", {}, row.metric, make("small", {}, row.source)),
        make("td", {}, Object.entries(row.dims).map(([k, v]) => (typeof v === "number" ? `${k} ${v}` : v)).join(", "), row.note ? make("small", {}, ...prose(row.note)) : ""),
        make("td", { class: "number", "data-label": "reference" }, digits(row.value)),
        make("td", { class: "number", "data-label": "measured" }, row.measured === null ? "\u2013" : digits(row.measured)),
        make("td", { class: "number", "data-label": "deviation" }, row.deviation === null ? "" : d3.format("+.1%")(row.deviation)))), "references");
  }

  // What the page answers: cards with few words each, and a row for each candidate.
  function answer({ cards, header, rows, notes }) {
    const last = header.length - 1;
    const card = (one) => make("div", { class: `card ${one.tone}` },
      make("div", { class: "label" }, one.label), make("div", { class: "value" }, ...prose(one.value)), make("p", {}, ...prose(one.note)));
    // A number and its unit stay together, however narrow their column is.
    const whole = (text) => text.replace(/(\d) (?=\S+$)/, "$1\u00a0");
    const row = ({ name, below, cells, tone }) => make("tr", {},
      make("td", {}, name, make("small", {}, make("code", {}, below))),
      ...cells.map((text, index) => make("td", { class: index + 1 === last ? `verdict ${tone}` : "number", "data-label": text ? header[index + 1] : null }, whole(text))));
    return make("div", { class: "answer" },
      make("div", { class: "cards" }, ...cards.map(card)),
      table(header.map((text, index) => [text, index === 0 || index === last ? "" : "number"]), rows.map(row), "candidates"),
      ...notes.map((note) => make("p", { class: "about" }, ...prose(note))));
  }

  function experiment(one) {
    const held = one.claims.filter((c) => c.verdict === "holds").length;
    const open = one.claims.filter((c) => c.verdict === "open").length;
    const sentence = `${held} of ${one.claims.length} claims hold` + (open ? `, ${open} not measured` : "") + (one.quick ? " (quick: not to conclude from)" : "") + ".";
    const missing = `Interrupted: ${one.missing} point${one.missing === 1 ? "" : "s"} not measured yet. The same command continues.`;
    const save = () => download(`${one.name}.csv`, "text/csv", one.csv);
    return make("section", { class: "experiment", id: one.name },
      make("h2", {}, one.title, " ", make("small", {}, one.paper)),
      one.missing ? make("p", { class: "missing" }, missing) : "",
      one.about ? make("p", { class: "about" }, ...prose(one.about)) : "",
      one.answer ? answer(one.answer) : "",
      one.claims.length ? make("p", { class: "verdict" }, sentence) : "",
      one.claims.length ? claims(one.claims, one.quick) : "",
      one.metrics.length ? make("p", { class: "coinciding" }, ...one.metrics.flatMap(([name, meaning], index) => [index ? "; " : "", make("code", {}, name), ` ${meaning}`]), ". A number with x compares two rows.") : "",
      ...one.figures.map((drawing) => figure(drawing, one)),
      one.published.length ? make("details", { open: one.published.length <= 12 }, make("summary", {}, `reference figures beside measured ones (${one.published.length})`), published(one.published)) : "",
      one.rows ? explore({ make, digits, download, csv, shortened }, one) : "",
      make("div", { class: "controls" }, make("button", { type: "button", onclick: save }, `all ${one.rows} rows as CSV`)),
      make("details", {}, make("summary", {}, "how it was made"), make("pre", {}, JSON.stringify(one.provenance, null, 2)), make("pre", {}, one.description)));
  }

  function theme() {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  }

  try {
    const links = data.experiments.map((one) => {
      const held = one.claims.filter((c) => c.verdict === "holds").length;
      return make("span", {}, make("a", { href: `#${one.name}` }, one.title), one.claims.length ? make("span", { class: "mark" }, ` ${held}/${one.claims.length}`) : "");
    });
    page.replaceChildren(
      make("header", { class: "top" }, make("h1", {}, data.title), make("button", { type: "button", onclick: theme }, "light / dark")),
      links.length > 1 ? make("nav", { "aria-label": "experiments" }, ...links) : "",
      ...data.experiments.map(experiment));
    const figures = data.experiments.reduce((sum, one) => sum + one.figures.length, 0);
    page.append(make("pre", { id: "seekless-done", "data-figures": figures, "data-marks": marks, hidden: "" }));
    const wanted = location.hash ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
    if (wanted?.tagName === "DETAILS") wanted.open = true;
    wanted?.scrollIntoView();
  } catch (error) {
    page.prepend(make("pre", { id: "seekless-error" }, `The page could not be drawn: ${error.stack || error}`));
  }
})();
