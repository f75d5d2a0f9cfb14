//! Requests from arbitrary bytes, as no kernel sends them, on file systems in memory.

use std::rc::Rc;

use seekless::device::{Device, Memory};
use seekless::fs::lfs::{self, FsckOptions, MkfsOptions, Options};
use seekless::fs::{Fs, OpenProtocol};
use seekless::rt::{Limits, Rt};
use seekless::testing::fuzz::Bytes;
use seekless::testing::subject::simulate;
use seekless::testing::{MemFs, MemFsOptions};
use seekless::units::{MIB, Nanos};

use super::abi::{self, InitFlags};
use super::negotiate::{RequestedFeatures, TRANSFER_BYTES_MAX, negotiate};
use super::request::{Init, Request};
use super::session::Session;

/// Limit of requests for one input, so that no input takes long.
const REQUESTS_MAX: usize = 300;

const LIMITS: Limits = Limits { events: 3_000_000, until: Nanos::from_secs(1_000_000) };

/// Larger than every operation of the protocol, so that unknown ones occur too.
const OPCODES: u64 = 60;

/// Headers and bodies: decodes them, and executes the valid ones, on the model with and without OPEN and on LFS.
/// Nothing panics, every reply fits, and LFS is consistent afterwards.
pub(crate) fn requests(input: &[u8]) {
    let mut bytes = Bytes::new(input);
    let run = simulate(1, LIMITS, async |rt| match bytes.u8() % 3 {
        0 => converse(&memory(&rt, OpenProtocol::ZeroMessage), bytes).await,
        1 => converse(&memory(&rt, OpenProtocol::Handles), bytes).await,
        _ => on_lfs(&rt, bytes).await,
    });
    if let Err(why) | Ok(Err(why)) = run {
        panic!("{why}");
    }
}

fn memory(rt: &Rt, open_protocol: OpenProtocol) -> Fs {
    MemFs::with_options(rt, MemFsOptions { open_protocol, ..MemFsOptions::default() })
}

async fn on_lfs(rt: &Rt, bytes: Bytes<'_>) -> Result<(), String> {
    let device: Device = Rc::new(Memory::new(9 * MIB));
    let text = |error: seekless::fs::FsError| error.to_string();
    lfs::mkfs(rt, &device, &MkfsOptions::new([1, 2, 3, 4])).await.map_err(text)?;
    let fs: Fs = lfs::mount(rt.clone(), device.clone(), Options::default()).await.map_err(text)?;
    converse(&fs, bytes).await?;
    fs.close().await.map_err(text)?;
    let check =
        lfs::fsck(rt.clone(), device, FsckOptions { data: true, ..FsckOptions::default() }).await.map_err(text)?;
    if check.is_clean() { Ok(()) } else { Err(format!("fsck found {:#?}", check.errors)) }
}

/// One session, without INIT, which is negotiated before there is one.
async fn converse(fs: &Fs, mut bytes: Bytes<'_>) -> Result<(), String> {
    let choice = bytes.u8();
    let flags = InitFlags::from_bits_truncate(if choice & 1 == 0 { u64::MAX } else { bytes.u64() });
    let init = Init { major: 7, minor: 31 + u32::from(choice) % 16, max_readahead: 0, flags };
    let requested = RequestedFeatures {
        writeback_cache: choice & 2 != 0,
        passthrough: choice & 4 != 0,
        ..RequestedFeatures::PLAIN
    };
    let (negotiated, _) = negotiate(&init, &fs.traits(), &requested).map_err(|error| error.to_string())?;
    let session = Rc::new(Session::new(fs.clone(), negotiated, "fuzz".into()));
    for _ in 0..REQUESTS_MAX {
        if bytes.is_empty() {
            break;
        }
        let opcode = bytes.below(OPCODES) as u32;
        // DESTROY is the last request of a session, and the end of this function comes right after it.
        if opcode == abi::DESTROY {
            continue;
        }
        let nodeid = if bytes.u8() < 250 { 1 + bytes.below(24) } else { bytes.edge() };
        let header = abi::InHeader { opcode, nodeid, uid: 10, gid: 20, ..abi::InHeader::default() };
        let body = body(&mut bytes);
        let Ok(request) = Request::decode(&header, &body, None, session.negotiated_flags()) else { continue };
        let running = session.begin(opcode, &body);
        let reply = session.handle(request).await;
        drop(running);
        if let Some(reply) = reply {
            if let Ok(body) = &reply.body
                && body.len() > TRANSFER_BYTES_MAX as usize
            {
                return Err(format!("the reply to {} has {} bytes", abi::opcode_name(opcode), body.len()));
            }
            // Replies that the kernel no longer accepted.
            if bytes.u8() == 0xff {
                session.undo(reply.undo).await;
            }
        }
    }
    Ok(())
}

/// A body: numbers in fields of four bytes, then names or other bytes.
fn body(bytes: &mut Bytes<'_>) -> Vec<u8> {
    let shape = bytes.u8();
    let mut body = Vec::new();
    for _ in 0..shape % 24 {
        let field = bytes.u8();
        let number = if field < 0xf0 { u32::from(field % 16) } else { bytes.edge() as u32 };
        body.extend_from_slice(&number.to_le_bytes());
    }
    for _ in 0..shape / 24 % 3 {
        match bytes.u8() {
            letter @ 0..0xc0 => body.extend_from_slice(&[b'a' + letter % 6, 0]),
            count => {
                body.extend_from_slice(bytes.take(usize::from(count - 0xc0)));
                body.push(0);
            }
        }
    }
    if shape >= 0xf0 {
        let count = usize::from(bytes.u16());
        body.extend_from_slice(bytes.take(count));
    }
    body
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use seekless::rng::Rng;

    use super::*;

    /// Aim: no request does harm. Method: the inputs kept in `fuzz/seeds`, and seeded noise, half of it small numbers,
    /// which are more often valid.
    #[test]
    fn any_requests_do_no_harm() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/fuse_request");
        let kept: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!kept.is_empty());
        for path in kept {
            println!("{}", path.display());
            requests(&std::fs::read(path).unwrap());
        }
        for seed in 0..300 {
            println!("seed {seed}");
            let mut rng = Rng::new(seed);
            let mut input = vec![0; rng.below(1500) as usize];
            rng.fill(&mut input);
            if seed % 2 == 0 {
                input.iter_mut().skip(2).for_each(|byte| *byte = if *byte < 0xc0 { *byte % 32 } else { *byte });
            }
            requests(&input);
        }
    }
}
