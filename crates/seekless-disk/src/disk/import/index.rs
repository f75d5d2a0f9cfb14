//! DiskSim's layout `dm_layout_g4`: an index, which describes the drive by recursive patterns of tracks.
//!
//! Source: `layout_g4.c`, `layout_g4_load.c` and `layout_g4.modspec` of DiskSim 4.0 \[bu08\], which its manual does not cover.
//!
//! ```text
//! TP    = first sector, last sector, physical sectors of a track               a track pattern, by its number
//! IDX   = [ entry ... ] ...                                                    a node, by its number; the last one is the root
//! entry = lbn, cylinder, angle, lbns, cylinders, turn, all lbns, all cylinders, child
//! child = TRACK, number of a track pattern, head  |  IDX, number of a node
//! ```
//! An entry is its child repeated: instance `i` begins `i * lbns` LBNs, `i * cylinders` cylinders and `i * turn` revolutions after the
//! first. The cylinders descend if `all cylinders` is negative. LBN, cylinder and angle count from those of the node, so that a node can be
//! used several times. LBNs count sectors that `Slips` leave out.
//!
//! Invariants, from [`Index::read`] on
//!   I1  Entries of a node follow each other by LBN and do not overlap.
//!   I2  Every node that the root reaches has entries, and none reaches itself; the way down has at most [`DEPTH_MAX`] nodes.
//!   I3  All tracks are on cylinders below [`CYLINDERS_MAX`], and a walk takes at most [`STEPS_MAX`] steps.

use super::ImportError;
use super::syntax::{Block, Param, Value};
use super::tracks::{Slip, Track};

type ImportResult<T> = Result<T, ImportError>;

/// Tenfold of what the drives with the most cylinders have.
pub(super) const CYLINDERS_MAX: u32 = 1 << 21;
const DEPTH_MAX: usize = 32;
/// Tracks and instances of nodes: sixteen million tracks of the size that is usual today are more than 30 TB.
const STEPS_MAX: u64 = 1 << 24;
pub(super) const LBNS_MAX: u64 = 1 << 40;
pub(super) const SECTORS_PER_TRACK_MAX: u32 = 1 << 20;

pub(super) struct Index {
    patterns: Vec<Pattern>,
    nodes: Vec<Node>,
    /// After the last cylinder with a track.
    pub(super) cylinders: u32,
    pub(super) slips: Vec<Slip>,
    /// Sectors that `Remaps` move.
    pub(super) remapped: u64,
}

/// A kind of track.
struct Pattern {
    lbns: u32,
    sectors_per_track: u32,
    first_sector: u32,
}

#[derive(Default)]
struct Node {
    entries: Vec<Entry>,
    extent: Option<Coverage>,
}

/// What a node covers, relative to its start.
#[derive(Clone, Copy)]
struct Coverage {
    first_cylinder: i64,
    last_cylinder: i64,
    steps: u64,
    depth: usize,
}

struct Entry {
    lbn: u64,
    cylinder: i64,
    angle: f64,
    /// Of one instance.
    lbns: u64,
    /// From one instance to the next; negative if they descend.
    cylinders: i64,
    turn: f64,
    /// Of all instances.
    run_lbns: u64,
    child: Child,
    line: usize,
}

#[derive(Clone, Copy)]
enum Child {
    Track { pattern: usize, head: u32 },
    Node(usize),
}

impl Entry {
    fn instances(&self) -> u64 {
        self.run_lbns.div_ceil(self.lbns)
    }
}

