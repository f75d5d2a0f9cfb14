//! Workloads, experiments and reports over the Seekless engine.
//!
//! A [`workload`] is a program that uses files. It runs on a [`target`]: a stack of the engine, in virtual time on
//! modelled disks or in real time in this process, or any directory of the host, with the same calls at the same
//! points. [`run`] puts the two together and [`report`] says what came out, next to what was published.
//!
//! An [`experiment`] describes all of this in a file, varies its parameters, and compares the results with published
//! figures. [`statements`] are the lists of all that a paper says in numbers, and of what came out.
//!
//! A [`trace`] is the recorded requests of a machine to its disks, by any recorder; [`replay`] sends them to other
//! storage.
//!
//! [`cleaning`] simulates how a log is cleaned, without any contents.
//!
//! A workload in virtual time, on two stacks:
//!
//! ```
//! use std::ops::ControlFlow;
//!
//! use seekless::rt::HostProfile;
//! use seekless::stack::Stack;
//! use seekless_lab::run::simulate;
//! use seekless_lab::workload::smallfile::SmallFile;
//!
//! let spec = SmallFile { files: 200, ..SmallFile::default() };
//! let profile = HostProfile::named("sparcstation2").expect("a profile of the table");
//! let mut rates = Vec::new();
//! for line in ["lfs / disk:hp97560", "ffs / disk:hp97560"] {
//!     let run = simulate(&Stack::parse(line)?, None, profile, &spec, &|_| ControlFlow::Continue(()))?;
//!     let create = run.phase("create").expect("the workload has this phase");
//!     rates.push(create.per_second().expect("it took some time"));
//! }
//! assert!(rates[0] > rates[1], "a log takes small files faster than update in place: {rates:?}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A trace, replayed on two disks in one pass:
//!
//! ```
//! use std::io::Cursor;
//!
//! use seekless::stack::Stack;
//! use seekless_lab::replay::{Spec, compare, simulate_all};
//! use seekless_lab::trace::{Options, Trace};
//!
//! let csv = "0,R,126703616,4096,1577808000000626\n0,W,8192,4096,1577808000004002\n";
//! let mut trace = Trace::from_reader("two requests", Box::new(Cursor::new(csv)), &Options::default())?;
//! let stacks = [Stack::parse("disk:cheetah9lp")?, Stack::parse("disk:nearline-4tb")?];
//! let (summary, outcomes) = simulate_all(&stacks, &mut trace, &Spec::default(), &|_, _| {})?;
//! let outcomes = outcomes.into_iter().collect::<Result<Vec<_>, _>>()?;
//! assert_eq!((summary.requests(), trace.format().to_string()), (2, "alibaba".to_owned()));
//! println!("{}", compare(&outcomes).expect("there are outcomes").sentence);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! This crate does not know FUSE.

pub mod advice;
pub mod arithmetic;
pub mod cleaning;
mod error;
pub mod experiment;
mod measured;
// This module is about real files.
#[allow(clippy::disallowed_types, clippy::disallowed_methods)]
pub mod output;
pub mod published;
pub mod replay;
pub mod report;
pub mod run;
pub mod statements;
pub mod target;
pub mod trace;
pub mod workload;

pub use error::LabError;
