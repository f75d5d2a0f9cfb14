"use strict";
// All rows of an experiment, for the reader to choose from: any dimension across, any metric upwards, one figure for each value of
// a third dimension, and a table that can be searched and sorted. Of several rows at one place the median is drawn.
const explore = (() => {
  const NONE = "";
  const ROWS_SHOWN = 100;
  // With so many rows, choosing is what the page is for.
  const OPEN_FROM = 500;
  const isNumber = (text) => text !== "" && Number.isFinite(Number(text));

  return (tools, one) => {
    const { make, digits, download, csv, shortened } = tools;
    const details = make("details", { class: "explore", id: `${one.name}-rows`, open: one.rows >= OPEN_FROM }, make("summary", {}, `all ${one.rows} rows: choose, search, sort`));
    // Rows are read when they are wanted: a page may hold several experiments of thousands.
    details.addEventListener("toggle", () => { if (details.open && details.children.length === 1) details.append(...inside()); });
    return details;

    function inside() {
      // Not csvParse, which compiles a function, as the page's policy forbids.
      const [columns, ...lines] = d3.csvParseRows(one.csv);
      const rows = lines.map((line) => Object.fromEntries(columns.map((name, index) => [name, line[index]])));
      const dims = one.dims.map(({ name, label }) => {
        const values = [...new Set(rows.map((row) => row[name]))].filter((value) => value !== "");
        const numeric = values.every(isNumber);
        return { name, label, numeric, values: numeric ? values.sort((a, b) => a - b) : values };
      });
      const varied = dims.filter((dim) => dim.values.length > 1);
      const metrics = columns.filter((name) => !dims.some((dim) => dim.name === name));
      const dim = (name) => dims.find((one) => one.name === name);
      const metric = metrics.includes(one.metric) ? one.metric : metrics[0];
      // Across, and as colours, what rows with this metric have.
      const measured = rows.filter((row) => isNumber(row[metric]));
      const valued = varied.filter((one) => new Set(measured.map((row) => row[one.name]).filter((value) => value !== "")).size > 1);
      const along = d3.greatest(valued, (one) => (one.numeric ? 1000 : 0) + one.values.length) ?? varied[0] ?? dims[0];
      const rest = valued.filter((one) => one !== along);
      const state = {
        x: along?.name, y: metric, colour: (rest.find((one) => one.name === "contestant") ?? rest[0])?.name ?? NONE, panels: NONE,
        only: new Map(), words: [], log: true, sort: null, down: false, shown: ROWS_SHOWN,
      };
      const figure = make("div", { class: "panels" });
      const legend = make("div", { class: "legend" });
      const count = make("p", { class: "about", role: "status" });
      const body = make("div", { class: "scroll" });

      const chosen = () => rows.filter((row) =>
        [...state.only].every(([name, value]) => value === NONE || row[name] === value)
        && state.words.every((word) => dims.some(({ name }) => row[name].toLowerCase().includes(word))));

      function draw() {
        const found = chosen();
        const drawn = drawPanels(found);
        count.textContent = `${found.length} of ${rows.length} rows${drawn < found.length ? `, ${drawn} of them in the figure` : ""}`;
        drawTable(found);
      }

      function drawPanels(found) {
        const value = (row) => Number(row[state.y]);
        // A row without a value of what is across, or of what tells curves and figures apart, has no place in the picture.
        const apart = [state.x, state.colour, state.panels].filter((name) => name);
        const usable = found.filter((row) => isNumber(row[state.y]) && (!state.log || value(row) > 0) && apart.every((name) => row[name] !== ""));
        const names = state.colour ? dim(state.colour).values.filter((name) => usable.some((row) => row[state.colour] === name)) : [NONE];
        const colour = (name) => `var(--c${Math.max(0, names.indexOf(name)) % 16})`;
        const dash = (name) => (names.indexOf(name) >= 8 ? "5 3" : "none");
        legend.replaceChildren(...(state.colour ? names : []).map((name) =>
          make("span", { class: "key" }, make("i", { style: `border-top: 3px ${names.indexOf(name) >= 8 ? "dashed" : "solid"} ${colour(name)}` }), name)));
        const groups = state.panels ? d3.groups(usable, (row) => row[state.panels]) : [["", usable]];
        const order = state.panels ? dim(state.panels).values : [""];
        groups.sort(([a], [b]) => order.indexOf(a) - order.indexOf(b));
        const room = Math.max(260, Math.min(state.panels ? 530 : 1080, document.documentElement.clientWidth - 76));
        figure.replaceChildren(...groups.map(([name, group]) => make("div", {}, name ? make("h4", {}, `${dim(state.panels).label}: ${name}`) : "", panel(group))));
        if (!usable.length) figure.replaceChildren(make("p", { class: "about" }, "No row has a value for these choices."));
        return usable.length;

        function panel(group) {
          const { numeric, values, label } = dim(state.x);
          const points = d3.flatRollup(group, (same) => ({ y: d3.median(same, value), count: same.length }), (row) => (state.colour ? row[state.colour] : NONE), (row) => row[state.x])
            .map(([curve, x, { y, count }]) => ({ curve, x: numeric ? Number(x) : x, y, count }));
          if (numeric) points.sort((a, b) => a.x - b.x);
          const title = (p) => `${p.curve ? `${p.curve}\n` : ""}${label}: ${p.x}\n${state.y}: ${digits(p.y)}${p.count > 1 ? `, the median of ${p.count} rows` : ""}`;
          // Long names, such as those of drives, are turned, and end in an ellipsis.
          const long = !numeric && d3.max(values, (text) => text.length) * values.length * 7 > room - 70;
          const all = d3.extent(usable, value);
          const svg = Plot.plot({
            width: room, height: long ? 450 : 320, marginLeft: 62, marginTop: 28, marginBottom: long ? 175 : 42, style: { background: "transparent", fontSize: "12px" },
            x: { type: numeric ? "linear" : "point", domain: numeric ? undefined : values, label, tickRotate: long ? -60 : 0, labelAnchor: long ? "right" : undefined, inset: 8, tickFormat: numeric ? undefined : shortened(values) },
            y: { type: state.log ? "log" : "linear", label: state.y, domain: state.log ? all : [Math.min(0, all[0]), all[1]], nice: true, grid: true, tickFormat: state.log ? digits : undefined, ticks: 6 },
            color: { type: "identity" },
            marks: [
              ...d3.groups(points, (p) => p.curve).map(([name, curve]) => Plot.line(curve, { x: "x", y: "y", stroke: colour(name), strokeWidth: 1.8, strokeDasharray: dash(name) })),
              Plot.dot(points, { x: "x", y: "y", r: 3, fill: (p) => colour(p.curve) }),
              Plot.tip(points, Plot.pointer({ x: "x", y: "y", title })),
            ],
          });
          svg.setAttribute("role", "img");
          svg.setAttribute("aria-label", `${state.y} over ${label}`);
          return svg;
        }
      }

      function drawTable(found) {
        const shown = [...varied.map((one) => one.name), ...metrics];
        const isLeft = (name) => dim(name) && !dim(name).numeric;
        const compare = (a, b) => (isLeft(state.sort) ? d3.ascending(a[state.sort], b[state.sort]) : d3.ascending(Number(a[state.sort]), Number(b[state.sort])));
        const sorted = state.sort ? found.toSorted((a, b) => (state.down ? -1 : 1) * compare(a, b)) : found;
        const head = make("tr", {}, ...shown.map((name) => {
          const by = () => { [state.down, state.sort] = [state.sort === name && !state.down, name]; draw(); };
          const order = state.sort === name ? (state.down ? "descending" : "ascending") : "none";
          return make("th", { class: isLeft(name) ? "" : "number", scope: "col", "aria-sort": order },
            make("button", { type: "button", onclick: by }, name, order === "none" ? "" : order === "ascending" ? " ▲" : " ▼"));
        }));
        const cell = (row, name) => make("td", { class: isLeft(name) ? "" : "number" }, dim(name) || !isNumber(row[name]) ? row[name] : digits(Number(row[name])));
        const lines = sorted.slice(0, state.shown).map((row) => make("tr", {}, ...shown.map((name) => cell(row, name))));
        const more = () => { state.shown += 10 * ROWS_SHOWN; draw(); };
        body.replaceChildren(make("table", {}, make("thead", {}, head), make("tbody", {}, ...lines)),
          sorted.length > state.shown ? make("button", { type: "button", onclick: more }, `show more of ${sorted.length}`) : "");
      }

      function select(label, key, options) {
        const list = make("select", {}, ...options.map(([value, text]) => make("option", { value, selected: state[key] === value }, text)));
        list.addEventListener("change", () => { state[key] = list.value; draw(); });
        return make("label", {}, `${label} `, list);
      }
      const choices = varied.map((one) => [one.name, one.label]);
      const only = varied.map((one) => {
        const list = make("select", {}, make("option", { value: NONE }, "all"), ...one.values.map((value) => make("option", { value }, value)));
        list.addEventListener("change", () => { state.only.set(one.name, list.value); state.shown = ROWS_SHOWN; draw(); });
        return make("label", {}, `${one.label} `, list);
      });
      const search = make("input", { type: "search", placeholder: "words to search for", "aria-label": "search" });
      search.addEventListener("input", () => { state.words = search.value.toLowerCase().split(/\s+/).filter(Boolean); state.shown = ROWS_SHOWN; draw(); });
      const log = make("input", { type: "checkbox" });
      log.checked = state.log;
      log.addEventListener("change", () => { state.log = log.checked; draw(); });
      const save = () => download(`${one.name}-chosen.csv`, "text/csv", csv(columns, chosen().map((row) => columns.map((name) => row[name]))));
      window.addEventListener("resize", () => drawPanels(chosen()));
      draw();
      return [
        make("div", { class: "controls" }, select("across", "x", choices.length ? choices : [[state.x, state.x]]), select("upwards", "y", metrics.map((name) => [name, name])),
          select("colour", "colour", [[NONE, "none"], ...choices]), select("figures", "panels", [[NONE, "one"], ...choices]), make("label", {}, log, " log")),
        make("div", { class: "controls" }, ...only, search, make("button", { type: "button", onclick: save }, "CSV")),
        count, figure, legend, body,
      ];
    }
  };
})();