impl Index {
    /// # Errors
    /// The first mistake, with its line.
    pub(super) fn read(layout: &Block, heads: u32) -> ImportResult<Index> {
        let param = layout.need("TP")?;
        let patterns = groups::<3>(param)?.map(|group| pattern(param, group?)).collect::<ImportResult<Vec<_>>>()?;
        let param = layout.need("IDX")?;
        let mut nodes = Vec::new();
        let list = param.lined_list()?;
        for (item, &line) in list.items.iter().zip(&list.lines) {
            let Value::List(entries) = item else {
                return Err(wrong(param, line, "a list of lists in brackets is expected here"));
            };
            let mut values = Values { param, line, next: entries.items.iter().zip(&entries.lines).peekable() };
            let mut node = Node::default();
            while values.next.peek().is_some() {
                node.entries.push(entry(&mut values, patterns.len(), list.items.len(), heads)?);
            }
            if node.entries.is_empty() {
                return Err(wrong(param, line, "a node without entries"));
            }
            for pair in node.entries.windows(2) {
                let end = pair[0].lbn + pair[0].run_lbns;
                if pair[1].lbn < end {
                    let problem = format!("LBN {} is before {end}, where the entry before ends", pair[1].lbn);
                    return Err(wrong(param, pair[1].line, &problem));
                }
            }
            nodes.push(node);
        }
        let Some(root) = nodes.len().checked_sub(1) else {
            return Err(param.error("there is no node in it"));
        };
        let mut index = Index { patterns, nodes, cylinders: 0, slips: slips(layout)?, remapped: 0 };
        let extent = index.measure(root, 1, &mut Vec::new(), param)?;
        index.cylinders = extent.last_cylinder as u32 + 1; // I3: `measure` keeps it in range.
        if let Some(param) = layout.get("Remaps") {
            for group in groups::<6>(param)? {
                let ([_, count, ..], line) = group?;
                index.remapped += count_of(param, count, line, "a number of sectors", 0, LBNS_MAX)?;
            }
        }
        Ok(index)
    }

    /// Checks a node and all below it (I2, I3), each once.
    fn measure(&mut self, node: usize, depth: usize, above: &mut Vec<usize>, param: &Param) -> ImportResult<Coverage> {
        let fail = |entry: &Entry, problem: &str| Err(wrong(param, entry.line, problem));
        if let Some(extent) = self.nodes[node].extent
            && depth + extent.depth <= DEPTH_MAX + 1
        {
            return Ok(extent);
        }
        above.push(node);
        let (mut first_cylinder, mut last_cylinder) = (i64::MAX, i64::MIN);
        let (mut steps, mut below) = (0_u64, 0);
        let entries = std::mem::take(&mut self.nodes[node].entries);
        for entry in &entries {
            let child = match entry.child {
                Child::Track { .. } => Coverage { first_cylinder: 0, last_cylinder: 0, steps: 0, depth: 0 },
                Child::Node(child) if above.contains(&child) => {
                    return fail(entry, &format!("node {child} is inside of itself here"));
                }
                Child::Node(_) if depth == DEPTH_MAX => {
                    return fail(entry, &format!("more than {DEPTH_MAX} nodes, one in another"));
                }
                Child::Node(child) => self.measure(child, depth + 1, above, param)?,
            };
            let instances = entry.instances();
            let travel = i64::try_from(instances - 1).unwrap_or(i64::MAX).saturating_mul(entry.cylinders);
            let (low, high) = (travel.min(0), travel.max(0));
            let low = low.saturating_add(entry.cylinder + child.first_cylinder);
            let high = high.saturating_add(entry.cylinder + child.last_cylinder);
            if low < 0 || high >= i64::from(CYLINDERS_MAX) {
                let problem = format!(
                    "its {instances} instances reach from cylinder {low} to {high} of its node; possible are 0 to {}",
                    CYLINDERS_MAX - 1
                );
                return fail(entry, &problem);
            }
            steps = steps.saturating_add(instances.saturating_mul(1 + child.steps));
            if steps > STEPS_MAX {
                return fail(entry, &format!("more than {STEPS_MAX} tracks and instances of nodes"));
            }
            first_cylinder = first_cylinder.min(low);
            last_cylinder = last_cylinder.max(high);
            below = below.max(child.depth);
        }
        self.nodes[node].entries = entries;
        above.pop();
        let extent = Coverage { first_cylinder, last_cylinder, steps, depth: below + 1 };
        self.nodes[node].extent = Some(extent);
        Ok(extent)
    }

