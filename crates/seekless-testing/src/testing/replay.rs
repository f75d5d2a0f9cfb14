//! What a failing test prints so that it can be replayed, and how such a line is parsed.

use std::fmt;
use std::ops::Range;

use super::ops::{Op, parse};
use super::soak::Soak;

/// Which case of a test to run: normally all of them, or the one of a failure report.
///
/// A test gets its replay from the environment, which only test code may read:
///
/// ```
/// # use seekless_testing::testing::Replay;
/// # let environment = |_: &str| None;
/// let replay = Replay::read("seekless", "testing::crash::tests::scripts", environment)?;
/// let seed = replay.seed.unwrap_or(1);
/// # assert_eq!(seed, 1);
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Replay {
    /// Package of the test, for `cargo test -p`.
    pub package: String,
    /// Full name of the test.
    pub test: String,
    /// `SEEKLESS_SEED`
    pub seed: Option<u64>,
    /// `SEEKLESS_CUT`
    pub cut: Option<CutName>,
    /// `SEEKLESS_CASE`: the fault or the damage.
    pub case: Option<String>,
    /// `SEEKLESS_OPS`: run these instead of what the test would run.
    pub ops: Option<Vec<Op>>,
    /// `SEEKLESS_SOAK`
    pub soak: Soak,
}

impl Replay {
    /// Runs everything.
    pub fn all(package: &str, test: &str) -> Replay {
        Replay { package: package.to_string(), test: test.to_string(), ..Replay::default() }
    }

    /// True unless the environment chose a part, or its own operations: only then are a test's totals meaningful.
    pub fn runs_everything(&self) -> bool {
        let chosen = self.seed.is_some() || self.cut.is_some() || self.case.is_some() || self.ops.is_some();
        !chosen && !self.soak.is_shorter()
    }

    /// Reads the environment through `lookup`.
    ///
    /// # Errors
    /// Which variable is invalid.
    pub fn read(package: &str, test: &str, lookup: impl Fn(&str) -> Option<String>) -> Result<Replay, String> {
        let mut replay = Replay::all(package, test);
        if let Some(text) = lookup("SEEKLESS_SEED") {
            replay.seed = Some(text.parse().map_err(|_| format!("SEEKLESS_SEED={text:?} is not a number"))?);
        }
        if let Some(text) = lookup("SEEKLESS_CUT") {
            replay.cut = Some(text.parse().map_err(|error| format!("SEEKLESS_CUT={text:?}: {error}"))?);
        }
        replay.case = lookup("SEEKLESS_CASE");
        if let Some(text) = lookup("SEEKLESS_OPS") {
            replay.ops = Some(parse(&text).map_err(|error| format!("SEEKLESS_OPS: {error}"))?);
        }
        replay.soak = lookup("SEEKLESS_SOAK").map_or(Ok(Soak::without_variable(package)), |text| text.parse())?;
        Ok(replay)
    }

    /// Seeds of the random runs of a test: `usual`, or more or fewer of them as `soak` says; with a seed given, that one,
    /// or in a soak as many from it on.
    pub fn seeds(&self, usual: Range<u64>) -> Range<u64> {
        match self.seed {
            Some(seed) => seed..seed.saturating_add(self.soak.times(1)),
            None => usual.start..usual.start + self.soak.times(usual.end - usual.start),
        }
    }

    /// The command that runs one case again. In a soak, too, that is a single seed.
    pub fn command(&self, seed: u64, case: Option<&str>, cut: Option<&CutName>, ops: Option<&[Op]>) -> String {
        let mut line = format!("{}SEEKLESS_SEED={seed}", self.soak.min(Soak::USUAL).variable(&self.package));
        if let Some(case) = case {
            line += &format!(" SEEKLESS_CASE={case}");
        }
        if let Some(cut) = cut {
            line += &format!(" SEEKLESS_CUT={cut}");
        }
        if let Some(ops) = ops {
            let ops: Vec<String> = ops.iter().map(Op::to_string).collect();
            line += &format!(" SEEKLESS_OPS='{}'", ops.join("; "));
        }
        format!("{line} cargo test -p {} {} -- --exact", self.package, self.test)
    }
}

/// Names one state after one or several power cuts: for each cut, the position in the log and the number of the choice.
/// In text: `31:4`, or `31:4/7:0` for a second cut after recovery from the first.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct CutName(pub Vec<(usize, usize)>);

impl CutName {
    /// This cut, and then one more.
    pub fn then(&self, position: usize, choice: usize) -> CutName {
        let mut cuts = self.0.clone();
        cuts.push((position, choice));
        CutName(cuts)
    }
}

