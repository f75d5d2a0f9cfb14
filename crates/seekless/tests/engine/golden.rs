//! Golden volumes: images that were made once and are kept, so that old volumes open with new code, and unintended
//! changes of the written bytes are noticed.
//!
//! `golden/lfs-1.img.gz` is an LFS volume of 16 MiB as a crash leaves it, and `golden/lfs-1.txt` its content; `lfs-2`
//! is one with access-control lists. So are `vlfs-1` and `vlfs-2` (see `logs`), and `ffs-1` and `ffs-2`, with metadata
//! in order and with soft updates (see `ffs`), and `zones-1`, LFS on zones (see `zoned`). `SEEKLESS_BLESS=1 cargo test -p seekless --test engine golden` creates
//! all again. Before the bytes change in a way that was released, keep the old pair under another name: every pair in the
//! folder is tested.

mod ffs;
mod lfs;
mod logs;
mod vlfs;
mod zoned;

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use seekless::codec::crc32c;
use seekless::device::{Device, Image, Memory};
use seekless::fs::client::Client;
use seekless::fs::{AllocateMode, FileKind, FileRange, Fs, FsError, FsResult, SeekTo, SetAttr};
use seekless::rt::{Limits, Rt};
use seekless::testing::ops::{Filling, Path as FsPath};
use seekless::testing::subject::simulate;
use seekless::units::{KIB, MIB, Nanos, SECTOR_BYTES, Sector};

const VOLUME_BYTES: u64 = 16 * MIB;
const SEED: u64 = 1;
const LIMITS: Limits = Limits { events: 10_000_000, until: Nanos::from_secs(100_000) };

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/engine/golden")
}

#[allow(clippy::disallowed_methods)]
fn is_blessing() -> bool {
    std::env::var("SEEKLESS_BLESS").is_ok_and(|value| value == "1")
}

fn run<T>(program: impl AsyncFnOnce(Rt) -> T) -> T {
    simulate(SEED, LIMITS, program).unwrap_or_else(|why| panic!("{why}"))
}

/// `bytes` that compress well and differ from file to file.
fn text(number: u32, bytes: u32) -> Vec<u8> {
    Filling { bytes, tag: number * 4 + 1 }.content()
}

/// 500 names in a directory at the end of a long path, most of them additional names of a few files.
async fn deep_directory(client: &Client) -> FsResult<()> {
    let mut path = String::new();
    for level in 0..12 {
        write!(path, "/level{level}").expect("a string grows");
        client.mkdir(path.as_bytes()).await?;
    }
    for name in 0..500u32 {
        let new = format!("{path}/entry number {name}");
        match name {
            0..20 => client.write_file(new.as_bytes(), &text(500 + name, name * 40)).await?,
            _ => client.link(format!("{path}/entry number {}", name % 20).as_bytes(), new.as_bytes()).await?,
        }
    }
    for name in (100..500).step_by(7) {
        client.unlink(format!("{path}/entry number {name}").as_bytes()).await?;
    }
    Ok(())
}

