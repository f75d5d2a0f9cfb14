//! The final report of a daemon: whether everything was durable when it closed.
//!
//! A process that unmounts is not the daemon's parent, and learns its exit status only on Linux 6.15 or later, and only
//! if the parent collects it. So it connects to a socket of the daemon before it unmounts, and reads from it when the
//! daemon has ended. The name is in the abstract name space, so no file is left behind.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

/// All is well.
const WELL: &[u8] = b"durable";

/// Limit of waiting connections, the most that Linux gives. Those of processes that have given up count as well, because the daemon looks
/// at them when it ends: a mount that is busy may be tried again and again.
const BACKLOG: i32 = 4096;

/// Longest error text.
const TEXT_BYTES_MAX: usize = 1000;

fn address(identity: &str) -> Option<SocketAddrUnix> {
    SocketAddrUnix::new_abstract_name(format!("seekless {identity}").as_bytes()).ok()
}

/// The daemon's side.
#[derive(Default)]
pub(super) struct Farewell(Option<OwnedFd>);

impl Farewell {
    /// Listens as the daemon with this identity. If that fails, waiting processes get no report.
    pub(super) fn listen(identity: &str) -> Farewell {
        let listen = || {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
            rustix::net::bind(&socket, &address(identity)?).ok()?;
            rustix::net::listen(&socket, BACKLOG).ok()?;
            Some(socket)
        };
        Farewell(listen())
    }

    /// Reports the outcome to all waiting processes, just before the daemon ends.
    pub(super) fn say(self, problem: Option<String>) {
        let Some(socket) = self.0 else { return };
        let text = problem.map(|problem| problem.chars().take(TEXT_BYTES_MAX / 4).collect::<String>());
        let word = text.as_ref().map_or(WELL, |text| text.as_bytes());
        while let Ok(waiting) = rustix::net::accept_with(&socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            // A process that no longer waits needs no report.
            let _ = rustix::net::send(&waiting, word, SendFlags::NOSIGNAL);
        }
    }
}

/// The side of a process that waits for the end.
pub(super) struct Waiting(OwnedFd);

impl Waiting {
    /// Connects to the daemon with this identity, which is process `pid`; `None` if that fails, as when the daemon has too many
    /// connections: it may wait for this process, which must not wait for it.
    pub(super) fn join(identity: &str, pid: u32) -> Option<Waiting> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
        rustix::net::connect(&socket, &address(identity)?).ok()?;
        // Any process could have taken the name.
        (listener(&socket)? == pid).then_some(Waiting(socket))
    }

    /// The report of the ended daemon: `None` if there is none, `Err` with the error.
    pub(super) fn hear(&self) -> Option<Result<(), String>> {
        let mut word = [0; TEXT_BYTES_MAX];
        let (length, _) = rustix::net::recv(&self.0, &mut word, RecvFlags::DONTWAIT | RecvFlags::WAITALL).ok()?;
        match &word[..length] {
            b"" => None,
            word if word == WELL => Some(Ok(())),
            problem => Some(Err(String::from_utf8_lossy(problem).into_owned())),
        }
    }
}

/// The process that listens at the other end.
fn listener(socket: &OwnedFd) -> Option<u32> {
    let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the call writes at most `length` bytes, which the structure has.
    let asked = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut who).cast(),
            &raw mut length,
        )
    };
    (asked == 0).then_some(who.pid).and_then(|pid| u32::try_from(pid).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All waiting processes get the report; from a daemon without a report they get none; only the daemon itself is
    /// trusted.
    #[test]
    fn the_last_word_is_heard() {
        let identity = |number: u32| format!("test {} {number}", std::process::id());
        let me = std::process::id();
        for (number, problem) in [(1, None), (2, Some("the disk is broken".to_owned()))] {
            let farewell = Farewell::listen(&identity(number));
            let waiting: Vec<Waiting> = (0..3).map(|_| Waiting::join(&identity(number), me).unwrap()).collect();
            assert!(Waiting::join(&identity(number), me + 1).is_none());
            farewell.say(problem.clone());
            for waiting in waiting {
                assert_eq!(waiting.hear(), Some(problem.clone().map_or(Ok(()), Err)));
            }
        }
        // Many that have given up make no other wait.
        let farewell = Farewell::listen(&identity(4));
        let joined = (0..5000).take_while(|_| Waiting::join(&identity(4), me).is_some()).count();
        assert!(joined > 100, "{joined}");
        farewell.say(None);
        let farewell = Farewell::listen(&identity(3));
        let waiting = Waiting::join(&identity(3), me).unwrap();
        drop(farewell);
        assert_eq!(waiting.hear(), None);
        assert!(Waiting::join(&identity(3), me).is_none());
    }
}
