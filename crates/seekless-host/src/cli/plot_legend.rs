//! Legends of plots, between the title and the diagram: inside it, they could hide a curve.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::Failure;
use super::plot_style::{Area, FONT, INK, WIDTH, cannot};

/// A curve: its name, and how it is drawn.
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) style: ShapeStyle,
    pub(super) is_dashed: bool,
}

const SIZE: i32 = 15;
pub(super) const ROW_HEIGHT: u32 = 24;
const MARGIN: i32 = 30;
const SAMPLE: i32 = 28;
const GAP: i32 = 8;
/// Between two entries of a row.
const APART: i32 = 26;

/// Pixels of a name. The font is the viewer's: most letters of most fonts are narrower.
fn width_of(name: &str) -> i32 {
    i32::try_from(name.chars().count()).unwrap_or(i32::MAX / SIZE) * (SIZE * 3 / 5)
}

/// The name, without its middle if it is too long for a row.
fn shortened(name: &str) -> String {
    let most = ((WIDTH as i32 - 2 * MARGIN - SAMPLE - GAP) / (SIZE * 3 / 5)) as usize;
    let letters: Vec<char> = name.chars().collect();
    if letters.len() <= most {
        return name.to_owned();
    }
    let half = (most - 3) / 2;
    letters[..half]
        .iter()
        .chain("...".chars().collect::<Vec<_>>().iter())
        .chain(&letters[letters.len() - half..])
        .collect()
}

/// The entries of each row: their names and where they begin.
fn rows<'a>(names: impl Iterator<Item = &'a str>) -> Vec<Vec<(i32, String)>> {
    let mut rows: Vec<Vec<(i32, String)>> = Vec::new();
    let mut next = i32::MAX;
    for name in names.map(shortened) {
        let width = SAMPLE + GAP + width_of(&name);
        if next.saturating_add(width) > WIDTH as i32 - MARGIN {
            rows.push(Vec::new());
            next = MARGIN;
        }
        if let Some(row) = rows.last_mut() {
            row.push((next, name));
        }
        next += width + APART;
    }
    rows
}

/// Pixels that the legend of curves with these names is high.
pub(super) fn height<'a>(names: impl Iterator<Item = &'a str>) -> u32 {
    rows(names).len() as u32 * ROW_HEIGHT
}

/// Draws the legend from `top` on, and returns its height.
pub(super) fn draw(area: &Area<'_>, top: i32, entries: &[Entry]) -> Result<u32, Failure> {
    let text = TextStyle::from((FONT, SIZE).into_font()).color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
    let rows = rows(entries.iter().map(|entry| entry.name.as_str()));
    let mut entries = entries.iter();
    for (number, row) in rows.iter().enumerate() {
        let y = top + (number as u32 * ROW_HEIGHT + ROW_HEIGHT / 2) as i32;
        for ((x, name), entry) in row.iter().zip(entries.by_ref()) {
            let dashes = if entry.is_dashed { &[(0, 9), (14, 23)][..] } else { &[(0, SAMPLE)] };
            for (from, to) in dashes {
                area.draw(&PathElement::new([(x + from, y), (x + to, y)], entry.style)).map_err(cannot)?;
            }
            area.draw(&Text::new(name.clone(), (x + SAMPLE + GAP, y), text.clone())).map_err(cannot)?;
        }
    }
    Ok(rows.len() as u32 * ROW_HEIGHT)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every name has its place, in order, within the picture and beside the others, and a name that is too long keeps its ends.
    #[test]
    fn names_fit() {
        let long = "raid5:n=4,metadata=off / ".repeat(9);
        let names = ["measured on the drive", "modelled", &long, "a", &long, "b", "c"];
        let rows = rows(names.into_iter());
        assert_eq!(rows.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1, 1, 1, 2]);
        assert_eq!(height(names.into_iter()), 5 * ROW_HEIGHT);
        for row in &rows {
            let mut free = MARGIN;
            for (x, name) in row {
                assert!(*x >= free, "{name} begins at {x}, where another one is");
                free = x + SAMPLE + GAP + width_of(name);
            }
            assert!(free <= WIDTH as i32 - MARGIN, "{row:?}");
        }
        let (_, cut) = &rows[1][0];
        assert!(cut.starts_with("raid5:n=4") && cut.contains("...") && cut.ends_with("off / "), "{cut}");
        assert_eq!(height([].into_iter()), 0);
    }
}
