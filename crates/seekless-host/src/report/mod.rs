//! Results as a page and as pictures, both made only from the stored results of a run.
//!
//! The page is one file that needs no network and no server: it contains the data, style, scripts and drawing libraries
//! ([D3 and Observable Plot](../../assets/report/vendor/README.md)), and its content-security policy allows only these
//! scripts, by their digests. Without scripts it shows the same figures as pictures.

mod scale;
mod svg;

use std::collections::BTreeSet;

use base64::Engine;
use seekless::units::counted;
use seekless_lab::experiment::{Answer, Checked, Stored, Verdict, deviations, draw, to_csv};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

pub(crate) use scale::{Scale, label};
pub(crate) use svg::COLOURS;
pub use svg::to_svg;

const PAGE: &str = include_str!("../../assets/report/page.html");
const STYLE: &str = include_str!("../../assets/report/page.css");
const SCRIPT: &str = include_str!("../../assets/report/page.js");
const EXPLORE: &str = include_str!("../../assets/report/explore.js");
const D3: &str = include_str!("../../assets/report/vendor/d3.min.js");
const PLOT: &str = include_str!("../../assets/report/vendor/plot.umd.min.js");

/// The command that makes a page, and that may replace it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Maker {
    Report,
    Advise,
}

impl Maker {
    /// Behind the program's version.
    fn mark(self) -> &'static str {
        match self {
            Maker::Report => "",
            Maker::Advise => ", advise",
        }
    }

    /// What made a page, by its beginning; `None` if it is no page of this program, of whatever version.
    pub fn of(beginning: &str) -> Option<Maker> {
        let (_, rest) = beginning.split_once("<meta name=\"generator\" content=\"seekless ")?;
        let made_by = rest.split('"').next()?;
        Some(if made_by.ends_with(Maker::Advise.mark()) { Maker::Advise } else { Maker::Report })
    }
}

/// A page with all `results`.
///
/// # Errors
/// When a figure cannot be drawn.
pub fn page(title: &str, results: &[Stored], maker: Maker) -> Result<String, String> {
    let experiments: Vec<Value> = results.iter().map(experiment).collect();
    let data = json!({ "title": title, "experiments": experiments }).to_string();
    let hashes: Vec<String> =
        [D3, PLOT, EXPLORE, SCRIPT].iter().map(|script| format!("'{}'", integrity(script))).collect();
    let text = fallback(title, results)?;
    // Inserted text is not searched for further marks, as data may contain anything.
    let marks = [
        ("@HASHES@", hashes.join(" ")),
        ("@VERSION@", env!("CARGO_PKG_VERSION").to_owned()),
        ("@MAKER@", maker.mark().to_owned()),
        ("@TITLE@", escape(title)),
        ("@STYLE@", STYLE.to_owned()),
        ("@STATIC@", text),
        ("@DATA@", harmless(&data)),
        ("@D3@", D3.to_owned()),
        ("@PLOT@", PLOT.to_owned()),
        ("@EXPLORE@", EXPLORE.to_owned()),
        ("@SCRIPT@", SCRIPT.to_owned()),
    ];
    let mut page = String::new();
    let mut rest = PAGE;
    for (mark, value) in &marks {
        let Some((before, after)) = rest.split_once(mark) else { unreachable!("the page has {mark} in its place") };
        page += before;
        page += value;
        rest = after;
    }
    Ok(page + rest)
}

/// The page's part for one experiment.
fn experiment(stored: &Stored) -> Value {
    let Stored { name, description, published, rows, provenance, text, answer } = stored;
    let claims: Vec<Checked> = description.claims.iter().map(|claim| claim.verify(rows, published)).collect();
    let figures: Vec<_> = description.figures.iter().map(|figure| draw(figure, description, rows, published)).collect();
    let published: Vec<Value> = deviations(published, rows)
        .iter()
        .map(|deviation| {
            let published = &deviation.published;
            json!({
                "dims": published.dims, "metric": published.metric, "value": published.value,
                "source": published.source, "note": published.note,
                "measured": deviation.measured, "deviation": deviation.relative(),
            })
        })
        .collect();
    json!({
        "name": name,
        "title": description.title,
        "paper": description.paper,
        "about": description.about.trim(),
        "answer": answer,
        "description": without_points(text),
        "claims": claims,
        "metrics": meanings(stored),
        "figures": figures,
        "published": published,
        "quick": description.is_quick,
        "missing": missing(stored),
        "rows": rows.len(),
        "dims": dims(stored),
        "metric": description.figures.first().map(|figure| &figure.y),
        "csv": to_csv(rows),
        "provenance": provenance,
    })
}

/// What each metric of the claims means, and in which unit it is, in the order in which they appear.
fn meanings(stored: &Stored) -> Vec<(&str, &str)> {
    let known = stored.description.kind().map_or(&[][..], |kind| kind.metrics);
    let mut found: Vec<(&str, &str)> = Vec::new();
    for claim in &stored.description.claims {
        let meaning = known.iter().find(|(name, _)| *name == claim.metric);
        found.extend(meaning.filter(|meaning| !found.contains(meaning)));
    }
    found
}

