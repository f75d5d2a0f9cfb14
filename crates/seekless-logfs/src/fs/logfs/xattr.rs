//! Extended attributes, access-control lists among them: one contiguous record per file.
//!
//! Format: FORMAT.md, "Extended attributes".

use super::LogBackend;
use super::change::Change;
use super::demand::ReserveAccess;
use super::format::Inode;
use super::state::*;
use crate::codec;
use crate::device::Data;
use crate::fs::acl::{self, Acl, AclKind, XATTR_ACL_ACCESS, XATTR_ACL_DEFAULT};
use crate::fs::xattr::{check_new, missing};
use crate::fs::{FileKind, FsError, FsResult, PERMISSIONS, XATTR_BYTES_MAX, XATTR_CAPABILITY, XattrMode, mode_with};
use crate::units::{Ino, SECTOR_BYTES};

/// Most bytes of one file's encoded names and values: the largest value and room for others.
pub(in crate::fs) const BLOB_BYTES_MAX: usize = XATTR_BYTES_MAX as usize + 4096;

/// Bytes before the first attribute: the total length.
const HEADER_BYTES: usize = 4;
/// Bytes before each name: the lengths of the name and of the value.
const LENGTHS_BYTES: usize = 5;
const NAME_BYTES_MAX: usize = 255;

type Attribute = (Vec<u8>, Vec<u8>);

/// The attributes in a stored record, in the order of their names.
///
/// # Errors
/// What is wrong with the record.
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

/// A record of these attributes, if there are any.
fn encode(attributes: &[Attribute]) -> FsResult<Option<Data>> {
    if attributes.is_empty() {
        return Ok(None);
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
    if blob.len() > BLOB_BYTES_MAX {
        return Err(FsError::AttributesTooLarge(BLOB_BYTES_MAX as u32));
    }
    let bytes = blob.len() as u32;
    codec::put_at(&mut blob, 0, bytes);
    blob.resize(blob.len().next_multiple_of(SECTOR_BYTES as usize), 0);
    Ok(Some(Data::from_slice(&blob)))
}

fn attributes<L: LogBackend>(change: &mut Change<'_, L>, ino: Ino) -> Step<Vec<Attribute>> {
    match change.xattr(ino)? {
        None => Ok(Vec::new()),
        Some(blob) => decode(&blob).or_else(|detail| fail(FsError::corrupt("extended attributes", ino, detail))),
    }
}

pub(in crate::fs) fn get<L: LogBackend>(state: &mut State<L>, ino: Ino, name: &[u8]) -> Step<Vec<u8>> {
    let mut change = Change::new(state);
    list_kind(&mut change, ino, name)?;
    match find(&mut change, ino, name)? {
        Some(value) => Ok(value),
        None => fail(missing(name)),
    }
}

/// The value of an attribute, if it is there.
fn find<L: LogBackend>(change: &mut Change<'_, L>, ino: Ino, name: &[u8]) -> Step<Option<Vec<u8>>> {
    let mut all = attributes(change, ino)?;
    let found = all.binary_search_by(|(known, _)| known.as_slice().cmp(name));
    Ok(found.ok().map(|index| all.swap_remove(index).1))
}

/// The kind of access list that attribute `name` of `ino` is, if it is one.
fn list_kind<L: LogBackend>(change: &mut Change<'_, L>, ino: Ino, name: &[u8]) -> Step<Option<AclKind>> {
    let file = kind_of(change.inode(ino)?)?;
    Ok(AclKind::of(name, file)?)
}

pub(in crate::fs) fn list<L: LogBackend>(state: &mut State<L>, ino: Ino) -> Step<Vec<Vec<u8>>> {
    Ok(attributes(&mut Change::new(state), ino)?.into_iter().map(|(name, _)| name).collect())
}

pub(in crate::fs) fn set<L: LogBackend>(
    state: &mut State<L>,
    ino: Ino,
    name: &[u8],
    value: &[u8],
    mode: XattrMode,
) -> Step<()> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(&0) {
        return fail(FsError::Invalid("not a name of an extended attribute"));
    }
    check_new(name)?;
    let mut change = Change::new(state);
    let inode = *change.inode(ino)?;
    let set = acl::set(kind_of(&inode)?, inode.mode & PERMISSIONS, name, value)?;
    let mut all = attributes(&mut change, ino)?;
    match (all.binary_search_by(|(known, _)| known.as_slice().cmp(name)), mode, set.value) {
        (Ok(_), XattrMode::Create, _) => return fail(FsError::Exists),
        (Err(_), XattrMode::Replace, _) => return fail(FsError::NoAttribute),
        (Ok(index), _, Some(value)) => all[index].1 = value,
        (Err(index), _, Some(value)) => all.insert(index, (name.to_vec(), value)),
        (Ok(index), _, None) => drop(all.remove(index)),
        (Err(_), _, None) => {}
    }
    set_permissions(change.inode_mut(ino, InodeDirt::Own)?, set.permissions);
    store(change, ino, &all)
}

