//! Aim: what others do to a file while it is converted is never lost. Method: a layer below that lets another program act before any
//! call of the conversion, once or twice, with each kind of change; and what that program was told is compared with what is there afterwards.

use super::*;
use crate::device::Data;
use crate::fs::client::{Client, OpenFile};
use crate::fs::{
    Attr, EntryName, FileKind, OpenFlags, OpenProtocol, RenameMode, SeekTo, SetAttr, WriteMode, XattrMode,
};
use crate::layer::log::pack::{Direction, Progress, convert};
use crate::layer::{At, Layer};
use crate::testing::MemFsOptions;

/// What the other program does to `/f`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    /// Writes it under another name, and renames that.
    Save,
    Chmod,
    Link,
    SetAttribute,
    Unlink,
    /// Moves it to `/moved`.
    Move,
    /// Opens it, writes to it, and does so again when the conversion is over.
    Write,
}

const CHANGES: [Change; 7] =
    [Change::Save, Change::Chmod, Change::Link, Change::SetAttribute, Change::Unlink, Change::Move, Change::Write];

/// The other program.
struct Other {
    client: Client,
    /// What it does next, and before which call of the conversion from the start, from 1.
    plan: RefCell<Vec<(u64, Change)>>,
    calls: Cell<u64>,
    /// Which changes were acknowledged.
    done: RefCell<Vec<Change>>,
    open: RefCell<Vec<OpenFile>>,
    /// The file system below cannot swap names.
    cannot_swap: bool,
    /// The call after which names were swapped first, and that after which a name was replaced.
    swapped_at: Cell<u64>,
    replaced_at: Cell<u64>,
}

impl Other {
    /// A call of the conversion begins.
    async fn turn(&self) {
        let call = self.calls.get() + 1;
        self.calls.set(call);
        loop {
            let next = self.plan.borrow().first().copied().filter(|(at, _)| *at <= call);
            let Some((_, change)) = next else { return };
            self.plan.borrow_mut().remove(0);
            if self.change(change).await.is_ok() {
                self.done.borrow_mut().push(change);
            }
        }
    }

    fn saved(&self) -> Vec<u8> {
        let saves = self.done.borrow().iter().filter(|change| **change == Change::Save).count();
        format!("save {saves}; ").repeat(2_000).into_bytes()
    }

    async fn change(&self, change: Change) -> FsResult<()> {
        match change {
            Change::Save => {
                self.client.write_file(b"/.tmp", &self.saved()).await?;
                self.client.rename(b"/.tmp", b"/f", RenameMode::Replace).await
            }
            Change::Chmod => {
                let private = SetAttr { permissions: Some(0o600), ..SetAttr::default() };
                self.client.setattr(b"/f", private).await.map(drop)
            }
            Change::Link => self.client.link(b"/f", b"/g").await,
            Change::SetAttribute => self.client.set_xattr(b"/f", b"user.new", b"value").await,
            Change::Unlink => self.client.unlink(b"/f").await,
            Change::Move => self.client.rename(b"/f", b"/moved", RenameMode::Replace).await,
            Change::Write => {
                let file = self.client.open(b"/f", OpenFlags::READ_WRITE).await?;
                self.client.write(file, 0, b"first").await?;
                self.open.borrow_mut().push(file);
                Ok(())
            }
        }
    }
}

struct Watched(Rc<Other>);

impl Layer for Watched {
    type Node = ();

    const NAME: &'static str = "watched";

    async fn open_node(&self, _lower: &Fs, _attr: &Attr, _place: Option<EntryName<'_>>) -> FsResult<()> {
        Ok(())
    }

    async fn release(&self, at: At<'_, ()>) -> FsResult<()> {
        self.0.turn().await;
        at.lower.release(at.ino, at.handle.expect("a handle")).await
    }

    async fn getattr(&self, at: At<'_, ()>) -> FsResult<Attr> {
        self.0.turn().await;
        at.lower.getattr(at.ino, at.handle).await
    }

    async fn setattr(&self, at: At<'_, ()>, changes: SetAttr) -> FsResult<Attr> {
        self.0.turn().await;
        at.lower.setattr(at.ino, at.handle, changes).await
    }

    async fn read(&self, at: At<'_, ()>, offset: u64, bytes: u32) -> FsResult<Vec<Data>> {
        self.0.turn().await;
        at.lower.read(at.ino, at.handle, offset, bytes).await
    }

    async fn write(&self, at: At<'_, ()>, offset: u64, data: Data, mode: WriteMode) -> FsResult<()> {
        self.0.turn().await;
        at.lower.write(at.ino, at.handle, offset, data, mode).await
    }

    async fn lseek(&self, at: At<'_, ()>, offset: u64, seek: SeekTo) -> FsResult<u64> {
        self.0.turn().await;
        at.lower.lseek(at.ino, at.handle, offset, seek).await
    }

    async fn setxattr(&self, at: At<'_, ()>, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        self.0.turn().await;
        at.lower.setxattr(at.ino, name, value, mode).await
    }

