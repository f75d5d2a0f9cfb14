//! Access-control lists as on Linux, after the withdrawn draft 17 of POSIX.1e: what an inode grants to further users
//! and groups, and what new inodes inherit from their directory.
//!
//! A list is stored in an extended attribute of its inode, in the form of `linux/posix_acl_xattr.h`. The code that
//! checks rights reads it there; on a mount that is the kernel. A file system keeps lists and permission bits in
//! agreement. This module computes how: [`set`] for setting an attribute, [`chmod`] for changing the permission bits,
//! [`inherit`] for making an inode. The file system applies each result in one step.
//!
//! Invariants
//!   A1  An [`Acl`] has an entry for its owner, its group and all others, and a mask if it has any for named users or
//!       groups.
//!   A2  The permission bits of an inode with an access list are those of the list: the owner's and the others'
//!       entries, and for the group the mask, or without one the group's entry.
//!   A3  An access list that permission bits can express is not stored.

use std::fmt;
use std::iter::Peekable;
use std::str::FromStr;

use super::{FileKind, FsError, FsResult, NewNode};
use crate::codec;

/// The attribute with the list by which rights to the inode are checked.
pub const XATTR_ACL_ACCESS: &[u8] = b"system.posix_acl_access";

/// The attribute with the default list of a directory, which new inodes in it inherit.
pub const XATTR_ACL_DEFAULT: &[u8] = b"system.posix_acl_default";

/// Prefix of the system's own attributes.
const SYSTEM: &[u8] = b"system.";

/// What a list is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AclKind {
    Access,
    Default,
}

impl AclKind {
    /// The attribute that holds such a list.
    pub fn xattr(self) -> &'static [u8] {
        match self {
            AclKind::Access => XATTR_ACL_ACCESS,
            AclKind::Default => XATTR_ACL_DEFAULT,
        }
    }

    /// The kind of list that the attribute `name` of a `file` holds, or `None` when the attribute is not a list.
    ///
    /// # Errors
    /// `Unsupported` for a list of a symbolic link, which has no rights of its own, and for all other `system.`
    /// attributes.
    pub fn of(name: &[u8], file: FileKind) -> FsResult<Option<AclKind>> {
        match name {
            name if !name.starts_with(SYSTEM) => Ok(None),
            _ if file == FileKind::Symlink => Err(FsError::Unsupported),
            XATTR_ACL_ACCESS => Ok(Some(AclKind::Access)),
            XATTR_ACL_DEFAULT => Ok(Some(AclKind::Default)),
            _ => Err(FsError::Unsupported),
        }
    }
}

/// A list. Rights are the three bits of a permission triple: 4 to read, 2 to write, 1 to execute.
///
/// Linux requires no order among named users, and accepts duplicates (the first entry counts); so does this type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acl {
    owner: u16,
    users: Vec<(u32, u16)>,
    group: u16,
    groups: Vec<(u32, u16)>,
    mask: Option<u16>,
    other: u16,
}

const VERSION: u32 = 2;
const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;

// Tags of entries, `ACL_*` of `linux/posix_acl.h`.
const TAG_OWNER: u16 = 0x01;
const TAG_USER: u16 = 0x02;
const TAG_GROUP: u16 = 0x04;
const TAG_NAMED_GROUP: u16 = 0x08;
const TAG_MASK: u16 = 0x10;
const TAG_OTHER: u16 = 0x20;

/// The id of an entry that has none (`ACL_UNDEFINED_ID`).
const NO_ID: u32 = u32::MAX;

const RIGHTS: u16 = 0o7;

struct Entry {
    tag: u16,
    rights: u16,
    id: u32,
}

/// Takes entries off the front of a list.
struct Entries<I: Iterator<Item = Entry>>(Peekable<I>);

impl<I: Iterator<Item = Entry>> Entries<I> {
    fn one(&mut self, tag: u16) -> Option<u16> {
        self.0.next_if(|entry| entry.tag == tag).map(|entry| entry.rights)
    }

    fn named(&mut self, tag: u16) -> Result<Vec<(u32, u16)>, &'static str> {
        let mut all = Vec::new();
        while let Some(Entry { rights, id, .. }) = self.0.next_if(|entry| entry.tag == tag) {
            if id == NO_ID {
                return Err("an entry for a named user or group has no id");
            }
            all.push((id, rights));
        }
        Ok(all)
    }
}

