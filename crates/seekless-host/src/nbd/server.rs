//! Listening, connections, and shutdown.
//!
//! Invariants
//!   N1  A connection has one task that reads it. Requests are separate tasks, and their replies are sent one after the
//!       other, each as a whole.
//!   N2  An incomplete request is not started. Nor is one that the server finds when its client has left without
//!       `DISCONNECT`: the client may have sent it again over its next connection, and have written the same blocks since.
//!       All requests before a `DISCONNECT` are done, as the protocol demands.
//!   N3  A client can hold no more memory than [`IN_FLIGHT_BYTES_MAX`], apart from some blocks for each of its requests: what
//!       zeroes a range writes the same zeroes for all clients.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::rc::Rc;

use futures_util::future::{Either, select};
use rustix::io::Errno;
use seekless::device::{Buf, Data, Device, DeviceError};
use seekless::rt::{Event, Gate, Rt};
use seekless::units::{Nanos, human_bytes};

use super::export::Export;
use super::handshake::{Negotiated, negotiate};
use super::listener::{ListenAddress, ListenError, Listener};
use super::requests::{Disk, Refusal};
use super::stream::{Closed, Stream};
use super::wire::{Error, PAYLOAD_MAX, REQUEST_BYTES, Request, chunk, chunk_head, command, flag, simple_reply};
use crate::reactor::Reactor;

/// Timeout of the negotiation.
const HANDSHAKE: Nanos = Nanos::from_secs(30);

/// Limit of the bytes of one connection's pending requests: two of the longest.
const IN_FLIGHT_BYTES_MAX: u64 = 2 * PAYLOAD_MAX as u64;

/// Limit of one connection's pending requests: four times what the kernel's client sends.
const IN_FLIGHT_MAX: u64 = 512;

/// Limit of connections. The kernel's client opens as many as configured, `nbdcopy` up to four.
const CONNECTIONS_MAX: usize = 64;

