//! Aim: a search for free space ends however many groups must be looked at and however little memory there is, and
//! remembers what it has seen. Method: small groups, more than the cache holds, of which none has what is looked for.

use std::pin::pin;

use futures_util::future::{Either, select};

use super::*;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};

const BYTES: u64 = 160 * MIB;
const CACHE_BYTES: u64 = 48 * 8192;

fn many_groups() -> MkfsOptions {
    let drive = DriveShape { sectors_per_track: 512, ..DriveShape::UNKNOWN };
    MkfsOptions { cylinders_per_group: 1, bytes_per_inode: Some(65_536), drive, ..MkfsOptions::new([1, 2]) }
}

fn options() -> Options {
    Options { cache_bytes: 0, use_reserve: true, ..Options::default() }
}

/// Takes from each group as `take` says, closes the volume, and mounts it again on a device that takes its time.
async fn prepared(rt: &Rt, take: impl Fn(&mut State, GroupNo) -> state::Step<()>) -> Rc<Ffs> {
    let (_, device) = fresh(rt, BYTES, &many_groups()).await;
    let ffs = mount(rt.clone(), device.clone(), options()).await.unwrap();
    let layout = ffs.state.borrow().layout.clone();
    let held = u64::from(layout.groups) * u64::from(layout.cgsize.next_multiple_of(layout.frag_bytes));
    assert!(held > CACHE_BYTES * 4 / 3, "{} groups of {held} bytes would be in memory", layout.groups);
    for group in layout.group_numbers() {
        ffs.step(|state| take(state, group)).await.unwrap();
    }
    ffs.close().await.unwrap();
    let fault = FaultDevice::new(rt, device, 1);
    let ffs = mount(rt.clone(), fault.clone(), options()).await.unwrap();
    let time = Nanos::from_millis(1);
    fault.add(Rule::new(Kinds::READ, When::Always, Effect::Delay(time..=time)));
    ffs
}

/// Runs a step, and counts its reads.
async fn counted<T>(rt: &Rt, ffs: &Ffs, step: impl FnMut(&mut State) -> state::Step<T>) -> (T, u64) {
    let before = ffs.state.borrow().counters.block_reads;
    let (step, late) = (pin!(ffs.step(step)), pin!(rt.sleep(Nanos::from_secs(20))));
    let Either::Left((found, _)) = select(step, late).await else { panic!("the search does not end") };
    (found.expect("no error"), ffs.state.borrow().counters.block_reads - before)
}

/// No group but one has more than single fragments and runs of three.
#[test]
fn runs_of_fragments() {
    simulate(1, async |rt| {
        let last = |state: &State| GroupNo(state.layout.groups - 2);
        let ffs = prepared(&rt, |state, group| {
            while group != last(state) && state.summaries[group.index()].nbfree > 0 {
                let at = state.layout.group_data(group);
                state.take_frags(ROOT_INO, at, 5)?;
            }
            Ok(())
        })
        .await;
        let groups = u64::from(ffs.state.borrow().layout.groups);
        let take = |state: &mut State| state.take_frags(ROOT_INO, FragNo::NONE, 5);
        let (at, reads) = counted(&rt, &ffs, take).await;
        {
            let state = ffs.state.borrow();
            assert_eq!(state.layout.group_of(at), last(&state));
        }
        assert!(reads > groups / 2 && reads <= groups + 2, "{reads} reads, {groups} groups");
        ffs.state.borrow_mut().drop_caches();
        let (_, reads) = counted(&rt, &ffs, take).await;
        assert!(reads <= 2, "{reads} reads");
        // A run that becomes free is found.
        let first = ffs.state.borrow().layout.group_data(GroupNo(7));
        counted(&rt, &ffs, |state| state.free_frags(first, 5)).await;
        let (at, _) = counted(&rt, &ffs, take).await;
        assert_eq!(ffs.state.borrow().layout.group_of(at), GroupNo(7));
    });
}

/// No group has two free blocks one after the other.
#[test]
fn clusters() {
    simulate(1, async |rt| {
        let ffs = prepared(&rt, |state, group| {
            let frag = state.layout.frag;
            let blocks = state.layout.group_frags(group) / frag;
            let taken = state.change_group(group, |map| {
                for block in (0..blocks).step_by(2) {
                    if map.is_block_free(block) {
                        map.take_block(Some(block * frag));
                    }
                }
                Some(())
            });
            taken.map(drop)
        })
        .await;
        let (groups, start) = {
            let layout = &ffs.state.borrow().layout;
            (u64::from(layout.groups), layout.group_data(GroupNo(0)))
        };
        let take = |state: &mut State| state.take_cluster(start, 2);
        let (found, reads) = counted(&rt, &ffs, take).await;
        assert_eq!(found, None);
        assert!(reads > groups / 2 && reads <= groups + 2, "{reads} reads, {groups} groups");
        let (found, reads) = counted(&rt, &ffs, take).await;
        assert_eq!((found, reads), (None, 0));
        // A block that becomes free makes a run.
        let freed = {
            let layout = &ffs.state.borrow().layout;
            let within = layout.group_data(GroupNo(9)) - layout.group_base(GroupNo(9));
            layout.group_base(GroupNo(9)) + within.next_multiple_of(2 * layout.frag) + 2 * layout.frag
        };
        let frag = ffs.state.borrow().layout.frag;
        counted(&rt, &ffs, |state| state.free_frags(freed, frag)).await;
        let (found, _) = counted(&rt, &ffs, take).await;
        assert!(found.is_some_and(|at| ffs.state.borrow().layout.group_of(at) == GroupNo(9)), "{found:?}");
    });
}
