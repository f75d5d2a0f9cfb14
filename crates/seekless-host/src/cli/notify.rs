//! Telling a service manager that the mount works: sd_notify(3), of which one message is needed.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends READY=1 to the socket that `NOTIFY_SOCKET` names, if it does. That a manager cannot be reached is logged; the
/// mount works all the same.
pub(super) fn ready() {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match name.as_bytes() {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest),
        path => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path)),
    };
    let sent = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(b"READY=1", &address));
    if let Err(error) = sent {
        log::warn!("NOTIFY_SOCKET {}: {error}", name.display());
    }
}
