//! Cleaning policies that are written in Python, behind the interface that those of the engine have.
//!
//! Each call takes the interpreter's lock, and makes objects of what it passes: tens of times slower than a policy of the
//! engine, and enough to try an idea. An exception in a call ends the simulation; until the simulator notices, which is soon, the
//! oldest segment is cleaned, so that no wrong answer of a policy can break the simulator.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::rc::Rc;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use seekless::cleaning::policy::{self as engine, Destination, Needs, Note, Order, Policy, SegmentNo, Ticks};
use seekless_host::cli::calls::{self, Caller, Problem, ProblemKind, Step};

use crate::watch::{Told, answered};

/// What a policy knows of its log from the start.
#[pyclass(frozen, get_all, module = "seekless")]
pub(crate) struct Shape {
    segments: u32,
    /// Those that are used before the log is cleaned: all, unless space is not limited.
    segments_used: u32,
    /// Blocks that a segment holds.
    segment_blocks: u32,
    /// Blocks alive when all data is there.
    live_blocks: u64,
    seed: u64,
    /// Live blocks as a share of all.
    utilisation: f64,
}

/// A block that the user writes.
#[pyclass(frozen, get_all, module = "seekless")]
pub(crate) struct Fresh {
    now: Ticks,
    /// When the user wrote its former version; None for a new block.
    written: Option<Ticks>,
    /// What the policy noted of that version.
    note: Note,
    /// When it will be overwritten, where the policy needs the future; None when that never happens.
    dies: Option<Ticks>,
}

/// A live block of a segment that is being cleaned.
#[pyclass(frozen, get_all, module = "seekless")]
pub(crate) struct Moved {
    now: Ticks,
    /// When the user wrote it.
    written: Ticks,
    note: Note,
    /// The head that wrote it to the segment that is being cleaned.
    head: u8,
    dies: Option<Ticks>,
}

/// A segment that is full, or that is cleaned.
#[pyclass(frozen, get_all, module = "seekless")]
pub(crate) struct Segment {
    number: SegmentNo,
    head: u8,
    /// Blocks alive in it.
    live: u32,
    /// When its first and its last block were written to it.
    opened: Ticks,
    closed: Ticks,
    /// The latest time at which the user wrote a block of it.
    youngest: Ticks,
    now: Ticks,
}

/// The state of a log, for deciding whether to clean.
#[pyclass(frozen, get_all, module = "seekless")]
pub(crate) struct Room {
    /// Segments that can be written, and that could be cleaned.
    clean: u32,
    closed: u32,
    /// Dead blocks as a share of all blocks in use.
    garbage: f64,
    /// Victims of the pass under way, and blocks alive in them; None between passes.
    victims: Option<u32>,
    live: Option<u64>,
    /// What the options of the simulation say.
    is_short: bool,
}

const fn known(dies: Ticks) -> Option<Ticks> {
    if dies == Ticks::MAX { None } else { Some(dies) }
}

/// The first exception of a policy.
type Failure = Rc<RefCell<Option<PyErr>>>;

/// A policy in Python.
struct Own {
    policy: Py<PyAny>,
    heads: u8,
    needs: Needs,
    order: Order,
    /// Which methods its class has of its own; the others are not called.
    wants: bool,
    died: bool,
    closed: bool,
    cleaned: bool,
    /// The closed segments, as the log tells of them: when each was closed, and what is alive.
    segments: BTreeMap<SegmentNo, (Ticks, u32)>,
    failure: Failure,
}

