//! Seek curves.

use super::super::drive::{Seek, TwoPiece, ms};
use super::files::{Read, read_near};
use super::syntax::{Block, Param, Value};
use super::{CYLINDERS_MAX, ImportError};
use crate::units::Nanos;

type ImportResult<T> = Result<T, ImportError>;

pub(super) fn seek(
    mechanics: &Block,
    cylinders: u32,
    read: Read<'_>,
    files: &mut Vec<String>,
    notes: &mut Vec<String>,
) -> ImportResult<(Seek, Option<Seek>)> {
    let kind = mechanics.need("Seek type")?;
    let figures = || -> ImportResult<[Nanos; 3]> {
        Ok([
            mechanics.need("Single cylinder seek time")?.time()?,
            mechanics.need("Average seek time")?.time()?,
            mechanics.need("Full strobe seek time")?.time()?,
        ])
    };
    let curve = match kind.text()? {
        "extracted" => return extracted(mechanics.need("Full seek curve")?, cylinders, read, files, notes),
        "constant" => Ok(Seek::Constant(mechanics.need("Constant seek time")?.time()?)),
        "linear" => {
            let [one, average, full] = figures()?;
            notes.push(
                "The linear seek curve goes through all three figures: DiskSim divides whole numbers, and takes the full strobe for \
                 all distances but one."
                    .to_owned(),
            );
            let points = [(1, one), (cylinders / 3, average), (cylinders, full)];
            let mut table: Vec<(u32, Nanos)> = Vec::new();
            for point in points {
                if table.last().is_none_or(|last| last.0 < point.0) {
                    table.push(point);
                }
            }
            Ok(Seek::Table(table.into()))
        }
        "curve" => {
            let [one, average, full] = figures()?;
            Ok(Seek::ThreePoint { one, average, full })
        }
        "hpl" => {
            let (curve, single) = two_piece(mechanics)?;
            Ok(Seek::TwoPiece(TwoPiece { short: single.into_iter().collect::<Vec<_>>().into(), ..curve }))
        }
        "hplplus10" => {
            let (curve, _) = two_piece(mechanics)?;
            let param = mechanics.need("First ten seek times")?;
            let short: Vec<Nanos> =
                param.list()?.iter().take(10).map(|time| param.time_of(time)).collect::<ImportResult<_>>()?;
            Ok(Seek::TwoPiece(TwoPiece { short: short.into(), ..curve }))
        }
        other => {
            let known = "constant, linear, curve, hpl, hplplus10, extracted";
            Err(kind.error(&format!("there is no seek type `{}`; one of: {known}", other.escape_debug())))
        }
    };
    Ok((curve?, None))
}

/// The curve of the six values, and the sixth, which is the seek over one cylinder unless it is -1.
fn two_piece(mechanics: &Block) -> ImportResult<(TwoPiece, Option<Nanos>)> {
    let param = mechanics.need("HPL seek equation values")?;
    let values: Vec<f64> = param.list()?.iter().map(|value| param.number_of(value)).collect::<ImportResult<_>>()?;
    // DiskSim reads the first six.
    let &[from, root_base_ms, root_ms, line_base_ms, line_ms, single, ..] = &values[..] else {
        return Err(param.error(&format!("six numbers are expected, not {}", values.len())));
    };
    let line_from = param.count_of(&Value::Text(from.to_string()), 0, CYLINDERS_MAX)?;
    let single = match single {
        -1.0 => None,
        time => Some(param.time_of(&Value::Text(time.to_string()))?),
    };
    let curve = TwoPiece { root_base_ms, root_ms, line_from, line_base_ms, line_ms, short: Vec::new().into() };
    Ok((curve, single))
}

/// The most distances of a seek curve.
const DISTANCES_MAX: usize = 1 << 17;

/// A distance of a seek curve, and its times.
struct SeekPoint {
    distance: u32,
    read: Nanos,
    /// In a fourth column, of the dual seek curves of DiskSim's 64 bit branch.
    write: Option<Nanos>,
}