/// Every kind of file, with attributes short and long, and owners and permissions.
async fn kinds(rt: &Rt, client: &Client) -> FsResult<()> {
    use seekless::fs::{NewNode, NodeKind};
    use seekless::units::Ino;
    let new = NewNode { permissions: 0o640, umask: 0, uid: 1000, gid: 100 };
    let special = [
        (&b"fifo"[..], NodeKind::Fifo),
        (b"socket", NodeKind::Socket),
        (b"tty", NodeKind::CharDevice { device: 0x401 }),
        (b"disk", NodeKind::BlockDevice { device: 0x10_3000 }),
    ];
    for (name, kind) in special {
        let entry = client.fs().mknod(Ino::ROOT, name, kind, new).await?;
        client.forget(entry.attr.ino).await;
    }
    client.symlink(b"target", b"/short link").await?;
    client.symlink(&[b'x'; 132], b"/link that just fits").await?;
    client.symlink(&[b'y'; 133], b"/link that does not").await?;
    client.symlink(&b"/a/long/way".repeat(300), b"/long link").await?;
    client.write_file(&[b"/", &[b'n'; 255][..]].concat(), b"the longest name").await?;
    client.write_file(b"/\xff\xfe not text", b"bytes").await?;
    client.set_xattr(b"/d0", b"user.directory", b"of files").await?;
    client.set_xattr(b"/d0/file1", b"user.short", b"value").await?;
    client.set_xattr(b"/d0/file1", b"trusted.empty", b"").await?;
    client.set_xattr(b"/d0/file2", b"user.long", &text(600, 60_000)).await?;
    for number in 0..50 {
        client.set_xattr(b"/d0/file3", format!("user.name{number:02}").as_bytes(), &[number; 10]).await?;
    }
    let owner = SetAttr { permissions: Some(0o6755), uid: Some(1000), gid: Some(100), ..SetAttr::default() };
    client.setattr(b"/d1/file3", owner).await?;
    rt.sleep(Nanos::from_secs(1)).await;
    client.setattr(b"/d2", SetAttr { permissions: Some(0o3777), ..SetAttr::default() }).await?;
    Ok(())
}

/// Files with holes, with indirect blocks far behind their start, and with preallocated space.
async fn sparse(client: &Client) -> FsResult<()> {
    client.write_file(b"/holes", &text(700, 200_000)).await?;
    for (number, offset) in [0, 7 * 4096, 348 * 4096, 116_629 * 4096, 1 << 40, (1 << 43) - 17].into_iter().enumerate() {
        let file = client.open_or_create(b"/far").await?;
        client.write(file, offset, &text(710 + number as u32, 17)).await?;
        client.close(file).await?;
    }
    client.write_file(b"/set aside", &text(720, 10_000)).await?;
    let range = FileRange { offset: 4096, bytes: 100_000 };
    client.fallocate(b"/set aside", range, AllocateMode::Allocate { keep_size: false }).await?;
    let behind = FileRange { offset: 200_000, bytes: 50_000 };
    client.fallocate(b"/set aside", behind, AllocateMode::Allocate { keep_size: true }).await
}

fn device_of(image: &Image) -> Device {
    Rc::new(Memory::from_image(VOLUME_BYTES, image.clone()))
}

fn bytes_of(image: &Image) -> Vec<u8> {
    let mut bytes = vec![0; VOLUME_BYTES as usize];
    image.read(Sector::ZERO, &mut bytes);
    bytes
}

/// Everything visible through a file system's interface, as text.
async fn listing(fs: Fs) -> FsResult<String> {
    let client = Client::new(fs);
    let mut text = String::new();
    let mut open = vec![FsPath::from("/")];
    while let Some(path) = open.pop() {
        let attr = client.stat(&path.0).await?;
        let (kind, links, uid, gid) = (attr.kind, attr.links, attr.uid, attr.gid);
        let mut line = format!("{path} {kind:?} {:o} links {links} owner {uid}:{gid}", attr.permissions);
        let mut add = |words: std::fmt::Arguments<'_>| line.write_fmt(words).expect("a string grows");
        if attr.device != 0 {
            add(format_args!(" device {:x}", attr.device));
        }
        if kind == FileKind::Regular {
            add(format_args!(" {} bytes in {} sectors", attr.size, attr.sectors));
        }
        for (name, time) in [("m", attr.mtime), ("c", attr.ctime), ("b", attr.btime)] {
            add(format_args!(" {name} {}.{:09}", time.seconds, time.nanos));
        }
        match kind {
            FileKind::Regular => add(format_args!("{}", contents(&client, &path, attr.size).await?)),
            FileKind::Symlink => {
                let target = client.read_link(&path.0).await?;
                add(format_args!(" to {} bytes, crc {:08x}", target.len(), crc32c(&target)));
            }
            FileKind::Directory => {
                let mut names: Vec<Vec<u8>> =
                    client.read_dir(&path.0).await?.into_iter().map(|entry| entry.name).collect();
                names.sort();
                add(format_args!(" {} names", names.len()));
                open.extend(names.iter().rev().map(|name| path.join(name)));
            }
            _ => {}
        }
        for name in client.list_xattr(&path.0).await? {
            let value = client.get_xattr(&path.0, &name).await?;
            let name = String::from_utf8_lossy(&name);
            add(format_args!(" {name}={} bytes, crc {:08x}", value.len(), crc32c(&value)));
        }
        text += &line;
        text.push('\n');
    }
    Ok(text)
}

