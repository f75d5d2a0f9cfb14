//! Aim: the harnesses find what is wrong and say nothing of what is right. Method: a toy file system that is right, and
//! the same toy with one bug after another.

mod compare;
mod crash;
mod damage;
mod faults;
mod toy;

use super::environment::{or_panic, replay};