    async fn listxattr(&self, at: At<'_, ()>) -> FsResult<Vec<Vec<u8>>> {
        self.0.turn().await;
        at.lower.listxattr(at.ino).await
    }

    async fn fsync(&self, at: At<'_, ()>, data_only: bool) -> FsResult<()> {
        self.0.turn().await;
        at.lower.fsync(at.ino, at.handle, data_only).await
    }

    async fn unlink(&self, lower: &Fs, place: EntryName<'_>) -> FsResult<()> {
        self.0.turn().await;
        lower.unlink(place.parent, place.name).await
    }

    async fn rename(
        &self,
        lower: &Fs,
        _nodes: &crate::layer::Nodes<()>,
        from: EntryName<'_>,
        to: EntryName<'_>,
        mode: RenameMode,
    ) -> FsResult<()> {
        let first = |at: &Cell<u64>| at.set(if at.get() == 0 { self.0.calls.get() } else { at.get() });
        match mode {
            RenameMode::Exchange => first(&self.0.swapped_at),
            _ => first(&self.0.replaced_at),
        }
        if mode == RenameMode::Exchange && self.0.cannot_swap {
            return Err(crate::fs::FsError::Unsupported);
        }
        // Nothing comes between the last look and this where that cannot be undone.
        if mode != RenameMode::Replace {
            self.0.turn().await;
        }
        lower.rename(from, to, mode).await
    }
}

struct Outcome {
    converted: FsResult<Progress>,
    done: Vec<Change>,
    /// The last save.
    saved: Vec<u8>,
    lower: Rc<MemFs>,
    /// No call was left for what was planned.
    is_over: bool,
    swapped_at: u64,
    replaced_at: u64,
}

/// Converts a directory with the files `/f` and, last, `/z`, while `plan` happens.
async fn run(rt: &Rt, direction: Direction, cannot_swap: bool, plan: &[(u64, Change)]) -> Outcome {
    let options =
        MemFsOptions { open_protocol: OpenProtocol::Handles, reuses_numbers: true, ..MemFsOptions::default() };
    let lower = MemFs::with_options(rt, options);
    let client = Client::new(lower.clone() as Fs);
    for path in [b"/f", b"/z"] {
        client.write_file(path, &old()).await.unwrap();
        client.set_xattr(path, b"user.old", b"kept").await.unwrap();
    }
    if direction == Direction::Unpack {
        convert(rt, lower.clone(), zstd(), Direction::Pack, &|_, _| {}).await.unwrap();
    }
    let other = Rc::new(Other {
        client: client.clone(),
        plan: RefCell::new(plan.to_vec()),
        calls: Cell::default(),
        done: RefCell::default(),
        open: RefCell::default(),
        cannot_swap,
        swapped_at: Cell::default(),
        replaced_at: Cell::default(),
    });
    let watched: Fs = Rc::new(Stacked::new(lower.clone(), Watched(other.clone())).await.unwrap());
    // What comes before the mount, and after the files, concerns no file.
    other.calls.set(0);
    let converted = convert(rt, watched, zstd(), direction, &|_, _| {}).await;
    let is_over = !other.plan.borrow().is_empty();
    for file in other.open.take() {
        client.write(file, 10, b"second").await.unwrap();
        client.close(file).await.unwrap();
    }
    let saves = other.done.borrow().iter().filter(|change| **change == Change::Save).count();
    let saved = format!("save {}; ", saves.saturating_sub(1)).repeat(2_000).into_bytes();
    Outcome {
        converted,
        done: other.done.take(),
        saved,
        lower,
        is_over,
        swapped_at: other.swapped_at.get(),
        replaced_at: other.replaced_at.get(),
    }
}

fn old() -> Vec<u8> {
    b"the old content; ".repeat(1_000)
}

