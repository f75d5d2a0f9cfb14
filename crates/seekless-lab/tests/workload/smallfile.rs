//! The small-file benchmark: whether it measures what it claims, and its results.

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::path::Path;

use async_trait::async_trait;
use seekless::rt::{HostProfile, Work};
use seekless::stack::Stack;
use seekless::units::Nanos;
use seekless_lab::LabError;
use seekless_lab::report::Report;
use seekless_lab::run::{Bound, can_be_simulated, run_in_directory, simulate};
use seekless_lab::target::{Coldness, Host, Listed, Space, Target, Usage};
use seekless_lab::workload::smallfile::{CREATE, DELETE, READ, SmallFile};
use seekless_lab::workload::{PhaseProgress, Workload};

use crate::{GO_ON, simulated};

/// The same seed gives the same nanoseconds and the same counts of everything. Method: run it twice.
#[test]
fn a_run_can_be_repeated() {
    let spec = SmallFile { files: 500, seed: 7, ..SmallFile::default() };
    let line = "wrap / lfs:segment=256KiB / disk:dec-rz26";
    let run = || simulated(line, HostProfile::SPARCSTATION2, &spec);
    assert_eq!(run(), run());
}

/// [ro92 Fig. 8], [se95 §2]: LFS creates small files as fast as the processor can, and reads them back as fast as the
/// disk can; BSD-LFS used 64 % of its processor, which ours contradicts. No disk is busy for longer than its phase takes.
#[test]
fn lfs_is_processor_bound_in_create_and_disk_bound_in_read() {
    let run = simulated("lfs / disk:dec-rz26", HostProfile::SPARCSTATION2, &SmallFile::default());
    let phase = |phase| run.phase(phase).unwrap().clone();
    let (create, read) = (phase(CREATE), phase(READ));
    assert_eq!(create.bound(), Bound::Processor, "{create:?}");
    assert_eq!(read.bound(), Bound::Disk, "{read:?}");
    assert!(create.processor_busy().unwrap() > 0.9, "{create:?}");
    assert!(run.phases.iter().all(|phase| phase.disk_busy().unwrap() <= 1.0), "{run:?}");
    let report = Report { spec: &SmallFile::default(), runs: vec![run], failed: Vec::new() };
    let comparisons = report.comparisons();
    assert_eq!(comparisons.len(), 7, "{comparisons:?}");
    assert!(comparisons.iter().any(|it| it.quantity == "processor busy" && it.published == "64 %"));
    assert!(comparisons.iter().any(|it| it.phase == DELETE && it.deviation.is_some() && !it.calibrated));
    assert!(comparisons.iter().all(|it| !it.calibrated));
}

/// Aim: without `overlap` the caller who creates files waits while the log is written, so that processor and disk take turns. Method: their
/// shares of the time add up to all of it; with it, to more.
#[test]
fn without_overlap_processor_and_disk_take_turns() {
    let spec = SmallFile { files: 2000, ..SmallFile::default() };
    let busy = |overlap: &str| {
        let line =
            format!("lfs:segment=1MiB,indirect=log,dirty=460KiB,overlap={overlap} / disk:dec-rz26,request=64KiB");
        let run = simulated(&line, HostProfile::SPARCSTATION2, &spec);
        [CREATE, DELETE].map(|phase| {
            let phase = run.phase(phase).unwrap();
            phase.processor_busy().unwrap() + phase.disk_busy().unwrap()
        })
    };
    // The call that fills the memory for changes is through before the writing begins.
    let (in_turn, at_once) = (busy("off"), busy("on"));
    assert!(in_turn.iter().all(|busy| (0.95..1.03).contains(busy)), "{in_turn:?}");
    assert!(at_once[0] > 1.2 && at_once[1] > in_turn[1], "{at_once:?} {in_turn:?}");
}