    /// Every track, by ascending LBN.
    pub(super) fn walk(&self, visit: &mut dyn FnMut(Track)) {
        self.walk_node(self.nodes.len() - 1, (0, 0, 0.0), u64::MAX, visit);
    }

    /// `(lbn, cylinder, angle)` are those of the node; of its LBNs, only the first `lbns` are there.
    fn walk_node(&self, node: usize, start: (u64, i64, f64), lbns: u64, visit: &mut dyn FnMut(Track)) {
        let (lbn, cylinder, angle) = start;
        for entry in &self.nodes[node].entries {
            let Some(left) = lbns.checked_sub(entry.lbn).filter(|&left| left > 0) else { return };
            let run = entry.run_lbns.min(left);
            for instance in 0..run.div_ceil(entry.lbns) {
                let passed = instance * entry.lbns;
                let start = (
                    lbn + entry.lbn + passed,
                    cylinder + entry.cylinder + instance as i64 * entry.cylinders,
                    angle + entry.angle + instance as f64 * entry.turn,
                );
                let left = entry.lbns.min(run - passed);
                match entry.child {
                    Child::Node(child) => self.walk_node(child, start, left, visit),
                    Child::Track { pattern, head } => {
                        let pattern = &self.patterns[pattern];
                        visit(Track {
                            lbn: start.0,
                            lbns: u64::from(pattern.lbns).min(left) as u32,
                            sectors_per_track: pattern.sectors_per_track,
                            first_sector: pattern.first_sector,
                            cylinder: start.1 as u32, // I3
                            head,
                            angle: start.2,
                            line: entry.line,
                        });
                    }
                }
            }
        }
    }
}

fn wrong(param: &Param, line: usize, problem: &str) -> ImportError {
    ImportError { line, ..param.error(problem) }
}

/// The items of an entry or of a flat list.
struct Values<'a, I: Iterator<Item = (&'a Value, &'a usize)>> {
    param: &'a Param,
    line: usize,
    next: std::iter::Peekable<I>,
}

impl<'a, I: Iterator<Item = (&'a Value, &'a usize)>> Values<'a, I> {
    fn value(&mut self, what: &str) -> ImportResult<&'a Value> {
        match self.next.next() {
            Some((value, &line)) => {
                self.line = line;
                Ok(value)
            }
            None => Err(wrong(self.param, self.line, &format!("the list ends where {what} is expected"))),
        }
    }

    fn number(&mut self, what: &str) -> ImportResult<f64> {
        let value = self.value(what)?;
        number(self.param, value, self.line, what)
    }

    fn count(&mut self, what: &str, min: u64, max: u64) -> ImportResult<u64> {
        let value = self.value(what)?;
        count_of(self.param, value, self.line, what, min, max)
    }
}

fn number(param: &Param, value: &Value, line: usize, what: &str) -> ImportResult<f64> {
    param.number_of(value).map_err(|_| wrong(param, line, &format!("{what} is expected here")))
}

fn count_of(param: &Param, value: &Value, line: usize, what: &str, min: u64, max: u64) -> ImportResult<u64> {
    let number = number(param, value, line, what)?;
    match number.fract() == 0.0 && (min as f64..=max as f64).contains(&number) {
        true => Ok(number as u64),
        false => Err(wrong(param, line, &format!("{what} is expected here: {number} is not from {min} to {max}"))),
    }
}

