//! Where a daemon's messages go: to standard error while a terminal is attached, then to a file or syslog.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use log::{Level, LevelFilter, Log, Metadata, Record};
use rustix::fs::OFlags;

use super::syslog::Syslog;
use super::{Failure, moment};

enum Sink {
    StandardError,
    File(File),
    Syslog(Syslog),
}

/// How a line looks. Syslog has its own way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub(super) enum Format {
    /// A time, a level and the message
    #[default]
    Text,
    /// An object with `time`, `level`, `pid` and `message`
    Json,
}

struct Logger(Mutex<(Sink, Format)>);

static LOGGER: Logger = Logger(Mutex::new((Sink::StandardError, Format::Text)));

/// Options of commands that log.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct LogOptions {
    /// Append messages of the daemon to this file; otherwise they go to syslog, in the foreground to standard error
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,

    /// How the lines of a log file or of standard error look
    #[arg(long, value_enum, default_value_t)]
    log_format: Format,

    /// Log more; twice, still more
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

/// Starts logging, of warnings or, with `verbosity`, of more. A log file always gets informational messages.
///
/// # Errors
/// When the log file cannot be written.
pub(super) fn start(args: &LogOptions) -> Result<(), Failure> {
    let (verbosity, file) = (args.verbose, args.log_file.as_deref());
    LOGGER.0.lock().unwrap_or_else(PoisonError::into_inner).1 = args.log_format;
    if let Some(path) = file {
        let failed = |error| Failure::new(format!("cannot open the log {}: {error}", path.display()));
        // Without NONBLOCK, opening a pipe without a reader would block.
        let mut options = OpenOptions::new();
        options.create(true).append(true).read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
        let opened = match options.open(path) {
            // A log file may be append-only for this user.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => options.read(false).open(path),
            opened => opened,
        };
        let opened = opened.map_err(failed)?;
        check(&opened, path)?;
        // A terminal is written to as other programs do.
        let flags = rustix::fs::fcntl_getfl(&opened).map_err(|error| failed(error.into()))?;
        rustix::fs::fcntl_setfl(&opened, flags - OFlags::NONBLOCK).map_err(|error| failed(error.into()))?;
        LOGGER.0.lock().unwrap_or_else(PoisonError::into_inner).0 = Sink::File(opened);
    }
    log::set_max_level(match verbosity + u8::from(file.is_some()) {
        0 => LevelFilter::Warn,
        1 => LevelFilter::Info,
        2 => LevelFilter::Debug,
        _ => LevelFilter::Trace,
    });
    // It fails when there already is a logger, which in this program is the same one.
    let _ = log::set_logger(&LOGGER);
    Ok(())
}

/// Refuses a file that is not a log, before a line is appended to it: for example a disk image whose name was given by
/// mistake.
fn check(file: &File, path: &Path) -> Result<(), Failure> {
    const LOOKED_AT: usize = 4096;
    let refused = |what: &str| {
        let problem = format!("{} is {what}, and a log would be appended to it", path.display());
        Err(Failure::new(problem).hint("name another file, or a new one"))
    };
    let kind = file.metadata().map_err(|error| Failure::new(format!("{}: {error}", path.display())))?.file_type();
    if kind.is_char_device() {
        return Ok(());
    }
    if !kind.is_file() {
        return refused("not a regular file");
    }
    let mut beginning = vec![0; LOOKED_AT];
    // A file that cannot be read cannot be checked.
    let count = file.read_at(&mut beginning, 0).unwrap_or(0);
    match is_log(&beginning[..count]) {
        true => Ok(()),
        false => refused("no text"),
    }
}

/// True for the beginning of a text. Behind its first line there may be zeros: a power cut can leave a file with its new length and
/// without what was appended last, and later daemons append to that.
fn is_log(beginning: &[u8]) -> bool {
    let first = beginning.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let is_line = !first.is_empty() && std::str::from_utf8(first).is_ok_and(|line| !line.contains(char::is_control));
    is_line || !beginning.contains(&0)
}

/// Standard error has no reader any more.
pub(super) fn leave_terminal() {
    let mut logger = LOGGER.0.lock().unwrap_or_else(PoisonError::into_inner);
    if matches!(logger.0, Sink::StandardError) {
        logger.0 = Sink::Syslog(Syslog::default());
    }
}

impl Log for Logger {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let message = record.args();
        let mut logger = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (sink, format) = &mut *logger;
        // If the log cannot be written, the message is lost.
        match (sink, format) {
            (Sink::StandardError, Format::Text) => {
                let _ = writeln!(std::io::stderr(), "seekless: {}: {message}", word(record.level()));
            }
            (Sink::StandardError, Format::Json) => {
                let _ = std::io::stderr().write_all(json_line(record).as_bytes());
            }
            // One write, so that lines of several daemons do not mix.
            (Sink::File(file), Format::Text) => {
                let now = moment::now();
                let line = format!("{now} [{}] {}: {message}\n", std::process::id(), word(record.level()));
                let _ = file.write_all(line.as_bytes());
            }
            (Sink::File(file), Format::Json) => {
                let _ = file.write_all(json_line(record).as_bytes());
            }
            (Sink::Syslog(syslog), _) => {
                let priority = match record.level() {
                    Level::Error => libc::LOG_ERR,
                    Level::Warn => libc::LOG_WARNING,
                    Level::Info => libc::LOG_INFO,
                    Level::Debug | Level::Trace => libc::LOG_DEBUG,
                };
                syslog.write(priority, &message.to_string().replace('\0', " "));
            }
        }
    }

    fn flush(&self) {}
}

fn json_line(record: &Record<'_>) -> String {
    let line = serde_json::json!({
        "time": moment::now(),
        "level": word(record.level()),
        "pid": std::process::id(),
        "message": record.args().to_string(),
    });
    format!("{line}\n")
}

fn word(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warn => "warning",
        Level::Info => "info",
        Level::Debug | Level::Trace => "debug",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A power cut may leave zeros at the end of a log, which later lines follow; it is still a log. An image is none.
    #[test]
    fn a_log_with_zeros_in_it_is_a_log() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let is_accepted = |pieces: &[&[u8]]| {
            std::fs::write(&path, pieces.concat()).unwrap();
            check(&File::open(&path).unwrap(), &path).is_ok()
        };
        let (line, zeros) = ("2026-11-27T09:36:00.000Z [12] info: mounted on /srv/b\u{fc}cher\n".as_bytes(), [0; 300]);
        assert!(is_accepted(&[line, &zeros]) && is_accepted(&[line, &zeros, line, line]));
        assert!(is_accepted(&[]) && is_accepted(&[line, line]) && is_accepted(&["\u{fc}".repeat(5000).as_bytes()]));
        for image in [&b""[..], b"LUKS\xba\xbe", b"text", b"\n", b"\x7fELF\n", b"\x89PNG\r\n"] {
            assert!(!is_accepted(&[image, &zeros, line]), "{image:?}");
        }
    }
}