/// The profile is calibrated on the share of the processor that FFS uses while it creates files, and on nothing else of
/// this benchmark: the share of deletes is a prediction.
#[test]
fn the_profile_is_calibrated_on_creates_of_ffs() {
    let stack = "ffs:profile=m8r2 / disk:dec-rz26,request=64KiB";
    let run = simulated(stack, HostProfile::SPARCSTATION2, &SmallFile::default());
    let busy = run.phase(CREATE).unwrap().processor_busy().unwrap();
    assert!((0.0551..0.0561).contains(&busy), "{busy}");
    let report = Report { spec: &SmallFile::default(), runs: vec![run], failed: Vec::new() };
    let comparisons = report.comparisons();
    assert_eq!(comparisons.iter().map(|it| it.calibrated).collect::<Vec<_>>(), [true, false], "{comparisons:?}");
    assert!(report.to_text().contains("calibrated on it"));
}

/// The bottleneck of each phase does not depend on how a create divides into calls, copies and the rest, which is the
/// part of the profile that relies on another machine's figures. Method: zero cost for calls and copies, and twice the
/// cost, with the same time for a create of 1 KiB.
#[test]
fn bounds_do_not_hang_on_the_division_of_a_create() {
    let base = HostProfile::SPARCSTATION2;
    let create = base.namespace_call + base.call + base.call + base.copy_per_kib;
    assert_eq!(create, Nanos::from_micros(2_011));
    for times in [0, 2] {
        let (call, copy_per_kib) = (Nanos(base.call.0 * times), Nanos(base.copy_per_kib.0 * times));
        let namespace_call = create - call - call - copy_per_kib;
        let profile = HostProfile { namespace_call, call, copy_per_kib, ..base };
        let run = simulated("lfs / disk:dec-rz26", profile, &SmallFile::default());
        let bounds = [CREATE, READ, DELETE].map(|phase| run.phase(phase).unwrap().bound());
        assert_eq!(bounds, [Bound::Processor, Bound::Disk, Bound::Processor], "{times} times: {run:?}");
    }
}

/// Without processor cost, only storage takes time.
#[test]
fn without_a_processor_only_the_disk_takes_time() {
    let spec = SmallFile { files: 200, ..SmallFile::default() };
    let run = simulated("lfs / disk:dec-rz26", HostProfile::NONE, &spec);
    assert!(run.phases.iter().all(|phase| phase.usage.processor == Some(Nanos::ZERO)), "{run:?}");
    assert!(run.phase(READ).unwrap().disk_busy().unwrap() > 0.9, "{run:?}");
    let run = simulated("memfs", HostProfile::NONE, &spec);
    assert!(run.phases.iter().all(|phase| phase.elapsed == Nanos::ZERO && phase.per_second().is_none()));
    assert_eq!(Report { spec: &spec, runs: vec![run], failed: Vec::new() }.comparisons(), []);
}

/// A directory of the host can be measured with the same calls, and nothing is left in it.
#[test]
fn directories_are_measured_and_left_as_they_were() {
    let directory = std::env::temp_dir().join(format!("seekless-lab-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let spec = SmallFile { files: 50, bytes: 3000, files_per_directory: 7, seed: 1 };
    // Dropping caches affects the whole machine, so concurrent tests do not do it.
    let done = RefCell::new(Vec::new());
    let progress = |step: PhaseProgress<'_>| {
        done.borrow_mut().push((step.phase.to_owned(), step.done, step.total));
        ControlFlow::Continue(())
    };
    // Left by a process that had this number before, as is usual in a container.
    let left = directory.join(format!("seekless-bench-{}-0", std::process::id()));
    std::fs::create_dir(&left).unwrap();
    let run = run_in_directory(directory.to_str().unwrap(), Host::default(), &spec, &progress).unwrap();
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
    std::fs::remove_dir(&left).unwrap();
    let stop = |step: PhaseProgress<'_>| match (step.phase, step.done) {
        (READ, 10) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let stopped = run_in_directory(directory.to_str().unwrap(), Host::default(), &spec, &stop);
    assert!(matches!(stopped, Err(LabError::Interrupted)), "{stopped:?}");
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0, "also when it is interrupted");
    std::fs::remove_dir(&directory).unwrap();
    assert_eq!(run.phases.len(), 3);
    assert_eq!(done.borrow().len(), 150);
    assert_eq!(done.borrow().last(), Some(&(DELETE.to_owned(), 50, 50)));
    let missing = run_in_directory("/nowhere/at/all", Host::default(), &spec, &GO_ON).unwrap_err().to_string();
    assert!(missing.starts_with("cannot make the directory /nowhere/at/all/seekless-bench-"), "{missing}");
    assert!(!Path::new("/nowhere").exists());
}

