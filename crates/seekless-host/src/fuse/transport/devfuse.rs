//! The classical transport: reads and writes of `/dev/fuse`, on the engine thread, without waiting.

use std::cell::RefCell;
use std::io::{IoSlice, IoSliceMut};
use std::rc::Rc;

use async_trait::async_trait;
use rustix::io::Errno;
use seekless::device::{Buf, Data};
use seekless::rt::Rt;
use zerocopy::{FromBytes, IntoBytes};

use super::{End, Transport, answer};
use crate::fuse::abi;
use crate::fuse::mount::MountOptions;
use crate::fuse::negotiate::TRANSFER_BYTES_MAX;
use crate::fuse::reply::{Body, Reply};
use crate::fuse::session::Session;
use crate::reactor::{File, Reactor, ShareWhen};

/// The part before the data of a WRITE. Reads are split here, so that the data starts on its own page.
const HEAD_BYTES: usize = size_of::<abi::InHeader>() + size_of::<abi::WriteIn>();

/// Room after the head: the largest WRITE, which exceeds every other request.
const TAIL_BYTES: usize = TRANSFER_BYTES_MAX as usize;

const _: () = assert!(HEAD_BYTES + TAIL_BYTES >= abi::READ_BUFFER_BYTES_MIN);

/// A WRITE of at least this size keeps its buffer. A smaller one is copied, because it would pin the whole buffer as
/// long as a cache holds its data.
const KEEP_BYTES_MIN: usize = TAIL_BYTES / 2;

pub(in crate::fuse) struct DevFuse {
    rt: Rt,
    reactor: Reactor,
    device: File,
    /// Where the tail of the next request goes.
    tail: RefCell<Option<Buf>>,
    /// One reference for each request that has not been answered, and this one.
    unanswered: Rc<()>,
    /// Whether to look for the next request for a moment before sleeping.
    busy_poll: bool,
    /// Whether to share the processor of a program that makes one request after another.
    share_processor: Option<ShareWhen>,
}

/// A request as it was read.
pub(in crate::fuse) struct Message {
    pub header: abi::InHeader,
    /// What follows the header, except the data of a WRITE.
    pub body: Vec<u8>,
    pub data: Option<Data>,
}

enum Received {
    Message(Message),
    /// None is available now.
    Nothing,
    End(End),
}

impl DevFuse {
    /// `device` is an open `/dev/fuse` with a mount, and does not block.
    pub(in crate::fuse) fn new(rt: &Rt, reactor: &Reactor, device: File, options: &MountOptions) -> DevFuse {
        let (rt, reactor, tail) = (rt.clone(), reactor.clone(), RefCell::default());
        let (busy_poll, share_processor) = (options.busy_poll, options.share_processor);
        DevFuse { rt, reactor, device, tail, unanswered: Rc::new(()), busy_poll, share_processor }
    }

    /// Waits for one request. `None` when the connection ended before there was one.
    pub(in crate::fuse) async fn receive_one(&self) -> Result<Option<Message>, Errno> {
        loop {
            match self.receive()? {
                Received::Message(message) => return Ok(Some(message)),
                Received::Nothing => self.reactor.readable(&self.device).await,
                Received::End(_) => return Ok(None),
            }
        }
    }

