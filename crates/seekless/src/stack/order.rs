//! Which word can stand on which.

use super::Word;
use super::error::StackError;

/// What kind of thing a word stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// A file system over a file system.
    Layer,
    /// A file system on a block device.
    FileSystem,
    /// A file system that stands on nothing of ours.
    FileSystemLeaf,
    /// A block device over a block device.
    DeviceLayer,
    /// A block device that stands on nothing of ours.
    DeviceLeaf,
}

/// The two interfaces of Seekless.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interface {
    FileSystem,
    Device,
}

/// Checks that every word stands on something of the right kind, and that the last one stands on nothing.
pub(super) fn check(line: &str, words: &[Word]) -> Result<(), StackError> {
    for (index, word) in words.iter().enumerate() {
        let (name, role) = (word.name(), word.spec.role());
        let below = words.get(index + 1);
        let error = |word: &Word, problem: String| StackError::new(line, word.name_span.clone(), problem);
        match (role.stands_on(), below) {
            (None, None) => {}
            (None, Some(below)) => {
                let problem = format!("nothing can stand below `{name}`: it is {}", role.described());
                return Err(error(below, problem));
            }
            (Some(needed), None) => {
                return Err(error(word, format!("`{name}` stands on {}, but nothing is below it", needed.noun()))
                    .hint(format!("add what is below, for example: {name} / {}", needed.example())));
            }
            (Some(needed), Some(below)) if below.spec.role().is() != needed => {
                let problem = format!(
                    "`{name}` stands on {}, but `{}` is {}",
                    needed.noun(),
                    below.name(),
                    below.spec.role().described()
                );
                let hint = match needed {
                    Interface::FileSystem => format!("put a file system between them: {name} / lfs / {}", below.name()),
                    Interface::Device => format!("for example: {name} / {}", needed.example()),
                };
                return Err(error(below, problem).hint(hint));
            }
            (Some(_), Some(_)) => {}
        }
    }
    Ok(())
}

impl Interface {
    fn noun(self) -> &'static str {
        match self {
            Interface::FileSystem => "a file system",
            Interface::Device => "a block device",
        }
    }

    fn example(self) -> &'static str {
        match self {
            Interface::FileSystem => "hostdir:DIR",
            Interface::Device => "file:a.img",
        }
    }
}

impl Role {
    /// What a word of this role offers to the one above it.
    pub fn is(self) -> Interface {
        match self {
            Role::Layer | Role::FileSystem | Role::FileSystemLeaf => Interface::FileSystem,
            Role::DeviceLayer | Role::DeviceLeaf => Interface::Device,
        }
    }

    /// What a word of this role needs below it.
    pub fn stands_on(self) -> Option<Interface> {
        match self {
            Role::Layer => Some(Interface::FileSystem),
            Role::FileSystem | Role::DeviceLayer => Some(Interface::Device),
            Role::FileSystemLeaf | Role::DeviceLeaf => None,
        }
    }

    /// The role in words, with its article.
    pub fn described(self) -> &'static str {
        match self {
            Role::Layer => "a layer over a file system",
            Role::FileSystem => "a file system on a block device",
            Role::FileSystemLeaf => "a file system of its own",
            Role::DeviceLayer => "a layer over a block device",
            Role::DeviceLeaf => "a block device",
        }
    }
}
