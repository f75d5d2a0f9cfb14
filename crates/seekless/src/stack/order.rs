//! Which word may be above which.

use super::error::StackError;
use super::spec::{Constructor, WordSpec};
use super::value::Value;
use super::{NUMBER, Setting, Word};

/// The kind of a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// A file system over a file system.
    Layer,
    /// A file system on a block device.
    FileSystem,
    /// A file system with nothing of ours below.
    FileSystemLeaf,
    /// A block device over a block device.
    DeviceLayer,
    /// A block device with nothing of ours below.
    DeviceLeaf,
}

/// The two interfaces of Seekless.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interface {
    FileSystem,
    Device,
}

impl WordSpec {
    pub fn role(&self) -> Role {
        match self.constructor {
            Constructor::Layer(_) => Role::Layer,
            Constructor::FileSystem(_) => Role::FileSystem,
            Constructor::FileSystemLeaf => Role::FileSystemLeaf,
            Constructor::DeviceLayer(..) | Constructor::StoredDevice(_) | Constructor::Spread(_) => Role::DeviceLayer,
            Constructor::VolatileDevice(_) | Constructor::DeviceLeaf => Role::DeviceLeaf,
        }
    }
}

/// Checks that every word is above one of the right kind, and that the last one is a leaf.
pub(super) fn check(line: &str, words: &[Word]) -> Result<(), StackError> {
    for (index, word) in words.iter().enumerate() {
        let (name, role) = (word.name(), word.spec.role());
        let below = words.get(index + 1);
        let error = |word: &Word, problem: String| StackError::new(line, word.name_span.clone(), problem);
        match (role.needs_below(), below) {
            (None, None) => {}
            (None, Some(below)) => {
                let problem = format!("nothing can be below `{name}`: it is {}", role.described());
                return Err(error(below, problem));
            }
            (Some(needed), None) => {
                return Err(error(word, format!("`{name}` needs {} below it, but there is nothing", needed.noun()))
                    .hint(format!("add what is below, for example: {name} / {}", needed.example())));
            }
            (Some(needed), Some(below)) if below.spec.role().is() != needed => {
                let problem = format!(
                    "`{name}` needs {} below it, but `{}` is {}",
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
    check_instances(line, words)
}

/// Limit of the devices of one stack.
const INSTANCES_MAX: u64 = 4096;

/// Checks that the words below one that spreads can have several instances.
fn check_instances(line: &str, words: &[Word]) -> Result<(), StackError> {
    let mut instances: u64 = 1;
    let mut spread: Option<&Word> = None;
    for word in words {
        match &word.spec.constructor {
            Constructor::Spread(spec) => {
                instances = instances.saturating_mul((spec.members)(word));
                spread = Some(word);
                if instances > INSTANCES_MAX {
                    let problem = format!("the stack would have {instances} devices; the maximum is {INSTANCES_MAX}");
                    return Err(StackError::new(line, word.span(), problem));
                }
            }
            Constructor::DeviceLeaf => {
                let is_same =
                    |setting: &&Setting| matches!(&setting.value, Value::Path(path) if !path.contains(NUMBER));
                if let (Some(above), Some(setting)) = (spread, word.settings.iter().find(is_same))
                    && instances > 1
                {
                    let problem = format!("all {instances} members of `{}` would be the same", above.name());
                    let example = format!("{}:{}", word.name(), numbered_path(&setting.value.to_string()));
                    return Err(StackError::new(line, setting.span.clone(), problem)
                        .hint(format!("write {NUMBER} where the number of each goes, for example {example}")));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// `path` with the placeholder of a number before its ending.
fn numbered_path(path: &str) -> String {
    match path.rsplit_once('.') {
        Some((stem, ending)) if !stem.is_empty() && !ending.contains('/') => format!("{stem}-{NUMBER}.{ending}"),
        _ => format!("{path}-{NUMBER}"),
    }
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
    /// The interface that a word of this role offers to the one above it.
    pub fn is(self) -> Interface {
        match self {
            Role::Layer | Role::FileSystem | Role::FileSystemLeaf => Interface::FileSystem,
            Role::DeviceLayer | Role::DeviceLeaf => Interface::Device,
        }
    }

    /// The interface that a word of this role needs below it.
    pub fn needs_below(self) -> Option<Interface> {
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
            Role::FileSystemLeaf => "a file system without a device",
            Role::DeviceLayer => "a layer over a block device",
            Role::DeviceLeaf => "a block device",
        }
    }
}
