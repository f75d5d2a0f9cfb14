//! A client that reads, one request at a time: for measuring a device behind a server.
//!
//! The calls block the calling thread. A measurement has a single request under way and nothing else to do, and times are exacter
//! without another thread in between. Only simple replies are negotiated, and nothing is ever written.
//!
//! What the server sends is input: every length is checked before memory is taken for it.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use seekless::device::{BlockDevice, Buf, Data, DeviceError, Discard, Geometry, Guarantees, WriteFlags};
use seekless::units::{SECTOR_BYTES, Sector};

use super::wire::{
    FIXED_NEWSTYLE, MAGIC, NO_ZEROES, OPTION_BYTES_MAX, OPTION_MAGIC, OPTION_REPLY_MAGIC, PAYLOAD_MAX, REQUEST_MAGIC,
    SIMPLE_REPLY_MAGIC, command, info, option, reply, take,
};

/// Port of NBD, as IANA has it.
const PORT: u16 = 10809;

/// A server that says nothing for so long is gone.
const PATIENCE: Duration = Duration::from_secs(60);

/// Replies to an option that are read before the server is given up.
const REPLIES_MAX: usize = 64;

/// Longest export name.
const NAME_BYTES_MAX: usize = 4096;

/// Where a server is, and which export is meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    pub place: ClientPlace,
    /// Empty for the default export.
    pub export: String,
}

/// How to reach a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientPlace {
    Unix(PathBuf),
    /// Host and port.
    Tcp(String, u16),
}

/// Why a device cannot be had from a server.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("{0}")]
    Address(String),
    #[error("cannot connect to {place}: {cause}")]
    Connect { place: String, cause: io::Error },
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// The peer is no NBD server, or breaks the protocol.
    #[error("the server violates the NBD protocol: {0}")]
    Protocol(&'static str),
    #[error("the server refuses the export {export:?} (error {code:#x}): {reason}")]
    Refused { export: String, code: u32, reason: String },
}

impl Address {
    /// Parses `nbd://HOST[:PORT][/EXPORT]` or `nbd+unix:///[EXPORT]?socket=PATH`; `None` for what is no such address.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Option<Result<Address, ClientError>> {
        let of_unix = text.strip_prefix("nbd+unix://").map(Address::unix);
        of_unix
            .or_else(|| text.strip_prefix("nbd://").map(Address::tcp))
            .map(|found| found.map_err(|problem| ClientError::Address(format!("{text}: {problem}"))))
    }

    fn unix(rest: &str) -> Result<Address, String> {
        let (path, query) = rest.split_once('?').ok_or("?socket=PATH is missing")?;
        let socket = query.split('&').find_map(|pair| pair.strip_prefix("socket=")).ok_or("socket=PATH is missing")?;
        let export = decoded(path.strip_prefix('/').unwrap_or(path))?;
        Ok(Address { place: ClientPlace::Unix(decoded(socket)?.into()), export })
    }

    fn tcp(rest: &str) -> Result<Address, String> {
        let (place, export) = rest.split_once('/').unwrap_or((rest, ""));
        let is_port = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if is_port(port) => (host, port.parse().map_err(|_| format!("{port} is not a port"))?),
            _ => (place, PORT),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err("the host is missing".into());
        }
        Ok(Address { place: ClientPlace::Tcp(host.to_owned(), port), export: decoded(export)? })
    }
}

/// Text with its `%41` replaced.
fn decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let value = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
        bytes.push(value.ok_or("after % there are two hexadecimal digits")?);
        rest = &after[2..];
    }
    String::from_utf8(bytes)
        .ok()
        .filter(|text| text.len() <= NAME_BYTES_MAX)
        .ok_or("a name is UTF-8, at most 4096 bytes".into())
}

/// What both kinds of sockets do.
trait Socket: Read + Write {}
impl<T: Read + Write> Socket for T {}

/// A device behind a server. Writes are refused.
pub struct Client {
    socket: RefCell<Box<dyn Socket>>,
    geometry: Geometry,
    name: String,
}

impl Client {
    /// Connects and negotiates.
    ///
    /// # Errors
    /// When there is no server, or it refuses the export.
    pub fn connect(address: &Address) -> Result<Client, ClientError> {
        let place = match &address.place {
            ClientPlace::Unix(path) => path.display().to_string(),
            ClientPlace::Tcp(host, port) => format!("{host}:{port}"),
        };
        let failed = |cause| ClientError::Connect { place: place.clone(), cause };
        let mut socket: Box<dyn Socket> = match &address.place {
            ClientPlace::Unix(path) => {
                let socket = UnixStream::connect(path).map_err(failed)?;
                socket.set_read_timeout(Some(PATIENCE))?;
                Box::new(socket)
            }
            ClientPlace::Tcp(host, port) => {
                let socket = TcpStream::connect((&**host, *port)).map_err(failed)?;
                socket.set_read_timeout(Some(PATIENCE))?;
                // A request is small, and waits for nothing.
                socket.set_nodelay(true)?;
                Box::new(socket)
            }
        };
        let offer = negotiate(&mut socket, &address.export)?;
        let block_bytes = offer.block_bytes;
        let blocks = offer.bytes / u64::from(block_bytes);
        Ok(Client {
            socket: socket.into(),
            geometry: Geometry {
                sectors: blocks * (u64::from(block_bytes) / SECTOR_BYTES),
                block_bytes,
                request_bytes_max: offer.payload_max,
                zones: None,
            },
            name: place,
        })
    }
}

