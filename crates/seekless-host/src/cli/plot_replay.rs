//! Pictures of a replay: how long requests took, and how that changed over the trace, a curve for each storage.

use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use seekless::units::Nanos;
use seekless_lab::replay::Outcome;
use seekless_lab::trace::Op;

use super::Failure;
use super::plot::stacked;
use super::plot_legend::{self, Entry};
use super::plot_style::{Area, FONT, GRID, INK, WIDTH, cannot};
use crate::report::{COLOURS, Scale, label};

/// Without the legend.
const HEIGHT: u32 = 480;

/// Responses in one diagram: milliseconds, on a logarithmic axis, over or under another quantity.
struct Panel {
    title: String,
    x_desc: &'static str,
    y_desc: &'static str,
    /// Milliseconds are on the horizontal axis; otherwise they are on the vertical one.
    times_across: bool,
    /// Points by the name of the storage, with milliseconds first.
    curves: Vec<(String, Vec<(f64, f64)>)>,
}

/// The distribution of response times of each kind of request that the trace has; and, where requests arrived as
/// recorded, the mean response by time of arrival. An SVG file that needs no other.
pub(super) fn responses(outcomes: &[Outcome]) -> Result<String, Failure> {
    let panels: Vec<Panel> = [Op::Read, Op::Write]
        .into_iter()
        .filter_map(|op| distribution(outcomes, op))
        .chain(over_time(outcomes))
        .collect();
    if panels.is_empty() {
        return Err(Failure::new("there is nothing to draw: the trace has neither reads nor writes"));
    }
    let legend = |panel: &Panel| plot_legend::height(panel.curves.iter().map(|(name, _)| name.as_str()));
    stacked(&panels, HEIGHT + panels.iter().map(legend).max().unwrap_or(0), draw)
}

fn distribution(outcomes: &[Outcome], op: Op) -> Option<Panel> {
    const STEPS: u32 = 1000;
    let curve = |outcome: &Outcome| {
        let stats = &outcome.ops[op.index()];
        let point = |step: u32| {
            let share = f64::from(step) / f64::from(STEPS);
            (milliseconds(stats.quantile(share)), 100.0 * share)
        };
        (stats.requests > 0).then(|| (1..=STEPS).map(point).collect::<Vec<_>>())
    };
    let panel = Panel {
        title: format!("Response times of {}s", op.name()),
        x_desc: "response time (ms)",
        y_desc: "requests answered within it (%)",
        times_across: true,
        curves: named(outcomes, curve),
    };
    (!panel.curves.is_empty()).then_some(panel)
}

fn over_time(outcomes: &[Outcome]) -> Option<Panel> {
    let curve = |outcome: &Outcome| {
        let over_time = &outcome.arrivals.as_ref()?.over_time;
        let point = |(index, interval): (usize, &seekless_lab::replay::Interval)| {
            let middle = (index as f64 + 0.5) * over_time.width.as_secs_f64();
            (interval.requests > 0).then(|| (milliseconds(interval.mean()), middle))
        };
        let points: Vec<(f64, f64)> = over_time.intervals.iter().enumerate().filter_map(point).collect();
        (points.len() > 1).then_some(points)
    };
    let panel = Panel {
        title: "Mean response by time of arrival".into(),
        x_desc: "time of arrival (s)",
        y_desc: "mean response time (ms)",
        times_across: false,
        curves: named(outcomes, curve),
    };
    (!panel.curves.is_empty()).then_some(panel)
}

/// The curves that there are, with the storage's number and name.
fn named<T>(outcomes: &[Outcome], curve: impl Fn(&Outcome) -> Option<T>) -> Vec<(String, T)> {
    let name =
        |(index, outcome): (usize, &Outcome)| Some((format!("[{}] {}", index + 1, outcome.stack), curve(outcome)?));
    outcomes.iter().enumerate().filter_map(name).collect()
}

/// At least a nanosecond, as the axis is logarithmic.
fn milliseconds(time: Nanos) -> f64 {
    time.max(Nanos(1)).as_millis_f64()
}

fn draw(panel: &Panel, area: &Area<'_>) -> Result<(), Failure> {
    let points = || panel.curves.iter().flat_map(|(_, points)| points);
    let low = points().map(|point| point.0).fold(f64::MAX, f64::min) / 1.2;
    let high = points().map(|point| point.0).fold(low, f64::max) * 1.2;
    let times = Scale::of_logarithms(low, high);
    let other = points().map(|point| point.1).fold(0.0, f64::max);
    let title = TextStyle::from((FONT, 20).into_font()).color(&INK).pos(Pos::new(HPos::Center, VPos::Top));
    area.draw(&Text::new(panel.title.clone(), (WIDTH as i32 / 2, 16), title)).map_err(cannot)?;
    let entry = |(index, (name, _)): (usize, &(String, _))| {
        let (style, is_dashed) = style(index);
        Entry { name: name.clone(), style, is_dashed }
    };
    let legend = plot_legend::draw(area, 44, &panel.curves.iter().enumerate().map(entry).collect::<Vec<_>>())?;
    let mut builder = ChartBuilder::on(area);
    builder
        .margin_top(50 + legend)
        .margin_bottom(14)
        .margin_right(30)
        .margin_left(14)
        .x_label_area_size(48)
        .y_label_area_size(76);
    match panel.times_across {
        true => {
            fill(builder.build_cartesian_2d(times, 0.0..100.0).map_err(cannot)?, panel, |(time, y)| (time.log10(), y))
        }
        false => {
            fill(builder.build_cartesian_2d(0.0..other, times).map_err(cannot)?, panel, |(time, x)| (x, time.log10()))
        }
    }
}

fn fill<'a, X, Y>(
    mut chart: ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>,
    panel: &Panel,
    turn: impl Fn((f64, f64)) -> (f64, f64),
) -> Result<(), Failure>
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let text = |size: i32| TextStyle::from((FONT, size).into_font()).color(&INK);
    chart
        .configure_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(INK)
        .x_label_formatter(&|x| label(if panel.times_across { 10_f64.powf(*x) } else { *x }))
        .y_label_formatter(&|y| label(if panel.times_across { *y } else { 10_f64.powf(*y) }))
        .x_desc(panel.x_desc)
        .y_desc(panel.y_desc)
        .label_style(text(15))
        .axis_desc_style(text(16))
        .draw()
        .map_err(cannot)?;
    for (index, (_, points)) in panel.curves.iter().enumerate() {
        let (style, is_dashed) = style(index);
        let points = points.iter().map(|&point| turn(point));
        match is_dashed {
            false => chart.draw_series(LineSeries::new(points, style)).map(drop),
            true => chart.draw_series(DashedLineSeries::new(points, 9, 5, style)).map(drop),
        }
        .map_err(cannot)?;
    }
    Ok(())
}

/// How a curve is drawn, and whether it is dashed. Every other one is thin and dashed, so that two that coincide are both seen.
fn style(index: usize) -> (ShapeStyle, bool) {
    let is_dashed = index % 2 == 1;
    (ShapeStyle::from(COLOURS[index % COLOURS.len()]).stroke_width(if is_dashed { 2 } else { 4 }), is_dashed)
}
