//! Flash drives as arguments of commands, and words for what they have.

use seekless::flash::validation::Operation;
use seekless::flash::{Known, Model, Ssd, Zns};
use seekless::stack::Stack;

use super::{Failure, WRONG_USAGE, read_stack};

/// The drive of an argument: a name of the catalogue, or a stack that is one flash drive.
pub(super) fn read_model(text: &str) -> Result<Model, Failure> {
    if let Some(drive) = Ssd::named(text) {
        return Ok(Model::Ssd(*drive));
    }
    if let Some(drive) = Zns::named(text) {
        return Ok(Model::Zns(*drive));
    }
    let stack = match text.starts_with('@') || text.contains(':') {
        true => read_stack(text)?,
        // A name that is not in the catalogue: the stack parser suggests the nearest.
        false => Stack::parse(&format!("ssd:{text}")).map_err(|error| Failure::new(error).code(WRONG_USAGE))?,
    };
    stack.flash().map_err(|error| {
        let failure = Failure::new(error).code(WRONG_USAGE);
        match stack.drive() {
            Ok(_) => failure.hint("it is a disk: `seekless disk --help` has the commands for these"),
            Err(_) => failure,
        }
    })
}

pub(super) fn known(known: Known) -> &'static str {
    match known {
        Known::Measured => "fitted to measurements",
        Known::Writes => "writes fitted to measurements; reads are a prediction",
        Known::Assumed => "nothing was measured",
    }
}

pub(super) fn operation(operation: Operation) -> &'static str {
    match operation {
        Operation::Write => "write",
        Operation::WriteRandom => "write, random",
        Operation::Read => "read",
        Operation::ReadRandom => "read, random",
        Operation::WriteScheduled => "write, scheduled",
        Operation::Append => "append",
    }
}