impl Acl {
    /// The list in the value of an attribute.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_xattr(value: &[u8]) -> Result<Acl, &'static str> {
        if codec::get_at::<u32>(value, 0) != Some(VERSION) {
            return Err("it is not of version 2");
        }
        let (entries, rest) = value[HEADER_BYTES..].as_chunks::<ENTRY_BYTES>();
        if !rest.is_empty() {
            return Err("its last entry is cut off");
        }
        Acl::from_entries(entries.iter().map(|entry| Entry {
            tag: codec::get_at(entry, 0).unwrap_or_default(),
            rights: codec::get_at(entry, 2).unwrap_or_default(),
            id: codec::get_at(entry, 4).unwrap_or_default(),
        }))
    }

    fn from_entries(entries: impl Iterator<Item = Entry>) -> Result<Acl, &'static str> {
        let mut entries = Entries(entries.peekable());
        let owner = entries.one(TAG_OWNER).ok_or("it does not begin with the owner")?;
        let users = entries.named(TAG_USER)?;
        let group = entries.one(TAG_GROUP).ok_or("the group does not follow the users")?;
        let groups = entries.named(TAG_NAMED_GROUP)?;
        let mask = entries.one(TAG_MASK);
        let other = entries.one(TAG_OTHER).ok_or("it does not end with a mask and the others")?;
        if entries.0.next().is_some() {
            return Err("it continues after the others");
        }
        if mask.is_none() && !(users.is_empty() && groups.is_empty()) {
            return Err("it names users or groups and has no mask");
        }
        let acl = Acl { owner, users, group, groups, mask, other };
        let all_rights = acl.entries().fold(0, |all, entry| all | entry.rights);
        if all_rights & !RIGHTS != 0 { Err("it has unknown permissions") } else { Ok(acl) }
    }

    fn entries(&self) -> impl Iterator<Item = Entry> {
        let one = |tag, rights| Entry { tag, rights, id: NO_ID };
        let named = |tag, all: &[(u32, u16)]| -> Vec<Entry> {
            all.iter().map(|&(id, rights)| Entry { tag, rights, id }).collect()
        };
        let owner = std::iter::once(one(TAG_OWNER, self.owner)).chain(named(TAG_USER, &self.users));
        let group = std::iter::once(one(TAG_GROUP, self.group)).chain(named(TAG_NAMED_GROUP, &self.groups));
        let mask = self.mask.map(|rights| one(TAG_MASK, rights));
        owner.chain(group).chain(mask).chain(std::iter::once(one(TAG_OTHER, self.other)))
    }

    /// The value of the attribute.
    pub fn to_xattr(&self) -> Vec<u8> {
        let mut value = vec![0; HEADER_BYTES];
        codec::put_at(&mut value, 0, VERSION);
        for Entry { tag, rights, id } in self.entries() {
            let at = value.len();
            value.resize(at + ENTRY_BYTES, 0);
            codec::put_at(&mut value, at, tag);
            codec::put_at(&mut value, at + 2, rights);
            codec::put_at(&mut value, at + 4, id);
        }
        value
    }

    /// The permission bits that go with the list (A2).
    pub fn permissions(&self) -> u16 {
        self.owner << 6 | self.mask.unwrap_or(self.group) << 3 | self.other
    }

    /// True when the list says no more than its permission bits (A3).
    pub fn is_minimal(&self) -> bool {
        self.mask.is_none()
    }

    /// The entries that go with the bits for owner, group and others.
    fn classes(&mut self) -> [&mut u16; 3] {
        [&mut self.owner, self.mask.as_mut().unwrap_or(&mut self.group), &mut self.other]
    }

    /// Applies new permission bits, as chmod(2) does.
    pub fn set_permissions(&mut self, permissions: u16) {
        for (rights, shift) in self.classes().into_iter().zip([6, 3, 0]) {
            *rights = permissions >> shift & RIGHTS;
        }
    }

    /// Removes the rights that `permissions` lack, as making an inode does.
    fn restrict(&mut self, permissions: u16) {
        for (rights, shift) in self.classes().into_iter().zip([6, 3, 0]) {
            *rights &= permissions >> shift;
        }
    }
}

