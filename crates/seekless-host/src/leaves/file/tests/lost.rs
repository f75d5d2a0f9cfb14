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
