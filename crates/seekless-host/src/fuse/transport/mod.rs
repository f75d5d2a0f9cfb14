//! How requests and replies move between kernel and session.
//!
//! The session does not know which transport carries it; they are exchanged by
//! [`TransportChoice`](super::options::TransportChoice).

mod devfuse;
mod uring;

use std::rc::Rc;

use async_trait::async_trait;
use rustix::io::Errno;
use seekless::device::Data;

pub(super) use devfuse::{DevFuse, Message};
pub(super) use uring::Uring;

use super::abi;
use super::reply::Reply;
use super::request::Request;
use super::session::Session;

/// Why a transport ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// The file system was unmounted.
    Unmounted,
    /// The connection was aborted.
    Aborted,
}

/// Carries the requests of one session.
#[async_trait(?Send)]
pub(super) trait Transport {
    /// Name for messages and reports.
    fn name(&self) -> &'static str;

    /// Receives requests and has `session` answer them, until the connection ends.
    ///
    /// # Errors
    /// Undocumented errors of system calls.
    async fn run(&self, session: &Rc<Session>) -> Result<End, Errno>;
}

/// Decodes and answers a request. `None` when it has no reply.
async fn answer(session: &Session, header: &abi::InHeader, body: &[u8], data: Option<Data>) -> Option<Reply> {
    match Request::decode(header, body, data, session.negotiated_flags()) {
        Ok(request) => session.handle(request).await,
        Err(errno) => {
            // A request that no kernel sends is logged; an operation that is not offered is not, as programs may ask
            // for it often.
            match errno {
                libc::EIO => log::warn!("{} with a body that makes no sense", abi::opcode_name(header.opcode)),
                _ => log::debug!("{}: refused with errno {errno}", abi::opcode_name(header.opcode)),
            }
            let wants_reply = !matches!(header.opcode, abi::FORGET | abi::BATCH_FORGET | abi::INTERRUPT);
            wants_reply.then(|| Reply::error(errno))
        }
    }
}