/// Result of setting an attribute of an inode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Set {
    /// The new permissions, with the bits that are not rights unchanged.
    pub permissions: u16,
    /// The attribute's new value; `None` to remove the attribute.
    pub value: Option<Vec<u8>>,
}

/// Sets the attribute `name`, of any namespace, of a `file` that has `permissions`.
///
/// # Errors
/// `Invalid` for a value that is not a list, `NotPermitted` for a default list on anything but a directory, and those
/// of [`AclKind::of`].
pub fn set(file: FileKind, permissions: u16, name: &[u8], value: &[u8]) -> FsResult<Set> {
    let Some(kind) = AclKind::of(name, file)? else {
        return Ok(Set { permissions, value: Some(value.to_vec()) });
    };
    if kind == AclKind::Default && file != FileKind::Directory {
        return Err(FsError::NotPermitted);
    }
    let acl = Acl::from_xattr(value).map_err(|_| FsError::Invalid("not an access-control list"))?;
    Ok(match kind {
        AclKind::Default => Set { permissions, value: Some(acl.to_xattr()) },
        AclKind::Access => Set {
            permissions: permissions & !0o777 | acl.permissions(),
            value: (!acl.is_minimal()).then(|| acl.to_xattr()),
        },
    })
}

/// The access list `value` after its inode got `permissions`.
///
/// # Errors
/// What is wrong with the list.
pub fn chmod(value: &[u8], permissions: u16) -> Result<Vec<u8>, &'static str> {
    let mut acl = Acl::from_xattr(value)?;
    acl.set_permissions(permissions);
    Ok(acl.to_xattr())
}

/// What a new inode inherits from its directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inherited {
    pub permissions: u16,
    /// Attributes with their values, in the order of their names.
    pub xattrs: Vec<(&'static [u8], Vec<u8>)>,
}

/// What `new`, a `file`, inherits from a directory whose default list is `default`. A default list replaces the umask.
///
/// # Errors
/// What is wrong with the list.
pub fn inherit(default: Option<&[u8]>, file: FileKind, new: NewNode) -> Result<Inherited, &'static str> {
    if file == FileKind::Symlink {
        return Ok(Inherited { permissions: new.permissions, xattrs: Vec::new() });
    }
    let Some(default) = default else {
        return Ok(Inherited { permissions: new.masked(), xattrs: Vec::new() });
    };
    let mut acl = Acl::from_xattr(default)?;
    let mut xattrs = Vec::new();
    if file == FileKind::Directory {
        xattrs.push((XATTR_ACL_DEFAULT, acl.to_xattr()));
    }
    acl.restrict(new.permissions);
    if !acl.is_minimal() {
        xattrs.insert(0, (XATTR_ACL_ACCESS, acl.to_xattr()));
    }
    Ok(Inherited { permissions: new.permissions & !0o777 | acl.permissions(), xattrs })
}

/// The short text form of acl(5): `u::rw-,u:1000:rwx,g::r--,m::rwx,o::---`.
impl fmt::Display for Acl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, Entry { tag, rights, id }) in self.entries().enumerate() {
            let who = match tag {
                TAG_OWNER | TAG_USER => 'u',
                TAG_GROUP | TAG_NAMED_GROUP => 'g',
                TAG_MASK => 'm',
                _ => 'o',
            };
            let comma = if number > 0 { "," } else { "" };
            let id = if id == NO_ID { String::new() } else { id.to_string() };
            let right = |bit, letter| if rights & bit != 0 { letter } else { '-' };
            write!(f, "{comma}{who}:{id}:{}{}{}", right(4, 'r'), right(2, 'w'), right(1, 'x'))?;
        }
        Ok(())
    }
}

impl FromStr for Acl {
    type Err = String;

