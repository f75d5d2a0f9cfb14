//! Figures: rows as curves, for any renderer.

use serde::Serialize;

use super::coincidence::{self, Near};
use super::description::{Chart, Description, Figure};
use super::published::Published;
use super::rounds::{HIGH, LOW};
use super::rows::{CONTESTANT, Row, counterpart};
use super::value::Value;

/// A figure with its points.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Drawing {
    pub id: String,
    pub title: String,
    pub caption: String,
    pub chart: Chart,
    pub x_label: String,
    pub y_label: String,
    pub x_log: bool,
    pub y_log: bool,
    pub y_from: Option<f64>,
    /// Meaning of the colours and dashes.
    pub colour_label: String,
    pub dash_label: String,
    pub panels: Vec<Panel>,
    /// Which curves lie on one another, a sentence for each group.
    pub coinciding: Vec<String>,
    /// Why it shows nothing that was measured, in lines; none when it does.
    pub absent: Vec<String>,
}

/// One diagram of a figure.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Panel {
    /// Its title; empty when it is the only one.
    pub name: String,
    pub curves: Vec<Curve>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Curve {
    pub name: String,
    /// The value that decides its colour, and the ones that decide its dash: of the figure's dimension for dashes, and of those
    /// that the figure does not name.
    pub colour: String,
    pub dash: String,
    /// Its publication; empty for our own measurements.
    pub source: String,
    /// Which of the publications that the figure has of this colour and dash its source is: each has a symbol of its own. 0 for our own
    /// measurements.
    pub variant: usize,
    /// How many later curves of the panel lie on it. It is drawn as much wider, so that it is seen beneath them.
    pub beneath: usize,
    pub marks: Vec<Mark>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Mark {
    pub x: Value,
    pub y: f64,
    /// How many later curves of the panel have a point on this one. Its symbol is as much larger.
    pub beneath: usize,
    /// The quartiles of several rounds, where the metric has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<(f64, f64)>,
}

/// A point that is not yet part of a curve.
struct Placed {
    panel: Option<Value>,
    colour: Value,
    dash: Option<Value>,
    /// Dimensions that the figure does not show, where they differ.
    rest: String,
    source: String,
    mark: Mark,
}

/// The points of `figure`: measured and published ones.
pub fn draw(figure: &Figure, description: &Description, rows: &[Row], published: &[Published]) -> Drawing {
    let chosen = figure.only.of(rows);
    let mut all: Vec<Placed> = Vec::new();
    // A dimension that the figure does not show becomes part of the curve's name when it has several values, unless it
    // says the same as x.
    let places = [&figure.x, &figure.colour, &figure.dash, &figure.panels];
    let is_x = |row: &Row, name: &String| {
        row.dims.get(&figure.x).zip(row.dims.get(name)).is_some_and(|(x, value)| x.is_same(value))
    };
    let mut others: Vec<&String> = Vec::new();
    for name in chosen.iter().flat_map(|row| row.dims.keys()).filter(|name| !places.contains(name)) {
        let mut values = chosen.iter().filter_map(|row| row.dims.get(name));
        let first = values.next();
        let has_several = values.any(|value| first.is_some_and(|first| !first.is_same(value)));
        if !others.contains(&name) && has_several && !chosen.iter().all(|row| is_x(row, name)) {
            others.push(name);
        }
    }
    for row in &chosen {
        let Some(mut y) = row.metrics.get(&figure.y).copied() else { continue };
        let quartile = |end: &str| row.metrics.get(&format!("{}{end}", figure.y)).copied();
        // A quotient has a spread of its own, which those of its parts do not give.
        let spread = quartile(LOW).zip(quartile(HIGH)).filter(|_| figure.relative_to.is_empty());
        if !figure.relative_to.is_empty() {
            let other = counterpart(row, &figure.relative_to, rows).and_then(|other| other.metrics.get(&figure.y));
            let Some(other) = other.filter(|other| **other != 0.0) else { continue };
            y /= other;
        }
        let rest = others.iter().filter_map(|name| Some(part(name, row.dims.get(*name)?)));
        let rest = rest.collect::<Vec<_>>().join(", ");
        all.extend(place(figure, &row.dims, (y, spread), rest, String::new()));
    }
    let is_drawn = |published: &&Published| published.metric == figure.y && figure.relative_to.is_empty();
    for published in published.iter().filter(is_drawn).filter(|published| figure.only.holds(&published.dims)) {
        let rest = others.iter().filter_map(|name| Some(part(name, published.dims.get(*name)?)));
        let rest = rest.collect::<Vec<_>>().join(", ");
        all.extend(place(figure, &published.dims, (published.value, None), rest, published.source.clone()));
    }
    if figure.chart == Chart::Bar {
        // In a group of bars a published one alone would look like a measurement that is missing.
        let place = |placed: &Placed| (placed.panel.clone(), placed.mark.x.clone());
        let measured: Vec<(Option<Value>, Value)> =
            all.iter().filter(|placed| placed.source.is_empty()).map(place).collect();
        let is_beside = |placed: &Placed| {
            let is_same_panel = |panel: &Option<Value>| match (panel, &placed.panel) {
                (Some(one), Some(other)) => one.is_same(other),
                (one, other) => one.is_none() && other.is_none(),
            };
            measured.iter().any(|(panel, x)| is_same_panel(panel) && x.is_same(&placed.mark.x))
        };
        all.retain(|placed| placed.source.is_empty() || measured.is_empty() || is_beside(placed));
    }
    let label = |label: &str, instead: String| if label.is_empty() { instead } else { label.to_owned() };
    let colour_label = description.label(&figure.colour);
    let absent = match all.iter().any(|placed| placed.source.is_empty()) {
        true => Vec::new(),
        false => absent(figure, description, rows),
    };
    let mut panels = panels(figure, description, all);
    let coinciding = match figure.chart {
        Chart::Line => {
            let mut sentences = coinciding(&mut panels, figure.y_axis.log);
            sentences.extend(shared(&mut panels));
            sentences
        }
        Chart::Bar => Vec::new(),
    };
    number_sources(&mut panels);
    Drawing {
        id: figure.id.clone(),
        title: figure.title.clone(),
        caption: figure.caption.clone(),
        chart: figure.chart,
        x_label: label(&figure.x_axis.label, description.label(&figure.x)),
        y_label: label(
            &figure.y_axis.label,
            match figure.relative_to.is_empty() {
                true => figure.y.clone(),
                false => format!("{}, times that of {}", figure.y, figure.relative_to.words()),
            },
        ),
        x_log: figure.x_axis.log,
        y_log: figure.y_axis.log,
        y_from: figure.y_axis.from,
        colour_label,
        dash_label: if figure.dash.is_empty() { String::new() } else { description.label(&figure.dash) },
        panels,
        coinciding,
        absent,
    }
}

/// Why a figure shows none of the rows, in lines.
fn absent(figure: &Figure, description: &Description, rows: &[Row]) -> Vec<String> {
    let nothing = "Nothing that this figure shows was measured.".to_owned();
    if rows.is_empty() {
        return vec![nothing];
    }
    let reason = |(name, wanted, known): (&str, String, String)| {
        let label = description.label(name);
        match known.is_empty() {
            true => format!("It shows {label} {wanted}; no row has a value of it."),
            false => format!("It shows {label} {wanted}; this run has {known}."),
        }
    };
    [nothing].into_iter().chain(figure.only.unmet(rows).into_iter().map(reason)).collect()
}

/// Counts for each curve and each point how many later ones of its panel lie on it, and says which curves coincide. Published points are not compared: they
/// are drawn open, over what was measured.
fn coinciding(panels: &mut [Panel], y_log: bool) -> Vec<String> {
    let marks = panels.iter().flat_map(|panel| &panel.curves).flat_map(|curve| &curve.marks);
    let most = marks.map(|mark| mark.y.abs()).fold(0.0, f64::max);
    let near = if y_log { Near::Log } else { Near::Linear(most) };
    let mut sentences = Vec::new();
    for panel in panels {
        let measured: Vec<usize> = (0..panel.curves.len()).filter(|&at| panel.curves[at].source.is_empty()).collect();
        let points = |at: &usize| panel.curves[*at].marks.iter().map(|mark| (&mark.x, mark.y)).collect();
        let all: Vec<coincidence::Points<'_>> = measured.iter().map(points).collect();
        let (groups, beneath) = (coincidence::groups(&all, near), coincidence::beneath(&all, near));
        for (&curve, counts) in measured.iter().zip(beneath) {
            for (mark, count) in panel.curves[curve].marks.iter_mut().zip(counts) {
                mark.beneath = count;
            }
        }
        for group in groups {
            for (above, &index) in group.iter().rev().enumerate() {
                panel.curves[measured[index]].beneath = above;
            }
            let names: Vec<&str> = group.iter().map(|&index| panel.curves[measured[index]].name.as_str()).collect();
            let place = if panel.name.is_empty() { String::new() } else { format!("{}: ", panel.name) };
            let Some((last, others)) = names.split_last() else { continue };
            sentences.push(format!("{place}{} and {last} coincide", others.join(", ")));
        }
    }
    sentences
}

/// Draws a published curve once that is beside several measured ones, under its source alone, and says beside which it is.
fn shared(panels: &mut [Panel]) -> Vec<String> {
    let mut sentences = Vec::new();
    for panel in panels {
        let mut at = 0;
        while at < panel.curves.len() {
            let first = &panel.curves[at];
            let is_same = |other: &Curve| other.source == first.source && other.marks == first.marks;
            let same: Vec<usize> = match first.source.is_empty() {
                true => Vec::new(),
                false => (at + 1..panel.curves.len()).filter(|&other| is_same(&panel.curves[other])).collect(),
            };
            let source = first.source.clone();
            if !same.is_empty() && panel.curves.iter().all(|curve| curve.name != source) {
                let beside = |curve: &Curve| curve.name.replace(&format!(", {source}"), "");
                let others: Vec<String> = same.iter().map(|&index| beside(&panel.curves[index])).collect();
                let Some((last, middle)) = others.split_last() else { unreachable!("there are some") };
                let names: Vec<String> = std::iter::once(beside(first)).chain(middle.iter().cloned()).collect();
                sentences.push(format!("{source} is one curve, beside {} and {last}", names.join(", ")));
                same.iter().rev().for_each(|&index| drop(panel.curves.remove(index)));
                panel.curves[at].name = source;
            }
            at += 1;
        }
    }
    sentences
}

/// Numbers the sources of published curves that have colour and dash in common.
fn number_sources(panels: &mut [Panel]) {
    let mut known: Vec<(String, String, Vec<String>)> = Vec::new();
    for curve in panels.iter_mut().flat_map(|panel| &mut panel.curves).filter(|curve| !curve.source.is_empty()) {
        let at = known.iter().position(|(colour, dash, _)| (colour, dash) == (&curve.colour, &curve.dash));
        let at = at.unwrap_or_else(|| {
            known.push((curve.colour.clone(), curve.dash.clone(), Vec::new()));
            known.len() - 1
        });
        let sources = &mut known[at].2;
        curve.variant = sources.iter().position(|source| *source == curve.source).unwrap_or_else(|| {
            sources.push(curve.source.clone());
            sources.len() - 1
        });
    }
}

/// Where a point with these dimensions is drawn; `None` when a dimension that the figure needs is missing.
fn place(
    figure: &Figure,
    dims: &std::collections::BTreeMap<String, Value>,
    (y, spread): (f64, Option<(f64, f64)>),
    rest: String,
    source: String,
) -> Option<Placed> {
    let optional = |name: &String| match name.is_empty() {
        true => Some(None),
        false => dims.get(name).cloned().map(Some),
    };
    Some(Placed {
        panel: optional(&figure.panels)?,
        colour: dims.get(&figure.colour)?.clone(),
        dash: optional(&figure.dash)?,
        rest,
        source,
        mark: Mark { x: dims.get(&figure.x)?.clone(), y, beneath: 0, spread },
    })
}

fn panels(figure: &Figure, description: &Description, all: Vec<Placed>) -> Vec<Panel> {
    /// Curves with the value that decides their colour.
    type Coloured = Vec<(Value, Curve)>;
    let mut panels: Vec<(Option<Value>, Coloured)> = Vec::new();
    for placed in all {
        let is_same = |panel: &Option<Value>| match (panel, &placed.panel) {
            (Some(one), Some(two)) => one.is_same(two),
            _ => true,
        };
        let index = panels.iter().position(|(panel, _)| is_same(panel)).unwrap_or_else(|| {
            panels.push((placed.panel.clone(), Vec::new()));
            panels.len() - 1
        });
        // Lines have dashes for what the figure does not show, too.
        let rest = Some(placed.rest.clone()).filter(|rest| !rest.is_empty() && figure.chart == Chart::Line);
        let dash = placed.dash.as_ref().map(Value::to_string).into_iter().chain(rest).collect::<Vec<_>>().join(", ");
        let colour = placed.colour.to_string();
        let parts = [part(&figure.colour, &placed.colour)]
            .into_iter()
            .chain(placed.dash.as_ref().map(|dash| part(&figure.dash, dash)))
            .chain([placed.rest, placed.source.clone()]);
        let name = parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
        let curves = &mut panels[index].1;
        match curves.iter_mut().find(|(_, curve)| curve.name == name) {
            Some((_, curve)) => curve.marks.push(placed.mark),
            None => {
                let (source, marks) = (placed.source, vec![placed.mark]);
                let curve = Curve { name, colour, dash, source, variant: 0, beneath: 0, marks };
                curves.push((placed.colour, curve));
            }
        }
    }
    if figure.panels != CONTESTANT {
        let order = |one: &Option<Value>, two: &Option<Value>| match (one, two) {
            (Some(one), Some(two)) => one.order(two),
            _ => std::cmp::Ordering::Equal,
        };
        panels.sort_by(|(one, _), (two, _)| order(one, two));
    }
    let finish = |(value, mut curves): (Option<Value>, Vec<(Value, Curve)>)| {
        // Contestants stay in the order of the description.
        if figure.colour != CONTESTANT {
            curves.sort_by(|(one, _), (two, _)| one.order(two));
        }
        let mut curves: Vec<Curve> = curves.into_iter().map(|(_, curve)| curve).collect();
        curves.sort_by_key(|curve| !curve.source.is_empty());
        for curve in &mut curves {
            // Texts stay in the order of the rows, which is that of the description.
            curve.marks.sort_by(|one, two| match (one.x.number(), two.x.number()) {
                (Some(one), Some(two)) => one.total_cmp(&two),
                _ => std::cmp::Ordering::Equal,
            });
        }
        let name = value.map_or_else(String::new, |value| match description.variables.contains_key(&figure.panels) {
            true => named(&description.label(&figure.panels), &value),
            false => value.to_string(),
        });
        Panel { name, curves }
    };
    panels.into_iter().map(finish).collect()
}

/// `disks 4`, or a text alone.
fn part(name: &str, value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        number => format!("{name} {number}"),
    }
}

