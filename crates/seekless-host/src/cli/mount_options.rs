//! The words of `mount -o`, as in mount(8).

use rustix::mount::MountFlags;
use seekless::units::Nanos;

use super::Failure;
use super::exit::WRONG_USAGE;
use crate::fuse::TransportChoice;

/// Parsed options.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MountWords {
    pub(super) read_only: bool,
    pub(super) allow_other: bool,
    pub(super) over_content: bool,
    /// Change the flags of an existing mount.
    pub(super) remount: bool,
    pub(super) writeback_cache: bool,
    /// The kernel may read and write files of a host directory itself.
    pub(super) passthrough: bool,
    /// The daemon may look for the next request for a moment before it sleeps.
    pub(super) busy_poll: bool,
    /// The daemon may run on the processor of a program that makes one request after another.
    pub(super) share_processor: bool,
    pub(super) flags: MountFlags,
    /// How often changes are made durable; `None` is the default.
    pub(super) commit: Option<Nanos>,
    /// The source shown by `mount` and `df`.
    pub(super) source: Option<String>,
    pub(super) transport: Option<TransportChoice>,
}

impl Default for MountWords {
    fn default() -> MountWords {
        MountWords {
            read_only: false,
            allow_other: false,
            over_content: false,
            remount: false,
            writeback_cache: false,
            passthrough: true,
            busy_poll: true,
            share_processor: false,
            flags: MountFlags::empty(),
            commit: None,
            source: None,
            transport: None,
        }
    }
}

/// Flags with a pair of words; `dirsync` has no opposite.
const FLAGS: &[(&str, &str, MountFlags)] = &[
    ("nosuid", "suid", MountFlags::NOSUID),
    ("nodev", "dev", MountFlags::NODEV),
    ("noexec", "exec", MountFlags::NOEXEC),
    ("noatime", "atime", MountFlags::NOATIME),
    ("nodiratime", "diratime", MountFlags::NODIRATIME),
    ("relatime", "norelatime", MountFlags::RELATIME),
    ("strictatime", "nostrictatime", MountFlags::STRICTATIME),
    ("sync", "async", MountFlags::SYNCHRONOUS),
    ("dirsync", "", MountFlags::DIRSYNC),
    ("lazytime", "nolazytime", MountFlags::LAZYTIME),
    ("silent", "loud", MountFlags::SILENT),
    ("nosymfollow", "symfollow", MountFlags::NOSYMFOLLOW),
];

/// The flags that a remount can change.
const CHANGEABLE: MountFlags = MountFlags::RDONLY
    .union(MountFlags::NOSUID)
    .union(MountFlags::NODEV)
    .union(MountFlags::NOEXEC)
    .union(MountFlags::NOATIME)
    .union(MountFlags::NODIRATIME)
    .union(MountFlags::RELATIME)
    .union(MountFlags::STRICTATIME)
    .union(MountFlags::NOSYMFOLLOW)
    .union(MountFlags::LAZYTIME);

/// The `flags` of a mount, with those that a remount may have changed as the mount table `lists` them.
pub(super) fn as_listed(flags: MountFlags, lists: &str) -> MountFlags {
    let mut listed = MountWords::default();
    for word in lists.split(',') {
        // The table has words that are not for mount(8).
        let _ = apply(&mut listed, word, true);
    }
    let mut now = listed.flags;
    // It has no word for the strict one, which is not the default.
    now.set(MountFlags::STRICTATIME, !now.intersects(MountFlags::RELATIME | MountFlags::NOATIME));
    now.set(MountFlags::RDONLY, listed.read_only);
    flags.difference(CHANGEABLE) | now.intersection(CHANGEABLE)
}

/// The flags of a mount that the table lists as `present`, after a remount with the words of `lists`.
///
/// # Errors
/// The first word whose value is invalid.
pub(super) fn remounted(present: &str, lists: &[String]) -> Result<MountFlags, Failure> {
    const TIMES: MountFlags = MountFlags::NOATIME.union(MountFlags::RELATIME).union(MountFlags::STRICTATIME);
    let mut words = parse(&[present.to_owned()], true)?;
    words.flags = as_listed(words.flags, present);
    // Each of these replaces the others; of two, the kernel takes the strict one.
    if parse(lists, true)?.flags.intersects(TIMES) {
        words.flags.remove(TIMES);
    }
    for word in lists.iter().flat_map(|list| list.split(',')).map(str::trim) {
        apply(&mut words, word, true)?;
    }
    // Without any of these, the kernel keeps the one that there is, and not its default.
    if !words.flags.intersects(TIMES) {
        words.flags.insert(MountFlags::RELATIME);
    }
    words.flags.set(MountFlags::RDONLY, words.read_only);
    Ok(words.flags)
}

