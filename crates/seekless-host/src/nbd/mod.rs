//! A block device over the network: the NBD protocol, fixed newstyle, with structured replies.
//!
//! The protocol is that of the NBD project (`doc/proto.md` of its repository); names and numbers are its own. A
//! [`Server`] offers one device under any name, to many clients at once: a flush by one client covers the acknowledged
//! writes of all. Requests of a connection are served concurrently and answered in the order in which they complete.
//!
//! Clients may address any byte; [`Bytewise`](crate::bytewise::Bytewise) handles that.

mod client;
mod export;
pub(crate) mod fuzz;
mod handshake;
mod listener;
mod requests;
mod server;
mod stream;
#[cfg(test)]
mod tests;
mod wire;

pub(crate) use client::any as client_fuzz;
pub use client::{Address, Client, ClientError, ClientPlace};
pub use export::Export;
pub(crate) use listener::Listener;
pub use listener::{ListenAddress, ListenError};
pub use server::{ServeError, Server};
pub(crate) use stream::{Closed, Stream};
