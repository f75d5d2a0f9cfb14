//! Damage explorer: changes an image and checks what a file system makes of it. Every case must end in an error or in a
//! right answer: no panic, no endless loop, no unbounded memory, no data of another file.
//!
//! A right answer is one that was right at some moment: a damaged checkpoint or log record cannot be distinguished from
//! one that a power cut tore, so the state before it is a right answer.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use super::history::{History, Recorder};
use super::ops::{Op, Path};
use super::replay::Replay;
use super::runner::Runner;
use super::subject::{FsUnderTest, simulate};
use super::tree::{NodeState, Tree};
use crate::codec::is_zero;
use crate::device::crash::{CrashDevice, CrashOptions};
use crate::device::fault::FaultDevice;
use crate::device::{Device, Image};
use crate::fs::{Fs, FsError};
use crate::rng::Rng;
use crate::rt::{Limits, Rt};
use crate::units::{Nanos, SECTOR_BYTES, Sector};

/// Time of a request while a state is examined: minimal, but every request is an event, so that a loop of requests
/// ends.
const TICK: Nanos = Nanos(1);

/// Limits for one damaged image: a few thousand times what a sound one needs.
const LIMITS: Limits = Limits { events: 1_000_000, until: Nanos::from_secs(1_000_000) };

/// One way to damage an image. In text as in `flip:4096.3` or `copy:0+8:64`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Damage {
    /// One bit, counted from the least significant.
    Flip { byte: u64, bit: u8 },
    /// The device ends here.
    Truncate { sectors: u64 },
    /// These sectors are zero.
    Zero { at: u64, sectors: u64 },
    /// These sectors hold noise.
    Noise { at: u64, sectors: u64, seed: u64 },
    /// These sectors hold the content of others.
    Copy { from: u64, sectors: u64, to: u64 },
    /// Reading these sectors fails until they are written again.
    Lose { at: u64, sectors: u64 },
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Damage::Flip { byte, bit } => write!(f, "flip:{byte}.{bit}"),
            Damage::Truncate { sectors } => write!(f, "truncate:{sectors}"),
            Damage::Zero { at, sectors } => write!(f, "zero:{at}+{sectors}"),
            Damage::Noise { at, sectors, seed } => write!(f, "noise:{at}+{sectors}:{seed}"),
            Damage::Copy { from, sectors, to } => write!(f, "copy:{from}+{sectors}:{to}"),
            Damage::Lose { at, sectors } => write!(f, "lose:{at}+{sectors}"),
        }
    }
}

impl FromStr for Damage {
    type Err = String;

    fn from_str(text: &str) -> Result<Damage, String> {
        let (word, rest) = text.split_once(':').ok_or("not a damage like flip:4096.3")?;
        let numbers: Result<Vec<u64>, _> = rest.split(['.', '+', ':']).map(str::parse).collect();
        match (word, &numbers.map_err(|_| "not a number")?[..]) {
            ("flip", &[byte, bit]) if bit < 8 => Ok(Damage::Flip { byte, bit: bit as u8 }),
            ("truncate", &[sectors]) => Ok(Damage::Truncate { sectors }),
            ("zero", &[at, sectors]) => Ok(Damage::Zero { at, sectors }),
            ("noise", &[at, sectors, seed]) => Ok(Damage::Noise { at, sectors, seed }),
            ("copy", &[from, sectors, to]) => Ok(Damage::Copy { from, sectors, to }),
            ("lose", &[at, sectors]) => Ok(Damage::Lose { at, sectors }),
            _ => Err("not a damage like flip:4096.3".to_string()),
        }
    }
}

impl Damage {
    /// Applies the damage. Returns the new size of the device in bytes.
    fn apply(self, image: &mut Image, bytes: u64) -> u64 {
        let mut buf = [0; SECTOR_BYTES as usize];
        match self {
            Damage::Flip { byte, bit } => {
                let sector = Sector(byte / SECTOR_BYTES);
                image.read(sector, &mut buf);
                buf[(byte % SECTOR_BYTES) as usize] ^= 1 << bit;
                image.write(sector, &buf);
            }
            Damage::Truncate { sectors } => return sectors * SECTOR_BYTES,
            Damage::Zero { at, sectors } => image.zero(Sector(at), sectors),
            Damage::Noise { at, sectors, seed } => {
                let mut rng = Rng::new(seed);
                for sector in at..at + sectors {
                    rng.fill(&mut buf);
                    image.write(Sector(sector), &buf);
                }
            }
            Damage::Copy { from, sectors, to } => {
                let source = image.clone();
                for sector in 0..sectors {
                    source.read(Sector(from + sector), &mut buf);
                    image.write(Sector(to + sector), &buf);
                }
            }
            Damage::Lose { .. } => {}
        }
        bytes
    }

