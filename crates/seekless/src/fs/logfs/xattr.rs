//! Extended attributes: all of one file in one piece of the log.
//!
//! Format: FORMAT.md, "Extended attributes".

use super::Log;
use super::change::{Change, Privilege};
use super::state::*;
use crate::codec;
use crate::device::Data;
use crate::fs::{FileKind, FsError, XATTR_BYTES_MAX, XATTR_CAPABILITY, XattrMode};
use crate::units::{Ino, SECTOR_BYTES};

/// Names and values of one file, encoded, fill at most this much: the largest value and room for others.
pub(in crate::fs) const BLOB_BYTES_MAX: usize = XATTR_BYTES_MAX as usize + 4096;

/// Bytes before the first attribute: the length of all.
const HEADER_BYTES: usize = 4;
/// Bytes before each name: its length, and the value's.
const LENGTHS_BYTES: usize = 5;
const NAME_BYTES_MAX: usize = 255;

type Attribute = (Vec<u8>, Vec<u8>);

/// The attributes in a stored piece, in the order of their names.
///
/// # Errors
/// What is wrong with it.
pub fn decode(blob: &[u8]) -> Result<Vec<Attribute>, &'static str> {
    let bytes = codec::get_at::<u32>(blob, 0).ok_or("it is too short")? as usize;
    let mut rest = blob.get(HEADER_BYTES..bytes).ok_or("its length is wrong")?;
    let mut attributes: Vec<Attribute> = Vec::new();
    while !rest.is_empty() {
        let name_bytes = usize::from(rest[0]);
        let value_bytes = codec::get_at::<u32>(rest, 1).ok_or("an attribute is cut off")? as usize;
        let name = rest.get(LENGTHS_BYTES..LENGTHS_BYTES + name_bytes).ok_or("a name is cut off")?;
        let end = (LENGTHS_BYTES + name_bytes).checked_add(value_bytes).ok_or("a value is too long")?;
        let value = rest.get(LENGTHS_BYTES + name_bytes..end).ok_or("a value is cut off")?;
        if attributes.last().is_some_and(|(last, _)| last.as_slice() >= name) {
            return Err("its names are out of order");
        }
        attributes.push((name.to_vec(), value.to_vec()));
        rest = &rest[end..];
    }
    Ok(attributes)
}

fn encode(attributes: &[Attribute]) -> Option<Data> {
    if attributes.is_empty() {
        return None;
    }
    let mut blob = vec![0; HEADER_BYTES];
    for (name, value) in attributes {
        let at = blob.len();
        blob.resize(at + LENGTHS_BYTES, 0);
        codec::put_at(&mut blob, at, name.len() as u8);
        codec::put_at(&mut blob, at + 1, value.len() as u32);
        blob.extend_from_slice(name);
        blob.extend_from_slice(value);
    }
    let bytes = blob.len() as u32;
    codec::put_at(&mut blob, 0, bytes);
    blob.resize(blob.len().next_multiple_of(SECTOR_BYTES as usize), 0);
    Some(Data::from_slice(&blob))
}

fn attributes<L: Log>(change: &mut Change<'_, L>, ino: Ino) -> Step<Vec<Attribute>> {
    match change.xattr(ino)? {
        None => Ok(Vec::new()),
        Some(blob) => decode(&blob).or_else(|detail| fail(FsError::corrupt("extended attributes", ino, detail))),
    }
}

pub(in crate::fs) fn get<L: Log>(state: &mut State<L>, ino: Ino, name: &[u8]) -> Step<Vec<u8>> {
    let all = attributes(&mut Change::new(state), ino)?;
    match all.binary_search_by(|(known, _)| known.as_slice().cmp(name)) {
        Ok(index) => Ok(all[index].1.clone()),
        Err(_) => fail(FsError::NoAttribute),
    }
}

pub(in crate::fs) fn list<L: Log>(state: &mut State<L>, ino: Ino) -> Step<Vec<Vec<u8>>> {
    Ok(attributes(&mut Change::new(state), ino)?.into_iter().map(|(name, _)| name).collect())
}

pub(in crate::fs) fn set<L: Log>(
    state: &mut State<L>,
    ino: Ino,
    name: &[u8],
    value: &[u8],
    mode: XattrMode,
) -> Step<()> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(&0) {
        return fail(FsError::Invalid("not a name of an extended attribute"));
    }
    let mut change = Change::new(state);
    let mut all = attributes(&mut change, ino)?;
    match (all.binary_search_by(|(known, _)| known.as_slice().cmp(name)), mode) {
        (Ok(_), XattrMode::Create) => return fail(FsError::Exists),
        (Err(_), XattrMode::Replace) => return fail(FsError::NoAttribute),
        (Ok(index), _) => all[index].1 = value.to_vec(),
        (Err(index), _) => all.insert(index, (name.to_vec(), value.to_vec())),
    }
    store(change, ino, &all)
}

pub(in crate::fs) fn remove<L: Log>(state: &mut State<L>, ino: Ino, name: &[u8]) -> Step<()> {
    let mut change = Change::new(state);
    let mut all = attributes(&mut change, ino)?;
    match all.binary_search_by(|(known, _)| known.as_slice().cmp(name)) {
        Ok(index) => all.remove(index),
        Err(_) => return fail(FsError::NoAttribute),
    };
    store(change, ino, &all)
}

/// Takes away the capabilities that a program has, because its data, size or owner change with `change`.
pub(in crate::fs) fn drop_capabilities<L: Log>(change: &mut Change<'_, L>, ino: Ino) -> Step<()> {
    if change.inode(ino)?.kind() == Some(FileKind::Directory) {
        return Ok(());
    }
    let mut all = attributes(change, ino)?;
    match all.binary_search_by(|(known, _)| known.as_slice().cmp(XATTR_CAPABILITY)) {
        Ok(index) => {
            all.remove(index);
            change.set_xattr(ino, encode(&all))
        }
        Err(_) => Ok(()),
    }
}

fn store<L: Log>(mut change: Change<'_, L>, ino: Ino, all: &[Attribute]) -> Step<()> {
    let bytes: usize = all.iter().map(|(name, value)| LENGTHS_BYTES + name.len() + value.len()).sum();
    if bytes + HEADER_BYTES > BLOB_BYTES_MAX {
        return fail(FsError::AttributesTooLarge(BLOB_BYTES_MAX as u32));
    }
    change.set_xattr(ino, encode(all))?;
    let now = change.now();
    change.inode_mut(ino, InodeDirt::Own)?.set_ctime(now);
    change.commit(Privilege::Ordinary)
}
