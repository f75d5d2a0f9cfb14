//! A figure as a self-contained picture: for print, for mail, and for browsers without scripts.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use seekless_lab::experiment::{Chart, Curve, Drawing, Panel, Value, digits};

use super::scale::{Scale, label, linear_points, logarithmic_points};

const FONT: &str = "sans-serif";
const INK: RGBColor = RGBColor(30, 30, 30);
const GRID: RGBColor = RGBColor(225, 225, 225);
/// Okabe and Ito's colours, which most colour-blind readers can distinguish, without the light ones.
pub(crate) const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(184, 87, 143),
    RGBColor(185, 122, 0),
    RGBColor(61, 155, 209),
    RGBColor(107, 79, 160),
    RGBColor(67, 70, 77),
];
const PANEL_WIDTH: u32 = 460;
const ALONE_WIDTH: u32 = 860;
const HEIGHT: u32 = 380;
const LEGEND_LINE: u32 = 20;
/// Height of a bar with its space, where bars lie along.
const BAR_LINE: u32 = 26;
/// Width of a letter of size 14 or less, rounded up: the real width depends on the reader's fonts.
const LETTER_WIDTH: u32 = 8;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The picture.
///
/// # Errors
/// When a part of it cannot be drawn.
pub fn to_svg(drawing: &Drawing) -> Result<String, String> {
    if is_along(drawing) {
        return along(drawing);
    }
    let names = distinct(drawing, |curve| &curve.name);
    let count = u32::try_from(drawing.panels.len().max(1)).unwrap_or(u32::MAX);
    let width = if count > 1 { PANEL_WIDTH.saturating_mul(count) } else { ALONE_WIDTH };
    let columns = (width.saturating_sub(70) / (54 + letters(names.iter().copied()))).max(1);
    let lines = u32::try_from(names.len()).unwrap_or(u32::MAX).div_ceil(columns);
    // Beneath published points, or in the place of all points.
    let absent = drawing.absent.iter().filter(|_| !drawing.panels.is_empty());
    let said: Vec<&String> = drawing.coinciding.iter().chain(absent).collect();
    let height = 40
        + HEIGHT
        + LEGEND_LINE.saturating_mul(lines.saturating_add(u32::try_from(said.len()).unwrap_or(u32::MAX)))
        + 16;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
        root.fill(&WHITE).map_err(cannot)?;
        let title = text(19).pos(Pos::new(HPos::Center, VPos::Top));
        root.draw(&Text::new(drawing.title.clone(), (width as i32 / 2, 12), title)).map_err(cannot)?;
        let (_, below) = root.split_vertically(40);
        let (charts, legend) = below.split_vertically(HEIGHT);
        for (panel, area) in drawing.panels.iter().zip(charts.split_evenly((1, drawing.panels.len().max(1)))) {
            match drawing.chart {
                Chart::Line => Axes::of(drawing).lines(panel, &area)?,
                Chart::Bar => Axes::of(drawing).bars(panel, &area)?,
            }
        }
        for (index, line) in (0..).zip(drawing.absent.iter().filter(|_| drawing.panels.is_empty())) {
            let style = text(14).pos(Pos::new(HPos::Center, VPos::Center));
            let place = (width as i32 / 2, HEIGHT as i32 / 3 + index * LEGEND_LINE as i32);
            charts.draw(&Text::new(line.as_str(), place, style)).map_err(cannot)?;
        }
        for (index, name) in names.iter().enumerate() {
            let curve = drawing.panels.iter().flat_map(|panel| &panel.curves).find(|curve| curve.name == **name);
            let Some(curve) = curve else { continue };
            let (row, column) = (index as u32 / columns, index as u32 % columns);
            let (x, y) = ((70 + column * ((width - 70) / columns)) as i32, (8 + row * LEGEND_LINE) as i32);
            let colour = colour(drawing, curve);
            match drawing.chart {
                Chart::Bar => bar_swatch(&legend, (x, y), colour, curve)?,
                Chart::Line => line_swatch(&legend, (x, y), drawing, curve)?,
            }
            let style = text(14).pos(Pos::new(HPos::Left, VPos::Center));
            legend.draw(&Text::new((*name).clone(), (x + 34, y), style)).map_err(cannot)?;
        }
        for (index, sentence) in (0..).zip(said) {
            let y = (8 + (lines + index) * LEGEND_LINE) as i32;
            let style = text(13).pos(Pos::new(HPos::Left, VPos::Center));
            legend.draw(&Text::new(sentence.as_str(), (70, y), style)).map_err(cannot)?;
        }
        root.present().map_err(cannot)?;
    }
    Ok(svg)
}

