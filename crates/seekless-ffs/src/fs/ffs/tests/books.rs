//! Aim: the recount of a mounted volume agrees with its books in every mode, also while soft updates have something to
//! free, and notices each wrong book. Method: small programs with a recount after each step; then each book falsified
//! in memory, one at a time.

use super::super::format::*;
use super::super::state::State;
use super::*;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::testing::environment::replay;
use crate::testing::{Generator, OpMix, Runner, Space};

const BYTES: u64 = 12 * MIB;

const MODES: [Metadata; 3] = [Metadata::Sync, Metadata::Async, Metadata::Softdep];

fn options(metadata: Metadata) -> Options {
    Options { metadata, ..Options::default() }
}

async fn assert_balanced(fs: &Ffs, what: &str) {
    assert_eq!(fs.recount().await.expect(what), Vec::<String>::new(), "{what}");
}

#[test]
fn they_balance_at_every_step() {
    for metadata in MODES {
        simulate(1, async |rt| {
            let (_, device) = fresh(&rt, BYTES, &small_groups()).await;
            let fs = mount(rt.clone(), device.clone(), options(metadata)).await.expect("mount");
            let client = Client::new(fs.clone());
            let what = |step: &str| format!("{metadata:?}, {step}");
            client.mkdir(b"/d").await.expect("made");
            client.mkdir(b"/d/e").await.expect("made");
            assert_balanced(&fs, &what("directories")).await;
            for number in 0..40u32 {
                let path = format!("/d/{number}").into_bytes();
                client.write_file(&path, &vec![number as u8; 700 * number as usize]).await.expect("written");
                if number % 3 == 0 {
                    client.link(&path, format!("/{number}").as_bytes()).await.expect("linked");
                }
            }
            assert_balanced(&fs, &what("files")).await;
            client.write_file(b"/large", &[1; 900_000]).await.expect("written");
            client.symlink(&[b'x'; 300], b"/link").await.expect("linked");
            assert_balanced(&fs, &what("a large file")).await;
            client.sync().await.expect("synced");
            assert_balanced(&fs, &what("synced")).await;
            client.open(b"/d/9", OpenFlags::READ_WRITE).await.expect("open");
            for number in 0..40u32 {
                client.unlink(format!("/d/{number}").as_bytes()).await.expect("removed");
                if number % 10 == 0 {
                    assert_balanced(&fs, &what("removed")).await;
                }
            }
            client.truncate(b"/large", 5_000).await.expect("cut");
            assert_balanced(&fs, &what("cut")).await;
            client.rename(b"/d/e", b"/e", RenameMode::Replace).await.expect("moved");
            client.write_file(b"/d/9", b"again").await.expect("written");
            client.rename(b"/d/9", b"/link", RenameMode::Replace).await.expect("moved");
            assert_balanced(&fs, &what("moved")).await;
            client.rmdir(b"/e").await.expect("removed");
            client.rmdir(b"/d").await.expect("removed");
            assert_balanced(&fs, &what("all removed")).await;
            fs.drop_caches().await.expect("dropped");
            assert_balanced(&fs, &what("nothing in memory")).await;
            client.sync().await.expect("synced");
            assert_balanced(&fs, &what("synced again")).await;
            drop(client);
            fs.close().await.expect("closed");
        });
    }
}

