//! The last word of a daemon: whether everything was durable when it closed.
//!
//! A process that unmounts is not the daemon's parent, and learns its exit status only from Linux 6.15 on, and only where
//! the parent collects it. So it connects to a socket of the daemon's before it unmounts, and reads from it when the daemon
//! has ended. The name is in the abstract name space: there is no file that could be left behind.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

/// All is well.
const WELL: &[u8] = b"durable";

/// Connections that wait: processes that unmount one mount at the same time.
const BACKLOG: i32 = 16;

/// Longest text of what went wrong.
const TEXT_BYTES_MAX: usize = 1000;

fn address(identity: &str) -> Option<SocketAddrUnix> {
    SocketAddrUnix::new_abstract_name(format!("seekless {identity}").as_bytes()).ok()
}

/// The daemon's side.
#[derive(Default)]
pub(super) struct Farewell(Option<OwnedFd>);

impl Farewell {
    /// Listens as the daemon with this identity. Where that cannot be, others are told nothing.
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

    /// Tells all that wait how it ended, in the last moment before it does.
    pub(super) fn say(self, problem: Option<String>) {
        let Some(socket) = self.0 else { return };
        let text = problem.map(|problem| problem.chars().take(TEXT_BYTES_MAX / 4).collect::<String>());
        let word = text.as_ref().map_or(WELL, |text| text.as_bytes());
        while let Ok(waiting) = rustix::net::accept_with(&socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            // One that does not wait any more needs no word.
            let _ = rustix::net::send(&waiting, word, SendFlags::NOSIGNAL);
        }
    }
}

/// The side of a process that waits for the end.
pub(super) struct Waiting(OwnedFd);

impl Waiting {
    /// Waits for the daemon with this identity, which is process `pid`; `None` where it cannot be heard.
    pub(super) fn join(identity: &str, pid: u32) -> Option<Waiting> {
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).ok()?;
        rustix::net::connect(&socket, &address(identity)?).ok()?;
        // The name could be taken by anybody.
        (listener(&socket)? == pid).then_some(Waiting(socket))
    }

    /// What the daemon, which has ended, said: `None` for nothing at all, `Err` with what went wrong.
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

    /// All that wait hear how it ended; of a daemon that says nothing, nothing is heard; only the daemon is believed.
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
        let farewell = Farewell::listen(&identity(3));
        let waiting = Waiting::join(&identity(3), me).unwrap();
        drop(farewell);
        assert_eq!(waiting.hear(), None);
        assert!(Waiting::join(&identity(3), me).is_none());
    }
}
