//! Aim: lack of space, on the volume or below it, is a clean error; deleting then works, and nothing is lost. Errors of
//! unknown effect stop all changes. Method: volumes filled completely, and devices that refuse.

use super::*;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::fs::logfs::tests::{self as shared, attributes_have_a_limit};
use crate::testing::volumes::space;

#[test]
fn overwritten_twenty_times_at_95_percent() {
    space::overwritten_twenty_times_at_95_percent(&Small::default());
}

#[test]
fn attributes_can_be_set_again() {
    space::attributes_can_be_set_again(&Small::default());
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

#[test]
fn a_close_without_room_below_can_be_repeated() {
    shared::a_close_without_room_below_can_be_repeated(&Small::default(), async |rt, device| {
        open(rt, device, Options::default()).await
    });
}

/// Aim: what is read is partly on the device and partly on its way there, and the storage below has no room for the rest: it is read
/// nevertheless, and the volume closes once there is room. Method: a file continues behind blocks that are written; then it is read across
/// the border, in pieces that no write was made of.
#[test]
fn reads_go_on_without_room_below() {
    simulate(1, async |rt| {
        let (_, memory) = fresh(&rt, 64 * MIB).await;
        let fault = FaultDevice::new(&rt, memory.clone(), 1);
        let options = Options { cache_data: false, ..Options::default() };
        let vlfs = mount(rt.clone(), fault.clone() as Device, options).await.unwrap();
        let client = Client::new(vlfs.clone());
        let content = |from: u64, bytes: u64| -> Vec<u8> { (from..from + bytes).map(|at| (at / 4096) as u8).collect() };
        let file = client.create(b"/f").await.unwrap();
        client.write(file, 0, &content(0, 2 * MIB)).await.unwrap();
        client.sync().await.unwrap();
        fault.add(Rule::new(Kinds::WRITE, When::From(0), Effect::NoSpace));
        let mut end = 2 * MIB;
        while end < 9 * MIB {
            match client.write(file, end, &content(end, 3 * MIB)).await {
                Ok(()) => end += 3 * MIB,
                Err(FsError::NoSpace) => break,
                Err(error) => panic!("{error}"),
            }
            // What is written leaves the cache.
            rt.sleep(Nanos::from_millis(1)).await;
        }
        assert!(end > 4 * MIB, "{end} bytes");
        let read_all = async {
            for from in (0..end).step_by(777_777) {
                let read = client.read(file, from, MIB as u32).await.unwrap();
                assert!(read == content(from, MIB.min(end - from)), "what is read at {from}");
            }
        };
        let timer = rt.sleep(Nanos::from_secs(60));
        match futures_util::future::select(std::pin::pin!(read_all), timer).await {
            futures_util::future::Either::Left(_) => {}
            futures_util::future::Either::Right(_) => panic!("a read waits for room below"),
        }
        fault.clear();
        client.close(file).await.unwrap();
        vlfs.close().await.unwrap();
        drop((client, vlfs));
        session(&rt, &memory, async |client| {
            assert!(client.read_file(b"/f").await.unwrap() == content(0, end));
        })
        .await;
    });
}

/// Aim: a change that a full volume has no room for fails, however much other clients overwrite. Method: a volume filled to the last
/// block; some tasks overwrite a file all the time, and another appends.
#[test]
fn a_full_volume_is_full_while_others_overwrite() {
    simulate(1, async |rt| {
        let (_, memory) = fresh(&rt, 32 * MIB).await;
        let fault = FaultDevice::new(&rt, memory.clone(), 1);
        fault.add(Rule::new(Kinds::WRITE, When::Always, Effect::Delay(Nanos::from_millis(1)..=Nanos::from_millis(3))));
        let vlfs = open(rt.clone(), fault.clone(), Options::default()).await.unwrap();
        let client = Rc::new(Client::new(vlfs.clone()));
        client.write_file(b"/over", &vec![1; 2 * MIB as usize]).await.unwrap();
        let file = client.create(b"/full").await.unwrap();
        let mut end = 0;
        for piece in [MIB, 4096] {
            while client.write(file, end, &vec![2; piece as usize]).await.is_ok() {
                end += piece;
            }
            client.sync().await.unwrap();
        }
        while client.write(file, end, &[2; 4096]).await.is_ok() {
            end += 4096;
        }
        let goes_on = Rc::new(std::cell::Cell::new(true));
        let overwrites = (0..16).map(|task: u64| {
            let (client, goes_on, rt) = (client.clone(), goes_on.clone(), rt.clone());
            async move {
                let over = client.open(b"/over", OpenFlags::READ_WRITE).await.unwrap();
                for byte in (0..=u8::MAX).cycle() {
                    if !goes_on.get() {
                        break;
                    }
                    for at in (task * MIB / 8..(task + 1) * MIB / 8).step_by(16 << 10) {
                        client.write(over, at, &[byte; 16 << 10]).await.unwrap();
                        client.fsync(over).await.unwrap();
                    }
                    rt.sleep(Nanos::from_micros(100)).await;
                }
                client.close(over).await.unwrap();
            }
        });
        let overwriting: Vec<_> = overwrites.map(|task| rt.spawn(task)).collect();
        rt.sleep(Nanos::from_millis(10)).await;
        let mut refused = 0;
        for round in 0..20 {
            rt.sleep(Nanos::from_micros(1700)).await;
            let written = std::pin::pin!(client.write(file, end, &[3; 4096]));
            let timer = rt.sleep(Nanos::from_secs(1));
            match futures_util::future::select(written, timer).await {
                futures_util::future::Either::Left((Ok(()), _)) => end += 4096,
                futures_util::future::Either::Left((written, _)) => {
                    assert_eq!(written, Err(FsError::NoSpace));
                    refused += 1;
                }
                futures_util::future::Either::Right(_) => panic!("round {round}: it has waited for a second"),
            }
        }
        assert!(refused > 5, "{refused} of 20");
        goes_on.set(false);
        futures_util::future::join_all(overwriting).await;
        client.close(file).await.unwrap();
        vlfs.close().await.unwrap();
    });
}

/// Aim: attributes in memory have a limit. Method: more of them than that, written and then read.
#[test]
fn attributes_in_memory_have_a_limit() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 64 * MIB).await;
        let options = Options { cache_bytes: 16 * MIB, ..Options::default() };
        let vlfs = open(rt.clone(), device, options).await.unwrap();
        attributes_have_a_limit(&vlfs, 4 * MIB).await;
        assert_eq!(vlfs.recount().await.unwrap(), Vec::<String>::new());
    });
}

