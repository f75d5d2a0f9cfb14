//! Names and numbers of the protocol. Everything on the wire is big-endian.

pub(super) const MAGIC: u64 = 0x4e42_444d_4147_4943;
pub(super) const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
pub(super) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
pub(super) const REQUEST_MAGIC: u32 = 0x2560_9513;
pub(super) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
pub(super) const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Handshake flags of the server, and with the same values of the client.
pub(super) const FIXED_NEWSTYLE: u16 = 1;
pub(super) const NO_ZEROES: u16 = 2;

pub(super) mod option {
    pub(in crate::nbd) const EXPORT_NAME: u32 = 1;
    pub(in crate::nbd) const ABORT: u32 = 2;
    pub(in crate::nbd) const LIST: u32 = 3;
    pub(in crate::nbd) const INFO: u32 = 6;
    pub(in crate::nbd) const GO: u32 = 7;
    pub(in crate::nbd) const STRUCTURED_REPLY: u32 = 8;
}

pub(super) mod reply {
    pub(in crate::nbd) const ACK: u32 = 1;
    pub(in crate::nbd) const SERVER: u32 = 2;
    pub(in crate::nbd) const INFO: u32 = 3;
    const ERROR: u32 = 1 << 31;
    pub(in crate::nbd) const UNSUPPORTED: u32 = ERROR + 1;
    pub(in crate::nbd) const INVALID: u32 = ERROR + 3;
    pub(in crate::nbd) const TOO_BIG: u32 = ERROR + 9;
}

pub(super) mod info {
    pub(in crate::nbd) const EXPORT: u16 = 0;
    pub(in crate::nbd) const NAME: u16 = 1;
    pub(in crate::nbd) const DESCRIPTION: u16 = 2;
    pub(in crate::nbd) const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags.
pub(super) mod export {
    pub(in crate::nbd) const HAS_FLAGS: u16 = 1;
    pub(in crate::nbd) const READ_ONLY: u16 = 1 << 1;
    pub(in crate::nbd) const SEND_FLUSH: u16 = 1 << 2;
    pub(in crate::nbd) const SEND_FUA: u16 = 1 << 3;
    pub(in crate::nbd) const SEND_TRIM: u16 = 1 << 5;
    pub(in crate::nbd) const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub(in crate::nbd) const SEND_DF: u16 = 1 << 7;
    pub(in crate::nbd) const CAN_MULTI_CONN: u16 = 1 << 8;
}

pub(super) mod command {
    pub(in crate::nbd) const READ: u16 = 0;
    pub(in crate::nbd) const WRITE: u16 = 1;
    pub(in crate::nbd) const DISCONNECT: u16 = 2;
    pub(in crate::nbd) const FLUSH: u16 = 3;
    pub(in crate::nbd) const TRIM: u16 = 4;
    pub(in crate::nbd) const WRITE_ZEROES: u16 = 6;
}

/// Command flags.
pub(super) mod flag {
    pub(in crate::nbd) const FUA: u16 = 1;
    pub(in crate::nbd) const NO_HOLE: u16 = 2;
    pub(in crate::nbd) const DF: u16 = 4;
}

/// Types of structured replies, and the flag of the last chunk.
pub(super) mod chunk {
    pub(in crate::nbd) const DONE: u16 = 1;
    pub(in crate::nbd) const NONE: u16 = 0;
    pub(in crate::nbd) const OFFSET_DATA: u16 = 1;
    pub(in crate::nbd) const OFFSET_HOLE: u16 = 2;
    pub(in crate::nbd) const ERROR: u16 = (1 << 15) + 1;
}

/// Errors, with the protocol's own numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(super) enum Error {
    NotPermitted = 1,
    Io = 5,
    Invalid = 22,
    NoSpace = 28,
    Unsupported = 95,
    ShuttingDown = 108,
}

/// Longest read or write, in bytes: the limit for clients of a server that does not state another.
pub(super) const PAYLOAD_MAX: u32 = 32 << 20;

/// Longest option that is parsed. Names have at most 4096 bytes.
pub(super) const OPTION_BYTES_MAX: u32 = 16 << 10;

/// Bytes of a request's header.
pub(super) const REQUEST_BYTES: usize = 28;

/// A request's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Request {
    pub(super) flags: u16,
    pub(super) command: u16,
    pub(super) cookie: u64,
    pub(super) offset: u64,
    pub(super) length: u32,
}

impl Request {
    /// `None` without the magic number: then nothing that follows is valid.
    pub(super) fn decode(bytes: &[u8; REQUEST_BYTES]) -> Option<Request> {
        let magic = take::<4>(bytes, 0).map(u32::from_be_bytes)?;
        Some(Request {
            flags: u16::from_be_bytes(take(bytes, 4)?),
            command: u16::from_be_bytes(take(bytes, 6)?),
            cookie: u64::from_be_bytes(take(bytes, 8)?),
            offset: u64::from_be_bytes(take(bytes, 16)?),
            length: u32::from_be_bytes(take(bytes, 24)?),
        })
        .filter(|_| magic == REQUEST_MAGIC)
    }
}

/// `N` bytes at `at`.
pub(super) fn take<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// The head of a simple reply.
pub(super) fn simple_reply(cookie: u64, error: Option<Error>) -> Vec<u8> {
    let error = error.map_or(0, |error| error as u32);
    [&SIMPLE_REPLY_MAGIC.to_be_bytes()[..], &error.to_be_bytes(), &cookie.to_be_bytes()].concat()
}

/// The head of a structured reply with one chunk.
pub(super) fn chunk_head(cookie: u64, kind: u16, length: u32) -> Vec<u8> {
    [
        &STRUCTURED_REPLY_MAGIC.to_be_bytes()[..],
        &chunk::DONE.to_be_bytes(),
        &kind.to_be_bytes(),
        &cookie.to_be_bytes(),
        &length.to_be_bytes(),
    ]
    .concat()
}

/// The reply to an option.
pub(super) fn option_reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
    [&OPTION_REPLY_MAGIC.to_be_bytes()[..], &option.to_be_bytes(), &kind.to_be_bytes(), &length.to_be_bytes(), data]
        .concat()
}
