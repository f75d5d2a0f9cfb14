//! FUSE over io_uring: the kernel puts a request into memory lent by the daemon, and one command both returns the reply
//! and asks for the next request.
//!
//! The kernel has a queue for each processor and puts a request into the queue of the processor on which the
//! program runs. All queues are served by the engine's one ring. A queue has a few entries; each is a task here,
//! which works on one request after another, so a request needs no task of its own.
//!
//! FORGET and INTERRUPT still come through `/dev/fuse`, as does everything until all queues are registered.
//! [kernel: Documentation/filesystems/fuse/fuse-io-uring.rst]

use std::cell::RefMut;
use std::pin::pin;
use std::rc::Rc;

use async_trait::async_trait;
use futures_util::future::{Either, join_all, select};
use rustix::io::Errno;
use seekless::device::Data;
use seekless::rt::Rt;
use seekless::units::Nanos;
use zerocopy::{FromBytes, IntoBytes};

use super::{DevFuse, End, Transport, answer};
use crate::fuse::abi;
use crate::fuse::negotiate::TRANSFER_BYTES_MAX;
use crate::fuse::reply::{Body, Reply};
use crate::fuse::session::Session;
use crate::reactor::{File, FuseCommand, LentMemory, Reactor};

/// How long the kernel may take to return the memory after the connection has ended.
const HAND_BACK: Nanos = Nanos::from_secs(5);

pub(in crate::fuse) struct Uring {
    rt: Rt,
    reactor: Reactor,
    device: File,
    devfuse: Rc<DevFuse>,
    queues: u16,
    depth: usize,
}

/// The parts of an entry's memory.
const HEADER: usize = 0;
const PAYLOAD: usize = 1;

/// An entry of a queue.
struct Entry {
    memory: Rc<LentMemory>,
}

impl Entry {
    fn new() -> Entry {
        let memory = LentMemory::new([size_of::<abi::UringReqHeader>(), TRANSFER_BYTES_MAX as usize]);
        memory.part(HEADER).fill(0);
        Entry { memory }
    }

    fn header(&self) -> RefMut<'_, abi::UringReqHeader> {
        RefMut::map(self.memory.part(HEADER), |bytes| match abi::UringReqHeader::mut_from_bytes(bytes) {
            Ok(header) => header,
            Err(_) => unreachable!("the part is aligned and as long as a header"),
        })
    }

    /// The request that the kernel has put here: header, body, and the data of a WRITE.
    fn request(&self) -> Result<(abi::InHeader, Vec<u8>, Option<Data>), Errno> {
        let (entry, payload) = (self.header(), self.memory.part(PAYLOAD));
        let (header, _) = abi::InHeader::read_from_prefix(&entry.in_out).map_err(|_| Errno::PROTO)?;
        let payload_bytes = entry.ring.payload_sz as usize;
        let payload = payload.get(..payload_bytes).ok_or(Errno::PROTO)?;
        // The interface does not state the length of the fixed part; it is the total less the payload.
        let fixed_bytes =
            (header.len as usize).checked_sub(size_of::<abi::InHeader>() + payload_bytes).ok_or(Errno::PROTO)?;
        let mut body = entry.op_in.get(..fixed_bytes).ok_or(Errno::PROTO)?.to_vec();
        if header.opcode == abi::WRITE {
            // Copied, because the memory returns to the kernel while the file system still holds the data.
            return Ok((header, body, Some(Data::from_slice(payload))));
        }
        body.extend_from_slice(payload);
        Ok((header, body, None))
    }

    /// Writes a reply over its request.
    fn reply(&self, unique: u64, body: &Result<Body, i32>) {
        let (mut entry, mut payload) = (self.header(), self.memory.part(PAYLOAD));
        let (error, length) = match body {
            Err(errno) => (-errno, 0),
            Ok(body) => (0, body.len().min(payload.len())),
        };
        match body {
            Err(_) => {}
            Ok(Body::Bytes(bytes)) => payload[..length].copy_from_slice(&bytes[..length]),
            Ok(Body::Data(pieces)) => {
                let mut rest = &mut payload[..length];
                for piece in pieces {
                    let (target, after) = rest.split_at_mut(piece.len().min(rest.len()));
                    target.copy_from_slice(&piece[..target.len()]);
                    rest = after;
                }
            }
        }
        let header = abi::OutHeader { len: (size_of::<abi::OutHeader>() + length) as u32, error, unique };
        entry.in_out[..size_of::<abi::OutHeader>()].copy_from_slice(header.as_bytes());
        entry.ring.payload_sz = length as u32;
    }

    fn commit_id(&self) -> u64 {
        self.header().ring.commit_id
    }
}

