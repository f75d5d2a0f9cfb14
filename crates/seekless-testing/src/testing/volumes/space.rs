//! Aim: lack of space is a clean error; deleting then works, and nothing is lost. Errors of unknown effect stop all
//! changes. Method: full volumes, and devices that refuse requests.

use super::*;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::fs::*;
use crate::rng::Rng;
use crate::testing::environment::soak;
use crate::units::MIB;

/// Writes files of `bytes` until there is no more space. Returns their number.
pub async fn fill(client: &Client, bytes: usize) -> u64 {
    for count in 0.. {
        match client.write_file(format!("/f{count}").as_bytes(), &vec![count as u8; bytes]).await {
            Ok(()) => {}
            Err(FsError::NoSpace) => {
                let _ = client.unlink(format!("/f{count}").as_bytes()).await;
                return count;
            }
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!()
}

fn content(version: u64, file: u64, block: u64) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    Rng::new(version << 40 | file << 20 | block).fill(&mut bytes);
    bytes
}

/// A volume that is 95 % full according to `df` is overwritten twenty times over, at random. Each block then holds its
/// last write, and the check finds nothing.
pub fn overwritten_twenty_times_at_95_percent(subject: &dyn FsUnderTest) {
    const VOLUME: u64 = 16 * MIB;
    const BLOCKS: u64 = 16;
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, subject, VOLUME).await;
        let mut versions: Vec<u64> = Vec::new();
        session(&rt, subject, &device, async |client| {
            let space = client.fs().statfs().await.unwrap();
            while client.fs().statfs().await.unwrap().blocks_available > space.blocks / 20 {
                let file = versions.len() as u64 / BLOCKS;
                let open = client.create(format!("/f{file}").as_bytes()).await.unwrap();
                for block in 0..BLOCKS {
                    client.write(open, block * 4096, &content(0, file, block)).await.unwrap();
                    versions.push(0);
                }
                client.close(open).await.unwrap();
            }
            let mut rng = Rng::new(1);
            for version in 1..=soak().times(20 * VOLUME / 4096) {
                let index = rng.below(versions.len() as u64);
                let (file, block) = (index / BLOCKS, index % BLOCKS);
                let open = client.open(format!("/f{file}").as_bytes(), OpenFlags::READ_WRITE).await.unwrap();
                client.write(open, block * 4096, &content(version, file, block)).await.unwrap();
                client.close(open).await.unwrap();
                versions[index as usize] = version;
            }
            println!("{:?}", client.fs().counters());
        })
        .await;
        session(&rt, subject, &device, async |client| {
            for (index, &version) in versions.iter().enumerate() {
                let (file, block) = (index as u64 / BLOCKS, index as u64 % BLOCKS);
                let open = client.open(format!("/f{file}").as_bytes(), OpenFlags::READ).await.unwrap();
                let read = client.read(open, block * 4096, 4096).await.unwrap();
                client.close(open).await.unwrap();
                assert!(read == content(version, file, block), "file {file}, block {block}");
            }
        })
        .await;
    });
}

/// `NoSpace` has no effect, deleting works, and the space can be used again. Several times over, with files of
/// different sizes.
pub fn a_full_volume_lets_go(subject: &dyn FsUnderTest) {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, subject, 16 * MIB).await;
        for bytes in [1_000, 70_000, 2_000_000] {
            session(&rt, subject, &device, async |client| {
                let before = client.fs().statfs().await.unwrap().blocks_available;
                let count = fill(client, bytes).await;
                assert!(count as usize * bytes > 7 << 20 || bytes < 4096, "only {count} files of {bytes} bytes");
                for file in 0..count {
                    let read = client.read_file(format!("/f{file}").as_bytes()).await.unwrap();
                    assert!(read == vec![file as u8; bytes]);
                    client.unlink(format!("/f{file}").as_bytes()).await.unwrap();
                }
                client.sync().await.unwrap();
                let after = client.fs().statfs().await.unwrap().blocks_available;
                assert!(after + 64 >= before, "{before} blocks before, {after} after");
            })
            .await;
        }
    });
}

/// Aim: attributes that are set again need room for all their bytes, though the volume does not grow. Method: files with large
/// attributes, all set again before a timer runs; then all of it is made durable.
pub fn attributes_can_be_set_again(subject: &dyn FsUnderTest) {
    const FILES: u32 = 540;
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, subject, 64 * MIB).await;
        session(&rt, subject, &device, async |client| {
            for round in 1..=3u8 {
                for file in 0..FILES {
                    let name = format!("/f{file}");
                    if round == 1 {
                        client.write_file(name.as_bytes(), b"").await.unwrap();
                    }
                    let set = client.set_xattr(name.as_bytes(), b"user.a", &[round; 60_000]).await;
                    set.unwrap_or_else(|error| panic!("round {round}, file {file}: {error}"));
                }
                client.sync().await.unwrap_or_else(|error| panic!("round {round}: {error}"));
                assert_eq!(client.fs().check().await.unwrap(), Vec::<String>::new());
            }
        })
        .await;
        session(&rt, subject, &device, async |client| {
            for file in 0..FILES {
                let read = client.get_xattr(format!("/f{file}").as_bytes(), b"user.a").await.unwrap();
                assert!(read == [3; 60_000], "file {file}");
            }
        })
        .await;
    });
}