/// Aim: a run can be ended also while its file system is made, which on terabytes takes long, and while it is closed. Method: the caller ends it
/// at the hundredth look there, and at the first one.
#[test]
fn making_and_closing_can_be_stopped() {
    let spec = SmallFile { files: 5, bytes: 3000, files_per_directory: 7, seed: 1 };
    let stack = Stack::parse("ffs / disk:nearline-4tb").unwrap();
    for (phase, looks) in [("making the file system", 100), ("closing", 1)] {
        let left = std::cell::Cell::new(looks);
        let stop = |step: PhaseProgress<'_>| {
            left.set(left.get() - i32::from(step.phase == phase));
            if left.get() == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let stopped = simulate(&stack, None, HostProfile::NONE, &spec, &stop);
        assert!(matches!(stopped, Err(LabError::Interrupted)), "{phase}: {stopped:?}");
        assert_eq!(left.get(), 0, "{phase}: nothing goes on");
    }
}

/// A target that counts calls, and corrupts one byte if set to.
#[derive(Default)]
struct Counting {
    calls: RefCell<Vec<String>>,
    files: RefCell<std::collections::BTreeMap<String, Vec<u8>>>,
    wrong: Cell<bool>,
}

#[async_trait(?Send)]
impl Target for Counting {
    type File = String;

    async fn mkdir(&self, path: &str) -> Result<(), LabError> {
        self.calls.borrow_mut().push(format!("mkdir {path}"));
        Ok(())
    }
    async fn rmdir(&self, path: &str) -> Result<(), LabError> {
        self.calls.borrow_mut().push(format!("rmdir {path}"));
        Ok(())
    }
    async fn create(&self, path: &str) -> Result<String, LabError> {
        self.calls.borrow_mut().push(format!("create {path}"));
        Ok(path.to_owned())
    }
    async fn open(&self, path: &str) -> Result<String, LabError> {
        self.calls.borrow_mut().push(format!("open {path}"));
        Ok(path.to_owned())
    }
    async fn open_to_write(&self, path: &str) -> Result<String, LabError> {
        self.open(path).await
    }
    async fn stat(&self, path: &str) -> Result<u64, LabError> {
        Ok(self.files.borrow()[path].len() as u64)
    }
    async fn list(&self, _: &str) -> Result<Vec<Listed>, LabError> {
        Ok(Vec::new())
    }
    async fn fsync(&self, _: &mut String) -> Result<(), LabError> {
        Ok(())
    }
    async fn fsync_directory(&self, path: &str) -> Result<(), LabError> {
        self.calls.borrow_mut().push(format!("fsync {path}"));
        Ok(())
    }
    async fn compute(&self, _: Work) {}
    async fn write(&self, file: &mut String, _: u64, bytes: &[u8]) -> Result<(), LabError> {
        self.files.borrow_mut().insert(file.clone(), bytes.to_vec());
        Ok(())
    }
    async fn read(&self, file: &mut String, _: u64, bytes: &mut [u8]) -> Result<usize, LabError> {
        let files = self.files.borrow();
        bytes.copy_from_slice(&files[file]);
        if self.wrong.get() {
            bytes[9] ^= 1;
        }
        Ok(bytes.len())
    }
    async fn close(&self, _: String) -> Result<(), LabError> {
        self.calls.borrow_mut().push("close".into());
        Ok(())
    }
    async fn unlink(&self, path: &str) -> Result<(), LabError> {
        self.calls.borrow_mut().push(format!("unlink {path}"));
        Ok(())
    }
    async fn rename(&self, from: &str, to: &str) -> Result<(), LabError> {
        self.calls.borrow_mut().push(format!("rename {from} {to}"));
        Ok(())
    }
    async fn sync(&self) -> Result<(), LabError> {
        self.calls.borrow_mut().push("sync".into());
        Ok(())
    }
    async fn drop_caches(&self) -> Result<Coldness, LabError> {
        self.calls.borrow_mut().push("drop".into());
        Ok(Coldness::Cold)
    }
    async fn space(&self) -> Result<Space, LabError> {
        Ok(Space { used: 0, available: 1 << 30 })
    }