/// How the daemon of a mount waits for requests, which a remount cannot change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Waiting {
    pub(super) busy_poll: bool,
    pub(super) share_processor: bool,
}

/// The first word after `-o` that would change it. Words that say what holds already come from fstab(5).
pub(super) fn changes_waiting(lists: &[String], present: Waiting) -> Option<&'static str> {
    let last_of = |words: [&'static str; 2]| {
        let given = lists.iter().flat_map(|list| list.split(',')).map(str::trim);
        given.filter_map(|given| words.into_iter().find(|word| *word == given)).next_back()
    };
    let pairs =
        [(["busypoll", "nobusypoll"], present.busy_poll), (["sharecpu", "nosharecpu"], present.share_processor)];
    pairs.into_iter().find_map(|(words, is_on)| last_of(words).filter(|word| (*word == words[0]) != is_on))
}

/// Words for mount(8) itself, for systemd and for libfuse, without effect here or always in effect.
const IGNORED: &[&str] = &[
    "defaults",
    "auto",
    "noauto",
    "nofail",
    "_netdev",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "default_permissions",
    "nomand",
    "iversion",
    "noiversion",
    "_rnetdev",
];

/// The same with values; the kernel lists the second line of a FUSE mount, and mount(8) passes them on to a remount.
const IGNORED_VALUES: &[&str] = &["comment", "user", "helper", "uhelper", "user_id", "group_id", "max_read", "blksize"];

/// Words with an effect here, for the error message.
const KNOWN: &str = "ro, rw, allow_other, nonempty, writeback, nopassthrough, nobusypoll, sharecpu, nosharecpu, \
                     commit=SECONDS, fsname=NAME, transport=auto|devfuse|uring, noatime, nosuid, nodev, noexec, sync, dirsync, remount";

/// True when the lists ask for a remount; the daemon then knows what is mounted.
pub(super) fn ask_for_remount(lists: &[String]) -> bool {
    lists.iter().flat_map(|list| list.split(',')).any(|word| word.trim() == "remount")
}

/// Parses option lists after `-o`. With `sloppy`, unknown words are ignored, as `mount -s` specifies.
///
/// # Errors
/// The first word that is unknown, or whose value is invalid.
pub(super) fn parse(lists: &[String], sloppy: bool) -> Result<MountWords, Failure> {
    let mut words = MountWords::default();
    for word in lists.iter().flat_map(|list| list.split(',')).map(str::trim).filter(|word| !word.is_empty()) {
        apply(&mut words, word, sloppy)?;
    }
    Ok(words)
}

fn apply(words: &mut MountWords, word: &str, sloppy: bool) -> Result<(), Failure> {
    let wrong = |problem: String| Failure::new(problem).code(WRONG_USAGE);
    let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
    if let Some((set, _, flag)) = FLAGS.iter().find(|(set, clear, _)| word == *set || word == *clear) {
        words.flags.set(*flag, word == *set);
        return Ok(());
    }
    match (name, value) {
        ("ro", None) => words.read_only = true,
        ("rw", None) => words.read_only = false,
        ("allow_other", None) => words.allow_other = true,
        ("remount", None) => words.remount = true,
        ("nonempty", None) => words.over_content = true,
        ("writeback", None) => words.writeback_cache = true,
        ("nopassthrough", None) => words.passthrough = false,
        ("busypoll" | "nobusypoll", None) => words.busy_poll = name == "busypoll",
        ("sharecpu" | "nosharecpu", None) => words.share_processor = name == "sharecpu",
        ("commit", Some(value)) => {
            let seconds = value.parse::<u32>().ok().filter(|&seconds| seconds > 0);
            let seconds = seconds
                .ok_or_else(|| wrong(format!("mount option commit={value}: a number of seconds, at least 1")))?;
            words.commit = Some(Nanos::from_secs(seconds.into()));
        }
        ("fsname", Some(value)) => words.source = Some(value.to_owned()),
        ("transport", Some(value)) => {
            let choice = transport(value);
            words.transport =
                Some(choice.ok_or_else(|| wrong(format!("mount option transport={value}: auto, devfuse or uring")))?);
        }
        (name, Some(_)) if IGNORED_VALUES.contains(&name) => {}
        _ if IGNORED.contains(&word) || name.starts_with("x-") || name.starts_with("X-") => {}
        _ if sloppy => {}
        _ => return Err(wrong(format!("there is no mount option `{word}`")).hint(format!("options: {KNOWN}"))),
    }
    Ok(())
}

