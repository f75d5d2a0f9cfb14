//! The drive as a block device: what it stores, what it promises, and what waits for what.

use std::rc::Rc;

use super::{FILLS, small};
use crate::device::{BlockDevice, Buf, Data, Discard, WriteFlags};
use crate::flash::{Fill, Options, Ssd, SsdDevice};
use crate::rng::Rng;
use crate::rt::{Executor, HostProfile, Rt};
use crate::units::{MIB, Nanos, Sector};

fn run<T: 'static>(drive: Ssd, fill: Fill, body: impl AsyncFnOnce(Rc<SsdDevice>, Rt) -> T + 'static) -> T {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt().clone();
    let options = Options { fill, ..Options::default() };
    let device = Rc::new(SsdDevice::new(rt.clone(), &drive, options).expect("a drive"));
    executor.block_on(async move { body(device, rt).await }).expect("it ends")
}

async fn timed<T>(rt: &Rt, work: impl Future<Output = T>) -> (T, Nanos) {
    let before = rt.now();
    let result = work.await;
    (result, rt.now() - before)
}

/// Aim: bytes are those that were written last, also when requests for the same unit are outstanding at once. Method: random
/// requests in groups of four that share units but not sectors, against an array.
#[test]
fn bytes_are_kept() {
    for fill in FILLS {
        run(small(2 * MIB, 4, 2500), fill, async |device, rt| {
            let mut rng = Rng::new(7);
            let mut model = vec![0_u8; 2 << 20];
            for round in 0..400_u64 {
                let base = rng.below(4096 - 8) / 8 * 8;
                let mut tasks = Vec::new();
                for quarter in 0..4_u64 {
                    let (at, sectors) = (base + 2 * quarter, 1 + rng.below(2));
                    let bytes = vec![(round % 251) as u8 + 1; sectors as usize * 512];
                    model[at as usize * 512..][..bytes.len()].copy_from_slice(&bytes);
                    let device = device.clone();
                    tasks.push(rt.spawn(async move {
                        device.write(Sector(at), Data::from_slice(&bytes), WriteFlags::NONE).await.expect("a write");
                    }));
                }
                for task in tasks {
                    task.await;
                }
                if round % 5 == 0 {
                    let (at, sectors) = (rng.below(4000), rng.below(64));
                    device.discard(Sector(at), sectors).await.expect("a discard");
                    model[at as usize * 512..][..sectors as usize * 512].fill(0);
                }
                let read = device.read(Sector(base), Buf::dirty(4096)).await.expect("a read");
                assert_eq!(&read[..], &model[base as usize * 512..][..4096]);
            }
            let whole = device.read(Sector(0), Buf::dirty(2 << 20)).await;
            assert!(whole.is_ok_and(|whole| whole[..] == model[..]), "longer than the host's limit is no error");
        });
    }
}

/// Aim: a flush returns when what was confirmed before it is on flash, and not before. Method: without protection a write that
/// is confirmed in microseconds makes the next flush wait for a program operation, and one flush later nothing waits; forced
/// unit access waits by itself; with protection neither waits.
#[test]
fn flushes_wait_for_what_is_not_durable() {
    for protected in [true, false] {
        let mut drive = small(8 * MIB, 8, 700);
        drive.buffer.protected = protected;
        let program = drive.cells.program;
        run(drive, Fill::Fresh, async move |device, rt| {
            let guarantees = device.guarantees();
            assert_eq!((guarantees.durable_on_completion, guarantees.discard), (protected, Discard::Zeroes));
            let write = |at: u64, flags| device.write(Sector(at), Data::from_slice(&[1; 4096]), flags);
            let (_, empty) = timed(&rt, device.flush()).await;
            let (_, plain) = timed(&rt, write(0, WriteFlags::NONE)).await;
            let (_, flush) = timed(&rt, device.flush()).await;
            let (_, again) = timed(&rt, device.flush()).await;
            let (_, forced) = timed(&rt, write(64, WriteFlags::FUA)).await;
            assert!(plain < program && empty < program && again < program);
            assert_eq!((flush > program, forced > program), (!protected, !protected));
        });
    }
}

/// Aim: a flush while garbage is collected ends, and what it waits for is there. Method: flushes between random overwrites of
/// a full drive without protection; after each, nothing that was written waits in the buffer, so that the next one is quick.
#[test]
fn flushes_end_while_garbage_is_collected() {
    let mut drive = small(4 * MIB, 4, 1200);
    drive.buffer = crate::flash::WriteBuffer { bytes: MIB / 4, protected: false };
    let program = drive.cells.program;
    run(drive, Fill::Random, async move |device, rt| {
        let mut rng = Rng::new(3);
        for _ in 0..200 {
            for _ in 0..rng.below(20) {
                let at = Sector(rng.below(1024) * 8);
                device.write(at, Data::from_slice(&[1; 4096]), WriteFlags::NONE).await.expect("a write");
            }
            device.flush().await.expect("a flush");
            let (_, again) = timed(&rt, device.flush()).await;
            assert!(again < program, "{again:?}");
        }
        let counters = device.counters();
        let count = |name: &str| counters.iter().find(|(other, _)| *other == name).expect("it is counted").1;
        let counts = ["collections", "units_moved", "units_padded"].map(count);
        assert!(counts.iter().all(|count| *count > 20), "{counts:?}");
        assert!(count("busy_ns") <= rt.now().0);
    });
}