/// Why the server cannot start or has ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error("cannot accept connections: {0}")]
    Accept(#[source] Errno),
    #[error("the device could not be closed; the last changes may be lost: {0}")]
    Close(#[source] DeviceError),
}

/// An exported device, and its listening sockets.
pub struct Server {
    rt: Rt,
    reactor: Reactor,
    shared: Rc<Shared>,
    listeners: Vec<Listener>,
}

struct Shared {
    rt: Rt,
    disk: Disk,
    export: Export,
    connections: RefCell<Vec<(u64, Stream)>>,
    next: Cell<u64>,
    changed: Event,
    /// The server ends: it starts no further request.
    ends: Cell<bool>,
}

impl Server {
    /// Listens at every one of `addresses`.
    ///
    /// # Errors
    /// When one of them is not available.
    ///
    /// # Panics
    /// Without an address.
    pub fn new(
        rt: &Rt,
        reactor: &Reactor,
        device: Device,
        read_only: bool,
        addresses: &[ListenAddress],
    ) -> Result<Server, ServeError> {
        assert!(!addresses.is_empty(), "a server listens somewhere");
        let geometry = device.geometry();
        let description = format!("{} ({})", device.describe(), human_bytes(geometry.bytes()));
        let export = Export { bytes: geometry.bytes(), block_bytes: geometry.block_bytes, read_only, description };
        let listeners = addresses.iter().map(Listener::new).collect::<Result<_, ListenError>>()?;
        let shared = Shared {
            rt: rt.clone(),
            disk: Disk::new(device, read_only),
            export,
            connections: RefCell::default(),
            next: Cell::new(0),
            changed: Event::new(),
            ends: Cell::new(false),
        };
        Ok(Server { rt: rt.clone(), reactor: reactor.clone(), shared: Rc::new(shared), listeners })
    }

    /// Addresses for clients, as URIs.
    pub fn addresses(&self) -> Vec<String> {
        self.listeners.iter().map(|listener| listener.address.uri()).collect()
    }

    /// Serves until `stop` completes. Then requests that have started are done, except that what writes zeroes ends after
    /// one piece without a reply; the device is flushed and released. When this returns success, everything that was
    /// acknowledged is durable.
    ///
    /// # Errors
    /// When no more connections can be accepted, or the device cannot be closed.
    pub async fn serve(self, stop: impl Future<Output = ()>) -> Result<(), ServeError> {
        let accepts = self.listeners.iter().map(|listener| Box::pin(self.accept(listener)));
        let ended = match select(pin!(stop), futures_util::future::select_all(accepts)).await {
            Either::Left(((), _)) => Ok(()),
            Either::Right(((error, _, _), _)) => Err(ServeError::Accept(error)),
        };
        self.shared.ends.set(true);
        for (_, stream) in self.shared.connections.borrow().iter() {
            stream.shut();
        }
        loop {
            let changed = self.shared.changed.wait();
            if self.shared.connections.borrow().is_empty() {
                break;
            }
            changed.await;
        }
        let device = self.shared.disk.device();
        if !self.shared.export.read_only {
            device.flush().await.map_err(ServeError::Close)?;
            device.release().await.map_err(ServeError::Close)?;
        }
        ended
    }

    /// Accepts connections; returns the error that ended it.
    async fn accept(&self, listener: &Listener) -> Errno {
        loop {
            match listener.accept(&self.rt, &self.reactor).await {
                Ok(socket) => self.connect(socket),
                Err(error) => return error,
            }
        }
    }

    fn connect(&self, socket: OwnedFd) {
        if self.shared.connections.borrow().len() >= CONNECTIONS_MAX {
            log::warn!("{CONNECTIONS_MAX} connections are open; another one is refused");
            return;
        }
        // Small replies are sent at once. A Unix socket does not have this option.
        let _ = rustix::net::sockopt::set_tcp_nodelay(&socket, true);
        let stream = Stream::new(&self.reactor, socket);
        let shared = self.shared.clone();
        let number = shared.next.get();
        shared.next.set(number + 1);
        shared.connections.borrow_mut().push((number, stream.clone()));
        let work = async move {
            let ended = shared.clone().attend(stream).await;
            log::debug!("connection {number} has ended: {ended:?}");
            shared.connections.borrow_mut().retain(|(other, _)| *other != number);
            shared.changed.notify();
        };
        drop(self.rt.spawn(work));
    }
}

/// The sending side of a client, and its pending requests.
struct Connection {
    shared: Rc<Shared>,
    stream: Stream,
    negotiated: Negotiated,
    replies: Gate,
    requests: Cell<u64>,
    bytes: Cell<u64>,
    ended: Event,
    /// Whether the client ends with `DISCONNECT`, as soon as that is known.
    disconnects: Cell<Option<bool>>,
}

impl Shared {
    /// Serves one connection to its end.
    async fn attend(self: Rc<Self>, stream: Stream) -> Closed {
        let patience = pin!(self.rt.sleep(HANDSHAKE));
        let negotiated = match select(pin!(negotiate(&stream, &self.export)), patience).await {
            Either::Left((Ok(Some(negotiated)), _)) => negotiated,
            Either::Left((Ok(None), _)) => return Closed::Orderly,
            Either::Left((Err(closed), _)) => return closed,
            Either::Right(_) => return Closed::Short,
        };
        let (requests, bytes) = (Cell::new(0), Cell::new(0));
        let replies = Gate::new();
        let (ended, disconnects) = (Event::new(), Cell::new(None));
        let connection =
            Rc::new(Connection { shared: self, stream, negotiated, replies, requests, bytes, ended, disconnects });
        let closed = connection.take_requests().await;
        loop {
            let ended = connection.ended.wait();
            if connection.requests.get() == 0 {
                break;
            }
            ended.await;
        }
        connection.stream.shut();
        closed
    }
}

impl Connection {
    /// Reads requests and starts them until the client disconnects.
    async fn take_requests(self: &Rc<Self>) -> Closed {
        loop {
            match self.take_request().await {
                Ok(true) => {}
                Ok(false) => return Closed::Orderly,
                Err(closed) => return closed,
            }
        }
    }

    async fn take_request(self: &Rc<Self>) -> Result<bool, Closed> {
        let head: [u8; REQUEST_BYTES] = self.stream.number().await?;
        let request = Request::decode(&head).ok_or(Closed::Nonsense)?;
        if request.command == command::DISCONNECT {
            self.disconnects.set(Some(true));
            return Ok(false);
        }
        let checked = self.shared.disk.check(&request);
        let sends = request.command == command::WRITE;
        if let Err(refusal) = checked {
            if sends {
                self.stream.skip(u64::from(request.length)).await?;
            }
            self.refuse(&request, &refusal).await?;
            return Ok(true);
        }
        let carries = sends || request.command == command::READ;
        let bytes = if carries { u64::from(request.length) } else { 0 };
        self.wait_for_room(bytes).await; // N3
        if self.has_left() {
            return Err(Closed::Short); // N2
        }
        let data = match sends {
            true => {
                let mut buf = Buf::dirty(request.length as usize);
                self.stream.fill(&mut buf).await.map_err(Closed::inside)?; // N2
                buf.freeze()
            }
            false => Data::empty(),
        };
        self.requests.set(self.requests.get() + 1);
        self.bytes.set(self.bytes.get() + bytes);
        let connection = self.clone();
        let work = async move {
            connection.perform(&request, data).await;
            connection.requests.set(connection.requests.get() - 1);
            connection.bytes.set(connection.bytes.get() - bytes);
            connection.ended.notify();
        };
        drop(self.shared.rt.spawn(work));
        Ok(true)
    }

    async fn wait_for_room(&self, bytes: u64) {
        loop {
            let ended = self.ended.wait();
            let fits = self.requests.get() < IN_FLIGHT_MAX
                && (self.bytes.get() == 0 || self.bytes.get() + bytes <= IN_FLIGHT_BYTES_MAX);
            if fits {
                return;
            }
            ended.await;
        }
    }

    /// True when the client has left without `DISCONNECT`, or the server ends: then no request is started. N2
    fn has_left(&self) -> bool {
        if self.shared.ends.get() {
            return true;
        }
        if !self.stream.is_closed() {
            return false;
        }
        // All that the client has sent is here. The last bytes of data can look like `DISCONNECT`: then the rest is done.
        let disconnects = self.disconnects.get().unwrap_or_else(|| {
            let last = self.stream.last::<REQUEST_BYTES>().and_then(|bytes| Request::decode(&bytes));
            last.is_some_and(|request| request.command == command::DISCONNECT)
        });
        self.disconnects.set(Some(disconnects));
        !disconnects
    }

    /// Executes a request and answers it. A client that is gone gets no answer, and its connection ends by itself.
    async fn perform(&self, request: &Request, data: Data) {
        // Nothing waits between here and the place in the order of the requests for the same bytes. N2
        if self.has_left() {
            return;
        }
        let Request { offset, length, flags, .. } = *request;
        let (disk, fua) = (&self.shared.disk, flags & flag::FUA != 0);
        let result = match request.command {
            command::READ => {
                let answered = match disk.read(offset, length).await {
                    Ok(data) => self.answer_read(request, &data).await,
                    Err(refusal) => self.refuse(request, &refusal).await,
                };
                if answered.is_err() {
                    self.stream.shut();
                }
                return;
            }
            command::WRITE => disk.write(offset, data, fua).await,
            command::FLUSH => disk.flush().await,
            command::TRIM => disk.trim(offset, length, fua).await,
            command::WRITE_ZEROES => {
                let go_on = || !self.has_left();
                disk.zero(offset, length, fua, flags & flag::NO_HOLE == 0, &go_on).await
            }
            other => Err(Refusal::new(Error::Unsupported, format!("there is no command {other}"))),
        };
        let answered = match result {
            Ok(()) if self.negotiated.structured => self.send(&[&chunk_head(request.cookie, chunk::NONE, 0)]).await,
            Ok(()) => self.send(&[&simple_reply(request.cookie, None)]).await,
            Err(refusal) => self.refuse(request, &refusal).await,
        };
        if answered.is_err() {
            self.stream.shut();
        }
    }

    async fn answer_read(&self, request: &Request, data: &Data) -> Result<(), Closed> {
        let Request { cookie, offset, length, .. } = *request;
        if !self.negotiated.structured {
            return self.send(&[&simple_reply(cookie, None), data]).await;
        }
        let offset = offset.to_be_bytes();
        if !data.is_empty() && is_zero(data) {
            let head = chunk_head(cookie, chunk::OFFSET_HOLE, 12);
            return self.send(&[&head, &offset, &length.to_be_bytes()]).await;
        }
        if data.is_empty() {
            return self.send(&[&chunk_head(cookie, chunk::NONE, 0)]).await;
        }
        self.send(&[&chunk_head(cookie, chunk::OFFSET_DATA, length + 8), &offset, data]).await
    }

    async fn refuse(&self, request: &Request, refusal: &Refusal) -> Result<(), Closed> {
        log::debug!("request refused: {request:?}: {}", refusal.text);
        if !self.negotiated.structured {
            return self.send(&[&simple_reply(request.cookie, Some(refusal.error))]).await;
        }
        let text = &refusal.text.as_bytes()[..refusal.text.len().min(4096)];
        let length = 6 + text.len();
        let number = (refusal.error as u32).to_be_bytes();
        let text_length = u16::try_from(text.len()).unwrap_or(0).to_be_bytes();
        let head = chunk_head(request.cookie, chunk::ERROR, u32::try_from(length).unwrap_or(6));
        self.send(&[&head, &number, &text_length, text]).await
    }

    /// N1.
    async fn send(&self, parts: &[&[u8]]) -> Result<(), Closed> {
        let _pass = self.replies.enter().await;
        // Small parts are sent together with the following ones.
        let (small, large): (usize, bool) = (parts.iter().map(|part| part.len()).sum(), parts.len() > 1);
        if large && small <= 64 << 10 {
            return self.stream.send(&parts.concat()).await;
        }
        for part in parts {
            self.stream.send(part).await?;
        }
        Ok(())
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(4096).all(|chunk| chunk.iter().fold(0, |all, byte| all | byte) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbd::{Address, ClientPlace};

    /// Clients of NBD find the socket that is named, whatever its name.
    #[test]
    fn addresses_are_what_clients_decode() {
        for path in ["/run/a.sock", "/run/a b&c=d?e#f%41/\u{fc}+~-_", "/run/it's"] {
            let uri = ListenAddress::Unix(path.into()).uri();
            let parsed = Address::parse(&uri).unwrap().unwrap();
            assert_eq!(parsed, Address { place: ClientPlace::Unix(path.into()), export: String::new() }, "{uri}");
            assert!(uri.bytes().all(|byte| byte.is_ascii_graphic() && !b"'\"&#".contains(&byte)), "{uri}");
        }
        assert_eq!(ListenAddress::Unix("/run/a.sock".into()).uri(), "nbd+unix:///?socket=/run/a.sock");
    }
}
