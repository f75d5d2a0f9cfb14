//! Results as Arrow tables. Other libraries take them through the PyCapsule interface, without a copy:
//! <https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html>.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::{Float64Type, Int32Type, Int64Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, DictionaryArray, Float64Array, Int32Array, Int64Array, RecordBatch,
    RecordBatchIterator, StringArray, UInt64Array,
};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use pyo3::exceptions::{PyIndexError, PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyList};
use seekless_lab::replay::Answered;
use seekless_lab::trace::{Flags, Op};
use serde_json::Value;

/// A table that other libraries take over.
#[pyclass(frozen, module = "seekless")]
pub(crate) struct Table {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

#[pymethods]
impl Table {
    /// A table of rows, which are objects in a JSON array. A column has the type of its values, and all of its values have
    /// one type; what is missing is null.
    #[staticmethod]
    fn of_rows(rows: &str) -> PyResult<Table> {
        let wrong = |problem: String| PyValueError::new_err(problem);
        let rows: Vec<serde_json::Map<String, Value>> =
            serde_json::from_str(rows).map_err(|error| wrong(error.to_string()))?;
        Table::try_of_rows(&rows).map_err(wrong)
    }

    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema; // A producer may ignore it, and the consumer converts.
        let batches: Vec<_> = self.batches.iter().cloned().map(Ok).collect();
        let reader = RecordBatchIterator::new(batches, self.schema.clone());
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), c"arrow_array_stream")
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema =
            FFI_ArrowSchema::try_from(&*self.schema).map_err(|error| PyValueError::new_err(error.to_string()))?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    /// How many rows there are.
    fn __len__(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// Names of the columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.schema.fields().iter().map(|field| field.name().clone()).collect()
    }

    /// The values of a column.
    fn __getitem__<'py>(&self, py: Python<'py>, column: &str) -> PyResult<Bound<'py, PyList>> {
        let index = self.schema.index_of(column).map_err(|_| {
            PyKeyError::new_err(format!("there is no column `{column}`; there are: {}", self.columns().join(", ")))
        })?;
        let values = PyList::empty(py);
        for batch in &self.batches {
            for row in 0..batch.num_rows() {
                values.append(value_at(py, batch.column(index), row)?)?;
            }
        }
        Ok(values)
    }

    /// A row, by its number from 0.
    fn row<'py>(&self, py: Python<'py>, number: usize) -> PyResult<Bound<'py, PyDict>> {
        let mut rest = number;
        for batch in &self.batches {
            if rest < batch.num_rows() {
                let row = PyDict::new(py);
                for (field, column) in self.schema.fields().iter().zip(batch.columns()) {
                    row.set_item(field.name(), value_at(py, column, rest)?)?;
                }
                return Ok(row);
            }
            rest -= batch.num_rows();
        }
        Err(PyIndexError::new_err(format!("there is no row {number}; there are {}", self.__len__())))
    }
}

impl Table {
    fn try_of_rows(rows: &[serde_json::Map<String, Value>]) -> Result<Table, String> {
        let mut names: Vec<&String> = Vec::new();
        for row in rows {
            names.extend(row.keys().filter(|name| !names.contains(name)).collect::<Vec<_>>());
        }
        let column = |name: &String| {
            let values: Vec<&Value> = rows.iter().map(|row| row.get(name).unwrap_or(&Value::Null)).collect();
            column_of(&values).map_err(|problem| format!("column `{name}`: {problem}"))
        };
        let columns = names.iter().map(|name| column(name)).collect::<Result<Vec<ArrayRef>, String>>()?;
        let field = |(name, column): (&&String, &ArrayRef)| Field::new(*name, column.data_type().clone(), true);
        let schema: SchemaRef = Arc::new(Schema::new(names.iter().zip(&columns).map(field).collect::<Vec<_>>()));
        let batches = match columns.is_empty() {
            true => Vec::new(),
            false => vec![RecordBatch::try_new(schema.clone(), columns).map_err(|error| error.to_string())?],
        };
        Ok(Table { schema, batches })
    }

    /// The answers of several replays, one behind the other, with the name of the stack in the first column.
    pub(crate) fn of_answers(stacks: &[String], answers: Vec<Answers>) -> Table {
        let names: ArrayRef = Arc::new(StringArray::from(stacks.to_vec()));
        let operations: ArrayRef = Arc::new(StringArray::from_iter_values(Op::ALL.iter().map(|op| op.name())));
        let words = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        let number = |name: &str| Field::new(name, DataType::UInt64, name == LATENCY);
        let flags: ArrayRef = Arc::new(StringArray::from_iter_values((0..FLAGS).map(|flags| Flags(flags).letters())));
        let fields = ["stack", "operation", "flags"].map(|name| Field::new(name, words.clone(), false));
        let fields = fields.into_iter().chain(NUMBERS.iter().map(|name| number(name)));
        let schema: SchemaRef = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let batch = |(stack, answers): (usize, Answers)| {
            let Answers { operations: codes, flags: letters, numbers, latencies } = answers.in_order();
            let of_stack = Int32Array::from(vec![stack as i32; codes.len()]);
            let word = |keys, values: &ArrayRef| -> ArrayRef {
                // The keys are places in the dictionary, as they were counted from it.
                Arc::new(DictionaryArray::<Int32Type>::new(keys, values.clone()))
            };
            let mut columns = vec![
                word(of_stack, &names),
                word(Int32Array::from(codes), &operations),
                word(Int32Array::from(letters), &flags),
            ];
            columns.extend(numbers.into_iter().map(|column| Arc::new(UInt64Array::from(column)) as ArrayRef));
            columns.push(Arc::new(UInt64Array::from(latencies)));
            match RecordBatch::try_new(schema.clone(), columns) {
                Ok(batch) => batch,
                Err(error) => unreachable!("the columns are those of the schema: {error}"),
            }
        };
        let batches = answers.into_iter().enumerate().map(batch).collect();
        Table { schema, batches }
    }
}

