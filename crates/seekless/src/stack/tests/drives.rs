//! Aim: options of a modelled drive mean what they say. Method: a few requests, with each.

use super::*;

/// A drive whose cache is off completes writes on the medium, and no read finds what was read ahead. Method: pieces of a track in order,
/// with pauses in which the drive would read on.
#[test]
fn a_drive_can_be_without_its_cache() {
    let took = |line: &str, durable: bool| {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let rt = executor.rt();
        let stack = parse(line);
        let read = async {
            let opened = stack.open(rt, &NoLeaves, Purpose::Use).await.unwrap();
            let device = opened.device().unwrap();
            assert_eq!(device.guarantees().durable_on_completion, durable, "{line}");
            let begun = rt.now();
            for piece in 0..16 {
                device.read(Sector(piece * 8), Buf::dirty(4096)).await.unwrap();
                rt.sleep(Nanos::from_millis(1)).await;
            }
            rt.now().0 - begun.0
        };
        executor.block_on(read).unwrap()
    };
    let (with, without) = (took("disk:cheetah9lp", false), took("disk:cheetah9lp,cache=off", true));
    assert!(without > 2 * with, "{with} {without}");
}
