//! Aim: requests of a client that has left do nothing behind what its next connection wrote, and delay neither other clients nor
//! the end of the server. Method: writes to the device wait until the test lets them go.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use async_trait::async_trait;
use seekless::device::{BlockDevice, Buf, Data, DeviceError, Geometry, Guarantees, WriteFlags};
use seekless::rt::Rt;
use seekless::units::Sector;

use super::*;

/// What a test says to its device, from the client's thread, and the device to the test.
#[derive(Default)]
pub(super) struct Hold {
    /// Writes that have reached the device.
    writes: AtomicU64,
    /// Writes from byte [`HELD_FROM`] on can end.
    released: AtomicBool,
    /// The first byte of the device, at the end of the server.
    first_byte: AtomicU64,
}

/// Writes below do not wait.
const HELD_FROM: u64 = 1 << 20;

impl Hold {
    /// The writes that have reached the device, once there are `count`, or after a minute.
    fn wait_for(&self, count: u64) {
        for _ in 0..60_000 {
            if self.writes.load(SeqCst) >= count {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("{} of {count} writes have come", self.writes.load(SeqCst));
    }

    pub(super) fn release(&self) {
        self.released.store(true, SeqCst);
    }
}

pub(super) struct HeldDevice {
    pub(super) rt: Rt,
    pub(super) memory: Rc<Memory>,
    pub(super) hold: Arc<Hold>,
}

#[async_trait(?Send)]
impl BlockDevice for HeldDevice {
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }

    fn guarantees(&self) -> Guarantees {
        self.memory.guarantees()
    }

    async fn read(&self, at: Sector, buf: Buf) -> Result<Buf, DeviceError> {
        self.memory.read(at, buf).await
    }

    async fn write(&self, at: Sector, data: Data, flags: WriteFlags) -> Result<(), DeviceError> {
        if at.byte_offset() >= HELD_FROM {
            self.hold.writes.fetch_add(1, SeqCst);
            while !self.hold.released.load(SeqCst) {
                self.rt.sleep(Nanos::from_millis(1)).await;
            }
        }
        self.memory.write(at, data, flags).await
    }

    /// The server flushes once more when it ends.
    async fn flush(&self) -> Result<(), DeviceError> {
        let first = self.memory.read(Sector(0), Buf::dirty(512)).await?;
        self.hold.first_byte.store(u64::from(first[0]), SeqCst);
        self.memory.flush().await
    }

    async fn discard(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        self.memory.discard(at, sectors).await
    }

    fn describe(&self) -> String {
        "a device that waits for its test".to_owned()
    }
}

/// As many requests as a connection can have pending.
const PENDING_MAX: u64 = 512;

/// A client whose pending requests wait in the device, with one more in its socket, which writes `byte` to the first block.
fn client_with_one_more(path: &Path, hold: &Hold, byte: u8) -> Client {
    let (mut client, _, _) = Client::open(path, false);
    for number in 0..PENDING_MAX {
        client.request(0, command::WRITE, HELD_FROM + number * 512, 512);
        client.send(&[1; 512]);
    }
    client.request(0, command::WRITE, 0, 512);
    client.send(&[byte; 512]);
    hold.wait_for(PENDING_MAX);
    client
}

/// A client closes a connection, writes the same again and then something newer over its next one, and flushes: the older write,
/// which is still in the socket of the first one, must not come behind them.
#[test]
fn what_was_left_in_a_socket_does_not_undo_newer_writes() {
    let hold = Arc::new(Hold::default());
    let (offer, seen) = (Offer::Held(hold.clone()), hold.clone());
    with_server(offer, move |path| {
        drop(client_with_one_more(path, &hold, b'O'));
        let (mut next, _, _) = Client::open(path, false);
        for byte in [b'O', b'N'] {
            assert_eq!(next.ask(flag::FUA, command::WRITE, 0, 512, &[byte; 512]), Ok(vec![]));
        }
        assert_eq!(next.ask(0, command::FLUSH, 0, 0, b""), Ok(vec![]));
        hold.release();
        // Each answer comes after a write of the first connection.
        for number in 0..PENDING_MAX {
            let read = next.ask(0, command::READ, HELD_FROM + number * 512, 512, b"");
            assert_eq!(read, Ok(vec![1; 512]), "write {number} had begun");
        }
        for _ in 0..100 {
            assert_eq!(next.ask(0, command::READ, 0, 512, b""), Ok(vec![b'N'; 512]));
        }
    });
    assert_eq!(seen.first_byte.load(SeqCst), u64::from(b'N'));
}

/// What precedes `DISCONNECT` is done, also when the client closes its connection before the answers.
#[test]
fn what_precedes_a_farewell_is_done() {
    let hold = Arc::new(Hold::default());
    with_server(Offer::Held(hold.clone()), move |path| {
        let mut client = client_with_one_more(path, &hold, b'O');
        client.request(0, command::DISCONNECT, 0, 0);
        drop(client);
        hold.release();
        let (mut next, _, _) = Client::open(path, false);
        for turn in 0.. {
            let read = next.ask(0, command::READ, 0, 512, b"").expect("it can be read");
            if read == [b'O'; 512] {
                break;
            }
            assert!(turn < 60_000, "the write before DISCONNECT is missing");
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

/// A client that asks for zeroes in the same range `count` times, in several pieces each, and waits for the first piece.
fn client_that_zeroes(path: &Path, hold: &Hold, count: u64) -> Client {
    let (mut client, size, _) = Client::open(path, false);
    for _ in 0..count {
        client.request(flag::NO_HOLE, command::WRITE_ZEROES, HELD_FROM, (size - HELD_FROM) as u32);
    }
    hold.wait_for(1);
    client
}

/// Zeroes that a client asked for before it left do not keep another from their range.
#[test]
fn zeroes_end_with_their_client() {
    let hold = Arc::new(Hold::default());
    with_server(Offer::Held(hold.clone()), move |path| {
        drop(client_that_zeroes(path, &hold, 600));
        let (mut next, size, _) = Client::open(path, false);
        next.request(0, command::READ, size - 512, 512);
        hold.release();
        assert_eq!(next.reply(512).1, Ok(vec![0; 512]));
        assert_eq!(hold.writes.load(SeqCst), 1, "the piece that had begun");
    });
}

/// The server ends after one piece of the zeroes that clients have asked for, and begins nothing that is still in a socket.
#[test]
fn the_server_does_not_wait_for_zeroes() {
    let hold = Arc::new(Hold::default());
    let seen = hold.clone();
    let client = Arc::new(std::sync::Mutex::new(None));
    let kept = client.clone();
    with_server(Offer::Held(hold.clone()), move |path| {
        *kept.lock().unwrap() = Some(client_that_zeroes(path, &hold, 600));
    });
    assert_eq!(seen.writes.load(SeqCst), 1, "the piece that had begun");
    drop(client);
}
