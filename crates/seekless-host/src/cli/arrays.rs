//! Log messages of a daemon about its arrays.

use seekless::device::{Device, RedundancyStatus, news};
use seekless::rt::Rt;
use seekless::units::Nanos;

/// Interval between two looks at the arrays.
const INTERVAL: Nanos = Nanos::from_secs(2);

/// Logs the events of `arrays` as long as the runtime lives: failed members, and the progress of a rebuild.
pub(super) fn watch(rt: &Rt, arrays: Vec<Device>) {
    if arrays.is_empty() {
        return;
    }
    // Weak: the devices must not be kept alive while this sleeps.
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
