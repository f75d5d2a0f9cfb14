//! An input, read as numbers and choices.

/// Takes values off an input. Past its end everything is zero, so that every input is valid and a longer one extends a
/// shorter one.
#[derive(Clone, Debug)]
pub struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    pub fn new(input: &'a [u8]) -> Bytes<'a> {
        Bytes(input)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Up to `count` bytes.
    pub fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn number(&mut self, bytes: usize) -> u64 {
        self.take(bytes).iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
    }

    pub fn u8(&mut self) -> u8 {
        self.number(1) as u8
    }

    pub fn u16(&mut self) -> u16 {
        self.number(2) as u16
    }

    pub fn u32(&mut self) -> u32 {
        self.number(4) as u32
    }

    pub fn u64(&mut self) -> u64 {
        self.number(8)
    }

    /// A number below `bound`, which is positive, from as few bytes as hold it.
    pub fn below(&mut self, bound: u64) -> u64 {
        let bytes = (u64::BITS - (bound - 1).leading_zeros()).div_ceil(8).max(1);
        self.number(bytes as usize) % bound
    }

    /// One of `items`.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }

    /// A number that is often a boundary value.
    pub fn edge(&mut self) -> u64 {
        const EDGES: [u64; 8] = [0, 1, 7, 511, 4095, 0x7fff_ffff, 0x7fff_ffff_ffff_ffff, u64::MAX];
        let shape = self.u8();
        match shape % 4 {
            0 => EDGES[usize::from(shape / 4) % EDGES.len()],
            1 => EDGES[usize::from(shape / 4) % EDGES.len()].wrapping_add(self.u8().into()),
            2 => u64::from(self.u16()),
            _ => self.u64(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Aim: every input is valid. Method: an input is read to its end, and beyond.
    #[test]
    fn inputs_run_out_softly() {
        let mut bytes = Bytes::new(&[1, 2, 3, 4]);
        assert_eq!((bytes.u8(), bytes.u16()), (1, 0x0302));
        assert_eq!((bytes.u32(), bytes.u64(), bytes.below(7)), (4, 0, 0));
        assert!(bytes.is_empty() && bytes.take(10).is_empty());
        let mut bytes = Bytes::new(&[0xff, 0x01, 0x02, 9, 9]);
        assert_eq!((bytes.below(256), bytes.below(257)), (255, 0x0201 % 257));
        assert_eq!(bytes.take(2), [9, 9]);
    }
}
