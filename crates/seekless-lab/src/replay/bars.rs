//! Bars as text.

/// A bar as high as this part of the whole, which is not zero: one of eight characters.
pub(super) fn bar(part: u128, whole: u128) -> char {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    BARS[(part.min(whole) * 7 / whole) as usize]
}
