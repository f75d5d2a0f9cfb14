//! `seekless info`

use jiff::Timestamp;
use seekless::stack::{Fact, Probed, Purpose, Stack};
use seekless::units::{WallTime, human_bytes};
use serde_json::{Map, Value, json};

use super::diagnose;
use super::world::World;
use super::{Done, output, read_volume};

/// Show what a file system's superblock says, without mounting it
#[derive(clap::Args)]
#[command(after_help = "Examples:
  seekless info 'lfs / file:a.img'
  seekless info 'lfs / file:a.img' --json | jq -r .uuid
  seekless info 'raid5:n=3 / file:disk-{}.img'    # an array alone: which members it has, and how they are

Exit codes: 0 shown, 1 it cannot be read or is something else, 2 wrong usage")]
pub(super) struct Args {
    /// For example 'lfs / file:a.img'; see `seekless list`
    stack: String,

    /// Print JSON: sizes in bytes, times as RFC 3339
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Done {
    let stack = read_volume(&args.stack, "look at")?;
    let world = World::new()?;
    let leaves = world.leaves();
    let (probed, warnings) = world.run(async {
        let opened = stack.open_below(&world.rt, &leaves, Purpose::Inspect).await?;
        let arrays = opened.arrays();
        let arrays = arrays.iter().filter_map(|array| array.redundancy());
        let mut warnings: Vec<String> = arrays.flat_map(|array| array.status().warnings()).collect();
        warnings.extend(opened.unopened().map(|error| error.problem.clone()));
        Ok((opened.probe().await, warnings))
    })?;
    warnings.iter().for_each(|warning| output::note(&format!("warning: {warning}")));
    let probed = diagnose::probed(&stack, &leaves, probed)?;
    match args.json {
        true => output::print_json(&to_json(&stack, &probed))?,
        false => output::print(&to_text(&stack, &probed))?,
    }
    Ok(0)
}

pub(super) fn to_text(stack: &Stack, probed: &Probed) -> String {
    let mut lines = vec![
        ("stack".to_owned(), stack.to_string()),
        ("label".to_owned(), probed.label.clone().unwrap_or_else(|| "-".to_owned())),
        ("uuid".to_owned(), probed.uuid.to_string()),
    ];
    for (name, fact) in &probed.facts {
        let text = match fact {
            Fact::Bytes(bytes) => human_bytes(*bytes),
            Fact::Count(count) => count.to_string(),
            Fact::Time(time) => time_text(*time),
            Fact::Flag(flag) => if *flag { "yes" } else { "no" }.to_owned(),
            Fact::Text(text) => text.clone(),
        };
        lines.push((name.replace('_', " "), text));
    }
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    lines.iter().map(|(name, text)| format!("{name:width$}  {text}\n")).collect()
}

pub(super) fn to_json(stack: &Stack, probed: &Probed) -> Value {
    let mut object = Map::new();
    object.insert("stack".into(), stack.to_string().into());
    object.insert("label".into(), json!(probed.label));
    object.insert("uuid".into(), probed.uuid.to_string().into());
    for (name, fact) in &probed.facts {
        let value = match fact {
            Fact::Bytes(number) | Fact::Count(number) => json!(number),
            Fact::Time(time) => json!(time_text(*time)),
            Fact::Flag(flag) => json!(flag),
            Fact::Text(text) => json!(text),
        };
        // So that a program need not guess the unit.
        let unit = if matches!(fact, Fact::Bytes(_)) { "_bytes" } else { "" };
        object.insert(format!("{name}{unit}"), value);
    }
    Value::Object(object)
}

/// RFC 3339; a time outside the calendar is shown as its seconds since 1970.
pub(super) fn time_text(time: WallTime) -> String {
    match Timestamp::new(time.seconds, 0) {
        Ok(timestamp) => timestamp.to_string(),
        Err(_) => format!("{} s since 1970", time.seconds),
    }
}
