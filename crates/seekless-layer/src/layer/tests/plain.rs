//! Aim: a file that is passed through stays as it was written, whatever is written into it; it never becomes one that the next mount decodes.
//! Method: pieces of files of the layer, zeroes and noise written at random and at their own places into plain files, with truncations, holes and
//! allocations, through several handles, beside a vector of bytes; the layer is mounted again after every few operations.

use std::sync::Arc;

use super::*;
use crate::device::Data;
use crate::layer::codecs::Zstd;
use crate::testing::volumes::simulate;

/// The schemes that store files in a form of their own.
#[derive(Clone, Copy, Debug)]
enum Scheme {
    Log,
    Classic,
}

impl Scheme {
    async fn stack_on(self, rt: &Rt, lower: Fs) -> Fs {
        let codec = Arc::new(Zstd::default());
        match self {
            Scheme::Log => {
                let options = log::Options { chunk_shift: 12, ..log::Options::new(codec) };
                log::stack_on(rt, lower, options).await.unwrap()
            }
            Scheme::Classic => classic::stack_on(rt, lower, classic::Options::new(codec)).await.unwrap(),
        }
    }

    /// The lower file of a file of `bytes` bytes, half of which can be compressed, that was committed `commits` times.
    async fn ours(self, rt: &Rt, bytes: usize, commits: u64) -> Vec<u8> {
        let lower = lower(rt, OpenProtocol::ZeroMessage);
        let client = Client::new(self.stack_on(rt, lower.clone()).await);
        let mut content = vec![7; bytes];
        Rng::new(bytes as u64).fill(&mut content[..bytes / 2]);
        let file = client.create(b"/f").await.unwrap();
        for commit in 0..commits {
            client.write(file, commit, &content).await.unwrap();
            client.fsync(file).await.unwrap();
        }
        client.close(file).await.unwrap();
        client.fs().close().await.unwrap();
        Client::new(lower as Fs).read_file(b"/f").await.unwrap()
    }
}

fn lower(rt: &Rt, open_protocol: OpenProtocol) -> Rc<MemFs> {
    MemFs::with_options(rt, MemFsOptions { capacity_bytes: 1 << 50, open_protocol, ..MemFsOptions::default() })
}

/// A change, as the layer is asked for it.
#[derive(Clone, Debug)]
enum Op {
    Write(u64, Vec<u8>),
    Resize(u64),
    Fallocate(FileRange, AllocateMode),
}

impl Op {
    fn random(rng: &mut Rng, ours: &[Vec<u8>], size: u64) -> Op {
        let inner = rng.pick(ours);
        let edge = |rng: &mut Rng| *rng.pick(&[0, 8, 256, 511, 512, 520, 1023, 1024, 1088, 1152, 2048, 4096, 8192]);
        let place = |rng: &mut Rng| match rng.below(3) {
            0 => edge(rng),
            1 => rng.below(20_000),
            _ => rng.below(size + 1),
        };
        match rng.below(16) {
            // A piece at its own place, which is what `dd` and `rsync --inplace` write.
            0..=4 => {
                let (one, two) = (place(rng), place(rng));
                let (from, to) = (one.min(two).min(inner.len() as u64), one.max(two).min(inner.len() as u64));
                Op::Write(from, inner[from as usize..to as usize].to_vec())
            }
            5 => Op::Write(0, inner.clone()),
            // Records without the slots before them.
            6 => Op::Write(1024, inner.get(1024..).unwrap_or_default().to_vec()),
            7 => Op::Write(place(rng), inner[..inner.len().min(rng.between(1, 1100) as usize)].to_vec()),
            8 | 9 => Op::Write(place(rng), vec![0; rng.below(9_000) as usize]),
            10 => {
                let mut noise = vec![0; rng.between(1, 700) as usize];
                rng.fill(&mut noise);
                Op::Write(place(rng), noise)
            }
            11 | 12 => Op::Resize(if rng.chance(1, 3) { inner.len() as u64 } else { place(rng) }),
            _ => {
                let keep_size = rng.chance(1, 2);
                let mode = *rng.pick(&[
                    AllocateMode::PunchHole,
                    AllocateMode::Zero { keep_size },
                    AllocateMode::Allocate { keep_size },
                ]);
                Op::Fallocate(FileRange { offset: place(rng), bytes: rng.between(1, 12_000) }, mode)
            }
        }
    }