fn named(label: &str, value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        number => format!("{label}: {number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Aim: of curves that are on one another each is seen and named, in the panel where they are; published ones are left alone. Method: three
    /// measured curves and a published one in one panel, two in another.
    #[test]
    fn what_coincides_is_said() {
        let curve = |name: &str, source: &str, y: f64| {
            let mark = Mark { x: Value::Integer(1), y, beneath: 0, spread: None };
            let [name, source] = [name, source].map(str::to_owned);
            Curve { colour: name.clone(), name, dash: String::new(), source, variant: 0, beneath: 0, marks: vec![mark] }
        };
        let panel = |name: &str, curves: Vec<Curve>| Panel { name: name.to_owned(), curves };
        let mut panels = [
            panel("", vec![curve("p", "[x]", 5.0), curve("a", "", 5.0), curve("b", "", 5.0), curve("c", "", 5.0)]),
            panel("disks: 4", vec![curve("a", "", 5.0), curve("b", "", 6.0), curve("c", "", 6.0)]),
        ];
        let beneath = |panel: &Panel| panel.curves.iter().map(|curve| curve.beneath).collect::<Vec<_>>();
        assert_eq!(coinciding(&mut panels, true), ["a, b and c coincide", "disks: 4: b and c coincide"]);
        assert_eq!((beneath(&panels[0]), beneath(&panels[1])), (vec![0, 2, 1, 0], vec![0, 1, 0]));
        let marks = panels[0].curves.iter().map(|curve| curve.marks[0].beneath);
        assert!(marks.eq([0, 2, 1, 0]));
    }

    /// Two contestants at two places of x, and what was published beside them.
    fn drawn(chart: &str, rows: &[(&str, &str)], published: &[(&str, &str, f64, &str)]) -> Drawing {
        let text = format!(
            "title = 't'\nworkload = {{ kind = 'count', trace = 'a.csv' }}\ncontestant = [{{ name = 'a' }}, {{ name = 'b' }}]\n\
             [[figure]]\nid = 'f'\ntitle = 't'\nx = 'operation'\ny = 'requests'\nchart = '{chart}'\n"
        );
        let description: Description = toml::from_str(&text).unwrap();
        let dims = |contestant: &str, operation: &str| {
            let pair = |name: &str, value: &str| (name.to_owned(), Value::Text(value.to_owned()));
            [pair("contestant", contestant), pair("operation", operation)].into()
        };
        let row = |(contestant, operation): &(&str, &str)| Row {
            dims: dims(contestant, operation),
            metrics: [("requests".to_owned(), 1.0)].into(),
        };
        let publication = |(contestant, operation, value, source): &(&str, &str, f64, &str)| Published {
            dims: dims(contestant, operation),
            metric: "requests".to_owned(),
            value: *value,
            source: (*source).to_owned(),
            note: String::new(),
        };
        let rows: Vec<Row> = rows.iter().map(row).collect();
        let published: Vec<Published> = published.iter().map(publication).collect();
        draw(&description.figures[0], &description, &rows, &published)
    }

    /// Aim: publications of one contestant can be distinguished, and one that is beside several is drawn once. Method: two sources of one contestant,
    /// and the same points of another source for both.
    #[test]
    fn publications_can_be_distinguished() {
        let rows = [("a", "read"), ("b", "read")];
        let two = [("a", "read", 2.0, "[x]"), ("a", "read", 3.0, "[x], its arithmetic"), ("b", "read", 2.0, "[x]")];
        let drawing = drawn("line", &rows, &two);
        let variants = |drawing: &Drawing| -> Vec<(String, usize)> {
            drawing.panels[0].curves.iter().map(|curve| (curve.name.clone(), curve.variant)).collect()
        };
        let expected = [("a", 0), ("b", 0), ("[x]", 0), ("a, [x], its arithmetic", 1)];
        assert_eq!(variants(&drawing), expected.map(|(name, variant)| (name.to_owned(), variant)));
        assert_eq!(drawing.coinciding, ["a and b coincide", "[x] is one curve, beside a and b"]);
        let bars = drawn("bar", &rows, &two);
        assert_eq!(bars.panels[0].curves.len(), 5, "bars of the same height are beside one another");
        assert_eq!(bars.panels[0].curves[3].variant, 1);
    }

    /// Aim: a group of bars in which nothing was measured is left out, as --quick has fewer. Method: a published bar at a place with a row, and one
    /// at a place without; and where nothing at all was measured, both.
    #[test]
    fn published_bars_are_beside_measured_ones() {
        let published = [("a", "read", 2.0, "[x]"), ("a", "write", 3.0, "[x]")];
        let marks = |rows: &[(&str, &str)]| -> usize {
            drawn("bar", rows, &published).panels[0].curves.iter().map(|curve| curve.marks.len()).sum()
        };
        assert_eq!(marks(&[("a", "read")]), 2);
        assert_eq!(marks(&[]), 2);
        // In another panel there is no measurement beside it.
        let apart = [("a", "read", 2.0, "[x]"), ("b", "read", 3.0, "[x]")];
        let drawing = drawn("bar'\npanels = 'contestant", &[("a", "read")], &apart);
        assert_eq!(drawing.panels.iter().map(|panel| panel.curves.len()).collect::<Vec<_>>(), [2]);
    }
}
