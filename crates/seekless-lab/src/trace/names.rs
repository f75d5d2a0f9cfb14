//! Devices by their names and numbers, as formats write them.

use std::cell::RefCell;
use std::rc::Rc;

use super::request::{DeviceId, Names};
use super::tally::Aside;

/// Names of devices, shared by all files of a trace.
pub(super) type SharedNames = Rc<RefCell<Names>>;

const TOO_MANY_DEVICES: Aside = Aside::Rejected("more than 65536 devices, or a name that is too long");

/// Finds the device of a name, fast when it is that of the previous line.
pub(super) struct DeviceNames {
    names: SharedNames,
    last: Vec<u8>,
    device: Option<DeviceId>,
}

impl DeviceNames {
    pub(super) fn new(names: SharedNames) -> DeviceNames {
        DeviceNames { names, last: Vec::new(), device: None }
    }

    #[inline]
    pub(super) fn device(&mut self, name: &[u8]) -> Result<DeviceId, Aside> {
        match self.device {
            Some(device) if self.last == name => Ok(device),
            _ => {
                let device = self.names.borrow_mut().intern(name).ok_or(TOO_MANY_DEVICES)?;
                self.last.clear();
                self.last.extend_from_slice(name);
                self.device = Some(device);
                Ok(device)
            }
        }
    }
}

pub(super) fn device_of(number: u64) -> Result<DeviceId, Aside> {
    u32::try_from(number)
        .map(DeviceId::Number)
        .map_err(|_| Aside::Rejected("the device number needs more than 32 bits"))
}
