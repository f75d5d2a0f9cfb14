//! Aim: the protocol, with correct clients and with incorrect ones. Method: a server on its own socket and a client,
//! byte by byte, on another thread.

mod leaving;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use seekless::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use seekless::device::{Device, Memory};
use seekless::units::Nanos;
use seekless::vlog::{MapLog, Options, Plan, Vld};

use super::wire::{
    Error, MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, PAYLOAD_MAX, REQUEST_MAGIC, SIMPLE_REPLY_MAGIC,
    STRUCTURED_REPLY_MAGIC, chunk, command, flag, info, option, reply,
};
use super::{ListenAddress, Server};
use crate::reactor::{Reactor, ReactorOptions};

const BYTES: u64 = 4 << 20;

/// A device to export, and whether it is read-only.
enum Offer {
    Memory,
    ReadOnly,
    /// Blocks of 4 KiB, slow, and of unequal speed.
    Vld,
    /// Everything except flushes fails.
    Failing,
    /// Writes wait for the test.
    Held(Arc<leaving::Hold>),
}

/// Runs a client against a server.
fn with_server(offer: Offer, client: impl FnOnce(&Path) + Send + 'static) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    let reactor = Reactor::new(ReactorOptions::default()).expect("a reactor");
    let executor = reactor.executor();
    let rt = executor.rt().clone();
    let run = async {
        let memory = Rc::new(Memory::new(BYTES));
        let device: Device = match offer {
            Offer::Memory | Offer::ReadOnly => memory,
            Offer::Vld => {
                let slow = FaultDevice::new(&rt, memory, 1);
                let delay = Effect::Delay(Nanos(1)..=Nanos::from_micros(300));
                slow.add(Rule::new(Kinds::all(), When::Always, delay));
                let map_log = MapLog::Tree;
                let plan = Plan { block_bytes: 4096, reserve: 700, map_log, snapshots: 0, uuid: [1; 16], key: [2; 16] };
                Vld::create(&rt, slow, &plan, Options::default()).await.expect("made")
            }
            Offer::Failing => {
                let device = FaultDevice::new(&rt, memory, 1);
                device.add(Rule::new(Kinds::READ | Kinds::WRITE, When::Always, Effect::Error));
                device
            }
            Offer::Held(ref hold) => Rc::new(leaving::HeldDevice { rt: rt.clone(), memory, hold: hold.clone() }),
        };
        let read_only = matches!(offer, Offer::ReadOnly);
        let server =
            Server::new(&rt, &reactor, device, read_only, &[ListenAddress::Unix(path.clone())]).expect("a server");
        let for_client = path.clone();
        let client = std::thread::spawn(move || client(&for_client));
        let ended = reactor.blocking(move || client.join());
        let failed = std::cell::Cell::new(false);
        let stop = async {
            failed.set(ended.await.is_err());
            if let Offer::Held(hold) = &offer {
                hold.release();
            }
        };
        server.serve(stop).await.expect("it ends well");
        assert!(!failed.get(), "the client has failed; its panic is above");
    };
    executor.block_on(run).expect("it comes to an end");
    assert!(!path.exists(), "the socket is gone");
}

struct Client {
    stream: UnixStream,
    structured: bool,
    cookie: u64,
}

impl Client {
    /// Connects and exchanges flags.
    fn connect(path: &Path) -> Client {
        let stream = UnixStream::connect(path).expect("another server listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket has timeouts");
        let mut client = Client { stream, structured: false, cookie: 7 };
        assert_eq!(client.u64(), MAGIC);
        assert_eq!(client.u64(), OPTION_MAGIC);
        assert_eq!(client.u16(), 3);
        client.send(&3u32.to_be_bytes());
        client
    }

