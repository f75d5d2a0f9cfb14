//! Aim: tasks that meet at a file, a directory or a buffer do not wait for each other forever, and see what the other
//! has done. Method: small programs on devices that hold up the request that matters.

use super::*;
use crate::device::crash::{CrashDevice, CrashOptions};

const BYTES: u64 = 64 * MIB;

/// A task that holds the lock of a file writes back what is too much. Another one holds the lock of the directory, and
/// waits for that of the file.
#[test]
fn writing_back_under_the_lock_of_a_file() {
    for metadata in [Metadata::Sync, Metadata::Async, Metadata::Softdep] {
        simulate(1, async |rt| {
            let device = CrashDevice::new(
                &rt,
                Default::default(),
                CrashOptions { record: false, ..CrashOptions::volatile(BYTES) },
            );
            mkfs(&rt, &(device.clone() as Device), &small_groups()).await.unwrap();
            let options = Options { metadata, dirty_bytes_max: 64 << 10, ..Options::default() };
            let ffs = mount(rt.clone(), device.clone(), options).await.unwrap();
            let client = Client::new(ffs.clone());
            client.mkdir(b"/d").await.unwrap();
            client.write_file(b"/d/f", b"").await.unwrap();
            let allocating = {
                let client = Client::new(ffs.clone());
                rt.spawn(async move {
                    for number in 0..200 {
                        let range = FileRange { offset: number * 16 * MIB, bytes: 4096 };
                        client.fallocate(b"/d/f", range, AllocateMode::Allocate { keep_size: false }).await.unwrap();
                    }
                })
            };
            for number in 0.. {
                if allocating.is_finished() {
                    break;
                }
                let (new, link) = (format!("/d/x{number}"), format!("/d/link{number}"));
                client.write_file(new.as_bytes(), b"").await.unwrap();
                client.link(b"/d/f", link.as_bytes()).await.unwrap();
                client.unlink(link.as_bytes()).await.unwrap();
                client.unlink(new.as_bytes()).await.unwrap();
                rt.sleep(Nanos::from_micros(10)).await;
            }
            allocating.await;
            ffs.close().await.unwrap();
            assert_clean(&rt, &(device as Device)).await;
        });
    }
}