    async fn run(&self, fs: &Fs, ino: Ino, handle: Option<Handle>) -> FsResult<()> {
        match self.clone() {
            Op::Write(offset, bytes) => {
                fs.write(ino, handle, offset, Data::from_slice(&bytes), WriteMode::default()).await
            }
            Op::Resize(size) => {
                fs.setattr(ino, handle, SetAttr { size: Some(size), ..SetAttr::default() }).await.map(drop)
            }
            Op::Fallocate(range, mode) => fs.fallocate(ino, handle, range, mode).await,
        }
    }

    fn apply(&self, content: &mut Vec<u8>) {
        let grow = |content: &mut Vec<u8>, size: u64| content.resize(content.len().max(size as usize), 0);
        match self {
            Op::Write(_, bytes) if bytes.is_empty() => {}
            Op::Write(offset, bytes) => {
                grow(content, offset + bytes.len() as u64);
                content[*offset as usize..][..bytes.len()].copy_from_slice(bytes);
            }
            Op::Resize(size) => content.resize(*size as usize, 0),
            Op::Fallocate(range, mode) => {
                let end = range.offset + range.bytes;
                let grows = [AllocateMode::Zero { keep_size: false }, AllocateMode::Allocate { keep_size: false }];
                if grows.contains(mode) {
                    grow(content, end);
                }
                if !matches!(mode, AllocateMode::Allocate { .. }) {
                    let (from, to) = (content.len().min(range.offset as usize), content.len().min(end as usize));
                    content[from..to].fill(0);
                }
            }
        }
    }
}

#[test]
fn a_plain_file_stays_one() {
    stays_plain(Scheme::Log, "a_plain_file_stays_one");
}

#[test]
fn a_plain_file_stays_one_in_the_published_scheme() {
    stays_plain(Scheme::Classic, "a_plain_file_stays_one_in_the_published_scheme");
}

fn stays_plain(scheme: Scheme, test: &str) {
    let replay = crate::testing::environment::replay(&format!("layer::tests::plain::{test}"));
    let (mut refused, mut done) = (0, 0);
    for seed in replay.seeds(0..80) {
        simulate(seed, async |rt| {
            let mut rng = Rng::new(seed);
            let ours = [(300, 1), (9_000, 1), (30_000, 3)].map(|(bytes, commits)| scheme.ours(&rt, bytes, commits));
            let ours = futures_util::future::join_all(ours).await;
            let lower = lower(&rt, if seed % 2 == 0 { OpenProtocol::Handles } else { OpenProtocol::ZeroMessage });
            let below = Client::new(lower.clone() as Fs);
            // Plain from the start: zeroes only, a disk that begins with zeroes, text, one of ours behind something else.
            let mut content = vec![0; rng.between(1, 40_000) as usize];
            match seed % 4 {
                0 => {}
                1 => {
                    content.resize(40_000, 0);
                    content[1080..1100].fill(1);
                }
                2 => content.fill(b'x'),
                _ => content = [&[1; 512][..], &ours[1]].concat(),
            }
            below.write_file(b"/f", &content).await.unwrap();
            let mut fs = scheme.stack_on(&rt, lower.clone()).await;
            for _ in 0..60 {
                let client = Client::new(fs.clone());
                let files = [OpenFlags::READ_WRITE; 2].map(|flags| client.open(b"/f", flags));
                let files = futures_util::future::try_join_all(files).await.unwrap();
                for _ in 0..rng.between(1, 8) {
                    let (op, file) = (Op::random(&mut rng, &ours, content.len() as u64), *rng.pick(&files));
                    match op.run(&fs, file.ino, file.handle).await {
                        Ok(()) => op.apply(&mut content),
                        Err(FsError::Refused(_)) => refused += 1,
                        Err(error) => panic!("seed {seed}, {op:?}: {error}"),
                    }
                    done += 1;
                    if content.is_empty() {
                        break;
                    }
                }
                for file in files {
                    client.close(file).await.unwrap();
                }
                fs.close().await.unwrap();
                if content.is_empty() {
                    // From here on it is one of the layer's, so there is a new one.
                    content = vec![0; 3_000];
                    below.write_file(b"/f", &content).await.unwrap();
                }
                fs = scheme.stack_on(&rt, lower.clone()).await;
                let read = Client::new(fs.clone()).read_file(b"/f").await;
                assert!(read.as_ref() == Ok(&content), "{scheme:?}, seed {seed}: {:?}", read.map(|bytes| bytes.len()));
                assert!(below.read_file(b"/f").await.unwrap() == content, "seed {seed}: it is not passed through");
            }
            fs.close().await.unwrap();
        });
    }
    println!("{done} changes, of which {refused} were refused");
    assert!(refused * 20 > done || !replay.runs_everything(), "{refused} of {done} changes were refused");
    assert!(refused * 3 < done, "{refused} of {done} changes were refused");
}

