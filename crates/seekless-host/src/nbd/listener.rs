//! Sockets that clients connect to.
//!
//! Invariants
//!   L1  A name in the file system leads to its last listener: one that starts takes the name only from a listener that is gone, and one
//!       that ends removes the name only while it is that of its own socket. Each holds the turn of the name for that.

use std::fs::Metadata;
use std::hash::Hasher;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use seekless::rt::Rt;
use seekless::units::Nanos;

use crate::reactor::{File, Reactor};

/// A client on the network that says nothing is asked whether it is there after so long, again and again, and given up when it has not
/// answered so many times: one that has vanished would hold its connection permanently.
const ASK_AFTER: Duration = Duration::from_secs(60);
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(15);
const ASK_TIMES: u32 = 4;

/// Longest wait for another one to have a name. It takes milliseconds; where a foreign program holds the turn, what follows is done
/// without.
const TURN_PATIENCE: Duration = Duration::from_secs(5);

/// Where to listen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ListenAddress {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

impl ListenAddress {
    /// As clients of NBD name it.
    pub(super) fn uri(&self) -> String {
        match self {
            ListenAddress::Unix(path) => format!("nbd+unix:///?socket={}", encoded(path)),
            ListenAddress::Tcp(address) => format!("nbd://{address}"),
        }
    }
}

/// A path in an address: what could be a mark of the address, or of a shell, is written as `%41`.
fn encoded(path: &Path) -> String {
    let mut text = String::new();
    for &byte in path.as_os_str().as_bytes() {
        match byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            true => text.push(char::from(byte)),
            false => text += &format!("%{byte:02X}"),
        }
    }
    text
}

/// Why nothing listens.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("cannot listen on {place}: {cause}")]
    Os { place: String, cause: io::Error },
    #[error("{0} already exists, and is in use")]
    InUse(String),
}