fn transport(word: &str) -> Option<TransportChoice> {
    match word {
        "auto" => Some(TransportChoice::Auto),
        "devfuse" => Some(TransportChoice::DevFuse),
        "uring" => Some(TransportChoice::Uring),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(list: &str) -> MountWords {
        parse(&[list.to_owned()], false).unwrap_or_else(|failure| panic!("{}", failure.text))
    }

    /// Options mean what mount(8) says; of two contradictory ones the later holds.
    #[test]
    fn options_are_understood() {
        let words = parsed("defaults,ro,allow_other,noatime,nosuid,suid,commit=30,x-systemd.automount,fsname=a b");
        assert!(words.read_only && words.allow_other && !words.over_content);
        assert_eq!(words.flags, MountFlags::NOATIME);
        assert_eq!((words.commit, words.source.as_deref()), (Some(Nanos::from_secs(30)), Some("a b")));
        assert!(!parsed("ro,rw").read_only);
        assert_eq!(parsed("transport=uring").transport, Some(TransportChoice::Uring));
        assert!(!parsed("nobusypoll").busy_poll && parsed("nopassthrough").busy_poll);
        assert!(parsed("sharecpu").share_processor && !parsed("nobusypoll").share_processor);
        assert!(!parsed("sharecpu,nosharecpu").share_processor && parsed("nobusypoll,busypoll").busy_poll);
        assert_eq!(parsed(""), MountWords::default());
        let flags = parsed("dirsync,lazytime,silent,nosymfollow,nomand,noiversion,user=me").flags;
        let all = MountFlags::DIRSYNC | MountFlags::LAZYTIME | MountFlags::SILENT | MountFlags::NOSYMFOLLOW;
        assert_eq!(flags, all);
        assert_eq!(parsed("lazytime,silent,nosymfollow,nolazytime,loud,symfollow").flags, MountFlags::empty());
        // What mount(8) of util-linux 2.38 passes for `mount -o remount,ro`.
        let words = parsed("ro,relatime,remount,user_id=0,group_id=0,default_permissions");
        assert!(words.remount && words.read_only && words.flags == MountFlags::RELATIME);
    }

    /// A remount changes what its words say and nothing else. The mount table has no word for strict times, and the kernel keeps the times
    /// that it has when it is given none.
    #[test]
    fn a_remount_changes_what_it_says() {
        const OTHERS: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);
        for (present, words, expected) in [
            ("rw,nosuid,nodev,noatime", "remount,atime", MountFlags::RELATIME | OTHERS),
            ("rw,nosuid,nodev,noatime", "remount,ro", MountFlags::NOATIME | MountFlags::RDONLY | OTHERS),
            ("rw,nosuid,nodev,noatime", "remount,strictatime", MountFlags::STRICTATIME | OTHERS),
            (
                "rw,nosuid,nodev,nodiratime",
                "remount,ro",
                MountFlags::STRICTATIME | MountFlags::NODIRATIME | MountFlags::RDONLY | OTHERS,
            ),
            ("rw,nosuid,nodev", "remount,noatime", MountFlags::NOATIME | OTHERS),
            ("rw,nosuid,nodev", "remount,relatime", MountFlags::RELATIME | OTHERS),
            ("rw,nosuid,nodev", "remount,nostrictatime", MountFlags::RELATIME | OTHERS),
            ("ro,nosuid,nodev,relatime,sync", "remount,rw,suid", {
                MountFlags::RELATIME | MountFlags::SYNCHRONOUS | MountFlags::NODEV
            }),
        ] {
            let flags = remounted(present, &[words.to_owned()]).unwrap_or_else(|failure| panic!("{}", failure.text));
            assert_eq!(flags, expected, "{present}, then {words}");
        }
    }

    /// A remount names what it would have to change, of two contradictory words the later one.
    #[test]
    fn a_remount_cannot_change_how_the_daemon_waits() {
        let usual = Waiting { busy_poll: true, share_processor: false };
        for (list, expected) in [
            ("remount,ro", None),
            ("remount,sharecpu", Some("sharecpu")),
            ("remount,sharecpu,nosharecpu", None),
            ("remount,nosharecpu", None),
            ("busypoll,remount", None),
            ("remount, nobusypoll", Some("nobusypoll")),
        ] {
            assert_eq!(changes_waiting(&[list.to_owned()], usual), expected, "{list}");
        }
        let other = Waiting { busy_poll: false, share_processor: true };
        assert_eq!(changes_waiting(&["remount".into(), "sharecpu,nobusypoll".into()], other), None);
        assert_eq!(changes_waiting(&["remount".into(), "nosharecpu".into()], other), Some("nosharecpu"));
    }

    /// An unknown option is an error that names it, unless tolerance is requested.
    #[test]
    fn unknown_options_are_refused() {
        for list in ["compress=zstd", "commit=0", "commit=soon", "ro=1", "transport=pigeon"] {
            let failure = parse(&["noatime".into(), list.into()], false).unwrap_err();
            assert!(failure.text.contains(list) && failure.code == WRONG_USAGE, "{}", failure.text);
        }
        assert!(parse(&["compress=zstd".into()], true).is_ok());
    }
}
