//! What a daemon says of the arrays that it serves.

use seekless::device::{Device, RedundancyStatus, news};
use seekless::rt::Rt;
use seekless::units::Nanos;

/// How often arrays are looked at.
const INTERVAL: Nanos = Nanos::from_secs(2);

/// Logs what happens to `arrays` as long as the runtime lives: members that fail, and how far a rebuild is.
pub(super) fn watch(rt: &Rt, arrays: Vec<Device>) {
    if arrays.is_empty() {
        return;
    }
    // The devices must be able to go while this sleeps.
    let arrays: Vec<std::rc::Weak<dyn seekless::device::BlockDevice>> =
        arrays.iter().map(std::rc::Rc::downgrade).collect();
    let look = move || -> Vec<Option<RedundancyStatus>> {
        let status = |array: &std::rc::Weak<dyn seekless::device::BlockDevice>| {
            let array = array.upgrade()?;
            array.redundancy().map(|redundancy| redundancy.status())
        };
        arrays.iter().map(status).collect()
    };
    let mut before = look();
    let clock = rt.clone();
    rt.spawn(async move {
        while before.iter().any(Option::is_some) {
            clock.sleep(INTERVAL).await;
            let after = look();
            for (before, after) in before.iter().flatten().zip(after.iter().flatten()) {
                for (is_warning, line) in news(before, after) {
                    match is_warning {
                        true => log::warn!("{line}"),
                        false => log::info!("{line}"),
                    }
                }
            }
            before = after;
        }
    });
}
