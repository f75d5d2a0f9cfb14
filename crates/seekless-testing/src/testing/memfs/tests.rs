//! Aim: the model does what POSIX says, since it is the reference for everything else. Method: short programs through
//! the client and the interface, one for each rule.

use super::*;
use crate::fs::client::{Client, OpenFile};
use crate::rt::{Executor, HostProfile};
use crate::units::Nanos;

struct Bench {
    rt: Rt,
    fs: Rc<MemFs>,
    client: Client,
}

impl Bench {
    fn changes(&self, ino: Ino, before: &Attr) -> (bool, bool) {
        let after = self.fs.node(ino).expect("an inode in use").attr(ino);
        (after.mtime != before.mtime, after.ctime != before.ctime)
    }

    /// Attributes now, and a tick so that the next change shows in the times.
    async fn stat(&self, path: &str) -> Attr {
        let attr = self.client.stat(path.as_bytes()).await.expect(path);
        self.rt.sleep(Nanos(1)).await;
        attr
    }
}

fn run(options: MemFsOptions, body: impl AsyncFnOnce(Bench)) {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt().clone();
    executor
        .block_on(async move {
            let fs = MemFs::with_options(&rt, options);
            body(Bench { rt, fs: fs.clone(), client: Client::new(fs.clone()) }).await;
            assert_eq!(fs.leaks(), Leaks::default());
        })
        .expect("the model never waits");
}

fn run_both(body: impl AsyncFn(Bench)) {
    for open_protocol in [OpenProtocol::ZeroMessage, OpenProtocol::Handles] {
        run(MemFsOptions { open_protocol, ..MemFsOptions::default() }, &body);
    }
}

/// Link counts: 2 for a directory plus 1 for each subdirectory, the number of names for a file, through every kind of
/// rename.
#[test]
fn link_counts() {
    run_both(async |bench| {
        let links = async |path: &str| bench.stat(path).await.links;
        let client = &bench.client;
        for path in ["/a", "/b", "/a/x", "/b/y"] {
            client.mkdir(path.as_bytes()).await.unwrap();
        }
        client.write_file(b"/b/f", b"1").await.unwrap();
        assert_eq!((links("/").await, links("/a").await, links("/b").await), (4, 3, 3));
        client.rename(b"/a/x", b"/b/f", RenameMode::Exchange).await.unwrap();
        assert_eq!((links("/a").await, links("/b").await, links("/a/x").await), (2, 4, 1));
        client.rename(b"/b/y", b"/b/f", RenameMode::Replace).await.unwrap();
        assert_eq!((links("/b").await, links("/b/f").await), (3, 2));
        client.link(b"/a/x", b"/b/z").await.unwrap();
        assert_eq!(links("/b/z").await, 2);
        client.rename(b"/a/x", b"/b/z", RenameMode::Replace).await.unwrap();
        assert_eq!(links("/a/x").await, 2, "two names of one file: nothing happens");
        client.unlink(b"/a/x").await.unwrap();
        assert_eq!(links("/b/z").await, 1);
        client.rmdir(b"/b/f").await.unwrap();
        assert_eq!(links("/b").await, 2);
    });
}