    /// Connects and starts transmission; returns the size and the flags of the export.
    fn open(path: &Path, structured: bool) -> (Client, u64, u16) {
        let mut client = Client::connect(path);
        if structured {
            client.option(option::STRUCTURED_REPLY, b"");
            assert_eq!(client.option_reply(option::STRUCTURED_REPLY), (reply::ACK, vec![]));
            client.structured = true;
        }
        client.option(option::GO, &[0, 0, 0, 0, 0, 0]);
        let (kind, data) = client.option_reply(option::GO);
        assert_eq!((kind, &data[..2]), (reply::INFO, &info::EXPORT.to_be_bytes()[..]));
        assert_eq!(client.option_reply(option::GO).0, reply::ACK);
        let size = u64::from_be_bytes(data[2..10].try_into().expect("eight bytes"));
        (client, size, u16::from_be_bytes([data[10], data[11]]))
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server is there");
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).expect("the server answers");
        bytes
    }

    fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.bytes(2).try_into().expect("two bytes"))
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.bytes(4).try_into().expect("four bytes"))
    }

    fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.bytes(8).try_into().expect("eight bytes"))
    }

    fn option(&mut self, number: u32, data: &[u8]) {
        let length = data.len() as u32;
        self.send(&[&OPTION_MAGIC.to_be_bytes()[..], &number.to_be_bytes(), &length.to_be_bytes(), data].concat());
    }

    fn option_reply(&mut self, number: u32) -> (u32, Vec<u8>) {
        assert_eq!(self.u64(), OPTION_REPLY_MAGIC);
        assert_eq!(self.u32(), number);
        let kind = self.u32();
        let length = self.u32() as usize;
        (kind, self.bytes(length))
    }

    fn request(&mut self, flags: u16, command: u16, offset: u64, length: u32) -> u64 {
        self.cookie += 1;
        let head = [
            &REQUEST_MAGIC.to_be_bytes()[..],
            &flags.to_be_bytes(),
            &command.to_be_bytes(),
            &self.cookie.to_be_bytes(),
            &offset.to_be_bytes(),
            &length.to_be_bytes(),
        ];
        self.send(&head.concat());
        self.cookie
    }

    /// The next reply: its cookie, and an error or the bytes that came with it. `read` says how many a simple one has.
    fn reply(&mut self, read: usize) -> (u64, Result<Vec<u8>, u32>) {
        let magic = self.u32();
        if magic == SIMPLE_REPLY_MAGIC {
            let (error, cookie) = (self.u32(), self.u64());
            return (cookie, if error == 0 { Ok(self.bytes(read)) } else { Err(error) });
        }
        assert_eq!(magic, STRUCTURED_REPLY_MAGIC);
        assert!(self.structured);
        assert_eq!(self.u16(), chunk::DONE);
        let kind = self.u16();
        let cookie = self.u64();
        let length = self.u32() as usize;
        let data = self.bytes(length);
        let number = |at: usize| u32::from_be_bytes(data[at..at + 4].try_into().expect("four bytes"));
        match kind {
            chunk::NONE => (cookie, Ok(data)),
            chunk::OFFSET_DATA => (cookie, Ok(data[8..].to_vec())),
            chunk::OFFSET_HOLE => (cookie, Ok(vec![0; number(8) as usize])),
            chunk::ERROR => {
                assert!(length > 6, "it says why");
                (cookie, Err(number(0)))
            }
            other => panic!("a chunk of type {other}"),
        }
    }

    /// A request and its reply.
    fn ask(&mut self, flags: u16, command: u16, offset: u64, length: u32, data: &[u8]) -> Result<Vec<u8>, u32> {
        let cookie = self.request(flags, command, offset, length);
        self.send(data);
        let read = if command == command::READ { length as usize } else { 0 };
        let (answered, result) = self.reply(read);
        assert_eq!(answered, cookie);
        result
    }
}

/// Reads, writes, zeroes and trims at any byte, on blocks of 4 KiB, against plain bytes; with and without structured
/// replies.
#[test]
fn any_bytes_can_be_asked_for() {
    for structured in [false, true] {
        with_server(Offer::Vld, move |path| {
            let (mut client, size, flags) = Client::open(path, structured);
            assert_eq!(flags & 0b1_0000_0000, 0b1_0000_0000, "several connections");
            let mut expected = vec![0; size as usize];
            let mut rng = seekless::rng::Rng::new(1);
            for turn in 0..300u32 {
                let length = rng.below(20_000);
                let offset = rng.below(size - length);
                let range = offset as usize..(offset + length) as usize;
                let fua = if rng.chance(1, 4) { flag::FUA } else { 0 };
                match rng.below(5) {
                    0 => {
                        let data: Vec<u8> = (0..length).map(|_| (turn % 250) as u8 + 1).collect();
                        assert_eq!(client.ask(fua, command::WRITE, offset, length as u32, &data), Ok(vec![]));
                        expected[range].copy_from_slice(&data);
                    }
                    1 => {
                        let hole = if rng.chance(1, 2) { flag::NO_HOLE } else { 0 };
                        let asked = client.ask(fua | hole, command::WRITE_ZEROES, offset, length as u32, b"");
                        assert_eq!(asked, Ok(vec![]));
                        expected[range].fill(0);
                    }
                    2 => {
                        assert_eq!(client.ask(fua, command::TRIM, offset, length as u32, b""), Ok(vec![]));
                        let start = (offset as usize).next_multiple_of(4096);
                        let end = (offset + length) as usize / 4096 * 4096;
                        if start < end {
                            expected[start..end].fill(0);
                        }
                    }
                    3 => assert_eq!(client.ask(0, command::FLUSH, 0, 0, b""), Ok(vec![])),
                    _ => {
                        let read = client.ask(0, command::READ, offset, length as u32, b"");
                        assert!(read.is_ok_and(|read| read == expected[range]), "turn {turn}");
                    }
                }
            }
            client.request(0, command::DISCONNECT, 0, 0);
        });
    }
}

