//! Seek curves, tabulated: one time per distance, so that a seek costs the model one look-up.

use super::drive::{Drive, Seek, TwoPiece};
use super::layout::{DriveError, Part};
use crate::units::Nanos;

/// Longest time a seek may take; catches a wrong unit in a drive record.
const SEEK_MAX: Nanos = Nanos::from_secs(1);

/// The three data-sheet figures of a seek curve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeekFigures {
    /// To the next cylinder.
    pub one: Nanos,
    /// Mean over random pairs of cylinders, equal ones included.
    pub average: Nanos,
    /// Over all cylinders.
    pub full: Nanos,
}

impl Drive {
    /// # Errors
    /// When the seek curve is impossible.
    pub fn seek_figures(&self) -> Result<SeekFigures, DriveError> {
        let curve = tabulate(self)?;
        let count = curve.len() as f64;
        // Of the pairs of `count` cylinders, 2 (count - d) are d apart.
        let sum: f64 = curve.iter().enumerate().map(|(d, &time)| 2.0 * (count - d as f64) * f64::from(time)).sum();
        let at = |distance: usize| Nanos(curve.get(distance).copied().unwrap_or(0).into());
        let average = Nanos((sum / (count * count).max(1.0)) as u64);
        Ok(SeekFigures { one: at(1), average, full: at(curve.len().saturating_sub(1)) })
    }
}

/// Seek times of reads in nanoseconds by distance in cylinders, from zero to the largest.
///
/// # Errors
/// When the curve has a negative time, one over a second, or a table that is empty or out of order; when it falls, so that
/// the seek over all cylinders takes less than an average one.
pub(super) fn tabulate(drive: &Drive) -> Result<Box<[u32]>, DriveError> {
    curve(drive, &drive.seek, Part::Seek)
}

/// Likewise of writes, where they have a curve of their own.
pub(super) fn tabulate_writes(drive: &Drive) -> Result<Option<Box<[u32]>>, DriveError> {
    drive.write_seek.as_ref().map(|seek| curve(drive, seek, Part::WriteSeek)).transpose()
}

fn curve(drive: &Drive, seek: &Seek, part: Part) -> Result<Box<[u32]>, DriveError> {
    let fail = |problem: String| DriveError { drive: drive.name.to_string(), problem, part };
    if let Seek::Table(table) = seek
        && (table.is_empty() || table[0].0 == 0 || table.windows(2).any(|pair| pair[0].0 >= pair[1].0))
    {
        return Err(fail("its seek table is empty or its distances do not ascend from one".into()));
    }
    if let Seek::ThreePoint { one, average, full } = seek {
        rising(*one, *average, *full).map_err(|(_, problem)| fail(problem))?;
    }
    let curve: Box<[u32]> = (0..drive.cylinders)
        .map(|distance| {
            let millis = if distance == 0 { 0.0 } else { time_ms(seek, distance, drive.cylinders) };
            if !(0.0..=SEEK_MAX.as_millis_f64()).contains(&millis) {
                return Err(fail(format!("a seek over {distance} cylinders would take {millis} ms")));
            }
            Ok(Nanos::from_millis_f64(millis).0 as u32)
        })
        .collect::<Result<_, _>>()?;
    // Measured curves have noise: one of the catalogue falls from 7.4 to 1.0 ms and rises again. As a whole none falls.
    if let (Seek::Table(_), Some(average)) = (seek, mean(&curve)) {
        let at = |distance: usize| Nanos(curve[distance].into());
        rising(at(1), average, at(curve.len() - 1)).map_err(|(_, problem)| fail(problem))?;
    }
    Ok(curve)
}

/// The mean of a curve over random pairs of different cylinders; `None` where there are no two.
pub(super) fn mean(curve: &[u32]) -> Option<Nanos> {
    let count = curve.len();
    // Of the pairs, `count - d` are `d` apart.
    let sum: u128 = curve.iter().enumerate().skip(1).map(|(d, &time)| (count - d) as u128 * u128::from(time)).sum();
    let pairs = (count * count.saturating_sub(1) / 2) as u128;
    sum.checked_div(pairs).map(|mean| Nanos(mean as u64))
}

/// Which figure of a seek curve is to blame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Figure {
    One,
    Full,
}

/// # Errors
/// When one cylinder takes longer than an average seek, or all cylinders less: which figure it is, and the problem in words.
pub(super) fn rising(one: Nanos, average: Nanos, full: Nanos) -> Result<(), (Figure, String)> {
    let average_ms = average.as_millis_f64();
    if full < average {
        let problem = format!(
            "a seek over all cylinders, of {} ms, is shorter than the average of {average_ms} ms",
            full.as_millis_f64()
        );
        return Err((Figure::Full, problem));
    }
    if one > average {
        let problem = format!(
            "a seek to the next cylinder, of {} ms, is longer than the average of {average_ms} ms",
            one.as_millis_f64()
        );
        return Err((Figure::One, problem));
    }
    Ok(())
}

fn time_ms(seek: &Seek, distance: u32, cylinders: u32) -> f64 {
    let d = f64::from(distance);
    match seek {
        Seek::Constant(time) => time.as_millis_f64(),
        Seek::Table(table) => interpolate(table, distance),
        Seek::ThreePoint { one, average, full } => {
            // The mean of the curve over random pairs is `average`, its end is `full` [le93].
            let (one, average, full) = (one.as_millis_f64(), average.as_millis_f64(), full.as_millis_f64());
            let cylinders = f64::from(cylinders);
            let a = (-10.0 * one + 15.0 * average - 5.0 * full) / (3.0 * cylinders.sqrt());
            let b = (7.0 * one - 15.0 * average + 8.0 * full) / (3.0 * cylinders);
            a * (d - 1.0).sqrt() + b * (d - 1.0) + one
        }
        Seek::TwoPiece(TwoPiece { root_base_ms, root_ms, line_from, line_base_ms, line_ms, short }) => {
            match short.get(distance as usize - 1) {
                Some(time) => time.as_millis_f64(),
                None if distance < *line_from => root_base_ms + root_ms * d.sqrt(),
                None => line_base_ms + line_ms * d,
            }
        }
        Seek::SquareRoot { base_ms, root_ms } => base_ms + root_ms * d.sqrt(),
    }
}

/// Linear between the measured distances. Beyond the last, the last segment is extended; below the first, its time
/// holds.
fn interpolate(table: &[(u32, Nanos)], distance: u32) -> f64 {
    let above = table.partition_point(|&(known, _)| known < distance).min(table.len() - 1);
    let (x2, y2) = table[above];
    if x2 == distance || above == 0 {
        return y2.as_millis_f64();
    }
    let (x1, y1) = table[above - 1];
    let slope = (y2.as_millis_f64() - y1.as_millis_f64()) / f64::from(x2 - x1);
    y1.as_millis_f64() + slope * f64::from(distance - x1)
}
