//! Requests cut into blocks, and the blocks permuted: [st05]'s "stupid" version of a trace.

use seekless::volume::Permutation;

use crate::trace::{Op, Request, TraceError};

/// Requests of `inner`, cut at the borders of blocks. Every piece is a whole block and a separate request: in a window,
/// each piece waits separately [st05 §3].
///
/// Invariants
///   B1  The pieces of a request follow each other, in ascending order before the permutation.
///       A discard has only the blocks that it covers: what is beside it in a block still holds data.
///   B2  Blocks of the permuted part stay in it; those behind it are not moved.
pub struct Blocks<I> {
    inner: I,
    /// Zero when requests stay whole.
    block: u64,
    permutation: Option<Permutation>,
    /// The rest of the current request.
    rest: Option<Request>,
}

impl<I: Iterator<Item = Result<Request, TraceError>>> Blocks<I> {
    /// `permute` is the seed and the number of bytes, from the start of the device, within which blocks are permuted.
    ///
    /// # Errors
    /// When blocks have no size, or there is less than one to permute.
    pub fn new(inner: I, block: Option<u64>, permute: Option<(u64, u64)>) -> Result<Blocks<I>, String> {
        let permutation = match (block, permute) {
            (Some(0), _) => return Err("a block has at least one byte".into()),
            (None, Some(_)) => return Err("without a size of blocks, they cannot be permuted".into()),
            (Some(block), Some((_, bytes))) if bytes < block => {
                return Err(format!("there is no block of {block} bytes in {bytes} bytes"));
            }
            (Some(block), Some((seed, bytes))) => Some(Permutation::new(bytes / block, seed)),
            (_, None) => None,
        };
        Ok(Blocks { inner, block: block.unwrap_or(0), permutation, rest: None })
    }

    /// What is to be cut of `request`: of a discard, the blocks that it covers, if there are any.
    fn covered(&self, request: Request) -> Option<Request> {
        if self.block == 0 || request.op != Op::Discard {
            return Some(request);
        }
        let offset = request.offset.checked_next_multiple_of(self.block)?;
        let bytes = (request.end() / self.block * self.block).checked_sub(offset).filter(|bytes| *bytes > 0)?;
        Some(Request { offset, bytes, ..request })
    }

    /// Takes the first block off `request`, of which the rest is kept.
    fn cut(&mut self, request: Request) -> Request {
        let start = request.offset / self.block * self.block;
        let end = start.saturating_add(self.block);
        if request.end() > end {
            self.rest = Some(Request { offset: end, bytes: request.end() - end, ..request });
        }
        let index = start / self.block;
        let index = match &self.permutation {
            Some(permutation) if index < permutation.count() => permutation.forward(index),
            _ => index,
        };
        Request { offset: index * self.block, bytes: self.block, ..request }
    }
}

impl<I: Iterator<Item = Result<Request, TraceError>>> Iterator for Blocks<I> {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        let request = match self.rest.take() {
            Some(rest) => rest,
            None => loop {
                match self.inner.next()? {
                    Ok(request) => {
                        if let Some(request) = self.covered(request) {
                            break request;
                        }
                    }
                    error => return Some(error),
                }
            },
        };
        let is_whole = self.block == 0 || request.op == Op::Flush;
        Some(Ok(if is_whole { request } else { self.cut(request) }))
    }
}

#[cfg(test)]
mod tests {
    use seekless::units::Nanos;

    use super::*;

    /// Every byte of a request is in one of its blocks, blocks are whole, and with a permutation as many distinct
    /// blocks are requested, all within the part. Method: requests of all alignments.
    #[test]
    fn requests_are_cut_into_blocks() {
        let requests = || (0..100_u64).map(|n| Ok(Request::new(Nanos(n), Op::Read, n * 700, 1 + n * 97)));
        let cut = |permute| -> Vec<Request> {
            Blocks::new(requests(), Some(4096), permute).unwrap().map(Result::unwrap).collect()
        };
        let plain = cut(None);
        let expected: u64 = requests().map(Result::unwrap).map(|r| (r.end() - 1) / 4096 - r.offset / 4096 + 1).sum();
        assert_eq!(plain.len() as u64, expected);
        assert!(plain.iter().all(|piece| piece.bytes == 4096 && piece.offset.is_multiple_of(4096)));
        let size = 100_000_u64;
        let permuted = cut(Some((7, size)));
        assert_eq!(permuted.len(), plain.len());
        let distinct =
            |pieces: &[Request]| pieces.iter().map(|piece| piece.offset).collect::<std::collections::BTreeSet<u64>>();
        assert_eq!(distinct(&plain).len(), distinct(&permuted).len());
        for (one, other) in plain.iter().zip(&permuted) {
            let is_inside = one.offset / 4096 < size / 4096;
            assert!(if is_inside { other.offset / 4096 < size / 4096 } else { one == other });
        }
        assert!(plain.iter().zip(&permuted).any(|(one, other)| one != other));
    }

    /// A discard has only the blocks that it covers, and may have none.
    #[test]
    fn discards_are_cut_inwards() {
        let discards = [(512, 512), (512, 12_288), (4096, 8192), (0, 4095)];
        let discards = discards.map(|(offset, bytes)| Ok(Request::new(Nanos(0), Op::Discard, offset, bytes)));
        let pieces = Blocks::new(discards.into_iter(), Some(4096), None).unwrap().map(Result::unwrap);
        let pieces: Vec<(u64, u64)> = pieces.map(|piece| (piece.offset, piece.bytes)).collect();
        assert_eq!(pieces, [(4096, 4096), (8192, 4096), (4096, 4096), (8192, 4096)]);
    }

    /// Whole requests pass unchanged, and contradictions are refused.
    #[test]
    fn whole_requests_pass() {
        let request = Request::new(Nanos(1), Op::Write, 100, 10_000);
        let same: Vec<Request> =
            Blocks::new([Ok(request)].into_iter(), None, None).unwrap().map(Result::unwrap).collect();
        assert_eq!(same, [request]);
        let none = || std::iter::empty::<Result<Request, TraceError>>();
        assert!(Blocks::new(none(), None, Some((1, 1 << 20))).is_err());
        assert!(Blocks::new(none(), Some(0), None).is_err());
        assert!(Blocks::new(none(), Some(4096), Some((1, 4095))).is_err());
    }
}
