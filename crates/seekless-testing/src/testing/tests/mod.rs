//! Aim: the harnesses report every bug and nothing else. Method: a correct toy file system, and the same toy with one
//! bug after another.

mod compare;
mod crash;
mod damage;
mod faults;
mod toy;

use super::environment::{or_panic, replay};
