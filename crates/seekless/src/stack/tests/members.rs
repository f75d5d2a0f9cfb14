//! Aim: file systems on arrays leave them as they should be, so that a member that is lost or comes back as it was
//! earlier takes nothing with it. Method: each file system on a mirror and on parity, its orderly ends, and members that
//! are missing or copies from before.

use std::rc::Rc;

use async_trait::async_trait;

use super::*;
use crate::device::{Image, Memory};
use crate::fs::client::Client;
use crate::volume::raid;

const BYTES: u64 = 24 * MIB;

/// `file:0` and so on; some may be missing.
struct Members(Vec<Rc<Memory>>, std::cell::Cell<Option<usize>>);

#[async_trait(?Send)]
impl LeafOpener for Members {
    async fn device(&self, _: &Rt, word: &Word, _: Purpose) -> Result<Device, BuildError> {
        let number: usize = word.text("path").unwrap_or_default().parse().expect("a number");
        match self.1.get() == Some(number) {
            true => Err(BuildError::other("it is missing")),
            false => Ok(self.0[number].clone()),
        }
    }

    async fn file_system(&self, _: &Rt, word: &Word, _: Purpose, _: Sharing) -> Result<crate::fs::Fs, BuildError> {
        Err(BuildError::other(format!("no {word}")))
    }

    fn random(&self) -> Option<[u64; 4]> {
        Some([1, 2, 3, 4])
    }
}

impl Members {
    fn new(count: usize) -> Members {
        Members((0..count).map(|_| Rc::new(Memory::new(BYTES))).collect(), Default::default())
    }

    fn images(&self) -> Vec<Image> {
        self.0.iter().map(|member| member.image()).collect()
    }

    fn set(&self, images: &[Image]) {
        self.0.iter().zip(images).for_each(|(member, image)| member.set_image(image.clone()));
    }

    /// Regions with a bit in the bitmap.
    async fn dirty(&self) -> u64 {
        let given: Vec<Option<Device>> = self.0.iter().map(|member| Some(member.clone() as Device)).collect();
        raid::info(&given).await.unwrap().expect("there is an array").dirty_regions
    }
}

/// The superblocks and the bitmap of a member.
fn beginning(image: &Image) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 20];
    image.read(Sector(0), &mut bytes);
    bytes
}

const FILE_SYSTEMS: [&str; 7] =
    ["lfs", "vlfs", "ffs", "ffs:metadata=softdep", "ffs:metadata=async", "lfs / vld", "ffs / vld"];

/// Runs `body` for each file system on each kind of array, with the number of members.
fn on_arrays(body: impl AsyncFn(&Rt, &str, &str, usize)) {
    for fs in FILE_SYSTEMS {
        for (array, members) in [("raid1:n=2", 2), ("raid5:n=3", 3)] {
            let executor = Executor::simulated(1, HostProfile::NONE);
            let rt = executor.rt().clone();
            executor.block_on(body(&rt, fs, array, members)).unwrap();
        }
    }
}

async fn put(rt: &Rt, leaves: &Members, stack: &Stack, text: &[u8]) {
    let mounted = stack.mount(rt, leaves, &identity(), Usage::default()).await.unwrap();
    let client = Client::new(mounted.fs.clone());
    for name in ["a", "b", "c"] {
        client.write_file(name.as_bytes(), &text.repeat(5000)).await.unwrap();
    }
    mounted.fs.close().await.unwrap();
}

async fn check(rt: &Rt, leaves: &Members, stack: &Stack, text: &[u8], name: &str) {
    let mounted = stack.mount(rt, leaves, &identity(), Usage::default()).await;
    let mounted = mounted.unwrap_or_else(|error| panic!("{name}: {error}"));
    let client = Client::new(mounted.fs.clone());
    for file in ["a", "b", "c"] {
        let read = client.read_file(file.as_bytes()).await.unwrap_or_else(|error| panic!("{name}: {file}: {error}"));
        assert!(read == text.repeat(5000), "{name}: {file}");
    }
    mounted.fs.close().await.unwrap();
}

