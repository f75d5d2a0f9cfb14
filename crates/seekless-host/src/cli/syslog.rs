//! Messages for the log daemon, as syslog(3) sends them.
//!
//! That function waits without end for a log daemon that does not read. One whose files are on a mount of ours waits for us: each
//! would wait for the other. So a message waits for a moment only, and is then lost, and counted.

use std::ffi::CString;
use std::io::{self, ErrorKind};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::Duration;

/// How long a message waits for a log daemon that has much to do. After one that was lost, none waits until one gets through.
const MOMENT: Duration = Duration::from_millis(100);

pub(super) struct Syslog {
    place: PathBuf,
    socket: Option<UnixDatagram>,
    /// Messages since the last one that got through.
    lost: u64,
}

impl Default for Syslog {
    fn default() -> Syslog {
        Syslog::at("/dev/log")
    }
}

impl Syslog {
    fn at(place: impl Into<PathBuf>) -> Syslog {
        Syslog { place: place.into(), socket: None, lost: 0 }
    }

    /// Sends a message of this priority, one of syslog(3).
    pub(super) fn write(&mut self, priority: libc::c_int, text: &str) {
        let notice = format!("messages before this one that the log daemon did not accept: {}", self.lost);
        let sent = match self.lost {
            0 => self.send(priority, text),
            _ => self.send(libc::LOG_WARNING, &notice).and_then(|()| {
                self.lost = 0;
                self.send(priority, text)
            }),
        };
        if let Err(error) = sent {
            // A log daemon of an old kind, with a socket that is a stream.
            let is_stream = error.raw_os_error() == Some(libc::EPROTOTYPE);
            if !is_stream || !write_by_library(priority, text) {
                self.lost += 1;
            }
        }
    }

    fn send(&mut self, priority: libc::c_int, text: &str) -> io::Result<()> {
        let line =
            format!("<{}>{} seekless[{}]: {text}", libc::LOG_DAEMON | priority, local_time(), std::process::id());
        let sent = self.send_line(&line);
        // A log daemon that has begun again has a new socket.
        match sent {
            Err(error) if error.kind() != ErrorKind::WouldBlock && self.socket.take().is_some() => {
                self.send_line(&line)
            }
            sent => sent,
        }
    }

    fn send_line(&mut self, line: &str) -> io::Result<()> {
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => {
                let socket = UnixDatagram::unbound()?;
                socket.connect(&self.place)?;
                socket.set_write_timeout(Some(MOMENT))?;
                socket
            }
        };
        let socket = self.socket.insert(socket);
        socket.set_nonblocking(self.lost > 0)?;
        loop {
            match socket.send(line.as_bytes()) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                sent => return sent.map(drop),
            }
        }
    }
}

fn write_by_library(priority: libc::c_int, text: &str) -> bool {
    let Ok(text) = CString::new(text) else { return false };
    // SAFETY: the name is a string constant, which lives as long as the C library keeps it; the format takes one string, and gets one.
    unsafe {
        libc::openlog(c"seekless".as_ptr(), libc::LOG_PID, libc::LOG_DAEMON);
        libc::syslog(priority, c"%s".as_ptr(), text.as_ptr());
    }
    true
}

/// As in `Nov 27 13:18:02`.
fn local_time() -> String {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    // SAFETY: the structure consists of numbers and a pointer, for which zero is a value; both calls write what they are given.
    let now = unsafe {
        let mut now: libc::tm = std::mem::zeroed();
        let seconds = libc::time(std::ptr::null_mut());
        libc::localtime_r(&raw const seconds, &raw mut now);
        now
    };
    let month = usize::try_from(now.tm_mon).ok().and_then(|month| MONTHS.get(month)).unwrap_or(&"Jan");
    format!("{month} {:2} {:02}:{:02}:{:02}", now.tm_mday, now.tm_hour, now.tm_min, now.tm_sec)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// A log daemon that does not read is not waited for; what it has missed is counted. One that has begun again gets messages again.
    #[test]
    fn a_log_daemon_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("log");
        let daemon = UnixDatagram::bind(&place).unwrap();
        daemon.set_nonblocking(true).unwrap();
        let mut syslog = Syslog::at(&place);
        let begun = Instant::now();
        for number in 0..3000 {
            syslog.write(libc::LOG_INFO, &number.to_string());
        }
        assert!(begun.elapsed() < Duration::from_secs(20));
        let heard = |daemon: &UnixDatagram| {
            let mut line = [0; 200];
            let length = daemon.recv(&mut line).ok()?;
            let line = String::from_utf8_lossy(&line[..length]).into_owned();
            let (head, text) = line.split_once(": ").unwrap();
            assert!(head.ends_with(&format!(" seekless[{}]", std::process::id())), "{line}");
            // Facility 3, and a month, a day and a time of 15 characters.
            assert!(head.starts_with("<30>") || head.starts_with("<28>"), "{line}");
            assert_eq!(head.find(" seekless"), Some(4 + 15), "{line}");
            Some(text.to_owned())
        };
        let mut count = 0;
        while let Some(text) = heard(&daemon) {
            assert_eq!(text, count.to_string());
            count += 1;
        }
        assert!(count > 0 && count < 3000, "{count}");
        syslog.write(libc::LOG_INFO, "next");
        let notice = format!("messages before this one that the log daemon did not accept: {}", 3000 - count);
        assert_eq!((heard(&daemon), heard(&daemon)), (Some(notice), Some("next".to_owned())));

        drop(daemon);
        std::fs::remove_file(&place).unwrap();
        syslog.write(libc::LOG_INFO, "lost");
        let daemon = UnixDatagram::bind(&place).unwrap();
        daemon.set_nonblocking(true).unwrap();
        syslog.write(libc::LOG_INFO, "last");
        assert!(heard(&daemon).unwrap().ends_with("did not accept: 1"));
        assert_eq!(heard(&daemon).as_deref(), Some("last"));
    }
}
