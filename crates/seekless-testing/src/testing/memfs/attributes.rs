//! Extended attributes of the model, access-control lists among them.

use super::{MemFs, NAME_BYTES_MAX, Node};
use crate::fs::acl::{self, AclKind, XATTR_ACL_ACCESS};
use crate::fs::xattr::{check_new, missing};
use crate::fs::{FsError, FsResult, XATTR_BYTES_MAX, XattrMode};
use crate::units::Ino;

impl Node {
    /// Sets new permission bits, and updates the access list if there is one.
    pub(super) fn chmod(&mut self, permissions: u16) -> FsResult<()> {
        if let Some(list) = self.xattrs.get_mut(XATTR_ACL_ACCESS) {
            *list = acl::chmod(list, permissions).map_err(FsError::Invalid)?;
        }
        self.permissions = permissions;
        Ok(())
    }
}

impl MemFs {
    /// The access list of `node` that the attribute `name` is, if any.
    fn list_kind(&self, node: &Node, name: &[u8]) -> FsResult<Option<AclKind>> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(&0) {
            return Err(FsError::Invalid("not the name of an extended attribute"));
        }
        match AclKind::of(name, node.kind())? {
            // Lists that are stored and not enforced would be worse than none.
            Some(_) if !self.options.access_lists => Err(FsError::Unsupported),
            kind => Ok(kind),
        }
    }

    pub(super) fn attribute(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        let state = self.state.borrow();
        let node = state.node(ino)?;
        self.list_kind(node, name)?;
        node.xattrs.get(name).cloned().ok_or_else(|| missing(name))
    }

    pub(super) fn set_attribute(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        let now = self.now();
        let mut state = self.state.borrow_mut();
        let node = state.node(ino)?;
        self.list_kind(node, name)?;
        check_new(name)?;
        let listed: usize = node.xattrs.keys().filter(|&other| other != name).map(|other| other.len() + 1).sum();
        if value.len().max(listed + name.len() + 1) > XATTR_BYTES_MAX as usize {
            return Err(FsError::AttributesTooLarge(XATTR_BYTES_MAX));
        }
        let set = acl::set(node.kind(), node.permissions, name, value)?;
        match mode {
            XattrMode::Create if node.xattrs.contains_key(name) => return Err(FsError::Exists),
            XattrMode::Replace if !node.xattrs.contains_key(name) => return Err(FsError::NoAttribute),
            _ => {}
        }
        let node = state.node_mut(ino)?;
        match set.value {
            Some(value) => node.xattrs.insert(name.to_vec(), value),
            None => node.xattrs.remove(name),
        };
        node.permissions = set.permissions;
        node.ctime = now;
        Ok(())
    }

    pub(super) fn remove_attribute(&self, ino: Ino, name: &[u8]) -> FsResult<()> {
        let now = self.now();
        let mut state = self.state.borrow_mut();
        let node = state.node(ino)?;
        let kind = self.list_kind(node, name)?;
        match (node.xattrs.contains_key(name), kind) {
            (true, _) => {}
            (false, Some(_)) => return Ok(()),
            (false, None) => return Err(missing(name)),
        }
        let node = state.node_mut(ino)?;
        node.xattrs.remove(name);
        node.ctime = now;
        Ok(())
    }
}
