//! Bytes that no NBD client sends, to a server with a device in memory.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use seekless::device::{Device, Memory};
use seekless::testing::fuzz::Bytes;

use super::wire::{OPTION_MAGIC, REQUEST_MAGIC, command, option};
use super::{ListenAddress, Server};
use crate::reactor::{Reactor, ReactorOptions};

const DEVICE_BYTES: u64 = 1 << 20;

/// Limit of messages in one input.
const MESSAGES_MAX: usize = 64;

/// Timeout of an answer: far more than any takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// The bytes of a client with `input`: with a wrong start, with a right one and any options, or on to requests.
fn conversation(input: &[u8]) -> Vec<u8> {
    let mut bytes = Bytes::new(input);
    let shape = bytes.u8() % 4;
    let mut sent = Vec::new();
    if shape > 0 {
        sent.extend((3 - u32::from(shape == 3) * 2).to_be_bytes());
    }
    for _ in 0..MESSAGES_MAX {
        if shape < 2 || bytes.is_empty() {
            break;
        }
        let last = bytes.u8().is_multiple_of(4);
        let number = if last { option::GO } else { bytes.below(12) as u32 };
        let mut data = if last { vec![0; 6] } else { bytes.take(usize::from(input.len() as u8 % 40)).to_vec() };
        sent.extend(OPTION_MAGIC.to_be_bytes());
        sent.extend(number.to_be_bytes());
        let length = if bytes.u8() == 0xff { bytes.edge() as u32 } else { data.len() as u32 };
        sent.extend(length.to_be_bytes());
        sent.append(&mut data);
        if last {
            break;
        }
    }
    for _ in 0..MESSAGES_MAX {
        if shape < 2 || bytes.is_empty() {
            break;
        }
        let magic = if bytes.u8() == 0xff { bytes.u32() } else { REQUEST_MAGIC };
        let (flags, what) = (bytes.u8() % 8, bytes.below(8) as u16);
        let near = bytes.u8() < 0xd0;
        let offset = if near { u64::from(bytes.u16()) * 16 } else { bytes.edge() };
        let length = if near { u32::from(bytes.u16()) } else { bytes.edge() as u32 };
        sent.extend(magic.to_be_bytes());
        sent.extend(u16::from(flags).to_be_bytes());
        sent.extend(what.to_be_bytes());
        sent.extend(bytes.u16().to_be_bytes().repeat(4));
        sent.extend(offset.to_be_bytes());
        sent.extend(length.to_be_bytes());
        if what == command::WRITE {
            sent.extend(vec![0x5a; length.min(1 << 17) as usize]);
        }
    }
    if shape < 2 {
        sent.extend(bytes.take(usize::MAX));
    }
    sent
}

/// Sends everything, and reads until the server closes the connection.
fn talk(path: &Path, sent: &[u8]) -> std::io::Result<Vec<u8>> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut answers = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The server may have closed the connection earlier.
            let _ = (&stream).write_all(sent);
            let _ = stream.shutdown(Shutdown::Write);
        });
        match (&stream).read_to_end(&mut answers) {
            // It closed the connection with unread bytes.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Ok(()),
            other => other.map(drop),
        }
    })?;
    Ok(answers)
}

/// A correct client that reads a block, and says that it leaves: the server's answers.
fn right_client(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut sent = 3u32.to_be_bytes().to_vec();
    sent.extend(OPTION_MAGIC.to_be_bytes());
    sent.extend(option::GO.to_be_bytes());
    sent.extend(6u32.to_be_bytes());
    sent.extend([0; 6]);
    sent.extend(REQUEST_MAGIC.to_be_bytes());
    sent.extend([0; 2]);
    sent.extend(command::READ.to_be_bytes());
    sent.extend([7; 8]);
    sent.extend(0u64.to_be_bytes());
    sent.extend(512u32.to_be_bytes());
    sent.extend(REQUEST_MAGIC.to_be_bytes());
    sent.extend([0; 2]);
    sent.extend(command::DISCONNECT.to_be_bytes());
    sent.extend([0; 20]);
    talk(path, &sent)
}

/// The server answers or closes the connection, and the next client is not affected.
pub(crate) fn stream(input: &[u8]) {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("seekless-nbd-{}-{number}", std::process::id()));
    let sent = conversation(input);
    let reactor = Reactor::new(ReactorOptions::default()).expect("a reactor");
    let executor = reactor.executor();
    let rt = executor.rt().clone();
    let run = async {
        let device: Device = Rc::new(Memory::new(DEVICE_BYTES));
        let server = Server::new(&rt, &reactor, device, false, &[ListenAddress::Unix(path.clone())]).expect("a server");
        let for_client = path.clone();
        let client = std::thread::spawn(move || {
            let answers = talk(&for_client, &sent)?;
            assert!(answers.len() >= 18, "the server says who it is: {answers:?}");
            let right = right_client(&for_client)?;
            // The block is at the end, after the head of the reply.
            assert!(right.len() > 16 + 512 && right[right.len() - 520..right.len() - 512] == [7; 8], "{}", right.len());
            std::io::Result::Ok(())
        });
        let ended = reactor.blocking(move || client.join());
        let failed = std::cell::Cell::new(None);
        let serve = server.serve(async {
            failed.set(match ended.await {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("the client has panicked; what it says is above".to_string()),
            });
        });
        serve.await.expect("it ends well");
        if let Some(why) = failed.take() {
            panic!("{why}");
        }
    };
    executor.block_on(run).expect("it comes to an end");
}

#[cfg(test)]
mod tests {
    use seekless::rng::Rng;

    use super::*;

    /// Aim: no bytes do harm. Method: the inputs kept in `fuzz/seeds`, and seeded noise, half of it small numbers,
    /// which are more often valid.
    #[test]
    fn any_bytes_do_no_harm() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/nbd_stream");
        let kept: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!kept.is_empty());
        for path in kept {
            println!("{}", path.display());
            stream(&std::fs::read(path).unwrap());
        }
        for seed in 0..150 {
            println!("seed {seed}");
            let mut rng = Rng::new(seed);
            let mut input = vec![0; rng.below(600) as usize];
            rng.fill(&mut input);
            if seed % 2 == 0 {
                input.iter_mut().skip(1).for_each(|byte| *byte = if *byte < 0xc0 { *byte % 32 } else { *byte });
            }
            stream(&input);
        }
    }
}
