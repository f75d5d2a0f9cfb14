//! Aim: costs are those of the paper, and an index is only a help. Method: small programs, and a look at the files
//! below.

use super::*;
use crate::fs::{FsError, OpenFlags, RenameMode};
use crate::layer::tests::trouble::Trouble;
use crate::units::Nanos;

/// A random overwrite moves everything behind it, so that its cost grows with the file, with a codec whose sizes vary.
#[test]
fn overwrites_cost_as_much_as_is_behind_them() {
    simulate(1, async |rt| {
        let mut costs = Vec::new();
        for pages in [64u64, 256] {
            let lower = model(&rt);
            let fs = stack_on(&rt, lower.clone(), gzip()).await.unwrap();
            let client = Client::new(fs.clone());
            let file = client.create(b"/f").await.unwrap();
            client.write(file, 0, &text((pages * 4096) as usize)).await.unwrap();
            let before = counter(&fs, "bytes_written");
            let mut rng = Rng::new(1);
            for round in 0..40 {
                client.write(file, rng.below(pages) << 12, &text(4096 + round)[round..]).await.unwrap();
            }
            costs.push((counter(&fs, "bytes_written") - before) / 40);
            client.close(file).await.unwrap();
            fs.close().await.unwrap();
            assert_clean(&rt, &(lower as Fs)).await;
        }
        assert!(costs[1] > 3 * costs[0], "{costs:?}");
    });
}

/// With fast tails a small append writes only its own bytes; without, it writes a unit.
#[test]
fn tails_are_fast() {
    simulate(1, async |rt| {
        let mut written = Vec::new();
        for fast_tails in [true, false] {
            let lower = model(&rt);
            let options = Options { fast_tails, ..gzip() };
            let fs = stack_on(&rt, lower.clone(), options).await.unwrap();
            let client = Client::new(fs.clone());
            let file = client.create(b"/log").await.unwrap();
            let content = text(20_000);
            for (number, piece) in content.chunks(100).enumerate() {
                client.write(file, number as u64 * 100, piece).await.unwrap();
            }
            assert!(client.read(file, 0, 20_000).await.unwrap() == content);
            client.close(file).await.unwrap();
            written.push(counter(&fs, "bytes_written"));
            assert_eq!(counter(&fs, "tail_appends") > 150, fast_tails);
            fs.close().await.unwrap();
            let fs = stack_on(&rt, lower.clone(), gzip()).await.unwrap();
            assert!(Client::new(fs).read_file(b"/log").await.unwrap() == content);
        }
        assert!(written[1] > 2 * written[0], "{written:?}");
    });
}

/// An index is lost, cut, another file's, or foreign: the file reads as before, and gets a new index.
#[test]
fn an_index_is_only_for_speed() {
    simulate(1, async |rt| {
        let content = text(50_000);
        let lower = model(&rt);
        let below = Client::new(lower.clone() as Fs);
        let fs = stack_on(&rt, lower.clone(), gzip()).await.unwrap();
        let client = Client::new(fs.clone());
        client.write_file(b"/f", &content).await.unwrap();
        client.write_file(b"/g", &text(49_000)).await.unwrap();
        fs.close().await.unwrap();
        let good = below.read_file(b"/f.idx").await.unwrap();
        assert_eq!(good.len(), 4 * (2 + 12));
        let mut moved = good.clone();
        // The end of the first unit, which the sizes do not determine.
        moved[8] ^= 8;
        let other = below.read_file(b"/g.idx").await.unwrap();
        let damages: [Option<&[u8]>; 6] =
            [None, Some(b""), Some(&good[..20]), Some(&moved), Some(&other), Some(b"notes of a person")];
        for (number, damage) in damages.into_iter().enumerate() {
            match damage {
                Some(bytes) => below.write_file(b"/f.idx", bytes).await.unwrap(),
                None => below.unlink(b"/f.idx").await.unwrap(),
            }
            let fs = stack_on(&rt, lower.clone(), gzip()).await.unwrap();
            let client = Client::new(fs.clone());
            assert!(client.read_file(b"/f").await.unwrap() == content, "damage {number}");
            assert_eq!(client.stat(b"/f").await.unwrap().size, 50_000);
            let rebuilt = counter(&fs, "indexes_rebuilt");
            match damage {
                // The index's name is taken, so it is rebuilt at each lookup.
                Some(b"notes of a person") => assert!(rebuilt >= 1),
                _ => assert_eq!(rebuilt, 1, "damage {number}"),
            }
            fs.close().await.unwrap();
            let found = below.read_file(b"/f.idx").await.unwrap();
            match damage {
                Some(b"notes of a person") => assert_eq!(found, b"notes of a person"),
                _ => assert_eq!(found, good, "damage {number}"),
            }
        }
    });
}

