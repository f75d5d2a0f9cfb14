//! The modelled processor: what the file-system code of an old machine costs, so that "LFS is limited by the
//! processor and FFS by the disk" can come out of a run.
//!
//! A profile holds a handful of costs, each with the published point that it was calibrated on. The points are listed
//! in `docs/papers.md`; everything else that comes out of a profile is a prediction.

use crate::units::Nanos;

/// Something the processor does on behalf of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// A system call that changes the name space: create, unlink, mkdir, rename ...
    NamespaceCall,
    /// Any other system call.
    Call,
    /// Moving this many bytes between a program, the cache and device buffers.
    Copy { bytes: u64 },
    /// Hands one request to a device and takes its interrupt.
    DeviceRequest,
    /// Computing that is known in cycles, such as compressing.
    Cycles(u64),
    /// What the program itself computes, whatever the machine.
    Compute { time: Nanos },
}

/// What a machine's processor needs for each kind of [`Work`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostProfile {
    pub name: &'static str,
    pub namespace_call: Nanos,
    pub call: Nanos,
    pub copy_per_kib: Nanos,
    pub device_request: Nanos,
    /// Clock, for work that is known in cycles. 0 for a processor on which cycles cost nothing.
    pub megahertz: u64,
}

impl HostProfile {
    /// A processor that costs nothing: pure storage time.
    pub const NONE: HostProfile = HostProfile {
        name: "none",
        namespace_call: Nanos::ZERO,
        call: Nanos::ZERO,
        copy_per_kib: Nanos::ZERO,
        device_request: Nanos::ZERO,
        megahertz: 0,
    };

    /// Every profile that can be named on a command line.
    pub const ALL: &[HostProfile] = &[
        HostProfile::NONE,
        HostProfile::SPARCSTATION1,
        HostProfile::SPARCSTATION2,
        HostProfile::SUN4_260,
        HostProfile::CELERON433,
    ];

    /// SparcStation 2 (40 MHz), the machine of [se95 §3]. Calibration: `docs/papers/machines.md`.
    ///
    /// Calls and copies are those that \[ou90\] measured on a SparcStation 1, which has the same processor at 20 MHz,
    /// halved (recalled; that page says what depends on them). The rest of the time of a file creation, which is
    /// derived from \[se95\] and not printed there, is the cost of changing the name space.
    pub const SPARCSTATION2: HostProfile = HostProfile {
        name: "sparcstation2",
        // 1/335 s for a create, derived from [se95 §1.1, §2, Table 2]: ten times 67/2, less write, close and 1 KiB of
        // copying. 64 % of the processor at that rate [se95 §2] would be 1.9 ms.
        namespace_call: Nanos::from_micros(2_748),
        // 0.31 ms for open and close of a file in the cache [ou90 Table 9].
        call: Nanos::from_micros(78),
        // 6.3 MB/s for read from the cache [ou90 Table 6]; [se95 §4] has 1.8 ms for two copies of 4 KB, so 225 us.
        copy_per_kib: Nanos::from_micros(81),
        // No published figure isolates it; the rate of creation includes it.
        device_request: Nanos::ZERO,
        megahertz: 40,
    };

    /// SparcStation 1 (20 MHz), the machine of [se95 §5]: the same processor as that of the SparcStation 2 at half its
    /// clock, so everything takes twice as long.
    pub const SPARCSTATION1: HostProfile = HostProfile {
        name: "sparcstation1",
        namespace_call: Nanos::from_micros(2 * 2_748),
        call: Nanos::from_micros(2 * 78),
        copy_per_kib: Nanos::from_micros(2 * 81),
        device_request: Nanos::ZERO,
        megahertz: 20,
    };

    /// Sun-4/260 (16.67 MHz, recalled; [se95 Table 1] prints 25), the machine of [ro92 §5.1]. Calibration:
    /// `docs/papers/machines.md`.
    pub const SUN4_260: HostProfile = HostProfile {
        name: "sun4-260",
        // 1/141 s for a create, less write, close and 1 KiB of copying: Sprite LFS keeps a Wren IV 17 % busy while it
        // creates files of 1 KB [ro92 §5.1], and 10,000 of ours keep the model busy for 12.1 s.
        namespace_call: Nanos::from_micros(6_600),
        // As a SparcStation 1, which has about the same processor.
        call: Nanos::from_micros(2 * 78),
        copy_per_kib: Nanos::from_micros(2 * 81),
        device_request: Nanos::ZERO,
        // 16.67 MHz.
        megahertz: 17,
    };

    /// Celeron of 433 MHz, the machine of [za01 §7]. Not calibrated: lmbench figures for this class of machine,
    /// recalled; `docs/papers/machines.md` says what depends on them.
    pub const CELERON433: HostProfile = HostProfile {
        name: "celeron433",
        namespace_call: Nanos::from_micros(20),
        call: Nanos::from_micros(3),
        // 150 MB/s in memory, which the second-level cache does not hold.
        copy_per_kib: Nanos(6_800),
        device_request: Nanos::from_micros(15),
        megahertz: 433,
    };

    pub fn named(name: &str) -> Option<HostProfile> {
        Self::ALL.iter().copied().find(|profile| profile.name == name)
    }

    /// The same machine with a processor that is so many times as fast. What a program computes by itself
    /// ([`Work::Compute`]) takes as long as before.
    #[must_use]
    pub fn faster(self, times: std::num::NonZeroU64) -> HostProfile {
        let shorter = |cost: Nanos| Nanos(cost.0 / times);
        HostProfile {
            name: self.name,
            namespace_call: shorter(self.namespace_call),
            call: shorter(self.call),
            copy_per_kib: shorter(self.copy_per_kib),
            device_request: shorter(self.device_request),
            megahertz: self.megahertz * times.get(),
        }
    }

    pub fn cost(&self, work: Work) -> Nanos {
        match work {
            Work::NamespaceCall => self.namespace_call,
            Work::Call => self.call,
            Work::Copy { bytes } => Nanos(self.copy_per_kib.0 * bytes / 1024),
            Work::DeviceRequest => self.device_request,
            Work::Cycles(cycles) => Nanos((cycles * 1_000).checked_div(self.megahertz).unwrap_or(0)),
            Work::Compute { time } => time,
        }
    }
}
