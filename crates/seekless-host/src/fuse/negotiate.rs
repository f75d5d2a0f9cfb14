//! INIT: what this program wants of the kernel, and what both agree on.

use seekless::fs::{FsTraits, OpenFlags, OpenProtocol};

use super::abi::{self, InitFlags};
use super::options::InitError;
use super::reply::CacheTimes;
use super::request::Init;

/// Largest WRITE and READ: 256 pages of 4 KiB, the kernel's `fuse.max_pages_limit`.
pub(super) const TRANSFER_BYTES_MAX: u32 = 1 << 20;

/// Limit of the kernel's read-ahead: one largest READ.
const READAHEAD_BYTES: u32 = TRANSFER_BYTES_MAX;

/// Limit of background requests (READs and WRITEs that programs do not wait for). The kernel's default of 12 starves a
/// drive with a queue; 64 is two SATA queues.
pub(super) const MAX_BACKGROUND: u16 = 64;

/// The kernel's own proportion: it throttles read-ahead from three quarters on.
pub(super) const CONGESTION_THRESHOLD: u16 = MAX_BACKGROUND / 4 * 3;

/// The kernel checks rights by access-control lists; leaves the umask to the file system, since a default list replaces
/// it; and says when setting a list must clear a set-group-id bit. Linux before 5.12 does not, and a file's owner could
/// grant rights of a group without belonging to it: no lists there.
const ACCESS_LISTS: InitFlags = InitFlags::POSIX_ACL.union(InitFlags::DONT_MASK).union(InitFlags::SETXATTR_EXT);

/// Features requested in INIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestedFeatures {
    /// Let the kernel collect small writes.
    pub(super) writeback_cache: bool,
    /// No message at open and close, where the file system allows it.
    pub(super) zero_message_open: bool,
    /// The kernel's page cache keeps no file data.
    pub(super) direct: bool,
    /// Requests through io_uring.
    pub(super) uring: bool,
    /// The kernel reads and writes files itself that are stored as they are in files of the host.
    pub(super) passthrough: bool,
    /// Overrides what follows from the file system's traits.
    pub(super) times: Option<CacheTimes>,
}

impl RequestedFeatures {
    /// None that needs the kernel's help, as tests and the fuzz target begin with.
    pub(super) const PLAIN: RequestedFeatures = RequestedFeatures {
        writeback_cache: false,
        zero_message_open: true,
        direct: false,
        uring: false,
        passthrough: false,
        times: None,
    };
}

/// Features agreed in INIT.
#[derive(Clone, Copy, Debug)]
pub struct Negotiated {
    pub flags: InitFlags,
    /// Minor version of the kernel's protocol.
    pub minor: u32,
    pub(super) zero_message_open: bool,
    pub(super) zero_message_opendir: bool,
    pub(super) direct: bool,
    pub(super) times: CacheTimes,
}

impl Negotiated {
    /// The kernel's flags for a file that is opened with `flags`: whether its data is kept in the page cache.
    pub(super) fn cache_flags(&self, flags: OpenFlags) -> u32 {
        let appends = flags.append && flags.write && self.flags.contains(InitFlags::DIRECT_IO_ALLOW_MMAP);
        if self.direct || appends { abi::FOPEN_DIRECT_IO } else { 0 }
    }
}