/// After an orderly end, any one member can be lost: no row is in doubt.
#[test]
fn orderly_ends_leave_no_bit() {
    on_arrays(async |rt, fs, array, members| {
        let leaves = Members::new(members);
        let (name, stack) = (format!("{fs} / {array}"), parse(&format!("{fs} / {array} / file:{{}}")));
        stack.open(rt, &leaves, Purpose::Format).await.unwrap().mkfs(&identity()).await.unwrap();
        assert_eq!(leaves.dirty().await, 0, "{name}: mkfs");
        put(rt, &leaves, &stack, b"one").await;
        assert_eq!(leaves.dirty().await, 0, "{name}: close");
        let opened = stack.open(rt, &leaves, Purpose::Use).await.unwrap();
        opened.fsck(CheckOptions { repair: true, data: true, ..CheckOptions::default() }).await.unwrap();
        drop(opened);
        assert_eq!(leaves.dirty().await, 0, "{name}: fsck");
        let degraded = parse(&format!("{fs} / {array},degraded / file:{{}}"));
        let images = leaves.images();
        for slot in 0..members {
            leaves.set(&images);
            leaves.1.set(Some(slot));
            check(rt, &leaves, &degraded, b"one", &format!("{name} without {slot}")).await;
        }
    });
}

/// A copy of a member from an earlier end is refused with what to do, and what has been stored since is there without it.
#[test]
fn earlier_copies_of_members_are_refused() {
    on_arrays(async |rt, fs, array, members| {
        let leaves = Members::new(members);
        let (name, stack) = (format!("{fs} / {array}"), parse(&format!("{fs} / {array} / file:{{}}")));
        stack.open(rt, &leaves, Purpose::Format).await.unwrap().mkfs(&identity()).await.unwrap();
        let mut earlier = vec![leaves.images()];
        for text in [b"one", b"two"] {
            put(rt, &leaves, &stack, text).await;
            earlier.push(leaves.images());
        }
        let now = earlier.pop().unwrap();
        for (number, old) in earlier.iter().enumerate() {
            for (slot, copy) in old.iter().enumerate() {
                let name = format!("{name}: member {slot} from {number}");
                let mut images = now.clone();
                images[slot] = copy.clone();
                leaves.set(&images);
                for usage in [Usage::default(), Usage { read_only: true, ..Usage::default() }] {
                    let refused = stack.mount(rt, &leaves, &identity(), usage).await.err();
                    let said = refused.map(|error| error.to_string()).unwrap_or_default();
                    assert!(said.contains(&format!("member {slot} is missing: it is out of date")), "{name}: {said}");
                    assert!(said.contains(&format!("degraded=on goes on without it; replace={slot} fills")), "{said}");
                }
                let now = leaves.images();
                let is_kept = |(one, other)| beginning(one) == beginning(other);
                assert!(now.iter().zip(&images).all(is_kept), "{name}: what is refused is not changed");
                let line = |option: String| parse(&format!("{fs} / {array},{option} / file:{{}}"));
                check(rt, &leaves, &line("degraded".into()), b"two", &name).await;
                leaves.set(&images);
                check(rt, &leaves, &line(format!("replace={slot}")), b"two", &name).await;
            }
        }
    });
}

/// Aim: a check of an array alone gives up no member that is only unplugged, unless the line says so, and none in use: recorded as
/// failed, it would be lost to the array, and the next check, with the other one away, would leave two halves. Method: checks
/// with each member away, and as it was earlier.
#[test]
fn a_check_gives_up_no_member_unasked() {
    for (array, count) in [("raid1:n=2", 2), ("raid5:n=3", 3)] {
        for away in 0..count {
            let executor = Executor::simulated(1, HostProfile::NONE);
            let rt = executor.rt().clone();
            let run = async {
                let leaves = Members::new(count);
                let check = async |options: &str, repair: bool| {
                    let stack = parse(&format!("{array}{options} / file:{{}}"));
                    let purpose = if repair { Purpose::Use } else { Purpose::Inspect };
                    let options = CheckOptions { repair, ..CheckOptions::default() };
                    stack.open_below(&rt, &leaves, purpose).await?.fsck(options).await
                };
                let name = format!("{array} without {away}");
                let line = parse(&format!("{array} / file:{{}}"));
                line.open(&rt, &leaves, Purpose::Format).await.unwrap().mkfs(&identity()).await.unwrap();
                let images = leaves.images();
                let is_kept = || leaves.images().iter().zip(&images).all(|(one, old)| beginning(one) == beginning(old));
                leaves.1.set(Some(away));
                let refused = check("", true).await.err().map(|error| error.to_string()).unwrap_or_default();
                assert!(refused.contains("it is missing") && refused.contains("degraded=on"), "{name}: {refused}");
                assert!(refused.contains("file:{}"), "{name}: {refused}");
                let looked = check("", false).await.unwrap_or_else(|error| panic!("{name}: {error}"));
                assert!(looked.notes.iter().any(|note| note.contains("it is missing")), "{name}: {:?}", looked.notes);
                assert!(is_kept(), "{name}: nothing is written");
                leaves.1.set(None);
                let checked = check("", true).await.unwrap_or_else(|error| panic!("{name}: {error}"));
                assert_eq!((checked.verdict(), checked.notes), (Verdict::Clean, vec![]), "{name}: all are there again");
                // A member as it was before that is no better.
                let now = leaves.images();
                leaves.0[away].set_image(images[away].clone());
                let refused = check("", true).await.err().map(|error| error.to_string()).unwrap_or_default();
                let says = [format!("member {away} is missing: it is out of date"), format!("replace={away} fills")];
                assert!(says.iter().all(|what| refused.contains(what)), "{name}: {refused}");
                leaves.set(&now);
                leaves.1.set(Some(away));
                let checked = check(",degraded", true).await.unwrap_or_else(|error| panic!("{name}: {error}"));
                let says = ["it is missing", &format!("member {away} is missing or has failed")];
                let is_said = |what: &&str| checked.notes.iter().any(|note| note.contains(*what));
                assert!(says.iter().all(is_said), "{name}: {:?}", checked.notes);
            };
            executor.block_on(run).unwrap();
        }
    }
}