/// What a page says of a run that has not come to its end.
fn interrupted(missing: u64) -> String {
    format!("Interrupted: {} not measured yet. The same command continues.", counted(missing, "point"))
}

/// How many points of an interrupted run are missing.
fn missing(stored: &Stored) -> u64 {
    stored.provenance["points_missing"].as_u64().unwrap_or(0)
}

/// A description without its points where they are many: those of a large study are megabytes, and follow from the rest.
fn without_points(text: &str) -> String {
    const POINTS_MAX: usize = 200;
    const POINT: &str = "\n[[point]]\n";
    match (text.matches(POINT).count(), text.find(POINT)) {
        (count, Some(at)) if count > POINTS_MAX => format!("{}\n# and {count} points, in resolved.toml\n", &text[..at]),
        _ => text.to_owned(),
    }
}

/// The dimensions of the rows, with the words for them.
fn dims(stored: &Stored) -> Vec<Value> {
    let names: BTreeSet<&String> = stored.rows.iter().flat_map(|row| row.dims.keys()).collect();
    let label = |name: &str| {
        let label = stored.description.variables.get(name).map(|variable| variable.label.clone());
        label.filter(|label| !label.is_empty()).unwrap_or_else(|| name.to_owned())
    };
    names.into_iter().map(|name| json!({ "name": name, "label": label(name) })).collect()
}

/// The page for browsers without scripts: the verdicts, and the figures in their initial state.
fn fallback(title: &str, results: &[Stored]) -> Result<String, String> {
    let mut text = format!("<h1>{}</h1>\n", escape(title));
    for stored in results {
        let description = &stored.description;
        text += &format!("<section><h2>{} {}</h2>\n", escape(&description.title), escape(&description.paper));
        if let points @ 1.. = missing(stored) {
            text += &format!("<p class=\"missing\">{}</p>\n", interrupted(points));
        }
        text += &format!("<p class=\"about\">{}</p>\n", prose(description.about.trim()));
        text += &stored.answer.as_ref().map_or_else(String::new, answer);
        text += "<ul>\n";
        let quick = if description.is_quick { " (quick)" } else { "" };
        for claim in &description.claims {
            let Checked { claim, verdict, required, found, .. } = claim.verify(&stored.rows, &stored.published);
            let word = match verdict {
                Verdict::Open => verdict.name().to_owned(),
                _ => format!("{}{quick}: {}; required: {}", verdict.name(), escape(&found), escape(&required)),
            };
            let word = match claim.published.as_str() {
                "" => word,
                published => format!("{word}; published: {}", escape(published)),
            };
            text += &format!("<li>{} {} <b>{word}</b></li>\n", prose(&claim.text), escape(&claim.source));
        }
        text += "</ul>\n";
        for figure in &description.figures {
            let drawing = draw(figure, description, &stored.rows, &stored.published);
            text += &format!(
                "<figure>{}<figcaption>{}</figcaption></figure>\n",
                to_svg(&drawing)?,
                prose(&drawing.caption)
            );
        }
        text += "</section>\n";
    }
    Ok(text)
}

/// What the page answers, for browsers without scripts.
fn answer(answer: &Answer) -> String {
    let cards = answer
        .cards
        .iter()
        .map(|card| format!("<p>{}: <b>{}</b>. {}</p>\n", escape(&card.label), prose(&card.value), prose(&card.note)));
    let header = answer.header.iter().map(|text| format!("<th>{}</th>", escape(text)));
    let rows = answer.rows.iter().map(|row| {
        let cells: String = row.cells.iter().map(|cell| format!("<td>{}</td>", escape(cell))).collect();
        format!("<tr><td>{}<small>{}</small></td>{cells}</tr>\n", escape(&row.name), escape(&row.below))
    });
    let notes = answer.notes.iter().map(|note| format!("<p class=\"about\">{}</p>\n", prose(note)));
    format!(
        "{}<table><tr>{}</tr>\n{}</table>\n{}",
        cards.collect::<String>(),
        header.collect::<String>(),
        rows.collect::<String>(),
        notes.collect::<String>()
    )
}

/// Escapes text for HTML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Text in HTML, in which `backticks` mark code.
fn prose(text: &str) -> String {
    let parts: Vec<String> = text.split('`').map(escape).collect();
    let mut prose = String::new();
    for (index, part) in parts.iter().enumerate() {
        // A mark without a partner is an ordinary character.
        match index % 2 {
            0 => prose += part,
            _ if index + 1 < parts.len() => prose += &format!("<code>{part}</code>"),
            _ => prose += &format!("`{part}"),
        }
    }
    prose
}