/// Overlapping requests, many at once on several connections: each is done as a whole, in some order, and a flush on
/// one connection covers every acknowledged write of all.
#[test]
fn clients_at_the_same_time() {
    with_server(Offer::Vld, |path| {
        let mut clients: Vec<Client> = (0..4).map(|_| Client::open(path, true).0).collect();
        for round in 0..20u8 {
            for (number, client) in clients.iter_mut().enumerate() {
                for turn in 0..8 {
                    let byte = round.wrapping_mul(31) ^ (number as u8 * 8 + turn);
                    client.request(0, command::WRITE, 2048, 12_000);
                    client.send(&[byte; 12_000]);
                }
            }
            for client in &mut clients {
                for _ in 0..8 {
                    assert!(client.reply(0).1.is_ok());
                }
            }
            assert!(clients[0].ask(0, command::FLUSH, 0, 0, b"").is_ok());
            let read = clients[1].ask(0, command::READ, 2048, 12_000, b"").expect("it can be read");
            assert!(read.iter().all(|&byte| byte == read[0]), "round {round}: of one write");
        }
    });
}

/// An invalid request is answered with an error number, and the connection continues.
#[test]
fn bad_requests_get_errors() {
    for structured in [false, true] {
        with_server(Offer::Memory, move |path| {
            let (mut client, size, _) = Client::open(path, structured);
            let too_long = PAYLOAD_MAX + 1;
            for (flags, number, offset, length, error) in [
                (0, command::READ, size, 1, Error::Invalid),
                (0, command::READ, u64::MAX, 512, Error::Invalid),
                (0, command::READ, 0, too_long, Error::Invalid),
                (0, command::READ, 0, u32::MAX, Error::Invalid),
                (0, command::TRIM, size - 512, 1024, Error::NoSpace),
                (0, command::WRITE_ZEROES, 0, u32::MAX, Error::NoSpace),
                (0x8000, command::READ, 0, 512, Error::Invalid),
                (flag::NO_HOLE, command::TRIM, 0, 512, Error::Invalid),
                (0, 5, 0, 512, Error::Unsupported),
                (0, 7, 0, 512, Error::Unsupported),
                (0, 0xffff, u64::MAX, u32::MAX, Error::Unsupported),
            ] {
                let asked = client.ask(flags, number, offset, length, b"");
                assert_eq!(asked, Err(error as u32), "command {number} at {offset}+{length}");
            }
            // The payload of a refused write is read all the same.
            let data = vec![1; too_long as usize];
            assert_eq!(client.ask(0, command::WRITE, 0, too_long, &data), Err(Error::Invalid as u32));
            assert_eq!(client.ask(0, command::WRITE, size - 1, 2, b"ab"), Err(Error::NoSpace as u32));
            assert_eq!(client.ask(0, command::READ, 0, 4, b""), Ok(vec![0; 4]));
            assert_eq!(client.ask(0, command::READ, 0, 0, b""), Ok(vec![]));
            assert_eq!(client.ask(0, command::WRITE, size, 0, b""), Ok(vec![]));
        });
    }
}

#[test]
fn devices_have_errors() {
    with_server(Offer::Failing, |path| {
        let (mut client, _, _) = Client::open(path, true);
        for number in [command::READ, command::WRITE] {
            let data: &[u8] = if number == command::WRITE { &[0; 512] } else { b"" };
            assert_eq!(client.ask(0, number, 0, 512, data), Err(Error::Io as u32));
        }
        assert_eq!(client.ask(0, command::FLUSH, 0, 0, b""), Ok(vec![]));
    });
    with_server(Offer::ReadOnly, |path| {
        let (mut client, _, flags) = Client::open(path, true);
        assert_eq!(flags & 0b10_0010, 0b10, "read-only, and no trim");
        assert_eq!(client.ask(0, command::WRITE, 0, 512, &[1; 512]), Err(Error::NotPermitted as u32));
        assert_eq!(client.ask(0, command::TRIM, 0, 512, b""), Err(Error::NotPermitted as u32));
        assert_eq!(client.ask(0, command::READ, 0, 2, b""), Ok(vec![0; 2]));
    });
}

