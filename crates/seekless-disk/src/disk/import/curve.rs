//! Seek curves.

use super::super::drive::{Seek, TwoPiece, ms};
use super::syntax::{Block, Param, Read, Value};
use super::{CYLINDERS_MAX, ImportError};
use crate::units::Nanos;

type ImportResult<T> = Result<T, ImportError>;

pub(super) fn seek(
    mechanics: &Block,
    cylinders: u32,
    read: Read<'_>,
    files: &mut Vec<String>,
    notes: &mut Vec<String>,
) -> ImportResult<Seek> {
    let kind = mechanics.need("Seek type")?;
    let figures = || -> ImportResult<[Nanos; 3]> {
        Ok([
            mechanics.need("Single cylinder seek time")?.time()?,
            mechanics.need("Average seek time")?.time()?,
            mechanics.need("Full strobe seek time")?.time()?,
        ])
    };
    match kind.text()? {
        "constant" => Ok(Seek::Constant(mechanics.need("Constant seek time")?.time()?)),
        "linear" => {
            let [one, average, full] = figures()?;
            notes.push(
                "The linear seek curve has no steps, which DiskSim's has from dividing whole numbers.".to_owned(),
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
                param.list()?.iter().map(|time| param.time_of(time)).collect::<ImportResult<_>>()?;
            Ok(Seek::TwoPiece(TwoPiece { short: short.into(), ..curve }))
        }
        "extracted" => extracted(mechanics.need("Full seek curve")?, read, files, notes),
        other => {
            let known = "constant, linear, curve, hpl, hplplus10, extracted";
            Err(kind.error(&format!("there is no seek type `{}`; one of: {known}", other.escape_debug())))
        }
    }
}

/// The curve of the six values, and the sixth, which is the seek over one cylinder unless it is -1.
fn two_piece(mechanics: &Block) -> ImportResult<(TwoPiece, Option<Nanos>)> {
    let param = mechanics.need("HPL seek equation values")?;
    let values: Vec<f64> = param.list()?.iter().map(|value| param.number_of(value)).collect::<ImportResult<_>>()?;
    let &[from, root_base_ms, root_ms, line_base_ms, line_ms, single] = &values[..] else {
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

/// A file of distances and times: `Seek distances measured: 64`, then `1, 1.014`.
fn extracted(param: &Param, read: Read<'_>, files: &mut Vec<String>, notes: &mut Vec<String>) -> ImportResult<Seek> {
    let file = param.text()?;
    let text = read(file).map_err(|problem| param.error(&problem))?;
    files.push(file.to_owned());
    let mut table: Vec<(u32, Nanos)> = Vec::new();
    let mut apart = 0;
    // The header's line, and the count that it has.
    let mut stated: Option<(usize, usize)> = None;
    let (mut points, mut before) = (0, None);
    let wrong = |line: usize, problem: &str| ImportError { file: file.to_owned(), line, problem: problem.to_owned() };
    for (line, text) in (1..).zip(text.lines()) {
        let fields: Vec<&str> =
            text.split(|c: char| c == ',' || c.is_whitespace()).filter(|field| !field.is_empty()).collect();
        if fields.is_empty() || text.starts_with('#') {
            continue;
        }
        if let Some(header) = text.strip_prefix("Seek distances measured") {
            let count = header.trim_start_matches([':', ' ', '\t']).trim_end().parse();
            let count = count.map_err(|_| wrong(line, "a count is expected: `Seek distances measured: COUNT`"))?;
            if points > 0 || stated.is_some() {
                return Err(wrong(line, "a second seek curve begins here; a file has one, with its count first"));
            }
            stated = Some((line, count));
            continue;
        }
        if let Some(problem) = decimal_comma(text, &fields) {
            return Err(wrong(line, &problem));
        }
        let number = |field: Option<&&str>| field.and_then(|field| field.parse::<f64>().ok());
        let (Some(distance), Some(millis)) = (number(fields.first()), number(fields.get(1))) else {
            return Err(wrong(line, "a distance in cylinders and a time in milliseconds are expected"));
        };
        if !(0.0..=f64::from(CYLINDERS_MAX)).contains(&distance)
            || distance.fract() != 0.0
            || !(0.0..=1000.0).contains(&millis)
        {
            return Err(wrong(line, "a distance in whole cylinders, and a time from 0 to 1000 ms, are expected"));
        }
        let distance = distance as u32;
        if let Some(before) = before.filter(|&before| before >= distance) {
            let problem = format!(
                "the distance {distance} comes after {before}: each distance is there once, in ascending order"
            );
            return Err(wrong(line, &problem));
        }
        before = Some(distance);
        points += 1;
        apart += usize::from(fields.len() > 2);
        if table.len() == DISTANCES_MAX {
            return Err(wrong(line, &format!("more than {DISTANCES_MAX} distances")));
        }
        if distance >= 1 {
            table.push((distance, ms(millis)));
        }
    }
    if let Some((line, count)) = stated.filter(|&(_, count)| count != points) {
        let problem = format!("{count} distances are announced here, and {points} follow: is the file cut off?");
        return Err(wrong(line, &problem));
    }
    if table.is_empty() {
        return Err(param.error(&format!("{file} has no distances")));
    }
    if apart > 0 {
        notes.push(
            "The seek curve has further columns, of writes, which are left out: writes seek as reads do.".to_owned(),
        );
    }
    Ok(Seek::Table(table.into()))
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
