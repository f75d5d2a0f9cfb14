//! Aim: between a member's failure and the record of it, a power cut leaves all members trusted and no row in doubt.

use super::faults::{Members, SECTORS, after_a_cut};
use super::*;

/// A member fails while the array is released, in the flush or in a superblock. Method: superblocks are slow, and copies of all members
/// from every moment are opened.
#[test]
fn a_release_records_a_failure_first() {
    for (kinds, within) in [(Kinds::FLUSH, 0..SECTORS), (Kinds::WRITE, 0..16)] {
        for seed in 0..4 {
            let executor = Executor::simulated(seed, HostProfile::NONE);
            let rt = executor.rt().clone();
            let run = async {
                let members = Members::new(&rt, 3, seed);
                let options = small(Level::Parity);
                let array = Array::create(&rt, members.devices(), &options, UUID, Contents::Zeroes).await.unwrap();
                array.write(Sector(0), Data::from_slice(&[1; 20 * 512]), WriteFlags::NONE).await.unwrap();
                for fault in &members.faults {
                    let slow = Effect::Delay(Nanos(1_000_000)..=Nanos(1_000_000));
                    fault.add(Rule::new(Kinds::WRITE, When::Always, slow).within(Sector(0)..Sector(16)));
                }
                let rule = Rule::new(kinds, When::From(1), Effect::Error);
                members.faults[2].add(rule.within(Sector(within.start)..Sector(within.end)));
                let releasing = {
                    let array = array.clone();
                    rt.spawn(async move { array.release().await })
                };
                for turn in 0..60 {
                    rt.sleep(Nanos(100_000)).await;
                    let reopened = after_a_cut(&rt, &members.memories, &options).await;
                    assert_eq!(reopened.status().doubtful, 0, "seed {seed}, turn {turn}");
                    let read = reopened.read(Sector(0), Buf::dirty(20 * 512)).await.unwrap();
                    assert!(read[..] == [1; 20 * 512], "seed {seed}, turn {turn}");
                }
                releasing.await.unwrap();
                assert_eq!(array.status().members[2], MemberState::Failed);
                let reopened = after_a_cut(&rt, &members.memories, &options).await;
                assert_eq!(reopened.status().members[2], MemberState::Failed);
            };
            executor.block_on(run).unwrap();
        }
    }
}

/// A member that is being rebuilt fails and is replaced before its failure is recorded: it is not trusted again. Method: the array is
/// opened with it, as after a power cut.
#[test]
fn a_failure_is_recorded_before_its_member_is_replaced() {
    let mut replaced = 0;
    for (level, seed) in (0..20).flat_map(|seed| [(Level::Mirror, seed), (Level::Parity, seed)]) {
        let executor = Executor::simulated(seed, HostProfile::NONE);
        let rt = executor.rt().clone();
        let run = async {
            let members = Members::new(&rt, 3, seed);
            let options = small(level);
            let array = Array::create(&rt, members.devices(), &options, UUID, Contents::Zeroes).await.unwrap();
            array.give_up(1).await.unwrap();
            array.replace(1, members.faults[1].clone()).await.unwrap();
            rt.sleep(Nanos(1 + 37 * seed)).await;
            if array.status().members[1] != MemberState::Rebuilding {
                return;
            }
            replaced += 1;
            array.core.fail(1, &"as a test says");
            array.replace(1, slow(&rt, &[SECTORS], seed).remove(0)).await.unwrap();
            let reopened = after_a_cut(&rt, &members.memories, &options).await;
            assert_eq!(reopened.status().members[1], MemberState::Failed, "{level:?}, seed {seed}");
            array.resynced().await;
            assert!(array.status().is_healthy(), "{level:?}, seed {seed}: {:?}", array.status());
        };
        executor.block_on(run).unwrap();
    }
    assert!(replaced > 10, "{replaced}");
}
