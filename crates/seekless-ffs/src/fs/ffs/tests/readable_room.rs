//! Aim: room in groups that cannot be read is neither promised nor shown as available, and keeps no change from the room that there
//! is elsewhere, also on a full host; once such a group is back, its room is used. Method: faults on the blocks of groups.

use super::*;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::fs::ffs::numbers::GroupNo;
use crate::testing::volumes::full_host::Host;

fn lose_group(ffs: &Ffs, fault: &FaultDevice, group: GroupNo) {
    let layout = &ffs.state.borrow().layout;
    let at = layout.group_block(group);
    let end = at + layout.group_block_frags();
    fault.add(Rule::new(Kinds::READ, When::Always, Effect::Error).within(layout.sector(at)..layout.sector(end)));
}

fn name(number: usize) -> Vec<u8> {
    format!("/f{number}").into_bytes()
}

/// Writes a file of so many bytes with one request. Returns the error, and how long the file is then.
async fn write(client: &Client, number: usize, bytes: usize) -> (FsResult<()>, u64) {
    let file = client.create(&name(number)).await.unwrap();
    let written = client.write(file, 0, &vec![number as u8; bytes]).await.map(drop);
    client.close(file).await.unwrap();
    (written, client.stat(&name(number)).await.unwrap().size)
}

/// Fills what can be read of a volume whose first group alone can be read, and removes some of it.
#[test]
fn what_is_free_in_groups_that_cannot_be_read() {
    const FILE: usize = 65_536;
    for metadata in [Metadata::Sync, Metadata::Async, Metadata::Softdep] {
        simulate(1, async |rt| {
            let options = Options { metadata, ..Options::default() };
            let (_, device) = fresh(&rt, 16 * MIB, &small_groups()).await;
            let fault = FaultDevice::new(&rt, device.clone(), 1);
            let ffs = mount(rt.clone(), fault.clone(), options).await.unwrap();
            let client = Client::new(ffs.clone());
            client.fs().drop_caches().await.unwrap();
            let others: Vec<GroupNo> = ffs.state.borrow().layout.group_numbers().skip(1).collect();
            assert!(others.len() > 2, "{metadata:?}: several groups");
            others.iter().for_each(|&group| lose_group(&ffs, &fault, group));
            let mut files = 0;
            loop {
                let (written, _) = write(&client, files, FILE).await;
                files += 1;
                if written.is_err() {
                    assert!(matches!(written, Err(FsError::Device(_))), "{metadata:?}: {written:?}");
                    break;
                }
            }
            assert!(files > 8, "{metadata:?}: {files} files");
            assert_eq!(client.fs().statfs().await.unwrap().blocks_available, 0, "{metadata:?}");
            client.sync().await.unwrap();
            // What has been removed has room for others before it is certain on the volume.
            for number in 0..8 {
                client.unlink(&name(number)).await.unwrap();
            }
            assert_eq!(write(&client, 100, 4 * FILE).await, (Ok(()), 4 * FILE as u64), "{metadata:?}");
            client.sync().await.unwrap();
            let available = client.fs().statfs().await.unwrap().blocks_available as usize * 1024;
            assert!((FILE..=4 * FILE).contains(&available), "{metadata:?}: {available} bytes");
            // A write that has no room changes nothing.
            let (refused, size) = write(&client, 1, 16 * FILE).await;
            assert!(matches!(refused, Err(FsError::Device(_))) && size == 0, "{metadata:?}: {refused:?}, {size} bytes");
            client.unlink(&name(1)).await.unwrap();
            client.sync().await.unwrap();
            assert_eq!(write(&client, 1, available).await, (Ok(()), available as u64), "{metadata:?}");
            fault.clear();
            assert_eq!(write(&client, 2, 32 * FILE).await, (Ok(()), 32 * FILE as u64), "{metadata:?}: back");
            client.sync().await.unwrap();
            assert_eq!(client.read_file(&name(100)).await.unwrap(), vec![100; 4 * FILE], "{metadata:?}");
            assert_eq!(client.read_file(&name(2)).await.unwrap(), vec![2; 32 * FILE], "{metadata:?}");
            assert_eq!(ffs.check().await.unwrap(), Vec::<String>::new(), "{metadata:?}");
            ffs.close().await.unwrap();
            drop((client, ffs));
            assert_clean(&rt, &device).await;
        });
    }
}