/// A member of another array is refused with what to do, and not overwritten before the line says so.
#[test]
fn a_member_of_another_array_is_overwritten_on_demand() {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt().clone();
    let run = async {
        let line = |options: &str| parse(&format!("lfs / raid5:n=3{options} / file:{{}}"));
        let [ours, other] = [Members::new(3), Members::new(3)];
        for (members, text) in [(&ours, b"ours"), (&other, b"else")] {
            line("").open(&rt, members, Purpose::Format).await.unwrap().mkfs(&identity()).await.unwrap();
            put(&rt, members, &line(""), text).await;
            rt.sleep(Nanos::from_secs(1)).await;
        }
        for slot in 0..3 {
            let mut images = ours.images();
            images[slot] = other.images()[slot].clone();
            let mixed = Members::new(3);
            mixed.set(&images);
            for options in ["", ",degraded", &format!(",replace={slot}")] {
                let error = line(options).mount(&rt, &mixed, &identity(), Usage::default()).await.err().unwrap();
                let hint = error.hint.clone().unwrap_or_default();
                assert!(error.to_string().contains("belongs to another array"), "{options}: {error}");
                assert!(hint.contains("replace=N,overwrite"), "{options}: {hint}");
            }
            check(&rt, &mixed, &line(&format!(",replace={slot},overwrite")), b"ours", "overwritten").await;
            // A member that belongs here is not given up for one that does not.
            mixed.set(&images);
            let wrong = (slot + 1) % 3;
            let options = format!(",replace={wrong},overwrite");
            line(&options).mount(&rt, &mixed, &identity(), Usage::default()).await.err().unwrap();
            assert!(mixed.images().iter().zip(&images).all(|(one, other)| beginning(one) == beginning(other)));
        }
    };
    executor.block_on(run).unwrap();
}

/// A member in use takes the place of no other one, whatever the line says. Method: it is given in the place of one that is gone,
/// before and after that is recorded, with a new device in its own place.
#[test]
fn a_member_in_use_is_not_overwritten() {
    for (array, is_recorded) in [("raid5:n=3", false), ("raid5:n=3", true), ("raid1:n=3", false), ("raid1:n=3", true)] {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let rt = executor.rt().clone();
        let run = async {
            let members = Members::new(3);
            let line = |options: &str| parse(&format!("lfs / {array}{options} / file:{{}}"));
            line("").open(&rt, &members, Purpose::Format).await.unwrap().mkfs(&identity()).await.unwrap();
            put(&rt, &members, &line(""), b"ours").await;
            if is_recorded {
                members.1.set(Some(1));
                put(&rt, &members, &line(",degraded"), b"ours").await;
            }
            let images = members.images();
            let mixed = Members::new(3);
            mixed.0[0].set_image(images[0].clone());
            mixed.0[1].set_image(images[2].clone());
            let before = mixed.images();
            for options in [",replace=1", ",replace=1,overwrite", ",degraded,replace=1,overwrite"] {
                let error = line(options).mount(&rt, &mixed, &identity(), Usage::default()).await.err().unwrap();
                let said = format!("{array}, {options}: {error}, {:?}", error.hint);
                assert!(error.to_string().contains("is member 2 of this array"), "{said}");
                assert!(!error.hint.clone().unwrap_or_default().contains("overwrite"), "{said}");
                let data = |image: &Image| beginning(image)[16384..].to_vec();
                assert!(mixed.images().iter().zip(&before).all(|(now, before)| data(now) == data(before)), "{said}");
            }
            let mut each = mixed.images();
            each.swap(1, 2);
            mixed.set(&each);
            check(&rt, &mixed, &line(",replace=1"), b"ours", "each in its place").await;
        };
        executor.block_on(run).unwrap();
    }
}

