//! Aim: a file that replaces another has the old or the new content when the daemon is killed, without a sync; and
//! after a power cut no file is in a state that it never had. Method: renames over files, and files that are truncated
//! and rewritten, by one client and by several, over the weak model `WeakFs` and over a slow file system; at each
//! moment everything or only a part of what was written below is kept.

use super::times::slow;
use super::*;
use crate::fs::client::Client;
use crate::fs::{AllocateMode, FileRange, FileSystem, FsError, OpenFlags, RenameMode};
use crate::rng::Rng;
use crate::testing::volumes::life::must_have_covered;
use crate::testing::{MemFsOptions, WeakFs};

fn weak_fs(rt: &Rt) -> Rc<WeakFs> {
    // With handles, whose release shows when a file is closed.
    let open_protocol = crate::fs::OpenProtocol::Handles;
    WeakFs::new(rt, MemFsOptions { capacity_bytes: 1 << 40, open_protocol, ..MemFsOptions::default() })
}

fn content(version: u64, bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    Rng::new(version).fill(&mut content);
    content[..8].copy_from_slice(&version.to_le_bytes());
    content
}

/// As [`Client::write_file`], through `open` with `O_TRUNC`.
async fn rewrite(client: &Client, path: &[u8], bytes: &[u8]) {
    let flags = OpenFlags { truncate: true, ..OpenFlags::READ_WRITE };
    let file = match client.open(path, flags).await {
        Err(FsError::NotFound) => client.create(path).await.unwrap(),
        file => file.unwrap(),
    };
    client.write(file, 0, bytes).await.unwrap();
    client.close(file).await.unwrap();
}

async fn read_after(rt: &Rt, left: Rc<MemFs>, options: &Options, path: &[u8]) -> FsResult<Vec<u8>> {
    let again = stack_on(rt, left.clone(), options.clone()).await.unwrap();
    let client = Client::new(again.clone());
    let read = client.read_file(path).await;
    // The size shown without opening is the same.
    if let Ok(read) = &read {
        let other = Client::new(stack_on(rt, left.clone(), options.clone()).await.unwrap());
        assert_eq!(other.stat(path).await.unwrap().size, read.len() as u64, "M1");
        // It can be used, and is consistent afterwards.
        let file = client.open(path, OpenFlags::READ_WRITE).await.unwrap();
        client.write(file, 50, b"changed").await.unwrap();
        client.close(file).await.unwrap();
    }
    again.close().await.unwrap();
    assert_clean(rt, &(left as Fs), options).await;
    read
}

/// The old file is synced. The new one is written and renamed over it, or the old one is truncated and rewritten,
/// several times in a row, without a sync; at every moment the name has one of the two contents.
#[test]
fn a_killed_daemon_leaves_old_or_new() {
    let replay = replay("replaced::a_killed_daemon_leaves_old_or_new");
    for seed in replay.seeds(0..8) {
        simulate(seed, async |rt| {
            let mut rng = Rng::new(seed);
            let lower = weak_fs(&rt);
            let (write_back_interval, dirty_bytes_max) = (Nanos::from_secs(5), 32 << 20);
            let options = Options { write_back_interval, dirty_bytes_max, ..tiny(Arc::new(Zstd::default())) };
            let fs = stack(&rt, lower.clone(), options.clone()).await.unwrap();
            let client = Client::new(fs.clone());
            let bytes = |rng: &mut Rng| rng.between(8, [300, 30_000, 200_000][seed as usize % 3]) as usize;
            let mut versions = vec![content(0, bytes(&mut rng))];
            client.write_file(b"/config", &versions[0]).await.unwrap();
            client.sync().await.unwrap();
            let by_rename = seed % 2 == 0;
            let (start, syncs) = (lower.position(), lower.syncs());
            // Moments from which on the file may, or must, have a version.
            let mut moments = vec![start];
            for version in 1..5 {
                let new = content(version, bytes(&mut rng));
                versions.push(new.clone());
                moments.push(lower.position());
                match by_rename {
                    true => {
                        client.write_file(b"/config.tmp", &new).await.unwrap();
                        client.rename(b"/config.tmp", b"/config", RenameMode::Replace).await.unwrap();
                    }
                    false => rewrite(&client, b"/config", &new).await,
                }
                assert_eq!(check::books(&fs).await, Ok(()));
                moments.push(lower.position());
            }
            assert_eq!(lower.syncs(), syncs, "seed {seed}: nothing of this needs a flush");
            for position in start..=lower.position() {
                let begun = moments.iter().skip(1).step_by(2).filter(|&&from| position > from).count();
                let ended = moments.iter().skip(2).step_by(2).filter(|&&to| position >= to).count();
                let read = read_after(&rt, lower.cut(position, 0).await.unwrap(), &options, b"/config").await;
                let read = read.unwrap_or_else(|error| panic!("seed {seed}, killed at {position}: {error}"));
                let found = versions.iter().position(|version| *version == read);
                assert!(
                    found.is_some_and(|found| (ended..=begun).contains(&found)),
                    "seed {seed}, killed at {position}: version {found:?} of {} bytes, not one of {ended} to {begun}",
                    read.len()
                );
                // After a power cut: a rewritten file has its old or new content; a file that a rename replaced has
                // what the directory gives, which may be nothing.
                for state in 1..5 {
                    let left = lower.cut(position, state).await.unwrap();
                    let read = read_after(&rt, left, &options, b"/config").await;
                    let read = read.unwrap_or_else(|error| panic!("seed {seed}, cut at {position}, {state}: {error}"));
                    let found = versions[..=begun].contains(&read);
                    assert!(found || by_rename && read.is_empty(), "seed {seed}, cut at {position}, {state}");
                }
            }
            fs.close().await.unwrap();
        });
    }
}

