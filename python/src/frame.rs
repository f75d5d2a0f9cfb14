//! A table of another library as a trace: anything that has `__arrow_c_stream__`.
//!
//! | column | holds | |
//! |---|---|---|
//! | `time_ns`, `recorded_ns` or `time` | when a request was made; a `time` has its unit in its type | required |
//! | `operation` or `op` | read, write, discard or flush, or a letter of these | required |
//! | `offset`, `bytes` | where it was, in bytes | required |
//! | `device` | for which device it was; one device without | |
//! | `flags` | letters of the kernel's tracers: F for a write that is durable on completion | |
//! | `latency_ns`, `recorded_latency_ns` or `latency` | how long it took | |
//!
//! Other columns are ignored. So the requests of a replay can be replayed again, and so can what `seekless trace head --json`
//! prints.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, UInt64Array};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, TimeUnit};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods};
use seekless_lab::trace::{DeviceId, Flags, Op, Options, Request, Trace, TraceError};

/// Requests in the memory of another library, and what was made of their columns.
pub(crate) struct Frame {
    batches: Arc<Vec<Columns>>,
    /// Names of the devices, in the order of their numbers.
    devices: Vec<String>,
}

/// The columns of one batch.
struct Columns {
    time: Int64Array,
    operation: Vec<Op>,
    offset: UInt64Array,
    bytes: UInt64Array,
    device: Option<Vec<u32>>,
    latency: Option<Int64Array>,
    flags: Option<Vec<Flags>>,
}

/// A column by any of its names.
type Names = &'static [&'static str];
const TIME: Names = &["time_ns", "recorded_ns", "time"];
const OPERATION: Names = &["operation", "op"];
const OFFSET: Names = &["offset"];
const BYTES: Names = &["bytes"];
const DEVICE: Names = &["device"];
const FLAGS: Names = &["flags"];
const LATENCY: Names = &["latency_ns", "recorded_latency_ns", "latency"];

impl Frame {
    /// Takes over the table.
    pub(crate) fn read(table: &Bound<'_, PyAny>) -> PyResult<Frame> {
        let wrong = |problem: String| PyValueError::new_err(format!("the table is no trace: {problem}"));
        let py = table.py();
        let mut reader = reader_of(table)?;
        let (mut batches, mut devices, mut rows) = (Vec::new(), Vec::new(), 0);
        // A stream may read files, with the help of threads that need the interpreter.
        while let Some(batch) = py.detach(|| reader.next()) {
            py.check_signals()?;
            let batch = batch.map_err(|error| wrong(error.to_string()))?;
            batches.push(Columns::of(&batch, rows, &mut devices).map_err(wrong)?);
            rows += batch.num_rows();
        }
        Ok(Frame { batches: Arc::new(batches), devices })
    }

    /// The trace, from its beginning.
    pub(crate) fn open(&self) -> Result<Trace, String> {
        let batches = self.batches.clone();
        let places = (0..batches.len()).flat_map({
            let batches = batches.clone();
            move |batch| (0..batches[batch].time.len()).map(move |row| (batch, row))
        });
        let requests = places.map(move |(batch, row)| Ok::<Request, TraceError>(batches[batch].request(row)));
        let trace = Trace::of_requests("the table", requests, &self.devices, &Options::default());
        trace.map_err(|error| error.to_string())
    }
}

fn reader_of(table: &Bound<'_, PyAny>) -> PyResult<RecordBatchStreamReader> {
    const NAME: &std::ffi::CStr = c"arrow_array_stream";
    let Ok(method) = table.getattr("__arrow_c_stream__") else {
        let problem = format!(
            "a trace is a path, or a table with __arrow_c_stream__ (of pandas, Polars, PyArrow, DuckDB), not {}",
            table.get_type().name()?
        );
        return Err(PyTypeError::new_err(problem));
    };
    let capsule = method.call0()?.cast_into::<PyCapsule>()?;
    let stream = capsule.pointer_checked(Some(NAME))?.cast::<FFI_ArrowArrayStream>();
    // SAFETY: a capsule of this name holds a stream of the C interface, which is valid as long as the capsule lives. It is moved
    // out, and what stays behind is marked as released.
    let reader = unsafe { RecordBatchStreamReader::from_raw(stream.as_ptr()) };
    reader.map_err(|error| PyValueError::new_err(error.to_string()))
}

