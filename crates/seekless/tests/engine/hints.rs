//! Aim: the line that mkfs prints opens what mkfs has made, for every word of the table and every option of it. Method:
//! lines are drawn from the table; each is made on devices in memory that outlive the stack, mounted, given content,
//! and opened again with the line after mkfs. If that gives other content, or none, the test reports the line.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use seekless::device::trace::{TraceDevice, TraceEvent, TraceKind};
use seekless::device::{Buf, Data, Device, Memory, WriteFlags};
use seekless::fs::Fs;
use seekless::fs::client::Client;
use seekless::layer::codecs::Key;
use seekless::rng::Rng;
use seekless::rt::{Executor, HostProfile, Rt};
use seekless::stack::{
    BuildError, Constructor, Identity, Interface, LeafOpener, Param, ParamKind, Percent, Purpose, Role, Sharing, Stack,
    StackError, Usage, Value, WORDS, Word, WordSpec, quoted, quoted_if_need_be, quoted_path,
};
use seekless::testing::Replay;
use seekless::units::{KIB, MIB, Nanos, Sector};

/// Size of an image, and so of the volume on one: enough for any segment and any array of this test.
const IMAGE_BYTES: u64 = 48 * MIB;

/// Files that outlive the stacks on them. A key file holds one key, whatever its name.
#[derive(Default)]
struct Files(RefCell<BTreeMap<String, Device>>);

#[async_trait::async_trait(?Send)]
impl LeafOpener for Files {
    async fn device(&self, _: &Rt, word: &Word, purpose: Purpose) -> Result<Device, BuildError> {
        let path = word.text("path").unwrap().to_owned();
        let size = word.given("size").map(|_| word.bytes("size"));
        let mut files = self.0.borrow_mut();
        match (files.get(&path), purpose, size) {
            (Some(device), _, _) => Ok(device.clone()),
            (None, Purpose::Format, Some(size)) => {
                let device: Device = Rc::new(Memory::new(size));
                files.insert(path, device.clone());
                Ok(device)
            }
            _ => Err(BuildError::Missing { problem: format!("there is no file {path}") }),
        }
    }

    async fn file_system(&self, _: &Rt, word: &Word, _: Purpose, _: Sharing) -> Result<Fs, BuildError> {
        Err(BuildError::other(format!("no {word}")))
    }

    async fn secret(&self, _: &Word, _: &str) -> Result<Vec<u8>, BuildError> {
        Ok(Key::new([7; 32]).to_file().into_bytes())
    }
}

/// Names that must be quoted for a stack line, for a shell, or for both.
const NAMES: &[&str] = &["a", "b c", "d, e", "it's", "f \"g\"", "h = i", "j / k", "$HOME;`x`", "\\"];

/// Words from which mkfs makes nothing permanent: there is no line after it. Devices with zones are models.
fn keeps_nothing(spec: &WordSpec) -> bool {
    matches!(spec.constructor, Constructor::VolatileDevice(_) | Constructor::FileSystemLeaf)
        || matches!(spec.name, "smr" | "zoned")
}

