//! Seekless as a module for Python: calls of the commands, and their results as Arrow tables.
//!
//! The module computes nothing of its own. What a function is given becomes the words of a command line, which
//! [`seekless_host::cli::calls`] parses and runs; the result comes back as JSON, or as a [`table::Table`] that other
//! libraries take without a copy. What can be written in Python is, in the package around this module.
//!
//! The interpreter's lock is released while a command runs. The thread that called it asks for signals now and then, and
//! makes the caller's progress function see how far it is.
//!
//! `unsafe` is used only where pointers of the Arrow C data interface are taken from capsules of other libraries.

mod calls;
mod frame;
mod policy;
mod problem;
mod study;
mod table;
mod watch;
mod workload;

use pyo3::prelude::*;

/// What the package around it uses; not for others.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::calls::{advise, bench, clean, disk, disks, options, replay, results, version};
    #[pymodule_export]
    use crate::policy::{Fresh, Moved, Room, Segment, Shape, clean_with};
    #[pymodule_export]
    use crate::study::{OpenStudy, Study};
    #[pymodule_export]
    use crate::table::Table;
    #[pymodule_export]
    use crate::workload::bench_with;
}