    fn from_str(text: &str) -> Result<Acl, String> {
        let entry = |word: &str| -> Option<Entry> {
            let mut parts = word.splitn(3, ':');
            let (who, id, letters) = (parts.next()?, parts.next()?, parts.next()?);
            let (tag, id) = match (who, id) {
                ("u", "") => (TAG_OWNER, NO_ID),
                ("u", id) => (TAG_USER, id.parse().ok()?),
                ("g", "") => (TAG_GROUP, NO_ID),
                ("g", id) => (TAG_NAMED_GROUP, id.parse().ok()?),
                ("m", "") => (TAG_MASK, NO_ID),
                ("o", "") => (TAG_OTHER, NO_ID),
                _ => return None,
            };
            let mut rights = 0;
            for ((letter, wanted), bit) in letters.chars().zip("rwx".chars()).zip([4, 2, 1]) {
                rights |= match letter {
                    '-' => 0,
                    letter if letter == wanted => bit,
                    _ => return None,
                };
            }
            (letters.len() == 3).then_some(Entry { tag, rights, id })
        };
        let entries: Option<Vec<Entry>> = text.split(',').map(entry).collect();
        let entries = entries.ok_or(format!("{text:?} has an entry that is not like u:1000:rw-"))?;
        Acl::from_entries(entries.into_iter()).map_err(|problem| format!("the list {text:?}: {problem}"))
    }
}

#[cfg(test)]
mod tests {
    //! Aim: lists behave as POSIX.1e and acl(5) say, and no bytes do harm. Method: cases written by hand; the
    //! comparison of the model with directories of the host shows that Linux agrees.

    use super::*;
    use crate::rng::Rng;