/// A write that trusts an outdated index would destroy the file.
#[test]
fn a_write_does_not_believe_a_wrong_index() {
    simulate(1, async |rt| {
        let mut content = text(50_000);
        let lower = model(&rt);
        let below = Client::new(lower.clone() as Fs);
        let fs = stack_on(&rt, lower.clone(), gzip()).await.unwrap();
        Client::new(fs.clone()).write_file(b"/f", &content).await.unwrap();
        fs.close().await.unwrap();
        let mut index = below.read_file(b"/f.idx").await.unwrap();
        index[8 + 4 * 4] ^= 4;
        below.write_file(b"/f.idx", &index).await.unwrap();
        let fs = stack_on(&rt, lower.clone(), gzip()).await.unwrap();
        let client = Client::new(fs.clone());
        let file = client.open(b"/f", OpenFlags::READ_WRITE).await.unwrap();
        // A whole page, so that the write reads nothing.
        client.write(file, 4096 * 5, &[7; 4096]).await.unwrap();
        content[4096 * 5..4096 * 6].fill(7);
        assert!(client.read(file, 0, 60_000).await.unwrap() == content);
        client.close(file).await.unwrap();
        fs.close().await.unwrap();
        assert_clean(&rt, &(lower as Fs)).await;
    });
}

/// Indexes follow their files through renames, and are hidden.
#[test]
fn indexes_go_with_their_files() {
    simulate(1, async |rt| {
        let lower = model(&rt);
        let below = Client::new(lower.clone() as Fs);
        let fs = stack_on(&rt, lower.clone(), gzip()).await.unwrap();
        let client = Client::new(fs.clone());
        client.mkdir(b"/d").await.unwrap();
        client.write_file(b"/a", &text(10_000)).await.unwrap();
        client.write_file(b"/b", &text(20_000)).await.unwrap();
        client.link(b"/a", b"/d/a2").await.unwrap();
        assert_eq!(below.stat(b"/a.idx").await.unwrap().ino, below.stat(b"/d/a2.idx").await.unwrap().ino);
        client.rename(b"/a", b"/b", RenameMode::Exchange).await.unwrap();
        assert_eq!(below.stat(b"/b.idx").await.unwrap().ino, below.stat(b"/d/a2.idx").await.unwrap().ino);
        client.rename(b"/a", b"/d/c", RenameMode::Replace).await.unwrap();
        client.unlink(b"/b").await.unwrap();
        let names: Vec<Vec<u8>> = client.read_dir(b"/d").await.unwrap().into_iter().map(|entry| entry.name).collect();
        assert_eq!(names.len(), 2, "{names:?}");
        assert_eq!(below.read_dir(b"/d").await.unwrap().len(), 4);
        assert_eq!(below.read_dir(b"").await.unwrap().len(), 1);
        assert_eq!(client.stat(b"/d/c.idx").await, Err(FsError::NotFound));
        assert!(client.write_file(b"/x.idx", b"x").await.is_err());
        client.unlink(b"/d/c").await.unwrap();
        client.unlink(b"/d/a2").await.unwrap();
        // An index that a crash may leave.
        below.write_file(b"/d/gone.idx", b"").await.unwrap();
        client.rmdir(b"/d").await.unwrap();
        below.mkdir(b"/e").await.unwrap();
        below.write_file(b"/e/mine.idx", b"words").await.unwrap();
        assert_eq!(client.rmdir(b"/e").await, Err(FsError::NotEmpty));
        assert_eq!(below.read_file(b"/e/mine.idx").await.unwrap(), b"words");
        fs.close().await.unwrap();
        assert_eq!(lower.leaks(), Default::default());
    });
}

