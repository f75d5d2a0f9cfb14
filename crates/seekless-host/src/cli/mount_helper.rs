//! Other names and syntaxes of the program, translated to ours.
//!
//! * `mount -t seekless SRC DIR` runs `/sbin/mount.seekless SRC DIR [-sfnv] [-N NS] [-o OPTIONS] [-t TYPE]`;
//! * `mount -o remount,OPTIONS DIR` runs `/sbin/mount.fuse.seekless` or, where root has mounted a block device, `/sbin/mount.fuseblk.seekless`;
//! * `mount -t fuse.seekless SRC DIR`, and the remount where that is missing, run `seekless SRC DIR -o OPTIONS` (mount.fuse(8));
//! * `mkfs -t seekless` and `fsck -t seekless` run `mkfs.seekless` and `fsck.seekless`.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The arguments as the user would have typed them for this program.
pub(super) fn translate(arguments: Vec<OsString>) -> Vec<OsString> {
    let name = arguments.first().and_then(|name| Path::new(name).file_name()).and_then(OsStr::to_str);
    match name {
        Some("mount.seekless" | "mount.fuse.seekless" | "mount.fuseblk.seekless") => as_mount(&arguments[1..]),
        Some("mkfs.seekless") => with_command("mkfs", &arguments),
        Some("fsck.seekless") => with_command("fsck", &arguments),
        _ if arguments.len() > 2 && arguments.get(1).is_some_and(|first| is_stack(first)) => as_mount(&arguments[1..]),
        // For a mount with its own name (`fsname=`), mount.fuse(8) passes that name.
        _ if is_remount(&arguments) => as_mount(&arguments[1..]),
        _ => arguments,
    }
}

/// No command looks like this.
fn is_stack(argument: &OsStr) -> bool {
    argument.to_str().is_some_and(|text| text.starts_with('@') || text.contains(" / ") || text.contains(':'))
}

/// `seekless SRC DIR -o remount,...`
fn is_remount(arguments: &[OsString]) -> bool {
    let list = match arguments {
        [_, source, _, option, list] if option == "-o" && source != "mount" => list,
        _ => return false,
    };
    list.to_str().is_some_and(|list| list.split(',').any(|word| word == "remount"))
}

fn with_command(command: &str, arguments: &[OsString]) -> Vec<OsString> {
    [OsString::from("seekless"), command.into()].into_iter().chain(arguments.iter().skip(1).cloned()).collect()
}

/// `SRC DIR`, with the options of mount(8) before, between and behind them.
fn as_mount(arguments: &[OsString]) -> Vec<OsString> {
    let mut ours: Vec<OsString> = vec!["seekless".into(), "mount".into()];
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy();
        let Some(letters) = text.strip_prefix('-').filter(|letters| !letters.starts_with('-') && !letters.is_empty())
        else {
            ours.push(argument.clone());
            continue;
        };
        for (index, letter) in letters.char_indices() {
            let takes_value = matches!(letter, 'o' | 't' | 'N');
            if takes_value {
                let attached = &letters[index + letter.len_utf8()..];
                let value = if attached.is_empty() { arguments.next().cloned() } else { Some(attached.into()) };
                if let (Some(value), 'o') = (value, letter) {
                    ours.extend(["-o".into(), value]);
                }
                break;
            }
            match letter {
                's' => ours.push("--sloppy".into()),
                'f' => ours.push("--fake".into()),
                'v' => ours.push("--verbose".into()),
                'n' => {}                                       // There is no mtab.
                other => ours.push(format!("-{other}").into()), // The parser refuses it.
            }
        }
    }
    ours
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(arguments: &[&str]) -> Vec<String> {
        let arguments = arguments.iter().map(OsString::from).collect();
        translate(arguments).into_iter().map(|argument| argument.into_string().unwrap()).collect()
    }

    /// Each syntax of mount(8) is translated; our own is kept.
    #[test]
    fn other_forms_are_understood() {
        assert_eq!(
            translated(&[
                "/sbin/mount.seekless",
                "lfs / file:/a b",
                "/mnt",
                "-sn",
                "-o",
                "ro,nosuid",
                "-t",
                "seekless"
            ]),
            ["seekless", "mount", "lfs / file:/a b", "/mnt", "--sloppy", "-o", "ro,nosuid"]
        );
        assert_eq!(
            translated(&["seekless", "@/etc/data.toml", "/mnt", "-oro"]),
            ["seekless", "mount", "@/etc/data.toml", "/mnt", "-o", "ro"]
        );
        assert_eq!(
            translated(&["mkfs.seekless", "lfs / file:x", "-L", "y"])[..3],
            ["seekless", "mkfs", "lfs / file:x"]
        );
        assert_eq!(translated(&["/usr/bin/fsck.seekless", "-n", "x"]), ["seekless", "fsck", "-n", "x"]);
        let ours = ["seekless", "mount", "lfs / file:x", "/mnt", "-f"];
        assert_eq!(translated(&ours), ours);
        let ours = ["seekless", "mount", "data", "/mnt", "-o", "remount,ro"];
        assert_eq!(translated(&["seekless", "data", "/mnt", "-o", "remount,ro"]), ours);
        assert_eq!(translated(&ours), ours);
        for helper in ["mount.fuse.seekless", "/sbin/mount.fuseblk.seekless"] {
            let remount = translated(&[helper, "data", "/mnt", "-o", "remount,ro", "-t", "fuseblk.seekless"]);
            assert_eq!(remount, ours, "{helper}");
        }
        assert_eq!(translated(&["seekless"]), ["seekless"]);
        assert_eq!(translated(&[]), [""; 0]);
        assert_eq!(translated(&["mount.seekless", "x", "y", "-Z", "-o"]), ["seekless", "mount", "x", "y", "-Z"]);
    }
}
