//! Where the bytes of a trace come from: files and standard input, compressed or not, in constant memory.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::Path;

use super::TraceError;

/// Bytes per read.
const CHUNK_BYTES: usize = 256 << 10;

/// Bytes of the beginning used for detection.
pub(super) const SAMPLE_BYTES: usize = 64 << 10;

/// How a file is compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    fn of(prefix: &[u8]) -> Compression {
        match prefix {
            [0x1f, 0x8b, ..] => Compression::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Compression::Zstd,
            _ => Compression::None,
        }
    }
}

/// The decompressed bytes of one trace, with a window on the next ones.
pub(super) struct Input {
    pub(super) name: String,
    pub(super) compression: Compression,
    read: Box<dyn Read>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes before the window.
    consumed: u64,
    at_end: bool,
}

impl Input {
    /// Opens a file, or standard input for `-`.
    pub(super) fn open(path: &Path) -> Result<Input, TraceError> {
        let name = path.display().to_string();
        let read: Box<dyn Read> = match name.as_str() {
            "-" => Box::new(io::stdin()),
            _ => Box::new(File::open(path).map_err(|cause| TraceError::Io { name: name.clone(), cause })?),
        };
        let name = if name == "-" { "standard input".to_owned() } else { name };
        Input::new(name, read)
    }

    /// Reads from anything.
    pub(super) fn new(name: String, mut read: Box<dyn Read>) -> Result<Input, TraceError> {
        let failed = |cause| TraceError::Io { name: name.clone(), cause };
        let mut prefix = [0; 4];
        let mut filled = 0;
        while filled < prefix.len() {
            match read.read(&mut prefix[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
        let compression = Compression::of(&prefix[..filled]);
        let whole = Cursor::new(prefix[..filled].to_vec()).chain(read);
        let read: Box<dyn Read> = match compression {
            Compression::None => Box::new(whole),
            Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(io::BufReader::new(whole))),
            Compression::Zstd => Box::new(zstd::Decoder::new(whole).map_err(failed)?),
        };
        Ok(Input { name, compression, read, buffer: Vec::new(), start: 0, end: 0, consumed: 0, at_end: false })
    }

    /// The bytes that come next, as far as they have been read.
    pub(super) fn window(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Position of the window in the decompressed bytes.
    pub(super) fn position(&self) -> u64 {
        self.consumed
    }

    /// Everything has been read; the window is the rest.
    pub(super) fn at_end(&self) -> bool {
        self.at_end
    }

    pub(super) fn consume(&mut self, bytes: usize) {
        assert!(bytes <= self.end - self.start);
        self.start += bytes;
        self.consumed += bytes as u64;
    }

    /// Reads more behind the window. False at the end.
    pub(super) fn extend(&mut self) -> Result<bool, TraceError> {
        if self.at_end {
            return Ok(false);
        }
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.buffer.len() < self.end + CHUNK_BYTES {
            self.buffer.resize(self.end + CHUNK_BYTES, 0);
        }
        loop {
            match self.read.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.at_end = true,
                Ok(count) => self.end += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(cause) => return Err(TraceError::Io { name: self.name.clone(), cause }),
            }
            return Ok(!self.at_end);
        }
    }

    /// The first bytes, up to the sample size.
    pub(super) fn sample(&mut self) -> Result<&[u8], TraceError> {
        while self.window().len() < SAMPLE_BYTES && self.extend()? {}
        Ok(&self.window()[..self.window().len().min(SAMPLE_BYTES)])
    }
}

/// All decompressed bytes of a file, or of standard input for `-`: for small traces that must be read as a whole.
///
/// # Errors
/// When it cannot be read.
pub fn contents(path: &Path) -> Result<Vec<u8>, TraceError> {
    let mut input = Input::open(path)?;
    let mut bytes = Vec::new();
    match input.read.read_to_end(&mut bytes) {
        Ok(_) => Ok(bytes),
        Err(cause) => Err(TraceError::Io { name: input.name, cause }),
    }
}
