//! Aim: lack of space, on the volume or below it, is a clean error; deleting then works, and nothing is lost. Errors of
//! unknown effect stop all changes. Method: volumes filled completely, and devices that refuse.

use super::*;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::testing::volumes::space;

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

#[test]
fn freed_space_is_given_back() {
    space::freed_space_is_given_back(&Small::default(), 64 * MIB, 50 * MIB, 4 * MIB);
}

#[test]
fn what_df_promises_can_be_allocated() {
    space::what_df_promises_can_be_allocated(&Small::default());
}

#[test]
fn a_full_volume_has_nothing_available() {
    space::a_full_volume_has_nothing_available(&Small::default());
}

/// When the storage below has no room, writing ends with `NoSpace` once enough is waiting, and existing data stays
/// readable. When there is room again, everything continues, and what had been written is there.
#[test]
fn no_room_below() {
    simulate(1, async |rt| {
        let (_, memory) = fresh(&rt, 64 * MIB).await;
        let fault = FaultDevice::new(&rt, memory.clone(), 1);
        let device: Device = fault.clone();
        let vlfs = mount(rt.clone(), device, Options::default()).await.unwrap();
        let client = Client::new(vlfs.clone());
        client.write_file(b"/before", &[1; 100_000]).await.unwrap();
        client.sync().await.unwrap();
        fault.add(Rule::new(Kinds::WRITE, When::From(0), Effect::NoSpace));
        client.write_file(b"/waits", &[2; 100_000]).await.unwrap();
        assert_eq!(client.sync().await, Err(FsError::NoSpace));
        assert_eq!(client.write_file(b"/more", &[3; 100_000]).await, Err(FsError::NoSpace));
        assert_eq!(client.read_file(b"/waits").await.unwrap(), [2; 100_000]);
        assert_eq!(vlfs.statfs().await.unwrap().blocks_available, 0);
        fault.clear();
        client.sync().await.unwrap();
        client.write_file(b"/more", &[3; 100_000]).await.unwrap();
        vlfs.close().await.unwrap();
        drop((client, vlfs));
        session(&rt, &memory, async |client| {
            for (name, byte) in [(&b"/before"[..], 1), (b"/waits", 2), (b"/more", 3)] {
                assert_eq!(client.read_file(name).await.unwrap(), [byte; 100_000]);
            }
        })
        .await;
    });
}
