//! Lines of measurements.

use super::super::drive::UNIT_BYTES;

/// One run of fio: a closed loop of equal commands.
#[derive(Clone, PartialEq, Debug)]
pub struct FioRun {
    /// What handed the commands over: `io_uring` or `spdk`.
    pub engine: String,
    /// The namespace's format: `lbaf0` has sectors of 512 bytes.
    pub format: String,
    /// Operation, block size and zones, as the source names them.
    pub name: String,
    pub operation: Operation,
    pub block_bytes: u64,
    /// Jobs, each with a zone of its own.
    pub zones: u32,
    /// Commands that each job keeps outstanding.
    pub depth: u32,
    pub iops: f64,
    /// Mean latency in microseconds.
    pub latency_us: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Operation {
    Write,
    /// Writes at random places.
    WriteRandom,
    Read,
    ReadRandom,
    /// Writes through a scheduler that sends one command to a zone at a time, and joins those that wait.
    WriteScheduled,
    Append,
}

/// What a case is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Half {
    /// The constants were fitted to it.
    Fitted,
    /// No constant follows from it.
    HeldOut,
}

impl FioRun {
    /// Which half a case is in: bit 32 of a hash (FNV-1a, 64 bits) of engine, format and name. All depths of a case are in the
    /// same half, because neighbours in depth hardly differ.
    pub fn half(&self) -> Half {
        let text = format!("{}/{}/{}", self.engine, self.format, self.name);
        let hash = text
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        match hash >> 32 & 1 {
            0 => Half::Fitted,
            _ => Half::HeldOut,
        }
    }

    /// A scheduler of the kernel was between program and drive.
    pub fn is_scheduled(&self) -> bool {
        self.name.split('/').next().is_some_and(|operation| operation.ends_with("mq"))
    }

    pub(super) fn is_write(&self) -> bool {
        !matches!(self.operation, Operation::Read | Operation::ReadRandom)
    }

    /// The smallest unit that the namespace can address: `lbaf0` is the format with 512 bytes on the drives of the source.
    pub fn sector_bytes(&self) -> u64 {
        match self.format.as_str() {
            "lbaf0" => 512,
            _ => UNIT_BYTES,
        }
    }
}

/// Columns that measurements need.
const COLUMNS: [&str; 7] = ["engine", "format", "case", "block_size", "iodepth", "iops", "latency_mean_us"];

/// Operations as the names of cases have them, before the first slash.
pub const OPERATIONS: [(&str, Operation); 9] = [
    ("write", Operation::Write),
    ("writerand", Operation::WriteRandom),
    ("randwrite", Operation::WriteRandom),
    ("writemq", Operation::WriteScheduled),
    ("append", Operation::Append),
    ("read", Operation::Read),
    ("readmq", Operation::Read),
    ("randread", Operation::ReadRandom),
    ("randreadmq", Operation::ReadRandom),
];

/// Reads measurements: comma-separated values whose first line names the columns. Lines of other operations, such as
/// mixtures, and those without a result are left out.
///
/// # Errors
/// The number of a line that is not understood, and why.
pub fn parse(text: &str) -> Result<Vec<FioRun>, String> {
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let needed = || format!("the first line names the columns; needed are {}", COLUMNS.join(", "));
    let (header_index, header) = lines.next().ok_or_else(|| format!("there are no lines\n{}", needed()))?;
    let names: Vec<&str> = header.split(',').map(str::trim).collect();
    let column = |name: &str| {
        let found = names.iter().position(|other| *other == name);
        found.ok_or_else(|| format!("line {}: there is no column `{name}`\n{}", header_index + 1, needed()))
    };
    let [engine, format, name, size, depth, iops, latency] = COLUMNS.map(column);
    let (engine, format, name, size) = (engine?, format?, name?, size?);
    let (depth, iops, latency) = (depth?, iops?, latency?);
    let mut cases = Vec::new();
    for (index, line) in lines {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let text = |column: usize| {
            fields.get(column).copied().ok_or_else(|| format!("line {}: only {} fields", index + 1, fields.len()))
        };
        let number = |column: usize| {
            let text = text(column)?;
            let number = text.parse::<f64>().ok().filter(|number| (0.0..1e12).contains(number));
            let name = names.get(column).copied().unwrap_or_default();
            number.ok_or_else(|| format!("line {}: {name} {text:?} is no number from 0 to 1e12", index + 1))
        };
        let name = text(name)?;
        let mut parts = name.split('/');
        let Some(operation) = parts.next().and_then(operation) else {
            continue;
        };
        let zones = parts.nth(1).map_or("1", |zones| zones.trim_end_matches(|letter: char| letter.is_alphabetic()));
        let (iops, latency_us) = (number(iops)?, number(latency)?);
        if iops <= 0.0 || latency_us <= 0.0 {
            continue;
        }
        let whole = |column: usize, most: f64| {
            let number = number(column)?;
            match number.fract() == 0.0 && (1.0..=most).contains(&number) {
                true => Ok(number as u64),
                false => {
                    let name = names.get(column).copied().unwrap_or_default();
                    Err(format!("line {}: {name} {number} is no whole number from 1 to {most}", index + 1))
                }
            }
        };
        cases.push(FioRun {
            engine: text(engine)?.to_owned(),
            format: text(format)?.to_owned(),
            name: name.to_owned(),
            operation,
            block_bytes: whole(size, 16e6)? / 512 * 512,
            zones: zones.parse().ok().filter(|zones| (1..=1024).contains(zones)).unwrap_or(1),
            depth: whole(depth, 65536.0)? as u32,
            iops,
            latency_us,
        });
    }
    Ok(cases)
}

fn operation(word: &str) -> Option<Operation> {
    OPERATIONS.iter().find(|(name, _)| *name == word).map(|(_, operation)| *operation)
}
