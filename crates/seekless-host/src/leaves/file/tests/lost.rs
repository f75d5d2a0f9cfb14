//! Aim: what is lost, or taken away, is not shown as if it were there.

use super::*;

/// F5: what a failed sync has lost is not read by the next user, who would build on it. Method: a loop device over a sparse file on a
/// full tmpfs. Another program has the device open, so that the kernel keeps its pages; the file shows what is stored.
#[test]
fn the_next_user_does_not_read_lost_writes() {
    for bench in benches() {
        let Some(_tmpfs) = SmallTmpfs::mount(bench.directory.path(), MIB) else { return };
        std::fs::File::create(bench.path()).unwrap().set_len(16 * MIB).unwrap();
        let Some(disk) = LoopDevice::attach(&bench.path(), 512) else { return };
        let _other_program = std::fs::File::open(disk.path()).unwrap();
        let written = vec![2; 4 * MIB as usize];
        let device = bench.opened(disk.path(), BUFFERED);
        let lost = async {
            device.write(Sector(4096), Data::from_slice(&written), WriteFlags::NONE).await.unwrap();
            device.flush().await.unwrap_err();
        };
        bench.executor.block_on(lost).unwrap();
        drop(device);
        let stored = std::fs::read(bench.path()).unwrap();
        let stored = &stored[2 * MIB as usize..][..written.len()];
        assert!(stored != written, "nothing was lost");
        for options in [READ_ONLY, BUFFERED] {
            let device = bench.opened(disk.path(), options);
            let read = bench.executor.block_on(device.read(Sector(4096), Buf::dirty(written.len()))).unwrap().unwrap();
            assert!(read[..] == *stored, "{options:?}");
        }
    }
}

/// F2: a new file is of the process that locks it first. Method: another one opens, locks and fills it between the two steps of a creation,
/// and has ended by then or not.
#[test]
fn a_file_of_another_is_not_created_again() {
    use rustix::fs::{FlockOperation, flock};
    for bench in benches() {
        for has_ended in [false, true] {
            let new = std::fs::File::options().read(true).write(true).create_new(true).open(bench.path()).unwrap();
            let other = std::fs::File::options().write(true).open(bench.path()).unwrap();
            flock(&other, FlockOperation::NonBlockingLockExclusive).unwrap();
            std::io::Write::write_all(&mut &other, b"content").unwrap();
            let other = (!has_ended).then_some(other);
            let created =
                FileDevice::create_in(bench.executor.rt(), &bench.reactor, &bench.path(), MIB, BUFFERED, new.into());
            assert!(matches!(created, Err(FileError::InUse { .. })), "{created:?}");
            assert_eq!(std::fs::read(bench.path()).unwrap(), b"content", "the other one has ended: {has_ended}");
            drop(other);
            std::fs::remove_file(bench.path()).unwrap();
        }
    }
}

/// An image that was truncated has lost what was in its end, and does not get its size again by a write there. Method: truncated by its name
/// between a write that was flushed and one of the last block.
#[test]
fn a_truncated_image_is_not_made_long_again() {
    for bench in benches() {
        for flags in [WriteFlags::NONE, WriteFlags::FUA] {
            let device = bench.create(MIB, BUFFERED);
            let last = Sector(MIB / SECTOR_BYTES - 8);
            let run = async {
                for at in [Sector(0), last] {
                    device.write(at, Data::from_slice(&[1; 4096]), WriteFlags::NONE).await.unwrap();
                }
                device.flush().await.unwrap();
                std::fs::File::options().write(true).open(bench.path()).unwrap().set_len(0).unwrap();
                let write = device.write(last, Data::from_slice(&[2; 4096]), flags).await;
                assert!(
                    matches!(&write, Err(DeviceError::Io { cause, .. }) if cause.contains("truncated")),
                    "{write:?}"
                );
                device.flush().await.unwrap_err();
            };
            bench.executor.block_on(run).unwrap();
            std::fs::remove_file(bench.path()).unwrap();
        }
    }
}
