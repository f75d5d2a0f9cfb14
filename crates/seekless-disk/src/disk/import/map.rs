//! DiskSim's layout `dm_layout_g2`: a map of the drive, run by run, in a file of its own, and the zones to which its tracks belong.
//!
//! Source: `layout_g2_load.c`, `layout_g2.c` and the parameters of `layout_g2_zone` of DiskSim 4.0 \[bu08\], which its manual does not cover.
//!
//! ```text
//! two lines of any text
//! 6962 cylinders, 10025 rot, 12 heads
//! lbn 0 --> cyl 0, head 0, sect 0, seqcnt 212          213 sectors: as many more as come after the first
//! lbn 213 --> cyl 0, head 1, sect 0, count 213         any other word: 213 sectors
//! Defect at cyl 0, head 3, sect 17                     such lines come last
//! ```
//! A run that ends before a sector and goes on after it leaves a slip. One that is elsewhere, and after which the track before goes on, was
//! remapped: its LBNs are read at their original places, as those of the other layouts.
//!
//! Invariants, from [`read`] on
//!   M1  Tracks ascend by LBN and do not overlap.
//!   M2  All tracks are on cylinders below [`CYLINDERS_MAX`] and heads of the drive.

use super::ImportError;
use super::files::{Read, read_near};
use super::index::{CYLINDERS_MAX, LBNS_MAX, SECTORS_PER_TRACK_MAX};
use super::syntax::{Block, Param, Value};
use super::tokens::BYTES_MAX;
use super::tracks::{Slip, Track};

type ImportResult<T> = Result<T, ImportError>;

/// Runs between two parts of a track that may be remapped parts of it.
const REMAPPED_RUNS_MAX: usize = 16;

/// What a map says.
pub(super) struct Map {
    pub(super) file: String,
    pub(super) tracks: Vec<Track>,
    /// After the last cylinder with a track.
    pub(super) cylinders: u32,
    pub(super) slips: Vec<Slip>,
    /// LBNs that the map has elsewhere than on their track.
    pub(super) remapped: u64,
}

/// What a zone says of the tracks on its cylinders. Angles in revolutions.
struct Zone {
    first_cylinder: u32,
    last_cylinder: u32,
    sectors_per_track: u32,
    skew: f64,
    head_skew: f64,
    cylinder_skew: f64,
}

/// LBNs that follow each other on a track.
#[derive(Clone, Copy, Default)]
struct Run {
    lbn: u64,
    cylinder: u32,
    head: u32,
    sector: u32,
    sectors: u32,
    line: usize,
}

impl Run {
    fn is_on_track_of(&self, other: &Run) -> bool {
        (self.cylinder, self.head) == (other.cylinder, other.head)
    }

    fn end_lbn(&self) -> u64 {
        self.lbn + u64::from(self.sectors)
    }
}

/// Reads the map of `layout`.
///
/// # Errors
/// The first mistake, with its file and line.
pub(super) fn read(layout: &Block, heads: u32, read: Read<'_>) -> ImportResult<Map> {
    let zones = zones(layout)?;
    let param = layout.need("Layout Map File")?;
    let (file, text) = read_near(param.text()?, &param.place.file, read).map_err(|problem| param.error(&problem))?;
    if text.len() > BYTES_MAX {
        return Err(param.error(&format!("{file} has more than {BYTES_MAX} bytes")));
    }
    let wrong = |line: usize, problem: String| ImportError { file: file.clone(), line, problem };
    let runs = runs(&text, heads).map_err(|(line, problem)| wrong(line, problem))?;
    let mut map = Map { file: file.clone(), tracks: Vec::new(), cylinders: 0, slips: Vec::new(), remapped: 0 };
    map.add_tracks(&runs, &zones).map_err(|(line, problem)| wrong(line, problem))?;
    Ok(map)
}

fn zones(layout: &Block) -> ImportResult<Vec<Zone>> {
    let list = layout.need("Zones")?;
    let mut zones = Vec::new();
    for item in list.list()? {
        let Value::Block(block) = item else {
            return Err(list.error("a list of dm_layout_g2_zone blocks is expected"));
        };
        let cylinder = |key: &str| block.need(key)?.count(0, CYLINDERS_MAX - 1);
        let sectors_per_track = block.need("Blocks per track")?.count(1, SECTORS_PER_TRACK_MAX)?;
        let units = block.get("Skew units").map(|param: &Param| (param, param.text()));
        let in_turns = match units {
            None | Some((_, Ok("sectors"))) => false,
            Some((_, Ok("revolutions"))) => true,
            Some((param, _)) => return Err(param.error("one of sectors, revolutions")),
        };
        let angle = |key: &str| -> ImportResult<f64> {
            let given = block.number(key, 0.0)?;
            // DiskSim cuts off fractions of a sector.
            Ok(if in_turns { given } else { given.trunc() / f64::from(sectors_per_track) })
        };
        zones.push(Zone {
            first_cylinder: cylinder("First cylinder number")?,
            last_cylinder: cylinder("Last cylinder number")?,
            sectors_per_track,
            skew: angle("Zone Skew")?,
            head_skew: angle("Skew for track switch")?,
            cylinder_skew: angle("Skew for cylinder switch")?,
        });
    }
    Ok(zones)
}

