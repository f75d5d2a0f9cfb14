//! Where the bytes of a trace come from: files and standard input, compressed or not, in constant memory.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::Path;
use std::rc::Rc;

use seekless::stack::quoted_path;

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

/// Formats of compressed files that are recognised and not read: how each begins, its name, and what unpacks it to standard output.
const FOREIGN: [(&[u8], &str, &str); 6] = [
    (&[0xfd, b'7', b'z', b'X', b'Z', 0], "xz", "xz -dc"),
    (b"BZh", "bzip2", "bzip2 -dc"),
    (&[0x04, 0x22, 0x4d, 0x18], "lz4", "lz4 -dc"),
    (&[0x1f, 0x9d], "compress", "zcat"),
    (b"PK\x03\x04", "zip", "funzip"),
    (&[b'7', b'z', 0xbc, 0xaf, 0x27, 0x1c], "7z", "bsdtar -xOf -"),
];

/// Bytes that tell how a file is compressed.
const PREFIX_BYTES: usize = 6;

/// Name and command of the compression, if it is one of those that are not read.
fn foreign(prefix: &[u8]) -> Option<(&'static str, &'static str)> {
    let is_digit = |at: usize| prefix.get(at).is_some_and(u8::is_ascii_digit);
    let found = FOREIGN.iter().find(|(magic, ..)| prefix.starts_with(magic))?;
    // Three letters are too few: a digit, and pi in decimal digits follow.
    let is_certain =
        found.1 != "bzip2" || (is_digit(3) && matches!(prefix.get(4..6), Some([0x31, 0x41] | [0x17, 0x72])));
    is_certain.then_some((found.1, found.2))
}

/// How much of a trace's files has been read, before decompression.
#[derive(Clone, Default, Debug)]
pub struct Progress {
    inputs: Vec<Counted>,
}

impl Progress {
    pub(super) fn of(inputs: &[Input]) -> Progress {
        Progress { inputs: inputs.iter().map(|input| input.counted.clone()).collect() }
    }

    /// Bytes read so far.
    pub fn bytes(&self) -> u64 {
        self.inputs.iter().map(|input| input.read.get()).sum()
    }

    /// Bytes in all, where every input is a file; `None` for a stream, which may have no end.
    pub fn bytes_total(&self) -> Option<u64> {
        self.inputs.iter().map(|input| input.total).sum()
    }
}

/// Bytes of one input.
#[derive(Clone, Default, Debug)]
struct Counted {
    read: Rc<Cell<u64>>,
    total: Option<u64>,
}

/// Counts the bytes that pass.
struct Counting<R> {
    inner: R,
    count: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.count.set(self.count.get() + read as u64);
        Ok(read)
    }
}

/// The decompressed bytes of one trace, with a window on the next ones.
pub(super) struct Input {
    pub(super) name: String,
    is_file: bool,
    pub(super) compression: Compression,
    counted: Counted,
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
        if name == "-" {
            return Input::of("standard input".to_owned(), Box::new(io::stdin()), None, false);
        }
        let failed = |cause| TraceError::Io { name: name.clone(), cause };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let total = metadata.is_file().then_some(metadata.len());
        Input::of(name, Box::new(file), total, true)
    }

    /// Reads from anything that has the name of a file.
    pub(super) fn new(name: String, read: Box<dyn Read>) -> Result<Input, TraceError> {
        Input::of(name, read, None, true)
    }

    /// `total` is the number of bytes before decompression, where it is known.
    fn of(name: String, read: Box<dyn Read>, total: Option<u64>, is_file: bool) -> Result<Input, TraceError> {
        let counted = Counted { read: Rc::default(), total };
        let mut read = Counting { inner: read, count: counted.read.clone() };
        let failed = |cause| TraceError::Io { name: name.clone(), cause };
        let mut prefix = [0; PREFIX_BYTES];
        let mut filled = 0;
        while filled < prefix.len() {
            match read.read(&mut prefix[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
        if let Some((how, unpack)) = foreign(&prefix[..filled]) {
            let from = if is_file { format!(" <{}", quoted_path(Path::new(&name))) } else { String::new() };
            return Err(TraceError::Packed { command: format!("{unpack}{from} | seekless trace info -"), name, how });
        }
        let compression = Compression::of(&prefix[..filled]);
        let whole = Cursor::new(prefix[..filled].to_vec()).chain(read);
        let read: Box<dyn Read> = match compression {
            Compression::None => Box::new(whole),
            Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(io::BufReader::new(whole))),
            Compression::Zstd => Box::new(zstd::Decoder::new(whole).map_err(failed)?),
        };
        let buffer = Vec::new();
        Ok(Input { name, is_file, compression, counted, read, buffer, start: 0, end: 0, consumed: 0, at_end: false })
    }

    /// What a shell runs to read the trace once more through `filters`: from its file, decompressed.
    pub(super) fn shell(&self, filters: &str) -> String {
        let unpack = match self.compression {
            Compression::None => "cat",
            Compression::Gzip => "zcat",
            Compression::Zstd => "zstdcat",
        };
        match self.is_file {
            true => format!("{unpack} <{} {filters}", quoted_path(Path::new(&self.name))),
            false => format!("{unpack} {filters}"),
        }
    }

    /// An error, with what to do where a compressed file ends too soon; nothing else ends in it.
    fn failed(&self, cause: io::Error) -> TraceError {
        let name = self.name.clone();
        match cause.kind() == io::ErrorKind::UnexpectedEof && self.compression != Compression::None {
            true => TraceError::CutOff { name, command: self.shell("2>/dev/null | seekless trace info -") },
            false => TraceError::Io { name, cause },
        }
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
                Err(cause) => return Err(self.failed(cause)),
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

/// Limit of what is read as a whole: some millions of lines.
const CONTENTS_BYTES_MAX: u64 = 256 << 20;

/// All decompressed bytes of a file, or of standard input for `-`: for small traces that must be read as a whole.
///
/// # Errors
/// When it cannot be read, or has more than 256 MiB: a device has no end, and a small compressed file may become any size.
pub fn contents(path: &Path) -> Result<Vec<u8>, TraceError> {
    let mut input = Input::open(path)?;
    let mut bytes = Vec::new();
    match (&mut input.read).take(CONTENTS_BYTES_MAX + 1).read_to_end(&mut bytes) {
        Ok(_) if bytes.len() as u64 > CONTENTS_BYTES_MAX => {
            Err(TraceError::TooLong { name: input.name, bytes_max: CONTENTS_BYTES_MAX })
        }
        Ok(_) => Ok(bytes),
        Err(cause) => Err(input.failed(cause)),
    }
}