pub(in crate::fs) fn remove<L: LogBackend>(state: &mut State<L>, ino: Ino, name: &[u8]) -> Step<()> {
    let mut change = Change::new(state);
    let kind = list_kind(&mut change, ino, name)?;
    let mut all = attributes(&mut change, ino)?;
    match (all.binary_search_by(|(known, _)| known.as_slice().cmp(name)), kind) {
        (Ok(index), _) => all.remove(index),
        (Err(_), Some(_)) => return Ok(()),
        (Err(_), None) => return fail(missing(name)),
    };
    store(change, ino, &all)
}

/// The default access list of a directory, if it has one.
pub(in crate::fs) fn default_list<L: LogBackend>(change: &mut Change<'_, L>, dir: Ino) -> Step<Option<Vec<u8>>> {
    find(change, dir, XATTR_ACL_DEFAULT)
}

pub(in crate::fs) fn bad_list(ino: Ino, detail: &str) -> FsError {
    FsError::corrupt("access-control list", ino, detail)
}

/// Gives a new inode its inherited attributes, in the order of their names.
pub(in crate::fs) fn give<L: LogBackend>(
    change: &mut Change<'_, L>,
    ino: Ino,
    inherited: &[(&'static [u8], Vec<u8>)],
) -> Step<()> {
    let all: Vec<Attribute> = inherited.iter().map(|(name, value)| (name.to_vec(), value.clone())).collect();
    match encode(&all)? {
        Some(blob) => change.set_xattr(ino, Some(blob)),
        None => Ok(()),
    }
}

/// Gives the inode new permission bits, and with them its access list, if it has one (A2 of `acl`).
pub(in crate::fs) fn chmod<L: LogBackend>(change: &mut Change<'_, L>, ino: Ino, permissions: u16) -> Step<()> {
    let mut all = attributes(change, ino)?;
    if let Ok(index) = all.binary_search_by(|(known, _)| known.as_slice().cmp(XATTR_ACL_ACCESS)) {
        let list = acl::chmod(&all[index].1, permissions).or_else(|detail| fail(bad_list(ino, detail)))?;
        if list != all[index].1 {
            all[index].1 = list;
            change.set_xattr(ino, encode(&all)?)?;
        }
    }
    set_permissions(change.inode_mut(ino, InodeDirt::Own)?, permissions);
    Ok(())
}

fn set_permissions(inode: &mut Inode, permissions: u16) {
    inode.mode = mode_with(inode.mode, permissions);
}

/// Problems of the access lists among the attributes of an inode with `mode`; none when [`set`], [`chmod`] and [`give`]
/// wrote them.
pub(in crate::fs) fn list_problems(attributes: &[Attribute], mode: u16) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, value) in attributes {
        let Some(kind) = [AclKind::Access, AclKind::Default].into_iter().find(|kind| kind.xattr() == name) else {
            continue;
        };
        let problem = match Acl::from_xattr(value) {
            Err(detail) => detail.to_string(),
            Ok(acl) if kind == AclKind::Access && acl.permissions() != mode & 0o777 => {
                format!("it goes with permissions {:o}, and they are {:o}", acl.permissions(), mode & 0o777)
            }
            Ok(_) => continue,
        };
        let which = if kind == AclKind::Access { "access" } else { "default access" };
        problems.push(format!("its {which} list: {problem}"));
    }
    problems
}

/// Removes the capabilities of a program, because its data, size or owner change with `change`.
pub(in crate::fs) fn drop_capabilities<L: LogBackend>(change: &mut Change<'_, L>, ino: Ino) -> Step<()> {
    if change.inode(ino)?.kind() == Some(FileKind::Directory) {
        return Ok(());
    }
    let mut all = attributes(change, ino)?;
    match all.binary_search_by(|(known, _)| known.as_slice().cmp(XATTR_CAPABILITY)) {
        Ok(index) => {
            all.remove(index);
            change.set_xattr(ino, encode(&all)?)
        }
        Err(_) => Ok(()),
    }
}

fn store<L: LogBackend>(mut change: Change<'_, L>, ino: Ino, all: &[Attribute]) -> Step<()> {
    change.set_xattr(ino, encode(all)?)?;
    let now = change.now();
    change.inode_mut(ino, InodeDirt::Own)?.set_ctime(now);
    change.commit(ReserveAccess::User)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A check names the list that is malformed and the one that disagrees with the permission bits, and no others.
    #[test]
    fn lists_that_disagree_are_found() {
        let list = |text: &str| text.parse::<Acl>().unwrap().to_xattr();
        let attribute = |name: &[u8], value: &[u8]| (name.to_vec(), value.to_vec());
        let named = list("u::rw-,u:7:rwx,g::---,m::r--,o::---");
        let problems = |attributes: &[Attribute], mode| list_problems(attributes, mode).join("; ");
        let good =
            [attribute(XATTR_ACL_ACCESS, &named), attribute(XATTR_ACL_DEFAULT, &named), attribute(b"user.a", b"x")];
        assert_eq!(problems(&good, 0o104640), "");
        let found = problems(&good, 0o100600);
        assert_eq!(found, "its access list: it goes with permissions 640, and they are 600");
        let cut = [attribute(XATTR_ACL_DEFAULT, &named[..20])];
        assert_eq!(problems(&cut, 0o40755), "its default access list: the group does not follow the users");
    }
}