impl Columns {
    /// The columns of a batch that has so many rows before it.
    fn of(batch: &RecordBatch, before: usize, devices: &mut Vec<String>) -> Result<Columns, String> {
        let numbers = |names| {
            Ok::<_, String>(
                cast(&needed(batch, names, before)?, &DataType::UInt64, names)?.as_primitive::<UInt64Type>().clone(),
            )
        };
        let words = cast(&needed(batch, OPERATION, before)?, &DataType::Utf8, OPERATION)?;
        let columns = Columns {
            time: nanos(&needed(batch, TIME, before)?, TIME)?,
            operation: operations(words.as_string(), before)?,
            offset: numbers(OFFSET)?,
            bytes: numbers(BYTES)?,
            device: match column(batch, DEVICE) {
                Some(device) => Some(numbered(cast(&device, &DataType::Utf8, DEVICE)?.as_string(), before, devices)?),
                None => None,
            },
            latency: column(batch, LATENCY).map(|latency| nanos(&latency, LATENCY)).transpose()?,
            flags: match column(batch, FLAGS) {
                Some(flags) => Some(letters(cast(&flags, &DataType::Utf8, FLAGS)?.as_string(), before)?),
                None => None,
            },
        };
        columns.check(before)?;
        Ok(columns)
    }

    /// Checks what a request has to be.
    fn check(&self, before: usize) -> Result<(), String> {
        for row in 0..self.time.len() {
            let wrong = |problem: &str| Err(format!("row {}: {problem}", before + row));
            let (offset, bytes) = (self.offset.value(row), self.bytes.value(row));
            match self.operation[row] {
                _ if self.time.is_null(row) => return wrong("its time is missing"),
                _ if self.time.value(row) < 0 => return wrong("its time is before 0"),
                Op::Flush if bytes > 0 => return wrong("a flush has 0 bytes"),
                Op::Flush => {}
                _ if bytes == 0 => return wrong("it has 0 bytes, as a flush alone may"),
                _ if offset.checked_add(bytes).is_none() => return wrong("its end has no 64-bit address"),
                _ => {}
            }
            if self.latency.as_ref().is_some_and(|latency| latency.is_valid(row) && latency.value(row) < 0) {
                return wrong("it took less than no time");
            }
        }
        Ok(())
    }

    fn request(&self, row: usize) -> Request {
        use seekless::units::Nanos;
        let (offset, bytes) = match self.operation[row] {
            Op::Flush => (0, 0),
            _ => (self.offset.value(row), self.bytes.value(row)),
        };
        let time = Nanos(self.time.value(row).unsigned_abs());
        let mut request = Request::new(time, self.operation[row], offset, bytes);
        if let Some(device) = &self.device {
            request.device = DeviceId::Named(device[row]);
        }
        if let Some(flags) = &self.flags {
            request.flags = flags[row];
        }
        let latency = self.latency.as_ref().filter(|latency| latency.is_valid(row));
        request.latency = latency.map(|latency| Nanos(latency.value(row).unsigned_abs()));
        request
    }
}

fn column(batch: &RecordBatch, names: Names) -> Option<ArrayRef> {
    names.iter().find_map(|name| batch.column_by_name(name)).cloned()
}