    /// `device`, which holds the damaged image, with this damage's read errors.
    fn device(self, rt: &Rt, device: Device) -> Device {
        let Damage::Lose { at, sectors } = self else { return device };
        let faulty = FaultDevice::new(rt, device, 1);
        faulty.lose(Sector(at)..Sector(at + sectors));
        faulty
    }
}

/// What to explore.
pub struct DamageTest<'a> {
    pub subject: &'a dyn FsUnderTest,
    pub device: CrashOptions,
    /// Byte ranges in which every single bit is flipped, one at a time, and every sector is lost; a sample of them where `SEEKLESS_SOAK`
    /// is less than 1.
    pub flip_all: Vec<Range<u64>>,
    /// Number of further bits to flip, one at a time, anywhere where the image holds data; `SEEKLESS_SOAK` times as
    /// many.
    pub flips: usize,
    /// Number of further sectors to lose, one or a few at a time: reading them fails. `SEEKLESS_SOAK` times as many.
    pub losses: usize,
    /// Number of other damages: truncations, zeroes, noise and copies. `SEEKLESS_SOAK` times as many.
    pub splices: usize,
    /// The file system detects any change of file data. Otherwise only names and attributes must be right.
    pub data_checked: bool,
    /// Limit of the memory in use in one case, in bytes, and how to measure it: the function runs its argument and
    /// returns the peak.
    pub memory: Option<(u64, Measure)>,
    pub seed: u64,
    pub replay: Replay,
}

/// See [`DamageTest::memory`].
pub type Measure = fn(&mut dyn FnMut()) -> u64;

/// Outcomes of the damaged images.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DamageReport {
    pub cases: usize,
    /// Of the cases, those with a flipped bit, and those with sectors that cannot be read.
    pub flips: usize,
    pub losses: usize,
    /// Mount refused.
    pub refused: usize,
    /// Mounted, but not everything could be read.
    pub partly: usize,
    /// Mounted and all right, or right as of an earlier moment.
    pub whole: usize,
    /// fsck reported an error, or failed.
    pub noticed: usize,
    /// Peak memory of a case, in bytes, where measured.
    pub memory_max: u64,
}

impl fmt::Display for DamageReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DamageReport { cases, flips, losses, refused, partly, whole, noticed, memory_max } = self;
        write!(
            f,
            "{cases} damaged images, {flips} with a flipped bit and {losses} with unreadable sectors: {refused} refused, \
             {partly} partly readable, {whole} right; fsck noticed {noticed}; at most {memory_max} bytes of memory"
        )
    }
}

/// Content of a sound image, present and past.
struct Original {
    image: Image,
    moments: Moments,
}

/// The content of each path over time.
struct Moments {
    states: BTreeMap<Path, Vec<NodeState>>,
    /// Paths that existed at every moment.
    always: BTreeSet<Path>,
}

impl Moments {
    fn of(history: &History) -> Moments {
        let (mut states, mut always): (BTreeMap<Path, Vec<NodeState>>, Option<BTreeSet<Path>>) =
            (BTreeMap::new(), None);
        for step in 0..=history.steps.len() {
            let tree = history.tree(step);
            let paths = tree.paths();
            let names: BTreeSet<Path> = paths.iter().map(|(path, _)| path.clone()).collect();
            for (path, ino) in paths {
                let known = states.entry(path).or_default();
                if let Some(node) = tree.nodes.get(&ino)
                    && known.last() != Some(node)
                {
                    known.push(node.clone());
                }
            }
            always = Some(always.map_or(names.clone(), |before| &before & &names));
        }
        Moments { states, always: always.unwrap_or_default() }
    }
}

/// Outcome of one damaged image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ended {
    Refused,
    Partly,
    Whole,
}

