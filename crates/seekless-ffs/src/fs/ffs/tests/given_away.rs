//! Aim: a block is given to another file only when nothing that the volume has, or is about to get, leads to it. Method: a file that
//! no sync has seen loses blocks at each moment of its first one; another file gets them, and is synced. What the device then holds
//! is mounted.

use super::*;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};

const BYTES: u64 = 8 * MIB;
const BLOCK: usize = 8192;
/// Blocks of the new file: an indirect block leads to most of them.
const NEW: usize = 40;
/// What it keeps, so that the indirect block stays.
const KEPT: usize = 13;

/// A volume with `/other`, of one block, on which there is room for the new file and little more.
async fn nearly_full(rt: &Rt, options: Options) -> Image {
    let (memory, device) = fresh(rt, BYTES, &small_groups()).await;
    session(rt, &device, options, async |client| {
        client.write_file(b"/other", &[1; BLOCK]).await.unwrap();
        client.write_file(b"/filling", b"").await.unwrap();
        let file = client.open(b"/filling", OpenFlags::READ_WRITE).await.unwrap();
        let mut blocks = 0;
        while client.write(file, (blocks * BLOCK) as u64, &[2; BLOCK]).await.is_ok() {
            blocks += 1;
        }
        client.close(file).await.unwrap();
        client.truncate(b"/filling", ((blocks - NEW - 4) * BLOCK) as u64).await.unwrap();
    })
    .await;
    memory.image()
}

/// What takes blocks away from the new file.
#[derive(Clone, Copy, Debug)]
enum Loss {
    /// The file is cut, and gets longer again without blocks.
    Truncate,
    Punch,
}

/// Syncs everything while, after `micros`, `/new` loses blocks and `/other` takes some. Returns what the device held when the sync of
/// `/other` had returned.
async fn lose_within_a_sync(rt: &Rt, image: &Image, options: Options, loss: Loss, micros: u64) -> Image {
    let memory = Rc::new(Memory::from_image(BYTES, image.clone()));
    let fault = FaultDevice::new(rt, memory.clone(), 1);
    let ffs = mount(rt.clone(), fault.clone(), options).await.unwrap();
    let client = Client::new(ffs.clone());
    client.write_file(b"/new", &vec![3; NEW * BLOCK]).await.unwrap();
    let time = Nanos::from_millis(2);
    fault.add(Rule::new(Kinds::WRITE, When::Always, Effect::Delay(time..=time)));
    let taking = {
        let (inner, memory, client) = (rt.clone(), memory.clone(), Client::new(ffs.clone()));
        rt.spawn(async move {
            inner.sleep(Nanos::from_micros(micros)).await;
            let (kept, all) = ((KEPT * BLOCK) as u64, (NEW * BLOCK) as u64);
            match loss {
                Loss::Truncate => {
                    client.truncate(b"/new", kept).await.unwrap();
                    client.truncate(b"/new", all).await.unwrap();
                }
                Loss::Punch => {
                    let range = FileRange { offset: kept, bytes: all - kept - BLOCK as u64 };
                    client.fallocate(b"/new", range, AllocateMode::PunchHole).await.unwrap();
                }
            }
            let other = client.open(b"/other", OpenFlags::READ_WRITE).await.unwrap();
            client.write(other, BLOCK as u64, &vec![4; 20 * BLOCK]).await.unwrap();
            client.fsync(other).await.unwrap();
            let held = memory.image();
            client.close(other).await.unwrap();
            held
        })
    };
    client.sync().await.unwrap();
    let held = taking.await;
    fault.clear();
    ffs.close().await.unwrap();
    held
}

#[test]
fn blocks_of_a_file_that_is_written_for_the_first_time() {
    for metadata in [Metadata::Sync, Metadata::Softdep] {
        for loss in [Loss::Truncate, Loss::Punch] {
            simulate(1, async |rt| {
                let options = Options { metadata, use_reserve: true, ..Options::default() };
                let image = nearly_full(&rt, options).await;
                for micros in (0..16_000).step_by(250) {
                    let held = lose_within_a_sync(&rt, &image, options, loss, micros).await;
                    let device: Device = Rc::new(Memory::from_image(BYTES, held));
                    let at = format!("{metadata:?}, {loss:?} after {micros} us");
                    let ffs = mount(rt.clone(), device, options).await.unwrap_or_else(|error| panic!("{at}: {error}"));
                    let found = Client::new(ffs.clone()).read_file(b"/other").await.unwrap();
                    let wrong = found.iter().position(|&byte| byte != 1 && byte != 4);
                    assert_eq!((found.len(), wrong), (21 * BLOCK, None), "{at}");
                    assert!(found[BLOCK..].iter().all(|&byte| byte == 4), "{at}");
                    ffs.close().await.unwrap();
                }
            });
        }
    }
}