impl Own {
    fn new(policy: &Py<PyAny>, shape: &engine::Shape, failure: &Failure) -> PyResult<Own> {
        Python::attach(|py| {
            let object = policy.bind(py);
            let base = py.import("seekless._policies")?.getattr("Policy")?;
            if !object.is_instance(&base)? {
                return Err(PyTypeError::new_err(
                    "a policy in Python is an object of a class with the base seekless.Policy",
                ));
            }
            let class = object.get_type();
            let has = |name: &str| PyResult::Ok(!class.getattr(name)?.is(&base.getattr(name)?));
            let needs: Vec<String> =
                object.getattr("needs")?.try_iter()?.map(|it| it?.extract()).collect::<PyResult<_>>()?;
            if let Some(unknown) = needs.iter().find(|need| !["times", "notes", "future"].contains(&need.as_str())) {
                return Err(PyValueError::new_err(format!("needs: `{unknown}` is none of times, notes and future")));
            }
            let needs = |name: &str| needs.iter().any(|need| need == name);
            let order: String = object.getattr("order")?.extract()?;
            let heads: u8 = object.getattr("heads")?.extract()?;
            if heads == 0 {
                return Err(PyValueError::new_err("a policy has 1 to 255 heads"));
            }
            let own = Own {
                policy: policy.clone_ref(py),
                heads,
                needs: Needs { times: needs("times"), notes: needs("notes"), future: needs("future") },
                order: match order.as_str() {
                    "found" => Order::Found,
                    "age" => Order::Age,
                    _ => return Err(PyValueError::new_err(format!("order: `{order}` is none of found and age"))),
                },
                wants: has("wants")?,
                died: has("died")?,
                closed: has("closed")?,
                cleaned: has("cleaned")?,
                segments: BTreeMap::new(),
                failure: failure.clone(),
            };
            let engine::Shape { segments, segments_used, segment_blocks, live_blocks, seed } = *shape;
            let utilisation = shape.utilisation();
            let shape = Shape { segments, segments_used, segment_blocks, live_blocks, seed, utilisation };
            object.call_method1("start", (shape,))?;
            Ok(own)
        })
    }

    /// Calls a method, unless the policy has failed before.
    fn call<T>(&self, call: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> Option<T> {
        if self.failure.borrow().is_some() {
            return None;
        }
        match Python::attach(|py| call(self.policy.bind(py))) {
            Ok(value) => Some(value),
            Err(error) => {
                self.failure.replace(Some(error));
                None
            }
        }
    }

    /// A place, as a method returns it: a head, or a head and a note.
    fn place(&self, place: &Bound<'_, PyAny>) -> PyResult<Destination> {
        let (head, note): (u8, Note) = match place.extract::<u8>() {
            Ok(head) => (head, 0),
            Err(_) => place.extract().map_err(|_| {
                PyValueError::new_err(format!("`{place}` is no head, and no head with a note from 0 to 65535"))
            })?,
        };
        match head < self.heads {
            true => Ok(Destination { head, note }),
            false => Err(PyValueError::new_err(format!("head {head}: the policy has {}, from 0", self.heads))),
        }
    }

    fn tell(&self, segment: &engine::Segment, method: &str) {
        let engine::Segment { number, head, live, opened, closed, youngest, now } = *segment;
        let segment = Segment { number, head, live, opened, closed, youngest, now };
        self.call(|policy| policy.call_method1(method, (segment,)).map(drop));
    }
}

impl Policy for Own {
    fn heads(&self) -> u8 {
        self.heads
    }

    fn needs(&self) -> Needs {
        self.needs
    }

    fn write(&mut self, block: &engine::Fresh) -> Destination {
        let (now, before) = (block.now, block.before);
        let (written, note) = before.map_or((None, 0), |before| (Some(before.written), before.note));
        let block = Fresh { now, written, note, dies: known(block.dies) };
        let place = self.call(|policy| self.place(&policy.call_method1("write", (block,))?));
        place.unwrap_or(Destination::at(0))
    }

    fn relocate(&mut self, block: &engine::Moved) -> Destination {
        let engine::Moved { now, written, note, head, dies } = *block;
        let block = Moved { now, written, note, head, dies: known(dies) };
        let place = self.call(|policy| self.place(&policy.call_method1("relocate", (block,))?));
        place.unwrap_or(Destination::at(0))
    }