impl DamageTest<'_> {
    /// Runs `ops` on a new file system, closes it, and damages the image in one way after another; and the same with the
    /// image of a file system that was not closed.
    ///
    /// # Errors
    /// A report of the first wrong answer, panic, endless loop or excess of memory, and the command that shows it again.
    pub fn run(&self, ops: &[Op]) -> Result<DamageReport, String> {
        let mut report = DamageReport::default();
        for closed in [true, false] {
            let built = simulate(self.seed, LIMITS, async |rt| self.build(rt, ops, closed).await);
            let original = built
                .and_then(|built| built)
                .map_err(|what| format!("{}: before any damage: {what}", self.subject.name()))?;
            let damages = match &self.replay.case {
                Some(case) => vec![case.parse().map_err(|error| format!("SEEKLESS_CASE={case}: {error}"))?],
                None => self.damages(&original.image),
            };
            for damage in damages {
                self.examine(&original, damage, &mut report).map_err(|what| {
                    let state = if closed { "a closed" } else { "an unclosed" };
                    let command = self.replay.command(self.seed, Some(&damage.to_string()), None, None);
                    format!("{}: {damage} on {state} image: {what}\n\nrun again:\n  {command}\n", self.subject.name())
                })?;
            }
        }
        Ok(report)
    }

    async fn build(&self, rt: Rt, ops: &[Op], closed: bool) -> Result<Original, String> {
        let text = |error: FsError| error.to_string();
        let crash = CrashDevice::new(&rt, Image::default(), CrashOptions { record: false, ..self.device.clone() });
        let device: Device = crash.clone();
        self.subject.mkfs(&rt, device.clone()).await.map_err(text)?;
        let fs = self.subject.mount(&rt, device).await.map_err(text)?;
        let tree = Tree::of(fs.clone()).await.map_err(text)?;
        let mut recorder = Recorder::new(&rt, &tree, 0).await.map_err(text)?;
        let mut runner = Runner::new(&rt, fs.clone());
        for op in ops.iter().chain([&Op::Sync]) {
            recorder.issue(op, 0);
            let outcome = runner.apply(op).await;
            recorder.acknowledge(op, &outcome, 0).await?;
        }
        let unclosed = crash.image();
        runner.close().await.map_err(text)?;
        fs.close().await.map_err(text)?;
        let image = if closed { crash.image() } else { unclosed };
        Ok(Original { image, moments: Moments::of(recorder.history()) })
    }

    fn damages(&self, image: &Image) -> Vec<Damage> {
        let mut rng = Rng::new(self.seed);
        let mut damages = Vec::new();
        for range in &self.flip_all {
            damages.extend(range.clone().flat_map(|byte| (0..8).map(move |bit| Damage::Flip { byte, bit })));
        }
        let sectors = self.device.bytes / SECTOR_BYTES;
        let mut buf = [0; SECTOR_BYTES as usize];
        let mut used = Vec::new();
        for sector in 0..sectors {
            image.read(Sector(sector), &mut buf);
            if !is_zero(&buf) {
                used.push(sector);
            }
        }
        if used.is_empty() {
            return damages;
        }
        for range in &self.flip_all {
            let sectors = range.start / SECTOR_BYTES..range.end.div_ceil(SECTOR_BYTES);
            damages.extend(sectors.map(|at| Damage::Lose { at, sectors: 1 }));
        }
        let soak = self.replay.soak;
        if soak.is_shorter() {
            rng.shuffle(&mut damages);
            damages.truncate(soak.times(damages.len() as u64) as usize);
        }
        for _ in 0..soak.times(self.losses as u64) {
            // Usually one sector, in or next to used space; a scratch takes several.
            let length = if rng.chance(1, 8) { 1 << rng.below(6) } else { 1 };
            let at = rng.pick(&used) + rng.below(8);
            damages.push(Damage::Lose { at: at.min(sectors - length), sectors: length });
        }
        for _ in 0..soak.times(self.flips as u64) {
            let byte = *rng.pick(&used) * SECTOR_BYTES + rng.below(SECTOR_BYTES);
            damages.push(Damage::Flip { byte, bit: rng.below(8) as u8 });
        }
        let block = u64::from(self.device.block_bytes) / SECTOR_BYTES;
        for _ in 0..soak.times(self.splices as u64) {
            // Lengths from one sector to many, all about equally likely.
            let length = (1 << rng.below(8)).min(sectors);
            let place = |rng: &mut Rng| {
                let at = if rng.chance(3, 4) { *rng.pick(&used) } else { rng.below(sectors) };
                at.min(sectors - length)
            };
            let (at, other) = (place(&mut rng), place(&mut rng));
            damages.push(match rng.below(5) {
                0 => Damage::Truncate { sectors: rng.below(sectors / block) * block },
                1 => Damage::Zero { at, sectors: length },
                2 => Damage::Noise { at, sectors: length, seed: rng.next_u64() },
                // Whole blocks land where blocks are, as after a misdirected write.
                3 => Damage::Copy { from: at / 8 * 8, sectors: length, to: (other / 8 * 8).min(sectors - length) },
                _ => Damage::Copy { from: at, sectors: length, to: other },
            });
        }
        damages
    }

    fn examine(&self, original: &Original, damage: Damage, report: &mut DamageReport) -> Result<(), String> {
        let mut image = original.image.clone();
        let bytes = damage.apply(&mut image, self.device.bytes);
        let mut ended = Err("nothing was run".to_string());
        let mut run = || ended = self.use_image(image.clone(), bytes, damage, &original.moments);
        match self.memory {
            None => run(),
            Some((memory_max, measure)) => {
                let used = measure(&mut run);
                report.memory_max = report.memory_max.max(used);
                if used > memory_max && ended.is_ok() {
                    ended = Err(format!("{used} bytes of memory were in use at a time, and {memory_max} are allowed"));
                }
            }
        }
        let (ended, noticed) = ended?;
        report.cases += 1;
        report.flips += usize::from(matches!(damage, Damage::Flip { .. }));
        report.losses += usize::from(matches!(damage, Damage::Lose { .. }));
        report.noticed += usize::from(noticed);
        *match ended {
            Ended::Refused => &mut report.refused,
            Ended::Partly => &mut report.partly,
            Ended::Whole => &mut report.whole,
        } += 1;
        Ok(())
    }

    /// Checks, mounts, reads everything, changes something, closes.
    fn use_image(&self, image: Image, bytes: u64, damage: Damage, moments: &Moments) -> Result<(Ended, bool), String> {
        let options = CrashOptions { bytes, record: false, latency: TICK..=TICK, ..self.device.clone() };
        let checked = simulate(self.seed, LIMITS, async |rt| {
            let device = damage.device(&rt, CrashDevice::new(&rt, image.clone(), options.clone()));
            !matches!(self.subject.fsck(&rt, device).await, Ok(problems) if problems.is_empty())
        });
        let noticed = checked.map_err(|what| format!("fsck: {what}"))?;
        let used = simulate(self.seed, LIMITS, async |rt| {
            let device = damage.device(&rt, CrashDevice::new(&rt, image, options));
            let Ok(fs) = self.subject.mount(&rt, device).await else { return Ok(Ended::Refused) };
            let ended = self.read_everything(&fs, moments).await?;
            // Any answer is allowed, but each call must end.
            let mut runner = Runner::new(&rt, fs.clone());
            for op in super::ops::parse(CHANGES)? {
                let _ = runner.apply(&op).await;
            }
            let _ = runner.close().await;
            let _ = fs.close().await;
            Ok(ended)
        });
        Ok((used.and_then(|used| used).map_err(|what| format!("mounted: {what}"))?, noticed))
    }

    /// Walks everything reachable, and compares the readable content with its history.
    async fn read_everything(&self, fs: &Fs, moments: &Moments) -> Result<Ended, String> {
        let (tree, errors) = Tree::readable(fs.clone()).await;
        let mut wrong = Vec::new();
        let found: BTreeMap<Path, _> = tree.paths().into_iter().collect();
        for (path, ino) in &found {
            let Some(node) = tree.nodes.get(ino) else { continue };
            let Some(known) = moments.states.get(path) else {
                wrong.push(format!("{path} was never there"));
                continue;
            };
            if !known.iter().any(|known| node.attribute_differences(known, false).is_empty()) {
                let last = known.last().map(|known| node.attribute_differences(known, false).join("; "));
                wrong.push(format!("{path} never had these attributes: {}", last.unwrap_or_default()));
            }
            if self.data_checked && !known.iter().any(|known| node.contents == known.contents) {
                wrong.push(format!("{path} never had this content ({} bytes)", node.contents.size()));
            }
        }
        if !self.subject.knows_damage() {
            wrong.clear();
        }
        for path in moments.always.iter().filter(|path| !found.contains_key(*path)) {
            let parent_read = found.get(&path.parent()).is_some_and(|ino| tree.nodes.contains_key(ino));
            if parent_read && !errors.contains_key(&path.parent()) && !errors.contains_key(path) {
                wrong.push(format!("{path} is missing"));
            }
        }
        match (wrong.is_empty(), errors.is_empty() && tree.problems.is_empty()) {
            (true, true) => Ok(Ended::Whole),
            (true, false) => Ok(Ended::Partly),
            (false, _) => Err(format!("wrong answers:\n    {}", wrong.join("\n    "))),
        }
    }
}

/// Changes to try on a damaged file system.
const CHANGES: &str = "create /probe 644; write /probe 0+9000 #1; fsync /probe; mkdir /probes 755; rename /probe /probes/p; \
                       append /probes/p 5000 #2; setxattr /probes user.a 10 #3; sync; unlink /probes/p; rmdir /probes; sync";
