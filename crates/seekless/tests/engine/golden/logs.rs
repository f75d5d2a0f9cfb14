//! Golden volumes of the file systems over a log: their common code, including the volume with access-control lists.

use std::fmt::Write as _;
use std::rc::Rc;

use seekless::device::{Device, Image, Memory};
use seekless::fs::acl::{XATTR_ACL_ACCESS, XATTR_ACL_DEFAULT};
use seekless::fs::client::Client;
use seekless::fs::{Fs, FsResult, RenameMode, SetAttr};
use seekless::rt::Rt;
use seekless::units::{Nanos, SECTOR_BYTES};

use super::{
    VOLUME_BYTES, bytes_of, compare_listing, device_of, first_difference, folder, is_blessing, listing, run, store,
    stored_images, text, unpack,
};

/// Result of a file system's own check.
pub(super) struct Checked {
    /// The whole result, after the content of the superblock.
    pub text: String,
    pub errors: Vec<String>,
    /// Findings that mounting repairs.
    pub notes: Vec<String>,
}

/// A file system over a log, with a volume for its golden images.
pub(super) trait GoldenLog {
    /// Prefix of the names of its images.
    const NAME: &'static str;

    async fn mkfs(rt: &Rt, device: &Device) -> FsResult<()>;

    async fn mount(rt: &Rt, device: &Device, read_only: bool) -> FsResult<Fs>;

    async fn check(rt: &Rt, device: &Device) -> FsResult<Checked>;

    /// A dump that shows how two volumes differ.
    async fn dump(rt: &Rt, device: &Device) -> FsResult<String>;

    /// Makes a volume and uses every feature of the format on it. Ends without closing.
    async fn live(rt: &Rt, device: &Device) -> FsResult<()>;
}

/// Numbers of the images that are made: `lfs-1` by [`GoldenLog::live`], `lfs-2` by [`live_with_lists`].
const NUMBERS: [u32; 2] = [1, 2];

/// Aim: volumes of old code open with the current code. Method: every stored image is checked, mounted as the power cut
/// left it, listed, and compared with its stored listing; then it is mounted for writing, used, closed and checked
/// again.
pub(super) fn check_images<L: GoldenLog>() {
    if is_blessing() {
        for number in NUMBERS {
            let image = make::<L>(number);
            store(&format!("{}-{number}", L::NAME), &image, &describe::<L>(&image));
        }
    }
    for path in stored_images(&format!("{}-", L::NAME)) {
        let image = unpack(&std::fs::read(&path).expect("a golden image"));
        compare_listing(&path, &describe::<L>(&image));
        goes_on_living::<L>(&image);
    }
}