/// A value that mkfs is likely to accept. The test skips refused ones; the coverage at its end shows that every option
/// was accepted occasionally.
fn likely(spec: &WordSpec, param: &Param, rng: &mut Rng) -> Value {
    match (spec.name, param.name) {
        ("file", "size") => Value::Bytes(IMAGE_BYTES),
        ("file", _) if matches!(param.kind, ParamKind::Path) => Value::Path(format!("{}-{{}}.img", rng.pick(NAMES))),
        // A faulty device cannot store anything reliably.
        ("fault", "delay") => Value::Duration(Nanos::from_millis(rng.below(3))),
        ("fault", _) if matches!(param.kind, ParamKind::Percent { .. }) => Value::Percent(Percent::new(0)),
        (_, "n") => Value::Integer(rng.between(2, 3)),
        ("lfs", "segment") => Value::Bytes((128 * KIB) << rng.below(3)),
        ("ffs", "block") => Value::Bytes((4 * KIB) << rng.below(3)),
        ("ffs", "fragment") => Value::Bytes(KIB << rng.below(2)),
        ("ffs", "inode") => Value::Bytes((2 * KIB) << rng.below(4)),
        ("ffs", "tracks" | "sectors") => Value::Integer(rng.between(8, 40)),
        ("vld", "block") => Value::Bytes((4 * KIB) << rng.below(2)),
        ("vld", "snapshots") => Value::Integer(rng.below(3)),
        // A complete array has no member to replace.
        (_, "replace") => Value::Integer(0),
        _ => match param.kind {
            ParamKind::Bytes { min, max } => {
                let least = min.max(4 * KIB).next_power_of_two();
                Value::Bytes((least << rng.below(5)).min(max))
            }
            ParamKind::Duration { min, max } => Value::Duration((min + Nanos::from_millis(rng.below(2000))).min(max)),
            ParamKind::Percent { max } => {
                Value::Percent(Percent::new(rng.below(20) as u32 % (max.hundredths / 100 + 1)))
            }
            ParamKind::Integer { min, max } => Value::Integer(rng.between(min, max.min(min.saturating_add(20)))),
            ParamKind::Text { .. } => Value::Text((*rng.pick(NAMES)).to_owned()),
            ParamKind::Path => Value::Path((*rng.pick(NAMES)).to_owned()),
            ParamKind::Switch => Value::Switch(rng.chance(1, 2)),
            ParamKind::Choice(_) | ParamKind::Name { .. } => {
                let words = param.kind.words();
                Value::Choice(words[rng.below(words.len() as u64) as usize])
            }
            ParamKind::Uuid => Value::Uuid(uuid::Uuid::from_u64_pair(rng.next_u64(), rng.next_u64())),
        },
    }
}

/// A stack on files, with `wanted` somewhere in it: layers, a file system or a device with its own format, devices.
fn line_with(wanted: &'static WordSpec, rng: &mut Rng) -> Stack {
    let of = |role: Role, rng: &mut Rng| -> &'static WordSpec {
        let all: Vec<_> = WORDS.iter().copied().filter(|spec| spec.role() == role && !keeps_nothing(spec)).collect();
        all[rng.below(all.len() as u64) as usize]
    };
    let mut specs: Vec<&'static WordSpec> = Vec::new();
    let wants = |role: Role| wanted.role() == role;
    let disk_at_top = wanted.name == "vld" && rng.chance(1, 3);
    if disk_at_top {
        specs.push(wanted);
    } else {
        if wants(Role::Layer) || rng.chance(1, 3) {
            specs.push(if wants(Role::Layer) { wanted } else { of(Role::Layer, rng) });
        }
        specs.push(if wants(Role::FileSystem) { wanted } else { of(Role::FileSystem, rng) });
    }
    let mut devices: Vec<&'static WordSpec> = (0..rng.below(2)).map(|_| of(Role::DeviceLayer, rng)).collect();
    if wants(Role::DeviceLayer) && !disk_at_top {
        devices.push(wanted);
    }
    rng.shuffle(&mut devices);
    specs.extend(devices);
    specs.push(of(Role::DeviceLeaf, rng));
    let mut words = Vec::new();
    for spec in specs {
        let is_leaf = spec.role() == Role::DeviceLeaf;
        let often = if spec.name == wanted.name { 2 } else { 8 };
        let mut items: Vec<String> = Vec::new();
        for param in spec.options {
            if is_leaf || rng.chance(1, often) {
                items.push(format!("{}={}", param.name, likely(spec, param, rng)));
            }
        }
        // Only files stored in one of the two ways have these tails, and they have no other option.
        if items.iter().any(|item| item.starts_with("tails=")) {
            let is_for_log = |item: &String| {
                ["chunk=", "write-back=", "dirty=", "cache=", "index="].iter().any(|name| item.starts_with(name))
            };
            items.retain(|item| !is_for_log(item));
            items.push("index=classic".to_owned());
        }
        rng.shuffle(&mut items);
        if let Some(argument) = spec.argument {
            items.insert(0, likely(spec, argument, rng).to_string());
        }
        let colon = if items.is_empty() { "" } else { ":" };
        words.push(format!("{}{colon}{}", spec.name, items.join(",")));
    }
    parse(&words.join(" / "))
}

