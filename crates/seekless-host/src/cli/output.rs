//! Standard output and standard error.

use std::fs::File;
use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use seekless_lab::output as files;

use super::Failure;

/// Writes `text` to standard output. A reader that stops early, such as `head`, is not an error.
pub(super) fn print(text: &str) -> Result<(), Failure> {
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
    print(&format!("{value:#}"))
}

/// Writes an error message to standard error.
pub(super) fn complain(text: &str) {
    // If standard error is gone too, the exit code must suffice.
    let _ = writeln!(io::stderr().lock(), "seekless: {text}");
}

/// Writes a note to standard error.
pub(super) fn note(text: &str) {
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
        false => Err(format!(", and is no picture of this program{}", files::FORCE)),
    }
}

/// A progress bar of `total` steps, shown only on a terminal.
pub(super) fn progress(total: u64) -> ProgressBar {
    let target = match io::stderr().is_terminal() {
        true => ProgressDrawTarget::stderr_with_hz(10),
        false => ProgressDrawTarget::hidden(),
    };
    let bar = ProgressBar::with_draw_target(Some(total), target);
    match ProgressStyle::with_template("{msg:28!} {wide_bar} {pos}/{len} {per_sec:>10} {eta:>4}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar, // The template is ours and tested; otherwise the default will do.
    }
}

/// A progress bar of `total` points of a sweep, with the current one, shown only on a terminal.
pub(super) fn points(total: u64) -> ProgressBar {
    let bar = progress(total);
    match ProgressStyle::with_template(POINTS) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar, // As above.
    }
}

const POINTS: &str = "{pos}/{len} points {wide_bar} {elapsed:>4} eta {eta:>4}  {msg:40!}";

/// A counter of steps without a known total, shown only on a terminal.
pub(super) fn counter(what: &'static str) -> ProgressBar {
    let target = match io::stderr().is_terminal() {
        true => ProgressDrawTarget::stderr_with_hz(10),
        false => ProgressDrawTarget::hidden(),
    };
    let bar = ProgressBar::with_draw_target(None, target).with_message(what);
    match ProgressStyle::with_template(COUNTER) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar, // As above.
    }
}

const COUNTER: &str = "{msg} {spinner} {human_pos} requests {per_sec:>10} {elapsed:>4}";

/// A progress bar of `total` bytes that are read, or a counter of them without a total; shown only on a terminal.
pub(super) fn bytes(total: Option<u64>, what: &'static str) -> ProgressBar {
    let bar = match total {
        Some(total) => progress(total).with_message(what),
        None => counter(what),
    };
    match ProgressStyle::with_template(if total.is_some() { BYTES } else { BYTES_WITHOUT_TOTAL }) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar, // As above.
    }
}

const BYTES: &str = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec:>12} {eta:>4}";
const BYTES_WITHOUT_TOTAL: &str = "{msg} {spinner} {bytes} {bytes_per_sec:>12} {elapsed:>4}";

/// A counter of files without a known total, with the name of the current one, shown only on a terminal.
pub(super) fn files() -> ProgressBar {
    let bar = counter("");
    match ProgressStyle::with_template(FILES) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar, // As above.
    }
}

const FILES: &str = "{spinner} {human_pos} files {elapsed:>4} {wide_msg}";

#[cfg(test)]
mod tests {
    /// The bar's template is valid.
    #[test]
    fn the_progress_template_is_sound() {
        assert!(super::ProgressStyle::with_template("{msg:28!} {wide_bar} {pos}/{len} {per_sec:>10} {eta:>4}").is_ok());
        assert!(super::ProgressStyle::with_template(super::COUNTER).is_ok());
        assert!(super::ProgressStyle::with_template(super::FILES).is_ok());
        assert!(super::ProgressStyle::with_template(super::POINTS).is_ok());
        assert!(super::ProgressStyle::with_template(super::BYTES).is_ok());
        assert!(super::ProgressStyle::with_template(super::BYTES_WITHOUT_TOTAL).is_ok());
    }
}
