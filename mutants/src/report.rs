//! The score.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::rooms::Rooms;
use crate::trial::{Fate, Results};

#[derive(Default)]
struct Score {
    tried: usize,
    killed: usize,
    explained: usize,
}

/// Prints what became of the mutants.
///
/// # Errors
/// When one survived that is not explained, so that a script can stop.
pub(crate) fn print(rooms: &Rooms, results: &Results, json_file: Option<&Path>) -> Result<()> {
    let mut scores: BTreeMap<&str, Score> = BTreeMap::new();
    let (mut left, mut not_tried) = (Vec::new(), 0);
    for (mutant, fate) in &results.fates {
        let score = scores.entry(&mutant.room).or_default();
        if *fate == Fate::NotTried {
            not_tried += 1;
            continue;
        }
        score.tried += 1;
        match fate {
            Fate::Killed(_) | Fate::Hung(_) => score.killed += 1,
            _ if rooms.survivors.contains_key(&mutant.id) => score.explained += 1,
            _ => left.push((mutant, fate)),
        }
    }
    println!("{:<16} {:>6} {:>7} {:>10} {:>5}", "room", "tried", "killed", "explained", "left");
    let mut sum = Score::default();
    for (room, Score { tried, killed, explained }) in &scores {
        println!("{room:<16} {tried:>6} {killed:>7} {explained:>10} {:>5}", tried - killed - explained);
        sum.tried += tried;
        sum.killed += killed;
        sum.explained += explained;
    }
    let Score { tried, killed, explained } = sum;
    println!("{:<16} {tried:>6} {killed:>7} {explained:>10} {:>5}", "all", tried - killed - explained);
    let minutes = results.time.as_secs_f64() / 60.0;
    println!("{} did not compile, {not_tried} were not tried; {minutes:.0} minutes of a processor", results.rejected);
    if let Some(path) = json_file {
        let each = results.fates.iter().map(|(mutant, fate)| {
            let (fate, test) = match fate {
                Fate::Killed(test) => ("killed", Some(test)),
                Fate::Hung(test) => ("hung", Some(test)),
                Fate::Survived(_) => ("survived", None),
                Fate::Unreached => ("unreached", None),
                Fate::NotTried => ("not tried", None),
            };
            json!({"id": mutant.id, "room": mutant.room, "mutant": mutant.to_string(), "fate": fate, "test": test,
                "why": mutant.why, "explained": rooms.survivors.get(&mutant.id)})
        });
        let text = serde_json::to_string_pretty(&each.collect::<Vec<_>>())?;
        fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    if !left.is_empty() {
        println!("\nNo test notices these. Write one, or explain them in mutants/survivors.toml:");
        for (mutant, fate) in &left {
            println!("  {}{mutant}", if **fate == Fate::Unreached { "(unreached) " } else { "" });
        }
        bail!("{} mutants survived", left.len());
    }
    Ok(())
}
