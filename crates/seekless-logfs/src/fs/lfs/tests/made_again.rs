//! Aim: a volume with the UUID of an earlier one on the device is not mistaken for it. Method: volumes are made again over volumes
//! that were used, without a discard, with and without what tells where the earlier log ended.

use super::*;

const BYTES: u64 = 16 * MIB;

#[test]
fn over_an_earlier_volume_of_the_same_name() {
    let options = MkfsOptions { discard: false, uuid_is_given: true, ..MkfsOptions::new([1, 2, 3, 4]) };
    // Sectors at the start of the device that are zeroed before the next mkfs: none, the superblock and one slot, everything before
    // the log, and its first segments too.
    for zeroed in [0, 64, 128, 2048] {
        simulate(1, async |rt| {
            let memory = Rc::new(Memory::new(BYTES));
            let device: Device = memory.clone();
            for round in 0..4 {
                mkfs(&rt, &device, &options).await.unwrap();
                for is_closed in [false, true] {
                    let what = format!("{zeroed} sectors zeroed, round {round}, before a close: {is_closed}");
                    let mounted = mount(rt.clone(), device.clone(), Options::default()).await;
                    let fs = mounted.unwrap_or_else(|error| panic!("{what}: {error}"));
                    let client = Client::new(fs.clone());
                    for file in 0..20 - 4 * round {
                        let path = format!("/f{file}");
                        client.write_file(path.as_bytes(), &[round; 30_000]).await.unwrap();
                        client.fsync_path(path.as_bytes()).await.unwrap();
                    }
                    if is_closed {
                        fs.close().await.unwrap();
                    } else {
                        // As after a power cut.
                        fs.syncfs().await.unwrap();
                        let cut: Device = Rc::new(Memory::from_image(BYTES, memory.image()));
                        assert_clean(&rt, &cut).await;
                        let again = mount(rt.clone(), cut, Options::default()).await;
                        let again = again.unwrap_or_else(|error| panic!("{what}: {error}"));
                        assert!(Client::new(again).read_file(b"/f0").await == Ok(vec![round; 30_000]), "{what}");
                        fs.close().await.unwrap();
                    }
                    assert_clean(&rt, &device).await;
                }
                rt.sleep(Nanos::from_secs(1)).await;
                for at in (0..zeroed).step_by(8) {
                    let zeroes = crate::device::Data::zeroes(4096);
                    device.write(crate::units::Sector(at), zeroes, crate::device::WriteFlags::NONE).await.unwrap();
                }
            }
        });
    }
}