/// A bar's part of the legend: its colour, as pale as it is drawn.
fn bar_swatch(legend: &Area<'_>, (x, y): (i32, i32), colour: RGBColor, curve: &Curve) -> Result<(), String> {
    let colour = colour.mix(strength(curve));
    legend.draw(&Rectangle::new([(x + 10, y - 7), (x + 24, y + 7)], colour.filled())).map_err(cannot)
}

/// How strong the colour of a bar is: published ones are pale, and each further source of them is paler.
fn strength(curve: &Curve) -> f64 {
    match curve.source.is_empty() {
        true => 1.0,
        false => 0.45 / (1 + curve.variant) as f64,
    }
}

/// A curve's part of the legend: its line with its dashes, and its symbol.
fn line_swatch(legend: &Area<'_>, (x, y): (i32, i32), drawing: &Drawing, curve: &Curve) -> Result<(), String> {
    let colour = colour(drawing, curve);
    let dashes: &[(i32, i32)] = match is_solid(drawing, curve) {
        true => &[(0, 26)],
        false => &[(0, 6), (10, 16), (20, 26)],
    };
    for (from, to) in dashes {
        legend.draw(&PathElement::new([(x + from, y), (x + to, y)], colour.stroke_width(2))).map_err(cannot)?;
    }
    let corners = symbol(symbol_of(drawing, curve), 4.0);
    let corners: Vec<(i32, i32)> = corners.into_iter().map(|(right, down)| (x + 13 + right, y + down)).collect();
    match curve.source.is_empty() {
        true => legend.draw(&Polygon::new(corners, colour.filled())),
        false => legend.draw(&PathElement::new(corners, colour.stroke_width(2))),
    }
    .map_err(cannot)
}

/// Corners of a curve's symbol around its point, the first one again at the end, so that it can be drawn open too.
fn symbol(number: usize, radius: f64) -> Vec<(i32, i32)> {
    /// Corners on a circle, the first one so many eighths of a turn from the top; radii that alternate make a star.
    fn around(count: usize, eighths: f64, radii: &[f64]) -> Vec<(f64, f64)> {
        let corner = |index: usize| {
            let turn = std::f64::consts::TAU * (index as f64 / count as f64 + eighths / 8.0);
            let radius = radii[index % radii.len()];
            (radius * turn.sin(), -radius * turn.cos())
        };
        (0..=count).map(corner).collect()
    }
    let corners = match number % SYMBOLS {
        0 => around(16, 0.0, &[1.0]),
        1 => around(3, 0.0, &[1.4]),
        2 => around(4, 1.0, &[1.3]),
        3 => around(4, 0.0, &[1.4]),
        4 => around(10, 0.0, &[1.6, 0.65]),
        5 => around(12, 0.6, &[1.4, 1.4, 0.6]),
        _ => around(3, 4.0, &[1.4]),
    };
    let pixels = |length: f64| (length * radius).round() as i32;
    corners.into_iter().map(|(right, down)| (pixels(right), pixels(down))).collect()
}

/// How many symbols there are, as on the page.
const SYMBOLS: usize = 7;

/// Shapes go with the dashes where these tell curves apart, and otherwise with the colours.
fn symbol_of(drawing: &Drawing, curve: &Curve) -> usize {
    shape_of(drawing, curve) + VARIANT_STEP * curve.variant
}

/// Symbols from one source of published points to the next, as on the page.
const VARIANT_STEP: usize = 3;

fn shape_of(drawing: &Drawing, curve: &Curve) -> usize {
    let dashes = distinct(drawing, |curve| &curve.dash);
    match dashes.len() > 1 {
        true => dashes.iter().position(|dash| **dash == curve.dash).unwrap_or(0),
        false => {
            distinct(drawing, |curve| &curve.colour).iter().position(|colour| **colour == curve.colour).unwrap_or(0)
        }
    }
}

/// Pixels by which a curve or a point is wider that has so many others on it.
fn wider(beneath: usize) -> u32 {
    3 * u32::try_from(beneath.min(3)).unwrap_or(3)
}

