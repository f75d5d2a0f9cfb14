//! Extended attributes, those of the host, and access-control lists among them.
//!
//! The host keeps lists and permission bits in agreement, and applies default lists to new files. So they are passed on
//! under two conditions: the host's file system supports them, and this process may set them on files of all users.
//! Otherwise they are refused and hidden: the kernel above would not enforce them.

use std::ffi::CStr;

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use seekless::fs::acl::{XATTR_ACL_ACCESS, XATTR_ACL_DEFAULT};
use seekless::fs::{FileKind, FsError, FsResult, XATTR_BYTES_MAX, XattrMode};
use seekless::units::Ino;

use super::open::HostRoot;
use super::{HostDir, sys};

/// True when the file system of the directory has access-control lists.
pub(super) fn has_access_lists(host_root: &HostRoot) -> bool {
    let found = read_all(|buffer| host_root.alias.getxattr(&host_root.mount, XATTR_ACL_ACCESS, buffer));
    matches!(found, Ok(_) | Err(Errno::NODATA))
}

fn is_list(name: &[u8]) -> bool {
    name == XATTR_ACL_ACCESS || name == XATTR_ACL_DEFAULT
}

/// Reads a value or list of unknown length with `read`, which fails with `ERANGE` when the buffer is too short.
fn read_all(mut read: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    const USUAL_BYTES: usize = 256;
    for bytes in [USUAL_BYTES, XATTR_BYTES_MAX as usize] {
        let mut buffer = vec![0; bytes];
        match read(&mut buffer) {
            Err(Errno::RANGE) => {}
            Ok(length) => {
                buffer.truncate(length);
                return Ok(buffer);
            }
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::RANGE)
}

impl HostDir {
    fn check_attribute(&self, name: &[u8]) -> FsResult<()> {
        match name {
            name if name.is_empty() || name.contains(&0) => {
                Err(FsError::Invalid("not the name of an extended attribute"))
            }
            name if is_list(name) && self.access_lists => Ok(()),
            name if name.starts_with(b"system.") => Err(FsError::Unsupported),
            _ => Ok(()),
        }
    }

    pub(super) fn attribute(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        self.check_attribute(name)?;
        let file = self.inodes.file(ino)?;
        let alias = &self.inodes.host_root().alias;
        match read_all(|buffer| alias.getxattr(&file, name, buffer)) {
            // On another file system inside the directory, one without lists: its files have none. With any other
            // answer the kernel above would deny all access to them.
            Err(Errno::OPNOTSUPP) if is_list(name) && self.kind_of(&file)? != FileKind::Symlink => {
                Err(FsError::NoAttribute)
            }
            read => read.map_err(sys::error),
        }
    }

    pub(super) fn set_attribute(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        self.check_attribute(name)?;
        let flags = match mode {
            XattrMode::Set => XattrFlags::empty(),
            XattrMode::Create => XattrFlags::CREATE,
            XattrMode::Replace => XattrFlags::REPLACE,
        };
        let file = self.inodes.file(ino)?;
        let set = |path: &CStr| rustix::fs::setxattr(path, name, value, flags);
        self.inodes.host_root().alias.with_path(&file, set).map_err(|errno| match errno {
            // A default list on something that is not a directory.
            Errno::ACCESS if name == XATTR_ACL_DEFAULT => FsError::NotPermitted,
            Errno::INVAL if is_list(name) => FsError::Invalid("not an access-control list"),
            errno => sys::error(errno),
        })
    }

    /// The names of all attributes.
    pub(super) fn attributes(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        let file = self.inodes.file(ino)?;
        let alias = &self.inodes.host_root().alias;
        let list = |path: &CStr| read_all(|buffer| rustix::fs::listxattr(path, buffer));
        let list = alias.with_path(&file, list).map_err(sys::error)?;
        let names = list.split(|&byte| byte == 0).filter(|name| !name.is_empty() && self.check_attribute(name).is_ok());
        let mut names: Vec<Vec<u8>> = names.map(<[u8]>::to_vec).collect();
        names.sort();
        Ok(names)
    }

    pub(super) fn remove_attribute(&self, ino: Ino, name: &[u8]) -> FsResult<()> {
        self.check_attribute(name)?;
        let file = self.inodes.file(ino)?;
        let remove = |path: &CStr| rustix::fs::removexattr(path, name);
        self.inodes.host_root().alias.with_path(&file, remove).map_err(sys::error)
    }
}
