//! Names of phases used in several places.

pub const CREATE: &str = "create";
pub const READ: &str = "read";
pub const DELETE: &str = "delete";
