//! Modelled flash drives: how long a drive takes for a request, from its dies, channels, mapping, garbage collection, write
//! buffer and host interface. A device answers *what* is stored; this room answers *when*.
//!
//! Commands book the parts of the drive that they use when they arrive ([`lane`]), so that a command costs no event of its own
//! and millions a second can be modelled.

mod buffer;
mod catalogue;
mod cells;
mod controller;
mod device;
mod drive;
mod front;
mod host_managed;
mod lane;
mod mapping;
mod places;
mod read_ahead;
mod space;
mod start;
#[cfg(test)]
mod tests;
pub mod validation;
mod zone_controller;
mod zone_device;
mod zone_table;

pub use controller::Controller;
pub use device::{Options, SsdDevice};
pub use drive::{Cells, Fill, FlashError, Interface, Known, Model, Ssd, UNIT_BYTES, WriteBuffer, Zns, ZoneCosts};
pub use host_managed::HostManaged;
pub use zone_controller::ZoneController;
pub use zone_device::ZnsDevice;