/// Each refused operation gives the error that a Unix program expects, and changes nothing.
#[test]
fn errors() {
    run_both(async |bench| {
        let client = &bench.client;
        client.mkdir(b"/d").await.unwrap();
        client.mkdir(b"/d/e").await.unwrap();
        client.mkdir(b"/empty").await.unwrap();
        client.write_file(b"/f", b"").await.unwrap();
        bench.fs.take_touched();
        let rename = async |from: &str, to: &str, mode| client.rename(from.as_bytes(), to.as_bytes(), mode).await;
        let long = vec![b'n'; 256];
        assert_eq!(client.unlink(b"/d").await, Err(FsError::IsDirectory));
        assert_eq!(client.rmdir(b"/d").await, Err(FsError::NotEmpty));
        assert_eq!(client.rmdir(b"/f").await, Err(FsError::NotDirectory));
        assert_eq!(client.mkdir(b"/f").await, Err(FsError::Exists));
        assert_eq!(client.mkdir(b"/f/x").await, Err(FsError::NotDirectory));
        assert_eq!(client.mkdir(&long).await, Err(FsError::NameTooLong));
        assert_eq!(client.stat(&long).await, Err(FsError::NameTooLong));
        assert_eq!(client.link(b"/d", b"/l").await, Err(FsError::NotPermitted));
        assert_eq!(client.link(b"/f", b"/d").await, Err(FsError::Exists));
        assert_eq!(client.symlink(&[b't'; 4096], b"/s").await, Err(FsError::NameTooLong));
        assert_eq!(rename("/d", "/d/e/x", RenameMode::Replace).await, Err(FsError::Loop));
        assert_eq!(rename("/d/e", "/d", RenameMode::Exchange).await, Err(FsError::Loop));
        assert_eq!(rename("/d", "/f", RenameMode::Replace).await, Err(FsError::NotDirectory));
        assert_eq!(rename("/f", "/d", RenameMode::Replace).await, Err(FsError::IsDirectory));
        assert_eq!(rename("/empty", "/d", RenameMode::Replace).await, Err(FsError::NotEmpty));
        assert_eq!(rename("/f", "/empty", RenameMode::NoReplace).await, Err(FsError::Exists));
        assert_eq!(rename("/f", "/g", RenameMode::Exchange).await, Err(FsError::NotFound));
        assert_eq!(rename("/g", "/f", RenameMode::Replace).await, Err(FsError::NotFound));
        assert_eq!(client.truncate(b"/d", 0).await, Err(FsError::IsDirectory));
        assert_eq!(client.truncate(b"/f", u64::MAX).await, Err(FsError::FileTooLarge));
        assert_eq!(client.set_xattr(b"/f", b"system.nfs4_acl", b"").await, Err(FsError::Unsupported));
        assert_eq!(client.get_xattr(b"/f", b"user.none").await, Err(FsError::NoAttribute));
        assert_eq!(
            client.set_xattr(b"/f", b"user.big", &[0; 65537]).await,
            Err(FsError::AttributesTooLarge(XATTR_BYTES_MAX))
        );
        assert_eq!(bench.fs.getattr(Ino(99), None).await, Err(FsError::Stale));
        assert_eq!(bench.fs.take_touched(), BTreeSet::new());
    });
}

/// An unlinked file lives until its last user has gone; a removed directory accepts no new names until then.
#[test]
fn unlinked_inodes_live_while_used() {
    run_both(async |bench| {
        let client = &bench.client;
        client.write_file(b"/f", b"content").await.unwrap();
        client.mkdir(b"/d").await.unwrap();
        let file = client.open(b"/f", OpenFlags::READ_WRITE).await.unwrap();
        let directory = client.open(b"/d", OpenFlags::READ).await.unwrap();
        client.unlink(b"/f").await.unwrap();
        client.rmdir(b"/d").await.unwrap();
        client.write(file, 7, b" grows").await.unwrap();
        assert_eq!(client.read(file, 0, 100).await.unwrap(), b"content grows");
        assert_eq!(bench.fs.getattr(file.ino, file.handle).await.unwrap().links, 0);
        assert_eq!(bench.fs.link(file.ino, Ino::ROOT, b"again").await, Err(FsError::NotFound));
        let new = NewNode { permissions: 0o755, umask: 0, uid: 0, gid: 0 };
        assert_eq!(bench.fs.mkdir(directory.ino, b"x", new).await, Err(FsError::NotFound));
        assert_eq!(bench.fs.leaks().orphans, 2);
        for OpenFile { ino, handle } in [file, directory] {
            client.close(OpenFile { ino, handle }).await.unwrap();
            assert_eq!(bench.fs.getattr(ino, None).await, Err(FsError::Stale));
        }
        assert_eq!(bench.fs.statfs().await.unwrap().blocks_free, (1 << 30) / 4096);
    });
}