/// The runs of a map, by ascending LBN.
///
/// # Errors
/// What is wrong, and the line.
fn runs(text: &str, heads: u32) -> Result<Vec<Run>, (usize, String)> {
    let mut lines = (1..).zip(text.lines()).skip(2);
    let header = |text: &str| matches!(words(text)[..], [_, "cylinders", _, "rot", _, "heads"]);
    match lines.next() {
        Some((_, text)) if header(text) => {}
        Some((line, _)) => return Err((line, "`COUNT cylinders, SPEED rot, COUNT heads` is expected here".to_owned())),
        None => return Err((1, "the map ends before `COUNT cylinders, SPEED rot, COUNT heads` in line 3".to_owned())),
    }
    let mut runs: Vec<Run> = Vec::new();
    for (line, text) in lines {
        match &words(text)[..] {
            [] => {}
            ["Defect", "at", ..] => break,
            words => {
                let run = run(words, line, heads).map_err(|problem| (line, problem))?;
                if let Some(before) = runs.last().filter(|before| run.lbn < before.end_lbn()) {
                    let problem = format!("LBN {} is before {}, where the line before ends", run.lbn, before.end_lbn());
                    return Err((line, problem));
                }
                runs.push(run);
            }
        }
    }
    match runs.is_empty() {
        true => Err((3, "no line `lbn LBN --> cyl CYLINDER, head HEAD, sect SECTOR, ...` follows".to_owned())),
        false => Ok(runs),
    }
}

fn words(text: &str) -> Vec<&str> {
    text.split(|c: char| c == ',' || c.is_whitespace()).filter(|word| !word.is_empty()).collect()
}

fn run(words: &[&str], line: usize, heads: u32) -> Result<Run, String> {
    let ["lbn", lbn, "-->", "cyl", cylinder, "head", head, "sect", sector, kind, count] = words else {
        return Err("`lbn LBN --> cyl CYLINDER, head HEAD, sect SECTOR, seqcnt COUNT` is expected here".to_owned());
    };
    let count = number("the count", count, u64::from(SECTORS_PER_TRACK_MAX))? + u64::from(*kind == "seqcnt");
    if count == 0 {
        return Err("a run without sectors".to_owned());
    }
    Ok(Run {
        lbn: number("the LBN", lbn, LBNS_MAX)?,
        cylinder: number("the cylinder", cylinder, u64::from(CYLINDERS_MAX - 1))? as u32,
        head: number("the head", head, u64::from(heads - 1))? as u32,
        sector: number("the sector", sector, u64::from(SECTORS_PER_TRACK_MAX - 1))? as u32,
        sectors: count as u32,
        line,
    })
}

fn number(what: &str, word: &str, max: u64) -> Result<u64, String> {
    match word.parse() {
        Ok(number) if number <= max => Ok(number),
        _ => Err(format!("{what} is a number from 0 to {max}, not {:?}", word.chars().take(40).collect::<String>())),
    }
}

impl Map {
    /// # Errors
    /// What is wrong, and the line.
    fn add_tracks(&mut self, runs: &[Run], zones: &[Zone]) -> Result<(), (usize, String)> {
        let mut slipped = 0;
        let mut angle = 0.0;
        let mut before: Option<(Run, usize)> = None;
        let mut next = 0;
        while let Some(&first) = runs.get(next) {
            let has_it = |zone: &Zone| (zone.first_cylinder..=zone.last_cylinder).contains(&first.cylinder);
            let Some((index, zone)) = zones.iter().enumerate().find(|(_, zone)| has_it(zone)) else {
                return Err((first.line, format!("no zone has cylinder {}", first.cylinder)));
            };
            angle = match before {
                Some((before, of)) if of == index && first.is_on_track_of(&before) => angle,
                Some((before, of)) if of == index && first.cylinder == before.cylinder => angle + zone.head_skew,
                Some((_, of)) if of == index => angle + zone.cylinder_skew,
                _ => zone.skew,
            };
            let lbn = first.lbn + slipped;
            let end = self.follow(runs, &mut next, &mut slipped);
            if end > zone.sectors_per_track {
                let (head, sectors) = (first.head, zone.sectors_per_track);
                let problem = format!(
                    "the track of head {head} on cylinder {} reaches sector {}; in its zone tracks have {sectors} sectors",
                    first.cylinder,
                    end - 1
                );
                return Err((first.line, problem));
            }
            self.cylinders = self.cylinders.max(first.cylinder + 1);
            self.tracks.push(Track {
                lbn,
                lbns: end - first.sector,
                sectors_per_track: zone.sectors_per_track,
                first_sector: first.sector,
                cylinder: first.cylinder,
                head: first.head,
                angle: angle + f64::from(first.sector) / f64::from(zone.sectors_per_track),
                line: first.line,
            });
            before = Some((first, index));
        }
        Ok(())
    }

    /// Follows a track from the run at `next` on, to the first run that is no part of it. Returns the sector after its last one.
    fn follow(&mut self, runs: &[Run], next: &mut usize, slipped: &mut u64) -> u32 {
        let mut last = runs[*next];
        *next += 1;
        loop {
            let end = last.sector + last.sectors;
            let candidates = runs.iter().skip(*next).take(REMAPPED_RUNS_MAX);
            let goes_on = |run: &Run| run.is_on_track_of(&last) && run.sector >= end;
            let Some(between) = candidates.clone().position(goes_on) else { return end };
            let run = runs[*next + between];
            let (lbns, sectors) = (run.lbn - last.end_lbn(), u64::from(run.sector - end));
            if lbns > sectors {
                return end;
            }
            self.remapped += lbns;
            if sectors > lbns {
                let lbn = last.end_lbn() + *slipped + lbns;
                self.slips.push(Slip { lbn, count: (sectors - lbns) as i64 });
                *slipped += sectors - lbns;
            }
            *next += between + 1;
            last = run;
        }
    }
}