fn parse(line: &str) -> Stack {
    Stack::parse(line).unwrap_or_else(|error| panic!("{error}"))
}

/// The UUID of the volume.
async fn uuid_of(rt: &Rt, stack: &Stack, files: &Files) -> Result<uuid::Uuid, StackError> {
    let probed = stack.open_below(rt, files, Purpose::Inspect).await?.probe().await?;
    Ok(probed.map_or(uuid::Uuid::nil(), |probed| probed.uuid))
}

/// Writes `content` through the stack, or reads it.
async fn use_it(rt: &Rt, stack: &Stack, files: &Files, write: Option<&[u8]>) -> Result<Vec<u8>, StackError> {
    const SECTORS: u64 = 16;
    if stack.is() == Interface::Device {
        let opened = stack.open(rt, files, Purpose::Use).await?;
        let device = opened.device().unwrap().clone();
        if let Some(content) = write {
            let written = device.write(Sector(SECTORS), Data::from_slice(content), WriteFlags::FUA).await;
            written.unwrap_or_else(|error| panic!("{stack}: {error}"));
        }
        let read = device.read(Sector(SECTORS), Buf::zeroed((SECTORS * 512) as usize)).await.unwrap();
        device.release().await.unwrap();
        return Ok(read.to_vec());
    }
    let mounted = stack.mount(rt, files, &Identity::new([1, 2, 3, 4]), Usage::default()).await?;
    let client = Client::new(mounted.fs.clone());
    if let Some(content) = write {
        client.write_file(b"f", content).await.unwrap_or_else(|error| panic!("{stack}: {error}"));
    }
    let read = client.read_file(b"f").await.unwrap_or_default();
    drop(client);
    mounted.fs.close().await.unwrap();
    Ok(read)
}

/// Makes, fills, and opens again with the line after mkfs, which is returned; `None` where mkfs or the mount of the
/// line itself refuses it.
///
/// # Errors
/// The result of the line after mkfs, if it is wrong.
fn check_line(stack: &Stack, rng: &mut Rng) -> Result<Option<Stack>, String> {
    let executor = Executor::simulated(rng.next_u64(), HostProfile::NONE);
    let rt = executor.rt().clone();
    let mut content = vec![0; 16 * 512];
    rng.fill(&mut content);
    let run = async {
        let files = Files::default();
        {
            // What keeps nothing is left out of the line that makes it, and used with what was made.
            let made = stack.for_mkfs();
            let Ok(opened) = made.open(&rt, &files, Purpose::Format).await else { return Ok(None) };
            if opened.mkfs(&Identity::new([1, 2, 3, 4])).await.is_err() {
                return Ok(None);
            }
        }
        // mkfs makes no layers; those that refuse the line open nothing. With ro=on nothing can be written, and on a fork nothing is kept.
        let writable = stack.forgets().is_none()
            && !stack.words().iter().any(|word| word.spec().param("ro").is_some() && word.switch("ro"));
        if use_it(&rt, stack, &files, writable.then_some(&content)).await.is_err() {
            return Ok(None);
        }
        let next = stack.after_mkfs();
        let told = |error: StackError| format!("after mkfs of {stack}\n{error}");
        let uuid = uuid_of(&rt, stack, &files).await.map_err(told)?;
        if uuid_of(&rt, &next, &files).await.map_err(told)? != uuid {
            return Err(format!("another volume:\n{stack}\n{next}"));
        }
        let read = use_it(&rt, &next, &files, None).await.map_err(told)?;
        match !writable || read == content {
            true => Ok(Some(next)),
            false => Err(format!("another content:\n{stack}\n{next}")),
        }
    };
    executor.block_on(run).unwrap()
}