/// A flat list in groups of so many values, with the line of each group.
fn groups<const N: usize>(
    param: &Param,
) -> ImportResult<impl Iterator<Item = ImportResult<([&Value; N], usize)>> + use<'_, N>> {
    let list = param.lined_list()?;
    Ok(list.items.chunks(N).zip(list.lines.chunks(N)).map(|(items, lines)| {
        match items.iter().collect::<Vec<_>>().try_into() {
            Ok(group) => Ok((group, lines[0])),
            Err(_) => Err(wrong(
                param,
                lines[0],
                &format!("groups of {N} numbers are expected, and this one has {}", items.len()),
            )),
        }
    }))
}

fn pattern(param: &Param, (group, line): ([&Value; 3], usize)) -> ImportResult<Pattern> {
    let max = u64::from(SECTORS_PER_TRACK_MAX);
    let sectors = count_of(param, group[2], line, "a number of sectors", 1, max)?;
    let first = count_of(param, group[0], line, "the first sector", 0, sectors - 1)?;
    let last = count_of(param, group[1], line, "the last sector", first, sectors - 1)?;
    Ok(Pattern { lbns: (last - first + 1) as u32, sectors_per_track: sectors as u32, first_sector: first as u32 })
}

fn entry<'a, I: Iterator<Item = (&'a Value, &'a usize)>>(
    values: &mut Values<'a, I>,
    patterns: usize,
    nodes: usize,
    heads: u32,
) -> ImportResult<Entry> {
    let cylinders_max = u64::from(CYLINDERS_MAX);
    let lbn = values.count("an LBN", 0, LBNS_MAX)?;
    let line = values.line;
    let cylinder = values.count("a cylinder", 0, cylinders_max)? as i64;
    let angle = values.number("an angle in revolutions")?;
    let lbns = values.count("a number of LBNs", 1, LBNS_MAX)?;
    let cylinders = values.count("a number of cylinders", 1, cylinders_max)? as i64;
    let turn = values.number("an angle in revolutions")?;
    let run_lbns = values.count("a number of LBNs", 1, LBNS_MAX)?;
    let run_cylinders = values.number("a number of cylinders")?;
    if run_cylinders == 0.0 {
        return Err(wrong(
            values.param,
            values.line,
            "a number of cylinders, negative if they descend, is expected here: not 0",
        ));
    }
    let word = values.value("TRACK or IDX")?;
    let below = |count: usize| (count as u64).saturating_sub(1);
    let child = match word {
        Value::Text(word) if word == "TRACK" && patterns > 0 => Child::Track {
            pattern: values.count("the number of a track pattern", 0, below(patterns))? as usize,
            head: values.count("a head", 0, u64::from(heads - 1))? as u32,
        },
        Value::Text(word) if word == "IDX" => {
            Child::Node(values.count("the number of a node", 0, below(nodes))? as usize)
        }
        Value::Text(word) if word == "TRACK" => {
            return Err(wrong(values.param, values.line, "there are no track patterns"));
        }
        _ => return Err(wrong(values.param, values.line, "TRACK or IDX is expected here")),
    };
    let cylinders = if run_cylinders < 0.0 { -cylinders } else { cylinders };
    Ok(Entry { lbn, cylinder, angle, lbns, cylinders, turn, run_lbns, child, line })
}

/// Where sectors are left out, and how many, by ascending place.
fn slips(layout: &Block) -> ImportResult<Vec<Slip>> {
    let mut slips: Vec<Slip> = Vec::new();
    let Some(param) = layout.get("Slips") else { return Ok(slips) };
    for group in groups::<2>(param)? {
        let ([lbn, count], line) = group?;
        let lbn = count_of(param, lbn, line, "an LBN", 0, LBNS_MAX)?;
        let count = number(param, count, line, "a number of sectors")?;
        if count.fract() != 0.0 || count.abs() > LBNS_MAX as f64 {
            return Err(wrong(param, line, "a number of sectors is expected here"));
        }
        if slips.last().is_some_and(|before| lbn < before.lbn) {
            return Err(wrong(param, line, &format!("LBN {lbn} comes after a greater one")));
        }
        slips.push(Slip { lbn, count: count as i64 });
    }
    Ok(slips)
}
