//! The table of words as text: for `--help`, for error hints and for the documentation.

use std::fmt::Write;

use super::order::Role;
use super::spec::{Param, WordSpec};
use super::value::ParamKind;
use super::words::WORDS;

impl WordSpec {
    /// The syntax of the word: `file:PATH[,size=SIZE][,direct=auto|on|off]`.
    pub fn usage(&self) -> String {
        let mut usage = self.name.to_owned();
        let mut separator = ':';
        if let Some(argument) = self.argument {
            usage += &match argument.required {
                true => format!(":{}", argument.placeholder()),
                false => format!("[:{}]", argument.placeholder()),
            };
            separator = ',';
        }
        for option in self.options {
            usage += &format!("[{separator}{}={}]", option.name, option.kind.placeholder());
            separator = ',';
        }
        usage
    }
}

impl Param {
    /// Placeholder of the argument in a help text: `PATH`, `DRIVE`.
    fn placeholder(&self) -> String {
        match self.kind {
            ParamKind::Name { .. } => self.name.to_uppercase(),
            kind => kind.placeholder(),
        }
    }

    /// The help with further remarks.
    fn help_full(&self) -> String {
        let mut help = self.help.to_owned();
        if let Some(default) = self.default {
            help += &format!(" (default {default})");
        }
        if self.fixed {
            help += "; fixed at mkfs";
        }
        if self.only_mkfs {
            help += "; for mkfs alone";
        }
        help
    }
}

const ROLES: &[(Role, &str)] = &[
    (Role::Layer, "Layers over a file system"),
    (Role::FileSystem, "File systems on a block device"),
    (Role::FileSystemLeaf, "File systems without a block device"),
    (Role::DeviceLayer, "Layers over a block device"),
    (Role::DeviceLeaf, "Block devices"),
];

fn of_role(role: Role) -> impl Iterator<Item = &'static WordSpec> {
    WORDS.iter().copied().filter(move |spec| spec.role() == role)
}

/// All words with their options, for `--help`.
pub fn help() -> String {
    let mut text = String::from(
        "A stack is words from top to bottom, separated by blank, slash, blank:\n  \
         wrap / lfs:segment=1MiB / file:a.img\n",
    );
    for &(role, heading) in ROLES {
        if of_role(role).next().is_none() {
            continue;
        }
        // Writing to a String cannot fail.
        let _ = write!(text, "\n{heading}:\n");
        for spec in of_role(role) {
            let head = match spec.argument {
                Some(argument) => format!("{}:{}", spec.name, argument.placeholder()),
                None => spec.name.to_owned(),
            };
            let _ = writeln!(text, "  {head:<18} {}", spec.help);
            for option in spec.options {
                let key = format!("{}={}", option.name, option.kind.placeholder());
                let _ = writeln!(text, "      {key:<30} {}", option.help_full());
            }
            if let Some(argument) = spec.argument
                && let words @ [_, ..] = &argument.kind.words()[..]
            {
                let _ = writeln!(text, "      {}: {}", argument.placeholder(), words.join(", "));
                if let ParamKind::Name { otherwise, .. } = argument.kind {
                    let _ = writeln!(text, "      {otherwise}");
                }
            }
        }
    }
    text
}

/// All words with their options, as Markdown tables for the guide.
pub fn markdown() -> String {
    let mut text = String::new();
    for &(role, heading) in ROLES {
        if of_role(role).next().is_none() {
            continue;
        }
        let _ = write!(text, "### {heading}\n\n| word | option | meaning |\n|---|---|---|\n");
        for spec in of_role(role) {
            let argument = spec.argument.map_or(String::new(), |argument| format!(":{}", argument.placeholder()));
            let _ = writeln!(text, "| `{}{argument}` | | {} |", spec.name, spec.help);
            for option in spec.options {
                let placeholder = option.kind.placeholder().replace('|', "\\|");
                let _ = writeln!(text, "| | `{}={placeholder}` | {} |", option.name, option.help_full());
            }
        }
        text.push('\n');
    }
    text
}
