//! Golden files of the compressing layers: files once written always open, and are written again with the same bytes.
//!
//! `golden/log-1.files.gz` holds lower files, each with its length before it. `SEEKLESS_BLESS=1 cargo test -p seekless
//! --test engine golden_layer` creates them again. Before the bytes change in a way that was released, keep the old ones
//! under another name: every such file in the folder is tested.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use seekless::fs::client::Client;
use seekless::fs::{AllocateMode, FileRange, Fs};
use seekless::layer::codecs::{Codec, Copy, Deflate, Lz4, Uuencode, Zstd};
use seekless::layer::log::{Options, check, stack_on};
use seekless::rt::{Limits, Rt};
use seekless::testing::MemFs;
use seekless::testing::ops::Filling;
use seekless::testing::subject::simulate;
use seekless::units::Nanos;

const LIMITS: Limits = Limits { events: 10_000_000, until: Nanos::from_secs(100_000) };

fn run<T>(program: impl AsyncFnOnce(Rt) -> T) -> T {
    simulate(1, LIMITS, program).unwrap_or_else(|why| panic!("{why}"))
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/engine/golden")
}

#[allow(clippy::disallowed_methods)]
fn is_blessing() -> bool {
    std::env::var("SEEKLESS_BLESS").is_ok_and(|value| value == "1")
}

/// The codecs, each with whether this project controls its bytes: libraries may find better ones.
fn codecs() -> Vec<(Arc<dyn Codec>, bool)> {
    vec![
        (Arc::new(Copy), true),
        (Arc::new(Uuencode), true),
        (Arc::new(Deflate { level: 9 }), false),
        (Arc::new(Zstd { level: 3 }), false),
        (Arc::new(Lz4), false),
    ]
}

fn options(codec: Arc<dyn Codec>) -> Options {
    Options { chunk_shift: 12, ..Options::new(codec) }
}

/// A life with everything that a file can have: nodes on two levels, holes, a tail, rewritten chunks.
async fn live(rt: &Rt, codec: Arc<dyn Codec>) -> (Vec<u8>, Vec<u8>) {
    let lower = MemFs::new(rt);
    let fs = stack_on(rt, lower.clone(), options(codec)).await.expect("it mounts");
    let client = Client::new(fs.clone());
    let mut content = Filling { bytes: 150_000, tag: 1 }.content();
    let file = client.create(b"/f").await.expect("a file");
    client.write(file, 0, &content).await.expect("written");
    client.fsync(file).await.expect("synced");
    for at in [5_000usize, 70_000, 149_000] {
        content[at..at + 700].fill(at as u8);
        client.write(file, at as u64, &content[at..at + 700]).await.expect("written");
        client.fsync(file).await.expect("synced");
    }
    let range = FileRange { offset: 40_000, bytes: 20_000 };
    client.fallocate(b"/f", range, AllocateMode::PunchHole).await.expect("punched");
    content[40_000..60_000].fill(0);
    // Far enough away for a second level.
    content.resize(30_000_000, 0);
    client.write(file, 30_000_000, b"far away").await.expect("written");
    content.extend_from_slice(b"far away");
    client.fsync(file).await.expect("synced");
    client.write(file, 30_000_008, b", with a tail").await.expect("written");
    content.extend_from_slice(b", with a tail");
    client.fsync(file).await.expect("synced");
    client.close(file).await.expect("closed");
    fs.close().await.expect("closed");
    let below: Fs = lower;
    (Client::new(below).read_file(b"/f").await.expect("the lower file"), content)
}

fn pack(files: &[Vec<u8>]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    for file in files {
        packer.write_all(&(file.len() as u32).to_le_bytes()).expect("memory does not fail");
        packer.write_all(file).expect("memory does not fail");
    }
    packer.finish().expect("memory does not fail")
}

fn unpack(packed: &[u8]) -> Vec<Vec<u8>> {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(packed).read_to_end(&mut bytes).expect("golden files are gzip");
    let (mut files, mut rest) = (Vec::new(), &bytes[..]);
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let (file, next) = after.split_at(u32::from_le_bytes(*length) as usize);
        files.push(file.to_vec());
        rest = next;
    }
    files
}

/// Aim: files of old code open with the current code, with any codec's word; and where this project controls the bytes,
/// the current code writes the same. Method: every stored file, read, checked and compared with its expected content
/// and with a new one.
#[test]
fn golden_files_open_and_are_made_again() {
    let made: Vec<(Vec<u8>, Vec<u8>)> =
        codecs().into_iter().map(|(codec, _)| run(async |rt| live(&rt, codec).await)).collect();
    if is_blessing() {
        let files: Vec<Vec<u8>> = made.iter().map(|(lower, _)| lower.clone()).collect();
        std::fs::write(folder().join("log-1.files.gz"), pack(&files)).expect("the files can be written");
    }
    let mut names: Vec<PathBuf> =
        std::fs::read_dir(folder()).expect("golden files").map(|entry| entry.expect("an entry").path()).collect();
    names.retain(|path| path.to_string_lossy().ends_with(".files.gz"));
    assert!(!names.is_empty(), "there are golden files in {}", folder().display());
    for path in names {
        let files = unpack(&std::fs::read(&path).expect("golden files"));
        assert_eq!(files.len(), codecs().len());
        for ((stored, (now, content)), (codec, is_ours)) in files.into_iter().zip(&made).zip(codecs()) {
            let name = codec.name();
            if is_ours && path.ends_with("log-1.files.gz") {
                let differs = stored.iter().zip(now).position(|(old, new)| old != new);
                assert!(stored == *now, "{name}: today's code writes something else, from byte {differs:?} on");
            }
            run(async |rt| {
                let below: Fs = MemFs::new(&rt);
                Client::new(below.clone()).write_file(b"/f", &stored).await.expect("there is room");
                let report = check::check(&rt, below.clone(), options(Arc::new(Copy)), false).await.expect("checked");
                assert_eq!(report.findings, [], "{name}");
                let fs = stack_on(&rt, below, options(Arc::new(Lz4))).await.expect("it mounts");
                assert!(Client::new(fs).read_file(b"/f").await.expect("it can be read") == *content, "{name}");
            });
        }
    }
}
