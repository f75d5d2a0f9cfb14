//! What a file or block device holds, so that data is not formatted away by mistake: by known signatures, else by any
//! byte that is not zero.
//!
//! The programs that do this, `blkid` and `file`, are not installed everywhere, and neither knows our own formats.

use std::fs::File;
use std::io;
use std::num::NonZero;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, SeekFrom};
use rustix::io::Errno;
use seekless::stack::MagicOffset::{self, End, Start};
use seekless::units::{MIB, SECTOR_BYTES, human_bytes};
use seekless::volume::format::{BLOCK_BYTES as ARRAY_BLOCK_BYTES, SUPERBLOCKS as ARRAY_SUPERBLOCKS, Superblock};

/// A magic number at a fixed place.
#[derive(Clone, Copy)]
struct Magic {
    at: MagicOffset,
    bytes: &'static [u8],
    /// What it belongs to, with its article.
    name: &'static str,
}

const fn at(offset: u64, bytes: &'static [u8], name: &'static str) -> Magic {
    Magic { at: Start(offset), bytes, name }
}

/// Formats that the words of the stack line do not have. Offsets and magic numbers of file systems, volumes and partition tables are those of util-linux's libblkid
/// (`libblkid/src/superblocks`, `libblkid/src/partitions`); of other files those of file(1)'s magic database. The most
/// specific ones come first.
#[rustfmt::skip]
const FOREIGN: &[Magic] = &[
    // Containers of other things
    at(0, b"LUKS\xba\xbe", "a LUKS volume"),
    at(0x4000, b"SKUL\xba\xbe", "a LUKS volume"),
    at(3, b"-FVE-FS-", "a BitLocker volume"),
    at(512, b"LABELONE", "an LVM physical volume"),
    at(0, b"LABELONE", "an LVM physical volume"),
    at(0, b"\xfc\x4e\x2b\xa9", "a member of a Linux RAID array"),
    at(4096, b"\xfc\x4e\x2b\xa9", "a member of a Linux RAID array"),
    // File systems
    at(0, b"XFSB", "an XFS file system"),
    at(0x10040, b"_BHRfS_M", "a btrfs file system"),
    at(3, b"NTFS    ", "an NTFS file system"),
    at(3, b"EXFAT   ", "an exFAT file system"),
    at(82, b"FAT32   ", "a FAT file system"),
    at(54, b"FAT16   ", "a FAT file system"),
    at(54, b"FAT12   ", "a FAT file system"),
    at(1024, b"\x10\x20\xf5\xf2", "an F2FS file system"),
    at(1024, b"\xe2\xe1\xf5\xe0", "an EROFS file system"),
    at(1024, b"H+", "an HFS+ file system"),
    at(32, b"NXSB", "an APFS container"),
    at(1030, b"\x34\x34", "a NILFS2 file system"),
    at(4096 + 24, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", "a bcache or bcachefs device"),
    at(128 << 10, b"\x0c\xb1\xba\x00\x00\x00\x00\x00", "a ZFS member"),
    at(0x10034, b"ReIsEr", "a ReiserFS file system"),
    at(0x8000, b"JFS1", "a JFS file system"),
    at(0x10000, b"\x01\x16\x19\x70", "a GFS2 file system"),
    at(0, b"hsqs", "a SquashFS file system"),
    at(0, b"\x45\x3d\xcd\x28", "a cramfs file system"),
    at(0x8001, b"CD001", "an ISO 9660 file system"),
    at(4096 - 10, b"SWAPSPACE2", "swap space"),
    at(4096 - 10, b"SWAP-SPACE", "swap space"),
    at(65536 - 10, b"SWAPSPACE2", "swap space"),
    at(0x438, b"\x53\xef", "an ext2, ext3 or ext4 file system"),
    // Images of disks
    at(0, b"QFI\xfb", "a qcow2 disk image"),
    at(0, b"KDMV", "a VMDK disk image"),
    at(0, b"vhdxfile", "a VHDX disk image"),
    at(0x40, b"\x7f\x10\xda\xbe", "a VDI disk image"),
    // Partition tables
    at(512, b"EFI PART", "a GPT partition table"),
    at(4096, b"EFI PART", "a GPT partition table"),
    Magic { at: End(512), bytes: b"EFI PART", name: "a GPT partition table" },
    Magic { at: End(4096), bytes: b"EFI PART", name: "a GPT partition table" },
    at(510, b"\x55\xaa", "an MBR partition table or boot sector"),
    // Other files
    at(0, b"SQLite format 3\0", "an SQLite database"),
    at(257, b"ustar", "a tar archive"),
    at(0, b"PK\x03\x04", "a ZIP archive"),
    at(0, b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    at(0, b"\x1f\x8b", "gzip data"),
    at(0, b"\xfd7zXZ\0", "xz data"),
    at(0, b"\x28\xb5\x2f\xfd", "Zstandard data"),
    at(0, b"BZh", "bzip2 data"),
    at(0, b"\x7fELF", "a program (ELF)"),
    at(0, b"%PDF-", "a PDF document"),
    at(0, b"\x89PNG\r\n\x1a\n", "a PNG picture"),
    at(0, b"\xff\xd8\xff", "a JPEG picture"),
    at(0, b"#!", "a script"),
];

/// Every known magic number. Those of the stack line come first.
fn magics() -> impl Iterator<Item = Magic> {
    let own = seekless::stack::signatures()
        .into_iter()
        .flat_map(|signature| signature.magics.iter().map(|&(at, bytes)| Magic { at, bytes, name: signature.name }));
    own.chain(FOREIGN.iter().copied())
}

/// A signature that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundSignature {
    /// What it belongs to, with its article.
    pub name: &'static str,
    pub offset: u64,
    pub bytes: usize,
}

/// Every signature in `file`, which has `size` bytes.
///
/// # Errors
/// When it cannot be read.
pub fn signatures(file: &File, size: u64) -> io::Result<Vec<FoundSignature>> {
    let mut found = Vec::new();
    for Magic { at, bytes: magic, name } in magics() {
        let bytes = magic.len();
        let Some(offset) = at.within(size).filter(|offset| offset + bytes as u64 <= size) else { continue };
        let mut buffer = vec![0; bytes];
        file.read_exact_at(&mut buffer, offset)?;
        if buffer == magic && !found.iter().any(|it: &FoundSignature| it.offset == offset) {
            found.push(FoundSignature { name, offset, bytes });
        }
    }
    Ok(found)
}

/// What the array says, of which `file` is a member: the younger of two superblocks.
pub fn as_member(file: &File) -> Option<Superblock> {
    let superblocks = ARRAY_SUPERBLOCKS.iter().filter_map(|sector| {
        let mut block = vec![0; ARRAY_BLOCK_BYTES as usize];
        file.read_exact_at(&mut block, sector * SECTOR_BYTES).ok()?;
        Superblock::from_block(&block).ok()
    });
    superblocks.max_by_key(|superblock| superblock.generation)
}

/// Content of a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    /// Every byte of it is zero.
    Blank,
    /// Something, in a few words.
    Holds(String),
    /// Nothing was found in the available time; the text says how far the search has come.
    Unknown(String),
}

