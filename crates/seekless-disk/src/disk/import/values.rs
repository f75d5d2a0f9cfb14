//! Typed access to the parameters of a block.

use super::super::file::SECTOR_MAX_MS;
use super::super::nearest::nearest;
use super::ImportError;
use super::known::shown;
use super::syntax::{Block, List, Param, Value};
use crate::units::Nanos;

type ImportResult<T> = Result<T, ImportError>;

impl Block {
    /// The block, its type if that is a block, and so on.
    pub(super) fn with_bases(&self) -> impl Iterator<Item = &Block> {
        std::iter::successors(Some(self), |block| block.base.as_deref())
    }

    pub(super) fn get(&self, key: &str) -> Option<&Param> {
        // The last one counts, as in DiskSim.
        self.with_bases().find_map(|block| block.params.iter().rev().find(|param| param.key == key))
    }

    pub(super) fn need(&self, key: &str) -> ImportResult<&Param> {
        self.get(key).ok_or_else(|| {
            let name = if self.name.is_empty() { &self.kind } else { &self.name };
            let is_like = |param: &&Param| nearest(&param.key, std::iter::once(key)).is_some();
            let like = self.params.iter().find(is_like);
            let like = like.map(|param| format!("; line {} has `{}`", param.place.line, shown(&param.key)));
            self.place.error(format!("`{key}` of {name} is missing{}", like.unwrap_or_default()))
        })
    }

    /// A whole number; `default` where there is none.
    pub(super) fn whole(&self, key: &str, default: i64) -> ImportResult<i64> {
        self.get(key).map_or(Ok(default), Param::whole)
    }

    pub(super) fn flag(&self, key: &str) -> ImportResult<bool> {
        Ok(self.whole(key, 0)? != 0)
    }

    pub(super) fn number(&self, key: &str, default: f64) -> ImportResult<f64> {
        self.get(key).map_or(Ok(default), Param::number)
    }

    /// A number from 0 to `max`; `default` where there is none.
    pub(super) fn between(&self, key: &str, default: f64, max: f64) -> ImportResult<f64> {
        let number = self.number(key, default)?;
        match self.get(key) {
            Some(param) if !(0.0..=max).contains(&number) => {
                Err(param.error(&format!("{number} is not from 0 to {max}")))
            }
            _ => Ok(number),
        }
    }

    /// One of a few kinds, which are numbered from 0 on; 0 where there is none.
    pub(super) fn level(&self, key: &str, max: u32) -> ImportResult<u32> {
        self.get(key).map_or(Ok(0), |param| param.count(0, max))
    }

    /// A time in milliseconds; zero where there is none.
    pub(super) fn time(&self, key: &str) -> ImportResult<Nanos> {
        self.get(key).map_or(Ok(Nanos::ZERO), Param::time)
    }

    /// The time in which a bus moves a sector, within what a drive file can say.
    pub(super) fn sector_time(&self, key: &str) -> ImportResult<Nanos> {
        let time = self.time(key)?;
        match self.get(key) {
            Some(param) if time > super::super::drive::ms(SECTOR_MAX_MS) => {
                Err(param.error(&format!("{} ms is not from 0 to {SECTOR_MAX_MS}", time.as_millis_f64())))
            }
            _ => Ok(time),
        }
    }
}

impl Param {
    pub(super) fn error(&self, problem: &str) -> ImportError {
        self.place.error(format!("`{}`: {problem}", self.key))
    }

    pub(super) fn text(&self) -> ImportResult<&str> {
        match &*self.value {
            Value::Text(text) => Ok(text),
            _ => Err(self.error("a word or a number is expected here")),
        }
    }

    pub(super) fn block(&self) -> ImportResult<&Block> {
        match &*self.value {
            Value::Block(block) => Ok(block),
            _ => Err(self.error("a block or `source FILE` is expected here")),
        }
    }

    pub(super) fn list(&self) -> ImportResult<&[Value]> {
        Ok(&self.lined_list()?.items)
    }

    /// A list with the line of each item.
    pub(super) fn lined_list(&self) -> ImportResult<&List> {
        match &*self.value {
            Value::List(list) => Ok(list),
            _ => Err(self.error("a list in brackets is expected here")),
        }
    }

    pub(super) fn number(&self) -> ImportResult<f64> {
        self.number_of(&self.value)
    }

    /// An item of this parameter's list, or its value.
    pub(super) fn number_of(&self, value: &Value) -> ImportResult<f64> {
        let number = match value {
            Value::Text(text) => text.parse::<f64>().ok().or_else(|| hexadecimal(text)),
            _ => None,
        };
        number.filter(|number| number.abs() < 1e15).ok_or_else(|| self.error("a number is expected here"))
    }

    /// A whole number. DiskSim's files write some of them with decimals, which are 0.
    pub(super) fn whole(&self) -> ImportResult<i64> {
        Ok(self.whole_of(&self.value)? as i64)
    }

    fn whole_of(&self, value: &Value) -> ImportResult<f64> {
        let number = self.number_of(value)?;
        match (number - number.round()).abs() < 1e-6 {
            true => Ok(number.round()),
            false => Err(self.error(&format!("{number} is not a whole number, which is expected here"))),
        }
    }

    pub(super) fn count(&self, min: u32, max: u32) -> ImportResult<u32> {
        self.count_of(&self.value, min, max)
    }

    pub(super) fn count_of(&self, value: &Value, min: u32, max: u32) -> ImportResult<u32> {
        let number = self.whole_of(value)?;
        match (f64::from(min)..=f64::from(max)).contains(&number) {
            true => Ok(number as u32),
            false => Err(self.error(&format!("{number} is not from {min} to {max}"))),
        }
    }

    pub(super) fn time(&self) -> ImportResult<Nanos> {
        self.time_of(&self.value)
    }

    pub(super) fn time_of(&self, value: &Value) -> ImportResult<Nanos> {
        let millis = self.number_of(value)?;
        match (0.0..=1000.0).contains(&millis) {
            true => Ok(super::super::drive::ms(millis)),
            false => Err(self.error(&format!("{millis} ms is not from 0 to 1000"))),
        }
    }
}

/// `0x1f`, which DiskSim reads, too.
fn hexadecimal(text: &str) -> Option<f64> {
    let (sign, digits) = text.strip_prefix('-').map_or((1.0, text), |digits| (-1.0, digits));
    let digits = digits.strip_prefix("0x").filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    u64::from_str_radix(digits, 16).ok().map(|number| sign * number as f64)
}