/// A provisional commit is confirmed when everything is written back; from then on it is like any other, and its sync
/// counts.
#[test]
fn what_was_replaced_is_confirmed() {
    simulate(1, async |rt| {
        let lower = weak_fs(&rt);
        let options = tiny(Arc::new(Zstd::default()));
        let fs = stack(&rt, lower.clone(), options.clone()).await.unwrap();
        let client = Client::new(fs.clone());
        rewrite(&client, b"/f", &content(1, 20_000)).await;
        client.sync().await.unwrap();
        rewrite(&client, b"/f", &content(2, 20_000)).await;
        let provisional = |fs: &Rc<Stacked<ChunkedLayer>>| fs.layer().counts.provisional_commits.get();
        assert_eq!(provisional(&fs), 1);
        // Killed and mounted again, it is loaded as provisional, and confirmed there; the older commit is kept until
        // then.
        drop((client, fs));
        let fs = stack(&rt, lower.clone(), options.clone()).await.unwrap();
        let client = Client::new(fs.clone());
        assert!(client.read_file(b"/f").await.unwrap() == content(2, 20_000));
        rewrite(&client, b"/f", &content(3, 20_000)).await;
        let position = lower.position();
        for state in 0..20 {
            let read = read_after(&rt, lower.cut(position, state).await.unwrap(), &options, b"/f").await.unwrap();
            assert!((1..=3).any(|version| content(version, 20_000) == read), "state {state}");
        }
        client.sync().await.unwrap();
        let position = lower.position();
        for state in 0..20 {
            let read = read_after(&rt, lower.cut(position, state).await.unwrap(), &options, b"/f").await.unwrap();
            assert!(content(3, 20_000) == read, "state {state}");
        }
        let ino = client.stat(b"/f").await.unwrap().ino;
        let size = client.stat(b"/f").await.unwrap().size;
        assert_eq!(size, 20_000);
        let below = Client::new(lower.clone() as Fs);
        let bytes = below.read_file(b"/f").await.unwrap();
        let slots = [0, 512].map(|at| format::Commit::decode(&bytes[at..at + 512]));
        let newest = slots.into_iter().filter_map(|slot| match slot {
            format::SlotState::Good(commit) => Some(commit),
            _ => None,
        });
        let newest = newest.max_by_key(|commit| commit.generation).unwrap();
        assert!(!newest.is_provisional, "inode {ino}");
        fs.close().await.unwrap();
    });
}