/// Answers INIT.
///
/// # Errors
/// `TooOld`, after which the kernel must get an error.
pub(super) fn negotiate(
    init: &Init,
    traits: &FsTraits,
    requested: &RequestedFeatures,
) -> Result<(Negotiated, abi::InitOut), InitError> {
    if init.major < abi::MAJOR || (init.major == abi::MAJOR && init.minor < abi::MINOR_MIN) {
        return Err(InitError::TooOld { major: init.major, minor: init.minor });
    }
    let mut wanted = InitFlags::ASYNC_READ
        | InitFlags::BIG_WRITES
        | InitFlags::ASYNC_DIO
        | InitFlags::MAX_PAGES
        | InitFlags::PARALLEL_DIROPS
        | InitFlags::DO_READDIRPLUS
        | InitFlags::READDIRPLUS_AUTO
        | InitFlags::HANDLE_KILLPRIV_V2
        | InitFlags::HAS_IOCTL_DIR
        // Distinguishes an abort from an unmount.
        | InitFlags::ABORT_ERROR
        | InitFlags::INIT_EXT;
    // Not requested: ATOMIC_O_TRUNC, because the SETATTR that comes instead says exactly whether set-user-id must be
    // cleared; EXPORT_SUPPORT, because a lookup of "." counts a reference that the file-system interface cannot count;
    // locks, which the kernel implements itself.
    if traits.access_lists && init.flags.contains(ACCESS_LISTS) {
        wanted |= ACCESS_LISTS;
    }
    let times = requested.times.unwrap_or(if traits.exclusive { CacheTimes::EXCLUSIVE } else { CacheTimes::SHARED });
    if traits.exclusive {
        wanted |= InitFlags::CACHE_SYMLINKS | InitFlags::EXPLICIT_INVAL_DATA;
    } else {
        wanted |= InitFlags::AUTO_INVAL_DATA;
    }
    if traits.open_protocol == OpenProtocol::ZeroMessage && requested.zero_message_open {
        wanted |= InitFlags::NO_OPEN_SUPPORT | InitFlags::NO_OPENDIR_SUPPORT;
    }
    if requested.writeback_cache {
        wanted |= InitFlags::WRITEBACK_CACHE;
    }
    if requested.uring {
        wanted |= InitFlags::OVER_IO_URING;
    }
    // What is appended to a file that others may change is sent as a whole, past the page cache: through the cache, the kernel sends the
    // rest of the last page in a request of its own, and another append can come between the two. Requests through io_uring
    // may overtake each other, and a write-back cache appends by itself.
    if traits.appends_at_end && !requested.uring && !requested.writeback_cache {
        wanted |= InitFlags::DIRECT_IO_ALLOW_MMAP;
    }
    // The kernel has either this or a write-back cache.
    if requested.passthrough && traits.outside_files && !requested.writeback_cache {
        wanted |= InitFlags::PASSTHROUGH;
    }
    let flags = wanted & init.flags;
    let negotiated = Negotiated {
        flags,
        minor: init.minor.min(abi::MINOR),
        zero_message_open: flags.contains(InitFlags::NO_OPEN_SUPPORT),
        zero_message_opendir: flags.contains(InitFlags::NO_OPENDIR_SUPPORT),
        direct: requested.direct,
        times,
    };
    let page_bytes = rustix::param::page_size() as u32;
    let out = abi::InitOut {
        major: abi::MAJOR,
        minor: abi::MINOR,
        max_readahead: READAHEAD_BYTES,
        flags: flags.bits() as u32,
        max_background: MAX_BACKGROUND,
        congestion_threshold: CONGESTION_THRESHOLD,
        max_write: TRANSFER_BYTES_MAX,
        time_gran: 1,
        max_pages: (TRANSFER_BYTES_MAX / page_bytes).min(u32::from(u16::MAX)) as u16,
        flags2: (flags.bits() >> 32) as u32,
        // Files that are passed through may not be on a file system that is stacked itself.
        max_stack_depth: u32::from(flags.contains(InitFlags::PASSTHROUGH)),
        ..abi::InitOut::default()
    };
    Ok((negotiated, out))
}

#[cfg(test)]
mod tests {
    use seekless::fs::FileSystem;
    use seekless::rt::{Executor, HostProfile};
    use seekless::testing::MemFs;

    use super::*;

    /// A kernel that is too old is refused, and only what both support is agreed.
    #[test]
    fn init_is_negotiated() {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let traits = MemFs::new(executor.rt()).traits();
        let mut requested = RequestedFeatures { writeback_cache: true, ..RequestedFeatures::PLAIN };
        let offer = |minor, flags| Init { major: 7, minor, max_readahead: 0, flags };
        let refused = negotiate(&offer(23, InitFlags::all()), &traits, &requested).unwrap_err();
        assert_eq!(refused, InitError::TooOld { major: 7, minor: 23 });
        let (negotiated, out) = negotiate(&offer(45, InitFlags::all()), &traits, &requested).unwrap();
        assert!(negotiated.flags.contains(InitFlags::NO_OPEN_SUPPORT | InitFlags::WRITEBACK_CACHE));
        assert!(negotiated.flags.contains(ACCESS_LISTS) && !negotiated.flags.contains(InitFlags::OVER_IO_URING));
        assert!(
            !negotiated.flags.contains(InitFlags::DIRECT_IO_ALLOW_MMAP),
            "alone, the file system knows where files end"
        );
        let appends = OpenFlags { append: true, ..OpenFlags::READ_WRITE };
        assert_eq!(negotiated.cache_flags(appends), 0);
        let shared = FsTraits { appends_at_end: true, ..traits };
        for (writeback_cache, uring) in [(false, false), (true, false), (false, true)] {
            let requested = RequestedFeatures { writeback_cache, uring, ..requested };
            let (negotiated, _) = negotiate(&offer(45, InitFlags::all()), &shared, &requested).unwrap();
            let direct = if writeback_cache || uring { 0 } else { abi::FOPEN_DIRECT_IO };
            assert_eq!(negotiated.cache_flags(appends), direct, "{writeback_cache} {uring}");
            assert_eq!(negotiated.cache_flags(OpenFlags::READ_WRITE), 0, "only what appends");
            assert_eq!(negotiated.cache_flags(OpenFlags { write: false, ..appends }), 0, "only what appends");
        }
        let older = InitFlags::all().difference(InitFlags::SETXATTR_EXT);
        let without_lists = FsTraits { access_lists: false, ..traits };
        for (offered, traits) in [(older, traits), (InitFlags::all(), without_lists)] {
            let (negotiated, _) = negotiate(&offer(32, offered), &traits, &requested).unwrap();
            assert!(!negotiated.flags.intersects(ACCESS_LISTS), "all of it or nothing");
        }
        assert_eq!((out.max_write, out.max_pages, out.minor), (1 << 20, 256, 45));
        requested.zero_message_open = false;
        let (negotiated, _) = negotiate(&offer(31, InitFlags::BIG_WRITES), &traits, &requested).unwrap();
        assert_eq!((negotiated.flags, negotiated.minor), (InitFlags::BIG_WRITES, 31));
    }
}
