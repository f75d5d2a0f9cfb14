//! What a command line with a stack probably meant, where it is wrong in one of two common ways.

use std::ffi::OsString;
use std::path::Path;

use seekless::stack::{Stack, quoted, quoted_if_need_be};

/// The line with its stack in quotes, if the shell has split a stack at its blanks.
pub(super) fn with_the_stack_quoted(arguments: &[OsString]) -> Option<String> {
    let words: Vec<&str> = arguments.iter().map(|argument| argument.to_str()).collect::<Option<_>>()?;
    let slash = words.iter().position(|word| *word == "/")?;
    let mut end = slash.checked_add(2).filter(|end| *end <= words.len())?;
    while words.get(end) == Some(&"/") && end + 2 <= words.len() {
        end += 2;
    }
    // Before it are the program and its command.
    let start = slash.checked_sub(1).filter(|start| *start >= 2)?;
    let stack = words[start..end].join(" ");
    Stack::parse(&stack).ok()?;
    let rest = |words: &[&str]| words.iter().map(|word| quoted_if_need_be(word)).collect::<Vec<_>>();
    let name = Path::new(words[0]).file_name()?.to_str()?.to_owned();
    Some([vec![name], rest(&words[1..start]), vec![quoted(&stack)], rest(&words[end..])].concat().join(" "))
}

/// The arguments of `mount` in their order, if `directory` is a stack and `stack` is none.
pub(super) fn exchanged(stack: &str, directory: &Path) -> Option<String> {
    let line = directory.to_str()?;
    (Stack::parse(stack).is_err() && Stack::parse(line).is_ok())
        .then(|| format!("seekless mount {} {}", quoted(line), quoted_if_need_be(stack)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_stack_is_put_together() {
        let meant = |line: &[&str]| with_the_stack_quoted(&line.iter().map(OsString::from).collect::<Vec<_>>());
        for (line, expected) in [
            (&["/usr/bin/seekless", "mount", "lfs", "/", "file:a", "/mnt"][..], "seekless mount 'lfs / file:a' /mnt"),
            (
                &["seekless", "mkfs", "--force", "zstd", "/", "lfs", "/", "file:a,size=1GiB", "--label", "my files"],
                "seekless mkfs --force 'zstd / lfs / file:a,size=1GiB' --label 'my files'",
            ),
            (&["seekless", "fsck", "ffs", "/", "file:a"], "seekless fsck 'ffs / file:a'"),
        ] {
            assert_eq!(meant(line).as_deref(), Some(expected));
        }
        for line in [
            &["seekless", "sync", "/"][..],
            &["seekless", "/", "file:a"],
            &["seekless", "mount", "lfs", "/"],
            &["seekless", "mount", "lfs", "/", "nothing:a", "/mnt"],
            &["/"],
        ] {
            assert_eq!(meant(line), None);
        }
    }

    #[test]
    fn exchanged_arguments_are_put_in_order() {
        let meant = |stack, directory: &str| exchanged(stack, Path::new(directory));
        assert_eq!(meant("my m", "lfs / file:a").as_deref(), Some("seekless mount 'lfs / file:a' 'my m'"));
        assert_eq!(meant("lfs / file:a", "memfs"), None);
        assert_eq!(meant("a", "b"), None);
    }
}