/// A file of distances and times: `Seek distances measured: 64`, then `1, 1.014`, with a deviation, and a time of writes, as further columns.
/// Returns the curves of reads and, if there is one, of writes. What DiskSim leaves out of such a file is left out, and said.
fn extracted(
    param: &Param,
    cylinders: u32,
    read: Read<'_>,
    files: &mut Vec<String>,
    notes: &mut Vec<String>,
) -> ImportResult<(Seek, Option<Seek>)> {
    let (file, text) = read_near(param.text()?, &param.place.file, read).map_err(|problem| param.error(&problem))?;
    files.push(file.clone());
    let mut curve: Vec<SeekPoint> = Vec::new();
    // The header's line, and the count that it has.
    let mut stated: Option<(usize, &str)> = None;
    // The first line that is left out, why, and how many there are.
    let mut left_out: Option<(usize, String, u32)> = None;
    let mut leave_out = |line: usize, why: String| left_out.get_or_insert((line, why, 0)).2 += 1;
    let mut points = 0;
    let wrong = |line: usize, problem: &str| ImportError { file: file.clone(), line, problem: problem.to_owned() };
    for (line, text) in (1..).zip(text.lines()) {
        let fields: Vec<&str> =
            text.split(|c: char| c == ',' || c.is_whitespace()).filter(|field| !field.is_empty()).collect();
        if fields.is_empty() || text.starts_with('#') {
            continue;
        }
        if let Some(header) = text.strip_prefix("Seek distances measured") {
            match points > 0 || stated.is_some() {
                true => leave_out(line, "the header of a seek curve is in its first line".to_owned()),
                false => stated = Some((line, header.trim_start_matches([':', ' ', '\t']).trim_end())),
            }
            continue;
        }
        if let Some(problem) = decimal_comma(text, &fields) {
            return Err(wrong(line, &problem));
        }
        let number = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok());
        let (Some(distance), Some(millis)) = (number(0).filter(|distance| distance.fract() == 0.0), number(1)) else {
            leave_out(line, "a distance in whole cylinders and a time in milliseconds are expected".to_owned());
            continue;
        };
        let write = number(3);
        let is_time = |millis: f64| (0.0..=1000.0).contains(&millis);
        if !(0.0..=f64::from(CYLINDERS_MAX)).contains(&distance) || !is_time(millis) || !write.is_none_or(is_time) {
            return Err(wrong(
                line,
                &format!("a distance from 0 to {CYLINDERS_MAX}, and a time from 0 to 1000 ms, are expected"),
            ));
        }
        points += 1;
        let distance = distance as u32;
        if let Some(before) = curve.last().filter(|before| before.distance >= distance) {
            leave_out(line, format!("the distance {distance} comes after {}", before.distance));
            continue;
        }
        if curve.len() == DISTANCES_MAX {
            return Err(wrong(line, &format!("more than {DISTANCES_MAX} distances")));
        }
        curve.push(SeekPoint { distance, read: ms(millis), write: write.map(ms) });
    }
    if let Some((line, why, count)) = left_out {
        let more = if count > 1 { format!(", and {} more", count - 1) } else { String::new() };
        notes.push(format!("Line {line} of {file} is left out{more}, as in DiskSim: {why}."));
    }
    if let Some((line, count)) = stated.filter(|(_, count)| count.parse() != Ok(points)) {
        let count: String = count.chars().take(20).collect();
        notes.push(format!(
            "{file}, line {line}, announces {} distances, and {points} follow: is the file cut off?",
            count.escape_debug()
        ));
    }
    if curve.iter().all(|point| point.distance == 0) {
        return Err(param.error(&format!("{file} has no distances")));
    }
    let reads = table(curve.iter().map(|point| (point.distance, point.read)), stated.is_some(), cylinders);
    if let Some(note) = reads.1 {
        notes.push(note);
    }
    // DiskSim decides by the last line.
    if curve.last().is_none_or(|point| point.write.is_none()) {
        return Ok((Seek::Table(reads.0.into()), None));
    }
    let without = curve.iter().filter(|point| point.write.is_none()).count();
    if without > 0 {
        notes.push(format!("Distances of {file} without a time of writes have that of reads: {without}."));
    }
    let writes = curve.iter().map(|point| (point.distance, point.write.unwrap_or(point.read)));
    let writes = table(writes, stated.is_some(), cylinders);
    if let Some(note) = writes.1 {
        notes.push(format!("Of writes: {note}"));
    }
    Ok((Seek::Table(reads.0.into()), Some(Seek::Table(writes.0.into()))))
}

/// The table of a curve that DiskSim interpolates, with a note if it goes on in another way beyond its end. DiskSim begins at the time of
/// distance 0, or at 0 ms in a file with a header.
fn table(
    points: impl Iterator<Item = (u32, Nanos)>,
    has_header: bool,
    cylinders: u32,
) -> (Vec<(u32, Nanos)>, Option<String>) {
    let mut table: Vec<(u32, Nanos)> = Vec::new();
    let mut start = has_header.then_some(Nanos::ZERO);
    for (distance, time) in points {
        match (distance, start) {
            (0, _) => {
                start = Some(time);
                continue;
            }
            (2.., Some(start)) if table.is_empty() => {
                let (from, to) = (start.as_millis_f64(), time.as_millis_f64());
                table.push((1, ms(from + (to - from) / f64::from(distance))));
            }
            _ => {}
        }
        table.push((distance, time));
    }
    let reach = cylinders.saturating_sub(1);
    let mut note = None;
    if let [.., before, last] = table[..]
        && last.1 < before.1
        && last.0 < reach
    {
        note = Some(format!(
            "The seek curve falls at its end, {} cylinders: it stays there, where DiskSim lets it fall further.",
            last.0
        ));
        table.push((reach, last.1));
    }
    (table, note)
}

/// What is wrong with a line of a seek curve whose decimals come after a comma: `10, 2,5` would be three columns, and 2 ms.
fn decimal_comma(line: &str, fields: &[&str]) -> Option<String> {
    let is_digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
    let is_between = |at: usize| is_digit(line[..at].chars().next_back()) && is_digit(line[at + 1..].chars().next());
    let commas = line.match_indices(',').filter(|(at, _)| is_between(*at)).count();
    // With points, commas are between columns; a comma alone is, too.
    let has_others = fields.len() > 2 || line.contains(';');
    (commas > 0 && has_others && !line.contains('.')).then(|| {
        let line: String = line.chars().take(40).collect();
        format!(
            "`{}` has a comma inside a number, or a third column without decimals: write times with a decimal point, such as \
             `10, 2.5`",
            line.trim().escape_debug()
        )
    })
}