/// What to falsify in the state, and what the recount must then mention.
type Spoilt = (&'static str, fn(&mut State));

fn group_of_file(state: &State) -> (GroupNo, FragNo) {
    let file = state.inodes.values().find(|known| known.inode.db[0] != FragNo::NONE && !known.inode.is_directory());
    let at = file.expect("a file").inode.db[0];
    (state.layout.group_of(at), at)
}

#[test]
fn the_recount_notices_each_wrong_book() {
    const CASES: &[Spoilt] = &[
        ("the totals are", |state| state.totals.nffree += 1),
        ("S2: the summary of group", |state| state.summaries[0].nifree += 1),
        ("fragments that were freed twice", |state| state.counters.freed_twice += 1),
        ("counts of blocks that cannot be", |state| state.counters.miscounted += 1),
        ("links of inode", |state| {
            let known = state.inodes.values_mut().find(|known| !known.inode.is_directory());
            known.expect("a file").inode.nlink += 1;
        }),
        ("sectors of inode", |state| {
            let known = state.inodes.values_mut().find(|known| !known.inode.is_directory());
            known.expect("a file").inode.blocks += 2;
        }),
        // Freed while a file has it.
        (", and free", |state| {
            let (group, at) = group_of_file(state);
            let in_group = state.layout.offset_in_group(at);
            let freed = state.change_group(group, |map| Some(map.free_frags(in_group, 1)));
            freed.expect("in memory").expect("changed").expect("freed");
        }),
        // Allocated, and never given to a file.
        ("fragments to be given back", |state| drop(state.take_frags(InodeNo(3), FragNo::NONE, 1))),
        // The counts of a group against its maps.
        ("group 0:", |state| {
            let at = state.layout.group_block(GroupNo(0));
            let bytes = state.cache.bytes_mut(at).expect("in memory");
            let mut head = Group::decode(bytes).expect("a group");
            head.nbfree += 1;
            head.encode(bytes);
        }),
        // Two files with one block.
        ("is claimed twice", |state| {
            let (_, at) = group_of_file(state);
            let blocks = |inode: &Inode| inode.db[0] != FragNo::NONE && inode.db[0] != at && !inode.is_directory();
            let known = state.inodes.values_mut().find(|known| blocks(&known.inode));
            known.expect("another file").inode.db[0] = at;
        }),
    ];
    for metadata in MODES {
        for (what, spoil) in CASES {
            simulate(1, async |rt| {
                let name = format!("{metadata:?}, {what}");
                let (_, device) = fresh(&rt, BYTES, &small_groups()).await;
                let fs = mount(rt.clone(), device.clone(), options(metadata)).await.expect("mount");
                let client = Client::new(fs.clone());
                for number in 0..4u8 {
                    client.write_file(&[b'/', b'a' + number], &[number; 20_000]).await.expect("written");
                }
                client.sync().await.expect("synced");
                assert_balanced(&fs, &name).await;
                spoil(&mut fs.state.borrow_mut());
                let found = fs.recount().await.expect(&name);
                assert!(found.iter().any(|problem| problem.contains(what)), "{name}: {found:?}");
            });
        }
    }
}

/// Aim: the recount ends whatever room the cache has, leaves the cache alone, and sees one moment while others write.
/// Method: more metadata than the cache keeps, on a slow device; then recounts during the work of a client.
#[test]
fn it_reads_beside_the_cache() {
    for metadata in MODES {
        simulate(1, async |rt| {
            let (_, device) = fresh(&rt, 40 * MIB, &small_groups()).await;
            let slow = FaultDevice::new(&rt, device, 1);
            let delay = Effect::Delay(Nanos::from_micros(10)..=Nanos::from_micros(90));
            slow.add(Rule::new(Kinds::all(), When::Always, delay));
            let fs = mount(rt.clone(), slow, Options { cache_bytes: 0, ..options(metadata) }).await.expect("mount");
            let client = Client::new(fs.clone());
            client.write_file(b"/large", &[1; 3_000_000]).await.expect("written");
            for number in 0..40u8 {
                client.mkdir(format!("/{number}").as_bytes()).await.expect("made");
                client.write_file(format!("/{number}/f").as_bytes(), &[number; 150_000]).await.expect("written");
            }
            fs.drop_caches().await.expect("dropped");
            let reads = fs.state.borrow().counters.block_reads;
            assert_balanced(&fs, &format!("{metadata:?}, nothing in memory")).await;
            assert_eq!(fs.state.borrow().counters.block_reads, reads, "{metadata:?}: the recount reads into the cache");

            let (writer, clock) = (client.clone(), rt.clone());
            let work = rt.spawn(async move {
                for number in 0..40u8 {
                    let path = format!("/{number}/g").into_bytes();
                    writer.write_file(&path, &vec![number; 3_000 * usize::from(number)]).await.expect("written");
                    writer.unlink(format!("/{number}/f").as_bytes()).await.expect("removed");
                    writer.rename(&path, b"/moved", RenameMode::Replace).await.expect("moved");
                    writer.fsync_path(b"/moved").await.expect("synced");
                    clock.sleep(Nanos::from_millis(5)).await;
                }
            });
            let mut counted = 0;
            while !work.is_finished() {
                assert_balanced(&fs, &format!("{metadata:?}, recount {counted} while a client goes on")).await;
                counted += 1;
            }
            work.await;
            assert!(counted > 3, "{metadata:?}: {counted} recounts");
            fs.close().await.expect("closed");
        });
    }
}

/// Aim: the books balance after every operation. Method: random operations in all modes, with updates so frequent that
/// they meet operations, and next to no cache; a recount after some of them, and in a soak after each.
#[test]
fn they_balance_after_random_operations() {
    let here = replay("fs::ffs::tests::books::they_balance_after_random_operations");
    let every = if here.soak.is_longer() { 1 } else { 8 };
    for seed in here.seeds(0..6) {
        let command = here.command(seed, None, None, None);
        simulate(seed, async |rt| {
            let (_, device) = fresh(&rt, BYTES, &small_groups()).await;
            let update_interval = Nanos::from_millis(5);
            let options = Options { update_interval, cache_bytes: 0, ..options(MODES[seed as usize % 3]) };
            let fs = mount(rt.clone(), device.clone(), options).await.expect("mount");
            let mut runner = Runner::new(&rt, fs.clone());
            let space = Space { file_bytes_max: 400_000, ..Space::small() };
            let ops = Generator::new(seed, space, OpMix::CRASHY).filter(Op::is_possible_on_ufs1).take(300);
            for (number, op) in ops.enumerate() {
                runner.apply(&op).await;
                if number % every == 0 {
                    assert_balanced(&fs, &format!("after {op}, number {number}; run again:\n  {command}\n")).await;
                }
            }
            runner.close().await.expect("closed");
            assert_balanced(&fs, &format!("at the end; run again:\n  {command}\n")).await;
            drop(runner);
            fs.close().await.expect("closed");
            assert_clean(&rt, &device).await;
        });
    }
}
