//! How much of its usual work a seeded test does.

use std::fmt;

/// `SEEKLESS_SOAK`: a factor for the random runs of a test. More than 1 for a soak; less while you change code and
/// want an answer soon: then totals and cover points are not asked for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Soak {
    thousandths: u64,
}

impl Soak {
    /// What `make test` runs.
    pub const USUAL: Soak = Soak { thousandths: 1000 };

    /// What `cargo test` runs of file systems: each in less than half a minute.
    pub const SHORT: Soak = Soak { thousandths: 200 };

    /// What the tests of a crate do without the variable.
    pub fn without_variable(package: &str) -> Soak {
        match package {
            "seekless-ffs" | "seekless-logfs" => Soak::SHORT,
            _ => Soak::USUAL,
        }
    }

    /// `usual` runs, positions or rounds, multiplied and rounded up: none only where there are usually none.
    pub fn times(self, usual: u64) -> u64 {
        usual.saturating_mul(self.thousandths).div_ceil(1000)
    }

    /// The variable in front of a command that is to do as much; nothing where the command does so by itself.
    pub fn variable(self, package: &str) -> String {
        if self == Soak::without_variable(package) { String::new() } else { format!("SEEKLESS_SOAK={self} ") }
    }

    /// A test does more than usually.
    pub fn is_longer(self) -> bool {
        self > Soak::USUAL
    }

    /// A test does less than usually.
    pub fn is_shorter(self) -> bool {
        self < Soak::USUAL
    }
}

impl Default for Soak {
    fn default() -> Soak {
        Soak::USUAL
    }
}

impl std::str::FromStr for Soak {
    type Err = String;

    /// A factor from .001 to a billion, such as `20` or `.2`. 0 is 1.
    fn from_str(text: &str) -> Result<Soak, String> {
        let factor: f64 = text.parse().map_err(|_| format!("SEEKLESS_SOAK={text:?} is not a number"))?;
        match factor {
            0. => Ok(Soak::USUAL),
            0.001..=1e9 => Ok(Soak { thousandths: (factor * 1000.).round() as u64 }),
            _ => Err(format!("SEEKLESS_SOAK={text:?} is not between .001 and 1000000000")),
        }
    }
}

impl fmt::Display for Soak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.thousandths as f64 / 1000.)
    }
}

#[cfg(test)]
mod tests {
    use super::Soak;

    /// Factors are read and printed, whole and broken ones; no test does nothing, and none does what it leaves out.
    #[test]
    fn factors() {
        let soak = |text: &str| text.parse::<Soak>();
        assert_eq!(soak("0"), Ok(Soak::USUAL));
        assert_eq!(soak("20").map(|soak| (soak.times(3), soak.is_longer())), Ok((60, true)));
        assert_eq!(soak(".2").map(|soak| (soak.times(60), soak.times(3), soak.is_shorter())), Ok((12, 1, true)));
        assert_eq!([".001", "1", "20"].map(|text| soak(text).map(|soak| soak.times(0))), [Ok(0), Ok(0), Ok(0)]);
        assert_eq!(soak(".001").map(|soak| soak.times(1)), Ok(1));
        assert_eq!(soak(".25").map(|soak| soak.to_string()), Ok("0.25".to_string()));
        for bad in ["", "x", "-1", "1e12", "nan", "inf"] {
            assert!(soak(bad).is_err(), "{bad}");
        }
    }
}