/// Aim: the current code writes the same bytes as ever; so a run replays on any machine, with any build. Method: the
/// scripts that made the images, again; where images differ, the first difference.
pub(super) fn check_made_again<L: GoldenLog>() {
    if is_blessing() {
        return; // The other test is writing them.
    }
    for number in NUMBERS {
        let path = folder().join(format!("{}-{number}.img.gz", L::NAME));
        let stored = unpack(&std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
        let made = make::<L>(number);
        let (old, new) = (bytes_of(&stored), bytes_of(&made));
        let sectors = old.chunks(SECTOR_BYTES as usize).zip(new.chunks(SECTOR_BYTES as usize)).enumerate();
        let differing: Vec<usize> = sectors.filter(|(_, (old, new))| old != new).map(|(number, _)| number).collect();
        if differing.is_empty() {
            continue;
        }
        let dump = |image: &Image| {
            run(async |rt| L::dump(&rt, &device_of(image)).await).unwrap_or_else(|error| error.to_string())
        };
        let mut report = format!(
            "{}: {} sectors differ from what today's code writes, the first ones {:?}",
            path.display(),
            differing.len(),
            &differing[..differing.len().min(10)]
        );
        if let Some(difference) = first_difference(&dump(&stored), &dump(&made)) {
            write!(report, "\n{difference}").expect("a string grows");
        }
        panic!(
            "{report}\n\nIf that is intended, and the listing stays right: SEEKLESS_BLESS=1 cargo test -p seekless --test \
             engine golden\nA pair that was released is first kept under another name.\n"
        );
    }
}

/// The volume that a script leaves when the power fails at its end.
fn make<L: GoldenLog>(number: u32) -> Image {
    run(async |rt| {
        let memory = Rc::new(Memory::new(VOLUME_BYTES));
        let device: Device = memory.clone();
        let lived = match number {
            1 => L::live(&rt, &device).await,
            _ => live_with_lists::<L>(&rt, &device).await,
        };
        lived.unwrap_or_else(|error| panic!("{error}"));
        memory.image()
    })
}

/// The current code's full description of a volume as a power cut left it.
fn describe<L: GoldenLog>(image: &Image) -> String {
    run(async |rt| {
        let device = device_of(image);
        let checked = L::check(&rt, &device).await.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(checked.errors, Vec::<String>::new());
        let mounted = L::mount(&rt, &device, true).await.unwrap_or_else(|error| panic!("{error}"));
        checked.text + &listing(mounted).await.unwrap_or_else(|error| panic!("{error}"))
    })
}

/// Mounts for writing: orphans are removed, the tree stays, and after some more use the volume is sound.
fn goes_on_living<L: GoldenLog>(image: &Image) {
    run(async |rt| {
        let device = device_of(image);
        let mounted = L::mount(&rt, &device, false).await.expect("it mounts");
        let client = Client::new(mounted.clone());
        client.write_file(b"/new", b"new").await.expect("there is room");
        client.unlink(b"/new").await.expect("it can go again");
        mounted.close().await.expect("it closes");
        drop((client, mounted));
        let checked = L::check(&rt, &device).await.expect("it can be checked");
        assert_eq!((checked.errors, checked.notes), (vec![], vec![]), "nothing is left to mend");
    });
}

/// Access-control lists of every kind: on files and directories, short and longer than a block, inherited, beside other
/// attributes, changed by chmod, removed, and the last change not synced. Ends without closing.
async fn live_with_lists<L: GoldenLog>(rt: &Rt, device: &Device) -> FsResult<()> {
    L::mkfs(rt, device).await?;

    // First life: lists are set, inherited and changed, and the volume is closed.
    let mounted = L::mount(rt, device, false).await?;
    let client = Client::new(mounted.clone());
    let chmod = |permissions| SetAttr { permissions: Some(permissions), ..SetAttr::default() };
    for (directory, users) in [("/few", 1), ("/some", 40), ("/many", 600)] {
        client.mkdir(directory.as_bytes()).await?;
        client.set_xattr(directory.as_bytes(), XATTR_ACL_DEFAULT, &list(users, 7, 5)).await?;
        for file in 0..6u32 {
            // With the list of the directory, which chmod changes in some.
            let path = format!("{directory}/file{file}");
            client.write_file(path.as_bytes(), &text(file, 3_000 * file)).await?;
            if file % 2 == 1 {
                client.setattr(path.as_bytes(), chmod(0o604)).await?;
            }
            rt.sleep(Nanos::from_millis(250)).await;
        }
        // With both lists, and another below it.
        client.mkdir(format!("{directory}/below").as_bytes()).await?;
        client.write_file(format!("{directory}/below/file").as_bytes(), &text(50, 100)).await?;
    }
    client.mkdir(b"/plain").await?;
    for file in 0..8u32 {
        let path = format!("/plain/file{file}");
        client.write_file(path.as_bytes(), &text(100 + file, 1_000 * file)).await?;
        client.set_xattr(path.as_bytes(), b"user.beside", &text(200 + file, 50 * file)).await?;
        client.set_xattr(path.as_bytes(), XATTR_ACL_ACCESS, &list(file, 6, 4)).await?;
    }
    client.remove_xattr(b"/some/below", XATTR_ACL_DEFAULT).await?;
    client.remove_xattr(b"/plain/file3", XATTR_ACL_ACCESS).await?;
    mounted.close().await?;
    drop((client, mounted));

    // Second life: each change is synced, except the last.
    let mounted = L::mount(rt, device, false).await?;
    let client = Client::new(mounted.clone());
    for (file, users) in [(1, 2), (4, 500), (5, 0)] {
        let path = format!("/plain/file{file}");
        client.set_xattr(path.as_bytes(), XATTR_ACL_ACCESS, &list(users, 5, 1)).await?;
        client.fsync_path(path.as_bytes()).await?;
        rt.sleep(Nanos::from_secs(16)).await;
    }
    client.setattr(b"/many/file0", chmod(0o750)).await?;
    client.remove_xattr(b"/few", XATTR_ACL_DEFAULT).await?;
    client.rename(b"/many/below", b"/few/moved", RenameMode::NoReplace).await?;
    client.write_file(b"/many/late", &text(300, 5_000)).await?;
    client.fsync_path(b"/many/late").await?;
    client.fsync_path(b"/many/file0").await?;
    client.fsync_dir(b"/few").await?;
    client.set_xattr(b"/plain/file6", XATTR_ACL_ACCESS, &list(3, 0, 0)).await
}

/// A list in the form of `linux/posix_acl_xattr.h` that names this many users, each with `rights`. Without users, it
/// says no more than permissions do.
fn list(users: u32, rights: u16, other: u16) -> Vec<u8> {
    const VERSION: u32 = 2;
    const NOBODY: u32 = u32::MAX;
    let mut value = VERSION.to_le_bytes().to_vec();
    let mut add = |tag: u16, rights: u16, id: u32| {
        value.extend(tag.to_le_bytes());
        value.extend(rights.to_le_bytes());
        value.extend(id.to_le_bytes());
    };
    add(0x01, 7, NOBODY);
    (0..users).for_each(|user| add(0x02, rights, 1_000 + user));
    add(0x04, rights, NOBODY);
    if users > 0 {
        add(0x10, 7, NOBODY);
    }
    add(0x20, other, NOBODY);
    value
}
