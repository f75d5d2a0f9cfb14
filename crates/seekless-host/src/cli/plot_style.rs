//! What all plots have in common: size, font, colours.

use plotters::prelude::*;

use super::Failure;

pub(super) const WIDTH: u32 = 860;
pub(super) const FONT: &str = "sans-serif";
pub(super) const INK: RGBColor = RGBColor(30, 30, 30);
pub(super) const GRID: RGBColor = RGBColor(225, 225, 225);

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

pub(super) fn cannot(error: impl std::fmt::Display) -> Failure {
    Failure::new(format!("cannot draw: {error}"))
}