/// True when there is one bar for each name. They lie along, so that the names can be read.
fn is_along(drawing: &Drawing) -> bool {
    let is_named = |curve: &Curve| curve.marks.iter().all(|mark| mark.x.to_string() == curve.name);
    let curves = || drawing.panels.iter().flat_map(|panel| &panel.curves);
    drawing.chart == Chart::Bar && curves().any(|curve| !curve.marks.is_empty()) && curves().all(is_named)
}

/// Bars along, each with its name before it and its number behind it.
fn along(drawing: &Drawing) -> Result<String, String> {
    let names = distinct(drawing, |curve| &curve.name);
    let count = u32::try_from(drawing.panels.len().max(1)).unwrap_or(u32::MAX);
    let bars = u32::try_from(names.len()).unwrap_or(u32::MAX).saturating_mul(BAR_LINE);
    let before = letters(names.iter().copied()).min(ALONE_WIDTH / 2) + 12;
    let panel_height = bars.saturating_add(76);
    let (width, height) = (ALONE_WIDTH, panel_height.saturating_mul(count).saturating_add(44));
    let axes = Axes::of(drawing);
    let (bottom, top) = axes.y_range;
    // Behind the longest bar there is room for its number.
    let room = f64::from(width - before - 80);
    let place = |y: f64| before as i32 + ((y - bottom) / (top - bottom) * room).round() as i32;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
        root.fill(&WHITE).map_err(cannot)?;
        let middle = |size| text(size).pos(Pos::new(HPos::Center, VPos::Top));
        root.draw(&Text::new(drawing.title.clone(), (width as i32 / 2, 12), middle(19))).map_err(cannot)?;
        for (number, panel) in (0..).zip(&drawing.panels) {
            let from = 44 + number * panel_height as i32;
            root.draw(&Text::new(panel.name.clone(), (width as i32 / 2, from), middle(15))).map_err(cannot)?;
            let (first, last) = (from + 22, from + 22 + bars as i32);
            for &point in &axes.y_points {
                let x = place(point);
                root.draw(&PathElement::new([(x, first), (x, last)], GRID)).map_err(cannot)?;
                root.draw(&Text::new(axes.y_text(point), (x, last + 6), middle(13))).map_err(cannot)?;
            }
            let end = (before as i32 + room as i32 / 2, last + 26);
            root.draw(&Text::new(drawing.y_label.clone(), end, middle(14))).map_err(cannot)?;
            let line = |name: &String| names.iter().position(|other| *other == name).unwrap_or(0) as i32;
            for curve in &panel.curves {
                let colour = colour(drawing, curve).mix(strength(curve));
                let y = first + line(&curve.name) * BAR_LINE as i32;
                let style = text(13).pos(Pos::new(HPos::Right, VPos::Center));
                let middle = y + BAR_LINE as i32 / 2;
                root.draw(&Text::new(curve.name.clone(), (before as i32 - 8, middle), style)).map_err(cannot)?;
                for mark in &curve.marks {
                    let Some(value) = axes.y(mark.y) else { continue };
                    let (zero, end) = (place(bottom), place(value));
                    let bar = Rectangle::new([(zero, y + 3), (end, y + BAR_LINE as i32 - 3)], colour.filled());
                    root.draw(&bar).map_err(cannot)?;
                    let spread = mark.spread.and_then(|(low, high)| Some((place(axes.y(low)?), place(axes.y(high)?))));
                    if let Some((low, high)) = spread {
                        let line = PathElement::new([(low, middle), (high, middle)], INK.stroke_width(2));
                        root.draw(&line).map_err(cannot)?;
                    }
                    let end = spread.map_or(end, |(_, high)| end.max(high));
                    let style = text(12).pos(Pos::new(HPos::Left, VPos::Center));
                    root.draw(&Text::new(digits(mark.y), (end + 6, middle), style)).map_err(cannot)?;
                }
            }
            root.draw(&PathElement::new([(place(bottom), first), (place(bottom), last)], INK)).map_err(cannot)?;
        }
        root.present().map_err(cannot)?;
    }
    Ok(svg)
}

/// Width of the longest of some texts.
/// Names of bars are on so many lines at most.
const LABEL_LINES_MAX: u32 = 4;
const LABEL_LINE_HEIGHT: u32 = 16;

fn letters<'a>(texts: impl Iterator<Item = &'a String>) -> u32 {
    let longest = texts.map(|text| text.chars().count()).max().unwrap_or(0);
    u32::try_from(longest).unwrap_or(u32::MAX / 64).min(200) * LETTER_WIDTH
}

