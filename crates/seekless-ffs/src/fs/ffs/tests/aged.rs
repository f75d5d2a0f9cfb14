//! Aim: an aged volume is consistent, as full as was asked for, and its free space lies as [se95 §5.2] says. Method: volumes of
//! many shapes, each checked, read through and used; maps of free space counted in parts of groups.

use super::*;

/// Groups of 1520 blocks, as four of the six file systems of [se95 Table 4].
fn table_4(aged: u32, id: u32) -> MkfsOptions {
    let drive = DriveShape { sectors_per_track: 80, tracks_per_cylinder: 19, revolutions_per_minute: 5400 };
    let shape = MkfsOptions::new([1, id]).profile(Profile::M8R0, drive);
    MkfsOptions { maxcontig: 7, groups_max: 10, aged: (aged > 0).then_some(aged), ..shape }
}

const VOLUME: u64 = 11 * 1520 * 8192;

/// The free blocks of every group, in order.
async fn free_blocks(ffs: &Ffs) -> Vec<Vec<bool>> {
    let layout = ffs.state.borrow().layout.clone();
    let mut groups = Vec::new();
    for group in layout.group_numbers() {
        let blocks = 0..layout.group_frags(group) / layout.frag;
        let free = |map: &mut group::GroupMut<'_>| Some(blocks.clone().map(|block| map.is_block_free(block)).collect());
        groups.push(ffs.step(|state| state.change_group(group, free)).await.expect("a group").expect("a map"));
    }
    groups
}

fn count(blocks: &[bool]) -> f64 {
    blocks.iter().filter(|free| **free).count() as f64
}

/// Every shape is consistent, its ballast can be read and removed, and then the volume is empty and consistent.
#[test]
fn aged_volumes_are_consistent() {
    simulate(1, async |rt| {
        let shapes = [
            table_4(75, 1),
            MkfsOptions { aged: Some(1), ..small_groups() },
            MkfsOptions { aged: Some(90), ..small_groups() },
            MkfsOptions { aged: Some(60), lite2: true, ..small_groups() },
            // So small blocks that pointers take three levels.
            MkfsOptions { aged: Some(85), block_bytes: 4096, frag_bytes: 512, ..small_groups() },
            MkfsOptions { aged: Some(50), block_bytes: 16_384, frag_bytes: 16_384, ..small_groups() },
        ];
        for shape in shapes {
            let (_, device) = fresh(&rt, VOLUME, &shape).await;
            assert_clean(&rt, &device).await;
            session(&rt, &device, Options::default(), async |client| {
                let names: Vec<_> =
                    client.read_dir(b"/").await.expect("the root").into_iter().map(|e| e.name).collect();
                assert_eq!(names, [BALLAST.as_bytes().to_vec()], "{shape:?}");
                client.write_file(b"/f", &[7; 100_000]).await.expect("there is room");
                let bytes = client.stat(b"/ballast").await.expect("stat").size;
                assert_eq!(client.read_file(b"/ballast").await.expect("it can be read").len() as u64, bytes);
                client.unlink(b"/ballast").await.expect("it is a file as any other");
                assert_eq!(client.read_file(b"/f").await, Ok(vec![7; 100_000]), "{shape:?}");
            })
            .await;
        }
    });
}

/// A volume is as full as was asked for, and the same identity gives the same one.
#[test]
fn aged_volumes_are_as_full_as_asked_for() {
    simulate(1, async |rt| {
        for percent in [20, 60, 75, 90] {
            let mut maps = Vec::new();
            for id in [1, 1, 2] {
                let (_, device) = fresh(&rt, VOLUME, &table_4(percent, id)).await;
                let ffs = mount(rt.clone(), device.clone(), Options::default()).await.expect("mount");
                let layout = ffs.state.borrow().layout.clone();
                assert_eq!((layout.groups, layout.frags_per_group), (10, 1520 * 8));
                let free = ffs.state.borrow().totals.nbfree as f64 * f64::from(layout.frag);
                let found = 100.0 * (1.0 - free / f64::from(layout.dsize));
                assert!((found - f64::from(percent)).abs() < 1.0, "{found} % of {percent} %");
                maps.push(free_blocks(&ffs).await);
                ffs.close().await.expect("close");
            }
            assert!(maps[0] == maps[1] && maps[0] != maps[2]);
        }
    });
}

/// Most free space is near the ends of groups, and the pieces in front are shorter.
#[test]
fn free_space_lies_at_the_end() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, VOLUME, &table_4(75, 3)).await;
        let ffs = mount(rt.clone(), device.clone(), Options::default()).await.expect("mount");
        let (mut halves, mut runs) = ([0.0; 2], [[0.0; 2]; 2]);
        for group in free_blocks(&ffs).await {
            let (front, behind) = group.split_at(group.len() / 2);
            let (first, last) = (&group[..group.len() / 10], &group[group.len() / 4 * 3..]);
            (halves[0], halves[1]) = (halves[0] + count(front), halves[1] + count(behind));
            for (part, blocks) in [first, last].into_iter().enumerate() {
                runs[part][0] += count(blocks);
                runs[part][1] += blocks.windows(2).filter(|pair| pair[0] && !pair[1]).count() as f64;
            }
        }
        assert!(halves[1] > 2.0 * halves[0], "{halves:?}");
        let [front, behind] = runs.map(|[blocks, ends]| blocks / ends);
        assert!(front < 2.5 && behind > 10.0, "runs of {front} and {behind} blocks");
        ffs.close().await.expect("close");
    });
}