    fn receive(&self) -> Result<Received, Errno> {
        let mut tail = self.tail.borrow_mut();
        let buf = tail.get_or_insert_with(|| Buf::dirty(TAIL_BYTES));
        let mut head = [0; HEAD_BYTES];
        loop {
            match rustix::io::readv(&*self.device, &mut [IoSliceMut::new(&mut head), IoSliceMut::new(buf)]) {
                Ok(count) => {
                    let head = &head[..count.min(HEAD_BYTES)];
                    let tail_bytes = count - head.len();
                    return Ok(Received::Message(split(head, &mut tail, tail_bytes)?));
                }
                Err(Errno::AGAIN) => return Ok(Received::Nothing),
                // ENOENT: the request was withdrawn while it was being copied.
                Err(Errno::INTR | Errno::NOENT) => {}
                Err(Errno::NODEV) => return Ok(Received::End(End::Unmounted)),
                Err(Errno::CONNABORTED) => return Ok(Received::End(End::Aborted)),
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a reply. False when the kernel no longer wants it.
    pub(in crate::fuse) fn send(&self, unique: u64, body: &Result<Body, i32>) -> bool {
        let (error, length) = match body {
            Ok(body) => (0, body.len()),
            Err(errno) => (-errno, 0),
        };
        let header = abi::OutHeader { len: (size_of::<abi::OutHeader>() + length) as u32, error, unique };
        let header = IoSlice::new(header.as_bytes());
        let sent = match body {
            Err(_) => rustix::io::writev(&*self.device, &[header]),
            Ok(Body::Bytes(bytes)) => rustix::io::writev(&*self.device, &[header, IoSlice::new(bytes)]),
            Ok(Body::Data(pieces)) => {
                let mut slices = Vec::with_capacity(1 + pieces.len());
                slices.push(header);
                slices.extend(pieces.iter().map(|piece| IoSlice::new(piece)));
                rustix::io::writev(&*self.device, &slices)
            }
        };
        match sent {
            Ok(_) => true,
            // The request was withdrawn, or the connection is gone.
            Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED | Errno::PERM) => false,
            Err(error) => {
                log::error!("the kernel refused a reply of {length} bytes: {error}");
                false
            }
        }
    }
}

/// Makes a message of the bytes read: `head`, and the first `tail_bytes` of `tail`.
fn split(head: &[u8], tail: &mut Option<Buf>, tail_bytes: usize) -> Result<Message, Errno> {
    let (header, head_body) = abi::InHeader::read_from_prefix(head).map_err(|_| Errno::PROTO)?;
    if header.len as usize != head.len() + tail_bytes {
        return Err(Errno::PROTO);
    }
    let mut message = Message { header, body: head_body.to_vec(), data: None };
    let Some(buf) = tail else { return Err(Errno::PROTO) };
    if header.opcode != abi::WRITE {
        message.body.extend_from_slice(&buf[..tail_bytes]);
    } else if tail_bytes < KEEP_BYTES_MIN {
        message.data = Some(Data::from_slice(&buf[..tail_bytes]));
    } else if let Some(buf) = tail.take() {
        message.data = Some(buf.freeze().slice(0..tail_bytes));
    }
    Ok(message)
}

#[async_trait(?Send)]
impl Transport for Rc<DevFuse> {
    fn name(&self) -> &'static str {
        "devfuse"
    }

    async fn run(&self, session: &Rc<Session>) -> Result<End, Errno> {
        let _shares = self.share_processor.map(|when| self.reactor.share_processor(when));
        self.answer_all(session).await
    }
}

impl DevFuse {
    /// Answers requests until the connection ends.
    async fn answer_all(self: &Rc<Self>, session: &Rc<Session>) -> Result<End, Errno> {
        loop {
            match self.receive()? {
                Received::Message(message) => {
                    self.reactor.note_request(message.header.pid);
                    let (transport, running) = (self.clone(), session.begin(message.header.opcode, &message.body));
                    let (session, rt, unanswered) = (session.clone(), self.rt.clone(), self.unanswered.clone());
                    drop(self.rt.spawn(async move {
                        rt.name_task(abi::opcode_name(message.header.opcode));
                        let unique = message.header.unique;
                        let reply = answer(&session, &message.header, &message.body, message.data).await;
                        if let Some(Reply { body, undo }) = reply
                            && !transport.send(unique, &body)
                        {
                            session.undo(undo).await;
                        }
                        drop((running, unanswered));
                    }));
                    // The task now runs, and usually replies, before the next request is read: its program can
                    // continue.
                    self.rt.yield_now().await;
                }
                // A program that waits for an answer sends nothing.
                Received::Nothing if self.busy_poll && Rc::strong_count(&self.unanswered) == 1 => {
                    self.reactor.readable_soon(&self.rt, &self.device).await;
                }
                Received::Nothing => self.reactor.readable(&self.device).await,
                Received::End(end) => return Ok(end),
            }
        }
    }
}