fn cannot(error: impl std::fmt::Display) -> String {
    format!("cannot draw: {error}")
}

fn text<'a>(size: i32) -> TextStyle<'a> {
    TextStyle::from((FONT, size).into_font()).color(&INK)
}

fn distinct<'a>(drawing: &'a Drawing, pick: impl Fn(&'a Curve) -> &'a String) -> Vec<&'a String> {
    let mut all: Vec<&String> = Vec::new();
    for value in drawing.panels.iter().flat_map(|panel| &panel.curves).map(pick) {
        if !all.contains(&value) {
            all.push(value);
        }
    }
    all
}

fn colour(drawing: &Drawing, curve: &Curve) -> RGBColor {
    let index = distinct(drawing, |curve| &curve.colour).iter().position(|colour| **colour == curve.colour);
    nth_colour(index.unwrap_or(0))
}

/// The first eight, and the same eight darker, as on the page.
fn nth_colour(index: usize) -> RGBColor {
    let RGBColor(red, green, blue) = COLOURS[index % COLOURS.len()];
    match index / COLOURS.len() % 2 {
        0 => RGBColor(red, green, blue),
        _ => RGBColor(red / 2, green / 2, blue / 2),
    }
}

/// Our own measurements with the first dash have lines; published ones, and those with another dash, have dashes.
fn is_solid(drawing: &Drawing, curve: &Curve) -> bool {
    let dashes = distinct(drawing, |curve| &curve.dash);
    curve.source.is_empty() && dashes.first().is_none_or(|first| **first == curve.dash)
}

/// The axes that all panels of a figure share. A logarithmic axis is a linear one of logarithms.
struct Axes<'a> {
    drawing: &'a Drawing,
    /// Values of an axis of texts, or of few numbers: the positions of the labels.
    xs: Vec<Value>,
    x_range: (f64, f64),
    y_range: (f64, f64),
    y_points: Vec<f64>,
}

