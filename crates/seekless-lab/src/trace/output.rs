//! Destination of a written trace: standard output, or a file that is compressed according to its name and gets that
//! name only once it is complete.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::output::{NewFile, OutputError, Wish};

/// A destination for [`TraceWriter`](super::TraceWriter). If it is dropped before [`Output::finish`], its file
/// vanishes.
pub struct Output {
    sink: Sink,
    path: PathBuf,
}

enum Sink {
    Standard(io::Stdout),
    Plain(BufWriter<NewFile>),
    Gzip(flate2::write::GzEncoder<BufWriter<NewFile>>),
    Zstd(zstd::Encoder<'static, BufWriter<NewFile>>),
}

impl Output {
    pub fn standard() -> Output {
        Output { sink: Sink::Standard(io::stdout()), path: "standard output".into() }
    }

    /// A file: `.gz` and `.zst` are compressed.
    ///
    /// # Errors
    /// When it cannot be made, and when a file exists that `wish` does not let it replace.
    pub fn file(path: &Path, wish: &Wish) -> Result<Output, OutputError> {
        let file = BufWriter::new(NewFile::begin(path, wish)?);
        let sink = match path.extension().and_then(|extension| extension.to_str()) {
            Some("gz") => Sink::Gzip(flate2::write::GzEncoder::new(file, flate2::Compression::default())),
            Some("zst") => {
                let encoder = zstd::Encoder::new(file, zstd::DEFAULT_COMPRESSION_LEVEL);
                Sink::Zstd(encoder.map_err(|cause| failed(path, cause))?)
            }
            _ => Sink::Plain(file),
        };
        Ok(Output { sink, path: path.to_owned() })
    }

    /// Ends the file, makes it durable and gives it its name.
    ///
    /// # Errors
    /// Those of the file.
    pub fn finish(self) -> Result<(), OutputError> {
        let path = self.path;
        let file = match self.sink {
            Sink::Standard(mut out) => return out.flush().map_err(|cause| failed(&path, cause)),
            Sink::Plain(file) => Ok(file),
            Sink::Gzip(encoder) => encoder.finish(),
            Sink::Zstd(encoder) => encoder.finish(),
        };
        let file = file.and_then(|file| file.into_inner().map_err(io::IntoInnerError::into_error));
        file.map_err(|cause| failed(&path, cause))?.commit().map(drop)
    }
}

fn failed(path: &Path, cause: io::Error) -> OutputError {
    OutputError::Io { action: "write", path: path.to_owned(), cause }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.sink {
            Sink::Standard(out) => out.write(bytes),
            Sink::Plain(file) => file.write(bytes),
            Sink::Gzip(encoder) => encoder.write(bytes),
            Sink::Zstd(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.sink {
            Sink::Standard(out) => out.flush(),
            Sink::Plain(file) => file.flush(),
            Sink::Gzip(encoder) => encoder.flush(),
            Sink::Zstd(encoder) => encoder.flush(),
        }
    }
}
