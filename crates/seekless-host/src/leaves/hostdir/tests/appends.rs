//! Aim: an append that is not made in whole says how much of it is in the file, and no part of the same call comes into the place of what
//! is missing. Method: a small tmpfs, filled up, and room made between the parts.

use seekless::device::Data;
use seekless::fs::{OpenFlags, WriteMode};

use super::*;
use crate::short_write;
use crate::testing::SmallTmpfs;

const ROOM: u64 = 1 << 20;
/// Whole pages, so that a full tmpfs has no room in the last one.
const PART: usize = 24 << 12;
const APPEND: WriteMode = WriteMode { append: true, kill_privileges: false };

/// Fills the tmpfs at `path` except for `left` bytes.
fn fill(path: &std::path::Path, left: u64) {
    let used: u64 = std::fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_name() != "fill")
        .map(|entry| entry.metadata().unwrap().len().next_multiple_of(4096))
        .sum();
    std::fs::write(path.join("fill"), vec![b'f'; (ROOM - used - left) as usize]).unwrap();
}

/// The parts of one call begin one behind the other; the next call begins where the kernel then takes the end to be.
#[test]
fn nothing_comes_into_the_place_of_a_failed_part() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let Some(_tmpfs) = SmallTmpfs::mount(directory.path(), ROOM) else { return };
    run_in(directory.path().to_owned(), WAYS[0], async |bench| {
        let path = bench.path.join("log");
        std::fs::write(&path, [b's'; 4096]).unwrap();
        let opened = bench.client.open(b"/log", OpenFlags { append: true, ..OpenFlags::READ_WRITE }).await.unwrap();
        let append = async |offset: u64, byte: u8| {
            let data = Data::from_slice(&[byte; PART]);
            bench.dir.write(opened.ino, opened.handle, offset, data, APPEND).await
        };
        let length = || std::fs::metadata(&path).unwrap().len();
        // The first part is short, or fails, and then there is room.
        for taken in [8192, 0] {
            let begin = length();
            fill(&bench.path, taken);
            let answer = append(begin, b'1').await.unwrap_err();
            match taken {
                0 => assert_eq!(answer, FsError::NoSpace),
                _ => assert_eq!(short_write::bytes(&answer), Some(taken as u32)),
            }
            assert_eq!(length(), begin + taken);
            std::fs::remove_file(bench.path.join("fill")).unwrap();
            for part in 1..3 {
                assert_eq!(append(begin + part * PART as u64, b'2').await, Err(FsError::NoSpace), "{taken}, {part}");
            }
            assert_eq!(length(), begin + taken, "nothing is written behind it");
            append(begin + taken, b'n').await.unwrap();
            assert_eq!(length(), begin + taken + PART as u64);
        }
        // Others make the file end where such a part would begin, and the kernel learns that.
        let begin = length();
        fill(&bench.path, 0);
        assert_eq!(append(begin, b'1').await, Err(FsError::NoSpace));
        std::fs::remove_file(bench.path.join("fill")).unwrap();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(begin + PART as u64).unwrap();
        append(begin + PART as u64, b'n').await.unwrap();
        assert_eq!(length(), begin + 2 * PART as u64);
        bench.client.close(opened).await.unwrap();
    });
}