/// JSON that may be placed in a script element: nothing in it ends the element or begins a comment.
fn harmless(json: &str) -> String {
    json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

/// The digest by which a content-security policy names a script.
fn integrity(script: &str) -> String {
    format!("sha256-{}", base64::engine::general_purpose::STANDARD.encode(Sha256::digest(script)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The libraries are those of the registry, byte for byte. Method: their recorded checksums.
    #[test]
    fn libraries_are_unchanged() {
        let sums = include_str!("../../assets/report/vendor/checksums.txt");
        for (name, text) in [("d3.min.js", D3), ("plot.umd.min.js", PLOT)] {
            let sum: String = Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
            assert!(sums.contains(&format!("{sum}  {name}")), "{name}: {sum}");
            let ends = text.contains("</script") || text.contains("<!--");
            assert!(!ends, "{name} would end the element that contains it");
        }
        assert!([SCRIPT, EXPLORE].iter().all(|script| !script.contains("</script") && !script.contains("<!--")));
    }

    /// A small result, as a run stores it.
    fn stored(quick: bool, missing: u64) -> Stored {
        let text = r#"
            title = "t"
            workload = { kind = "count", trace = "a.csv" }
            contestant = [{ name = "one" }]
            [[figure]]
            id = "f"
            title = "requests of a trace"
            x = "contestant"
            y = "requests"
            [[claim]]
            text = "there are some"
            source = "ours"
            metric = "requests"
            test = "value"
            above = 1.0
            below = 5.0
        "#;
        let mut experiment = seekless_lab::experiment::Experiment {
            name: "e".into(),
            folder: "e".into(),
            description: toml::from_str(text).unwrap(),
            published: Vec::new(),
            omitted: Default::default(),
        };
        if quick {
            experiment = experiment.quick();
        }
        let row = r#"{ "dims": { "contestant": "one", "operation": "read" }, "metrics": { "requests": 3.0 } }"#;
        Stored {
            name: experiment.name,
            description: experiment.description,
            published: Vec::new(),
            rows: vec![serde_json::from_str(row).unwrap()],
            provenance: json!({ "points_missing": missing }),
            text: text.to_owned(),
            answer: None,
        }
    }

    /// Aim: a page is printed in light colours, also where the screen is dark. Method: the rules for paper name what the dark ones name, as
    /// selectors and as colours; and they come later, so that they win.
    #[test]
    fn pages_are_printed_light() {
        let (screen, paper) = STYLE.split_once("@media print").unwrap();
        let dark: Vec<&str> =
            screen.lines().filter(|line| line.contains(":root") && line.contains("data-theme")).collect();
        let dark = dark.into_iter().filter(|line| !line.trim().starts_with(":root[data-theme=\"light\"]"));
        let selectors: Vec<&str> = dark.map(|line| line.trim().trim_end_matches(" {")).collect();
        assert_eq!(selectors.len(), 2, "{selectors:?}");
        assert!(selectors.iter().all(|selector| paper.contains(selector)), "{selectors:?}");
        let (_, colours) = screen.split_once(":root[data-theme=\"dark\"] {").unwrap();
        let colours = colours.split_once('}').unwrap().0;
        let names = colours.split(';').filter_map(|part| Some(part.split_once(':')?.0.trim()));
        let missing: Vec<&str> = names.filter(|name| !paper.contains(&format!("{name}: "))).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    /// Aim: a quick look and an interrupted run say so wherever they are shown. Method: the part that is shown without scripts, and the data
    /// of the part with scripts; each with and without.
    #[test]
    fn pages_say_what_they_are_not() {
        for (quick, missing) in [(false, 0), (true, 0), (false, 2), (true, 1)] {
            let stored = stored(quick, missing);
            let text = fallback("t", std::slice::from_ref(&stored)).unwrap();
            assert!(text.contains("required: 1.00 to 5.00"), "{text}");
            assert_eq!(text.contains("holds (quick): 3.00"), quick, "{text}");
            assert_eq!(text.contains("<h2>t (quick)"), quick, "{text}");
            assert_eq!(
                text.contains(">requests of a trace (quick)</text>") || text.contains("trace (quick)\n"),
                quick,
                "{text}"
            );
            assert_eq!(text.contains("Interrupted: "), missing > 0, "{text}");
            let data = experiment(&stored);
            assert_eq!((&data["quick"], &data["missing"]), (&json!(quick), &json!(missing)));
        }
        let text = fallback("t", &[stored(true, 1)]).unwrap();
        assert!(text.contains("Interrupted: 1 point not measured yet"), "{text}");
    }

    #[test]
    fn backticks_are_marks_in_pairs() {
        assert_eq!(prose("`a<b` is `x`, 5` tall"), "<code>a&lt;b</code> is <code>x</code>, 5` tall");
        assert_eq!(prose("none"), "none");
    }

    /// Data cannot leave its element, whatever it contains, and is read back unchanged.
    #[test]
    fn data_stays_data() {
        let nasty = "</script><script>alert(1)</script><!-- \u{2028} @D3@";
        let text = harmless(&json!({ "x": nasty }).to_string());
        assert!(!text.contains('<'), "{text}");
        let back: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(back["x"], nasty);
    }
}