impl Content {
    /// The content as the end of "it holds ..."; `None` for a blank store. An unknown part counts as content.
    pub fn text(&self) -> Option<&str> {
        match self {
            Content::Blank => None,
            Content::Holds(text) | Content::Unknown(text) => Some(text),
        }
    }
}

/// Bytes at the beginning and at the end that are read first, and bytes per read.
const PIECE_BYTES: u64 = MIB;

/// Number of places in between that are read next, so that a store in use is recognised at once. They are spread
/// evenly, but not at multiples of a power of two, where holes are likely.
const SAMPLES: u64 = 257;
const SAMPLE_BYTES: u64 = 4096;

/// The content of `file`, which has `size` bytes. It is blank only when every byte is zero: content may be anywhere, as
/// a stack above may move data. Holes of files are skipped; where holes are unknown, as on a block device, everything
/// is read. A search that takes longer than `patience` ends without a result.
///
/// # Errors
/// When it cannot be read.
pub fn content(file: &File, size: u64, patience: Duration) -> io::Result<Content> {
    if let Some(first) = signatures(file, size)?.first() {
        return Ok(Content::Holds(first.name.to_owned()));
    }
    let begun = Instant::now();
    let mut buffer = vec![0; PIECE_BYTES as usize];
    let mut look = |start: u64, end: u64| -> io::Result<Option<Content>> {
        let piece = &mut buffer[..(end - start) as usize];
        file.read_exact_at(piece, start)?;
        let found = piece.iter().position(|&byte| byte != 0);
        Ok(found.map(|at| Content::Holds(format!("data (at byte {} of {})", start + at as u64, human_bytes(size)))))
    };
    for start in [0, size.saturating_sub(PIECE_BYTES)] {
        if let Some(found) = look(start, size.min(start + PIECE_BYTES))? {
            return Ok(found);
        }
    }
    for sample in 1..SAMPLES {
        let start = (u128::from(size) * u128::from(sample) / u128::from(SAMPLES)) as u64 / SAMPLE_BYTES * SAMPLE_BYTES;
        if let Some(found) = look(start, size.min(start + SAMPLE_BYTES))? {
            return Ok(found);
        }
    }
    let mut at = 0;
    while let Some((start, end)) = allocated(file, at, size)? {
        at = start;
        while at < end {
            let stop = end.min(at + PIECE_BYTES);
            if let Some(found) = look(at, stop)? {
                return Ok(found);
            }
            // The pages will not be read again soon; others need the memory more.
            let _ = rustix::fs::fadvise(file, at, NonZero::new(stop - at), Advice::DontNeed);
            at = stop;
            if at < end && begun.elapsed() > patience {
                let (seen, size) = (human_bytes(at), human_bytes(size));
                let text =
                    format!("what cannot be known in {} s: its first {seen} of {size} are zeroes", patience.as_secs());
                return Ok(Content::Unknown(text));
            }
        }
    }
    Ok(Content::Blank)
}

