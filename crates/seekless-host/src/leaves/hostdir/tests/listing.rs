//! Aim: a listing returns every entry once, however it is split and whatever changes in between. Method: small sinks,
//! large directories, changes between the calls.

use std::collections::BTreeMap;

use seekless::fs::DirEntry;

use super::*;

#[derive(Default)]
struct Sink {
    room: usize,
    entries: Vec<(Vec<u8>, u64, Ino, bool)>,
}

impl DirSink for Sink {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        if self.entries.len() == self.room {
            return false;
        }
        assert!(entry.cookie != 0);
        self.entries.push((entry.name.to_vec(), entry.cookie, entry.ino, entry.entry.is_some()));
        true
    }
}

/// Entries that exist throughout come exactly once, with up to 1,500 names in a directory of which a third is removed
/// and a third added during the listing, 50 or 170 at a time, with attributes and without.
#[test]
fn entries_come_once() {
    for (room, attributes) in [(1, false), (50, false), (170, true), (7, true)] {
        let files = if room < 10 { 200 } else { 1_500 };
        run(WAYS[0], async |bench| {
            for number in 0..files {
                std::fs::write(bench.path.join(format!("{number:05}")), b"").unwrap();
            }
            let opened = bench.dir.open(Ino::ROOT, OpenFlags::READ).await.unwrap();
            let (mut seen, mut cookie, mut round) = (BTreeMap::new(), 0, 0);
            loop {
                let mut sink = Sink { room, ..Sink::default() };
                bench.dir.readdir(Ino::ROOT, opened.handle, cookie, attributes, &mut sink).await.unwrap();
                let Some(last) = sink.entries.last() else { break };
                cookie = last.1;
                for (name, _, ino, has_entry) in sink.entries {
                    *seen.entry(name).or_insert(0) += 1;
                    if has_entry {
                        bench.dir.forget(ino, 1).await;
                    }
                }
                // Numbers 0, 3, 6 ... are removed, and new names added.
                for number in (round * 30..(round + 1) * 30).step_by(3).filter(|number| *number < files) {
                    let _ = std::fs::remove_file(bench.path.join(format!("{number:05}")));
                    std::fs::write(bench.path.join(format!("new{number}")), b"").unwrap();
                }
                round += 1;
            }
            bench.dir.release(Ino::ROOT, opened.handle.unwrap()).await.unwrap();
            for number in (0..files).filter(|number| number % 3 != 0) {
                assert_eq!(seen.get(format!("{number:05}").as_bytes()), Some(&1), "{number}");
            }
            assert!(seen.values().all(|&times| times == 1));
            assert_eq!((seen[&b"."[..]], seen[&b".."[..]]), (1, 1));
        });
    }
}

/// A cookie also works without a handle, and with another handle.
#[test]
fn cookies_are_the_directorys() {
    run(WAYS[0], async |bench| {
        for number in 0..100 {
            std::fs::write(bench.path.join(format!("{number}")), b"").unwrap();
        }
        let mut all = Sink { room: 1000, ..Sink::default() };
        bench.dir.readdir(Ino::ROOT, None, 0, false, &mut all).await.unwrap();
        assert_eq!(all.entries.len(), 102);
        for (index, (_, cookie, ..)) in all.entries.iter().enumerate().step_by(9) {
            let mut rest = Sink { room: 1000, ..Sink::default() };
            bench.dir.readdir(Ino::ROOT, None, *cookie, false, &mut rest).await.unwrap();
            assert_eq!(rest.entries, all.entries[index + 1..]);
        }
        let mut wild = Sink { room: 1000, ..Sink::default() };
        for cookie in [u64::MAX, 1 << 63, i64::MAX as u64, 12345] {
            // Any answer is allowed, except a crash.
            let _ = bench.dir.readdir(Ino::ROOT, None, cookie, false, &mut wild).await;
        }
        bench.client.write_file(b"f", b"").await.unwrap();
        let f = bench.dir.lookup(Ino::ROOT, b"f").await.unwrap().attr.ino;
        assert_eq!(bench.dir.readdir(f, None, 0, false, &mut wild).await, Err(FsError::NotDirectory));
        bench.dir.forget(f, 1).await;
    });
}
