//! A volume as text, for developers.

use std::fmt::Write as _;

use super::format::*;
use super::group;
use super::io::read_bytes;
use super::{Volume, find_volume};
use crate::codec::{Field, Hex};
use crate::device::Device;
use crate::fs::{FsError, FsResult};

/// What to show.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Dump {
    /// The superblock.
    #[default]
    Volume,
    /// A line for each cylinder group.
    Groups,
    /// One cylinder group.
    Group(GroupNo),
    /// One inode.
    Inode(InodeNo),
    /// One fragment, as bytes.
    Fragment(FragNo),
}

/// Shows part of the volume on `device`.
///
/// # Errors
/// As [`super::info`], and `Invalid` when there is no such part.
pub async fn dump(device: &Device, what: Dump) -> FsResult<String> {
    let Volume { layout, raw, .. } = find_volume(device).await?;
    let mut text = String::new();
    let group_bytes = (layout.group_block_frags() * layout.frag_bytes) as usize;
    match what {
        Dump::Volume => section(&mut text, "superblock", &raw, Superblock::FIELDS),
        Dump::Groups => {
            for number in layout.group_numbers() {
                let bytes = read_bytes(device, layout.sector(layout.group_block(number)), group_bytes).await?;
                let Some(head) = Group::decode(&bytes) else { continue };
                let state = group::verify(&layout, number, &bytes).err().unwrap_or_default();
                line(
                    &mut text,
                    format_args!(
                        "group {number:5}  at {:10}  free: {:6} blocks {:6} fragments {:6} inodes; {:5} directories  {state}",
                        layout.group_block(number),
                        head.nbfree,
                        head.nffree,
                        head.nifree,
                        head.ndir
                    ),
                );
            }
        }
        Dump::Group(number) if number.0 < layout.groups => {
            let bytes = read_bytes(device, layout.sector(layout.group_block(number)), group_bytes).await?;
            section(&mut text, &format!("group {number}"), &bytes, Group::FIELDS);
            match group::verify(&layout, number, &bytes) {
                Err(damage) => line(&mut text, format_args!("damaged: {damage}")),
                Ok(()) => {
                    line(&mut text, format_args!("used inodes\n{}", Hex(group::inode_map(&layout, &bytes))));
                    line(&mut text, format_args!("free fragments\n{}", Hex(group::free_map(&layout, &bytes))));
                }
            }
        }
        Dump::Inode(ino) if ino < layout.ino_end() => {
            let (at, offset) = layout.inode_place(ino);
            let bytes = read_bytes(device, layout.sector(at), layout.block_bytes as usize).await?;
            section(&mut text, &format!("inode {ino}"), &bytes[offset..], Inode::FIELDS);
        }
        Dump::Fragment(at) if at < layout.end() => {
            let bytes = read_bytes(device, layout.sector(at), layout.frag_bytes as usize).await?;
            line(&mut text, format_args!("{}", Hex(&bytes)));
        }
        _ => return Err(FsError::Invalid("there is no such part of the volume")),
    }
    Ok(text)
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{arguments}");
}

/// The fields of a record: numbers as numbers, others as bytes, and runs of zeroes as one word.
fn section(text: &mut String, title: &str, bytes: &[u8], fields: &[Field]) {
    line(text, format_args!("{title}"));
    for field in fields {
        let raw = &bytes[field.offset..field.offset + field.size];
        let value = match raw.len() {
            1 => Some(raw[0].into()),
            2 => crate::codec::get_at::<u16>(raw, 0).map(u64::from),
            4 => crate::codec::get_at::<u32>(raw, 0).map(u64::from),
            8 => crate::codec::get_at::<u64>(raw, 0),
            _ => None,
        };
        match value {
            Some(value) => line(text, format_args!("  {:24} {value} ({value:#x})", field.name)),
            None if raw.iter().all(|&byte| byte == 0) => line(text, format_args!("  {:24} zeroes", field.name)),
            None => line(text, format_args!("  {:24}\n{}", field.name, Hex(raw))),
        }
    }
}