/// The next range from `at` on that may hold data; the whole rest where holes are unknown.
fn allocated(file: &File, at: u64, size: u64) -> io::Result<Option<(u64, u64)>> {
    if at >= size {
        return Ok(None);
    }
    let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOTTY | Errno::NOSYS) => return Ok(Some((at, size))),
        Err(error) => return Err(error.into()),
    };
    let end = rustix::fs::seek(file, SeekFrom::Hole(start))?;
    // This can mean a block device that does not support holes.
    Ok((start < size).then_some((start, end.min(size))))
}

/// Overwrites the signatures with zeroes, so that the store is not mistaken for its old content.
///
/// # Errors
/// When it cannot be written.
pub fn wipe(file: &File, signatures: &[FoundSignature]) -> io::Result<()> {
    for signature in signatures {
        file.write_all_at(&vec![0; signature.bytes], signature.offset)?;
    }
    if signatures.is_empty() { Ok(()) } else { file.sync_data() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The content of a store, without a time limit.
    fn text_of(file: &File, size: u64) -> Option<String> {
        let content = content(file, size, Duration::from_secs(60)).unwrap();
        assert!(!matches!(content, Content::Unknown(_)), "{content:?}");
        content.text().map(str::to_owned)
    }

    /// Each row of the table recognises its format, and wiping makes it unrecognisable. Method: a file of zeroes with
    /// only that magic number in it.
    #[test]
    fn every_signature_is_recognised() {
        const SIZE: u64 = 512 << 10;
        for magic in magics() {
            let file = tempfile::tempfile().unwrap();
            file.set_len(SIZE).unwrap();
            assert_eq!(text_of(&file, SIZE), None);
            let offset = magic.at.within(SIZE).unwrap();
            file.write_all_at(magic.bytes, offset).unwrap();
            assert_eq!(text_of(&file, SIZE).as_deref(), Some(magic.name));
            let found = signatures(&file, SIZE).unwrap();
            assert_eq!((found.len(), found[0].offset), (1, offset), "{}", magic.name);
            wipe(&file, &found).unwrap();
            assert_eq!(text_of(&file, SIZE), None, "{}", magic.name);
        }
    }

    /// A byte is found wherever it is, and the first one is reported. Small files are read too, and holes are skipped.
    /// Method: one byte, at the ends, on and beside the places read first, and at random ones.
    #[test]
    fn any_byte_is_noticed() {
        const SIZE: u64 = 24 << 20;
        let mut rng = seekless::rng::Rng::new(1);
        let mut places = vec![0, 77, PIECE_BYTES, SIZE / 2 + 4097, SIZE - PIECE_BYTES - 1, SIZE - 1];
        places.extend((0..20).map(|_| rng.below(SIZE)));
        for at in places {
            let file = tempfile::tempfile().unwrap();
            file.set_len(SIZE).unwrap();
            assert_eq!(text_of(&file, SIZE), None);
            file.write_all_at(b"x", at).unwrap();
            assert_eq!(text_of(&file, SIZE), Some(format!("data (at byte {at} of 24 MiB)")));
        }
        let file = tempfile::tempfile().unwrap();
        file.set_len(1).unwrap();
        assert_eq!(text_of(&file, 1), None);
        file.set_len(0).unwrap();
        assert_eq!(text_of(&file, 0), None);
        // A hole of a hundred terabytes costs nothing.
        const HUGE: u64 = 12 << 40;
        if file.set_len(HUGE).is_ok() {
            assert_eq!(text_of(&file, HUGE), None);
            file.write_all_at(b"x", HUGE / 3 * 2 + 9).unwrap();
            assert_eq!(text_of(&file, HUGE), Some(format!("data (at byte {} of 12 TiB)", HUGE / 3 * 2 + 9)));
        }
    }

    /// Allocated zeroes are read; without time for that, the store is not called blank.
    #[test]
    fn what_is_not_known_is_not_blank() {
        const SIZE: u64 = 8 << 20;
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&vec![0; SIZE as usize], 0).unwrap();
        assert_eq!(text_of(&file, SIZE), None);
        let content = content(&file, SIZE, Duration::ZERO).unwrap();
        let Content::Unknown(text) = &content else { panic!("{content:?}") };
        assert_eq!(text, "what cannot be known in 0 s: its first 1 MiB of 8 MiB are zeroes");
        assert!(content.text().is_some());
    }
}