impl fmt::Display for CutName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cuts: Vec<String> = self.0.iter().map(|(position, choice)| format!("{position}:{choice}")).collect();
        f.write_str(&cuts.join("/"))
    }
}

impl std::str::FromStr for CutName {
    type Err = String;

    fn from_str(text: &str) -> Result<CutName, String> {
        let cut = |part: &str| {
            let (position, choice) = part.split_once(':')?;
            Some((position.parse().ok()?, choice.parse().ok()?))
        };
        let cuts: Option<Vec<_>> = text.split('/').map(cut).collect();
        cuts.map(CutName).ok_or("not a cut like 31:4 or 31:4/7:0".to_string())
    }
}

/// The shortest list that still fails, found by removing parts: first halves, then smaller parts, then single items
/// [Zeller 1999]. Calls `fails` at most `runs` times.
pub fn minimise<T: Clone>(items: &[T], runs: usize, mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut current = items.to_vec();
    let mut part = current.len().div_ceil(2);
    let mut left = runs;
    while part > 0 && !current.is_empty() {
        let mut start = 0;
        let before = current.len();
        while start < current.len() {
            if left == 0 {
                return current;
            }
            left -= 1;
            let end = (start + part).min(current.len());
            let without: Vec<T> = current[..start].iter().chain(&current[end..]).cloned().collect();
            if fails(&without) {
                current = without;
            } else {
                start = end;
            }
        }
        // Single items are tried until none of them can go.
        part = if part == 1 && current.len() < before { 1 } else { part / 2 };
    }
    current
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Printed commands can be parsed.
    #[test]
    fn commands_round_trip() {
        let cut: CutName = "31:4/7:0".parse().expect("a cut");
        let ops = parse("create /a 644; fsync /a").expect("operations");
        let command = Replay::all("seekless", "a::test").command(7, Some("flip:1"), Some(&cut), Some(&ops));
        assert_eq!(
            command,
            "SEEKLESS_SEED=7 SEEKLESS_CASE=flip:1 SEEKLESS_CUT=31:4/7:0 SEEKLESS_OPS='create /a 644; fsync /a' cargo test -p seekless a::test -- --exact"
        );
        let lookup = |name: &str| {
            let rest = command.split_once(&format!("{name}="))?.1;
            let (quote, rest) = if let Some(rest) = rest.strip_prefix('\'') { ('\'', rest) } else { (' ', rest) };
            Some(rest.split(quote).next()?.to_string())
        };
        let replay = Replay::read("seekless", "a::test", lookup).expect("what was printed");
        assert_eq!((replay.seed, replay.cut, replay.ops), (Some(7), Some(cut), Some(ops)));
        assert_eq!(replay.soak, Soak::USUAL);
        assert_eq!(replay.case.as_deref(), Some("flip:1"));
        assert!(Replay::read("p", "t", |_| Some("x".to_string())).is_err());
        let short = Replay::read("seekless-ffs", "t", |_| None).expect("nothing is chosen");
        assert_eq!((short.soak, short.runs_everything()), (Soak::SHORT, false));
        assert_eq!(short.command(7, None, None, None), "SEEKLESS_SEED=7 cargo test -p seekless-ffs t -- --exact");
        let usual = Replay { soak: Soak::USUAL, ..short };
        let command = "SEEKLESS_SOAK=1 SEEKLESS_SEED=7 cargo test -p seekless-ffs t -- --exact";
        assert_eq!(usual.command(7, None, None, None), command);
    }

    /// Aim: a soak continues where the last one ended, and a replay runs one seed. Method: the seeds that a test would
    /// run.
    #[test]
    fn seeds_go_on() {
        let seeds = |seed, soak: &str| {
            let soak = soak.parse().expect("a factor");
            Replay { seed, soak, ..Replay::default() }.seeds(100..104)
        };
        assert_eq!((seeds(None, "1"), seeds(None, "3"), seeds(None, ".5")), (100..104, 100..112, 100..102));
        assert_eq!((seeds(Some(7), "1"), seeds(Some(7), "5"), seeds(Some(7), ".1")), (7..8, 7..12, 7..8));
    }

    /// Two items that fail only together are found among many, and few runs give some progress.
    #[test]
    fn minimising() {
        let items: Vec<u32> = (0..100).collect();
        let fails = |items: &[u32]| items.contains(&13) && items.contains(&77);
        assert_eq!(minimise(&items, 1_000, fails), [13, 77]);
        let some = minimise(&items, 5, fails);
        assert!(some.len() < 100 && fails(&some));
    }
}
