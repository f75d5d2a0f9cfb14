//! The first stage of requests: the readers of all inputs, merged by time.

use seekless::units::Nanos;

use super::TraceError;
use super::import::Import;
use super::request::Request;
use super::text::{BATCH, Reader};

/// One input with its reader.
struct Source {
    name: String,
    reader: Box<dyn Reader>,
    batch: Vec<Request>,
    at: usize,
    ended: bool,
}

impl Source {
    /// Time of the next request; `None` at the end.
    fn peek(&mut self) -> Result<Option<Nanos>, TraceError> {
        while self.at == self.batch.len() {
            if self.ended {
                return Ok(None);
            }
            self.batch.clear();
            self.at = 0;
            self.ended = !self.reader.fill(&mut self.batch)?;
        }
        Ok(Some(self.batch[self.at].time))
    }
}

/// The requests of all inputs, in the order of time as far as each input is.
pub(super) struct Merge {
    sources: Vec<Source>,
}

impl Merge {
    /// `readers` are the names of the inputs and their readers.
    pub(super) fn new(readers: impl Iterator<Item = (String, Box<dyn Reader>)>) -> Merge {
        let source = |(name, reader)| Source { name, reader, batch: Vec::new(), at: 0, ended: false };
        Merge { sources: readers.map(source).collect() }
    }

    /// Appends some requests to `out`; false at the end. May append none before the end.
    ///
    /// # Errors
    /// When an input cannot be read.
    pub(super) fn fill(&mut self, out: &mut Vec<Request>) -> Result<bool, TraceError> {
        if let [source] = &mut self.sources[..] {
            return source.reader.fill(out);
        }
        let full = out.len() + BATCH;
        while out.len() < full {
            let mut first: Option<(Nanos, usize)> = None;
            for (index, source) in self.sources.iter_mut().enumerate() {
                if let Some(time) = source.peek()?
                    && first.is_none_or(|(earliest, _)| time < earliest)
                {
                    first = Some((time, index));
                }
            }
            let Some((_, index)) = first else { return Ok(false) };
            let source = &mut self.sources[index];
            out.push(source.batch[source.at]);
            source.at += 1;
        }
        Ok(true)
    }

    /// The inputs, with commas between.
    pub(super) fn names(&self) -> String {
        self.sources.iter().map(|source| source.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    pub(super) fn report(&self, import: &mut Import) {
        import.files = self.sources.iter().map(|source| source.name.clone()).collect();
        import.by_line = true;
        for source in &self.sources {
            import.add(source.reader.tallies());
        }
    }
}
