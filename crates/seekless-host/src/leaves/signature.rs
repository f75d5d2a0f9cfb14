//! What a file or block device holds, told by its first and last bytes, so that nobody formats what others need.
//!
//! The programs that know this, `blkid` and `file`, are not everywhere, and neither knows our own formats.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use seekless::fs::lfs::format::{SUPERBLOCK_MAGIC, SUPERBLOCK_SECTORS};
use seekless::fs::vlfs::format::MAGIC as VLFS_MAGIC;
use seekless::units::{MIB, human_bytes};
use seekless::vlog::format::{ABOVE_AT, MAGIC as VLD_MAGIC};

/// Something that is recognised by bytes at a fixed place.
struct Signature {
    /// With its article.
    name: &'static str,
    at: Place,
    magic: &'static [u8],
}

#[derive(Clone, Copy)]
enum Place {
    Start(u64),
    /// Bytes before the end.
    End(u64),
}
use Place::{End, Start};

const fn at(offset: u64, magic: &'static [u8], name: &'static str) -> Signature {
    Signature { name, at: Start(offset), magic }
}

/// What our own file system is called here.
pub const LFS: &str = "a Seekless LFS file system";

/// What our file system on the virtual log is called here.
pub const VLFS: &str = "a Seekless VLFS file system";

/// What our virtual log disk is called here.
pub const VLD: &str = "a Seekless virtual log disk";

/// What the Berkeley Fast File System is called, whoever made it.
pub const UFS: &str = "a UFS file system";

const LFS_MAGIC: &[u8] = &SUPERBLOCK_MAGIC.to_le_bytes();

/// Offsets and magic numbers of file systems, volumes and partition tables are those of util-linux's libblkid
/// (`libblkid/src/superblocks`, `libblkid/src/partitions`); of other files those of file(1)'s magic database. Those
/// that say most come first.
#[rustfmt::skip]
const SIGNATURES: &[Signature] = &[
    at(ABOVE_AT as u64, &VLFS_MAGIC, VLFS),
    Signature { name: VLFS, at: End(4096 - ABOVE_AT as u64), magic: &VLFS_MAGIC },
    at(0, LFS_MAGIC, LFS),
    at(SUPERBLOCK_SECTORS[1].0 * 512, LFS_MAGIC, LFS),
    Signature { name: LFS, at: End(4096), magic: LFS_MAGIC },
    at(0, &VLD_MAGIC, VLD),
    Signature { name: VLD, at: End(4096), magic: &VLD_MAGIC },
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
    at(8192 + 1372, b"\x54\x19\x01\x00", UFS),
    at(65536 + 1372, b"\x19\x01\x54\x19", UFS),
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
    Signature { name: "a GPT partition table", at: End(512), magic: b"EFI PART" },
    Signature { name: "a GPT partition table", at: End(4096), magic: b"EFI PART" },
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

/// A signature that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// What it stands for, with its article.
    pub name: &'static str,
    pub offset: u64,
    pub bytes: usize,
}

/// Every signature in `file`, which has `size` bytes.
///
/// # Errors
/// When it cannot be read.
pub fn signatures(file: &File, size: u64) -> io::Result<Vec<Found>> {
    let mut found = Vec::new();
    for signature in SIGNATURES {
        let bytes = signature.magic.len();
        let offset = match signature.at {
            Start(offset) => Some(offset),
            End(before) => size.checked_sub(before),
        };
        let Some(offset) = offset.filter(|offset| offset + bytes as u64 <= size) else { continue };
        let mut buffer = vec![0; bytes];
        file.read_exact_at(&mut buffer, offset)?;
        if buffer == signature.magic && !found.iter().any(|it: &Found| it.offset == offset) {
            found.push(Found { name: signature.name, offset, bytes });
        }
    }
    Ok(found)
}

/// Bytes at the beginning and at the end in which data is looked for.
const SCANNED_BYTES: u64 = MIB;

/// What `file` holds, in a few words, or `None` when it seems to hold nothing: no signature, and only zeroes in its
/// first and last MiB.
///
/// # Errors
/// When it cannot be read.
pub fn content(file: &File, size: u64) -> io::Result<Option<String>> {
    if let Some(first) = signatures(file, size)?.first() {
        return Ok(Some(first.name.to_owned()));
    }
    for start in [0, size.saturating_sub(SCANNED_BYTES)] {
        let mut buffer = vec![0; SCANNED_BYTES.min(size - start) as usize];
        file.read_exact_at(&mut buffer, start)?;
        if let Some(at) = buffer.iter().position(|&byte| byte != 0) {
            let offset = start + at as u64;
            return Ok(Some(format!("data (at byte {offset} of {})", human_bytes(size))));
        }
    }
    Ok(None)
}

/// Overwrites the signatures with zeroes, so that nobody takes the store for what it was.
///
/// # Errors
/// When it cannot be written.
pub fn wipe(file: &File, signatures: &[Found]) -> io::Result<()> {
    for signature in signatures {
        file.write_all_at(&vec![0; signature.bytes], signature.offset)?;
    }
    if signatures.is_empty() { Ok(()) } else { file.sync_data() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row of the table recognises what it describes, and wiping makes it unrecognisable. Method: a file of
    /// zeroes with the one magic in it.
    #[test]
    fn every_signature_is_recognised() {
        const SIZE: u64 = 256 << 10;
        for signature in SIGNATURES {
            let file = tempfile::tempfile().unwrap();
            file.set_len(SIZE).unwrap();
            assert_eq!(content(&file, SIZE).unwrap(), None);
            let offset = match signature.at {
                Start(offset) => offset,
                End(before) => SIZE - before,
            };
            file.write_all_at(signature.magic, offset).unwrap();
            assert_eq!(content(&file, SIZE).unwrap().as_deref(), Some(signature.name));
            let found = signatures(&file, SIZE).unwrap();
            assert_eq!((found.len(), found[0].offset), (1, offset), "{}", signature.name);
            wipe(&file, &found).unwrap();
            assert_eq!(content(&file, SIZE).unwrap(), None, "{}", signature.name);
        }
    }

    /// Unknown data is seen at both ends; files smaller than any signature are looked at, too.
    #[test]
    fn unknown_data_is_noticed() {
        const SIZE: u64 = 8 << 20;
        let file = tempfile::tempfile().unwrap();
        file.set_len(SIZE).unwrap();
        file.write_all_at(b"x", 4 << 20).unwrap();
        assert_eq!(content(&file, SIZE).unwrap(), None, "the middle is not looked at");
        file.write_all_at(b"x", SIZE - 1).unwrap();
        assert_eq!(content(&file, SIZE).unwrap(), Some("data (at byte 8388607 of 8 MiB)".into()));
        file.write_all_at(b"x", 77).unwrap();
        assert_eq!(content(&file, SIZE).unwrap(), Some("data (at byte 77 of 8 MiB)".into()));
        file.set_len(1).unwrap();
        assert_eq!(content(&file, 1).unwrap(), None);
        file.set_len(0).unwrap();
        assert_eq!(content(&file, 0).unwrap(), None);
    }
}