/// The columns of numbers in a table of answers; the last one may have nulls.
const NUMBERS: [&str; 9] =
    ["number", "recorded_ns", "offset", "bytes", "storage_offset", "storage_bytes", "made_ns", "done_ns", LATENCY];
const LATENCY: &str = "recorded_latency_ns";

/// Sets of flags that there are.
const FLAGS: u8 = 1 << Flags::LETTERS.len();

/// The answers of one stack.
#[derive(Default)]
pub(crate) struct Answers {
    /// Places in [`Op::ALL`].
    operations: Vec<i32>,
    /// Each a set of flags, as a number below [`FLAGS`].
    flags: Vec<i32>,
    /// In the order of [`NUMBERS`], without the last.
    numbers: [Vec<u64>; NUMBERS.len() - 1],
    latencies: Vec<Option<u64>>,
}

impl Answers {
    pub(crate) fn add(&mut self, answered: &Answered) {
        let Answered { number, request, bytes, made, done, .. } = *answered;
        let numbers =
            [number, request.time.0, request.offset, request.bytes, answered.storage_offset(), bytes, made.0, done.0];
        self.numbers.iter_mut().zip(numbers).for_each(|(column, number)| column.push(number));
        self.operations.push(request.op.index() as i32);
        self.flags.push(i32::from(request.flags.0));
        self.latencies.push(request.latency.map(|latency| latency.0));
    }

    /// In the order of the trace, so that the requests can be replayed again: what was made at the same moment stays in order.
    fn in_order(self) -> Answers {
        let number = &self.numbers[0];
        if number.is_sorted() {
            return self;
        }
        let mut order: Vec<usize> = (0..number.len()).collect();
        order.sort_unstable_by_key(|&row| number[row]);
        Answers {
            operations: order.iter().map(|&row| self.operations[row]).collect(),
            flags: order.iter().map(|&row| self.flags[row]).collect(),
            latencies: order.iter().map(|&row| self.latencies[row]).collect(),
            numbers: self.numbers.map(|column| order.iter().map(|&row| column[row]).collect()),
        }
    }
}

/// A column for values of one type: switches, texts, whole numbers, or numbers.
fn column_of(values: &[&Value]) -> Result<ArrayRef, String> {
    let known = || values.iter().filter(|value| !value.is_null());
    Ok(match () {
        () if known().next().is_none() => Arc::new(values.iter().map(|_| None).collect::<Float64Array>()),
        () if known().all(|value| value.is_boolean()) => {
            Arc::new(values.iter().map(|value| value.as_bool()).collect::<BooleanArray>())
        }
        () if known().all(|value| value.is_string()) => {
            Arc::new(values.iter().map(|value| value.as_str()).collect::<StringArray>())
        }
        () if known().all(|value| value.is_i64()) => {
            Arc::new(values.iter().map(|value| value.as_i64()).collect::<Int64Array>())
        }
        () if known().all(|value| value.is_u64()) => {
            Arc::new(values.iter().map(|value| value.as_u64()).collect::<UInt64Array>())
        }
        () if known().all(|value| value.is_number()) => {
            Arc::new(values.iter().map(|value| value.as_f64()).collect::<Float64Array>())
        }
        // A variable of an experiment may have numbers and words.
        () if known().all(|value| value.is_number() || value.is_string()) => {
            let text = |value: &&Value| match value {
                Value::String(text) => Some(text.clone()),
                Value::Null => None,
                number => Some(number.to_string()),
            };
            Arc::new(values.iter().map(text).collect::<StringArray>())
        }
        () => return Err("its values have several types".to_owned()),
    })
}

/// A value of one of the types that our tables have.
fn value_at<'py>(py: Python<'py>, column: &ArrayRef, row: usize) -> PyResult<Bound<'py, PyAny>> {
    if column.is_null(row) {
        return Ok(py.None().into_bound(py));
    }
    match column.data_type() {
        DataType::UInt64 => Ok(column.as_primitive::<UInt64Type>().value(row).into_pyobject(py)?.into_any()),
        DataType::Int64 => Ok(column.as_primitive::<Int64Type>().value(row).into_pyobject(py)?.into_any()),
        DataType::Float64 => Ok(column.as_primitive::<Float64Type>().value(row).into_pyobject(py)?.into_any()),
        DataType::Utf8 => Ok(column.as_string::<i32>().value(row).into_pyobject(py)?.into_any()),
        DataType::Boolean => Ok(column.as_boolean().value(row).into_pyobject(py)?.to_owned().into_any()),
        DataType::Dictionary(_, _) => {
            let column = column.as_dictionary::<Int32Type>();
            value_at(py, column.values(), column.keys().value(row) as usize)
        }
        other => Err(PyValueError::new_err(format!("a column of type {other} has no values for Python"))),
    }
}