/// A column without nulls.
fn needed(batch: &RecordBatch, names: Names, before: usize) -> Result<ArrayRef, String> {
    let column = column(batch, names).ok_or_else(|| {
        let schema = batch.schema();
        let there: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        format!("it has no column {}; it has {}", names.join(" or "), there.join(", "))
    })?;
    // Also of a column in which nothing has a value, whose type is that of nulls.
    let nulls = column.logical_nulls();
    match nulls.and_then(|nulls| (0..nulls.len()).find(|row| nulls.is_null(*row))) {
        Some(row) => Err(format!("row {}: {} is missing", before + row, names[0])),
        None => Ok(column),
    }
}

fn cast(column: &ArrayRef, to: &DataType, names: Names) -> Result<ArrayRef, String> {
    // What does not fit is an error, and no null.
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(column, to, &options).map_err(|error| format!("column {}: {error}", names.join(" or ")))
}

/// A column of times in nanoseconds: integers under a name that says so, or a type that has its unit.
fn nanos(column: &ArrayRef, names: Names) -> Result<Int64Array, String> {
    let column = match column.data_type() {
        DataType::Timestamp(_, zone) => cast(column, &DataType::Timestamp(TimeUnit::Nanosecond, zone.clone()), names)?,
        DataType::Duration(_) => cast(column, &DataType::Duration(TimeUnit::Nanosecond), names)?,
        kind if kind.is_integer() => column.clone(),
        // pandas makes such numbers of integers when one is missing.
        DataType::Float64 => Arc::new(whole(column.as_primitive(), names)?),
        kind => {
            let whole = "integers of nanoseconds, timestamps or durations";
            return Err(format!("column {}: it holds {kind}, where {whole} are expected", names.join(" or ")));
        }
    };
    Ok(cast(&column, &DataType::Int64, names)?.as_primitive::<Int64Type>().clone())
}

/// Whole numbers that another library keeps as numbers with a fraction; what is no number is missing.
fn whole(column: &Float64Array, names: Names) -> Result<Int64Array, String> {
    /// From here on, not every whole number can be kept so.
    const EXACT_BELOW: f64 = (1_u64 << 53) as f64;
    let one = |value: Option<f64>| match value {
        Some(value) if value.fract() == 0.0 && value.abs() < EXACT_BELOW => Ok(Some(value as i64)),
        Some(value) if !value.is_nan() => {
            Err(format!("column {}: {value} is not among the integers of nanoseconds", names.join(" or ")))
        }
        _ => Ok(None),
    };
    column.iter().map(one).collect()
}

fn operations(words: &StringArray, before: usize) -> Result<Vec<Op>, String> {
    let one = |(row, word): (usize, Option<&str>)| {
        let word = word.unwrap_or_default();
        Op::named(word)
            .ok_or_else(|| format!("row {}: `{word}` is none of read, write, discard and flush", before + row))
    };
    words.iter().enumerate().map(one).collect()
}

/// Flags by their letters; none where they are missing.
fn letters(words: &StringArray, before: usize) -> Result<Vec<Flags>, String> {
    let one = |(row, word): (usize, Option<&str>)| {
        let word = word.unwrap_or_default();
        Flags::from_letters(word.as_bytes())
            .ok_or_else(|| format!("row {}: flags `{word}`: a letter is unknown", before + row))
    };
    words.iter().enumerate().map(one).collect()
}

/// The devices as numbers of their names.
fn numbered(words: &StringArray, before: usize, devices: &mut Vec<String>) -> Result<Vec<u32>, String> {
    let mut last: Option<u32> = None;
    let mut one = |(row, word): (usize, Option<&str>)| {
        let word = word.ok_or_else(|| format!("row {}: device is missing", before + row))?;
        let known = last.filter(|last| devices[*last as usize] == word);
        let known = known.or_else(|| devices.iter().position(|device| device == word).map(|at| at as u32));
        let number = known.unwrap_or_else(|| {
            devices.push(word.to_owned());
            devices.len() as u32 - 1
        });
        last = Some(number);
        Ok(number)
    };
    words.iter().enumerate().map(&mut one).collect()
}