/// What a server says of an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Offer {
    pub(super) bytes: u64,
    pub(super) block_bytes: u32,
    pub(super) payload_max: u32,
}

/// Negotiates an export, from the server's greeting to the start of transmission.
pub(super) fn negotiate(socket: &mut (impl Read + Write), export: &str) -> Result<Offer, ClientError> {
    if u64::from_be_bytes(number(socket)?) != MAGIC || u64::from_be_bytes(number(socket)?) != OPTION_MAGIC {
        return Err(ClientError::Protocol("it sends no greeting"));
    }
    let flags = u16::from_be_bytes(number(socket)?);
    if flags & FIXED_NEWSTYLE == 0 {
        return Err(ClientError::Protocol("it is older than fixed newstyle"));
    }
    let mut ask = (u32::from(flags & (FIXED_NEWSTYLE | NO_ZEROES))).to_be_bytes().to_vec();
    let mut data = (export.len() as u32).to_be_bytes().to_vec();
    data.extend(export.as_bytes());
    data.extend(1_u16.to_be_bytes());
    data.extend(info::BLOCK_SIZE.to_be_bytes());
    ask.extend(OPTION_MAGIC.to_be_bytes());
    ask.extend(option::GO.to_be_bytes());
    ask.extend((data.len() as u32).to_be_bytes());
    ask.extend(data);
    socket.write_all(&ask)?;
    let mut offer = Offer { bytes: 0, block_bytes: SECTOR_BYTES as u32, payload_max: PAYLOAD_MAX };
    for _ in 0..REPLIES_MAX {
        if u64::from_be_bytes(number(socket)?) != OPTION_REPLY_MAGIC {
            return Err(ClientError::Protocol("a reply has no magic number"));
        }
        let _option: [u8; 4] = number(socket)?;
        let kind = u32::from_be_bytes(number(socket)?);
        let length = u32::from_be_bytes(number(socket)?);
        if length > OPTION_BYTES_MAX {
            return Err(ClientError::Protocol("a reply is too long"));
        }
        let mut data = vec![0; length as usize];
        socket.read_exact(&mut data)?;
        match kind {
            reply::ACK if offer.bytes < SECTOR_BYTES => return Err(ClientError::Protocol("it reports no size")),
            reply::ACK => return Ok(offer),
            reply::INFO => offer.learn(&data)?,
            code if code >> 31 == 1 => {
                let reason = String::from_utf8_lossy(&data).chars().take(200).collect();
                return Err(ClientError::Refused { export: export.to_owned(), code, reason });
            }
            _ => return Err(ClientError::Protocol("an unknown reply")),
        }
    }
    Err(ClientError::Protocol("its replies do not end"))
}

impl Offer {
    fn learn(&mut self, data: &[u8]) -> Result<(), ClientError> {
        let short = ClientError::Protocol("an information reply is too short");
        let kind = take(data, 0).map(u16::from_be_bytes);
        match kind {
            Some(info::EXPORT) => self.bytes = take(data, 2).map(u64::from_be_bytes).ok_or(short)?,
            Some(info::BLOCK_SIZE) => {
                let size = |at| take(data, at).map(u32::from_be_bytes);
                let (Some(least), Some(most)) = (size(2), size(10)) else { return Err(short) };
                if least.max(1).is_power_of_two() && least <= 1 << 16 {
                    self.block_bytes = least.max(SECTOR_BYTES as u32);
                }
                self.payload_max = most.clamp(1 << 16, PAYLOAD_MAX);
            }
            _ => {}
        }
        Ok(())
    }
}

/// Reads `buf` from `offset`.
pub(super) fn read(socket: &mut (impl Read + Write), offset: u64, buf: &mut [u8]) -> Result<(), ClientError> {
    let length = u32::try_from(buf.len()).map_err(|_| ClientError::Protocol("a read is too long"))?;
    socket.write_all(&request(command::READ, offset, length))?;
    if u32::from_be_bytes(number(socket)?) != SIMPLE_REPLY_MAGIC {
        return Err(ClientError::Protocol("an answer has no magic number"));
    }
    let error = u32::from_be_bytes(number(socket)?);
    if u64::from_be_bytes(number(socket)?) != COOKIE {
        return Err(ClientError::Protocol("an answer is to another request"));
    }
    match error {
        0 => Ok(socket.read_exact(buf)?),
        error => Err(io::Error::from_raw_os_error(error as i32).into()),
    }
}

/// One request is under way at a time.
const COOKIE: u64 = 1;