/// Which operation changes mtime and ctime of which inode.
#[test]
fn times() {
    run_both(async |bench| {
        let client = &bench.client;
        client.mkdir(b"/d").await.unwrap();
        client.mkdir(b"/e").await.unwrap();
        client.write_file(b"/d/f", b"x").await.unwrap();
        let (d, e, f) = (bench.stat("/d").await, bench.stat("/e").await, bench.stat("/d/f").await);
        let all = || [bench.changes(d.ino, &d), bench.changes(e.ino, &e), bench.changes(f.ino, &f)];
        let (none, ctime, both) = ((false, false), (false, true), (true, true));
        client.read_file(b"/d/f").await.unwrap();
        client.read_dir(b"/d").await.unwrap();
        assert_eq!(all(), [none, none, none]);
        client.setattr(b"/d/f", SetAttr { permissions: Some(0o600), ..SetAttr::default() }).await.unwrap();
        assert_eq!(all(), [none, none, ctime]);
        client.link(b"/d/f", b"/e/g").await.unwrap();
        assert_eq!(all(), [none, both, ctime]);
        let (d, e, f) = (bench.stat("/d").await, bench.stat("/e").await, bench.stat("/d/f").await);
        let all = || [bench.changes(d.ino, &d), bench.changes(e.ino, &e), bench.changes(f.ino, &f)];
        client.truncate(b"/d/f", 1).await.unwrap();
        assert_eq!(all(), [none, none, both], "truncation to the same size");
        client.rename(b"/e/g", b"/e/h", RenameMode::Replace).await.unwrap();
        assert_eq!(all(), [none, both, both]);
        client.rename(b"/d/f", b"/f", RenameMode::Replace).await.unwrap();
        assert_eq!(all(), [both, both, both]);
        let f = bench.stat("/f").await;
        client.set_xattr(b"/f", b"user.a", b"1").await.unwrap();
        assert_eq!(bench.changes(f.ino, &f), ctime);
        let f = bench.stat("/f").await;
        client.unlink(b"/f").await.unwrap();
        assert_eq!(bench.changes(f.ino, &f), ctime);
        let past = WallTime { seconds: -5, nanos: 7 };
        let changes = SetAttr { mtime: Some(SetTime::At(past)), atime: Some(SetTime::Now), ..SetAttr::default() };
        let set = client.setattr(b"/e/h", changes).await.unwrap();
        assert_eq!((set.mtime, set.atime, set.ctime), (past, bench.rt.wall(), bench.rt.wall()));
    });
}

/// New files in a set-group-id directory take its group, and new directories pass the bit on.
#[test]
fn set_group_id_directories() {
    run_both(async |bench| {
        let client = &bench.client;
        client.mkdir(b"/d").await.unwrap();
        let changes = SetAttr { permissions: Some(0o2775), gid: Some(7), ..SetAttr::default() };
        client.setattr(b"/d", changes).await.unwrap();
        client.mkdir(b"/d/sub").await.unwrap();
        client.write_file(b"/d/sub/f", b"").await.unwrap();
        let (sub, file) = (bench.stat("/d/sub").await, bench.stat("/d/sub/f").await);
        assert_eq!((sub.gid, sub.permissions, file.gid, file.permissions), (7, 0o2755, 7, 0o644));
    });
}

/// A write removes set-id bits when the caller says so, and capabilities always.
#[test]
fn privileges() {
    run_both(async |bench| {
        let client = &bench.client;
        client.write_file(b"/f", b"x").await.unwrap();
        for (permissions, kill, after) in [(0o6755, true, 0o755), (0o6745, true, 0o2745), (0o6755, false, 0o6755)] {
            client.setattr(b"/f", SetAttr { permissions: Some(permissions), ..SetAttr::default() }).await.unwrap();
            client.set_xattr(b"/f", XATTR_CAPABILITY, b"all").await.unwrap();
            let file = client.open(b"/f", OpenFlags::READ_WRITE).await.unwrap();
            let mode = WriteMode { kill_privileges: kill, ..WriteMode::default() };
            bench.fs.write(file.ino, file.handle, 0, Data::from_slice(b"y"), mode).await.unwrap();
            client.close(file).await.unwrap();
            assert_eq!(bench.stat("/f").await.permissions, after);
            assert_eq!(client.get_xattr(b"/f", XATTR_CAPABILITY).await, Err(FsError::NoAttribute));
        }
    });
}

/// Collects a listing one entry at a time.
struct One(Option<(Vec<u8>, u64)>);

impl DirSink for One {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        if self.0.is_some() {
            return false;
        }
        self.0 = Some((entry.name.to_vec(), entry.cookie));
        true
    }
}

