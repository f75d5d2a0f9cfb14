//! Standard output and standard error.

use std::fs::File;
use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use seekless_lab::output as files;

use super::Failure;

/// Writes `text` to standard output. Somebody who has stopped reading, as `head` does, is no error.
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

/// Writes what went wrong to standard error.
pub(super) fn complain(text: &str) {
    // Where standard error is gone, too, the exit code has to do.
    let _ = writeln!(io::stderr().lock(), "seekless: {text}");
}

/// Writes a note to standard error.
pub(super) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// What a picture of ours ends with: by this the next one knows that it may take its place.
const SIGNATURE: &str = "<!-- made by seekless -->\n";

/// A picture as SVG with its signature.
pub(super) fn signed(svg: &str) -> String {
    format!("{}\n{SIGNATURE}", svg.trim_end())
}

/// Accepts a picture that this program has made.
pub(super) fn is_picture(file: &File) -> Result<(), String> {
    // As large as no picture of ours is; what is cut off has no signature.
    const BYTES_MAX: u64 = 64 << 20;
    match files::beginning(file, BYTES_MAX)?.ends_with(SIGNATURE.as_bytes()) {
        true => Ok(()),
        false => Err(format!(", and is no picture of this program{}", files::FORCE)),
    }
}

/// A progress bar of `total` steps, which shows on a terminal only.
pub(super) fn progress(total: u64) -> ProgressBar {
    let target = match io::stderr().is_terminal() {
        true => ProgressDrawTarget::stderr_with_hz(10),
        false => ProgressDrawTarget::hidden(),
    };
    let bar = ProgressBar::with_draw_target(Some(total), target);
    match ProgressStyle::with_template("{msg:28!} {wide_bar} {pos}/{len} {per_sec:>10} {eta:>4}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar, // The template is ours and tested; the default does as well.
    }
}

/// A progress bar of `total` points of a sweep, with what is under way, which shows on a terminal only.
pub(super) fn points(total: u64) -> ProgressBar {
    let bar = progress(total);
    match ProgressStyle::with_template(POINTS) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar, // As above.
    }
}

const POINTS: &str = "{pos}/{len} points {wide_bar} {elapsed:>4} eta {eta:>4}  {msg:40!}";

/// A count of steps of which nobody knows how many there are, which shows on a terminal only.
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

/// A count of files of which nobody knows how many there are, with the name of one of them, which shows on a terminal
/// only.
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
    /// The bar's template is understood.
    #[test]
    fn the_progress_template_is_sound() {
        assert!(super::ProgressStyle::with_template("{msg:28!} {wide_bar} {pos}/{len} {per_sec:>10} {eta:>4}").is_ok());
        assert!(super::ProgressStyle::with_template(super::COUNTER).is_ok());
        assert!(super::ProgressStyle::with_template(super::FILES).is_ok());
        assert!(super::ProgressStyle::with_template(super::POINTS).is_ok());
    }
}