/// Aim: a write without room below, whichever it is, changes no book and loses nothing: a transaction whose tail is the one is
/// completed by the next, which may find no room either. Method: each write in turn, and another soon after it, with a recount
/// after each sync.
#[test]
fn one_write_without_room_below() {
    let mut full = 0;
    for (nth, gap) in (1..24).flat_map(|nth| (1..4).map(move |gap| (nth, gap))) {
        simulate(nth, async |rt| {
            let name = format!("writes {nth} and {gap} after it");
            let (_, memory) = fresh(&rt, 16 * MIB).await;
            let fault = FaultDevice::new(&rt, memory.clone(), nth * 10 + gap);
            let options = Options { write_back_interval: Nanos::from_secs(1 << 30), ..Options::default() };
            let vlfs = open(rt.clone(), fault.clone(), options).await.expect("mount");
            let client = Client::new(vlfs.clone());
            for number in 0..6u8 {
                client.write_file(format!("/{number}").as_bytes(), &[number; 30_000]).await.expect("written");
            }
            client.sync().await.expect("synced");
            for nth in [nth, nth + gap] {
                fault.add(Rule::new(Kinds::WRITE, When::Nth(nth), Effect::NoSpace));
            }
            let put = async |round: u8| client.write_file(format!("/{round}").as_bytes(), &[100 + round; 20_000]).await;
            let mut refused = Vec::new();
            for round in 0..6u8 {
                // While a batch waits for room, writes are refused.
                match put(round).await {
                    Ok(()) => {}
                    Err(FsError::NoSpace) => refused.push(round),
                    Err(error) => panic!("{name}: {error}"),
                }
                full += u32::from(client.sync().await == Err(FsError::NoSpace));
                assert_eq!(vlfs.recount().await.expect("counted"), Vec::<String>::new(), "{name}, round {round}");
            }
            fault.clear();
            client.sync().await.unwrap_or_else(|error| panic!("{name}: {error}"));
            for round in refused {
                put(round).await.unwrap_or_else(|error| panic!("{name}: {error}"));
            }
            client.sync().await.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(vlfs.recount().await.expect("counted"), Vec::<String>::new(), "{name}, at the end");
            drop((client, vlfs));
            session(&rt, &memory, async |client| {
                for round in 0..6u8 {
                    let read = client.read_file(format!("/{round}").as_bytes()).await;
                    assert_eq!(read.expect("read"), [100 + round; 20_000], "{name}");
                }
            })
            .await;
        });
    }
    assert!(full > 30, "{full}");
}

