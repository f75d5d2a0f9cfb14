//! Log messages of a daemon about its arrays.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use seekless::device::{BlockDevice, Device, RedundancyStatus, news};
use seekless::rt::Rt;
use seekless::units::Nanos;

/// Interval between two looks at the arrays.
const INTERVAL: Nanos = Nanos::from_secs(2);

/// Logs the events of arrays: failed members, and the progress of a rebuild.
pub(super) struct Watch {
    /// They must not be kept alive while nothing else uses them.
    arrays: Vec<Weak<dyn BlockDevice>>,
    before: RefCell<Vec<Option<RedundancyStatus>>>,
}

/// Watches `arrays` as long as the runtime lives. At its end a daemon looks once more, for what has happened since.
pub(super) fn watch(rt: &Rt, arrays: &[Device]) -> Rc<Watch> {
    let arrays: Vec<Weak<dyn BlockDevice>> = arrays.iter().map(Rc::downgrade).collect();
    let before = RefCell::new(statuses(&arrays));
    let watch = Rc::new(Watch { arrays, before });
    let (clock, watching) = (rt.clone(), watch.clone());
    rt.spawn(async move {
        while watching.before.borrow().iter().any(Option::is_some) {
            clock.sleep(INTERVAL).await;
            watching.look();
        }
    });
    watch
}

impl Watch {
    /// Logs what has happened since the last look.
    pub(super) fn look(&self) {
        let after = statuses(&self.arrays);
        let before = self.before.replace(after.clone());
        for (before, after) in before.iter().flatten().zip(after.iter().flatten()) {
            for (is_warning, line) in news(before, after) {
                match is_warning {
                    true => log::warn!("{line}"),
                    false => log::info!("{line}"),
                }
            }
        }
    }
}

fn statuses(arrays: &[Weak<dyn BlockDevice>]) -> Vec<Option<RedundancyStatus>> {
    let status = |array: &Weak<dyn BlockDevice>| {
        let array = array.upgrade()?;
        array.redundancy().map(|redundancy| redundancy.status())
    };
    arrays.iter().map(status).collect()
}