#[test]
fn what_mkfs_prints_opens_what_it_made() {
    const TEST: &str = "--test engine hints::what_mkfs_prints_opens_what_it_made";
    #[allow(clippy::disallowed_methods)]
    let replay = Replay::read("seekless", TEST, |name| std::env::var(name).ok()).unwrap();
    let mut made: BTreeSet<String> = BTreeSet::new();
    for seed in replay.seeds(1..LINES_OF_EACH + 1) {
        for (number, spec) in WORDS.iter().copied().filter(|spec| !keeps_nothing(spec)).enumerate() {
            let mut rng = Rng::new(seed << 16 | number as u64);
            let stack = line_with(spec, &mut rng);
            let next = match check_line(&stack, &mut rng) {
                Ok(Some(next)) => next,
                Ok(None) => continue,
                Err(problem) => panic!("{problem}\nagain: {}", replay.command(seed, None, None, None)),
            };
            made.extend(options_of(&stack));
            assert!(options_of(&next).is_subset(&options_of(&stack)), "{stack}\n{next}");
        }
    }
    let wanted = WORDS
        .iter()
        .filter(|spec| !keeps_nothing(spec))
        .flat_map(|spec| spec.params().map(|param| format!("{}:{}", spec.name, param.name)));
    let never: Vec<String> = wanted.filter(|name| !made.contains(name)).collect();
    // mkfs refuses this one: a new disk has no snapshots.
    assert!(replay.seed.is_some() || never == ["vld:snapshot"], "never in a line that mkfs took: {never:?}");
    assert!(!made.contains("vld:snapshot"), "mkfs made a disk as it was at a snapshot");
}

/// Lines with each word in them.
const LINES_OF_EACH: u64 = 64;

/// The options of a line, without the values: `lfs:segment`.
fn options_of(stack: &Stack) -> BTreeSet<String> {
    let options = |word: &Word| -> Vec<String> {
        let given = word.spec().params().filter(|param| word.given(param.name).is_some());
        given.map(|param| format!("{}:{}", word.name(), param.name)).collect()
    };
    stack.words().iter().flat_map(options).collect()
}

/// By name: the result of each kind of option.
#[test]
fn only_what_mkfs_alone_needs_is_left_out() {
    for (made, next) in [
        ("lfs / remap:chunk=1MiB,seed=7 / file:rm.img", "lfs / remap:chunk=1MiB,seed=7 / file:rm.img"),
        (
            "lfs:segment=1MiB,reserve=9%,label=x,cache=64MiB / file:a,size=1GiB,direct",
            "lfs:cache=64MiB / file:a,direct=on",
        ),
        ("vlfs:inode-bytes=64KiB,reserve=9% / permute:size=1GiB / file:a", "vlfs / permute:size=1GiB / file:a"),
        ("vld:snapshots=8,reserve=30%,commit=each / file:a,size=1GiB", "vld:commit=each / file:a"),
        ("lfs / raid5:n=4,stripe=16KiB / file:a-{}", "lfs / raid5:n=4 / file:a-{}"),
        (
            "lfs / raid5:n=4,stripe=16KiB,metadata=off / file:a-{}",
            "lfs / raid5:n=4,stripe=16KiB,metadata=off / file:a-{}",
        ),
        ("lfs / raid0:n=4,stripe=16KiB / file:a-{}", "lfs / raid0:n=4,stripe=16KiB / file:a-{}"),
        (
            "encrypt:\"k, 1\",chunk=16KiB / lfs / file:\"a, b\",size=1GiB",
            "encrypt:\"k, 1\",chunk=16KiB / lfs / file:\"a, b\"",
        ),
    ] {
        assert_eq!(parse(made).after_mkfs().to_string(), next);
        assert_eq!(parse(next).after_mkfs(), parse(next), "once more changes nothing");
    }
}