/// Aim: a volume that was not closed never says that it is. Method: its last record cannot be written; it is closed again.
#[test]
fn closing_never_claims_success() {
    simulate(1, async |rt| {
        let (_, memory) = fresh(&rt, 64 * MIB).await;
        let fault = FaultDevice::new(&rt, memory.clone(), 1);
        let vlfs = open(rt.clone(), fault.clone(), Options::default()).await.unwrap();
        let client = Client::new(vlfs.clone());
        client.write_file(b"/f", &[1; 100_000]).await.unwrap();
        client.sync().await.unwrap();
        let [first, second] = crate::vlog::format::ANCHORS.map(crate::units::Sector);
        fault.add(Rule::new(Kinds::WRITE, When::Nth(1), Effect::Error).within(first..second + 1));
        assert!(matches!(vlfs.close().await, Err(FsError::Device(_))));
        let again = vlfs.close().await;
        assert!(matches!(again, Err(FsError::Stopped(_))), "{again:?}");
        let written = client.write_file(b"/g", &[2; 1000]).await;
        assert!(matches!(written, Err(FsError::Stopped(_))), "{written:?}");
    });
}

/// Aim: a volume that cannot be closed, as there is no space below for its last record, can be closed later. Method: that record
/// finds no space once; then the volume is closed again, at once or after a change.
#[test]
fn closing_is_tried_again() {
    for changes in [false, true] {
        simulate(1, async |rt| {
            let (_, memory) = fresh(&rt, 64 * MIB).await;
            let fault = FaultDevice::new(&rt, memory.clone(), 1);
            let vlfs = open(rt.clone(), fault.clone(), Options::default()).await.unwrap();
            let client = Client::new(vlfs.clone());
            client.write_file(b"/f", &[1; 100_000]).await.unwrap();
            client.sync().await.unwrap();
            let [first, second] = crate::vlog::format::ANCHORS.map(crate::units::Sector);
            let rule = Rule::new(Kinds::WRITE, When::Nth(1), Effect::NoSpace);
            fault.add(rule.within(first..second + 1));
            assert_eq!(vlfs.close().await, Err(FsError::NoSpace));
            if changes {
                client.write_file(b"/g", &[2; 100_000]).await.unwrap();
                client.sync().await.unwrap();
            }
            vlfs.close().await.unwrap();
            drop((client, vlfs));
            let found = fsck(rt.clone(), memory.clone(), FsckOptions::default()).await.unwrap();
            assert_eq!(found.errors, Vec::<String>::new());
            assert!(!found.notes.iter().any(|note| note.contains("not closed")), "{:?}", found.notes);
            session(&rt, &memory, async |client| {
                assert!(client.read_file(b"/f").await.unwrap() == [1; 100_000]);
                assert_eq!(client.read_file(b"/g").await.is_ok(), changes);
            })
            .await;
        });
    }
}
