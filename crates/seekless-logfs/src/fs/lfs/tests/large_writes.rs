//! Aim: large writes, whose buffers the cache shares, read as they were written, and the cache's books balance, whatever
//! becomes of their blocks. Method: writes of up to 2 MiB, at any offset, small ones over them, truncations, holes, and
//! fsyncs beside a write, on two files and a cache of 256 blocks; after every fourth operation a recount of everything,
//! and after every eighth what is read compared with vectors.

use futures_util::future::join;

use super::*;
use crate::device::Data;
use crate::rng::Rng;
use crate::testing::volumes::life::must_have_covered;
use crate::units::{Ino, KIB};

const FILE_BYTES_MAX: u64 = 4 * MIB;

/// Cover points that the test must come to.
const POINTS: &[&str] = &["logfs: what is left of a large write moves out of its buffer"];

struct File {
    ino: Ino,
    bytes: Vec<u8>,
}

impl File {
    /// Notes a write.
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[offset..end].copy_from_slice(bytes);
    }
}

async fn read_all(fs: &Fs, file: &File) -> Vec<u8> {
    let pieces = fs.read(file.ino, None, 0, 2 * FILE_BYTES_MAX as u32).await.unwrap();
    pieces.iter().flat_map(|piece| piece.iter().copied()).collect()
}

async fn act(fs: &Fs, rng: &mut Rng, file: &mut File) {
    let offset = match rng.below(3) {
        0 => rng.below(FILE_BYTES_MAX),
        _ => rng.below(FILE_BYTES_MAX / 4096) * 4096,
    };
    let room = FILE_BYTES_MAX - offset;
    match rng.below(8) {
        0..4 => {
            let length = [4096, 12 * KIB, 512 * KIB + 1, MIB, rng.between(1, 2 * MIB)][rng.below(5) as usize].min(room);
            let mut bytes = vec![0; length as usize];
            rng.fill(&mut bytes);
            let data = Data::from_slice(&bytes);
            let write = fs.write(file.ino, None, offset, data.clone(), WriteMode::default());
            if rng.chance(1, 3) {
                let (written, synced) = join(write, fs.fsync(file.ino, None, false)).await;
                written.and(synced).unwrap();
            } else {
                write.await.unwrap();
            }
            file.write(offset as usize, &bytes);
            // The same buffer once more, elsewhere.
            if rng.chance(1, 4) {
                fs.write(file.ino, None, 0, data, WriteMode::default()).await.unwrap();
                file.write(0, &bytes);
            }
        }
        4 | 5 => {
            let bytes = [offset as u8; 700];
            fs.write(file.ino, None, offset, Data::from_slice(&bytes), WriteMode::default()).await.unwrap();
            file.write(offset as usize, &bytes);
        }
        6 => {
            let size = SetAttr { size: Some(offset), ..SetAttr::default() };
            fs.setattr(file.ino, None, size).await.unwrap();
            file.bytes.resize(offset as usize, 0);
        }
        _ => {
            let range = FileRange { offset, bytes: rng.between(1, MIB) };
            fs.fallocate(file.ino, None, range, AllocateMode::PunchHole).await.unwrap();
            let end = file.bytes.len().min((offset + range.bytes) as usize);
            let from = end.min(offset as usize);
            file.bytes[from..end].fill(0);
        }
    }
}

#[test]
fn large_writes_in_a_small_cache() {
    for seed in 0..4 {
        simulate(seed, async |rt| {
            let (_memory, device) = fresh(&rt, 64 * MIB).await;
            let options = Options { cache_bytes: MIB, cache_data: seed % 2 == 0, ..Options::default() };
            let fs: Fs = mount(rt.clone(), device.clone(), options).await.unwrap();
            let client = Client::new(fs.clone());
            let mut files = Vec::new();
            for name in [b"/one", b"/two"] {
                files.push(File { ino: client.create(name).await.unwrap().ino, bytes: Vec::new() });
            }
            let mut rng = Rng::new(seed);
            for step in 0..120 {
                let file = rng.below(2) as usize;
                act(&fs, &mut rng, &mut files[file]).await;
                if step % 4 == 0 {
                    assert_eq!(fs.check().await.unwrap(), Vec::<String>::new(), "seed {seed}, step {step}");
                }
                if step % 8 == 0 {
                    assert!(read_all(&fs, &files[file]).await == files[file].bytes, "seed {seed}, step {step}");
                }
            }
            for file in &files {
                assert!(read_all(&fs, file).await == file.bytes, "seed {seed}, at the end");
            }
            fs.close().await.unwrap();
            assert_clean(&rt, &device).await;
        });
    }
    must_have_covered("large_writes_in_a_small_cache", POINTS);
}
