//! `seekless list`

use comfy_table::{Table, presets};
use seekless::disk::{Drive, Evidence};
use seekless::rt::HostProfile;
use seekless::stack::{self, ParamKind, WORDS};
use seekless::units::{SECTOR_BYTES, human_bytes};
use seekless_lab::workload::{Form, Key, WORKLOADS, WorkloadSpec};
use serde_json::{Value, json};

use super::{Done, output};

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Listed {
    /// The words of a stack, with their options
    Words,
    /// The drives of the disk model, for disk:DRIVE
    Drives,
    /// The processor profiles, for bench --profile
    Profiles,
    /// The workloads, with their options, for bench and for the kind of an experiment
    Workloads,
}

/// Show what a stack line can say: words, options, drives, processor profiles; and the workloads
#[derive(clap::Args)]
#[command(after_help = "Examples:
  seekless list
  seekless list drives
  seekless list words --json
  seekless list workloads

Exit codes: 0 shown, 2 wrong usage")]
pub(super) struct Args {
    /// What to show
    #[arg(value_enum, default_value_t = Listed::Words)]
    what: Listed,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Print Markdown, for the documentation
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

pub(super) fn run(args: &Args) -> Done {
    if args.json {
        let value = match args.what {
            Listed::Words => words_json(),
            Listed::Drives => drives_json(),
            Listed::Profiles => profiles_json(),
            Listed::Workloads => workloads_json(),
        };
        output::print_json(&value)?;
        return Ok(0);
    }
    let text = match args.what {
        Listed::Words if args.markdown => return output::print_raw(&stack::markdown()).map(|()| 0),
        Listed::Words => stack::help(),
        Listed::Drives => drives(),
        Listed::Profiles => profiles().to_string(),
        Listed::Workloads if args.markdown => return output::print_raw(&workloads_markdown()).map(|()| 0),
        Listed::Workloads => workloads(),
    };
    output::print(&text)?;
    Ok(0)
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(header.to_vec());
    table
}

pub(super) fn evidence(drive: &Drive) -> &'static str {
    match drive.evidence {
        Evidence::Validated => "measured on the drive, validated",
        Evidence::SaidToBeValidated => "its file says validated, but no drive with its parameters was",
        Evidence::Extracted => "measured on the drive",
        Evidence::DataSheet => "data sheet",
        Evidence::Recalled => "recalled",
    }
}

/// The catalogue as a table, and how to describe a drive that is not in it.
pub(super) fn drives() -> String {
    let mut table = table(&["drive", "product", "capacity", "rpm", "known from"]);
    for drive in Drive::all() {
        table.add_row([
            drive.name.to_string(),
            drive.product.to_string(),
            human_bytes(drive.sectors * SECTOR_BYTES),
            drive.rpm.to_string(),
            evidence(drive).to_owned(),
        ]);
    }
    format!("{table}\n\n{}\n", stack::DATA_SHEET_FORM)
}

pub(super) fn drives_json() -> Value {
    let drive = |drive: &Drive| {
        json!({
            "name": drive.name,
            "product": drive.product,
            "bytes": drive.sectors * SECTOR_BYTES,
            "rpm": drive.rpm,
            "heads": drive.heads,
            "cylinders": drive.cylinders,
            "evidence": evidence(drive),
            "source": drive.source,
        })
    };
    Drive::all().map(drive).collect()
}

/// The default of a number of a workload, as it is written; `None` for what has none.
fn default_text(spec: &WorkloadSpec, key: &Key) -> Option<String> {
    match (key.form, spec.default_of(key)?) {
        (Form::Bytes, toml::Value::Integer(bytes)) => Some(stack::Value::Bytes(u64::try_from(bytes).ok()?).to_string()),
        (Form::Percent, toml::Value::Integer(percent)) => Some(format!("{percent}%")),
        (_, toml::Value::String(text)) => Some(text),
        (Form::Switch, _) => None,
        (_, value) => Some(value.to_string()),
    }
}

/// Each workload and, below it, its options.
fn workloads() -> String {
    let mut text = String::new();
    for spec in WORKLOADS {
        text += &format!("{:<12} {}\n", spec.name, spec.help);
        for key in spec.keys {
            let default = default_text(spec, key).map_or(String::new(), |default| format!(" (default {default})"));
            text += &format!("    {:<20} {}{default}\n", key.name, key.help);
        }
    }
    text
}

/// The rows of the table of kinds in the guide to experiments.
fn workloads_markdown() -> String {
    let mut text = "| kind | what it does | keys |\n|---|---|---|\n".to_owned();
    for spec in WORKLOADS {
        let key = |key: &Key| match default_text(spec, key) {
            Some(default) => format!("`{}` ({default})", key.name),
            None => format!("`{}`", key.name),
        };
        let keys: Vec<String> = spec.keys.iter().map(key).collect();
        text += &format!("| `{}` | {} | {} |\n", spec.name, spec.help, keys.join(", "));
    }
    text
}

fn workloads_json() -> Value {
    let keys = |spec: &WorkloadSpec| -> Value {
        let key = |key: &Key| json!({ "name": key.name, "help": key.help, "default": default_text(spec, key) });
        spec.keys.iter().map(key).collect()
    };
    let workload =
        |spec: &&WorkloadSpec| json!({ "name": spec.name, "help": spec.help, "about": spec.about, "keys": keys(spec) });
    WORKLOADS.iter().map(workload).collect()
}

fn profiles() -> Table {
    let mut table = table(&["profile", "name-space call", "other call", "copying 1 KiB", "device request"]);
    for profile in HostProfile::ALL {
        let costs = [profile.namespace_call, profile.call, profile.copy_per_kib, profile.device_request];
        let texts = costs.iter().map(|cost| format!("{} us", cost.0 as f64 / 1e3));
        table.add_row([profile.name.to_owned()].into_iter().chain(texts).collect::<Vec<_>>());
    }
    table
}

fn profiles_json() -> Value {
    let profile = |profile: &HostProfile| {
        json!({
            "name": profile.name,
            "namespace_call_ns": profile.namespace_call.0,
            "call_ns": profile.call.0,
            "copy_per_kib_ns": profile.copy_per_kib.0,
            "device_request_ns": profile.device_request.0,
        })
    };
    HostProfile::ALL.iter().map(profile).collect()
}

fn words_json() -> Value {
    let kind = |kind: ParamKind| kind.placeholder();
    let param = |param: &stack::Param| {
        json!({
            "name": param.name,
            "type": kind(param.kind),
            "values": param.kind.words(),
            "default": param.default,
            "required": param.required,
            "fixed_at_mkfs": param.fixed,
            "help": param.help,
        })
    };
    let word = |word: &&stack::WordSpec| {
        json!({
            "name": word.name,
            "is": word.role().described(),
            "help": word.help,
            "argument": word.argument.map(param),
            "options": word.options.iter().map(param).collect::<Vec<_>>(),
        })
    };
    WORDS.iter().map(word).collect()
}
