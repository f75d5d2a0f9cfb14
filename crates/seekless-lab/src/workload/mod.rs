//! Programs that use files, as data and as calls on a [`Target`](crate::target::Target).

pub mod smallfile;
