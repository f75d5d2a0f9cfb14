//! The order of service: DiskSim has a queue in each component on the way to the drive, and a drive here has one.

use super::super::scheduler::Scheduler;
use super::ImportError;
use super::known::shown;
use super::syntax::{Block, Param, SourceLine};

type ImportResult<T> = Result<T, ImportError>;

/// DiskSim's scheduling policies by their numbers, from 1 on: what they are, and the nearest order of service here.
const POLICIES: [(&str, Option<Scheduler>); 28] = {
    const SPTF: Option<Scheduler> = Some(Scheduler::Sptf { age_micros: 0 });
    [
        ("first come, first served", Some(Scheduler::Fcfs)),
        ("elevator by address", None),
        ("C-LOOK by address", Some(Scheduler::CLook)),
        ("shortest seek first by address", Some(Scheduler::Sstf)),
        ("elevator by cylinder", None),
        ("C-LOOK by cylinder", Some(Scheduler::CLook)),
        ("shortest seek first by cylinder", Some(Scheduler::Sstf)),
        ("shortest positioning time first", SPTF),
        ("shortest positioning time first with the cache", SPTF),
        ("shortest access time first", None),
        ("weighted positioning time", None),
        ("weighted positioning time with the cache", None),
        ("weighted access time", None),
        ("aged positioning time", None),
        ("aged positioning time with the cache", None),
        ("aged access time", None),
        ("V-SCAN by address", None),
        ("V-SCAN by cylinder", None),
        ("V-SCAN by address with priorities", None),
        ("aged positioning time with priorities", None),
        ("aged positioning time with the cache and priorities", None),
        ("shortest distance first, approximate", None),
        ("shortest distance first, exact", None),
        ("positioning time and rotation", None),
        ("positioning time, weighted by rotation", None),
        ("positioning time, weighted by seek", None),
        ("travelling salesman", None),
        ("first come, first served in batches", None),
    ]
};

/// Parameters of a queue that say nothing by themselves.
const NEUTRAL: [&str; 3] = ["Scheduling policy", "Cylinder mapping strategy", "Sequential stream diff maximum"];

/// The order of service of the drive's own queue if it holds several requests, else that of the driver in front of it, which is on the
/// `way`; `None` where there is neither, or no such order here.
pub(super) fn scheduler(disk: &Block, way: &[&Block], notes: &mut Vec<String>) -> ImportResult<Option<Scheduler>> {
    let is_queue = disk.whole("Max queue length", 1)? > 1;
    let driver = way.iter().copied().find(|block| block.kind == "disksim_iodriver" && block.get("Scheduler").is_some());
    for block in way.iter().filter(|block| block.kind == "disksim_ctlr") {
        if let Some(param) = block.get("Scheduler") {
            let SourceLine { file, line } = &param.place;
            notes.push(format!(
                "The `Scheduler` of the controller {} ({file}, line {line}) is left out: a drive has one queue.",
                shown(&block.name)
            ));
        }
    }
    if is_queue {
        let at = "The drive has no queue of its own: requests wait in front of it, and `scheduler` orders them.";
        notes.push(at.to_owned());
        return of(disk, "", notes);
    }
    match driver {
        Some(driver) => of(driver, " of the driver, because the drive's own queue holds one request", notes),
        None => {
            if let Some(param) = disk.get("Scheduler") {
                let SourceLine { file, line } = &param.place;
                notes.push(format!(
                    "`Scheduler` ({file}, line {line}) is left out: it orders nothing while `Max queue length` is 1. Set `scheduler` \
                     in the drive file, or on the stack line; else the order is C-LOOK."
                ));
            }
            Ok(None)
        }
    }
}

fn of(block: &Block, whose: &str, notes: &mut Vec<String>) -> ImportResult<Option<Scheduler>> {
    let Some(param) = block.get("Scheduler") else { return Ok(None) };
    let queue = param.block()?;
    let policy = queue.need("Scheduling policy")?;
    let number = policy.count(1, POLICIES.len() as u32)?;
    let (name, scheduler) = POLICIES[number as usize - 1];
    let SourceLine { file, line } = &policy.place;
    let found = match scheduler {
        Some(Scheduler::Fcfs) => "fcfs",
        Some(Scheduler::CLook) => "clook",
        Some(Scheduler::Sstf) => "sstf",
        Some(Scheduler::Sptf { .. }) => "sptf",
        None => {
            notes.push(format!(
                "`Scheduling policy` {number} ({name}; {file}, line {line}){whose} is left out: there is no such order here. Set \
                 `scheduler` in the drive file, or on the stack line; else the order is C-LOOK."
            ));
            return Ok(None);
        }
    };
    notes.push(format!(
        "`scheduler` is {found}, for `Scheduling policy` {number} ({name}; {file}, line {line}){whose}."
    ));
    let is_neutral = |param: &&Param| NEUTRAL.contains(&&*param.key) || param.number().is_ok_and(|value| value == 0.0);
    for Param { key, place, .. } in queue.params.iter().filter(|param| !is_neutral(param)) {
        let SourceLine { file, line } = place;
        notes.push(format!("`{}` of the scheduler ({file}, line {line}) is left out.", shown(key)));
    }
    Ok(scheduler)
}
