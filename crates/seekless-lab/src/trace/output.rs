//! Where a trace is written to: standard output, or a file that is compressed as its name says and that has its name
//! only once it is whole.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// A destination for [`TraceWriter`](super::TraceWriter).
pub struct Output {
    sink: Sink,
    /// Its name until it is whole, and then.
    names: Option<(PathBuf, PathBuf)>,
}

enum Sink {
    Standard(io::Stdout),
    Plain(BufWriter<File>),
    Gzip(flate2::write::GzEncoder<BufWriter<File>>),
    Zstd(zstd::Encoder<'static, BufWriter<File>>),
}

impl Output {
    pub fn standard() -> Output {
        Output { sink: Sink::Standard(io::stdout()), names: None }
    }

    /// A file: `.gz` and `.zst` are compressed.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn file(path: &Path) -> io::Result<Output> {
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let file = BufWriter::new(File::create(&partial)?);
        let sink = match path.extension().and_then(|extension| extension.to_str()) {
            Some("gz") => Sink::Gzip(flate2::write::GzEncoder::new(file, flate2::Compression::default())),
            Some("zst") => Sink::Zstd(zstd::Encoder::new(file, zstd::DEFAULT_COMPRESSION_LEVEL)?),
            _ => Sink::Plain(file),
        };
        Ok(Output { sink, names: Some((partial, path.to_owned())) })
    }

    /// Ends the file and gives it its name.
    ///
    /// # Errors
    /// Those of the file.
    pub fn finish(self) -> io::Result<()> {
        match self.sink {
            Sink::Standard(mut out) => out.flush()?,
            Sink::Plain(mut file) => file.flush()?,
            Sink::Gzip(encoder) => encoder.finish()?.flush()?,
            Sink::Zstd(encoder) => encoder.finish()?.flush()?,
        }
        match self.names {
            Some((partial, whole)) => std::fs::rename(partial, whole),
            None => Ok(()),
        }
    }
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