pub(crate) struct Listener {
    socket: File,
    /// With the port that the system has chosen, and an absolute path, which is removed at the end.
    pub(crate) address: ListenAddress,
    /// Device and inode of the name.
    named: Option<(u64, u64)>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        let ListenAddress::Unix(path) = &self.address else { return };
        let _turn = turn(path);
        // L1. The inode is not given to another file as long as the socket is open.
        if path.symlink_metadata().is_ok_and(|metadata| Some(identity(&metadata)) == self.named) {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Listener {
    pub(crate) fn new(address: &ListenAddress) -> Result<Listener, ListenError> {
        match address {
            ListenAddress::Tcp(address) => {
                let failed = |cause| ListenError::Os { place: address.to_string(), cause };
                let listener = TcpListener::bind(address).map_err(failed)?;
                listener.set_nonblocking(true).map_err(failed)?;
                // The system may have chosen the port.
                let address = ListenAddress::Tcp(listener.local_addr().map_err(failed)?);
                Ok(Listener { socket: Arc::new(listener.into()), address, named: None })
            }
            ListenAddress::Unix(path) => {
                let name = path.display().to_string();
                let failed = |cause| ListenError::Os { place: name.clone(), cause };
                let absolute = std::path::absolute(path).map_err(failed)?;
                let _turn = turn(&absolute);
                // A socket without a listener was left by a killed process.
                let is_socket = path.symlink_metadata().is_ok_and(|metadata| metadata.file_type().is_socket());
                if is_socket {
                    match UnixStream::connect(path) {
                        // Only this error shows that it has no listener; a socket of another kind, or one without
                        // permission, may be in use.
                        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                            std::fs::remove_file(path).map_err(failed)?;
                        }
                        _ => return Err(ListenError::InUse(name)),
                    }
                }
                let listener = UnixListener::bind(path).map_err(failed)?;
                listener.set_nonblocking(true).map_err(failed)?;
                let named = path.symlink_metadata().ok().map(|metadata| identity(&metadata));
                Ok(Listener { socket: Arc::new(listener.into()), address: ListenAddress::Unix(absolute), named })
            }
        }
    }

    /// The next connection, which does not block.
    ///
    /// # Errors
    /// When there will be no further ones.
    pub(crate) async fn accept(&self, rt: &Rt, reactor: &Reactor) -> Result<OwnedFd, Errno> {
        let mut said = None;
        loop {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match rustix::net::accept_with(&*self.socket, flags) {
                Err(Errno::AGAIN) => reactor.readable(&self.socket).await,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                // The socket itself is wrong, and stays so.
                Err(cause @ (Errno::BADF | Errno::INVAL | Errno::NOTSOCK | Errno::FAULT)) => return Err(cause),
                // No room, which others will make; or what concerns this one connection, such as an error of its network or the
                // refusal of a firewall (accept(2)).
                Err(cause) => {
                    if said.replace(cause) != Some(cause) {
                        log::warn!("a connection is not accepted: {cause}");
                    }
                    rt.sleep(Nanos::from_millis(100)).await;
                }
                Ok(socket) => {
                    if let ListenAddress::Tcp(_) = self.address
                        && let Err(cause) = ask_for(&socket)
                    {
                        log::warn!("a client that vanishes will not be noticed: {cause}");
                    }
                    return Ok(socket);
                }
            }
        }
    }
}

/// Has the system ask the client whether it is there.
fn ask_for(socket: &OwnedFd) -> Result<(), Errno> {
    sockopt::set_tcp_keepidle(socket, ASK_AFTER)?;
    sockopt::set_tcp_keepintvl(socket, ASK_AGAIN_AFTER)?;
    sockopt::set_tcp_keepcnt(socket, ASK_TIMES)?;
    sockopt::set_socket_keepalive(socket, true)
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// The turn to change what `path` leads to (L1): a socket in the abstract name space, which leaves no file behind, and which a process
/// gives up however it ends. A lock on the directory would be in the way of layers there.
fn turn(path: &Path) -> Option<OwnedFd> {
    let directory = path.parent()?.metadata().ok()?;
    let mut hasher = rustc_hash::FxHasher::default();
    hasher.write(path.file_name()?.as_bytes());
    let name = format!("seekless name {}:{}:{:x}", directory.dev(), directory.ino(), hasher.finish());
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).ok()?;
    let begun = Instant::now();
    while begun.elapsed() < TURN_PATIENCE {
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok()?;
        match rustix::net::bind(&socket, &address) {
            Ok(()) => return Some(socket),
            Err(Errno::ADDRINUSE) => std::thread::sleep(Duration::from_millis(1)),
            Err(_) => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    /// L1: of several that find the socket of a killed process at the same time, one has the name, and clients reach it.
    #[test]
    fn one_of_many_takes_a_stale_name() {
        const MANY: usize = 16;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        for round in 0..100 {
            drop(UnixListener::bind(&path).unwrap());
            // A process that another test starts at this moment has a copy of the socket until it is another program.
            while UnixStream::connect(&path).is_ok() {
                std::thread::yield_now();
            }
            let (begin, all_there) = (Barrier::new(MANY), Barrier::new(MANY));
            std::thread::scope(|scope| {
                let one = || {
                    begin.wait();
                    let listener = Listener::new(&ListenAddress::Unix(path.clone()));
                    if let Err(error) = &listener {
                        assert!(matches!(error, ListenError::InUse(_)), "round {round}: {error}");
                    }
                    all_there.wait();
                    listener.map(|listener| (path.exists(), listener.named)).ok()
                };
                let threads: Vec<_> = (0..MANY).map(|_| scope.spawn(one)).collect();
                let listeners: Vec<_> = threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect();
                assert!(matches!(listeners[..], [(true, Some(_))]), "round {round}: {listeners:?}");
            });
            assert!(!path.exists(), "round {round}");
        }
    }

    /// L1: the name of another one stays.
    #[test]
    fn the_name_of_another_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let address = ListenAddress::Unix(path.clone());
        let first = Listener::new(&address).unwrap();
        assert!(matches!(Listener::new(&address), Err(ListenError::InUse(_))));
        std::fs::remove_file(&path).unwrap();
        let second = Listener::new(&address).unwrap();
        drop(first);
        UnixStream::connect(&path).unwrap();
        drop(second);
        assert!(!path.exists());
    }
}