/// Names that exist during the whole listing come exactly once, whatever changes around them.
#[test]
fn listing_survives_changes() {
    run_both(async |bench| {
        let client = &bench.client;
        for i in 0..50 {
            client.write_file(format!("/stays{i}").as_bytes(), b"").await.unwrap();
            client.write_file(format!("/goes{i}").as_bytes(), b"").await.unwrap();
        }
        let root = client.open(b"/", OpenFlags::READ).await.unwrap();
        let (mut cookie, mut names) = (0, Vec::new());
        for step in 0.. {
            let mut one = One(None);
            bench.fs.readdir(Ino::ROOT, root.handle, cookie, true, &mut one).await.unwrap();
            let Some((name, next)) = one.0 else { break };
            cookie = next;
            if name != b"." && name != b".." {
                bench.fs.forget(client.stat(&name).await.unwrap().ino, 1).await;
            }
            names.push(name);
            if step < 50 {
                client.unlink(format!("/goes{step}").as_bytes()).await.unwrap();
                client.write_file(format!("/new{step}").as_bytes(), b"").await.unwrap();
                client.rename(format!("/new{step}").as_bytes(), b"/stays7", RenameMode::Replace).await.unwrap();
            }
        }
        client.close(root).await.unwrap();
        let mut stays: Vec<_> = names.iter().filter(|name| name.starts_with(b"stays")).collect();
        assert_eq!((&names[0][..], &names[1][..]), (&b"."[..], &b".."[..]));
        stays.sort();
        stays.dedup();
        assert_eq!(stays.len(), 50);
        assert_eq!(names.iter().filter(|name| name.starts_with(b"stays")).count(), 50);
    });
}

/// A full file system refuses whole writes, and accepts them again after a deletion.
#[test]
fn no_space() {
    run(MemFsOptions { capacity_bytes: 8192, ..MemFsOptions::default() }, async |bench| {
        let client = &bench.client;
        client.write_file(b"/a", &[1; 5000]).await.unwrap();
        assert_eq!(client.write_file(b"/b", &[2; 10]).await, Err(FsError::NoSpace));
        let file = client.open(b"/a", OpenFlags::READ_WRITE).await.unwrap();
        assert_eq!(client.write(file, 100, &[3; 9000]).await, Err(FsError::NoSpace));
        client.write(file, 100, &[3; 8000]).await.unwrap();
        client.close(file).await.unwrap();
        let range = FileRange { offset: 8192, bytes: 1 };
        let mode = AllocateMode::Allocate { keep_size: true };
        assert_eq!(client.fallocate(b"/a", range, mode).await, Err(FsError::NoSpace));
        client.fallocate(b"/a", FileRange { offset: 0, bytes: 4096 }, AllocateMode::PunchHole).await.unwrap();
        client.fallocate(b"/a", range, mode).await.unwrap();
        assert_eq!(bench.stat("/a").await.size, 8100);
        client.truncate(b"/a", 8192).await.unwrap();
        client.write_file(b"/b", &[2; 10]).await.unwrap();
        client.unlink(b"/a").await.unwrap();
        client.unlink(b"/b").await.unwrap();
        assert_eq!(bench.fs.statfs().await.unwrap().blocks_free, 2);
    });
}

/// Preallocation, zeroing and punching change size, content and storage as on Linux.
#[test]
fn allocation_modes() {
    run_both(async |bench| {
        let client = &bench.client;
        client.write_file(b"/f", &[7; 10_000]).await.unwrap();
        let call = async |offset, bytes, mode| client.fallocate(b"/f", FileRange { offset, bytes }, mode).await;
        assert!(matches!(call(0, 0, AllocateMode::PunchHole).await, Err(FsError::Invalid(_))));
        assert_eq!(call(1, u64::MAX, AllocateMode::PunchHole).await, Err(FsError::FileTooLarge));
        call(20_000, 5, AllocateMode::Allocate { keep_size: true }).await.unwrap();
        assert_eq!(bench.stat("/f").await.size, 10_000);
        call(1_000, 4_000, AllocateMode::Zero { keep_size: false }).await.unwrap();
        call(5_000, 20_000, AllocateMode::PunchHole).await.unwrap();
        assert_eq!(bench.stat("/f").await.size, 10_000);
        let content = client.read_file(b"/f").await.unwrap();
        assert_eq!(content, [vec![7; 1_000], vec![0; 9_000]].concat());
        call(0, 12_345, AllocateMode::Zero { keep_size: false }).await.unwrap();
        assert_eq!(client.read_file(b"/f").await.unwrap(), vec![0; 12_345]);
        assert_eq!(bench.stat("/f").await.sectors, 4 * 8);
    });
}