/// Passes everything on, a little later.
struct Pausing {
    rt: Rt,
    rng: RefCell<Rng>,
}

impl Pausing {
    async fn pause(&self) {
        let nanos = self.rng.borrow_mut().below(4);
        self.rt.sleep(Nanos(nanos)).await;
    }
}

impl Layer for Pausing {
    type Node = ();

    const NAME: &'static str = "pausing";

    async fn open_node(&self, _lower: &Fs, _attr: &Attr, _place: Option<EntryName<'_>>) -> FsResult<()> {
        Ok(())
    }

    async fn read(&self, at: At<'_, ()>, offset: u64, bytes: u32) -> FsResult<Vec<Data>> {
        self.pause().await;
        let read = at.lower.read(at.ino, at.handle, offset, bytes).await;
        self.pause().await;
        read
    }

    async fn write(&self, at: At<'_, ()>, offset: u64, data: Data, mode: WriteMode) -> FsResult<()> {
        self.pause().await;
        let written = at.lower.write(at.ino, at.handle, offset, data, mode).await;
        self.pause().await;
        written
    }
}

/// Several changes at once, none of which would do it alone, do not make the file one of the layer's either.
#[test]
fn pieces_that_arrive_together_do_not_add_up() {
    let replay = crate::testing::environment::replay("layer::tests::plain::pieces_that_arrive_together_do_not_add_up");
    let (mut refused, mut done) = (0, 0);
    for seed in replay.seeds(0..200) {
        simulate(seed, async |rt| {
            let mut rng = Rng::new(seed);
            let scheme = if seed % 2 == 0 { Scheme::Log } else { Scheme::Classic };
            let ours = scheme.ours(&rt, 9_000, 1).await;
            let lower = lower(&rt, OpenProtocol::Handles);
            let below = Client::new(lower.clone() as Fs);
            // Zeroes with something at the end that may go, or text.
            let mut content = vec![if seed % 4 < 2 { 0 } else { b'x' }; ours.len() + 64];
            content[ours.len()..].fill(1);
            below.write_file(b"/f", &content).await.unwrap();
            let pausing = Pausing { rt: rt.clone(), rng: RefCell::new(Rng::new(seed)) };
            let pausing: Fs = Rc::new(Stacked::new(lower.clone() as Fs, pausing).await.unwrap());
            let fs = scheme.stack_on(&rt, pausing).await;
            let client = Client::new(fs.clone());
            let file = client.open(b"/f", OpenFlags::READ_WRITE).await.unwrap();
            let mut cuts = vec![0, 2, 4, 512, 1024, 1088, ours.len() as u64];
            cuts.extend((0..3).map(|_| rng.below(ours.len() as u64)));
            cuts.sort_unstable();
            cuts.dedup();
            let mut ops: Vec<Op> =
                cuts.windows(2).map(|cut| Op::Write(cut[0], ours[cut[0] as usize..cut[1] as usize].to_vec())).collect();
            ops.push(Op::Resize(ours.len() as u64));
            rng.shuffle(&mut ops);
            let tasks: Vec<_> = ops
                .into_iter()
                .map(|op| {
                    let (rt2, fs, late) = (rt.clone(), fs.clone(), rng.below(6));
                    rt.spawn(async move {
                        rt2.sleep(Nanos(late)).await;
                        op.run(&fs, file.ino, file.handle).await
                    })
                })
                .collect();
            for task in tasks {
                match task.await {
                    Ok(()) => done += 1,
                    Err(FsError::Refused(_)) => refused += 1,
                    Err(error) => panic!("seed {seed}: {error}"),
                }
            }
            client.close(file).await.unwrap();
            fs.close().await.unwrap();
            let client = Client::new(scheme.stack_on(&rt, lower.clone()).await);
            let (read, expected) = (client.read_file(b"/f").await, below.read_file(b"/f").await);
            assert!(read == expected, "{scheme:?}, seed {seed}: {:?}", read.map(|bytes| bytes.len()));
        });
    }
    println!("{done} changes were made and {refused} refused");
    assert!(refused > 50 || !replay.runs_everything(), "{refused}");
}
