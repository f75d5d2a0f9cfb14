//! Aim: file systems also keep their promises on devices and below layers of other crates. Method: the explorers of
//! `testing`, on stacks of several rooms.

mod access_lists;
mod arrays;
mod ffs_damage;
mod silent;
mod vld;
mod zoned;

use super::environment::replay;