/// The first free block of a group is that with which the first new file there begins, almost always [se95 §5.2]: as in 4.4BSD, the
/// search begins with the second block, so that the first one is left where it is free. Method: a file in every group of
/// volumes that are 75 % full, and the map before it.
#[test]
fn the_first_free_block_begins_a_file() {
    simulate(1, async |rt| {
        let (mut files, mut first) = (0, 0);
        for (id, blocks) in [(1, 1), (2, 2), (3, 8), (4, 32)] {
            let (_, device) = fresh(&rt, VOLUME, &table_4(75, id)).await;
            let ffs = mount(rt.clone(), device.clone(), Options::default()).await.expect("mount");
            let layout = ffs.state.borrow().layout.clone();
            let client = Client::new(ffs.clone());
            for group in 0..10 {
                let (dir, file) = (format!("/d{group}"), format!("/d{group}/f"));
                client.mkdir(dir.as_bytes()).await.expect("mkdir");
                let free = free_blocks(&ffs).await;
                client.write_file(file.as_bytes(), &vec![1; blocks * 8192]).await.expect("there is room");
                let (ino, places) = super::policy::place(&ffs, &client, file.as_bytes()).await;
                let group = layout.group_of_ino(ino);
                let index = layout.group_numbers().position(|number| number == group).expect("a group");
                let block = free[index].iter().position(|free| *free).expect("there is room") as u32;
                files += 1;
                let next = free[index].iter().skip(1).position(|free| *free).expect("there is room") as u32 + 1;
                assert_eq!(places[0], layout.group_base(group) + next * layout.frag);
                first += u32::from(next == block);
            }
            ffs.close().await.expect("close");
        }
        assert_eq!((first, files), (34, 40));
    });
}

/// The files of a directory lie further apart than on an empty file system [se95 §5.5]. Method: directories of 25 files of a block, as
/// there, on empty volumes and on volumes that are 75 % full; from the first block to the last.
#[test]
fn files_of_a_directory_are_spread_out() {
    simulate(1, async |rt| {
        let mut spread = [0; 2];
        for id in 1..=3 {
            for (aged, spread) in [0, 75].into_iter().zip(&mut spread) {
                let (_, device) = fresh(&rt, VOLUME, &table_4(aged, id)).await;
                let ffs = mount(rt.clone(), device.clone(), Options::default()).await.expect("mount");
                let client = Client::new(ffs.clone());
                for dir in 0..10 {
                    client.mkdir(format!("/d{dir}").as_bytes()).await.expect("mkdir");
                    let mut places = Vec::new();
                    for file in 0..25 {
                        let path = format!("/d{dir}/f{file}");
                        client.write_file(path.as_bytes(), &[1; 8192]).await.expect("there is room");
                        places.extend(super::policy::place(&ffs, &client, path.as_bytes()).await.1);
                    }
                    *spread += places.iter().max().expect("files").0 - places.iter().min().expect("files").0;
                }
                ffs.close().await.expect("close");
            }
        }
        let [empty, aged] = spread.map(f64::from);
        let times = aged / empty;
        assert!((11.2..11.3).contains(&times), "{times}");
    });
}

/// New files on a volume that is 75 % full lie as [se95 §5.2] found them: of files of two blocks 37 % in one piece; of the blocks
/// of files of 32 blocks 80 % behind the one before. Method: a file of each in every group, one
/// at a time, on many volumes.
#[test]
fn new_files_lie_as_published() {
    simulate(1, async |rt| {
        for (blocks, volumes, published) in [(2, 60, 0.37), (32, 12, 0.80)] {
            let (mut pairs, mut together) = (0, 0);
            for id in 0..volumes {
                let (_, device) = fresh(&rt, VOLUME, &table_4(75, id)).await;
                let ffs = mount(rt.clone(), device.clone(), Options::default()).await.expect("mount");
                let client = Client::new(ffs.clone());
                for group in 0..10 {
                    let (dir, file) = (format!("/d{group}"), format!("/d{group}/f"));
                    client.mkdir(dir.as_bytes()).await.expect("mkdir");
                    client.write_file(file.as_bytes(), &vec![1; blocks * 8192]).await.expect("there is room");
                    let (_, places) = super::policy::place(&ffs, &client, file.as_bytes()).await;
                    pairs += places.len() - 1;
                    together += places.windows(2).filter(|pair| pair[1] == pair[0] + 8).count();
                    client.unlink(file.as_bytes()).await.expect("unlink");
                }
                ffs.close().await.expect("close");
            }
            let found = together as f64 / pairs as f64;
            eprintln!("{blocks} {found}");
            assert!((found - published).abs() < 0.05, "{blocks} blocks: {found}, published {published}");
        }
    });
}