/// A missing file gets a hint with the command that makes it, for the given stack.
#[test]
fn what_is_missing_is_made_with_the_same_line() {
    let executor = Executor::simulated(1, HostProfile::NONE);
    for (line, purpose, hint) in [
        ("lfs / file:a", Purpose::Use, "make it with: seekless mkfs 'lfs / file:a,size=1GiB'"),
        (
            "zstd / vlfs / remap:seed=7 / file:\"it's, b\"",
            Purpose::Use,
            r#"make it with: seekless mkfs 'zstd / vlfs / remap:seed=7 / file:"it'\''s, b",size=1GiB'"#,
        ),
        ("ffs / fork / file:a", Purpose::Use, "make it with: seekless mkfs 'ffs / file:a,size=1GiB'"),
        (
            "fork / vld:snapshot=one,commit=each / fork / file:a",
            Purpose::Use,
            "make it with: seekless mkfs 'vld:commit=each / file:a,size=1GiB'",
        ),
        ("lfs / file:a", Purpose::Format, "to make it, give its size: file:a,size=1GiB"),
        ("lfs / raid1 / file:\"a, {}\"", Purpose::Format, "to make it, give its size: file:\"a, {}\",size=1GiB"),
        ("file:a b", Purpose::Use, "make it with: truncate -s 1GiB 'a b'"),
        ("ffs / file:/dev/sdb5", Purpose::Use, "to list devices: lsblk --paths"),
        ("file:/dev/shm/a", Purpose::Use, "make it with: truncate -s 1GiB /dev/shm/a"),
    ] {
        let (stack, files) = (parse(line), Files::default());
        let error = executor.block_on(stack.open(executor.rt(), &files, purpose)).unwrap().err().unwrap();
        assert_eq!(error.hint.as_deref(), Some(hint));
    }
}

/// With `discard=off` mkfs frees no space. Method: a leaf that counts.
#[test]
fn mkfs_keeps_a_preallocated_image() {
    struct One(Device);

    #[async_trait::async_trait(?Send)]
    impl LeafOpener for One {
        async fn device(&self, _: &Rt, _: &Word, _: Purpose) -> Result<Device, BuildError> {
            Ok(self.0.clone())
        }

        async fn file_system(&self, _: &Rt, word: &Word, _: Purpose, _: Sharing) -> Result<Fs, BuildError> {
            Err(BuildError::other(format!("no {word}")))
        }
    }

    for (line, discards) in [
        ("lfs / file:a", true),
        ("lfs:discard=off / file:a", false),
        ("vlfs / file:a", true),
        ("vlfs:discard=off / file:a", false),
        ("vld:discard=off / file:a", false),
    ] {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let rt = executor.rt().clone();
        let events: Rc<RefCell<Vec<TraceEvent>>> = Rc::default();
        let traced = TraceDevice::new(&rt, Rc::new(Memory::new(IMAGE_BYTES)), events.clone());
        let run = async {
            let (stack, leaves) = (parse(line), One(traced));
            let opened = stack.open(&rt, &leaves, Purpose::Format).await.unwrap();
            opened.mkfs(&Identity::new([1, 2, 3, 4])).await.unwrap();
        };
        executor.block_on(run).unwrap();
        let discarded = events.borrow().iter().any(|event| event.kind == TraceKind::Discard);
        assert_eq!(discarded, discards, "{line}");
    }
}

/// A quoted text comes out of a shell unchanged: no quote mark is open and none is lost.
#[test]
fn quoting_is_for_a_shell() {
    for (text, shown) in [("a b", "'a b'"), ("it's", r"'it'\''s'"), ("", "''")] {
        assert_eq!(quoted(text), shown);
        assert_eq!(quoted_if_need_be(text), shown);
    }
    assert_eq!(quoted_if_need_be("/a/b-1.img"), "/a/b-1.img");
    assert_eq!(quoted_if_need_be("~/a"), "'~/a'");
    // A path never is an option.
    for (path, shown) in [("-a.img", "./-a.img"), ("- a", "'./- a'"), ("a/-b", "a/-b"), ("a b", "'a b'"), ("", "''")] {
        assert_eq!(quoted_path(path.as_ref()), shown);
    }
}
