//! The modelled processor: what the file-system code of an old machine costs, so that a run can show that
//! "LFS is limited by the processor and FFS by the disk".
//!
//! A profile holds a handful of costs, each with the published point that it was calibrated on. The points are listed
//! in `docs/papers.md`; every other result of a profile is a prediction.

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
    /// Copies are those of the text. Calls are what \[ou90\] measured on a SparcStation 1, which has the same processor
    /// at 20 MHz, halved (recalled). The cost of changing the name space is what makes FFS use 5.5 % of the processor
    /// while it creates files.
    pub const SPARCSTATION2: HostProfile = HostProfile {
        name: "sparcstation2",
        // "FFS uses 5-6 % for both", creates and deletes [se95 §2]: 5.5 % in experiments/se95-fig1, phase create, FFS-m8r2.
        namespace_call: Nanos::from_micros(1_630),
        // 0.31 ms for open and close of a file in the cache [ou90 Table 9].
        call: Nanos::from_micros(78),
        // 1.8 ms for two copies of 4 KB [se95 §4].
        copy_per_kib: Nanos::from_micros(225),
        // No published figure isolates it; the cost of a create includes it.
        device_request: Nanos::ZERO,
        megahertz: 40,
    };

    /// SparcStation 1 (20 MHz), the machine of [se95 §5]: the same processor as that of the SparcStation 2 at half its
    /// clock, so everything takes twice as long.
    pub const SPARCSTATION1: HostProfile = HostProfile {
        name: "sparcstation1",
        namespace_call: Nanos::from_micros(2 * 1_630),
        call: Nanos::from_micros(2 * 78),
        copy_per_kib: Nanos::from_micros(2 * 225),
        device_request: Nanos::ZERO,
        megahertz: 20,
    };

    /// Sun-4/260 (16.67 MHz, recalled; [se95 Table 1] prints 25), the machine of [ro92 §5.1]. Calibration:
    /// `docs/papers/machines.md`.
    pub const SUN4_260: HostProfile = HostProfile {
        name: "sun4-260",
        // 1/132 s for a create, less write, close and 1 KiB of copying: Sprite LFS keeps a Wren IV 17 % busy while it
        // creates files of 1 KB [ro92 §5.1], and 10,000 of ours keep the model busy for 12.9 s.
        namespace_call: Nanos::from_micros(6_600),
        // 2.5 times those of the SparcStation 2: SPECint92 of 8.7 and 21.8 [se95 Tables 1 and 2].
        call: Nanos::from_micros(195),
        copy_per_kib: Nanos::from_micros(563),
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
