//! Names of extended attributes: which ones a file system accepts, as on Linux.
//!
//! A name begins with its namespace. The kernel knows four (xattr(7)) and passes every name on to a FUSE server, which
//! must therefore refuse the others itself, as ext4 does. A program that gets `EOPNOTSUPP` can react; an attribute
//! stored under a name that no other file system accepts would be lost by the next copy.
//!
//! An existing attribute with such a name, from before names were checked, can still be read, listed and removed.

use super::acl::{XATTR_ACL_ACCESS, XATTR_ACL_DEFAULT};
use super::{FsError, FsResult};

/// Namespaces in which a program chooses the rest of the name.
const NAMESPACES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];

/// Checks the name of an attribute before it is set.
///
/// # Errors
/// `Unsupported` for a name outside the namespaces, `Invalid` for a namespace alone.
pub fn check_new(name: &[u8]) -> FsResult<()> {
    if name == XATTR_ACL_ACCESS || name == XATTR_ACL_DEFAULT {
        return Ok(());
    }
    match NAMESPACES.iter().find_map(|namespace| name.strip_prefix(*namespace)) {
        Some(b"") => Err(FsError::Invalid("a namespace without a name")),
        Some(_) => Ok(()),
        None => Err(FsError::Unsupported),
    }
}

/// The error for an absent attribute: `NoAttribute` where it could exist, that of [`check_new`] where it could not.
pub fn missing(name: &[u8]) -> FsError {
    check_new(name).err().unwrap_or(FsError::NoAttribute)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names are accepted and refused as by ext4 (tried with setfattr on Linux 6.18).
    #[test]
    fn names_are_those_of_linux() {
        for name in ["user.a", "user..", "trusted.overlay.opaque", "security.capability", "user.overlay.redirect"] {
            assert_eq!(check_new(name.as_bytes()), Ok(()), "{name}");
            assert_eq!(missing(name.as_bytes()), FsError::NoAttribute);
        }
        assert_eq!(check_new(XATTR_ACL_DEFAULT), Ok(()));
        for name in ["user", "a", "nosuch.a", "User.a", "system.other", "system.posix_acl_accesses", "overlay.x", ""] {
            assert_eq!(check_new(name.as_bytes()), Err(FsError::Unsupported), "{name}");
            assert_eq!(missing(name.as_bytes()), FsError::Unsupported);
        }
        assert!(matches!(check_new(b"trusted."), Err(FsError::Invalid(_))));
    }
}