/// Several clients at once: two rename over the same name, one writes to the file that is being replaced, one truncates
/// and rewrites another, and one syncs. Killed at any moment, each name has a content that it was given.
#[test]
fn clients_replace_at_once() {
    let replay = replay("replaced::clients_replace_at_once");
    crate::rt::covered();
    for seed in replay.seeds(0..6) {
        simulate(seed, async |rt| {
            let lower = weak_fs(&rt);
            let options = Options { write_back_interval: Nanos(2_000), ..tiny(Arc::new(Zstd::default())) };
            let below = slow(&rt, lower.clone(), seed, 30).await;
            let fs = stack(&rt, below, options.clone()).await.unwrap();
            let client = Client::new(fs.clone());
            for path in [&b"/a"[..], b"/b"] {
                client.write_file(path, &content(0, 5_000)).await.unwrap();
            }
            client.sync().await.unwrap();
            let start = lower.position();
            let is_whole = |bytes: &[u8]| {
                let (version, rest) = bytes.split_first_chunk::<8>().expect("more than a number");
                *rest == content(u64::from_le_bytes(*version), bytes.len())[8..]
            };
            let moments_cut: Rc<RefCell<Vec<(usize, usize)>>> = Rc::default();
            let mut tasks = Vec::new();
            for number in 0..4u64 {
                let (client, rt) = (Client::new(fs.clone()), rt.clone());
                let (moments_cut, lower) = (moments_cut.clone(), lower.clone());
                tasks.push(rt.clone().spawn(async move {
                    let mut rng = Rng::new(seed << 8 | number);
                    for round in 0..6u64 {
                        rt.sleep(Nanos(rng.below(500))).await;
                        let new = content(1 + number * 100 + round, rng.between(100, 20_000) as usize);
                        match number {
                            0 | 1 => {
                                let path = format!("/tmp{number}").into_bytes();
                                client.write_file(&path, &new).await.unwrap();
                                client.rename(&path, b"/a", RenameMode::Replace).await.unwrap();
                            }
                            2 => {
                                let from = lower.position();
                                rewrite(&client, b"/b", &new).await;
                                moments_cut.borrow_mut().push((from, lower.position()));
                            }
                            _ => {
                                // The file may be replaced while it is open, so the client rewrites only bytes that
                                // exist.
                                let file = client.open(b"/a", OpenFlags::READ_WRITE).await.unwrap();
                                let old = client.read(file, 0, 30_000).await.unwrap();
                                client.write(file, 0, &old).await.unwrap();
                                client.close(file).await.unwrap();
                                client.sync().await.unwrap();
                            }
                        }
                    }
                }));
            }
            for task in tasks {
                task.await;
            }
            assert_eq!(check::books(&fs).await, Ok(()), "seed {seed}");
            for position in (start..=lower.position()).step_by(3) {
                for path in [&b"/a"[..], b"/b"] {
                    for state in [0, 2] {
                        let left = lower.cut(position, state).await.unwrap();
                        let read = read_after(&rt, left, &options, path).await;
                        let read = read.unwrap_or_else(|error| panic!("seed {seed}, {position}, {state}: {error}"));
                        let cut_off = state > 0 && read.is_empty() && path == b"/a";
                        // While a writer has truncated the file and not yet closed it, a write-back commits the present
                        // content.
                        let cut = moments_cut.borrow();
                        let in_between = path == b"/b"
                            && read.is_empty()
                            && (state > 0 || cut.iter().any(|&(from, to)| (from..to).contains(&position)));
                        assert!(
                            cut_off || in_between || is_whole(&read),
                            "seed {seed}, cut at {position}, state {state}: {} bytes of {}",
                            read.len(),
                            String::from_utf8_lossy(path)
                        );
                    }
                }
            }
            fs.close().await.unwrap();
        });
    }
    if replay.runs_everything() {
        must_have_covered("layer::log::tests::replaced::clients_replace_at_once", POINTS);
    }
}

/// Cover points of states after a power cut, where writes below are not kept in order.
const POINTS: &[&str] = &["layer: a provisional commit is whole", "layer: the commit before a provisional one counts"];

