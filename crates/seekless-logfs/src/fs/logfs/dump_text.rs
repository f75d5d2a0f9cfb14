//! Records as text, for dumps of a volume.

use std::fmt::Write as _;

use crate::codec::{Field, Hex};

pub(in crate::fs) fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{arguments}");
}

/// The fields of a record: numbers as numbers, long ones as bytes.
pub(in crate::fs) fn section(text: &mut String, title: &str, bytes: &[u8], fields: &[Field]) {
    line(text, format_args!("{title}"));
    for field in fields {
        let raw = &bytes[field.offset..field.offset + field.size];
        match number(raw) {
            Some(value) => line(text, format_args!("  {:24} {value} ({value:#x})", field.name)),
            None => line(text, format_args!("  {:24}\n{}", field.name, Hex(raw))),
        }
    }
}

fn number(raw: &[u8]) -> Option<u64> {
    match raw.len() {
        1 => Some(raw[0].into()),
        2 => crate::codec::get_at::<u16>(raw, 0).map(u64::from),
        4 => crate::codec::get_at::<u32>(raw, 0).map(u64::from),
        8 => crate::codec::get_at::<u64>(raw, 0),
        _ => None,
    }
}