/// Foreign files follow the configured rule; a file that begins as ours but is something else is reported as damaged.
#[test]
fn foreign_and_damaged_files() {
    simulate(1, async |rt| {
        let lower = model(&rt);
        let below = Client::new(lower.clone() as Fs);
        let fs = stack_on(&rt, lower.clone(), gzip()).await.unwrap();
        Client::new(fs.clone()).write_file(b"/f", &text(50_000)).await.unwrap();
        fs.close().await.unwrap();
        below.write_file(b"/plain", b"it was here before").await.unwrap();
        let mut bytes = below.read_file(b"/f").await.unwrap();
        let middle = bytes.len() / 2;
        bytes[middle..middle + 900].fill(0xee);
        below.write_file(b"/f", &bytes).await.unwrap();
        for plain in [Plain::Pass, Plain::Error] {
            let fs = stack_on(&rt, lower.clone(), Options { plain, ..gzip() }).await.unwrap();
            let client = Client::new(fs.clone());
            let read = client.read_file(b"/plain").await;
            match plain {
                Plain::Pass => assert_eq!(read.unwrap(), b"it was here before"),
                Plain::Error => assert!(matches!(read, Err(FsError::Corrupt { .. })), "{read:?}"),
            }
            let read = client.read_file(b"/f").await;
            assert!(matches!(read, Err(FsError::Corrupt { .. })), "{read:?}");
            fs.close().await.unwrap();
        }
        let report = check::check(&rt, lower.clone(), gzip(), true).await.unwrap();
        assert_eq!((report.findings.len(), report.plain_files), (1, 1), "{report:?}");
    });
}

/// Any bytes as file and index lead to results or errors, never to a panic.
#[test]
fn damaged_bytes_do_no_harm() {
    simulate(1, async |rt| {
        let lower = model(&rt);
        let below = Client::new(lower.clone() as Fs);
        let fs = stack_on(&rt, lower.clone(), gzip()).await.unwrap();
        Client::new(fs.clone()).write_file(b"/f", &text(30_000)).await.unwrap();
        fs.close().await.unwrap();
        let (data, index) = (below.read_file(b"/f").await.unwrap(), below.read_file(b"/f.idx").await.unwrap());
        let mut rng = Rng::new(5);
        for _ in 0..300 {
            for (name, good) in [(b"/f".as_slice(), &data), (b"/f.idx".as_slice(), &index)] {
                let mut bad = good.clone();
                for _ in 0..rng.below(3) {
                    let at = rng.below(bad.len() as u64) as usize;
                    bad[at] ^= 1 << rng.below(8);
                }
                if rng.chance(1, 4) {
                    bad.truncate(rng.below(bad.len() as u64) as usize);
                }
                below.write_file(name, &bad).await.unwrap();
            }
            let fs = stack_on(&rt, lower.clone(), gzip()).await.unwrap();
            let client = Client::new(fs.clone());
            let _ = client.read_file(b"/f").await;
            if let Ok(file) = client.open(b"/f", OpenFlags::READ_WRITE).await {
                let _ = client.write(file, rng.below(40_000), &text(5_000)).await;
                let _ = client.close(file).await;
            }
            let _ = client.truncate(b"/f", rng.below(30_000)).await;
            fs.close().await.unwrap();
            check::check(&rt, lower.clone(), gzip(), true).await.unwrap();
        }
    });
}

/// Files that look like ours by chance are shown as they are and not changed. One of ours whose index is lost can be
/// read, and can be written once the check has rebuilt its index.
#[test]
fn what_only_looks_like_units_is_not_changed() {
    simulate(1, async |rt| {
        let lower = model(&rt);
        let below = Client::new(lower.clone() as Fs);
        let plain: [(&[u8], &[u8]); 4] = [
            (b"/tail", b"\0\0t\0any text at all"),
            (b"/zeroes", &[4, 0, b'z', 0]),
            (b"/raw", &[5, 0, b'r', 0, 1, 2, 3, 4, 5]),
            (b"/two", &[0, 16, b'z', 0, 0, 0, b't', 0, 7]),
        ];
        for (path, bytes) in plain {
            below.write_file(path, bytes).await.unwrap();
        }
        let fs = stack_on(&rt, lower.clone(), gzip()).await.unwrap();
        let client = Client::new(fs.clone());
        for (path, bytes) in plain {
            client.read_file(path).await.unwrap();
            let file = client.open(path, OpenFlags::READ_WRITE).await.unwrap();
            for offset in [0, bytes.len() as u64] {
                let written = client.write(file, offset, b"more").await;
                assert!(matches!(written, Err(crate::fs::FsError::Corrupt { .. })), "{written:?}");
            }
            assert!(client.truncate(path, 1).await.is_err());
            client.close(file).await.unwrap();
            client.link(path, &[path, b"2"].concat()).await.unwrap();
        }
        client.write_file(b"/ours", b"short").await.unwrap();
        fs.close().await.unwrap();
        for (path, bytes) in plain {
            assert_eq!(below.read_file(path).await.unwrap(), bytes);
            assert!(below.stat(&[path, b".idx"].concat()).await.is_err(), "{}", String::from_utf8_lossy(path));
            below.unlink(path).await.unwrap();
            below.unlink(&[path, b"2"].concat()).await.unwrap();
        }
        below.unlink(b"/ours.idx").await.unwrap();
        let client = Client::new(stack_on(&rt, lower.clone(), gzip()).await.unwrap());
        assert_eq!(client.read_file(b"/ours").await.unwrap(), b"short");
        assert!(client.write_file(b"/ours", b"longer").await.is_err());
        client.fs().close().await.unwrap();
        let report = check::check(&rt, lower.clone(), gzip(), true).await.unwrap();
        assert!(report.findings.len() == 1 && report.findings[0].repaired, "{:?}", report.findings);
        assert_clean(&rt, &(lower.clone() as Fs)).await;
        let client = Client::new(stack_on(&rt, lower.clone(), gzip()).await.unwrap());
        assert_eq!(client.read_file(b"/ours").await.unwrap(), b"short");
        client.write_file(b"/ours", b"longer").await.unwrap();
        assert_eq!(client.read_file(b"/ours").await.unwrap(), b"longer");
    });
}

