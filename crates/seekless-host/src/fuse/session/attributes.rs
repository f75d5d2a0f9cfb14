//! Extended attributes: those of files, and the names by which other processes ask and command the daemon.

use seekless::fs::acl::{XATTR_ACL_ACCESS, XATTR_ACL_DEFAULT};
use seekless::fs::{FsError, FsResult, SET_GROUP_ID, SetAttr, XattrMode};
use seekless::units::Ino;

use super::{CAPABILITIES, Session};
use crate::fuse::abi::{self, InitFlags};
use crate::fuse::names::{
    ACCESS_ATTRIBUTE, ARRIVED_ATTRIBUTE, BELOW_ATTRIBUTE, DAEMON_ATTRIBUTE, DONE, DROP_CACHES_ATTRIBUTE,
    OUTCOME_BYTES_MAX, STATISTICS_ATTRIBUTE, STATISTICS_BYTES_MAX, SYNC_ATTRIBUTE, below_value, has_rights_of_daemon,
};
use crate::fuse::passthrough::{self, Privileges};
use crate::fuse::reply::Reply;

impl Session {
    /// Sets an extended attribute. Two names of the root are commands.
    pub(super) async fn set_attribute(
        &self,
        (ino, uid): (Ino, u32),
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        kill_set_group_id: bool,
    ) -> FsResult<Reply> {
        self.check_access_list(name)?;
        if name == CAPABILITIES && !self.may_have(ino, None, |had| Privileges { capabilities: true, ..had }).await? {
            return Ok(Reply::error(passthrough::REFUSAL));
        }
        if kill_set_group_id && name == XATTR_ACL_ACCESS {
            self.kill_set_group_id(ino).await?;
        }
        match (ino, name) {
            (Ino::ROOT, SYNC_ATTRIBUTE) => self.fs.syncfs().await?,
            (Ino::ROOT, DROP_CACHES_ATTRIBUTE) => {
                check_has_rights_of_daemon(uid)?;
                self.fs.drop_caches().await?;
            }
            _ => self.fs.setxattr(ino, name, value, mode).await?,
        }
        Ok(Reply::empty())
    }

    /// The value of an extended attribute. Some names are questions and commands to the daemon.
    pub(super) async fn attribute(&self, ino: Ino, uid: u32, name: &[u8]) -> FsResult<Vec<u8>> {
        self.check_access_list(name)?;
        let fs = &self.fs;
        // Of any inode: that at a mount point is another one than the root where a directory below is mounted.
        Ok(match name {
            DAEMON_ATTRIBUTE => self.daemon.as_bytes().to_vec(),
            ACCESS_ATTRIBUTE if fs.traits().read_only => b"ro".to_vec(),
            ACCESS_ATTRIBUTE => b"rw".to_vec(),
            STATISTICS_ATTRIBUTE => self.statistics()?,
            BELOW_ATTRIBUTE => below_value(&fs.shown_file(ino).await?.ok_or(FsError::NoAttribute)?, uid),
            SYNC_ATTRIBUTE => self.outcome(fs.syncfs().await),
            ARRIVED_ATTRIBUTE => match self.backlog.arrived().await {
                Err(error @ FsError::Refused(_)) => self.outcome(Err(error)),
                arrived => arrived?.to_text().into_bytes(),
            },
            DROP_CACHES_ATTRIBUTE => {
                check_has_rights_of_daemon(uid)?;
                self.outcome(fs.drop_caches().await)
            }
            _ => fs.getxattr(ino, name).await?,
        })
    }

    /// The names of the extended attributes that a process of `uid` sees, each with a zero behind it.
    pub(super) async fn attribute_names(&self, ino: Ino, uid: u32) -> FsResult<Vec<u8>> {
        let mut names = self.fs.listxattr(ino).await?;
        names.retain(|name| self.check_access_list(name).is_ok() && is_shown(name, uid));
        let mut list = Vec::with_capacity(names.iter().map(|name| name.len() + 1).sum());
        for name in names {
            list.extend_from_slice(&name);
            list.push(0);
        }
        Ok(list)
    }

    /// [`DONE`], or the error in words: an errno would not suffice, and some have two meanings.
    fn outcome(&self, result: FsResult<()>) -> Vec<u8> {
        match result {
            Ok(()) => DONE.to_vec(),
            Err(error) => {
                self.report(abi::GETXATTR, Ino::ROOT, &error);
                error.to_string().chars().take(OUTCOME_BYTES_MAX / 4).collect::<String>().into_bytes()
            }
        }
    }
    /// The value of [`STATISTICS_ATTRIBUTE`].
    fn statistics(&self) -> FsResult<Vec<u8>> {
        let text = self.statistics.get().map(|statistics| statistics().into_bytes());
        text.filter(|text| text.len() <= STATISTICS_BYTES_MAX).ok_or(FsError::NoAttribute)
    }

    /// Clears the set-group-id bit before an access list is set: a file that lost the bit needlessly is better than one
    /// that kept it wrongly.
    async fn kill_set_group_id(&self, ino: Ino) -> FsResult<()> {
        let before = self.fs.getattr(ino, None).await?.permissions;
        if before & SET_GROUP_ID != 0 {
            let changes = SetAttr { permissions: Some(before & !SET_GROUP_ID), ..SetAttr::default() };
            self.fs.setattr(ino, None, changes).await?;
        }
        Ok(())
    }

    /// Access-control lists that the kernel does not enforce are refused: storing them without enforcement would be
    /// worse.
    pub(super) fn check_access_list(&self, name: &[u8]) -> FsResult<()> {
        let is_list = name == XATTR_ACL_ACCESS || name == XATTR_ACL_DEFAULT;
        if is_list && !self.negotiated.flags.contains(InitFlags::POSIX_ACL) {
            Err(FsError::Unsupported)
        } else {
            Ok(())
        }
    }
}

fn check_has_rights_of_daemon(uid: u32) -> FsResult<()> {
    if has_rights_of_daemon(uid) { Ok(()) } else { Err(FsError::NotPermitted) }
}

/// The value of an extended attribute, for a caller with a buffer of `bytes`; with 0, only its size.
pub(super) fn reply(value: Vec<u8>, bytes: u32) -> Reply {
    if bytes == 0 {
        return Reply::of(&abi::GetxattrOut { size: value.len() as u32, padding: 0 });
    }
    if value.len() > bytes as usize {
        return Reply::error(libc::ERANGE);
    }
    Reply::bytes(value)
}

/// Whether a listing for the user `uid` has an attribute of this name: those that only privileged programs may read, they alone see. The
/// kernel refuses others their values, and leaves their names to the server.
fn is_shown(name: &[u8], uid: u32) -> bool {
    uid == 0 || !name.starts_with(b"trusted.")
}