/// Space that a commit no longer refers to stays unchanged until that commit is durable: a power cut may leave the
/// previous one. And after a mount nothing is known of the commit before the last, so that only new space is used until
/// the first sync.
#[test]
fn space_waits_for_durable_commits() {
    let replay = replay("replaced::space_waits_for_durable_commits");
    for seed in replay.seeds(0..6) {
        simulate(seed, async |rt| {
            let mut rng = Rng::new(seed);
            let lower = weak_fs(&rt);
            let options = tiny(Arc::new(crate::layer::codecs::Copy));
            let mut fs = stack(&rt, lower.clone(), options.clone()).await.unwrap();
            let mut now = content(7, 8 * 4096);
            Client::new(fs.clone()).write_file(b"/f", &now).await.unwrap();
            fs.clone().syncfs().await.unwrap();
            // Each state of the file since its last sync.
            let mut states = vec![(lower.position(), now.clone())];
            for round in 0..25u64 {
                if rng.chance(1, 3) {
                    // Killed: what was written back and not synced is there as long as the power is.
                    drop(fs);
                    fs = stack(&rt, lower.clone(), options.clone()).await.unwrap();
                    now = Client::new(fs.clone()).read_file(b"/f").await.unwrap();
                }
                let client = Client::new(fs.clone());
                let file = client.open(b"/f", OpenFlags::READ_WRITE).await.unwrap();
                let chunk = rng.below(8) as usize;
                let piece = content(100 + round, 4096);
                now[chunk * 4096..][..4096].copy_from_slice(&piece);
                client.write(file, chunk as u64 * 4096, &piece).await.unwrap();
                states.push((lower.position(), now.clone()));
                if rng.chance(1, 8) {
                    let range = FileRange { offset: 0, bytes: 4096 };
                    client.fallocate(b"/f", range, AllocateMode::PunchHole).await.unwrap();
                    now[..4096].fill(0);
                    states.push((lower.position(), now.clone()));
                }
                client.close(file).await.unwrap();
                if rng.chance(3, 4) {
                    rt.sleep(Nanos::from_millis(25)).await;
                }
                assert_eq!(check::books(&fs).await, Ok(()), "seed {seed}, round {round}");
            }
            for position in (states[0].0..=lower.position()).step_by(2) {
                for state in 0..6 {
                    let left = lower.cut(position, state).await.unwrap();
                    let read = read_after(&rt, left, &options, b"/f").await;
                    let read = read.unwrap_or_else(|error| panic!("seed {seed}, cut at {position}, {state}: {error}"));
                    let found = states.iter().any(|(from, content)| *from <= position && *content == read);
                    assert!(found, "seed {seed}, cut at {position}, state {state}: a content that it never had");
                }
            }
        });
    }
}

/// Aim: the close that ends a rewrite passes it down, whatever other handles there are, and whichever client wrote the file before. Method:
/// a file of the layer and a plain one, rewritten beside readers and earlier writers; afterwards the daemon is killed.
#[test]
fn the_last_close_of_a_rewrite_passes_it_down() {
    for plain in [false, true] {
        for manner in ["alone", "a reader closes", "an earlier writer stays", "two of them"] {
            simulate(1, async |rt| {
                let what = format!("plain {plain}, {manner}");
                let lower = weak_fs(&rt);
                let options = Options { write_back_interval: Nanos::from_secs(5), ..tiny(Arc::new(Zstd::default())) };
                let below = Client::new(lower.clone() as Fs);
                let fs = stack(&rt, lower.clone(), options.clone()).await.unwrap();
                let client = Client::new(fs.clone());
                match plain {
                    true => below.write_file(b"/config", &content(0, 20_000)).await.unwrap(),
                    false => client.write_file(b"/config", &content(0, 20_000)).await.unwrap(),
                }
                client.sync().await.unwrap();
                let (new, truncates) = (content(2, 30_000), OpenFlags { truncate: true, ..OpenFlags::READ_WRITE });
                let earlier = match manner {
                    "an earlier writer stays" => {
                        let file = client.open(b"/config", OpenFlags::READ_WRITE).await.unwrap();
                        client.write(file, 0, b"changed").await.unwrap();
                        Some(file)
                    }
                    _ => {
                        rewrite(&client, b"/config", &content(1, 20_000)).await;
                        None
                    }
                };
                let file = client.open(b"/config", truncates).await.unwrap();
                client.write(file, 0, &new[..10_000]).await.unwrap();
                match manner {
                    "a reader closes" => {
                        let reader = client.open(b"/config", OpenFlags::READ).await.unwrap();
                        client.close(reader).await.unwrap();
                    }
                    "two of them" => {
                        let other = client.open(b"/config", OpenFlags::READ_WRITE).await.unwrap();
                        client.write(other, 10_000, &new[10_000..20_000]).await.unwrap();
                        client.close(other).await.unwrap();
                    }
                    // The timer passes down what is there by then.
                    _ => rt.sleep(Nanos::from_secs(6)).await,
                }
                client.write(file, 10_000, &new[10_000..]).await.unwrap();
                client.close(file).await.unwrap();
                let left = lower.cut(lower.position(), 0).await.unwrap();
                let read = read_after(&rt, left, &options, b"/config").await.unwrap();
                assert!(read == new, "{what}: {} of {} bytes are left", read.len(), new.len());
                if let Some(earlier) = earlier {
                    client.close(earlier).await.unwrap();
                }
                assert_eq!(check::books(&fs).await, Ok(()), "{what}");
                fs.close().await.unwrap();
            });
        }
    }
}
