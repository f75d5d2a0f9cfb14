//! Requests of clients: any bytes, any length, in any order.

use seekless::device::{Data, Device, DeviceError};

use super::wire::{Error, PAYLOAD_MAX, Request, command, flag};
use crate::bytewise::Bytewise;

/// The device, as clients see it.
pub(super) struct Disk {
    bytes: Bytewise,
    read_only: bool,
}

/// Why a request fails: the protocol's error number, and a text.
pub(super) struct Refusal {
    pub(super) error: Error,
    pub(super) text: String,
}

impl Refusal {
    pub(super) fn new(error: Error, text: impl Into<String>) -> Refusal {
        Refusal { error, text: text.into() }
    }
}

impl From<DeviceError> for Refusal {
    fn from(error: DeviceError) -> Refusal {
        let number = match &error {
            DeviceError::NoSpace { .. } => Error::NoSpace,
            DeviceError::ReadOnly => Error::NotPermitted,
            DeviceError::Gone(_) => Error::ShuttingDown,
            DeviceError::OutOfRange { .. }
            | DeviceError::Unaligned { .. }
            | DeviceError::NotAtWritePointer { .. }
            | DeviceError::Zone { .. } => Error::Invalid,
            DeviceError::Io { .. } => Error::Io,
        };
        Refusal::new(number, error.to_string())
    }
}

/// Flags valid for each command.
fn known_flags(request: &Request) -> Option<u16> {
    Some(match request.command {
        command::READ => flag::DF | flag::FUA,
        command::WRITE | command::TRIM => flag::FUA,
        command::WRITE_ZEROES => flag::FUA | flag::NO_HOLE,
        command::FLUSH => flag::FUA,
        _ => return None,
    })
}

impl Disk {
    pub(super) fn new(device: Device, read_only: bool) -> Disk {
        Disk { bytes: Bytewise::new(device), read_only }
    }

    pub(super) fn device(&self) -> &Device {
        self.bytes.device()
    }

    /// Validates a request before any part of it is done.
    pub(super) fn check(&self, request: &Request) -> Result<(), Refusal> {
        let Some(known) = known_flags(request) else {
            return Err(Refusal::new(Error::Unsupported, format!("there is no command {}", request.command)));
        };
        if request.flags & !known != 0 {
            let text = format!("command {} has no flags {:#x}", request.command, request.flags & !known);
            return Err(Refusal::new(Error::Invalid, text));
        }
        if request.command == command::FLUSH {
            return Ok(());
        }
        let writes = request.command != command::READ;
        if writes && self.read_only {
            return Err(Refusal::new(Error::NotPermitted, "the export is read-only"));
        }
        let carries = matches!(request.command, command::READ | command::WRITE);
        if carries && request.length > PAYLOAD_MAX {
            let text = format!("{} bytes are more than {PAYLOAD_MAX} at once", request.length);
            return Err(Refusal::new(Error::Invalid, text));
        }
        let size = self.bytes.size();
        match request.offset.checked_add(u64::from(request.length)) {
            Some(end) if end <= size => Ok(()),
            _ => {
                let error = if request.command == command::READ { Error::Invalid } else { Error::NoSpace };
                Err(Refusal::new(error, format!("the export ends at byte {size}")))
            }
        }
    }

    pub(super) async fn read(&self, offset: u64, length: u32) -> Result<Data, Refusal> {
        Ok(self.bytes.read(offset, length).await?)
    }

    pub(super) async fn write(&self, offset: u64, data: Data, fua: bool) -> Result<(), Refusal> {
        Ok(self.bytes.write(offset, data, fua).await?)
    }

    pub(super) async fn flush(&self) -> Result<(), Refusal> {
        Ok(self.bytes.flush().await?)
    }

    /// Discards the blocks that are entirely between `offset` and the end of the request.
    pub(super) async fn trim(&self, offset: u64, length: u32, fua: bool) -> Result<(), Refusal> {
        self.bytes.discard(offset, u64::from(length)).await?;
        if fua { self.flush().await } else { Ok(()) }
    }

    /// Zeroes bytes; by discarding them where the device promises zeroes for that, and `hole` allows it. Ends with an error
    /// before the next piece once `go_on` is false: 4 GiB of zeroes, of which a client can ask 512 times, take hours on a slow disk.
    pub(super) async fn zero(
        &self,
        offset: u64,
        length: u32,
        fua: bool,
        hole: bool,
        go_on: &dyn Fn() -> bool,
    ) -> Result<(), Refusal> {
        self.bytes.zero_while(offset, u64::from(length), hole, go_on).await?;
        if fua { self.flush().await } else { Ok(()) }
    }
}
