//! Plots as self-contained SVG files: they need no script, font or other file.

use std::collections::BTreeMap;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use seekless::units::human_bytes;

use super::Failure;
use super::plot_legend::{self, Entry};
use super::plot_style::{Area, FONT, GRID, INK, WIDTH, cannot};
use crate::report::{Scale, label};

/// One diagram: the distribution functions of two samples.
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) subtitle: String,
    /// Service times in ascending order. Neither sample is empty.
    pub(super) measured_ms: Vec<f64>,
    pub(super) modelled_ms: Vec<f64>,
}

const HEIGHT: u32 = 500;
/// The measured curve is broad and pale and the modelled one thin and dark, so that both are visible where they meet,
/// also in print and for colour-blind readers.
const MEASURED: RGBColor = RGBColor(134, 182, 239);
const MODELLED: RGBColor = RGBColor(140, 20, 40);

/// Points of a curve: more than the pixels of its width.
const POINTS: usize = 2000;

/// The panels, one below the other.
pub(super) fn distributions(panels: &[Panel]) -> Result<String, Failure> {
    stacked(panels, HEIGHT, draw)
}

/// Draws panels of `height` one below the other.
pub(super) fn stacked<P>(
    panels: &[P],
    height: u32,
    draw: impl Fn(&P, &Area<'_>) -> Result<(), Failure>,
) -> Result<String, Failure> {
    let mut svg = String::new();
    let whole = height * u32::try_from(panels.len()).unwrap_or(u32::MAX / height);
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, whole)).into_drawing_area();
        root.fill(&WHITE).map_err(cannot)?;
        for (panel, area) in panels.iter().zip(root.split_evenly((panels.len(), 1))) {
            draw(panel, &area)?;
        }
        root.present().map_err(cannot)?;
    }
    Ok(svg)
}

fn draw(panel: &Panel, area: &Area<'_>) -> Result<(), Failure> {
    let text = |size: i32| TextStyle::from((FONT, size).into_font()).color(&INK);
    let centred = |size| text(size).pos(Pos::new(HPos::Center, VPos::Top));
    let middle = WIDTH as i32 / 2;
    area.draw(&Text::new(panel.title.clone(), (middle, 16), centred(20))).map_err(cannot)?;
    area.draw(&Text::new(panel.subtitle.clone(), (middle, 44), centred(15))).map_err(cannot)?;

    let (measured, modelled) = styles();
    let legend = plot_legend::draw(area, 66, &entries())?;
    let end = end_ms(panel);
    // Enough digits to distinguish a dozen labels.
    let digits = (12.0 / end).log10().ceil().clamp(0.0, 6.0) as usize;
    let mut chart = ChartBuilder::on(area)
        .margin_top(72 + legend)
        .margin_bottom(14)
        .margin_right(30)
        .margin_left(14)
        .x_label_area_size(48)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..end, 0.0..100.0)
        .map_err(cannot)?;
    chart
        .configure_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(INK)
        .x_labels(12)
        .y_labels(11)
        .x_label_formatter(&|x| format!("{x:.digits$}"))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .x_desc("service time (ms)")
        .y_desc("requests done within it (%)")
        .label_style(text(15))
        .axis_desc_style(text(16))
        .draw()
        .map_err(cannot)?;
    for (times, style) in [(&panel.measured_ms, measured), (&panel.modelled_ms, modelled)] {
        chart.draw_series(LineSeries::new(curve(times, end), style)).map_err(cannot)?;
    }
    Ok(())
}

/// How measured and modelled curves are drawn.
fn styles() -> (ShapeStyle, ShapeStyle) {
    (ShapeStyle::from(MEASURED).stroke_width(6), ShapeStyle::from(MODELLED).stroke_width(2))
}

/// The legend of both.
fn entries() -> [Entry; 2] {
    let (measured, modelled) = styles();
    [("measured on the drive", measured), ("modelled", modelled)].map(|(name, style)| Entry {
        name: name.to_owned(),
        style,
        is_dashed: false,
    })
}

/// Throughput by depth: for each block size in bytes, the depth with the measured and the modelled operations a second.
pub(super) struct Loops {
    pub(super) title: String,
    pub(super) curves: BTreeMap<u64, Vec<(f64, f64, f64)>>,
}

const LOOPS_HEIGHT: u32 = 440;
/// Commands a second below which the axis does not go: it is logarithmic.
const RATE_MIN: f64 = 1e-3;

/// The panels, one below the other, with logarithmic axes.
pub(super) fn loops(panels: &[Loops]) -> Result<String, Failure> {
    stacked(panels, LOOPS_HEIGHT, draw_loops)
}

