//! Definition of a workload: its name, its work, and its parameters. The command line, experiments, help and completion
//! all come from this.

use super::{Data, Program, Workload};

/// A workload: its name, its work, its parameters, and its constructor.
pub struct WorkloadSpec {
    /// Its word on the command line and in experiments.
    pub name: &'static str,
    /// Its work and its source, in one line.
    pub help: &'static str,
    /// More about it: its phases, and what counts into them.
    pub about: &'static str,
    /// What can follow `seekless bench NAME`.
    pub examples: &'static [&'static str],
    /// Dimensions of its rows.
    pub dims: &'static [&'static str],
    pub keys: &'static [Key],
    /// It keeps a log, which can be on a separate stack.
    pub has_log: bool,
    read: Read,
    defaults: fn() -> Result<toml::Table, toml::ser::Error>,
}

type Read = fn(&toml::Table, Option<u64>) -> Result<Box<dyn Program>, String>;

/// A number or a choice that a workload takes; its default is in the `Default` of the workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    pub name: &'static str,
    pub form: Form,
    /// Its meaning, in one line.
    pub help: &'static str,
}

/// How the value of a [`Key`] is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    Count,
    /// As in a stack line: `64KiB`.
    Bytes,
    Percent,
    Switch,
    /// One of [`Data::ALL`].
    Data,
}

/// Contents of the files of a workload with a choice.
pub const DATA: Key = Key::new("data", Form::Data, "What is in the files");

impl Key {
    pub const fn new(name: &'static str, form: Form, help: &'static str) -> Key {
        Key { name, form, help }
    }
}

impl WorkloadSpec {
    /// A workload whose rows differ by phase.
    pub const fn of<W: Workload>(name: &'static str, help: &'static str, keys: &'static [Key]) -> WorkloadSpec {
        WorkloadSpec {
            name,
            help,
            about: "",
            examples: &[],
            dims: &["phase"],
            keys,
            has_log: false,
            read: read::<W>,
            defaults: || toml::Table::try_from(W::default()),
        }
    }

    /// See [`WorkloadSpec::about`].
    pub const fn about(self, about: &'static str) -> WorkloadSpec {
        WorkloadSpec { about, ..self }
    }

    /// See [`WorkloadSpec::examples`].
    pub const fn examples(self, examples: &'static [&'static str]) -> WorkloadSpec {
        WorkloadSpec { examples, ..self }
    }

    /// Its rows are of files of several sizes.
    pub const fn by_size(self) -> WorkloadSpec {
        WorkloadSpec { dims: &["phase", "file_bytes"], ..self }
    }

    /// See [`WorkloadSpec::has_log`].
    pub const fn with_log(self) -> WorkloadSpec {
        WorkloadSpec { has_log: true, ..self }
    }

    /// The workload with the numbers of `table`, by the names of its keys; missing ones have their defaults. Without a
    /// `seed` it has the default seed.
    ///
    /// # Errors
    /// An unknown key, or an invalid value.
    pub fn read(&self, table: &toml::Table, seed: Option<u64>) -> Result<Box<dyn Program>, String> {
        (self.read)(table, seed)
    }

    /// The default of a key; `None` for a switch that is off.
    pub fn default_of(&self, key: &Key) -> Option<toml::Value> {
        (self.defaults)().ok()?.remove(key.name)
    }
}

fn read<W: Workload>(table: &toml::Table, seed: Option<u64>) -> Result<Box<dyn Program>, String> {
    let workload =
        W::deserialize(toml::Value::Table(table.clone())).map_err(|error| error.to_string().trim().to_owned())?;
    let seed = seed.unwrap_or_else(|| workload.seed());
    Ok(Box::new(workload.with_seed(seed)))
}

impl Data {
    /// Every kind of data, as it is written.
    pub const ALL: [&str; 4] = ["noise", "text", "program", "letter"];
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::workload::WORKLOADS;

    /// The keys of each workload are exactly its numbers, and each default can be parsed.
    #[test]
    fn the_table_is_true() {
        for spec in WORKLOADS {
            let mut defaults = (spec.defaults)().unwrap();
            defaults.remove("seed").unwrap_or_else(|| panic!("{} has no seed", spec.name));
            let mut table = toml::Table::new();
            for key in spec.keys {
                let value = match defaults.remove(key.name) {
                    Some(value) => value,
                    None if key.form == Form::Switch => toml::Value::Boolean(false),
                    None => panic!("{} has no `{}`", spec.name, key.name),
                };
                let is_right = match (key.form, &value) {
                    (Form::Count | Form::Bytes, toml::Value::Integer(_)) | (Form::Switch, toml::Value::Boolean(_)) => {
                        true
                    }
                    (Form::Percent, toml::Value::Integer(percent)) => (0..=100).contains(percent),
                    (Form::Data, toml::Value::String(name)) => Data::ALL.contains(&name.as_str()),
                    _ => false,
                };
                assert!(is_right, "{}: `{}` is {value}", spec.name, key.name);
                table.insert(key.name.to_owned(), value);
            }
            assert!(defaults.is_empty(), "{} has no keys for {defaults:?}", spec.name);
            let program = spec.read(&table, None).unwrap();
            assert_eq!(program.name(), spec.name);
            program.check().unwrap_or_else(|error| panic!("{} cannot be run as it is: {error}", spec.name));
            assert_eq!(spec.read(&table, Some(77)).unwrap().seed(), 77);
            table.insert("nonsense".into(), toml::Value::Integer(1));
            assert!(spec.read(&table, None).is_err(), "{} takes what it does not know", spec.name);
        }
        for data in Data::ALL {
            Data::deserialize(toml::Value::String(data.to_owned())).unwrap();
        }
    }
}
