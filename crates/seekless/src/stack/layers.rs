//! The words of layers: what stores files in another size than they have, and the null layer.

use std::sync::Arc;

use futures_util::future::LocalBoxFuture;

use super::Word;
use super::build::{Maker, Trouble};
use super::file_systems::{CheckOptions, Checked, Finding};
use super::value::{Kind, Value};
use super::words::{Param, WordSpec};
use crate::fs::Fs;
use crate::layer::codecs::{Codec, Copy, Deflate, Lz4, Uuencode, Zstd};
use crate::layer::log::pack::{Direction, Progress};
use crate::layer::log::{self, Options, Plain, format};
use crate::layer::wrap;
use crate::rt::Rt;
use crate::units::{MIB, Nanos};

/// A layer, as the stack sees it.
pub struct LayerSpec {
    pub make: for<'a> fn(&'a Rt, Fs, &'a Word) -> LocalBoxFuture<'a, Result<Fs, Trouble>>,
    /// Checks what the layer keeps in the file system below, where it keeps anything.
    #[allow(clippy::type_complexity)]
    pub check: Option<for<'a> fn(&'a Rt, Fs, &'a Word, CheckOptions) -> LocalBoxFuture<'a, Result<Checked, Trouble>>>,
    /// Turns the files below it into its own, or back.
    pub convert: Option<Convert>,
}

/// See [`LayerSpec::convert`]; the last argument is told of every file.
pub type Convert =
    for<'a> fn(&'a Rt, Fs, &'a Word, Direction, &'a Tell<'a>) -> LocalBoxFuture<'a, Result<Progress, Trouble>>;

/// Is told how far the work is, and which file is next.
pub type Tell<'a> = dyn Fn(&Progress, &[u8]) + 'a;

pub(super) const WRAP: WordSpec = WordSpec {
    name: "wrap",
    help: "null layer: passes everything on; the baseline for other layers [za01]",
    argument: None,
    options: &[],
    maker: Maker::Layer(&LayerSpec {
        make: |_, lower, _| Box::pin(async { Ok(wrap::stack_on(lower).await?) }),
        check: None,
        convert: None,
    }),
};

/// The layers that encode.
const ENCODING: LayerSpec = LayerSpec {
    make: |rt, lower, word| Box::pin(async move { Ok(log::stack_on(rt, lower, options(word)?).await?) }),
    check: Some(|rt, lower, word, check| Box::pin(check_files(rt, lower, word, check))),
    convert: Some(|rt, lower, word, direction, tell| {
        Box::pin(async move { Ok(log::pack::convert(rt, lower, options(word)?, direction, tell).await?) })
    }),
};

const CHUNK: Param = Param::new(
    "chunk",
    Kind::Bytes { min: 1 << format::CHUNK_SHIFT_MIN, max: 1 << format::CHUNK_SHIFT_MAX },
    "bytes of new files that are encoded together, a power of two: larger ones take less space, smaller ones less time \
     to change",
)
.default("64KiB");

const PLAIN: Param = Param::new(
    "plain",
    Kind::Choice(&["pass", "error"]),
    "files below that no such layer has written: shown and changed as they are, or refused",
)
.default("pass");

const WRITE_BACK: Param = Param::new(
    "write-back",
    Kind::Duration { min: Nanos::from_millis(1), max: Nanos::from_secs(86_400) },
    "longest time that a change waits in memory",
)
.default("5s");

const DIRTY: Param =
    Param::new("dirty", Kind::Bytes { min: MIB, max: 1 << 40 }, "memory for changes before writers wait")
        .default("32MiB");

const CACHE: Param =
    Param::new("cache", Kind::Bytes { min: 0, max: 1 << 40 }, "memory for decoded chunks").default("8MiB");