    fn order(&self) -> Order {
        self.order
    }

    fn wants(&self, room: &engine::Room) -> bool {
        let is_short = room.is_short();
        if !self.wants {
            return is_short;
        }
        let engine::Room { clean, closed, garbage, pass, .. } = *room;
        let (victims, live) = (pass.map(|pass| pass.0), pass.map(|pass| pass.1));
        let room = Room { clean, closed, garbage, victims, live, is_short };
        self.call(|policy| policy.call_method1("wants", (room,))?.extract()).unwrap_or(is_short)
    }

    fn choose(&mut self, now: Ticks) -> Option<SegmentNo> {
        let chosen = self.call(|policy| {
            let chosen: Option<SegmentNo> = policy.call_method1("choose", (now,))?.extract()?;
            match chosen {
                Some(number) if self.segments.contains_key(&number) => Ok(number),
                Some(number) => Err(PyValueError::new_err(format!("choose: segment {number} is not closed"))),
                None if self.segments.is_empty() => Ok(SegmentNo::MAX),
                None => Err(PyValueError::new_err("choose: there are closed segments, and it returned None")),
            }
        });
        let oldest = || self.segments.iter().min_by_key(|(_, (closed, _))| *closed).map(|(number, _)| *number);
        chosen.filter(|number| *number != SegmentNo::MAX).or_else(oldest)
    }

    fn closed(&mut self, segment: &engine::Segment) {
        self.segments.insert(segment.number, (segment.closed, segment.live));
        if self.closed {
            self.tell(segment, "closed");
        }
    }

    fn died(&mut self, segment: SegmentNo, live: u32) {
        if let Some(known) = self.segments.get_mut(&segment) {
            known.1 = live;
        }
        if self.died {
            self.call(|policy| policy.call_method1("died", (segment, live)).map(drop));
        }
    }

    fn cleaned(&mut self, segment: &engine::Segment) {
        self.segments.remove(&segment.number);
        if self.cleaned {
            self.tell(segment, "cleaned");
        }
    }

    fn known(&self) -> Vec<(SegmentNo, u32)> {
        self.segments.iter().map(|(number, (_, live))| (*number, *live)).collect()
    }
}

/// Ends the simulation when its policy has failed.
struct Failing<'a> {
    caller: &'a dyn Caller,
    failure: Failure,
}

impl Caller for Failing<'_> {
    fn at(&self, step: Step<'_>) -> ControlFlow<()> {
        match self.failure.borrow().is_some() {
            true => ControlFlow::Break(()),
            false => self.caller.at(step),
        }
    }

    fn note(&self, text: &str) {
        self.caller.note(text);
    }
}

/// Simulates a policy in Python, called `name`, with the words of a command that has one policy of the engine.
#[pyfunction]
pub(crate) fn clean_with(
    py: Python<'_>,
    words: Vec<String>,
    name: String,
    policy: Py<PyAny>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Told> {
    let (told, raised) = std::sync::mpsc::channel();
    let result = answered(py, progress, move |caller| {
        let failure = Failure::default();
        let make = |shape: &engine::Shape| match Own::new(&policy, shape, &failure) {
            Ok(own) => Ok(Box::new(own) as Box<dyn Policy>),
            Err(error) => {
                let text = error.to_string();
                failure.replace(Some(error));
                Err(text)
            }
        };
        let failing = Failing { caller, failure: failure.clone() };
        let answer = calls::clean_with(&words, &name, &make, &failing);
        match failure.take() {
            Some(error) => {
                let text = error.to_string();
                let _ = told.send(error); // The receiver waits below.
                Err(Problem { kind: ProblemKind::Failed, text, partial: None })
            }
            None => answer,
        }
    });
    match raised.try_recv() {
        Ok(error) => Err(error),
        Err(_) => result,
    }
}
