mod drives;
mod halves;
mod members;
mod passing;
mod signature;

use std::rc::Rc;

use super::value::nearest;
use super::*;
use crate::device::{Buf, Device, WriteFlags};
use crate::fs::FsError;
use crate::rng::Rng;
use crate::rt::{Executor, HostProfile, Rt};
use crate::units::{GIB, KIB, MIB, Sector};

fn parse(line: &str) -> Stack {
    Stack::parse(line).unwrap_or_else(|error| panic!("{error}"))
}

/// Valid lines are parsed correctly. Method: the canonical text of each.
#[test]
fn good_lines_say_what_they_should() {
    let cases = [
        ("memfs", "memfs"),
        ("wrap / memfs", "wrap / memfs"),
        ("  wrap   /\tmemfs ", "wrap / memfs"),
        ("lfs / file:a.img", "lfs / file:a.img"),
        ("lfs:segment=524288,cleaner=greedy / file:a.img", "lfs:segment=512KiB,cleaner=greedy / file:a.img"),
        ("lfs:segment=0.5MiB / memory:64M", "lfs:segment=512KiB / memory:64MiB"),
        ("lfs:discard / memory:64MiB", "lfs:discard=on / memory:64MiB"),
        ("lfs:checkpoint=1500ms,reserve=12.50% / memory:1GiB", "lfs:checkpoint=1500ms,reserve=12.5% / memory:1GiB"),
        ("lfs : label = x / memory:64MiB", ""),
        ("lfs: label = my disk , discard=off / memory:64MiB", "lfs:label=my disk,discard=off / memory:64MiB"),
        (r#"lfs:label="a, \"b\" \\ / c" / memory:64MiB"#, r#"lfs:label="a, \"b\" \\ / c" / memory:64MiB"#),
        ("memory:size=64MiB", "memory:64MiB"),
        ("file:a.img,size=1GiB,direct", "file:a.img,size=1GiB,direct=on"),
        ("file:size=1GiB", r#"file:"size=1GiB""#),
        (r#"file:"a,b.img",direct"#, r#"file:"a,b.img",direct=on"#),
        (r#"file: "a,b.img" , direct"#, r#"file:"a,b.img",direct=on"#),
        ("hostdir:/srv/my data", "hostdir:/srv/my data"),
        ("hostdir:/", "hostdir:/"),
        ("wrap / hostdir:/", "wrap / hostdir:/"),
        ("hostdir:/a / b", ""),
        (r#"hostdir:"/a / b""#, r#"hostdir:"/a / b""#),
        ("hostdir:a/b/ c", "hostdir:a/b/ c"),
        ("hostdir:/sr\u{f6}/\u{1F600}", "hostdir:/sr\u{f6}/\u{1F600}"),
    ];
    for (line, canonical) in cases {
        match Stack::parse(line) {
            Ok(stack) => assert_eq!(stack.to_string(), canonical, "{line}"),
            Err(error) => assert_eq!("", canonical, "{line}\n{error}"),
        }
    }
}

/// A line that cannot be written to says so by itself.
#[test]
fn lines_may_be_read_only() {
    let says = |line: &str| parse(line).says_read_only();
    assert!(says("lfs / vld:snapshot=monday / file:a.img") && !says("lfs / vld / file:a.img"));
    assert!(says("lfs / vld:snapshot=monday / fork / file:a.img") && says("lfs:ro=on / fork / file:a.img"));
    assert!(!says("lfs / fork / vld:snapshot=monday / file:a.img"), "what is written over it is kept in memory");
}

/// Every kind of mistake gives a text that points at it. Method: the whole text, as a user sees it.
#[test]
fn errors_point_at_the_mistake() {
    let words: Vec<&str> = WORDS.iter().map(|spec| spec.name).collect();
    let no_quux = format!("there is no word `quux`\n  quux / file:a\n  ^^^^\nwords: {}", words.join(", "));
    let cases = [
        ("", "the stack is empty\n  \n  ^\nfor example: wrap / memfs"),
        ("lsf / file:a", "there is no word `lsf`; did you mean `lfs`?\n  lsf / file:a\n  ^^^"),
        ("wrap / zfs:x / file:a", "there is no word `zfs`; did you mean `lfs`?\n  wrap / zfs:x / file:a\n         ^^^"),
        ("quux / file:a", &no_quux),
        (
            "wrap/memfs",
            "there is no word `wrap/memfs`\n  wrap/memfs\n  ^^^^^^^^^^\nwords are separated by a space, a slash and a \
             space: wrap / memfs",
        ),
        (
            "wrap /memfs",
            "a space, a slash and a space are expected before the next word\n  wrap /memfs\n       ^\nwrite: upper \
             / lower",
        ),
        (
            "wrap /",
            "no word follows the last slash\n  wrap /\n       ^\nname what is below it, for example file:a.img, or leave \
             the slash out",
        ),
        (
            "/srv/data",
            "`/srv/data` is a path, not a word\n  /srv/data\n  ^^^^^^^^^\nwrite hostdir:PATH for a directory, file:PATH for \
             an image file or a block device",
        ),
        ("/ memfs", "there is no word before this slash\n  / memfs\n  ^\na stack begins with its top word"),
        (
            "lfs:segmnt=1MiB / memory:1MiB",
            "there is no option of `lfs` called `segmnt`; did you mean `segment`?\n  lfs:segmnt=1MiB / memory:1MiB\n      \
             ^^^^^^\noptions of `lfs`: segment, reserve, label, uuid, cleaner, checkpoint, write-back, cache, dirty, \
             discard, discard-after, indirect, overlap, readahead, read-around, ro",
        ),
        (
            "lfs:segment=512 KiBi / memory:1MiB",
            "`segment` of `lfs`: there is no unit `KiBi`; one of: B, KiB, MiB, GiB, TiB, kB, MB, GB, TB\n  lfs:segment=512 KiBi / \
             memory:1MiB\n              ^^^^^^^^\nexpected a size such as 512KiB",
        ),
        (
            "lfs:segment=1KiB / memory:1MiB",
            "`segment` of `lfs`: 1KiB is too small; the minimum is 128KiB\n  lfs:segment=1KiB / memory:1MiB\n              ^^^^",
        ),
        (
            "lfs:checkpoint=30 / memory:1MiB",
            "`checkpoint` of `lfs`: the unit is missing; one of: ns, us, ms, s, min, h\n  lfs:checkpoint=30 / memory:1MiB\n   \
             \u{20}             ^^\nexpected a time such as 30s or 5ms",
        ),
        (
            "lfs:cleaner=gredy / memory:1MiB",
            "`cleaner` of `lfs`: there is no `gredy`; did you mean `greedy`?\n  lfs:cleaner=gredy / memory:1MiB\n       \
             \u{20}      ^^^^^\none of: fifo, greedy, d-choices, cost-benefit, cost-benefit-root, cost-benefit-youngest, age-sort, \
             age-sort-root, age-sort-youngest, age-sort-greedy, bsd",
        ),
        (
            "lfs:discard=yes / memory:1MiB",
            "`discard` of `lfs`: `yes` is neither `on` nor `off`\n  lfs:discard=yes / memory:1MiB\n              ^^^\nuse on \
             or off",
        ),
        (
            "lfs:reserve=51% / memory:1MiB",
            "`reserve` of `lfs`: 51% is too large; the maximum is 50%\n  lfs:reserve=51% / memory:1MiB\n              ^^^",
        ),
        ("lfs:label / memory:1MiB", "`label` needs a value\n  lfs:label / memory:1MiB\n      ^^^^^\nwrite: label=TEXT"),
        (
            "lfs:label=a,label=b / memory:1MiB",
            "`label` is given twice\n  lfs:label=a,label=b / memory:1MiB\n              ^^^^^^^",
        ),
        (
            "lfs: / memory:1MiB",
            "something is missing here\n  lfs: / memory:1MiB\n      ^\na colon or a comma is followed by a value or key=value",
        ),
        ("memory", "`memory` needs the size of the device\n  memory\n  ^^^^^^\nwrite: memory:SIZE"),
        (
            "file:a,b.img",
            "there is no option of `file` called `b.img`\n  file:a,b.img\n         ^^^^^\noptions of `file`: path, size, \
             direct\nif the comma belongs to the path, put the path in quotes",
        ),
        (
            r#"file:a"b"#,
            "a value with a quote mark in it is quoted as a whole\n  file:a\"b\n       ^^\nfor example \"a \\\"quoted\\\" word\"",
        ),
        (r#"file:"ab"#, "the closing quote mark is missing\n  file:\"ab\n       ^^^"),
        (
            r#"file:"a"b"#,
            "a quoted value is followed by a comma, or by a space, a slash and a space\n  file:\"a\"b\n          ^",
        ),
        ("memfs:x=1", "there is no option of `memfs` called `x`\n  memfs:x=1\n        ^\n`memfs` has no options"),
        (
            "lfs",
            "`lfs` needs a block device below it, but there is nothing\n  lfs\n  ^^^\nadd what is below, for example: lfs / \
             file:a.img",
        ),
        (
            "memfs / memory:1MiB",
            "nothing can be below `memfs`: it is a file system without a device\n  memfs / memory:1MiB\n          ^^^^^^",
        ),
        (
            "wrap / memory:1MiB",
            "`wrap` needs a file system below it, but `memory` is a block device\n  wrap / memory:1MiB\n         ^^^^^^\nput a file \
             system between them: wrap / lfs / memory",
        ),
        (
            "lfs / hostdir:/srv",
            "`lfs` needs a block device below it, but `hostdir` is a file system without a device\n  lfs / hostdir:/srv\n        ^^^^^^^\n\
             for example: lfs / file:a.img",
        ),
    ];
    for (line, text) in cases {
        match Stack::parse(line) {
            Ok(stack) => panic!("`{line}` was read as {stack}"),
            Err(error) => assert_eq!(error.to_string(), text, "\n{error}\n---"),
        }
    }
}

/// Words that spread are checked while they are parsed: paths need the placeholder of a number, and there is a limit.
#[test]
fn instances_can_be_distinguished() {
    let text = |line: &str| Stack::parse(line).err().map(|error| error.to_string()).unwrap_or_default();
    assert_eq!(
        text("lfs / raid0:n=4 / file:a.img,direct"),
        "all 4 members of `raid0` would be the same\n  lfs / raid0:n=4 / file:a.img,direct\n                         ^^^^^\n\
         write {} where the number of each goes, for example file:a-{}.img"
    );
    assert!(text("raid1:n=2 / raid0:n=3 / file:/srv.d/a").starts_with("all 6 members of `raid0` would be the same"));
    assert!(text("raid1:n=2 / raid0:n=3 / file:/srv.d/a").ends_with("for example file:/srv.d/a-{}"));
    assert!(text("raid0:n=1000 / raid0:n=1000 / memory:1MiB").starts_with("the stack would have 1000000 devices"));
    for line in ["raid0:n=4 / file:a-{}.img", "raid0:n=1 / file:a", "raid1 / remap / fork / memory:1MiB", "file:{}"] {
        assert_eq!(text(line), "", "{line}");
    }
}

/// Every member is a separate instance, with its number in its path and in its seed; parts with several instances
/// report how many. Method: leaves that record their instance.
#[test]
fn members_are_instances() {
    type Files = std::collections::BTreeMap<String, Device>;
    struct Numbered(std::cell::RefCell<Vec<String>>, std::cell::RefCell<Files>);

    #[async_trait::async_trait(?Send)]
    impl LeafOpener for Numbered {
        async fn device(&self, _: &Rt, word: &Word, _: Purpose) -> Result<Device, BuildError> {
            let path = word.text("path").unwrap_or_default().to_string();
            self.0.borrow_mut().push(path.clone());
            self.1.borrow().get(&path).cloned().ok_or_else(|| BuildError::other(format!("there is no file `{path}`")))
        }

        async fn file_system(&self, _: &Rt, _: &Word, _: Purpose, _: Sharing) -> Result<crate::fs::Fs, BuildError> {
            Err(FsError::NotDirectory.into())
        }
    }

    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt().clone();
    let disk = |name: &str| (name.to_string(), Rc::new(crate::device::Memory::new(16 * MIB)) as Device);
    let disks = ["a-0", "a-1", "a-2", "a-3"].map(disk);
    let run = async {
        let leaves = Numbered(Default::default(), std::cell::RefCell::new(disks.into()));
        let nested = parse("raid0:n=2 / remap / raid0:n=2,stripe=4KiB / file:a-{}");
        let opened = nested.open(&rt, &leaves, Purpose::Use).await.unwrap();
        assert_eq!(leaves.0.take(), ["a-0", "a-1", "a-2", "a-3"]);
        assert_eq!(opened.instances().iter().map(Vec::len).collect::<Vec<_>>(), [1, 2, 2, 4]);
        let seeds: Vec<String> = opened.instances()[1].iter().map(|device| device.describe()).collect();
        assert!(seeds[0].contains("seed 1") && seeds[1].contains("seed 2"), "{seeds:?}");
        drop(opened);

        // A file system on an array that loses a member, continues without it, and gets a new one.
        let line = |options: &str| parse(&format!("lfs / raid5:n=4{options} / file:a-{{}}"));
        let error = |stack: Stack, error: StackError| format!("{stack}: {}", error.problem);
        let early = line("").open(&rt, &leaves, Purpose::Use).await.err().map(|it| error(line(""), it)).unwrap();
        assert!(early.contains("there is no array: member 0: it holds no array"), "{early}");
        line("").open(&rt, &leaves, Purpose::Format).await.unwrap().mkfs(&identity()).await.unwrap();
        let mounted = line("").mount(&rt, &leaves, &identity(), Usage::default()).await.unwrap();
        let described: Vec<String> = mounted.parts.iter().map(Part::describe).collect();
        assert!(
            described[1].starts_with("raid5 of 4, 64 KiB each") && described[2] == "4 x memory:16 MiB",
            "{described:?}"
        );
        assert!(mounted.parts[2].counters().iter().any(|(name, _)| *name == "allocated_bytes"));
        let write = async |mounted: Mounted, name: &[u8]| {
            let client = crate::fs::client::Client::new(mounted.fs.clone());
            client.write_file(name, b"hello").await.unwrap();
            mounted.fs.close().await.unwrap();
        };
        write(mounted, b"f").await;
        let lost = leaves.1.borrow_mut().remove("a-2");
        let problem = async |options: &str| {
            let stack = line(options);
            let opened = stack.open(&rt, &leaves, Purpose::Use).await;
            opened.err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert!(problem("").await.starts_with("there is no file `a-2`"));
        write(line(",degraded").mount(&rt, &leaves, &identity(), Usage::default()).await.unwrap(), b"g").await;
        // A new member that holds data is not overwritten: a file, or another member's copy in the wrong place.
        let used: Device = Rc::new(crate::device::Memory::new(16 * MIB));
        let last = Sector(16 * MIB / 512 - 1);
        used.write(last, Buf::from_slice(&[7; 512]).freeze(), WriteFlags::NONE).await.unwrap();
        let first = leaves.1.borrow()["a-0"].clone();
        for (holds, what) in [(used.clone(), "holds data (at byte 16776704 of 16 MiB)"), (first, "two")] {
            leaves.1.borrow_mut().insert("a-2".into(), holds);
            let refused = line(",replace=2").mount(&rt, &leaves, &identity(), Usage::default()).await.err().unwrap();
            assert!(refused.to_string().contains(what), "{refused}");
        }
        let kept = used.read(last, Buf::dirty(512)).await.unwrap();
        assert_eq!(kept[..], [7; 512]);
        leaves.1.borrow_mut().insert("a-2".into(), used);
        let array = line(",replace=2,overwrite").mount(&rt, &leaves, &identity(), Usage::default()).await.unwrap();
        array.fs.close().await.unwrap();
        leaves.1.borrow_mut().insert("a-2".into(), Rc::new(crate::device::Memory::new(16 * MIB)));
        let array = line(",replace=2").mount(&rt, &leaves, &identity(), Usage::default()).await.unwrap();
        rt.sleep(Nanos::from_secs(1)).await;
        write(array, b"h").await;
        // The old one is outdated; without the first, the new one is needed.
        let new = leaves.1.borrow_mut().insert("a-2".into(), lost.unwrap());
        assert!(problem("").await.contains("member 2 is missing: it is out of date"));
        leaves.1.borrow_mut().insert("a-2".into(), new.unwrap());
        leaves.1.borrow_mut().remove("a-0");
        let mounted = line(",degraded,stripe=64KiB,journal=degraded")
            .mount(&rt, &leaves, &identity(), Usage::default())
            .await
            .unwrap();
        let client = crate::fs::client::Client::new(mounted.fs.clone());
        for name in [b"f", b"g", b"h"] {
            assert_eq!(client.read_file(name).await.unwrap(), b"hello");
        }
        mounted.fs.close().await.unwrap();
        assert!(problem(",degraded,journal=always").await.contains("`journal` of `raid5`"));
        assert!(problem(",degraded,stripe=4KiB").await.contains("the stripe unit: 4 KiB is asked for"));
    };
    executor.block_on(run).unwrap();
}

/// Arrays of volatile devices are made when they are mounted; for timing alone they need neither metadata nor data.
#[test]
fn arrays_of_modelled_disks_are_made() {
    for line in [
        "lfs / volume:n=3,chunk=64KiB,stripe=16KiB / disk:dec-rz26",
        "lfs / raid1:n=2 / disk:dec-rz26",
        "lfs / raid5:n=3,stripe=16KiB / disk:dec-rz26",
        "lfs / permute:block=64KiB / raid0:n=2 / memory:32MiB",
        "lfs / raid5:n=3,metadata=off / memory:32MiB",
    ] {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let rt = executor.rt().clone();
        let run = async {
            let mounted = parse(line).mount(&rt, &NoLeaves, &identity(), Usage::default()).await.unwrap();
            let client = crate::fs::client::Client::new(mounted.fs.clone());
            client.write_file(b"f", &[1; 100_000]).await.unwrap();
            client.sync().await.unwrap();
            assert_eq!(client.read_file(b"f").await.unwrap(), [1; 100_000]);
            mounted.fs.close().await.unwrap();
        };
        executor.block_on(run).unwrap();
    }
}

/// The caret is under the mistake even behind multi-byte characters, and control characters do not break the picture.
#[test]
fn carets_count_characters() {
    let text = Stack::parse("hostdir:/\u{f6}\u{f6},x\ny").unwrap_err().to_string();
    assert!(text.contains("\n  hostdir:/\u{f6}\u{f6},x y\n              ^^^\n"), "{text}");
}

/// The table of words meets the code's assumptions: names that can be written, defaults that can be parsed, and unique
/// names.
#[test]
fn the_table_of_words_is_sound() {
    let written =
        |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    for (index, spec) in WORDS.iter().enumerate() {
        assert!(written(spec.name), "{}", spec.name);
        assert!(WORDS[..index].iter().all(|other| other.name != spec.name), "{} twice", spec.name);
        let params: Vec<_> = spec.params().collect();
        for (index, param) in params.iter().enumerate() {
            assert!(written(param.name), "{}:{}", spec.name, param.name);
            assert!(params[..index].iter().all(|other| other.name != param.name), "{}:{}", spec.name, param.name);
            assert!(!(param.required && param.default.is_some()), "{}:{}", spec.name, param.name);
            if let Some(value) = param.default_value() {
                assert_eq!(
                    param.default,
                    Some(&value.to_string()[..]),
                    "{}:{} as it is written",
                    spec.name,
                    param.name
                );
            }
            let shown = [param.kind.placeholder(), param.name.to_uppercase()];
            assert!(shown.iter().any(|it| spec.usage().contains(it)), "{}", spec.usage());
        }
        for option in spec.options {
            assert!(!option.required, "an option can be left out: {}:{}", spec.name, option.name);
            assert!(help().contains(option.help) && markdown().contains(option.help));
        }
    }
}

/// A value for `kind` drawn from `rng`.
fn random_value(kind: &ParamKind, rng: &mut Rng) -> Value {
    match *kind {
        ParamKind::Bytes { min, max } => Value::Bytes(rng.between(min, max)),
        ParamKind::Duration { min, max } => Value::Duration(Nanos(rng.between(min.0, max.0))),
        ParamKind::Percent { max } => {
            Value::Percent(Percent { hundredths: rng.between(0, u64::from(max.hundredths)) as u32 })
        }
        ParamKind::Integer { min, max } => Value::Integer(rng.between(min, max)),
        ParamKind::Switch => Value::Switch(rng.chance(1, 2)),
        ParamKind::Choice(_) | ParamKind::Name { .. } => {
            let words = kind.words();
            Value::Choice(words[rng.below(words.len() as u64) as usize])
        }
        ParamKind::Text { .. } => Value::Text(random_text(rng)),
        ParamKind::Uuid => Value::Uuid(uuid::Uuid::from_u64_pair(rng.next_u64(), rng.next_u64())),
        ParamKind::Path => Value::Path(random_text(rng) + "x{}"),
    }
}

fn random_text(rng: &mut Rng) -> String {
    const PIECES: &[&str] = &[
        "a", "b.img", " ", "  ", "/", " / ", "/ ", ",", "=", ":", "\"", "\\", "\t", "\n", "\u{f6}", "\u{3000}", "lfs",
        "@",
    ];
    (0..rng.below(8)).map(|_| *rng.pick(PIECES)).collect()
}

/// A random valid stack, as data.
fn random_stack(rng: &mut Rng) -> Stack {
    let mut words = Vec::new();
    let mut needed: Option<Interface> = None;
    loop {
        // With two or three members each, seven words that spread are the maximum.
        let spreads =
            words.iter().filter(|word: &&Word| matches!(word.spec.constructor, Constructor::Spread(_))).count();
        let fits = |spec: &&&WordSpec| {
            needed.is_none_or(|needed| spec.role().is() == needed)
                && !(spreads >= 7 && matches!(spec.constructor, Constructor::Spread(_)))
        };
        let candidates: Vec<&'static WordSpec> = WORDS.iter().filter(fits).copied().collect();
        let spec = *rng.pick(&candidates);
        let mut params: Vec<_> = spec.options.iter().filter(|_| rng.chance(1, 3)).collect();
        params.retain(|param| param.name != "n"); // As many as the default.
        rng.shuffle(&mut params);
        if let Some(argument) = spec.argument {
            params.insert(0, argument);
        }
        let setting = |param: &'static Param| Setting { param, value: random_value(&param.kind, rng), span: 0..0 };
        words.push(Word {
            spec,
            settings: params.into_iter().map(setting).collect(),
            name_span: 0..0,
            instance: None,
            drives: None,
        });
        match spec.role().needs_below() {
            Some(interface) => needed = Some(interface),
            None => return Stack { words, line: String::new() },
        }
    }
}

/// S3: the `Display` output of a stack is parsed to the same stack. Method: random stacks with difficult texts in them.
#[test]
fn stacks_survive_writing_and_reading() {
    let mut rng = Rng::new(1);
    for _ in 0..5_000 {
        let stack = random_stack(&mut rng);
        let line = stack.to_string();
        let read = Stack::parse(&line).unwrap_or_else(|error| panic!("{line:?}\n{error}"));
        assert_eq!(read, stack, "{line:?}");
        assert_eq!(read.to_string(), line);
    }
}

/// No line makes the parser panic, and every error points into its line. Method: valid lines, damaged at random places,
/// and lines of random pieces; a parsed result must survive writing.
#[test]
fn no_line_panics() {
    const PIECES: &[&str] = &[
        "wrap",
        "lfs",
        "memory",
        "file",
        ":",
        "64MiB",
        ",",
        "=",
        "segment",
        "\"",
        "\\",
        " / ",
        " ",
        "/",
        "/x",
        "9",
        "%",
        "\u{1F600}",
        "\u{f6}",
        "\0",
        "label",
        ".",
        "99999999999999999999999999999999999999999",
        "@",
    ];
    let mut rng = Rng::new(2);
    for round in 0..20_000 {
        let mut line = match round % 2 {
            0 => random_stack(&mut rng).to_string(),
            _ => (0..rng.below(12)).map(|_| *rng.pick(PIECES)).collect(),
        };
        for _ in 0..rng.below(4) {
            let places: Vec<usize> = line.char_indices().map(|(at, _)| at).chain([line.len()]).collect();
            let (one, two) = (*rng.pick(&places), *rng.pick(&places));
            let piece = rng.pick(PIECES);
            line.replace_range(one.min(two)..one.max(two), piece);
        }
        match Stack::parse(&line) {
            Ok(stack) => assert_eq!(parse(&stack.to_string()), stack, "{line:?}"),
            Err(error) => {
                assert!(error.span.start <= error.span.end && line.get(error.span.clone()).is_some(), "{line:?}");
                assert!(!error.to_string().is_empty());
            }
        }
        let completions = complete(&line);
        assert!(line.get(completions.from..).is_some(), "{line:?}");
        let _ = Stack::parse_file(&line);
        let _ = Target::of(&line);
    }
    assert!(Stack::parse(&"x".repeat(1 << 20)).is_err());
    assert!(Stack::parse(&format!("file:{}", "a,".repeat(30_000))).is_err());
}

/// Suggestions name what was most likely meant, and nothing when no name is near.
#[test]
fn suggestions_are_near() {
    let near = |text| nearest(text, WORDS.iter().map(|spec| spec.name));
    let cases = [
        ("memry", Some("memory")),
        ("mem", Some("memfs")),
        ("LFS", Some("lfs")),
        ("flie", Some("file")),
        ("hostdri", Some("hostdir")),
        ("bananas", None),
        ("", None),
    ];
    for (text, expected) in cases {
        assert_eq!(near(text), expected, "{text}");
    }
}

/// Completion offers exactly what is valid there.
#[test]
fn completion_offers_what_fits() {
    let is_file_system = |spec: &&&WordSpec| !matches!(spec.role(), Role::DeviceLayer | Role::DeviceLeaf);
    let mut file_systems: Vec<&str> = WORDS.iter().filter(is_file_system).map(|spec| spec.name).collect();
    file_systems.sort_unstable();
    let cases: &[(&str, usize, &[&str])] = &[
        ("hos", 0, &["hostdir"]),
        ("me", 0, &["memfs", "memory"]),
        ("wrap / ", 7, &file_systems),
        ("wrap / m", 7, &["memfs"]),
        ("wrap / lfs:cleaner=greedy / m", 28, &["memory"]),
        ("lfs / fault:delay=1ms / f", 24, &["fault", "file", "fork"]),
        ("lfs / raid", 6, &["raid0", "raid1", "raid5"]),
        ("raid5:n=3,j", 10, &["journal="]),
        ("file:a / ", 9, &[]),
        ("lfs:c", 4, &["cache=", "checkpoint=", "cleaner="]),
        ("lfs:cache=1MiB,c", 15, &["checkpoint=", "cleaner="]),
        ("lfs:cleaner=g", 12, &["greedy"]),
        ("lfs:cleaner=cost", 12, &["cost-benefit", "cost-benefit-root", "cost-benefit-youngest"]),
        ("lfs:discard=of", 12, &["off"]),
        ("lfs / disk:hp97560,sc", 19, &["scheduler="]),
        ("lfs:label=\"a / ", 10, &[]),
    ];
    for (line, from, candidates) in cases {
        let completions = complete(line);
        assert_eq!(
            (completions.from, completions.candidates),
            (*from, candidates.iter().map(|it| it.to_string()).collect()),
            "{line}"
        );
    }
}

/// Names of a catalogue are completed, too.
#[test]
fn completion_knows_the_drives() {
    let completions = complete("lfs / disk:hp9");
    assert!(completions.candidates.contains(&"hp97560".to_string()), "{completions:?}");
    assert!(completions.candidates.iter().all(|name| name.starts_with("hp9")));
    assert!(complete("disk:").candidates.len() >= 3);
}

/// A drive name that is not in the catalogue gets a hint how to describe a drive, and so does the list of drives.
#[test]
fn a_drive_can_be_described() {
    let form = "or a data sheet: disk:size=1GiB,rpm=5400,seek=10ms,rate=4MB";
    let error = Stack::parse("disk:st3500").unwrap_err().to_string();
    assert!(error.starts_with("`drive` of `disk`: there is no `st3500`") && error.ends_with(form), "{error}");
    assert!(super::help().contains(form), "{}", super::help());
}

/// A stack file means the same as its line; any other content is an error that says what.
#[test]
fn stack_files_are_read() {
    assert_eq!(Stack::parse_file("# for fstab\nstack = \"wrap / memfs\"\n").unwrap(), parse("wrap / memfs"));
    let cases = [
        ("", "the key `stack` is missing; write: stack = \"wrap / memfs\""),
        ("stack = 1", "`stack` is not text; write: stack = \"wrap / memfs\""),
        ("stack = \"memfs\"\nstak = \"x\"", "there is no key `stak`; the file has one key, `stack`"),
        (
            "stack = \"wrap / memry:1\"",
            "there is no word `memry`; did you mean `memory`?\n  wrap / memry:1\n         ^^^^^",
        ),
    ];
    for (text, error) in cases {
        assert_eq!(Stack::parse_file(text).unwrap_err().to_string(), error);
    }
    let error = Stack::parse_file("stack = wrap").unwrap_err().to_string();
    assert!(error.starts_with("not TOML: ") && error.contains("line 1, column 9"), "{error}");
}

/// An argument is a directory, a stack file or a line by how it begins.
#[test]
fn targets_can_be_distinguished() {
    let cases = [
        ("/mnt", Target::Directory("/mnt")),
        ("./x", Target::Directory("./x")),
        ("..", Target::Directory("..")),
        ("../x", Target::Directory("../x")),
        ("@a.toml", Target::StackFile("a.toml")),
        ("lfs / file:a.img", Target::Line("lfs / file:a.img")),
        ("...", Target::Line("...")),
    ];
    for (argument, target) in cases {
        assert_eq!(Target::of(argument), target);
    }
}

/// The getters follow the table of options: given, default, and absent.
#[test]
fn options_have_their_defaults() {
    let stack = parse("lfs:segment=1MiB / memory:64MiB");
    let (lfs, memory) = (&stack.words()[0], &stack.words()[1]);
    assert_eq!((lfs.bytes("segment"), lfs.bytes("cache"), memory.bytes("size")), (MIB, 32 * MIB, 64 * MIB));
    assert_eq!((lfs.given("cache"), lfs.text("label"), lfs.switch("discard")), (None, None, true));
    assert_eq!((lfs.choice("cleaner"), lfs.percent("reserve")), ("age-sort", Percent::new(5)));
    assert_eq!(lfs.duration("checkpoint"), Nanos::from_secs(30));
    assert_eq!(Percent::new(5).of(u64::MAX), u64::MAX / 20);
    assert_eq!(lfs.check_fixed(&[("segment", Value::Bytes(MIB)), ("reserve", Value::Integer(9))]), Ok(()));
    let cause = lfs.check_fixed(&[("segment", Value::Bytes(512 * KIB))]).unwrap_err();
    let BuildError::Option { key, problem } = cause else { panic!("{cause:?}") };
    assert_eq!((key, &problem[..]), ("segment", "the line says 1MiB, but the file system was made with 512KiB"));
}

/// Leaves for tests: `file:missing` is missing, every other file is a device in memory.
struct TestLeaves;

#[async_trait::async_trait(?Send)]
impl LeafOpener for TestLeaves {
    async fn device(&self, _: &Rt, word: &Word, _: Purpose) -> Result<Device, BuildError> {
        match word.text("path") {
            Some("missing") => Err(BuildError::other("there is no file `missing`").hint("make it with mkfs")),
            _ => Ok(Rc::new(crate::device::Memory::new(MIB))),
        }
    }

    async fn file_system(&self, _: &Rt, _: &Word, _: Purpose, _: Sharing) -> Result<crate::fs::Fs, BuildError> {
        Err(FsError::NotDirectory.into())
    }
}

fn identity() -> Identity {
    Identity::new([1, 2, 3, 4])
}

/// A stack that cannot be built gives an error that points at the word; one that can be built works.
#[test]
fn stacks_are_built() {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt();
    let mount_error = |line: &str, leaves: &dyn LeafOpener| {
        let stack = parse(line);
        let mounted = executor.block_on(stack.mount(rt, leaves, &identity(), Usage::default())).unwrap();
        mounted.err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(
        mount_error("wrap / hostdir:/x", &TestLeaves),
        "cannot mount `hostdir`: not a directory\n  wrap / hostdir:/x\n         ^^^^^^^^^^"
    );
    assert_eq!(
        mount_error("lfs / file:missing,direct", &TestLeaves),
        "there is no file `missing`\n  lfs / file:missing,direct\n        ^^^^^^^^^^^^^^^^^^^\nmake it with mkfs"
    );
    assert_eq!(
        mount_error("file:a", &TestLeaves),
        "there is no file system on a device here to mount\n  file:a\n  ^^^^\nfor example: lfs / file:a.img"
    );
    assert!(mount_error("lfs / file:a", &NoLeaves).starts_with("`file` lies in the real world"));

    assert!(
        mount_error("lfs / memory:1MiB", &NoLeaves)
            .starts_with("cannot make `lfs`: invalid argument: the volume is too")
    );
    assert_eq!(
        mount_error("lfs / disk:rpm=5400,size=1GiB,seek=8ms", &NoLeaves),
        "`disk` needs a drive of the catalogue, or `rate` as well\n  lfs / disk:rpm=5400,size=1GiB,seek=8ms\n        \
         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\ndrives: {}; or a drive file: disk:file=my-drive.toml, or a data sheet: disk:size=1GiB,rpm=5400,seek=10ms,rate=4MB"
            .replace("{}", &crate::disk::Drive::names().collect::<Vec<_>>().join(", "))
    );
    assert_eq!(
        mount_error("lfs / disk:hp97560,rpm=5400", &NoLeaves),
        "`rpm` of `disk`: a drive of the catalogue has its own\n  lfs / disk:hp97560,rpm=5400\n                     ^^^^^^^^"
    );

    let stack = parse("memory:64KiB");
    let opened = executor.block_on(stack.open(rt, &NoLeaves, Purpose::Use)).unwrap().unwrap();
    assert_eq!(opened.device().map(|device| device.geometry().bytes()), Some(64 * KIB));
    assert!(stack.is_volatile() && !parse("lfs / file:a").is_volatile());
    assert_eq!(opened.device().map(|device| device.describe()), Some("memory:64 KiB".into()));
}

/// A file system on a device, from the line to the file and back: made, mounted, written, closed, probed, checked,
/// dumped; options fixed when it was made hold permanently. Method: a device that survives between stacks.
#[test]
fn a_volume_is_made_and_used() {
    struct Kept(Device);

    #[async_trait::async_trait(?Send)]
    impl LeafOpener for Kept {
        async fn device(&self, _: &Rt, _: &Word, _: Purpose) -> Result<Device, BuildError> {
            Ok(self.0.clone())
        }

        async fn file_system(&self, _: &Rt, word: &Word, _: Purpose, _: Sharing) -> Result<crate::fs::Fs, BuildError> {
            Err(BuildError::other(format!("no {word}")))
        }
    }

    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt().clone();
    let run = async {
        let leaves = Kept(Rc::new(crate::device::Memory::new(64 * MIB)));
        let stack = parse("wrap / lfs:segment=256KiB,reserve=20% / fault / file:a");
        {
            let opened = stack.open(&rt, &leaves, Purpose::Format).await.unwrap();
            assert_eq!(opened.probe().await.unwrap(), None);
            assert!(opened.fsck(CheckOptions::default()).await.is_err());
            opened
                .mkfs(&Identity {
                    label: Some("mine".into()),
                    uuid: Some(uuid::Uuid::from_u128(7)),
                    uid: 7,
                    ..identity()
                })
                .await
                .unwrap();
        }
        let mounted = stack.mount(&rt, &leaves, &identity(), Usage::default()).await.unwrap();
        assert_eq!(mounted.parts.iter().map(Part::describe).collect::<Vec<_>>().len(), 4);
        let client = crate::fs::client::Client::new(mounted.fs.clone());
        assert_eq!(client.stat(b"").await.unwrap().uid, 7);
        client.write_file(b"f", b"hello").await.unwrap();
        mounted.fs.close().await.unwrap();

        // Options omitted in the line come from the volume; given ones must match it.
        let plain = parse("lfs / file:a");
        let opened = plain.open(&rt, &leaves, Purpose::Inspect).await.unwrap();
        let probed = opened.probe().await.unwrap().unwrap();
        assert_eq!((probed.label.as_deref(), probed.uuid), (Some("mine"), uuid::Uuid::from_u128(7)));
        assert!(probed.facts.contains(&("segment", Fact::Bytes(256 * KIB))), "{probed:?}");
        let checked = opened.fsck(CheckOptions { data: true, ..CheckOptions::default() }).await.unwrap();
        assert_eq!((checked.verdict(), checked.counts[0]), (Verdict::Clean, ("files", 1)), "{checked:?}");
        assert!(opened.dump(None).await.unwrap().contains("superblock"));
        assert!(opened.dump(Some("log")).await.is_ok() && opened.dump(Some("segment:0")).await.is_ok());
        assert!(opened.dump(Some("sgement")).await.unwrap_err().to_string().contains("one of: volume, log"));
        for (line, place) in [
            ("lfs:segment=512KiB / file:a", "segment=512KiB"),
            ("lfs:reserve=10% / file:a", "reserve=10%"),
            ("lfs:label=yours / file:a", "label=yours"),
            ("lfs:uuid=67e55044-10b1-426f-9247-bb680e5fe0c8 / file:a", "uuid=67e55044-10b1-426f-9247-bb680e5fe0c8"),
        ] {
            let error = parse(line).mount(&rt, &leaves, &identity(), Usage::default()).await.err().unwrap();
            assert_eq!(&line[error.span.clone()], place, "{error}");
        }
        let same = parse("lfs:segment=256KiB,reserve=20%,label=mine / file:a");
        let mounted = same.mount(&rt, &leaves, &identity(), Usage::default()).await.unwrap();
        let client = crate::fs::client::Client::new(mounted.fs.clone());
        assert_eq!(client.read_file(b"f").await.unwrap(), b"hello");
        mounted.fs.close().await.unwrap();

        // `ro` on the line acts like read-only usage.
        let mounted = parse("lfs:ro / file:a").mount(&rt, &leaves, &identity(), Usage::default()).await.unwrap();
        assert!(mounted.fs.traits().read_only);
        mounted.fs.close().await.unwrap();

        // A stack on a fork leaves the storage below unchanged.
        let forked = parse("lfs / fork / file:a").mount(&rt, &leaves, &identity(), Usage::default()).await.unwrap();
        let client = crate::fs::client::Client::new(forked.fs.clone());
        client.unlink(b"f").await.unwrap();
        forked.fs.close().await.unwrap();
        let mounted = plain.mount(&rt, &leaves, &identity(), Usage::default()).await.unwrap();
        assert!(crate::fs::client::Client::new(mounted.fs.clone()).stat(b"f").await.is_ok());
        mounted.fs.close().await.unwrap();

        // A faulty device gives an error.
        let faulty =
            parse("lfs / fault:read-errors=100% / file:a").mount(&rt, &leaves, &identity(), Usage::default()).await;
        assert!(matches!(faulty.err().unwrap().cause, Some(Cause::FileSystem(FsError::Device(_)))));
    };
    executor.block_on(run).unwrap();
}

/// A device with its own format, without a file system on it: made, examined, checked, used; and with one. Method: as
/// above.
#[test]
fn a_virtual_log_disk_is_made_and_used() {
    struct Kept(Device);

    #[async_trait::async_trait(?Send)]
    impl LeafOpener for Kept {
        async fn device(&self, _: &Rt, _: &Word, _: Purpose) -> Result<Device, BuildError> {
            Ok(self.0.clone())
        }

        async fn file_system(&self, _: &Rt, word: &Word, _: Purpose, _: Sharing) -> Result<crate::fs::Fs, BuildError> {
            Err(BuildError::other(format!("no {word}")))
        }

        fn random(&self) -> Option<[u64; 4]> {
            Some([1, 2, 3, 4])
        }
    }

    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt().clone();
    let run = async {
        let leaves = Kept(Rc::new(crate::device::Memory::new(32 * MIB)));
        let stack = parse("vld:block=8KiB / file:a");
        let below = stack.open_below(&rt, &leaves, Purpose::Inspect).await.unwrap();
        assert_eq!(below.probe().await.unwrap(), None);
        let missing = stack.open(&rt, &leaves, Purpose::Use).await.err().unwrap();
        assert!(missing.to_string().contains("there is no virtual log disk here"), "{missing}");
        let opened = stack.open(&rt, &leaves, Purpose::Format).await.unwrap();
        opened.mkfs(&identity()).await.unwrap();
        let probed = opened.probe().await.unwrap().unwrap();
        assert!(probed.facts.contains(&("block", Fact::Bytes(8 * KIB))), "{probed:?}");
        assert_eq!(probed.uuid.get_version_num(), 4);
        drop(opened);

        let lfs = parse("lfs / vld / file:a");
        lfs.open(&rt, &leaves, Purpose::Format).await.unwrap().mkfs(&identity()).await.unwrap();
        let mounted = lfs.mount(&rt, &leaves, &identity(), Usage::default()).await.unwrap();
        let client = crate::fs::client::Client::new(mounted.fs.clone());
        client.write_file(b"f", b"hello").await.unwrap();
        mounted.fs.close().await.unwrap();
        drop((client, mounted));
        // Made again, with the block size of that line.
        let plain = parse("vld / file:a");
        let below = plain.open_below(&rt, &leaves, Purpose::Inspect).await.unwrap();
        let probed = below.probe().await.unwrap().unwrap();
        assert!(probed.facts.contains(&("block", Fact::Bytes(4 * KIB))), "{probed:?}");
        assert!(probed.facts.contains(&("parked", Fact::Flag(true))), "{probed:?}");
        let checked = below.fsck(CheckOptions::default()).await.unwrap();
        assert_eq!(checked.verdict(), Verdict::Clean, "{checked:?}");
        let error = stack.open(&rt, &leaves, Purpose::Use).await.err().unwrap();
        assert_eq!(&stack.line()[error.span.clone()], "block=8KiB", "{error}");
        let mounted =
            lfs.mount(&rt, &leaves, &identity(), Usage { read_only: true, ..Usage::default() }).await.unwrap();
        let client = crate::fs::client::Client::new(mounted.fs.clone());
        assert_eq!(client.read_file(b"f").await.unwrap(), b"hello");
        mounted.fs.close().await.unwrap();
        assert!(plain.mount(&rt, &leaves, &identity(), Usage::default()).await.is_err());
    };
    executor.block_on(run).unwrap();
}

/// A stack on a modelled disk is made when it is mounted, and takes the disk's time.
#[test]
fn a_volume_on_a_modelled_disk_takes_time() {
    for disk in [
        "disk:dec-rz26",
        "vld / disk:hp97560",
        "disk:hp97560,scheduler=fcfs",
        "disk:size=300MB,rpm=5400,seek=10ms,rate=4MB",
    ] {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let rt = executor.rt().clone();
        let stack = parse(&format!("lfs / {disk}"));
        assert!(stack.is_volatile());
        let run = async {
            let mounted = stack.mount(&rt, &NoLeaves, &identity(), Usage::default()).await.unwrap();
            let before = rt.now();
            let client = crate::fs::client::Client::new(mounted.fs.clone());
            client.write_file(b"f", &[1; 100_000]).await.unwrap();
            client.sync().await.unwrap();
            // 100,000 bytes at some 2 MB/s, and a seek; not hours.
            let took = rt.now() - before;
            assert!(took > Nanos::from_millis(10) && took < Nanos::from_secs(2), "{disk}: {took:?}");
            mounted.fs.close().await.unwrap();
        };
        executor.block_on(run).unwrap();
    }
}

/// A check's verdict is that of its worst finding.
#[test]
fn the_worst_finding_counts() {
    let finding = |repaired| Finding { text: "x".into(), repaired };
    let verdict = |findings: &[bool]| {
        Checked { findings: findings.iter().map(|&repaired| finding(repaired)).collect(), ..Checked::default() }
            .verdict()
    };
    assert_eq!(
        [verdict(&[]), verdict(&[true]), verdict(&[true, false, true])],
        [Verdict::Clean, Verdict::Repaired, Verdict::Damaged]
    );
}

/// The longest lines give errors that can be shown, and longer ones are refused.
#[test]
fn the_longest_lines_are_shown() {
    for bytes in [65_534, 65_535, 65_536, 65_537] {
        for line in ["x".repeat(bytes), format!("wrap / memfs{:1$}/", "", bytes - 13), " ".repeat(bytes)] {
            assert_eq!(line.len(), bytes);
            let shown = Stack::parse(&line).unwrap_err().to_string();
            assert_eq!(shown.starts_with("the line has "), bytes > 65_535, "{bytes} bytes");
        }
    }
}