fn draw_loops(panel: &Loops, area: &Area<'_>) -> Result<(), Failure> {
    let text = |size: i32| TextStyle::from((FONT, size).into_font()).color(&INK);
    let points = || panel.curves.values().flatten();
    let depth_max = points().map(|point| point.0).fold(2.0, f64::max) * 1.6;
    let rates = || points().flat_map(|point| [point.1, point.2]);
    let (low, high) = (rates().fold(f64::MAX, f64::min) / 1.3, rates().fold(1.0, f64::max) * 1.3);
    let title = text(20).pos(Pos::new(HPos::Center, VPos::Top));
    area.draw(&Text::new(panel.title.clone(), (WIDTH as i32 / 2, 14), title)).map_err(cannot)?;
    let (measured, modelled) = styles();
    let legend = plot_legend::draw(area, 40, &entries())?;
    let mut chart = ChartBuilder::on(area)
        .margin_top(46 + legend)
        .margin_bottom(14)
        .margin_right(30)
        .margin_left(14)
        .x_label_area_size(48)
        .y_label_area_size(76)
        .build_cartesian_2d(Scale::of_logarithms(1.0, depth_max), Scale::of_logarithms(low.max(RATE_MIN), high))
        .map_err(cannot)?;
    chart
        .configure_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(INK)
        .x_label_formatter(&|x| label(10_f64.powf(*x)))
        .y_label_formatter(&|y| label(10_f64.powf(*y)))
        .x_desc("commands outstanding")
        .y_desc("commands a second")
        .label_style(text(15))
        .axis_desc_style(text(16))
        .draw()
        .map_err(cannot)?;
    for (bytes, points) in &panel.curves {
        let lines = [
            points.iter().map(|point| (point.0, point.1)).collect::<Vec<_>>(),
            points.iter().map(|point| (point.0, point.2)).collect(),
        ];
        for (line, style) in lines.into_iter().zip([measured, modelled]) {
            let line = line.into_iter().map(|(depth, rate)| (depth.log10(), rate.max(RATE_MIN).log10()));
            chart.draw_series(LineSeries::new(line, style)).map_err(cannot)?;
        }
        if let Some(last) = points.last() {
            let name =
                Text::new(human_bytes(*bytes), ((last.0 * 1.05).log10(), last.2.max(RATE_MIN).log10()), text(13));
            chart.draw_series([name]).map_err(cannot)?;
        }
    }
    Ok(())
}

/// The right end of the axis: a few very long requests, such as after an error, would otherwise compress the rest at
/// the left edge.
fn end_ms(panel: &Panel) -> f64 {
    let nearly_all = |times: &[f64]| times.get(times.len() * 999 / 1000).copied().unwrap_or(0.0);
    let end = nearly_all(&panel.measured_ms).max(nearly_all(&panel.modelled_ms)) * 1.04;
    if end > 0.0 { end } else { 1.0 }
}

/// Time, and percentage of the requests that are done by then, from the origin up to `end`.
fn curve(times: &[f64], end: f64) -> Vec<(f64, f64)> {
    let count = times.len();
    let part = |done: usize| 100.0 * done as f64 / count as f64;
    let points = count.min(POINTS);
    let mut curve = vec![(0.0, 0.0), (times.first().copied().unwrap_or(0.0).min(end), 0.0)];
    for point in 1..=points {
        let done = point * count / points;
        let time = times[done - 1];
        if time > end {
            let height = curve.last().map_or(0.0, |last: &(f64, f64)| last.1);
            curve.push((end, height));
            return curve;
        }
        curve.push((time, part(done)));
    }
    curve.push((end, 100.0));
    curve
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A curve begins at the origin, does not descend, stays within the axis and ends at its end.
    #[test]
    fn curves_are_distributions() {
        let tail: Vec<f64> = (0..100_000).map(|n| f64::from(n) / 1000.0).collect();
        for (times, end, top) in [(vec![5.0], 10.0, 100.0), (vec![1.0, 2.0, 90.0], 10.0, 66.7), (tail, 50.0, 50.0)] {
            let curve = curve(&times, end);
            assert!(curve.len() <= POINTS + 3);
            assert!(curve.windows(2).all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 <= pair[1].1));
            let &(x, y) = curve.last().unwrap();
            assert!(curve[0] == (0.0, 0.0) && x == end && (y - top).abs() < 0.1, "{x} {y}");
        }
    }

    /// The user's text appears as text in the picture, whatever it contains.
    #[test]
    fn titles_are_escaped() {
        let panel = Panel {
            title: "<script> & \"x\"".into(),
            subtitle: String::new(),
            measured_ms: vec![0.0],
            modelled_ms: vec![0.0],
        };
        let svg = distributions(&[panel]).unwrap();
        assert!(!svg.contains("<script>") && svg.contains("&lt;script"), "{svg}");
    }
}