impl Axes<'_> {
    fn of(drawing: &Drawing) -> Axes<'_> {
        let marks = || drawing.panels.iter().flat_map(|panel| &panel.curves).flat_map(|curve| &curve.marks);
        let mut xs: Vec<Value> = Vec::new();
        for mark in marks() {
            if !xs.iter().any(|x| x.is_same(&mark.x)) {
                xs.push(mark.x.clone());
            }
        }
        if xs.iter().all(|x| x.number().is_some()) {
            xs.sort_by(Value::order);
        }
        let mut axes = Axes { drawing, xs, x_range: (0.0, 1.0), y_range: (0.0, 1.0), y_points: Vec::new() };
        let places = || marks().map(|mark| axes.x(&mark.x));
        let (first, last) = (places().fold(f64::MAX, f64::min), places().fold(f64::MIN, f64::max));
        let margin = ((last - first) * 0.03).max(0.05);
        let x_range = (first - margin, last + margin);
        let heights = |mark: &seekless_lab::experiment::Mark| {
            let spread = mark.spread.map_or([None, None], |(low, high)| [Some(low), Some(high)]);
            [Some(mark.y)].into_iter().chain(spread).flatten()
        };
        let ys = || marks().flat_map(heights).filter_map(|y| axes.y(y));
        let (least, most) = (ys().fold(f64::MAX, f64::min), ys().fold(f64::MIN, f64::max));
        if first <= last && least <= most {
            let from = drawing.y_from.and_then(|from| axes.y(from));
            let bottom = if drawing.y_log { least - 0.1 } else { least.min(0.0) };
            let bottom = from.unwrap_or(bottom);
            axes.x_range = x_range;
            axes.y_range = (bottom, most + ((most - bottom) * 0.05).max(1e-9));
        }
        axes.y_points = axes.points();
        axes
    }

    fn is_numeric(&self) -> bool {
        self.drawing.chart == Chart::Line && self.xs.iter().all(|x| x.number().is_some())
    }

    /// Position of `x` on the axis. Texts are placed side by side.
    fn x(&self, x: &Value) -> f64 {
        match x.number().filter(|_| self.is_numeric()) {
            Some(number) if self.drawing.x_log => number.max(f64::MIN_POSITIVE).log2(),
            Some(number) => number,
            None => self.xs.iter().position(|other| other.is_same(x)).unwrap_or(0) as f64,
        }
    }

    /// Position of `y`; `None` on a logarithmic axis when it is not above zero.
    fn y(&self, y: f64) -> Option<f64> {
        match self.drawing.y_log {
            true => (y > 0.0).then(|| y.log10()),
            false => Some(y),
        }
    }

    /// Where the vertical axis has labels.
    fn points(&self) -> Vec<f64> {
        if self.drawing.y_log { logarithmic_points(self.y_range) } else { linear_points(self.y_range) }
    }

    fn y_text(&self, y: f64) -> String {
        let number = if self.drawing.y_log { 10_f64.powf(y) } else { y };
        label(number)
    }

    fn frame<'a, 'b>(
        &self,
        panel: &Panel,
        area: &'b Area<'a>,
        x_range: (f64, f64),
    ) -> Result<ChartContext<'b, SVGBackend<'a>, Cartesian2d<Scale, Scale>>, String> {
        let all: Vec<f64> = self.xs.iter().map(|x| self.x(x)).collect();
        let room = area.dim_in_pixel().0.saturating_sub(86).max(1);
        let widths = || self.xs.iter().map(|x| 10 + letters(std::iter::once(&x.to_string())));
        // Bars have names, and each is needed: names that have no room beside each other are on several lines.
        let lines = widths().max().unwrap_or(1).div_ceil((room / all.len().max(1) as u32).max(1));
        let staggered = matches!(self.drawing.chart, Chart::Bar) && (2..=LABEL_LINES_MAX).contains(&lines);
        // Too many labels would overlap: of those that have no room, every second, third or fourth is there.
        let every = (widths().sum::<u32>().div_ceil(room) as usize).max(all.len().div_ceil(12)).max(1);
        let x_points: Vec<f64> = if staggered { Vec::new() } else { all.into_iter().step_by(every).collect() };
        let below = if staggered { 30 + LABEL_LINE_HEIGHT * lines } else { 46 };
        let mut chart = ChartBuilder::on(area)
            .caption(&panel.name, text(15))
            .margin_right(16)
            .margin_left(4)
            .x_label_area_size(below)
            .y_label_area_size(66)
            .build_cartesian_2d(Scale::new(x_range, x_points), Scale::new(self.y_range, self.y_points.clone()))
            .map_err(cannot)?;
        let x_text = |at: &f64| {
            self.xs
                .iter()
                .find(|x| (self.x(x) - at).abs() < 1e-9)
                .map_or_else(String::new, std::string::ToString::to_string)
        };
        chart
            .configure_mesh()
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .axis_style(INK)
            .x_labels(24)
            .y_labels(16)
            .x_label_formatter(&x_text)
            .y_label_formatter(&|y| self.y_text(*y))
            .x_desc(self.drawing.x_label.clone())
            .y_desc(self.drawing.y_label.clone())
            .label_style(text(13))
            .axis_desc_style(text(14))
            .draw()
            .map_err(cannot)?;
        if staggered {
            let (left, top) = area.get_base_pixel();
            let style = text(13).pos(Pos::new(HPos::Center, VPos::Top));
            for (number, x) in self.xs.iter().enumerate() {
                let (x_pixel, y_pixel) = chart.backend_coord(&(self.x(x), self.y_range.0));
                let line = (number as u32 % lines * LABEL_LINE_HEIGHT) as i32;
                let place = (x_pixel - left, y_pixel - top + 8 + line);
                area.draw(&Text::new(x.to_string(), place, &style)).map_err(cannot)?;
            }
        }
        Ok(chart)
    }

    fn lines(&self, panel: &Panel, area: &Area<'_>) -> Result<(), String> {
        let mut chart = self.frame(panel, area, self.x_range)?;
        for curve in &panel.curves {
            let colour = colour(self.drawing, curve);
            let points: Vec<(f64, f64)> =
                curve.marks.iter().filter_map(|mark| Some((self.x(&mark.x), self.y(mark.y)?))).collect();
            let style = colour.stroke_width(2 + wider(curve.beneath));
            match is_solid(self.drawing, curve) {
                true => chart.draw_series(LineSeries::new(points.clone(), style)).map(|_| ()),
                false => chart.draw_series(DashedLineSeries::new(points.clone(), 6, 4, style)).map(|_| ()),
            }
            .map_err(cannot)?;
            let quartiles = |mark: &seekless_lab::experiment::Mark| {
                let (low, high) = mark.spread?;
                let x = self.x(&mark.x);
                Some(PathElement::new([(x, self.y(low)?), (x, self.y(high)?)], colour.stroke_width(2)))
            };
            chart.draw_series(curve.marks.iter().filter_map(quartiles)).map_err(cannot)?;
            let is_measured = curve.source.is_empty();
            for mark in &curve.marks {
                let Some(y) = self.y(mark.y) else { continue };
                let point = (self.x(&mark.x), y);
                let radius = if is_measured { 3.0 } else { 5.0 } + f64::from(wider(mark.beneath)) * 0.8;
                let corners = symbol(symbol_of(self.drawing, curve), radius);
                match is_measured {
                    true => {
                        let dot = EmptyElement::at(point) + Polygon::new(corners, colour.filled());
                        chart.draw_series(std::iter::once(dot)).map(|_| ())
                    }
                    false => {
                        let dot = EmptyElement::at(point) + PathElement::new(corners, colour.stroke_width(2));
                        chart.draw_series(std::iter::once(dot)).map(|_| ())
                    }
                }
                .map_err(cannot)?;
            }
        }
        Ok(())
    }

    fn bars(&self, panel: &Panel, area: &Area<'_>) -> Result<(), String> {
        let range = (-0.5, self.xs.len() as f64 - 0.5);
        let mut chart = self.frame(panel, area, range)?;
        let width = 0.84 / panel.curves.len().max(1) as f64;
        for (index, curve) in panel.curves.iter().enumerate() {
            let colour = colour(self.drawing, curve).mix(strength(curve));
            let bar = |mark: &seekless_lab::experiment::Mark| {
                let left = self.x(&mark.x) - 0.42 + index as f64 * width;
                Some(Rectangle::new([(left, self.y_range.0), (left + width * 0.94, self.y(mark.y)?)], colour.filled()))
            };
            chart.draw_series(curve.marks.iter().filter_map(bar)).map_err(cannot)?;
            let middle = -0.42 + (index as f64 + 0.47) * width;
            let quartiles = |mark: &seekless_lab::experiment::Mark| {
                let (low, high) = mark.spread?;
                let x = self.x(&mark.x) + middle;
                Some(PathElement::new([(x, self.y(low)?), (x, self.y(high)?)], INK.stroke_width(2)))
            };
            chart.draw_series(curve.marks.iter().filter_map(quartiles)).map_err(cannot)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use seekless_lab::experiment::Mark;

    use super::*;

    fn drawing(chart: Chart, log: bool, marks: Vec<Mark>) -> Drawing {
        let curve = Curve {
            name: "<one> & \"two\"".into(),
            colour: "a".into(),
            dash: String::new(),
            source: String::new(),
            variant: 0,
            beneath: 0,
            marks,
        };
        Drawing {
            id: "f".into(),
            title: "a <title>".into(),
            caption: String::new(),
            chart,
            x_label: "x".into(),
            y_label: "y".into(),
            x_log: log,
            y_log: log,
            y_from: None,
            colour_label: String::new(),
            dash_label: String::new(),
            panels: vec![Panel { name: String::new(), curves: vec![curve] }],
            coinciding: Vec::new(),
            absent: Vec::new(),
        }
    }

    /// Where a text begins and ends, from its anchor, its position and its letters; and its height on the picture.
    fn spans(svg: &str) -> Vec<(String, f64, f64, f64)> {
        let attribute = |tag: &str, name: &str| {
            let (_, rest) = tag.split_once(&format!(" {name}=\""))?;
            Some(rest.split_once('"')?.0.to_owned())
        };
        let texts = svg.split("<text").skip(1).filter(|text| !text.contains("rotate("));
        texts
            .map(|text| {
                let (tag, rest) = text.split_once('>').unwrap();
                let content = rest.split_once("</text>").unwrap().0.trim().to_owned();
                let number = |name: &str| attribute(tag, name).unwrap().parse::<f64>().unwrap();
                // Letters of a common sans-serif font are half as wide as they are high, or a little more.
                let width = content.chars().count() as f64 * number("font-size") * 0.45;
                let x = number("x");
                let left = match attribute(tag, "text-anchor").as_deref() {
                    Some("middle") => x - width / 2.0,
                    Some("end") => x - width,
                    _ => x,
                };
                (content, left, left + width, number("y"))
            })
            .collect()
    }

    /// No text is on another one, or outside the picture. Method: bars and lines with few and many names, short and long.
    #[test]
    fn texts_do_not_overlap() {
        let long = |n: usize| format!("slow host, HP 97560 number {n}: FFS on VLD");
        let names: [Vec<String>; 4] = [
            (0..9).map(long).collect(),
            (0..2).map(|n| format!("phase {n}")).collect(),
            (0..40).map(|n| format!("{n}")).collect(),
            vec![long(1).repeat(2), "short".into()],
        ];
        for names in &names {
            for (chart, are_named) in [(Chart::Bar, true), (Chart::Bar, false), (Chart::Line, false)] {
                let mark = |(n, name): (usize, &String)| Mark {
                    x: Value::Text(name.clone()),
                    y: 0.5 + n as f64,
                    beneath: 0,
                    spread: None,
                };
                let mut figure = drawing(chart, false, names.iter().enumerate().map(mark).collect());
                if are_named {
                    let curve = figure.panels[0].curves[0].clone();
                    let own =
                        |mark: &Mark| Curve { name: mark.x.to_string(), marks: vec![mark.clone()], ..curve.clone() };
                    figure.panels[0].curves = curve.marks.iter().map(own).collect();
                }
                let svg = to_svg(&figure).unwrap();
                let mut spans = spans(&svg);
                assert!(names.iter().any(|name| spans.iter().any(|(text, ..)| text == name)), "{svg}");
                spans.sort_by(|one, two| (one.3, one.1).partial_cmp(&(two.3, two.1)).unwrap());
                for pair in spans.windows(2).filter(|pair| (pair[0].3 - pair[1].3).abs() < 8.0) {
                    assert!(pair[0].2 <= pair[1].1, "{:?} is on {:?}: {svg}", pair[1], pair[0]);
                }
            }
        }
    }

    /// Aim: the spread of several rounds is seen, in bars that lie and in bars that stand. Method: each with and without it; what
    /// it adds is one line, and the number of a bar that lies is behind the line.
    #[test]
    fn bars_show_the_spread() {
        let with = |spread: Option<(f64, f64)>, name: &str| {
            let mark = Mark { x: Value::Text("one".into()), y: 10.0, beneath: 0, spread };
            let mut figure = drawing(Chart::Bar, false, vec![mark]);
            figure.panels[0].curves[0].name = name.to_owned();
            to_svg(&figure).unwrap()
        };
        let place_of_number = |svg: &str| spans(svg).into_iter().find(|(text, ..)| text == "10.0").unwrap().1;
        for name in ["one", "other"] {
            let (plain, spread) = (with(None, name), with(Some((8.0, 11.0)), name));
            let lines = |svg: &str| svg.matches("stroke-width=\"2\"").count();
            assert_eq!(lines(&spread), lines(&plain) + 1, "{name}");
        }
        let (narrow, wide) = (with(Some((9.9, 10.0)), "one"), with(Some((9.9, 10.5)), "one"));
        let end = |svg: &str| {
            let line = svg.split("<polyline").find(|line| line.contains("stroke-width=\"2\"")).unwrap();
            let points = line.split("points=\"").nth(1).unwrap().split('"').next().unwrap();
            points
                .split_whitespace()
                .map(|point| point.split(',').next().unwrap().parse::<f64>().unwrap())
                .fold(0.0, f64::max)
        };
        for svg in [narrow, wide] {
            assert!(place_of_number(&svg) > end(&svg), "{svg}");
        }
    }

    /// A curve with dashes has them in the legend, too. Method: the strokes of a figure with and without a second dash.
    #[test]
    fn the_legend_has_the_dashes() {
        let marks = || (1..4).map(|x| Mark { x: Value::Integer(x), y: x as f64, beneath: 0, spread: None }).collect();
        let mut figure = drawing(Chart::Line, false, marks());
        let other = Curve { name: "other".into(), dash: "b".into(), ..figure.panels[0].curves[0].clone() };
        figure.panels[0].curves.push(Curve { dash: String::new(), ..other.clone() });
        let legend_strokes = |figure: &Drawing| {
            let svg = to_svg(figure).unwrap();
            let (_, legend) = svg.rsplit_once("</text>\n<polyline").unwrap();
            legend.split("<polygon").next().unwrap().matches("stroke-width=\"2\"").count()
        };
        let solid = legend_strokes(&figure);
        figure.panels[0].curves[1] = other;
        assert!(legend_strokes(&figure) > solid, "the second line is of several strokes");
    }

    /// Aim: curves differ in shape as well as in colour, and of two on one another both are seen. Method: the corners of the symbols
    /// of many curves; the width of a curve with another on it, and the sentence that says so.
    #[test]
    fn curves_can_be_distinguished() {
        let marks = || {
            (1..4).map(|x| Mark { x: Value::Integer(x), y: x as f64, beneath: 0, spread: Some((0.5, 4.0)) }).collect()
        };
        let mut figure = drawing(Chart::Line, false, marks());
        let one = figure.panels[0].curves[0].clone();
        let named = |n: usize| Curve { name: format!("c{n}"), colour: format!("c{n}"), ..one.clone() };
        figure.panels[0].curves = (0..SYMBOLS).map(named).collect();
        let colours: std::collections::BTreeSet<_> =
            (0..16).map(nth_colour).map(|colour| (colour.0, colour.1, colour.2)).collect();
        assert_eq!(colours.len(), 16);
        let shapes: std::collections::BTreeSet<_> = (0..SYMBOLS).map(|n| symbol(n, 10.0)).collect();
        assert_eq!(shapes.len(), SYMBOLS);
        let numbers: Vec<usize> = figure.panels[0].curves.iter().map(|curve| symbol_of(&figure, curve)).collect();
        assert!(numbers.into_iter().eq(0..SYMBOLS));
        let published = |variant| Curve { source: "[x]".into(), variant, ..figure.panels[0].curves[0].clone() };
        assert_ne!(symbol_of(&figure, &published(0)) % SYMBOLS, symbol_of(&figure, &published(1)) % SYMBOLS);
        figure.panels[0].curves[0].beneath = 1;
        figure.coinciding = vec!["c0 and c1 coincide".into()];
        let svg = to_svg(&figure).unwrap();
        assert_eq!(svg.matches("stroke-width=\"5\"").count(), 1, "{svg}");
        assert!(svg.contains("c0 and c1 coincide"), "{svg}");
        // Each mark has its spread, besides its curve.
        let without =
            Curve { marks: one.marks.iter().map(|mark| Mark { spread: None, ..mark.clone() }).collect(), ..one };
        let count = |curve: &Curve| {
            let mut figure = drawing(Chart::Line, false, Vec::new());
            figure.panels[0].curves = vec![curve.clone()];
            to_svg(&figure).unwrap().matches("stroke-width=\"2\"").count()
        };
        assert_eq!(count(&figure.panels[0].curves[1]), count(&without) + 3);
    }

    /// A figure without points says why, and so does one that has published points alone.
    #[test]
    fn figures_without_measurements_say_why() {
        let mut figure =
            drawing(Chart::Line, false, vec![Mark { x: Value::Integer(1), y: 1.0, beneath: 0, spread: None }]);
        figure.absent = vec!["nothing was measured".into(), "because".into()];
        let published = to_svg(&figure).unwrap();
        figure.panels.clear();
        for svg in [published, to_svg(&figure).unwrap()] {
            assert!(figure.absent.iter().all(|line| svg.matches(line.as_str()).count() == 1), "{svg}");
        }
    }

    /// Every kind of figure can be drawn, even with no point, one point, zeroes and texts; names appear as text.
    /// Method: all combinations, and a search for what must not be in the picture.
    #[test]
    fn everything_can_be_drawn() {
        let mark = |x: Value, y: f64| Mark { x, y, beneath: 0, spread: (y > 1.0).then_some((y / 2.0, y * 2.0)) };
        let cases: [Vec<Mark>; 5] = [
            vec![],
            vec![mark(Value::Integer(8), 1.0)],
            vec![mark(Value::Integer(0), 0.0), mark(Value::Integer(1), 0.0)],
            vec![mark(Value::Text("read".into()), 3.0), mark(Value::Text("write".into()), 1e7)],
            vec![mark(Value::Integer(8), 1e-3), mark(Value::Number(2048.5), 12_345.0)],
        ];
        for chart in [Chart::Line, Chart::Bar] {
            for log in [false, true] {
                for marks in &cases {
                    let svg = to_svg(&drawing(chart, log, marks.clone())).unwrap();
                    assert!(svg.starts_with("<svg") && svg.contains("&lt;one&gt;"), "{svg}");
                    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
                }
            }
        }
    }
}