impl Uring {
    /// `None` when the reactor has no ring. The kernel must have agreed to `OVER_IO_URING`.
    pub(in crate::fuse) fn new(
        rt: &Rt,
        reactor: &Reactor,
        device: File,
        devfuse: Rc<DevFuse>,
        depth: usize,
    ) -> Option<Uring> {
        reactor.ring()?;
        let queues = possible_processors()?;
        Some(Uring { rt: rt.clone(), reactor: reactor.clone(), device, devfuse, queues, depth: depth.max(1) })
    }

    async fn command(&self, entry: &Entry, operation: u32, queue: u16, commit_id: u64) -> Result<(), Errno> {
        let request = abi::UringCmdReq { flags: 0, commit_id, qid: queue, padding: [0; 6] };
        let mut bytes = [0; size_of::<abi::UringCmdReq>()];
        bytes.copy_from_slice(request.as_bytes());
        let command = FuseCommand { operation, registers: operation == abi::URING_REGISTER, request: bytes };
        let ring = self.reactor.ring().ok_or(Errno::NOSYS)?;
        ring.command(self.device.clone(), &entry.memory, command).await.map(drop)
    }

    /// Works on the requests of one entry until the connection ends.
    async fn serve_entry(&self, session: &Rc<Session>, queue: u16) -> Result<(), Errno> {
        let entry = Entry::new();
        self.command(&entry, abi::URING_REGISTER, queue, 0).await?;
        loop {
            let (header, body, data) = entry.request()?;
            let running = session.begin(header.opcode, &body);
            self.rt.name_task(abi::opcode_name(header.opcode));
            let reply = answer(session, &header, &body, data).await;
            // Every request on a ring is answered, even one without a reply.
            let Reply { body, undo } = reply.unwrap_or_else(Reply::empty);
            entry.reply(header.unique, &body);
            drop(body);
            drop(running);
            let next = self.command(&entry, abi::URING_COMMIT_AND_FETCH, queue, entry.commit_id()).await;
            if next == Err(Errno::NOENT) {
                session.undo(undo).await;
            }
            next?;
        }
    }
}

#[async_trait(?Send)]
impl Transport for Rc<Uring> {
    fn name(&self) -> &'static str {
        "uring"
    }

    async fn run(&self, session: &Rc<Session>) -> Result<End, Errno> {
        let mut entries = Vec::new();
        for queue in 0..self.queues {
            for _ in 0..self.depth {
                let (transport, session) = (self.clone(), session.clone());
                entries.push(self.rt.spawn(async move {
                    match transport.serve_entry(&session, queue).await {
                        // The end of the connection.
                        Ok(()) | Err(Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED) => {}
                        // The kernel continues over /dev/fuse when it has refused a registration.
                        Err(error) => log::warn!("queue {queue} of FUSE over io_uring ended: {error}"),
                    }
                }));
            }
        }
        let ended = self.devfuse.run(session).await;
        session.backlog.end_all();
        let handed_back = pin!(join_all(entries));
        if let Either::Right(_) = select(handed_back, self.rt.sleep(HAND_BACK)).await {
            log::warn!("the kernel still holds memory of FUSE over io_uring");
        }
        ended
    }
}

/// Number of possible processors of the kernel, which is its number of queues.
fn possible_processors() -> Option<u16> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").ok()?;
    count_ranges(text.trim())
}

/// How many numbers `0-3,8` names.
fn count_ranges(text: &str) -> Option<u16> {
    text.split(',').try_fold(0u16, |count, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        count.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processor lists as the kernel writes them.
    #[test]
    fn processor_ranges_are_counted() {
        for (text, count) in [("0", Some(1)), ("0-1", Some(2)), ("0-3,8", Some(5)), ("", None), ("3-1", None)] {
            assert_eq!(count_ranges(text), count, "{text}");
        }
    }
}
