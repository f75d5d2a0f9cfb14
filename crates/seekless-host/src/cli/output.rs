//! Standard output and standard error.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use seekless_lab::output as files;

use super::Failure;
use super::fit::fit;

/// Set by `--quiet`: no progress, and no notes but warnings.
static IS_QUIET: AtomicBool = AtomicBool::new(false);

pub(super) fn set_quiet() {
    IS_QUIET.store(true, Ordering::Relaxed);
}

pub(super) fn is_quiet() -> bool {
    IS_QUIET.load(Ordering::Relaxed)
}

/// Columns of standard output: what `COLUMNS` says, or what its terminal has; elsewhere lines have any length.
fn width() -> Option<usize> {
    /// Narrower than this, nothing can be laid out; and no terminal says that it has no columns.
    const WIDTH_MIN: usize = 20;
    let of_environment = || std::env::var("COLUMNS").ok()?.parse().ok();
    let of_terminal = || rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok().map(|size| size.ws_col.into());
    of_environment().or_else(of_terminal).filter(|&width: &usize| width > 0).map(|width| width.max(WIDTH_MIN))
}

/// Writes `text` for people to standard output, laid out for its width.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    match width() {
        Some(width) => print_raw(&fit(text, width)),
        None => print_raw(text),
    }
}

/// Writes `text` to standard output as it is. A reader that stops early, such as `head`, is not an error.
pub(super) fn print_raw(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| match text.ends_with('\n') {
        true => out.flush(),
        false => out.write_all(b"\n").and_then(|()| out.flush()),
    });
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|error| Failure::new(format!("cannot write the result: {error}"))),
    }
}

/// Writes a JSON value, for programs.
pub(super) fn print_json(value: &serde_json::Value) -> Result<(), Failure> {
    print_raw(&format!("{value:#}"))
}

/// Writes an error message to standard error.
pub(super) fn complain(text: &str) {
    // If standard error is gone too, the exit code must suffice.
    let _ = writeln!(io::stderr().lock(), "seekless: {text}");
}

/// Writes a note to standard error. With `--quiet`, only a warning is written.
pub(super) fn note(text: &str) {
    if !is_quiet() || text.trim_start().starts_with("warning") {
        warn(text);
    }
}

/// Writes to standard error what has to be known.
pub(super) fn warn(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// The end of every picture that this program writes: by this, a later run knows that it may replace the file.
const SIGNATURE: &str = "<!-- made by seekless -->\n";

/// A picture as SVG, with its signature.
pub(super) fn signed(svg: &str) -> String {
    format!("{}\n{SIGNATURE}", svg.trim_end())
}

/// Accepts a picture made by this program.
pub(super) fn is_picture(file: &File) -> Result<(), String> {
    // Larger than any of our pictures; a truncated one has no signature.
    const BYTES_MAX: u64 = 64 << 20;
    match files::beginning(file, BYTES_MAX)?.ends_with(SIGNATURE.as_bytes()) {
        true => Ok(()),
        false => Err(format!(", and is not a picture made by this program{}", files::FORCE)),
    }
}

/// A progress bar of `total` of what `unit` names, shown only on a terminal.
pub(super) fn progress(total: u64, unit: &'static str) -> ProgressBar {
    bar(Some(total), STEPS).with_prefix(unit)
}

/// A progress bar of the phases of a benchmark: what is counted in each, and how fast it is in the time of its clock, is shown
/// by [`Step::rate`](super::caller::Step::rate).
pub(super) fn phases() -> ProgressBar {
    bar(Some(1), PHASES)
}

/// A progress bar of `total` points of a sweep, with the current one, shown only on a terminal.
pub(super) fn points(total: u64) -> ProgressBar {
    bar(Some(total), POINTS)
}

/// A counter of requests without a known total, shown only on a terminal.
pub(super) fn counter(what: &'static str) -> ProgressBar {
    bar(None, COUNTER).with_message(what)
}

/// A progress bar of `total` bytes that are read, or a counter of them without a total; shown only on a terminal.
pub(super) fn bytes(total: Option<u64>, what: &'static str) -> ProgressBar {
    bar(total, if total.is_some() { BYTES } else { BYTES_WITHOUT_TOTAL }).with_message(what)
}

/// A counter of files without a known total, with the name of the current one, shown only on a terminal.
pub(super) fn files() -> ProgressBar {
    bar(None, FILES)
}

const STEPS: &str = "{msg:28!} {wide_bar} {human_pos}/{human_len} {prefix} {rate:>8} {eta:>4}";
const PHASES: &str = "{msg:20!} {wide_bar} {prefix} {eta:>4}";
const POINTS: &str = "{pos}/{len} points {wide_bar} {elapsed:>4} eta {eta:>4}  {msg:40!}";
const COUNTER: &str = "{msg} {spinner} {human_pos} requests {rate:>8} {elapsed:>4}";
const BYTES: &str = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec:>12} {eta:>4}";
const BYTES_WITHOUT_TOTAL: &str = "{msg} {spinner} {bytes} {bytes_per_sec:>12} {elapsed:>4}";
const FILES: &str = "{spinner} {human_pos} files {elapsed:>4} {wide_msg}";

fn bar(total: Option<u64>, template: &'static str) -> ProgressBar {
    let target = match io::stderr().is_terminal() && !is_quiet() {
        true => ProgressDrawTarget::stderr_with_hz(10),
        false => ProgressDrawTarget::hidden(),
    };
    let bar = ProgressBar::with_draw_target(total, target);
    // indicatif's own rate has four digits behind the point.
    let rate = |state: &ProgressState, text: &mut dyn std::fmt::Write| {
        let _ = write!(text, "{}/s", rounded(state.per_sec()));
    };
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style.with_key("rate", rate)),
        Err(_) => bar, // The templates are ours and tested; otherwise the default will do.
    }
}

/// Three digits and no more: `0.42`, `7.3`, `810`, `62k`, `1.3M`.
pub(super) fn rounded(number: f64) -> String {
    match number {
        number if !number.is_finite() => "-".to_owned(),
        number if number >= 999_500.0 => format!("{:.1}M", number / 1e6),
        number if number >= 9_999.5 => format!("{:.0}k", number / 1e3),
        number if number >= 9.95 => format!("{number:.0}"),
        number if number >= 0.995 => format!("{number:.1}"),
        number => format!("{number:.2}"),
    }
}

#[cfg(test)]
mod tests {
    /// The bars' templates are valid.
    #[test]
    fn the_progress_templates_are_sound() {
        for template in [
            super::STEPS,
            super::PHASES,
            super::POINTS,
            super::COUNTER,
            super::BYTES,
            super::BYTES_WITHOUT_TOTAL,
            super::FILES,
        ] {
            assert!(super::ProgressStyle::with_template(template).is_ok(), "{template}");
        }
    }

    #[test]
    fn rates_are_rounded() {
        let numbers =
            [0.0, 0.421, 0.996, 7.34, 9.96, 810.4, 9_999.0, 9_999.6, 62_123.4, 999_499.0, 1_270_000.0, f64::NAN];
        let texts = ["0.00", "0.42", "1.0", "7.3", "10", "810", "9999", "10k", "62k", "999k", "1.3M", "-"];
        assert_eq!(numbers.map(super::rounded), texts);
    }
}
