//! Names of phases that more than one place speaks of.

pub const CREATE: &str = "create";
pub const READ: &str = "read";
pub const DELETE: &str = "delete";