/// Clients that leave at any byte of a conversation, or send noise: the server continues, and an incomplete write is
/// not done in part.
#[test]
fn clients_leave_at_any_moment() {
    with_server(Offer::Memory, |path| {
        let mut rng = seekless::rng::Rng::new(1);
        let write = [
            &REQUEST_MAGIC.to_be_bytes()[..],
            &[0; 2],
            &command::WRITE.to_be_bytes(),
            &[0; 16],
            &4096u32.to_be_bytes(),
            &[9; 4096],
        ]
        .concat();
        for cut in (0..28).chain((28..write.len() - 1).step_by(509)) {
            let (mut client, _, _) = Client::open(path, false);
            client.send(&write[..cut]);
        }
        for _ in 0..60 {
            let mut stream = UnixStream::connect(path).expect("another server listens");
            let mut noise = vec![0; rng.below(200) as usize];
            rng.fill(&mut noise);
            if rng.chance(1, 2) {
                // Past the flags.
                noise.splice(0..0, 3u32.to_be_bytes());
            }
            // The server may close the connection earlier.
            let _ = stream.write_all(&noise);
        }
        // Leaves with pending replies.
        let (mut client, _, _) = Client::open(path, true);
        for _ in 0..50 {
            client.request(0, command::READ, 0, 1 << 20);
        }
        drop(client);
        let (mut client, _, _) = Client::open(path, true);
        assert_eq!(client.ask(0, command::READ, 0, 4096, b""), Ok(vec![0; 4096]));
    });
}

/// Options: known, unknown, too long, and malformed ones.
#[test]
fn options_are_negotiated() {
    with_server(Offer::Vld, |path| {
        let mut client = Client::connect(path);
        client.option(option::LIST, b"");
        assert_eq!(client.option_reply(option::LIST), (reply::SERVER, vec![0; 4]));
        assert_eq!(client.option_reply(option::LIST).0, reply::ACK);
        for (number, data, kind) in [
            (option::LIST, &b"x"[..], reply::INVALID),
            (option::GO, b"", reply::INVALID),
            (option::GO, &[0xff; 6], reply::INVALID),
            (option::INFO, &[0, 0, 0, 0, 0, 9], reply::INVALID),
            (option::STRUCTURED_REPLY, b"x", reply::INVALID),
            (5, b"", reply::UNSUPPORTED),
            (0xffff_ffff, b"whatever", reply::UNSUPPORTED),
            (option::INFO, &[0; 100_000], reply::TOO_BIG),
        ] {
            client.option(number, data);
            assert_eq!(client.option_reply(number).0, kind, "option {number}");
        }
        let wanted = [&[0, 0, 0, 1, b'n', 0, 3][..], &[0, 1], &[0, 2], &[0, 3]].concat();
        client.option(option::INFO, &wanted);
        let mut kinds = Vec::new();
        loop {
            let (kind, data) = client.option_reply(option::INFO);
            if kind == reply::ACK {
                break;
            }
            let what = u16::from_be_bytes([data[0], data[1]]);
            if what == info::BLOCK_SIZE {
                assert_eq!(data[2..10], [0, 0, 0, 1, 0, 0, 16, 0]);
            }
            kinds.push(what);
        }
        assert_eq!(kinds, [info::EXPORT, info::NAME, info::DESCRIPTION, info::BLOCK_SIZE]);
        client.option(option::ABORT, b"");
        assert_eq!(client.option_reply(option::ABORT).0, reply::ACK);
        let mut rest = Vec::new();
        assert_eq!(client.stream.read_to_end(&mut rest).expect("an orderly end"), 0);
        // The old-style option.
        let mut client = Client::connect(path);
        client.option(option::EXPORT_NAME, b"anything");
        assert!(client.u64() > 0);
        client.u16();
        assert!(client.ask(0, command::READ, 0, 512, b"").is_ok());
    });
}

/// A client that has vanished without a word would hold its connection permanently: the system asks whether it is there.
#[test]
fn the_network_is_asked_for_clients() {
    let reactor = Reactor::new(ReactorOptions::default()).expect("a reactor");
    let executor = reactor.executor();
    let rt = executor.rt().clone();
    let run = async {
        let listener =
            super::Listener::new(&ListenAddress::Tcp("127.0.0.1:0".parse().expect("an address"))).expect("it listens");
        let ListenAddress::Tcp(address) = listener.address else { panic!("it has another address") };
        let client = std::net::TcpStream::connect(address).expect("it is there");
        let socket = listener.accept(&rt, &reactor).await.expect("it is accepted");
        use rustix::net::sockopt;
        assert_eq!(sockopt::socket_keepalive(&socket), Ok(true));
        let (idle, interval) = (sockopt::tcp_keepidle(&socket), sockopt::tcp_keepintvl(&socket));
        let asked =
            idle.expect("it has one") + interval.expect("it has one") * sockopt::tcp_keepcnt(&socket).expect("one");
        assert!(asked <= Duration::from_secs(180), "{asked:?}");
        drop(client);
    };
    executor.block_on(run).expect("it comes to an end");
}
