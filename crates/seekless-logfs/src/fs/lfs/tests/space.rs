//! Aim: lack of space, on the volume or below it, is a clean error; deleting then works, and nothing is lost. Errors of
//! unknown effect stop all changes. Method: volumes filled completely, and devices that refuse.

use super::*;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::testing::volumes::space::{self, fill};
use crate::units::KIB;

#[test]
fn overwritten_twenty_times_at_95_percent() {
    space::overwritten_twenty_times_at_95_percent(&Small::default());
}

#[test]
fn a_full_volume_lets_go() {
    space::a_full_volume_lets_go(&Small::default());
}

#[test]
fn errors_of_unknown_effect_stop_all_changes() {
    space::errors_of_unknown_effect_stop_all_changes(&Small::default());
}

/// Cleaned segments go back to the storage below, and come back from it.
#[test]
fn freed_space_is_given_back() {
    space::freed_space_is_given_back(&Small::default(), 128 * MIB, 100 * MIB, 20 * MIB);
}

#[test]
fn what_df_promises_can_be_allocated() {
    space::what_df_promises_can_be_allocated(&Small::default());
}

#[test]
fn a_full_volume_has_nothing_available() {
    space::a_full_volume_has_nothing_available(&Small::default());
}

/// When the storage below has no room for more segments, writing ends with `NoSpace`, deleting and syncing still work,
/// and existing data stays readable. When there is room below again, writing continues.
#[test]
fn no_room_below() {
    simulate(1, async |rt| {
        let (_, memory) = fresh(&rt, 64 * MIB).await;
        let fault = FaultDevice::new(&rt, memory.clone(), 1);
        let device: Device = fault.clone();
        // This device would lose discarded storage for good.
        let options = Options { discard: false, ..Options::default() };
        let lfs = mount(rt.clone(), device.clone(), options).await.unwrap();
        let client = Client::new(lfs.clone());
        fault.add(Rule::new(Kinds::PROVISION, When::From(100), Effect::NoSpace));
        let count = fill(&client, 100 * KIB as usize).await;
        assert!((60..400).contains(&count), "{count} files");
        client.sync().await.unwrap();
        for file in 0..count / 2 {
            client.unlink(format!("/f{file}").as_bytes()).await.unwrap();
        }
        client.sync().await.unwrap();
        // The storage of the deleted files is still allocated below, so as much can be written again.
        for file in 0..count / 4 {
            client.write_file(format!("/g{file}").as_bytes(), &vec![file as u8; 100 * KIB as usize]).await.unwrap();
        }
        client.sync().await.unwrap();
        fault.clear();
        let more = fill(&client, 100 * KIB as usize).await;
        assert!(more > 0);
        lfs.close().await.unwrap();
        drop((client, lfs));
        assert_clean(&rt, &memory).await;
        session(&rt, &memory, async |client| {
            for file in 0..count / 4 {
                let read = client.read_file(format!("/g{file}").as_bytes()).await.unwrap();
                assert!(read == vec![file as u8; 100 * KIB as usize]);
            }
        })
        .await;
    });
}
