//! The tools for testing file systems: the model, operations as data, comparison, and the explorers of power cuts,
//! damage and lack of space.

pub mod compare;
mod contents;
pub mod crash;
pub mod damage;
#[doc(hidden)]
pub mod environment;
#[doc(hidden)]
pub mod exercise;
pub mod faults;
pub mod generate;
pub mod history;
pub mod life;
pub mod memfs;
pub mod ops;
pub mod oracle;
#[doc(hidden)]
pub mod parts;
pub mod programs;
pub mod replay;
pub mod runner;
pub mod scripts;
pub mod soak;
#[doc(hidden)]
pub mod stored_zones;
pub mod subject;
pub mod tree;
#[doc(hidden)]
pub mod volumes;
pub mod weak_fs;

pub use compare::{CompareReport, Comparison, Pair, SubjectComparison};
pub use contents::Contents;
pub use crash::{CrashReport, PowerCuts, SecondCut};
pub use damage::{Damage, DamageReport, DamageTest};
pub use faults::{Fault, FaultReport, Faults};
pub use generate::{Generator, OpMix, Space};
pub use history::{History, Recorder};
pub use life::{Life, LifeReport};
pub use memfs::{MemFs, MemFsOptions};
pub use ops::Op;
pub use oracle::{ChangedContent, Promise, Strength};
pub use replay::{CutName, Replay};
pub use runner::{Outcome, Runner};
pub use soak::Soak;
pub use subject::FsUnderTest;
pub use tree::Tree;
pub use weak_fs::WeakFs;

#[cfg(test)]
mod tests;