/// Where no rename can be kept from replacing, an index follows its file, and one that cannot is removed.
#[test]
fn hosts_that_always_replace() {
    simulate(1, async |rt| {
        let lower = Trouble::over(model(&rt)).await;
        lower.layer().no_replace.set(true);
        let client = Client::new(stack_on(&rt, lower.clone(), gzip()).await.unwrap());
        let content = text(30_000);
        client.write_file(b"/a", &content).await.unwrap();
        client.rename(b"/a", b"/b", RenameMode::Replace).await.unwrap();
        let below = Client::new(lower.clone() as Fs);
        let index = |name: &[u8]| [name, super::super::format::SUFFIX].concat();
        below.stat(&index(b"/b")).await.unwrap();
        assert_eq!(below.stat(&index(b"/a")).await.map(drop), Err(crate::fs::FsError::NotFound));
        // Something else has the name of the index.
        below.write_file(&index(b"/c"), b"something else").await.unwrap();
        client.rename(b"/b", b"/c", RenameMode::Replace).await.unwrap();
        assert_eq!(below.stat(&index(b"/b")).await.map(drop), Err(crate::fs::FsError::NotFound));
        assert!(client.read_file(b"/c").await.unwrap() == content);
        assert_eq!(below.read_file(&index(b"/c")).await.unwrap(), b"something else");
        client.fs().close().await.unwrap();
    });
}

/// A large hole is made in small pieces, whether by a change of size or by a write behind the end.
#[test]
fn large_holes_are_made_in_pieces() {
    const HOLE: u64 = 128 << 20;
    simulate(1, async |rt| {
        let lower = Trouble::over(model(&rt)).await;
        let client = Client::new(stack_on(&rt, lower.clone(), gzip()).await.unwrap());
        let file = client.create(b"/f").await.unwrap();
        client.write(file, 0, &text(5_000)).await.unwrap();
        client.truncate(b"/f", HOLE + 100).await.unwrap();
        client.write(file, 2 * HOLE + 100, b"end").await.unwrap();
        let longest = lower.layer().longest_write_to(file.ino);
        assert!(longest <= 64 << 10, "{longest} bytes in one write");
        assert_eq!(client.stat(b"/f").await.unwrap().size, 2 * HOLE + 103);
        assert!(client.read(file, 0, 5_000).await.unwrap() == text(5_000));
        assert!(client.read(file, HOLE - 1_000, 2_000).await.unwrap() == vec![0; 2_000]);
        assert!(client.read(file, 2 * HOLE, 200).await.unwrap() == [&[0; 100][..], b"end"].concat());
        client.close(file).await.unwrap();
        client.fs().close().await.unwrap();
        assert_clean(&rt, &(lower.clone() as Fs)).await;
    });
}

