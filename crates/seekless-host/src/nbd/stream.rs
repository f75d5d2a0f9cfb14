//! A connected socket, read and written without blocking the engine thread.

use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use crate::reactor::{File, Reactor};

/// Why a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Closed {
    /// The client closed the connection, between messages.
    Orderly,
    /// In the middle of one.
    Short,
    /// An invalid message, after which the start of the next one is unknown.
    Nonsense,
    Failed(Errno),
}

#[derive(Clone)]
pub(crate) struct Stream {
    reactor: Reactor,
    socket: File,
}

impl Stream {
    /// `socket` does not block.
    pub(crate) fn new(reactor: &Reactor, socket: std::os::fd::OwnedFd) -> Stream {
        Stream { reactor: reactor.clone(), socket: Arc::new(socket) }
    }

    /// Waits until there is something, and reads what there is, up to the size of `buf`.
    pub(crate) async fn some(&self, buf: &mut [u8]) -> Result<usize, Closed> {
        loop {
            match rustix::io::read(&*self.socket, &mut *buf) {
                Ok(0) => return Err(Closed::Orderly),
                Ok(count) => return Ok(count),
                Err(Errno::AGAIN) => self.reactor.readable(&self.socket).await,
                Err(Errno::INTR) => {}
                Err(error) => return Err(Closed::Failed(error)),
            }
        }
    }

    /// Fills `buf`. An end before the first byte is orderly.
    pub(super) async fn fill(&self, buf: &mut [u8]) -> Result<(), Closed> {
        let mut filled = 0;
        while filled < buf.len() {
            let more = self.some(&mut buf[filled..]).await;
            filled += more.map_err(|closed| if filled == 0 { closed } else { closed.inside() })?;
        }
        Ok(())
    }

    pub(super) async fn number<const N: usize>(&self) -> Result<[u8; N], Closed> {
        let mut bytes = [0; N];
        self.fill(&mut bytes).await?;
        Ok(bytes)
    }

    /// Reads and drops `count` bytes.
    pub(super) async fn skip(&self, count: u64) -> Result<(), Closed> {
        let mut scratch = [0; 16 << 10];
        let mut left = count;
        while left > 0 {
            let part = left.min(scratch.len() as u64) as usize;
            self.fill(&mut scratch[..part]).await.map_err(Closed::inside)?;
            left -= part as u64;
        }
        Ok(())
    }

    pub(crate) async fn send(&self, bytes: &[u8]) -> Result<(), Closed> {
        let mut sent = 0;
        while sent < bytes.len() {
            // A closed connection is an error of this call, not a signal for the process.
            match rustix::net::send(&*self.socket, &bytes[sent..], SendFlags::NOSIGNAL) {
                Ok(more) => sent += more,
                Err(Errno::AGAIN) => self.reactor.writable(&self.socket).await,
                Err(Errno::INTR) => {}
                Err(error) => return Err(Closed::Failed(error)),
            }
        }
        Ok(())
    }

    /// True when the other side has closed the connection, or this one has. What it sent before can still be read.
    pub(super) fn is_closed(&self) -> bool {
        let ends = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        let mut fds = [PollFd::new(&*self.socket, PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // A call that fails says nothing about the connection; reading it will.
        rustix::event::poll(&mut fds, Some(&now)).is_ok_and(|count| count > 0) && fds[0].revents().intersects(ends)
    }

    /// The last `N` bytes of what has arrived, which stays to be read; `None` when that is less, or cannot be read.
    pub(super) fn last<const N: usize>(&self) -> Option<[u8; N]> {
        let count = rustix::io::ioctl_fionread(&*self.socket).ok()?;
        let mut bytes = vec![0; usize::try_from(count).ok()?];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let (_, count) = rustix::net::recv(&*self.socket, &mut bytes[..], flags).ok()?;
        bytes[..count.min(bytes.len())].last_chunk().copied()
    }

    /// Ends the connection in both directions; pending reads and writes fail.
    pub(crate) fn shut(&self) {
        // It may be gone already.
        let _ = rustix::net::shutdown(&*self.socket, rustix::net::Shutdown::Both);
    }
}

impl Closed {
    /// The same inside a message, where an end is never orderly.
    pub(super) fn inside(self) -> Closed {
        if self == Closed::Orderly { Closed::Short } else { self }
    }
}
