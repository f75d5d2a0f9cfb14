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

/// Aim: what `df` calls full can still be overwritten, by any policy. Method: one file, and as many small ones, until there
/// is no space; then skewed overwrites, several times as much as the volume.
#[test]
fn a_full_volume_can_be_overwritten() {
    for (&cleaner, seed) in CLEANERS.iter().zip(1..) {
        simulate(seed, async |rt| {
            let (_, device) = fresh(&rt, 16 * MIB).await;
            let options = Options { cleaner, ..Options::default() };
            let fs = mount(rt.clone(), device.clone(), options).await.unwrap();
            let client = Client::new(fs.clone());
            fill(&client, 50_000).await;
            let file = client.create(b"/one").await;
            if let Ok(file) = file {
                client.close(file).await.unwrap();
            }
            client.unlink(b"/f0").await.unwrap();
            let names = client.read_dir(b"/").await.unwrap().len() as u64 - 2;
            let space = fs.statfs().await.unwrap();
            assert!(space.blocks_available < 32, "{} blocks are available", space.blocks_available);
            let mut rng = crate::rng::Rng::new(seed);
            for round in 0..12_000u64 {
                // A tenth of the files get most of the writes.
                let among = if rng.below(10) == 0 { names } else { names / 10 };
                let name = format!("/f{}", 1 + rng.below(among.saturating_sub(3).max(1)));
                let open = client.open(name.as_bytes(), OpenFlags::READ_WRITE).await.unwrap();
                let written = client.write(open, rng.below(12) * 4096, &[round as u8; 4096]).await;
                written.unwrap_or_else(|error| panic!("{cleaner:?}, overwrite {round}: {error}"));
                if round % 50 == 0 {
                    client.fsync(open).await.unwrap();
                }
                client.close(open).await.unwrap();
            }
            assert_eq!(fs.check().await.unwrap(), Vec::<String>::new());
            fs.close().await.unwrap();
            drop((client, fs));
            assert_clean(&rt, &device).await;
        });
    }
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