    fn acl(text: &str) -> Acl {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    fn bytes(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut value = vec![2, 0, 0, 0];
        for (tag, rights, id) in entries {
            value.extend(tag.to_le_bytes());
            value.extend(rights.to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        value
    }

    const NONE: u32 = u32::MAX;
    const OWNER: (u16, u16, u32) = (1, 7, NONE);
    const USER: (u16, u16, u32) = (2, 5, 1001);
    const GROUP: (u16, u16, u32) = (4, 4, NONE);
    const NAMED_GROUP: (u16, u16, u32) = (8, 6, 50);
    const MASK: (u16, u16, u32) = (16, 7, NONE);
    const OTHER: (u16, u16, u32) = (32, 0, NONE);

    /// The bytes are those that `getfattr -e hex -n system.posix_acl_access` shows on ext4, after
    /// `setfacl --set u::rwx,u:1001:r-x,g::r--,g:50:rw-,m::rwx,o::- file`.
    #[test]
    fn the_form_is_that_of_linux() {
        let shown = "02000000 01000700ffffffff 02000500e9030000 04000400ffffffff 0800060032000000 10000700ffffffff 20000000ffffffff";
        let digits: Vec<u8> = shown.bytes().filter(|byte| *byte != b' ').collect();
        let digit = |byte: u8| (byte as char).to_digit(16).unwrap() as u8;
        let value: Vec<u8> = digits.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect();
        let list = acl("u::rwx,u:1001:r-x,g::r--,g:50:rw-,m::rwx,o::---");
        assert_eq!(list.to_xattr(), value);
        assert_eq!(Acl::from_xattr(&value), Ok(list));
    }

    /// Exactly what Linux accepts is accepted.
    #[test]
    fn lists_are_checked() {
        let good: &[&[(u16, u16, u32)]] = &[
            &[OWNER, GROUP, OTHER],
            &[OWNER, GROUP, MASK, OTHER],
            &[OWNER, USER, GROUP, MASK, OTHER],
            &[OWNER, GROUP, NAMED_GROUP, MASK, OTHER],
            &[OWNER, USER, (2, 7, 5), USER, GROUP, NAMED_GROUP, MASK, OTHER],
            // Ids of entries that have none are ignored.
            &[(1, 7, 3), (4, 4, 0), (32, 0, 9)],
            &[OWNER, (2, 0, 0), GROUP, (16, 0, NONE), OTHER],
        ];
        for entries in good {
            let list = Acl::from_xattr(&bytes(entries)).unwrap_or_else(|problem| panic!("{entries:?}: {problem}"));
            assert_eq!(Acl::from_xattr(&list.to_xattr()), Ok(list.clone()));
            assert_eq!(list.to_string().parse(), Ok(list));
        }
        /// Tag, rights, id.
        type Raw = (u16, u16, u32);
        let bad: &[(&[Raw], &str)] = &[
            (&[], "begin"),
            (&[OWNER], "group"),
            (&[OWNER, GROUP], "end"),
            (&[GROUP, OWNER, OTHER], "begin"),
            (&[OWNER, OWNER, GROUP, OTHER], "group"),
            (&[OWNER, GROUP, GROUP, OTHER], "end"),
            (&[OWNER, GROUP, OTHER, OTHER], "after the others"),
            (&[OWNER, GROUP, OTHER, MASK], "after the others"),
            (&[OWNER, GROUP, MASK, MASK, OTHER], "end"),
            (&[OWNER, USER, GROUP, OTHER], "no mask"),
            (&[OWNER, GROUP, NAMED_GROUP, OTHER], "no mask"),
            (&[OWNER, GROUP, USER, MASK, OTHER], "end"),
            (&[OWNER, NAMED_GROUP, GROUP, MASK, OTHER], "group"),
            (&[OWNER, (2, 5, NONE), GROUP, MASK, OTHER], "no id"),
            (&[(1, 8, NONE), GROUP, OTHER], "permissions"),
            (&[OWNER, (2, 0x4000, 1), GROUP, MASK, OTHER], "permissions"),
            (&[OWNER, (64, 0, NONE), GROUP, OTHER], "group"),
        ];
        for (entries, word) in bad {
            let problem = Acl::from_xattr(&bytes(entries)).expect_err("a bad list");
            assert!(problem.contains(word), "{entries:?}: {problem}");
        }
        let whole = bytes(&[OWNER, USER, GROUP, MASK, OTHER]);
        for end in 0..whole.len() {
            assert!(Acl::from_xattr(&whole[..end]).is_err(), "{end} bytes");
        }
        assert!(Acl::from_xattr(&[&[1, 0, 0, 0][..], &whole[4..]].concat()).is_err(), "version 1");
    }

    /// No bytes cause a panic, and what is accepted is written as it was read, except for ids of entries that have
    /// none.
    #[test]
    fn any_bytes_are_read() {
        let mut rng = Rng::new(1);
        let mut accepted = 0;
        for _ in 0..200_000 {
            let mut value = bytes(&[]);
            for _ in 0..rng.below(7) {
                let tag = *rng.pick(&[1, 2, 4, 8, 16, 32, 32, 3, 0]);
                value.extend(bytes(&[(tag, rng.below(9) as u16, rng.below(3) as u32)]).split_off(4));
            }
            if rng.chance(1, 8) {
                let at = rng.below(value.len() as u64) as usize;
                value[at] = rng.below(256) as u8;
            }
            value.truncate(if rng.chance(1, 8) { rng.below(60) as usize } else { value.len() });
            if let Ok(list) = Acl::from_xattr(&value) {
                accepted += 1;
                assert_eq!(list.to_xattr().len(), value.len());
                assert_eq!(Acl::from_xattr(&list.to_xattr()), Ok(list));
            }
        }
        assert!(accepted > 50, "{accepted}");
    }

    /// Setting an access list sets the permission bits; a list that says no more than those bits is not kept (A2, A3).
    #[test]
    fn setting_a_list_sets_permissions() {
        let set_access =
            |text: &str| set(FileKind::Regular, 0o4640, XATTR_ACL_ACCESS, &acl(text).to_xattr()).expect("a list");
        let kept = |permissions, text: &str| Set { permissions, value: Some(acl(text).to_xattr()) };
        let gone = |permissions| Set { permissions, value: None };
        assert_eq!(set_access("u::rwx,g::r-x,o::--x"), gone(0o4751));
        // The mask represents the group, whether it grants more or less than the group's own entry.
        for text in ["u::rw-,u:7:rwx,g::r--,m::-w-,o::---", "u::rw-,u:7:rwx,g::rwx,m::-w-,o::---"] {
            assert_eq!(set_access(text), kept(0o4620, text));
        }
        // A mask makes a list more than permission bits.
        assert_eq!(set_access("u::r--,g::r--,m::rwx,o::---"), kept(0o4470, "u::r--,g::r--,m::rwx,o::---"));
        // A default list does not affect rights to the directory itself.
        let minimal = acl("u::rwx,g::---,o::---").to_xattr();
        let default = set(FileKind::Directory, 0o755, XATTR_ACL_DEFAULT, &minimal);
        assert_eq!(default, Ok(Set { permissions: 0o755, value: Some(minimal.clone()) }));
        // Which kinds of inode have which attributes.
        assert_eq!(set(FileKind::Regular, 0o644, XATTR_ACL_DEFAULT, &minimal), Err(FsError::NotPermitted));
        assert_eq!(set(FileKind::Symlink, 0o777, XATTR_ACL_ACCESS, &minimal), Err(FsError::Unsupported));
        assert_eq!(set(FileKind::Symlink, 0o777, XATTR_ACL_DEFAULT, &minimal), Err(FsError::Unsupported));
        assert_eq!(set(FileKind::Regular, 0o644, b"system.nfs4_acl", b"x"), Err(FsError::Unsupported));
        assert!(matches!(set(FileKind::Fifo, 0o644, XATTR_ACL_ACCESS, b"\x02\0\0\0"), Err(FsError::Invalid(_))));
        let other = set(FileKind::Symlink, 0o777, b"trusted.a", b"x");
        assert_eq!(other, Ok(Set { permissions: 0o777, value: Some(b"x".to_vec()) }));
    }

    /// chmod changes owner, others, and the mask, or the group where there is no mask.
    #[test]
    fn chmod_changes_the_list() {
        let chmod = |text: &str, permissions| {
            Acl::from_xattr(&chmod(&acl(text).to_xattr(), permissions).expect("a list")).expect("a list").to_string()
        };
        let before = "u::rwx,u:7:rwx,g::r-x,g:8:-w-,m::rwx,o::r--";
        assert_eq!(chmod(before, 0o640), "u::rw-,u:7:rwx,g::r-x,g:8:-w-,m::r--,o::---");
        assert_eq!(chmod(before, 0o7000), "u::---,u:7:rwx,g::r-x,g:8:-w-,m::---,o::---");
        assert_eq!(chmod("u::r--,g::rwx,o::r--", 0o713), "u::rwx,g::--x,o::-wx");
        assert!(super::chmod(b"nonsense", 0o644).is_err());
    }

    /// A default list replaces the umask: a new inode gets it, less the rights that its creator did not ask for.
    #[test]
    fn default_lists_are_inherited() {
        let new = NewNode { permissions: 0o1667, umask: 0o77, uid: 1, gid: 1 };
        let inherit = |default: Option<&str>, file| {
            let value = default.map(|text| acl(text).to_xattr());
            let inherited = inherit(value.as_deref(), file, new).expect("a list");
            let text = |value: &Vec<u8>| Acl::from_xattr(value).expect("a list").to_string();
            let lists: Vec<_> = inherited.xattrs.iter().map(|(name, value)| (*name, text(value))).collect();
            (inherited.permissions, lists)
        };
        assert_eq!(inherit(None, FileKind::Regular), (0o1600, vec![]));
        assert_eq!(inherit(None, FileKind::Directory), (0o1600, vec![]));
        let named = "u::rwx,u:7:rwx,g::r-x,m::rwx,o::r-x";
        let access = (XATTR_ACL_ACCESS, "u::rw-,u:7:rwx,g::r-x,m::rw-,o::r-x".to_string());
        assert_eq!(inherit(Some(named), FileKind::Regular), (0o1665, vec![access.clone()]));
        let default = (XATTR_ACL_DEFAULT, named.to_string());
        assert_eq!(inherit(Some(named), FileKind::Directory), (0o1665, vec![access, default]));
        // A default list that says no more than permission bits gives only permission bits.
        let minimal = "u::rwx,g::r--,o::--x";
        assert_eq!(inherit(Some(minimal), FileKind::Socket), (0o1641, vec![]));
        let default = (XATTR_ACL_DEFAULT, minimal.to_string());
        assert_eq!(inherit(Some(minimal), FileKind::Directory), (0o1641, vec![default]));
        // The rights of a symbolic link are its target's.
        assert_eq!(inherit(Some(named), FileKind::Symlink), (0o1667, vec![]));
        assert!(super::inherit(Some(b"nonsense"), FileKind::Regular, new).is_err());
    }

    /// Text that is not a list is refused with a reason.
    #[test]
    fn text_is_checked() {
        for text in ["", "u::rwx", "u::rwx,g::r-x,o::r", "u::rwx,g::xwr,o::r--", "u::rwx,u:x:rwx,g::---,m::---,o::---"]
        {
            let error = text.parse::<Acl>().expect_err(text);
            assert!(error.contains(text), "{error}");
        }
    }
}