/// Aim: each unit that a read asks for is counted where it was: in the buffer, on flash, or in neither. Method: units of which all,
/// some and no sectors were written, before and after a flush.
#[test]
fn units_are_counted_where_they_are() {
    let mut drive = small(8 * MIB, 8, 700);
    drive.buffer.protected = false;
    run(drive, Fill::Fresh, async |device, _| {
        let write = |at: u64, bytes: usize| {
            let bytes = Data::from_slice(&vec![1; bytes]);
            device.write(Sector(at), bytes, WriteFlags::NONE)
        };
        let counts = || ["units_read", "buffer_hits", "units_unwritten"].map(|name| count(&device.counters(), name));
        write(0, 4096).await.expect("a write");
        write(8, 512).await.expect("a write");
        let read = async || device.read(Sector(0), Buf::dirty(16384)).await.expect("a read");
        read().await;
        assert_eq!(counts(), [4, 2, 2]);
        device.flush().await.expect("a flush");
        read().await;
        assert_eq!(counts(), [8, 2, 4]);
    });
}

fn count(counters: &[(&'static str, u64)], name: &str) -> u64 {
    counters.iter().find(|(other, _)| *other == name).expect("it is counted").1
}

/// Aim: a discard of what waits in the buffer leaves nothing of it. Method: write, discard at once, and read in no time; then
/// the place is written again.
#[test]
fn discards_reach_the_buffer() {
    let drive = small(4 * MIB, 4, 1200);
    let read_time = drive.cells.read;
    run(drive, Fill::Sequential, async move |device, rt| {
        for round in 0..200_u64 {
            let at = Sector(round * 8 % 8192);
            device.write(at, Data::from_slice(&[9; 4096]), WriteFlags::NONE).await.expect("a write");
            device.discard(at, 8).await.expect("a discard");
            let (read, time) = timed(&rt, device.read(at, Buf::dirty(4096))).await;
            assert!(read.is_ok_and(|read| read.iter().all(|byte| *byte == 0)));
            assert!(time < read_time, "{time:?}: there is nothing on flash to read");
        }
    });
}

/// Aim: reads on different dies overlap, and reads of one die wait for each other. Method: eight reads at once of units on
/// eight dies, and of one.
#[test]
fn dies_work_in_parallel() {
    let stripe = 32; // Sectors of a page of 16 KiB.
    let times = [stripe, 8 * stripe].map(|step| {
        let drive = small(64 * MIB, 16, 700);
        run(drive, Fill::Sequential, async move |device, rt| {
            let reads: Vec<_> = (0..8_u64)
                .map(|index| {
                    let device = device.clone();
                    rt.spawn(async move { device.read(Sector(index * step), Buf::dirty(4096)).await.is_ok() })
                })
                .collect();
            for read in reads {
                assert!(read.await);
            }
            rt.now()
        })
    });
    assert!(times[0].0 * 3 < times[1].0, "{times:?}");
    assert!(times[1] > Nanos::from_micros(8 * 60));
}

/// Aim: no part is busy for longer than there was time. Method: overwrites of a full drive, 32 at once, and the counters after each
/// of them, while the drive has more booked than it has done.
#[test]
fn booked_work_is_not_done_yet() {
    let drive = small(4 * MIB, 4, 1200);
    let lanes = [("dies_busy_ns", u64::from(drive.cells.dies)), ("channels_busy_ns", u64::from(drive.cells.channels))];
    run(drive, Fill::Random, async move |device, rt| {
        let mut rng = Rng::new(5);
        for _ in 0..30 {
            let writes: Vec<_> = (0..32)
                .map(|_| {
                    let (device, rt, at) = (device.clone(), rt.clone(), Sector(rng.below(1024) * 8));
                    rt.clone().spawn(async move {
                        device.write(at, Data::from_slice(&[1; 4096]), WriteFlags::NONE).await.expect("a write");
                        let counters = device.counters();
                        let count = |name| counters.iter().find(|(other, _)| *other == name).expect("it is counted").1;
                        for (busy, lanes) in lanes.into_iter().chain([("firmware_busy_ns", 1)]) {
                            assert!(count(busy) <= lanes * rt.now().0, "{busy}: {counters:?} at {:?}", rt.now());
                        }
                    })
                })
                .collect();
            for write in writes {
                write.await;
            }
        }
    });
}