/// A new file can be allocated as many bytes as `df` shows, and then written: indirect blocks and the name are
/// accounted for. On empty volumes and on used ones, of several sizes, and also when what was removed is not free yet.
pub fn what_df_promises_can_be_allocated(subject: &dyn FsUnderTest) {
    simulate(1, async |rt| {
        let volumes = [(10, 0), (16, 0), (16, 30), (24, 7), (64, 0), (64, 90)];
        for ((mib, files), synced) in volumes.into_iter().flat_map(|volume| [(volume, true), (volume, false)]) {
            let (_, device) = fresh(&rt, subject, mib * MIB).await;
            session(&rt, subject, &device, async |client| {
                for file in 0..files {
                    let name = format!("/f{file}");
                    client.write_file(name.as_bytes(), &vec![file as u8; 1_000 + 4_000 * file]).await.unwrap();
                }
                client.sync().await.unwrap();
                for file in (0..files).step_by(3) {
                    client.unlink(format!("/f{file}").as_bytes()).await.unwrap();
                }
                if synced {
                    client.sync().await.unwrap();
                }
                let what = format!("{} of {mib} MiB with {files} files, synced: {synced}", subject.name());
                let blocks = client.fs().statfs().await.unwrap().blocks_available;
                assert!(blocks > mib * 256 / 4, "{what}: {blocks} blocks");
                let file = client.create(b"/new").await.unwrap();
                let range = FileRange { offset: 0, bytes: blocks * 4096 };
                let allocated = client.fallocate(b"/new", range, AllocateMode::Allocate { keep_size: false }).await;
                allocated.unwrap_or_else(|error| panic!("{what}: {blocks} blocks: {error}"));
                for block in 0..blocks {
                    let written = client.write(file, block * 4096, &[block as u8; 4096]).await;
                    written.unwrap_or_else(|error| panic!("{what}: block {block} of {blocks}: {error}"));
                }
                client.fsync(file).await.unwrap_or_else(|error| panic!("{what}: {error}"));
                client.close(file).await.unwrap();
            })
            .await;
        }
    });
}

/// After a failed flush or write nothing more is acknowledged as durable, every change is refused, reads still work,
/// and the volume mounts again with everything that had been synced before.
pub fn errors_of_unknown_effect_stop_all_changes(subject: &dyn FsUnderTest) {
    for kinds in [Kinds::FLUSH, Kinds::WRITE] {
        simulate(1, async |rt| {
            let (_, memory) = fresh(&rt, subject, 32 * MIB).await;
            let fault = FaultDevice::new(&rt, Declares::volatile(memory.clone()), 1);
            let fs = subject.mount(&rt, fault.clone()).await.unwrap();
            let client = Client::new(fs.clone());
            client.write_file(b"/synced", b"kept").await.unwrap();
            client.sync().await.unwrap();
            fault.add(Rule::new(kinds, When::Nth(1), Effect::Error));
            client.write_file(b"/lost", b"perhaps").await.unwrap();
            assert!(matches!(client.sync().await, Err(FsError::Stopped(_))));
            // The device works again, and yet no success is claimed.
            assert!(matches!(client.sync().await, Err(FsError::Stopped(_))));
            assert!(matches!(client.fsync_path(b"/lost").await, Err(FsError::Stopped(_))));
            assert!(matches!(client.write_file(b"/more", b"no").await, Err(FsError::Stopped(_))));
            assert_eq!(client.read_file(b"/synced").await.unwrap(), b"kept");
            assert!(fs.close().await.is_err());
            drop((client, fs));
            session(&rt, subject, &memory, async |client| {
                assert_eq!(client.read_file(b"/synced").await.unwrap(), b"kept");
            })
            .await;
        });
    }
}

/// Freed space is returned to the storage below: it holds more than `full` bytes when the volume is full, and less than
/// `empty` when it has been emptied.
pub fn freed_space_is_given_back(subject: &dyn FsUnderTest, bytes: u64, full: u64, empty: u64) {
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, subject, bytes).await;
        let fs = subject.mount(&rt, device.clone()).await.unwrap();
        let client = Client::new(fs.clone());
        let count = fill(&client, 1 << 20).await;
        client.sync().await.unwrap();
        let when_full = memory.image().allocated_bytes();
        for file in 0..count {
            client.unlink(format!("/f{file}").as_bytes()).await.unwrap();
        }
        fs.close().await.unwrap();
        drop((client, fs));
        session(&rt, subject, &device, async |_| {}).await;
        let when_empty = memory.image().allocated_bytes();
        let seen = format!("{when_full} bytes below when full, {when_empty} when emptied");
        assert!(when_full > full && when_empty < empty, "{seen}");
    });
}

/// `df` reports zero available when nothing more is accepted. Method: a file is written until there is no
/// space.
pub fn a_full_volume_has_nothing_available(subject: &dyn FsUnderTest) {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, subject, 9 * MIB).await;
        let fs = subject.mount(&rt, device).await.unwrap();
        let client = Client::new(fs.clone());
        client.write_file(b"/f", b"").await.unwrap();
        let file = client.open(b"/f", OpenFlags::READ_WRITE).await.unwrap();
        let mut written = 0;
        let full = loop {
            match client.write(file, written, &[7; 4096]).await {
                Ok(_) => written += 4096,
                Err(error) => break error,
            }
        };
        assert_eq!(full, FsError::NoSpace);
        let statfs = fs.statfs().await.unwrap();
        assert_eq!(statfs.blocks_available, 0, "{statfs:?}");
        client.close(file).await.unwrap();
        client.unlink(b"/f").await.unwrap();
        fs.syncfs().await.unwrap();
        assert!(fs.statfs().await.unwrap().blocks_available > written / 4096 * 9 / 10);
    });
}
