//! Pages of `seekless report` in a browser, narrow and wide: what the scripts draw, and the file that a page saves.

use std::process::Command;

use seekless_host::testing::{Need, skip};

use crate::Scratch;

/// Two contestants that are the same, and so coincide, and one that is not.
const EXPERIMENT: &str = r#"
title = "Readers"
workload = { kind = "requests", pattern = "random", operation = "read", bytes = "4KiB", span = "64MiB", requests = 400, timing = "window:4" }
contestant = [
    { name = "one reader", on = "raid0:n={n} / disk:cheetah9lp" },
    { name = "another", on = "raid0:n={n} / disk:cheetah9lp" },
    { name = "fcfs", on = "raid0:n={n} / disk:cheetah9lp,scheduler=fcfs" },
]
quick = { requests = 50 }

[variables.n]
values = [1, 2, 4]

[[figure]]
id = "rate"
title = "A rate"
x = "n"
y = "requests_per_s"

[[claim]]
text = "it is fast"
source = "ours"
metric = "requests_per_s"
test = "value"
above = 1.0
"#;

/// Bars whose names have no room beside each other where the window is narrow, and a curve over values that are near each other.
const NARROW: &str = r#"
title = "Windows"
workload = { kind = "requests", pattern = "random", operation = "read", bytes = "4KiB", span = "64MiB", requests = 50, timing = "{waiting}" }
contestant = [
    { name = "look", on = "raid0:n={n} / disk:cheetah9lp" },
    { name = "fcfs", on = "raid0:n={n} / disk:cheetah9lp,scheduler=fcfs" },
]

[variables.waiting]
values = ["window:1", "window:2", "window:4", "window:8", "window:16", "window:32"]

[variables.n]
values = [1, 2, 4, 62, 64]

[[figure]]
id = "bars"
title = "Bars"
chart = "bar"
x = "waiting"
y = "requests_per_s"
where = { n = 1 }

[[figure]]
id = "along"
title = "Bars along"
chart = "bar"
x = "contestant"
y = "requests_per_s"
where = { n = 1, waiting = "window:4" }

[[figure]]
id = "near"
title = "Values near each other"
x = "n"
y = "requests_per_s"
where = { waiting = "window:4" }

[[figure]]
id = "second"
title = "The second alone"
x = "n"
y = "requests_per_s"
where = { waiting = "window:4", contestant = "fcfs" }
"#;

/// In place of the policy that allows the page's own scripts only: a script of the test, which notes how wide the page became and which
/// labels of axes lie on each other, saves the first figure, and leaves all that in the page around it.
const NOTES: &str = r#"<script>
addEventListener("load", () => {
  const note = (id, text) => parent.postMessage({ id, text }, "*");
  URL.createObjectURL = (blob) => { blob.text().then((text) => note("saved", text)); return "about:blank#"; };
  HTMLAnchorElement.prototype.click = () => {};
  note("wide", `${document.documentElement.scrollWidth} of ${document.documentElement.clientWidth}`);
  const on_another = [];
  for (const axis of document.querySelectorAll("figure g[aria-label$='axis tick label']")) {
    const labels = [...axis.querySelectorAll("text")].filter((text) => !(text.getAttribute("transform") ?? "").includes("rotate"));
    const boxes = labels.map((text) => text.getBoundingClientRect());
    for (const [index, one] of boxes.entries()) for (const two of boxes.slice(index + 1))
      if (one.left < two.right && two.left < one.right && one.top < two.bottom && two.top < one.bottom) on_another.push(labels[index].textContent);
  }
  // Names above bars that run along.
  for (const figure of document.querySelectorAll("figure")) {
    const bars = [...figure.querySelectorAll("g[aria-label='bar'] rect")].map((bar) => bar.getBoundingClientRect());
    for (const text of figure.querySelectorAll("g[aria-label='text'] text")) {
      const box = text.getBoundingClientRect();
      const is_on = (bar) => box.left < bar.right && bar.left < box.right && box.top + 2 < bar.bottom && bar.top < box.bottom - 2;
      if (bars.some(is_on)) on_another.push(`${text.textContent} on a bar`);
    }
  }
  note("on-another", on_another.join(", "));
  [...document.querySelectorAll("button")].find((button) => button.textContent === "SVG").click();
});
</script>"#;

/// A trace that is served by all that `advise` asks of itself.
const SHOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/samples/shop.trace");

/// Writes `page` with the test's script in place of its policy as `noted`.
fn note(scratch: &Scratch, page: &str, noted: &str) {
    let page = std::fs::read_to_string(scratch.path(page)).unwrap();
    let (before, rest) =
        page.split_once("<meta http-equiv=\"Content-Security-Policy\"").expect("the page has a policy");
    let (_, after) = rest.split_once('>').unwrap();
    scratch.write(noted, format!("{before}{NOTES}{after}"));
}