fn request(command: u16, offset: u64, length: u32) -> Vec<u8> {
    let mut bytes = REQUEST_MAGIC.to_be_bytes().to_vec();
    bytes.extend(0_u16.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(COOKIE.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes
}

fn number<const N: usize>(socket: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    socket.read_exact(&mut bytes)?;
    Ok(bytes)
}

impl Drop for Client {
    fn drop(&mut self) {
        // The server may be gone; then there is nothing to end.
        let _ = self.socket.get_mut().write_all(&request(command::DISCONNECT, 0, 0));
    }
}

#[async_trait(?Send)]
impl BlockDevice for Client {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees {
            atomic_write_bytes: SECTOR_BYTES as u32,
            durable_on_completion: false,
            ordered: false,
            discard: Discard::Ignored,
        }
    }

    async fn read(&self, at: Sector, mut buf: Buf) -> Result<Buf, DeviceError> {
        let bytes = buf.len() as u64;
        self.geometry.check(at, bytes)?;
        let outcome = read(&mut *self.socket.borrow_mut(), at.byte_offset(), &mut buf);
        outcome.map_err(|error| DeviceError::Io { operation: "read", at, bytes, cause: error.to_string() })?;
        Ok(buf)
    }

    async fn write(&self, _: Sector, _: Data, _: WriteFlags) -> Result<(), DeviceError> {
        Err(DeviceError::ReadOnly)
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    async fn discard(&self, _: Sector, _: u64) -> Result<(), DeviceError> {
        Err(DeviceError::ReadOnly)
    }

    fn describe(&self) -> String {
        format!("nbd:{}", self.name)
    }
}

/// Bytes that a server may send: nothing of them may panic, or take memory without bound. For the fuzzer.
pub(crate) fn any(input: &[u8]) {
    let mut peer = Peer { answers: input, asked: 0 };
    if let Ok(text) = std::str::from_utf8(input)
        && let Some(Ok(address)) = Address::parse(text)
    {
        assert!(address.export.len() <= NAME_BYTES_MAX);
    }
    if let Ok(offer) = negotiate(&mut peer, "disk") {
        assert!(offer.bytes >= SECTOR_BYTES && offer.block_bytes.is_power_of_two() && offer.payload_max <= PAYLOAD_MAX);
        while read(&mut peer, 0, &mut [0; 512]).is_ok() {}
    }
    assert!(peer.asked <= input.len() + NAME_BYTES_MAX, "{} bytes for {}", peer.asked, input.len());
}

/// A server whose answers do not depend on what is asked.
struct Peer<'a> {
    answers: &'a [u8],
    asked: usize,
}

impl Read for Peer<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.answers.read(buf)
    }
}

impl Write for Peer<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.asked += buf.len();
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Addresses as `nbdinfo` takes them, and what is wrong with others.
    #[test]
    fn addresses() {
        let parsed = |text: &str| Address::parse(text).map(|found| found.map_err(|error| error.to_string()));
        let unix = |path: &str, export: &str| {
            Some(Ok(Address { place: ClientPlace::Unix(path.into()), export: export.into() }))
        };
        assert_eq!(parsed("nbd+unix:///?socket=/run/a%20b"), unix("/run/a b", ""));
        assert_eq!(parsed("nbd+unix:///one?x=y&socket=s"), unix("s", "one"));
        let tcp = |host: &str, port, export: &str| {
            Some(Ok(Address { place: ClientPlace::Tcp(host.into(), port), export: export.into() }))
        };
        assert_eq!(parsed("nbd://host"), tcp("host", PORT, ""));
        assert_eq!(parsed("nbd://[::1]:99/a/b"), tcp("::1", 99, "a/b"));
        assert_eq!(parsed("/dev/sda"), None);
        for wrong in ["nbd://", "nbd://:1", "nbd://h:99999/", "nbd+unix:///x", "nbd+unix:///?socket=%4"] {
            assert!(matches!(parsed(wrong), Some(Err(_))), "{wrong}");
        }
    }

    /// Inputs that the fuzzer starts from do no harm.
    #[test]
    fn kept_bytes_do_no_harm() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/nbd_client");
        let kept: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!kept.is_empty());
        kept.iter().for_each(|path| any(&std::fs::read(path).unwrap()));
    }

    /// Random bytes, and the beginnings of a right conversation with one byte changed, do no harm.
    #[test]
    fn bytes_of_a_server_do_no_harm() {
        let mut right = Vec::new();
        right.extend(MAGIC.to_be_bytes());
        right.extend(OPTION_MAGIC.to_be_bytes());
        right.extend((FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes());
        let size = [&info::EXPORT.to_be_bytes()[..], &(1_u64 << 20).to_be_bytes(), &[0, 1]].concat();
        right.extend(super::super::wire::option_reply(option::GO, reply::INFO, &size));
        right.extend(super::super::wire::option_reply(option::GO, reply::ACK, b""));
        right.extend(super::super::wire::simple_reply(COOKIE, None));
        right.extend([0; 512]);
        let mut peer = Peer { answers: &right, asked: 0 };
        let offer = negotiate(&mut peer, "").unwrap();
        assert_eq!((offer.bytes, offer.block_bytes), (1 << 20, 512));
        read(&mut peer, 0, &mut [0; 512]).unwrap();
        for index in 0..right.len() {
            any(&right[..index]);
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut wrong = right.clone();
                wrong[index] = value;
                any(&wrong);
            }
        }
    }
}