/// A rename has taken place, and then the file cannot be looked up: the rename succeeds, and its index follows it, so that the
/// next file of the old name has its own.
#[test]
fn a_renamed_file_that_cannot_be_looked_up() {
    simulate(1, async |rt| {
        let noise = |seed| {
            let mut noise = vec![0; 10_000];
            Rng::new(seed).fill(&mut noise);
            noise
        };
        for mode in [RenameMode::Replace, RenameMode::NoReplace] {
            let lower = Trouble::over(model(&rt)).await;
            let client = Client::new(stack_on(&rt, lower.clone(), gzip()).await.unwrap());
            client.write_file(b"/f", &noise(1)).await.unwrap();
            lower.layer().open_node.replace(Some(FsError::Host(5)));
            assert_eq!(client.rename(b"/f", b"/g", mode).await, Ok(()));
            assert_eq!(lower.layer().open_node.take(), None, "the file is looked up");
            client.write_file(b"/f", &noise(2)).await.unwrap();
            client.fs().close().await.unwrap();
            let client = Client::new(stack_on(&rt, lower.clone(), gzip()).await.unwrap());
            for (path, content) in [(b"/f", noise(2)), (b"/g", noise(1))] {
                assert!(client.read_file(path).await.unwrap() == content);
                let file = client.open(path, OpenFlags::READ_WRITE).await.unwrap();
                assert_eq!(client.write(file, 10, b"more").await, Ok(()), "{}", String::from_utf8_lossy(path));
                client.close(file).await.unwrap();
            }
            client.fs().close().await.unwrap();
            assert_clean(&rt, &(lower as Fs)).await;
        }
    });
}

/// A client makes a file while another renames or removes the one that had its name: each file has its own index.
#[test]
fn a_name_is_used_again_at_once() {
    simulate(1, async |rt| {
        // The index of bytes that do not shrink is all that tells that they are units.
        let noise = |seed| {
            let mut noise = vec![0; 10_000];
            Rng::new(seed).fill(&mut noise);
            noise
        };
        for (number, change) in ["rename", "exchange", "unlink"].into_iter().enumerate() {
            for wait in [1, 5, 15, 25] {
                let lower = Trouble::over(model(&rt)).await;
                let client = Client::new(stack_on(&rt, lower.clone(), gzip()).await.unwrap());
                client.write_file(b"/f", &noise(1)).await.unwrap();
                client.write_file(b"/g", &noise(2)).await.unwrap();
                lower.layer().slow_names.replace(Some((rt.clone(), Nanos::from_micros(10))));
                let (rt2, other) = (rt.clone(), Client::new(client.fs().clone()));
                let maker = rt.spawn(async move {
                    rt2.sleep(Nanos::from_micros(wait)).await;
                    other.write_file(b"/f", &noise(3)).await
                });
                match number {
                    0 => client.rename(b"/f", b"/g", RenameMode::Replace).await.unwrap(),
                    1 => client.rename(b"/f", b"/g", RenameMode::Exchange).await.unwrap(),
                    _ => client.unlink(b"/f").await.unwrap(),
                }
                maker.await.unwrap();
                lower.layer().slow_names.replace(None);
                client.fs().close().await.unwrap();
                let client = Client::new(stack_on(&rt, lower.clone(), gzip()).await.unwrap());
                for (path, content) in [(b"/f", noise(3)), (b"/g", noise([1, 1, 2][number]))] {
                    assert!(client.read_file(path).await.unwrap() == content, "{change}, {wait}");
                    let file = client.open(path, OpenFlags::READ_WRITE).await.unwrap();
                    let written = client.write(file, 10, b"more").await;
                    assert_eq!(written, Ok(()), "{change}, {wait}, {}", String::from_utf8_lossy(path));
                    client.close(file).await.unwrap();
                }
                assert_clean(&rt, &(lower as Fs)).await;
            }
        }
    });
}

/// A check calls a file repairable only if it can be repaired: not where another file has the name of its index.
#[test]
fn a_lost_index_whose_name_is_taken() {
    simulate(1, async |rt| {
        // Of bytes that do not shrink, only the index shows that they are no plain file.
        let mut noise = vec![0; 10_000];
        Rng::new(1).fill(&mut noise);
        for taken in [false, true] {
            let lower = model(&rt);
            let fs = stack_on(&rt, lower.clone(), gzip()).await.unwrap();
            Client::new(fs.clone()).write_file(b"/f", &noise).await.unwrap();
            fs.close().await.unwrap();
            let direct = Client::new(lower.clone() as Fs);
            match taken {
                false => direct.unlink(b"/f.idx").await.unwrap(),
                true => direct.write_file(b"/f.idx", &[0; 100]).await.unwrap(),
            }
            for repair in [false, true] {
                let report = check::check(&rt, lower.clone(), gzip(), repair).await.unwrap();
                let repaired: Vec<bool> = report.findings.iter().map(|finding| finding.repaired).collect();
                assert_eq!((report.repairable, repaired), (!taken, vec![repair && !taken]), "{:?}", report.findings);
            }
            let kept = direct.read_file(b"/f.idx").await.unwrap();
            assert!(!taken || kept == [0; 100], "a file that is no index is not changed");
        }
    });
}

