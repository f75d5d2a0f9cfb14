//! Aim: a file that others can write to is known as such, and a writer that begins later shows. Method: every way in which a program can come to
//! write to a file, beside an open file that asks; and an opener that waits for the answer.

use std::fs::{File, OpenOptions};
use std::sync::mpsc;
use std::time::Duration;

use super::*;
use crate::testing::LoopDevice;

/// The file `f`, open for reading.
async fn open(bench: &Bench) -> (Ino, Handle) {
    let ino = bench.dir.lookup(Ino::ROOT, b"f").await.unwrap().attr.ino;
    (ino, bench.dir.open(ino, OpenFlags::READ).await.unwrap().handle.unwrap())
}

async fn close(bench: &Bench, (ino, handle): (Ino, Handle)) {
    bench.dir.release(ino, handle).await.unwrap();
    bench.dir.forget(ino, 1).await;
}

/// The answer of an opening of its own.
async fn answer(bench: &Bench) -> Writers {
    let (ino, handle) = open(bench).await;
    let answer = bench.dir.other_writers(ino, Some(handle)).await.unwrap();
    close(bench, (ino, handle)).await;
    answer
}

/// Maps `file`, shared and for writing, and unmaps it when it is dropped.
struct Mapped(*mut libc::c_void);

impl Mapped {
    fn new(file: &File) -> Mapped {
        use std::os::fd::AsRawFd;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the mapping is new, and nothing uses its bytes.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), 4096, rights, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        assert_ne!(address, libc::MAP_FAILED);
        Mapped(address)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: it is this mapping, and nothing uses its bytes.
        assert_eq!(unsafe { libc::munmap(self.0, 4096) }, 0);
    }
}

#[test]
fn every_kind_of_writer_is_seen() {
    run(WAYS[0], async |bench| {
        let path = bench.path.join("f");
        std::fs::write(&path, vec![b'x'; 1 << 20]).unwrap();
        assert_eq!(answer(&bench).await, Writers::None);
        let reader = File::open(&path).unwrap();
        assert_eq!(answer(&bench).await, Writers::None, "a reader does no harm");
        let writer = OpenOptions::new().append(true).open(&path).unwrap();
        assert_eq!(answer(&bench).await, Writers::Some, "a log that is appended to");
        drop((reader, writer));
        assert_eq!(answer(&bench).await, Writers::None);
        let mapped = Mapped::new(&OpenOptions::new().read(true).write(true).open(&path).unwrap());
        assert_eq!(answer(&bench).await, Writers::Some, "a mapping, whose file is closed");
        drop(mapped);
        assert_eq!(answer(&bench).await, Writers::None);
        if let Some(device) = LoopDevice::attach(&path, 512) {
            assert_eq!(answer(&bench).await, Writers::Some, "a loop device on it");
            drop(device);
        }
    });
}

/// An opener for writing waits, shows in the next answer and in all later ones, and goes on when the file is closed. This process does not
/// wait for itself.
#[test]
fn a_later_writer_shows() {
    run(WAYS[0], async |bench| {
        let path = bench.path.join("f");
        std::fs::write(&path, b"x").unwrap();
        let (ino, handle) = open(&bench).await;
        let ask = async || bench.dir.other_writers(ino, Some(handle)).await.unwrap();
        assert_eq!((ask().await, ask().await), (Writers::None, Writers::None));
        let (opened, opens) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let file = OpenOptions::new().append(true).open(path).unwrap();
            opened.send(()).unwrap();
            file
        });
        while ask().await == Writers::None {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(ask().await, Writers::Some);
        assert!(opens.try_recv().is_err(), "it waits");
        close(&bench, (ino, handle)).await;
        drop(thread.join().unwrap());

        let (ino, handle) = open(&bench).await;
        assert_eq!(bench.dir.other_writers(ino, Some(handle)).await, Ok(Writers::None));
        bench.dir.write(ino, None, 0, Data::from_slice(b"ours"), WriteMode::default()).await.unwrap();
        assert_eq!(bench.dir.other_writers(ino, Some(handle)).await, Ok(Writers::Some), "this process wrote");
        close(&bench, (ino, handle)).await;
        assert_eq!(answer(&bench).await, Writers::None);
    });
}