pub(super) const ZSTD: WordSpec = WordSpec {
    name: "zstd",
    help: "compresses files with Zstandard: a good choice for anything",
    argument: None,
    options: &[
        Param::new("level", Kind::Integer { min: 1, max: 22 }, "1 is fastest, 22 smallest").default("3"),
        CHUNK,
        PLAIN,
        WRITE_BACK,
        DIRTY,
        CACHE,
    ],
    maker: Maker::Layer(&ENCODING),
};

pub(super) const LZ4: WordSpec = WordSpec {
    name: "lz4",
    help: "compresses files with LZ4: the fastest",
    argument: None,
    options: &[CHUNK, PLAIN, WRITE_BACK, DIRTY, CACHE],
    maker: Maker::Layer(&ENCODING),
};

pub(super) const GZIP: WordSpec = WordSpec {
    name: "gzip",
    help: "compresses files with Deflate, as Gzipfs of [za01] did",
    argument: None,
    options: &[
        Param::new("level", Kind::Integer { min: 1, max: 9 }, "1 is fastest, 9 smallest").default("6"),
        CHUNK,
        PLAIN,
        WRITE_BACK,
        DIRTY,
        CACHE,
    ],
    maker: Maker::Layer(&ENCODING),
};

pub(super) const COPY: WordSpec = WordSpec {
    name: "copy",
    help: "stores files in chunks as they are: what the index alone costs [za01]",
    argument: None,
    options: &[CHUNK, PLAIN, WRITE_BACK, DIRTY, CACHE],
    maker: Maker::Layer(&ENCODING),
};

pub(super) const UUENCODE: WordSpec = WordSpec {
    name: "uuencode",
    help: "stores three bytes as four printable ones: a size that grows, at no cost of an algorithm [za01]",
    argument: None,
    options: &[CHUNK, PLAIN, WRITE_BACK, DIRTY, CACHE],
    maker: Maker::Layer(&ENCODING),
};

fn codec(word: &Word) -> Arc<dyn Codec> {
    let level = |word: &Word| i32::try_from(word.integer("level")).unwrap_or(i32::MAX);
    match word.name() {
        "zstd" => Arc::new(Zstd { level: level(word) }),
        "gzip" => Arc::new(Deflate { level: level(word).unsigned_abs() }),
        "lz4" => Arc::new(Lz4),
        "uuencode" => Arc::new(Uuencode),
        _ => Arc::new(Copy),
    }
}

fn options(word: &Word) -> Result<Options, Trouble> {
    let chunk_bytes = word.bytes("chunk");
    if !chunk_bytes.is_power_of_two() {
        let near = Value::Bytes(chunk_bytes.next_power_of_two());
        return Err(Trouble::Option { key: "chunk", problem: format!("it is no power of two; {near} is") });
    }
    Ok(Options {
        chunk_shift: chunk_bytes.trailing_zeros() as u8,
        plain: if word.choice("plain") == "error" { Plain::Error } else { Plain::Pass },
        write_back_interval: word.duration("write-back"),
        dirty_bytes_max: word.bytes("dirty"),
        cache_bytes: word.bytes("cache"),
        ..Options::new(codec(word))
    })
}

async fn check_files(rt: &Rt, lower: Fs, word: &Word, check: CheckOptions) -> Result<Checked, Trouble> {
    let report = log::check::check(rt, lower, options(word)?, check.repair).await?;
    let finding = |finding: log::check::Finding| {
        let text = format!("{}: {}", String::from_utf8_lossy(&finding.path), finding.problem);
        Finding { text, repaired: finding.repaired }
    };
    let mut notes = Vec::new();
    if report.plain_files > 0 {
        notes.push(format!("{} files were not written by `{}`", report.plain_files, word.name()));
    }
    Ok(Checked {
        findings: report.findings.into_iter().map(finding).collect(),
        unlisted: 0,
        notes,
        counts: vec![
            ("files", report.files),
            ("records", report.records),
            ("bytes", report.bytes_above),
            ("bytes_below", report.bytes_below),
        ],
    })
}
