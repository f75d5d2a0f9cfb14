//! Tests of the flash model as a whole.

mod collection;
mod device;
mod fit;
mod zones;

use super::{Cells, Fill, Interface, Known, Ssd, WriteBuffer};
use crate::units::{KIB, MIB, Nanos};

/// A small drive: 8 dies, superblocks of `pages` times 128 KiB.
fn small(bytes: u64, pages: u32, spare: u32) -> Ssd {
    Ssd {
        name: "small",
        product: "for tests",
        known: Known::Assumed,
        source: "",
        bytes,
        spare,
        cells: Cells {
            channels: 4,
            dies: 8,
            planes: 1,
            page_bytes: 16 * KIB as u32,
            pages,
            read: Nanos::from_micros(60),
            program: Nanos::from_micros(600),
            erase: Nanos::from_millis(3),
            channel_rate: 400_000_000,
            channel_setup: Nanos(1_000),
            correction: Nanos(1_000),
        },
        interface: Interface {
            queue: 64,
            command: Nanos(1_000),
            read_command: Nanos(1_000),
            append: Nanos(1_000),
            append_latency: Nanos::ZERO,
            write_latency: Nanos(5_000),
            read_latency: Nanos(5_000),
            list_latency: Nanos(3_000),
            transfer_rate: 1_600_000_000,
            link_setup: Nanos(100),
            link_rate: 3_200_000_000,
            merge: Nanos(500),
            merge_sector: Nanos(500),
            merge_after: Nanos(2_000),
            narrow: Nanos::ZERO,
        },
        buffer: WriteBuffer { bytes: MIB, protected: true },
        journal_bytes: 0,
    }
}

const FILLS: [Fill; 3] = [Fill::Fresh, Fill::Sequential, Fill::Random];