/// A crash while two names are exchanged may leave one index beside two files, or two indexes beside the two names of a file. A repair
/// gives each file its own, and leaves the one index of a file with two names as it is.
#[test]
fn names_that_a_crash_has_mixed_get_their_indexes() {
    simulate(1, async |rt| {
        for two_names in [false, true] {
            let lower = model(&rt);
            let fs = stack_on(&rt, lower.clone(), gzip()).await.unwrap();
            let client = Client::new(fs.clone());
            client.write_file(b"/a", &text(20_000)).await.unwrap();
            client.write_file(b"/b", &text(9_000)).await.unwrap();
            client.link(b"/a", b"/linked").await.unwrap();
            fs.close().await.unwrap();
            let direct = Client::new(lower.clone() as Fs);
            match two_names {
                false => {
                    direct.unlink(b"/a.idx").await.unwrap();
                    direct.link(b"/b.idx", b"/a.idx").await.unwrap();
                }
                true => {
                    direct.unlink(b"/a").await.unwrap();
                    direct.link(b"/b", b"/a").await.unwrap();
                }
            }
            let report = check::check(&rt, lower.clone(), gzip(), true).await.unwrap();
            let all_repaired = report.findings.iter().all(|finding| finding.repaired);
            assert!(!report.findings.is_empty() && all_repaired, "{:?}", report.findings);
            assert_clean(&rt, &(lower.clone() as Fs)).await;
            let client = Client::new(stack_on(&rt, lower.clone(), gzip()).await.unwrap());
            let of_a = if two_names { 9_000 } else { 20_000 };
            for (name, bytes) in [(&b"/a"[..], of_a), (b"/b", 9_000), (b"/linked", 20_000)] {
                assert_eq!(client.read_file(name).await.unwrap(), text(bytes), "{}", String::from_utf8_lossy(name));
            }
            client.fs().close().await.unwrap();
        }
    });
}

/// A directory is another layer's once no file in it is encoded any more, and not before.
#[test]
fn a_directory_is_let_go_when_no_file_is_encoded() {
    use crate::layer::log;
    simulate(1, async |rt| {
        let lower: Fs = model(&rt);
        let below = Client::new(lower.clone());
        below.write_file(b"/plain", b"a\n").await.unwrap();
        let fs = stack_on(&rt, lower.clone(), gzip()).await.unwrap();
        let above = Client::new(fs.clone());
        above.write_file(b"/empty", b"").await.unwrap();
        above.mkdir(b"/d").await.unwrap();
        above.write_file(b"/d/short", b"x").await.unwrap();
        above.write_file(b"/d/long", &text(20_000)).await.unwrap();
        fs.close().await.unwrap();
        let use_log = async || log::stack_on(&rt, lower.clone(), log::Options::new(gzip().codec)).await;
        let let_go = async || {
            let (report, is_free) = check::let_go(&rt, lower.clone(), gzip()).await.unwrap();
            (report.files, report.encoded_files, report.findings.len(), is_free)
        };
        assert_eq!(let_go().await, (4, 2, 0, false));
        assert!(matches!(use_log().await, Err(FsError::Invalid(_))), "its files would be lost");
        below.unlink(b"/d/long").await.unwrap();
        assert_eq!(let_go().await, (3, 1, 1, false), "an index is left");
        check::check(&rt, lower.clone(), gzip(), true).await.unwrap();
        assert_eq!(let_go().await, (3, 1, 0, false));
        let fs = stack_on(&rt, lower.clone(), gzip()).await.unwrap();
        Client::new(fs.clone()).unlink(b"/d/short").await.unwrap();
        fs.close().await.unwrap();
        assert_eq!(let_go().await, (2, 0, 0, true));
        use_log().await.unwrap().close().await.unwrap();
        assert_eq!(below.read_file(b"/plain").await.unwrap(), b"a\n");
    });
}