    fn now(&self) -> Nanos {
        Nanos::ZERO
    }
    fn usage(&self) -> Usage {
        Usage::default()
    }
}

fn run_on(target: &Counting, spec: &SmallFile) -> Result<(), LabError> {
    let executor = seekless::rt::Executor::simulated(1, HostProfile::NONE);
    executor.block_on(spec.run(target, &GO_ON))?.map(drop)
}

/// The calls of a run, in order: everything is made durable after creating and after deleting, and read cold.
#[test]
fn every_contestant_gets_the_same_calls() {
    let target = Counting::default();
    run_on(&target, &SmallFile { files: 3, bytes: 16, files_per_directory: 2, seed: 1 }).unwrap();
    let calls = target.calls.borrow().join(", ");
    assert_eq!(
        calls,
        "sync, mkdir d00000, create d00000/f0000000, close, create d00000/f0000001, close, mkdir d00001, create \
         d00001/f0000002, close, sync, drop, open d00000/f0000000, close, open d00000/f0000001, close, open \
         d00001/f0000002, close, unlink d00000/f0000000, unlink d00000/f0000001, rmdir d00000, unlink \
         d00001/f0000002, rmdir d00001, sync"
    );
}

/// A wrong byte is an error that names the file and the place; invalid sizes are refused.
#[test]
fn wrong_answers_are_no_result() {
    let target = Counting { wrong: Cell::new(true), ..Counting::default() };
    let spec = SmallFile { files: 3, bytes: 16, files_per_directory: 2, seed: 1 };
    let error = run_on(&target, &spec).unwrap_err().to_string();
    assert_eq!(error, "d00000/f0000000 does not hold what was written into it: byte 9 differs");
    for spec in [SmallFile { files: 0, ..spec }, SmallFile { files_per_directory: 0, ..spec }] {
        assert!(matches!(run_on(&target, &spec), Err(LabError::Spec(_))), "{spec:?}");
    }
    let stack = Stack::parse("lfs / file:a.img").unwrap();
    assert!(!can_be_simulated(&stack) && can_be_simulated(&Stack::parse("wrap / memfs").unwrap()));
    let error = simulate(&stack, None, HostProfile::NONE, &SmallFile::default(), &GO_ON).unwrap_err().to_string();
    assert!(error.contains("`file` lies in the real world"), "{error}");
}

/// A run names each part of its stack once: the members of an array are not also at the end of what the array is.
#[test]
fn an_array_and_its_members_are_named_once() {
    let spec = SmallFile { files: 10, ..SmallFile::default() };
    for array in ["raid0:n=4", "raid1:n=2,metadata=off", "raid5:n=4,metadata=off"] {
        let run = simulated(&format!("lfs / {array} / disk:cheetah9lp"), HostProfile::NONE, &spec);
        let named = run.parts.iter().filter(|part| part.contains("disk:cheetah9lp")).count();
        assert!(named == 1 && run.parts.len() == 3, "{:?}", run.parts);
    }
}