/// A page around another, which may be narrower than a window of the browser can be. It keeps what the script in it notes.
fn frame(scratch: &Scratch, noted: &str, width: u32) -> String {
    let keeps = "const pre = document.createElement('pre'); pre.id = data.id; pre.textContent = data.text; document.body.append(pre);";
    let page = format!(
        "<body><script>addEventListener('message', ({{ data }}) => {{ {keeps} }});</script>\
         <iframe src='{noted}' width='{width}' height='2000' style='border: 0'></iframe></body>"
    );
    let name = format!("frame-{width}-{noted}");
    scratch.write(&name, page);
    name
}

/// What a browser makes of `page`: its elements, as text.
fn drawn(scratch: &Scratch, page: &str, width: u32) -> Option<String> {
    let out = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--dump-dom"])
        .arg(format!("--window-size={width},2000"))
        .arg(format!("--user-data-dir={}", scratch.path("profile").display()))
        .arg(format!("file://{}", scratch.path(page).display()))
        .output();
    let out = out.ok()?;
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Some(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// The text of the element `id`.
fn text_of<'a>(page: &'a str, id: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("<pre id=\"{id}\">")).unwrap_or_else(|| panic!("no {id}: {page}"));
    rest.split_once("</pre>").unwrap().0
}

/// What is in the figure `id`.
fn figure<'a>(page: &'a str, id: &str) -> &'a str {
    let figure = page.split(&format!("<figure id=\"{id}\">")).nth(1).and_then(|rest| rest.split("</figure>").next());
    figure.unwrap_or_else(|| panic!("no {id}: {page}"))
}

/// The switches above the figure `id`, for axes that are logarithmic.
fn switches(page: &str, id: &str) -> Vec<String> {
    let labels = figure(page, id).split("</label>");
    labels.filter_map(|text| text.rsplit_once("<input type=\"checkbox\"> ")).map(|(_, text)| text.to_owned()).collect()
}

/// Aim: a page of a quick look is drawn without errors and fits a narrow window, where no label of an axis lies on another and no bar on a name; it says `quick` and
/// what coincides; a switch names the axis that it changes; and the file that it saves has title, legend and all that is said. Method: the page in a browser, as it is and with a script that saves a figure.
#[test]
fn pages_are_drawn() {
    if Command::new("chromium").arg("--version").output().is_err() {
        return skip(Need::Browser, "chromium is not installed");
    }
    let scratch = Scratch::new();
    scratch.make_directory("readers");
    scratch.write("readers/experiment.toml", EXPERIMENT);
    scratch.good(&["run", "readers", "--quick"]);
    scratch.make_directory("windows");
    scratch.write("windows/experiment.toml", NARROW);
    scratch.good(&["run", "windows"]);
    scratch.good(&["report", "results/readers-quick", "results/windows", "-o", "page.html"]);
    scratch.good(&["advise", "-q", SHOP, "--within", "20ms", "-o", "advice.html"]);
    note(&scratch, "page.html", "noted.html");
    note(&scratch, "advice.html", "noted-advice.html");
    scratch.good(&["advise", "-q", SHOP, "--on", "disk:nearline-4tb", "-o", "one.html"]);
    note(&scratch, "one.html", "noted-one.html");
    for width in [400, 1280] {
        let drawn = |page: &str| drawn(&scratch, page, width).expect("the browser is there");
        let plain = drawn("page.html");
        assert!(plain.contains("id=\"seekless-done\"") && !plain.contains("id=\"seekless-error\""), "{plain}");
        // Bars that run along have their values on the other axis.
        for (figure, expected) in [("near", &["log x", "log y"][..]), ("bars", &["log y"]), ("along", &["log x"])] {
            assert_eq!(switches(&plain, &format!("windows-{figure}")), expected, "{figure}");
        }
        // The second contestant has its colour also where it is alone.
        for id in ["near", "second"] {
            let (first, second) = ("var(--c0)", "var(--c1)");
            let drawn = figure(&plain, &format!("windows-{id}"));
            assert!(drawn.contains(second) && drawn.contains(first) == (id == "near"), "{id}: {drawn}");
        }
        for said in ["holds (quick)", "A rate (quick)", "at least 1.00", "one reader and another coincide"] {
            assert!(plain.contains(said), "{said}: {plain}");
        }
        let framed = |noted| drawn(&frame(&scratch, noted, width));
        let noted = framed("noted.html");
        for page in [&noted, &framed("noted-advice.html"), &framed("noted-one.html")] {
            let (wide, room) = text_of(page, "wide").split_once(" of ").unwrap();
            let [wide, room] = [wide, room].map(|text| text.parse::<u32>().unwrap());
            assert!(wide <= room && room <= width, "{wide} of {room} pixels");
            assert_eq!(text_of(page, "on-another"), "", "at {width} pixels");
        }
        let advice = drawn("advice.html");
        assert!(advice.contains("&nbsp;ms</td>") && !advice.contains(" ms</td>"), "numbers keep their units: {advice}");
        let saved = text_of(&noted, "saved");
        assert!(saved.starts_with("&lt;svg xmlns="), "{saved}");
        for said in ["A rate (quick)", "one reader", "another", "fcfs", "one reader and another coincide"] {
            assert!(saved.contains(&format!("&gt;{said}&lt;/text&gt;")), "{said}: {saved}");
        }
        assert!(!saved.contains("var(--"), "colours are those of the page: {saved}");
    }
}