/// Of several groups that cannot be read, the one that is back is found, whichever it is.
#[test]
fn one_of_several_groups_comes_back() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 16 * MIB, &small_groups()).await;
        let groups = {
            let ffs = mount(rt.clone(), device.clone(), Options::default()).await.unwrap();
            let groups = ffs.state.borrow().layout.group_numbers().count();
            ffs.close().await.unwrap();
            groups
        };
        for back in 0..groups {
            let (_, device) = fresh(&rt, 16 * MIB, &small_groups()).await;
            let fault = FaultDevice::new(&rt, device.clone(), 1);
            let ffs = mount(rt.clone(), fault.clone(), Options::default()).await.unwrap();
            let client = Client::new(ffs.clone());
            let file = client.create(b"/f").await.unwrap();
            client.fs().drop_caches().await.unwrap();
            let all: Vec<GroupNo> = ffs.state.borrow().layout.group_numbers().collect();
            all.iter().for_each(|&group| lose_group(&ffs, &fault, group));
            assert!(client.write(file, 0, &[1; 30_000]).await.is_err(), "{back}");
            fault.clear();
            all.iter().filter(|group| group.index() != back).for_each(|&group| lose_group(&ffs, &fault, group));
            let mut refused = 0;
            while client.write(file, 0, &[1; 30_000]).await.is_err() {
                refused += 1;
                assert!(refused < 2 * groups, "{back}: it is never tried");
            }
            fault.clear();
            client.close(file).await.unwrap();
            ffs.close().await.unwrap();
            drop((client, ffs));
            assert_clean(&rt, &device).await;
        }
    });
}

/// On a full host, files of all groups become empty, and one group cannot be read then. They get the room of the rest, in the
/// same life and in a later one, and at last that of the group too.
#[test]
fn a_full_host_and_a_group_that_cannot_be_read() {
    const FILE: usize = 100_000;
    for (metadata, again) in
        [Metadata::Sync, Metadata::Softdep].into_iter().flat_map(|mode| [false, true].map(|again| (mode, again)))
    {
        simulate(1, async |rt| {
            let what = format!("{metadata:?}, later life: {again}");
            let options = Options { metadata, ..Options::default() };
            let mut host = Host::new(64 * MIB);
            mkfs(&rt, &(host.clone() as Device), &small_groups()).await.unwrap();
            host.free(3000);
            let mut fault = FaultDevice::new(&rt, host.clone(), 1);
            let mut ffs = mount(rt.clone(), fault.clone(), options).await.unwrap();
            let mut client = Client::new(ffs.clone());
            let mut files = 0;
            loop {
                let written = client.write_file(&name(files), &[files as u8; FILE]).await;
                if written.is_err() || client.fsync_path(&name(files)).await.is_err() {
                    break;
                }
                files += 1;
            }
            assert!(files > 80, "{what}: {files} files");
            let _ = client.unlink(&name(files)).await;
            host.fill();
            let removed: Vec<usize> = (0..files).filter(|number| number % 3 == 0).collect();
            for &number in &removed {
                client.truncate(&name(number), 0).await.unwrap(); // Another inode might be in a block without storage.
            }
            client.sync().await.unwrap();
            let lost = {
                let state = ffs.state.borrow();
                let first = *state.backing.freed.first().expect("some are free");
                state.layout.group_of(state.layout.block_start(first))
            };
            if again {
                drop((client, ffs));
                host = host.killed();
                fault = FaultDevice::new(&rt, host.clone(), 1);
                ffs = mount(rt.clone(), fault.clone(), options).await.unwrap();
                client = Client::new(ffs.clone());
            }
            client.fs().drop_caches().await.unwrap();
            lose_group(&ffs, &fault, lost);
            let mut written = 0;
            let write = async |number: usize| {
                client.write_file(&name(number), &[number as u8; FILE]).await?;
                client.fsync_path(&name(number)).await
            };
            while written < removed.len() / 3 {
                let number = removed[written];
                write(number).await.unwrap_or_else(|error| panic!("{what}, file {written}: {error}"));
                written += 1;
            }
            // Until the host has no room that can be used: that is its error, and not that of the group.
            let mut end = Ok(());
            while written < removed.len() && end.is_ok() {
                end = write(removed[written]).await;
                written += usize::from(end.is_ok());
            }
            assert_eq!(end, Err(FsError::NoSpace), "{what}: after {written} files");
            fault.clear();
            let before = written;
            let mut refused = 0;
            while written < removed.len() - 2 && refused < 64 {
                match write(removed[written]).await {
                    Ok(()) => written += 1,
                    Err(_) => refused += 1,
                }
            }
            assert!(written > before, "{what}: the group is back, and {before} of {} files are there", removed.len());
            for &number in &removed[..written] {
                assert!(client.read_file(&name(number)).await == Ok(vec![number as u8; FILE]), "{what}: {number}");
            }
            assert_eq!(ffs.check().await.unwrap(), Vec::<String>::new(), "{what}");
            ffs.close().await.unwrap();
            drop((client, ffs));
            assert_clean(&rt, &(host.clone() as Device)).await;
        });
    }
}
