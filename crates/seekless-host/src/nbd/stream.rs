//! A connected socket, read and written without blocking the engine thread.

use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::reactor::{File, Reactor};

/// Why a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Closed {
    /// The client closed the connection, between messages.
    Orderly,
    /// In the middle of one.
    Short,
    /// An invalid message, after which the start of the next one is unknown.
    Nonsense,
    Failed(Errno),
}

#[derive(Clone)]
pub(super) struct Stream {
    reactor: Reactor,
    socket: File,
}

impl Stream {
    /// `socket` does not block.
    pub(super) fn new(reactor: &Reactor, socket: std::os::fd::OwnedFd) -> Stream {
        Stream { reactor: reactor.clone(), socket: Arc::new(socket) }
    }

    /// Fills `buf`. An end before the first byte is orderly.
    pub(super) async fn fill(&self, buf: &mut [u8]) -> Result<(), Closed> {
        let mut filled = 0;
        while filled < buf.len() {
            match rustix::io::read(&*self.socket, &mut buf[filled..]) {
                Ok(0) => return Err(if filled == 0 { Closed::Orderly } else { Closed::Short }),
                Ok(more) => filled += more,
                Err(Errno::AGAIN) => self.reactor.readable(&self.socket).await,
                Err(Errno::INTR) => {}
                Err(error) => return Err(Closed::Failed(error)),
            }
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

    pub(super) async fn send(&self, bytes: &[u8]) -> Result<(), Closed> {
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

    /// Ends the connection in both directions; pending reads and writes fail.
    pub(super) fn shut(&self) {
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