/// Aim: `replace` with the number of a member that holds everything changes nothing, and the mount says so; the number of the one that
/// is missing fills it, and says nothing. Method: the array complete, and without member 1, on which each number is given.
#[test]
fn a_replacement_without_effect_is_said() {
    for (array, count) in [("raid1:n=2", 2), ("raid5:n=3", 3)] {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let rt = executor.rt().clone();
        let run = async {
            let members = Members::new(count);
            let line = |options: &str| parse(&format!("lfs / {array}{options} / file:{{}}"));
            line("").open(&rt, &members, Purpose::Format).await.unwrap().mkfs(&identity()).await.unwrap();
            put(&rt, &members, &line(""), b"ours").await;
            let said = async |options: &str, read_only: bool| {
                let usage = Usage { read_only, ..Usage::default() };
                let mounted = line(options).mount(&rt, &members, &identity(), usage).await.unwrap();
                let warnings: Vec<String> = mounted.parts.iter().flat_map(crate::stack::Part::warnings).collect();
                let client = Client::new(mounted.fs.clone());
                assert!(client.read_file(b"a").await.unwrap() == b"ours".repeat(5000), "{array}{options}");
                mounted.fs.close().await.unwrap();
                warnings.join("\n")
            };
            assert_eq!(said("", false).await, "");
            let complete = said(",replace=0", false).await;
            assert!(complete.contains("replace=0 has no effect: member 0 belongs to the array"), "{complete}");
            members.1.set(Some(1));
            let wrong = said(",degraded,replace=0", false).await;
            assert!(wrong.contains("is in use; the one without data is member 1: replace=1"), "{wrong}");
            members.1.set(None);
            let fresh = Members::new(1).images().remove(0);
            members.0[1].set_image(fresh);
            let looked = said(",degraded,replace=1", true).await;
            assert!(looked.contains("replace=1 has no effect: nothing is written"), "{looked}");
            let filled = said(",replace=1", false).await;
            assert!(!filled.contains("no effect"), "{filled}");
        };
        executor.block_on(run).unwrap();
    }
}

/// Aim: of two halves of a mirror that were each used alone, the one that the line says is kept, and not without being told
/// that the other is overwritten. Method: both are used alone; then they are mounted together, with each member as the new one.
#[test]
fn one_of_two_halves_is_kept() {
    for kept in 0..2 {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let rt = executor.rt().clone();
        let run = async {
            let members = Members::new(2);
            let line = |options: &str| parse(&format!("lfs / raid1:n=2{options} / file:{{}}"));
            let mount = async |options: &str| line(options).mount(&rt, &members, &identity(), Usage::default()).await;
            line("").open(&rt, &members, Purpose::Format).await.unwrap().mkfs(&identity()).await.unwrap();
            for alone in 0..2 {
                members.1.set(Some(1 - alone));
                let mounted = mount(",degraded").await.unwrap();
                let client = Client::new(mounted.fs.clone());
                client.write_file(format!("/of-{alone}").as_bytes(), b"hello").await.unwrap();
                mounted.fs.close().await.unwrap();
            }
            members.1.set(None);
            let new = 1 - kept;
            for options in ["", ",degraded", &format!(",replace={new}")] {
                let error = mount(options).await.err().unwrap();
                let hint = error.hint.clone().unwrap_or_default();
                assert!(error.to_string().contains("without the other"), "{options}: {error}");
                assert!(hint.contains(&format!("replace={new},overwrite")), "{options}: {hint}");
            }
            let mounted = mount(&format!(",replace={new},overwrite")).await.unwrap();
            rt.sleep(Nanos::from_secs(1)).await;
            mounted.fs.close().await.unwrap();
            // The new one alone has it all.
            members.1.set(Some(kept));
            let mounted = mount(",degraded").await.unwrap();
            let client = Client::new(mounted.fs.clone());
            assert_eq!(client.read_file(format!("/of-{kept}").as_bytes()).await.unwrap(), b"hello");
            assert!(client.read_file(format!("/of-{new}").as_bytes()).await.is_err());
            mounted.fs.close().await.unwrap();
        };
        executor.block_on(run).unwrap();
    }
}

/// No command for snapshots is proposed where a disk is one of several, whose names are in no line.
#[test]
fn members_have_no_commands_for_room() {
    let hint = |line: &str| parse(line).how_to_make_room();
    assert!(hint("lfs / vld / file:a").is_some_and(|hint| hint.contains("snapshot list 'vld / file:a'")));
    assert!(hint("lfs / vld / raid1 / file:a{}").is_some_and(|hint| hint.contains("snapshot list 'vld / raid1 ")));
    assert_eq!(hint("lfs / raid1 / vld / file:a{}"), None);
}