/// What `/f` and the rest must be after `done`, one change or several.
async fn assert_kept(rt: &Rt, outcome: &Outcome, name: &str) {
    let below = Client::new(outcome.lower.clone() as Fs);
    let progress = outcome.converted.as_ref().unwrap_or_else(|error| panic!("{name}: {error}"));
    let names: Vec<String> = below
        .read_dir(b"/")
        .await
        .unwrap()
        .into_iter()
        .filter(|entry| entry.kind == FileKind::Regular)
        .map(|entry| String::from_utf8(entry.name).unwrap())
        .collect();
    assert!(!names.iter().any(|found| found.starts_with(".seekless-pack")), "{name}: {names:?}");
    // Two versions of a file, when it was changed twice: both are there, and the report says so.
    let kept = names.iter().find(|found| found.starts_with("seekless-pack-kept-"));
    let said = progress.left.iter().any(|(path, why)| path == b"/f" && kept.is_some_and(|kept| why.contains(kept)));
    assert_eq!(said, kept.is_some(), "{name}: {names:?}, {progress:?}");
    assert!(kept.is_none() || outcome.done.len() > 1, "{name}: {names:?}, {progress:?}");
    let options = Options { plain: Plain::Pass, ..zstd() };
    let read = |path: &str| {
        let (rt, lower, options, path) = (rt.clone(), outcome.lower.clone(), options.clone(), format!("/{path}"));
        async move { Client::new(stack_on(&rt, lower, options).await.unwrap()).read_file(path.as_bytes()).await }
    };
    let mut places: Vec<&str> = kept.iter().map(|kept| kept.as_str()).collect();
    let has = |change| outcome.done.contains(&change);
    places.extend(["f", "moved"].into_iter().filter(|place| names.iter().any(|found| found == place)));
    let attr = async |place: &str| below.stat(format!("/{place}").as_bytes()).await.unwrap();
    let last = outcome.done.last().copied();
    if last == Some(Change::Unlink) || last == Some(Change::Move) {
        assert!(!names.iter().any(|found| found == "f"), "{name}: {names:?}");
    }
    if last == Some(Change::Unlink) {
        return;
    }
    // Each change in one of the versions; later ones than a save or a removal in that of the name.
    let mut seen = vec![false; outcome.done.len()];
    for place in places {
        let content = read(place).await;
        let raw = below.read_file(format!("/{place}").as_bytes()).await.unwrap();
        for (number, change) in outcome.done.iter().enumerate() {
            seen[number] |= match change {
                Change::Save => {
                    content.as_ref().is_ok_and(|content| *content == outcome.saved) || {
                        // A write into it came later.
                        has(Change::Write) && raw.len() == outcome.saved.len() && raw[50..] == outcome.saved[50..]
                    }
                }
                Change::Chmod => attr(place).await.permissions == 0o600,
                Change::SetAttribute => {
                    below.get_xattr(format!("/{place}").as_bytes(), b"user.new").await == Ok(b"value".to_vec())
                }
                Change::Link => names.iter().any(|found| found == "g") && attr(place).await.ino == attr("g").await.ino,
                Change::Write => raw.starts_with(b"first") && raw[10..].starts_with(b"second"),
                Change::Move | Change::Unlink => true,
            };
        }
        if outcome.done.iter().all(|change| !matches!(change, Change::Save | Change::Write)) {
            assert!(content.as_ref().is_ok_and(|content| *content == old()), "{name}: the content of {place}");
        }
    }
    // A save or a removal ends what was done to the file before.
    let ends = outcome.done.iter().rposition(|change| matches!(change, Change::Save | Change::Unlink)).unwrap_or(0);
    assert!(seen[ends..].iter().all(|seen| *seen), "{name}: {:?}, {seen:?}, {names:?}, {progress:?}", outcome.done);
    assert!(read("z").await.is_ok_and(|content| content == old()), "{name}: the other file");
}

/// One change at every moment, with and without a file system below that can swap names.
#[test]
fn a_change_at_any_moment_is_kept() {
    simulate(1, async |rt| {
        for direction in [Direction::Pack, Direction::Unpack] {
            for (cannot_swap, change) in [false, true].into_iter().flat_map(|can| CHANGES.map(|change| (can, change))) {
                let mut moments = 0;
                for call in 1.. {
                    let outcome = run(&rt, direction, cannot_swap, &[(call, change)]).await;
                    if outcome.is_over {
                        break;
                    }
                    let name = format!("{direction:?}, {change:?} before call {call}, cannot swap: {cannot_swap}");
                    // What comes between the last look, of a few calls, and a rename that replaces is lost.
                    let gap = outcome.swapped_at + 1..=outcome.replaced_at;
                    let is_in_gap = cannot_swap && gap.contains(&call) && gap.count() <= 3;
                    if !is_in_gap {
                        assert_kept(&rt, &outcome, &name).await;
                    }
                    assert_eq!(outcome.lower.leaks(), Default::default(), "{name}");
                    moments += 1;
                }
                assert!(moments > 30, "{direction:?}, {change:?}: {moments}");
            }
        }
    });
}

/// Two changes, so that the second one comes while the names are swapped back because of the first.
#[test]
fn two_changes_are_kept() {
    const APART_MAX: u64 = 10;
    simulate(1, async |rt| {
        for direction in [Direction::Pack, Direction::Unpack] {
            let swapped_at = run(&rt, direction, false, &[]).await.swapped_at;
            for (first, second) in CHANGES.into_iter().flat_map(|first| CHANGES.map(|second| (first, second))) {
                for (call, apart) in
                    (swapped_at - 1..swapped_at + 4).flat_map(|call| (0..APART_MAX).map(move |apart| (call, apart)))
                {
                    let plan = [(call, first), (call + apart, second)];
                    let outcome = run(&rt, direction, false, &plan).await;
                    let name = format!("{direction:?}, {plan:?}");
                    assert_kept(&rt, &outcome, &name).await;
                    assert_eq!(outcome.lower.leaks(), Default::default(), "{name}");
                }
            }
        }
    });
}
