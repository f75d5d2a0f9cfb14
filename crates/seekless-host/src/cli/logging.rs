//! Where messages of a daemon go: standard error while somebody reads it, then a file or syslog.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use log::{Level, LevelFilter, Log, Metadata, Record};

use super::Failure;

enum Sink {
    StandardError,
    File(File),
    Syslog,
}

struct Logger(Mutex<Sink>);

static LOGGER: Logger = Logger(Mutex::new(Sink::StandardError));

/// Starts logging, of warnings or, with `verbosity`, of more. A file gets what is worth knowing in any case.
///
/// # Errors
/// When `file` cannot be written.
pub(super) fn start(verbosity: u8, file: Option<&Path>) -> Result<(), Failure> {
    if let Some(path) = file {
        let opened = OpenOptions::new().create(true).append(true).open(path);
        let opened =
            opened.map_err(|error| Failure::new(format!("cannot open the log {}: {error}", path.display())))?;
        *LOGGER.0.lock().unwrap_or_else(PoisonError::into_inner) = Sink::File(opened);
    }
    log::set_max_level(match verbosity + u8::from(file.is_some()) {
        0 => LevelFilter::Warn,
        1 => LevelFilter::Info,
        2 => LevelFilter::Debug,
        _ => LevelFilter::Trace,
    });
    // It fails when there is a logger already, which in this program is the same one.
    let _ = log::set_logger(&LOGGER);
    Ok(())
}

/// Nobody reads standard error any more.
pub(super) fn leave_terminal() {
    let mut sink = LOGGER.0.lock().unwrap_or_else(PoisonError::into_inner);
    if matches!(*sink, Sink::StandardError) {
        // SAFETY: the name is a string constant, which lives as long as the C library keeps it.
        unsafe { libc::openlog(c"seekless".as_ptr(), libc::LOG_PID, libc::LOG_DAEMON) };
        *sink = Sink::Syslog;
    }
}

impl Log for Logger {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let message = record.args();
        let mut sink = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A log that cannot be written leaves nobody to tell.
        match &mut *sink {
            Sink::StandardError => {
                let _ = writeln!(std::io::stderr(), "seekless: {}: {message}", word(record.level()));
            }
            Sink::File(file) => {
                let now = Timestamp::now();
                // One write, so that lines of several daemons do not mix.
                let line = format!("{now:.3} [{}] {}: {message}\n", std::process::id(), word(record.level()));
                let _ = file.write_all(line.as_bytes());
            }
            Sink::Syslog => {
                let priority = match record.level() {
                    Level::Error => libc::LOG_ERR,
                    Level::Warn => libc::LOG_WARNING,
                    Level::Info => libc::LOG_INFO,
                    Level::Debug | Level::Trace => libc::LOG_DEBUG,
                };
                let text = message.to_string().replace('\0', " ");
                if let Ok(text) = CString::new(text) {
                    // SAFETY: the format takes one string, and gets one.
                    unsafe { libc::syslog(priority, c"%s".as_ptr(), text.as_ptr()) };
                }
            }
        }
    }

    fn flush(&self) {}
}

fn word(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warn => "warning",
        Level::Info => "info",
        Level::Debug | Level::Trace => "debug",
    }
}