/// The data regions of a file, with the checksum of each.
async fn contents(client: &Client, path: &FsPath, size: u64) -> FsResult<String> {
    let mut text = String::new();
    let file = client.open(&path.0, seekless::fs::OpenFlags::READ).await?;
    let seek = |offset, to| client.fs().lseek(file.ino, file.handle, offset, to);
    let mut at = 0;
    while at < size {
        let data = match seek(at, SeekTo::Data).await {
            Ok(data) => data,
            Err(FsError::NoSuchOffset) => break,
            Err(error) => return Err(error),
        };
        let end = seek(data, SeekTo::Hole).await?;
        let bytes = client.read(file, data, (end - data) as u32).await?;
        assert_eq!(bytes.len() as u64, end - data, "{path}: a short read");
        write!(text, " {data}..{end} crc {:08x}", crc32c(&bytes)).expect("a string grows");
        at = end;
    }
    client.close(file).await?;
    Ok(text)
}

fn unpack(packed: &[u8]) -> Image {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(packed).read_to_end(&mut bytes).expect("a golden image is gzip");
    assert_eq!(bytes.len() as u64, VOLUME_BYTES);
    let mut image = Image::default();
    for (number, chunk) in bytes.chunks(64 * KIB as usize).enumerate() {
        if chunk.iter().any(|&byte| byte != 0) {
            image.write(Sector(number as u64 * 64 * KIB / SECTOR_BYTES), chunk);
        }
    }
    image
}

fn pack(image: &Image) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packer.write_all(&bytes_of(image)).expect("memory does not fail");
    packer.finish().expect("memory does not fail")
}

/// The first difference of two texts, with its line number.
fn first_difference(one: &str, two: &str) -> Option<String> {
    let (mut ones, mut twos) = (one.lines(), two.lines());
    let mut number = 0;
    loop {
        number += 1;
        match (ones.next(), twos.next()) {
            (None, None) => return None,
            (one, two) if one == two => {}
            (one, two) => return Some(format!("line {number}:\n  {}\n  {}", one.unwrap_or("-"), two.unwrap_or("-"))),
        }
    }
}

/// The stored images with this prefix.
fn stored_images(prefix: &str) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder()).expect("golden images").map(|entry| entry.expect("an entry").path()).collect();
    let is_image = |name: &str| name.starts_with(prefix) && name.ends_with(".img.gz");
    paths.retain(|path| path.file_name().is_some_and(|name| is_image(&name.to_string_lossy())));
    paths.sort();
    assert!(!paths.is_empty(), "there are golden images {prefix}* in {}", folder().display());
    paths
}

fn compare_listing(path: &Path, found: &str) {
    let stored = path.to_string_lossy().replace(".img.gz", ".txt");
    let stored = std::fs::read_to_string(&stored).unwrap_or_else(|error| panic!("{stored}: {error}"));
    if let Some(difference) = first_difference(&stored, found) {
        panic!("{}: stored and found differ, {difference}", path.display());
    }
}

fn store(name: &str, image: &Image, listing: &str) {
    std::fs::create_dir_all(folder()).expect("a folder for golden images");
    std::fs::write(folder().join(format!("{name}.img.gz")), pack(image)).expect("the image can be written");
    std::fs::write(folder().join(format!("{name}.txt")), listing).expect("the listing can be written");
}
