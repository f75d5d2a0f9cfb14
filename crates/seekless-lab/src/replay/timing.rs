//! When requests are made.

use std::fmt;
use std::str::FromStr;

/// See the [module](super).
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Timing {
    /// This many requests are under way at any time.
    Window(u32),
    /// One after another.
    Closed,
    /// As recorded, accelerated by `speed`.
    Open { speed: f64 },
    /// With the recorded pauses between dependent requests.
    Think,
}

/// Limit of requests under way, in any timing. Models search their queues, which takes long when these are.
pub(super) const WINDOW_MAX: u32 = 1 << 14;

impl Timing {
    /// True when the duration of the replay measures the speed of the storage. Otherwise the trace determines the
    /// duration, more or less, and response times differ.
    pub fn is_as_fast_as_possible(self) -> bool {
        matches!(self, Timing::Window(_) | Timing::Closed)
    }
}

impl FromStr for Timing {
    type Err = String;

    fn from_str(text: &str) -> Result<Timing, String> {
        let (name, argument) = match text.split_once(':') {
            Some((name, argument)) => (name, Some(argument)),
            None => (text, None),
        };
        match (name, argument) {
            ("window", Some(count)) => match count.parse() {
                Ok(count @ 1..=WINDOW_MAX) => Ok(Timing::Window(count)),
                _ => Err(format!("`{count}` is not a window: it has 1 to {WINDOW_MAX} requests, for example window:8")),
            },
            ("window", None) => Err("a window needs its size: window:8".into()),
            ("closed", None) => Ok(Timing::Closed),
            ("open", None) => Ok(Timing::Open { speed: 1.0 }),
            ("open", Some(speed)) => match speed.trim_end_matches('x').parse() {
                Ok(speed) if (1e-3..=1e6).contains(&speed) => Ok(Timing::Open { speed }),
                _ => Err(format!(
                    "`{speed}` is not a speed: it is from 0.001 to 1000000 times the recorded one, for example open:2"
                )),
            },
            ("think", None) => Ok(Timing::Think),
            _ => Err(format!("there is no timing `{text}`; there are window:N, closed, open, open:SPEED and think")),
        }
    }
}

impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Timing::Window(count) => write!(f, "window:{count}"),
            Timing::Closed => f.write_str("closed"),
            Timing::Open { speed: 1.0 } => f.write_str("open"),
            Timing::Open { speed } => write!(f, "open:{speed}"),
            Timing::Think => f.write_str("think"),
        }
    }
}
