//! The words of layers: those that store files in another form, and the null layer.

use std::sync::Arc;

use super::Word;
use super::error::BuildError;
use super::file_systems::{CheckOptions, Checked, Finding};
use super::spec::{Constructor, LayerSpec, LeafOpener, Param, WordSpec};
use super::value::{ParamKind, Value};
use crate::fs::Fs;
use crate::layer::codecs::{Codec, Copy, Deflate, Key, Lz4, Sealed, Uuencode, Zstd};
use crate::layer::log::pack::{Direction, Progress};
use crate::layer::log::{self, Options, format};
use crate::layer::{self, Plain, classic, wrap};
use crate::rt::Rt;
use crate::units::{MIB, Nanos, counted};

pub(super) const WRAP: WordSpec = WordSpec {
    name: "wrap",
    help: "null layer: passes everything on; the baseline for other layers [za01]",
    argument: None,
    options: &[Param::new(
        "passthrough",
        ParamKind::Switch,
        "the kernel may read and write files of a `hostdir` below past this layer",
    )
    .default("off")],
    properties: &[],
    constructor: Constructor::Layer(&LayerSpec {
        make: |_, lower, word, _| {
            let options = wrap::Options { passthrough: word.switch("passthrough") };
            Box::pin(async move { Ok(wrap::stack_on(lower, options).await?) })
        },
        check: None,
        convert: None,
    }),
};

/// The layers that encode.
const ENCODING: LayerSpec = LayerSpec {
    make: |rt, lower, word, leaves| {
        Box::pin(async move {
            match scheme(word, leaves).await? {
                Scheme::Log(options) => Ok(log::stack_on(rt, lower, options).await?),
                Scheme::Classic(options) => Ok(classic::stack_on(rt, lower, options).await?),
            }
        })
    },
    check: Some(|rt, lower, word, leaves, check| Box::pin(check_files(rt, lower, word, leaves, check))),
    convert: Some(|rt, lower, word, leaves, direction, tell| {
        Box::pin(async move {
            match scheme(word, leaves).await? {
                Scheme::Log(options) => Ok(log::pack::convert(rt, lower, options, direction, tell).await?),
                Scheme::Classic(options) => let_go_of_classic(rt, lower, options, direction).await,
            }
        })
    }),
};

/// The scheme for comparison converts no files. A directory without encoded ones can be had back from it.
async fn let_go_of_classic(
    rt: &Rt,
    lower: Fs,
    options: classic::Options,
    direction: Direction,
) -> Result<Progress, BuildError> {
    let refused = |problem: String| Err(BuildError::Option { key: "index", problem });
    if direction == Direction::Pack {
        return refused(
            "only `index=log` can encode existing files: copy them into a mount with this line".to_string(),
        );
    }
    let (found, is_free) = classic::check::let_go(rt, lower, options).await?;
    if is_free {
        return Ok(Progress { files_seen: found.files, files_done_before: found.files, ..Progress::default() });
    }
    refused(match (found.encoded_files, found.findings.first()) {
        (0, Some(damaged)) => format!(
            "{}: {}; `seekless fsck` with this line lists all such files and repairs what it can; then run this again",
            String::from_utf8_lossy(&damaged.path),
            damaged.problem
        ),
        (0, None) => "some of its files cannot be read, or look like those of `index=log`: without `index=classic` a mount would \
                      decode them, so move them to another directory, and run this again"
            .to_string(),
        (encoded, _) => format!(
            "only files of `index=log` are decoded in place, and {encoded} of the {} files here are encoded: mount this line, copy \
             the files to another directory (cp -a), and remove them from the mount; then run this again. The form of the files \
             is described in crates/seekless-layer/src/layer/classic/FORMAT.md",
            found.files
        ),
    })
}

const CHUNK: Param = Param::new(
    "chunk",
    ParamKind::Bytes { min: 1 << format::CHUNK_SHIFT_MIN, max: 1 << format::CHUNK_SHIFT_MAX },
    "bytes of new files that are encoded together, a power of two: larger ones take less space, smaller ones less time \
     to change",
)
.default("32KiB");

const PLAIN: Param = Param::new(
    "plain",
    ParamKind::Choice(&["pass", "error"]),
    "files below that were not written by such a layer: shown and changed as they are, or refused",
)
.default("pass");

pub(super) const ENCRYPT: WordSpec = WordSpec {
    name: "encrypt",
    help: "encrypts and authenticates the contents of files; names, sizes and times can be read by all",
    argument: Some(&Param::new("key", ParamKind::Path, "key file, made by `seekless key`").required()),
    options: &[
        Param::new("passphrase", ParamKind::Path, "file with the passphrase of the key, for example /dev/stdin"),
        Param::new(
            "compress",
            ParamKind::Choice(&["none", "lz4", "zstd", "gzip"]),
            "what is done before encryption: sizes then reveal something about the contents",
        )
        .default("none"),
        CHUNK,
        ENCRYPT_PLAIN,
        WRITE_BACK,
        DIRTY,
        CACHE,
    ],
    properties: &[],
    constructor: Constructor::Layer(&ENCODING),
};

const ENCRYPT_PLAIN: Param = PLAIN.default("error");

const INDEX: Param = Param::new(
    "index",
    ParamKind::Choice(&["log", "classic"]),
    "how files are stored: `log`; or `classic`, as published, for comparison [za01]: with F.idx beside F, without checksums, \
     and with the file that is written in danger when the power fails",
)
.default("log");

const TAILS: Param =
    Param::new("tails", ParamKind::Switch, "`classic`: the last bytes of a file are stored unencoded [za01]")
        .default("on");

const WRITE_BACK: Param = Param::new(
    "write-back",
    ParamKind::Duration { min: Nanos::from_millis(1), max: Nanos::from_secs(86_400) },
    "longest time that a change waits in memory",
)
.default("5s");

const DIRTY: Param =
    Param::new("dirty", ParamKind::Bytes { min: MIB, max: 1 << 40 }, "memory for changes before writers wait")
        .default("32MiB");

const CACHE: Param =
    Param::new("cache", ParamKind::Bytes { min: 0, max: 1 << 40 }, "memory for decoded chunks").default("8MiB");

pub(super) const ZSTD: WordSpec = WordSpec {
    name: "zstd",
    help: "compresses files with Zstandard: a good choice for anything",
    argument: None,
    options: &[
        Param::new("level", ParamKind::Integer { min: 1, max: 22 }, "1 is fastest, 22 smallest").default("3"),
        CHUNK,
        PLAIN,
        WRITE_BACK,
        DIRTY,
        CACHE,
        INDEX,
        TAILS,
    ],
    properties: &[],
    constructor: Constructor::Layer(&ENCODING),
};

pub(super) const LZ4: WordSpec = WordSpec {
    name: "lz4",
    help: "compresses files with LZ4: the fastest",
    argument: None,
    options: &[CHUNK, PLAIN, WRITE_BACK, DIRTY, CACHE],
    properties: &[],
    constructor: Constructor::Layer(&ENCODING),
};

pub(super) const GZIP: WordSpec = WordSpec {
    name: "gzip",
    help: "compresses files with Deflate, as Gzipfs of [za01] did",
    argument: None,
    options: &[
        Param::new("level", ParamKind::Integer { min: 1, max: 9 }, "1 is fastest, 9 smallest").default("6"),
        CHUNK,
        PLAIN,
        WRITE_BACK,
        DIRTY,
        CACHE,
        INDEX,
        TAILS,
    ],
    properties: &[],
    constructor: Constructor::Layer(&ENCODING),
};

pub(super) const COPY: WordSpec = WordSpec {
    name: "copy",
    help: "stores files in unencoded chunks: the cost of the index alone [za01]",
    argument: None,
    options: &[CHUNK, PLAIN, WRITE_BACK, DIRTY, CACHE, INDEX, TAILS],
    properties: &[],
    constructor: Constructor::Layer(&ENCODING),
};

pub(super) const UUENCODE: WordSpec = WordSpec {
    name: "uuencode",
    help: "stores three bytes as four printable ones: files grow, and encoding costs little [za01]",
    argument: None,
    options: &[CHUNK, PLAIN, WRITE_BACK, DIRTY, CACHE, INDEX, TAILS],
    properties: &[],
    constructor: Constructor::Layer(&ENCODING),
};

async fn codec(word: &Word, leaves: &dyn LeafOpener) -> Result<Arc<dyn Codec>, BuildError> {
    let level = |word: &Word| i32::try_from(word.integer("level")).unwrap_or(i32::MAX);
    Ok(match word.name() {
        "encrypt" => Arc::new(Sealed::new(&key(word, leaves).await?, compression(word))),
        "zstd" => Arc::new(Zstd { level: level(word) }),
        "gzip" => Arc::new(Deflate { level: level(word).unsigned_abs() }),
        "lz4" => Arc::new(Lz4),
        "uuencode" => Arc::new(Uuencode),
        "copy" => Arc::new(Copy),
        other => unreachable!("`{other}` is a layer that encodes, and has no codec here"),
    })
}

/// The compression before encryption in `encrypt`.
fn compression(word: &Word) -> Option<Arc<dyn Codec>> {
    match word.choice("compress") {
        "zstd" => Some(Arc::new(Zstd::default())),
        "lz4" => Some(Arc::new(Lz4)),
        "gzip" => Some(Arc::new(Deflate::default())),
        _ => None,
    }
}

async fn key(word: &Word, leaves: &dyn LeafOpener) -> Result<Key, BuildError> {
    let Some(path) = word.text("key") else {
        return Err(BuildError::other("the key is missing")); // The table of words says that it is required.
    };
    let file = leaves.secret(word, path).await?;
    let passphrase = match word.text("passphrase") {
        Some(path) => Ok(leaves.secret(word, path).await?),
        None => Err("it is protected by a passphrase: name its file with passphrase=FILE".to_string()),
    };
    let read = Key::from_file(&file, || passphrase);
    read.map_err(|problem| BuildError::Option { key: "key", problem: format!("{path}: {problem}") })
}

/// How the word stores files.
enum Scheme {
    Log(Options),
    Classic(classic::Options),
}

async fn scheme(word: &Word, leaves: &dyn LeafOpener) -> Result<Scheme, BuildError> {
    let plain = if word.choice("plain") == "error" { Plain::Error } else { Plain::Pass };
    // The end of an `lz4` block cannot be determined.
    if word.spec().param("index").is_some() && word.choice("index") == "classic" {
        for key in ["chunk", "write-back", "dirty", "cache"] {
            if word.given(key).is_some() {
                let problem = "with `index=classic` files are cut into pages of 4 KiB, and nothing waits in memory";
                return Err(BuildError::Option { key, problem: problem.to_string() });
            }
        }
        let fast_tails = word.switch("tails");
        return Ok(Scheme::Classic(classic::Options { codec: codec(word, leaves).await?, fast_tails, plain }));
    }
    if word.given("tails").is_some() {
        let problem = "only files with `index=classic` have tails of this kind".to_string();
        return Err(BuildError::Option { key: "tails", problem });
    }
    let chunk_bytes = word.bytes("chunk");
    if !chunk_bytes.is_power_of_two() {
        let near = Value::Bytes(chunk_bytes.next_power_of_two());
        return Err(BuildError::Option { key: "chunk", problem: format!("it is not a power of two; {near} is") });
    }
    Ok(Scheme::Log(Options {
        chunk_shift: chunk_bytes.trailing_zeros() as u8,
        plain,
        write_back_interval: word.duration("write-back"),
        dirty_bytes_max: word.bytes("dirty"),
        cache_bytes: word.bytes("cache"),
        ..Options::new(codec(word, leaves).await?)
    }))
}

async fn check_files(
    rt: &Rt,
    lower: Fs,
    word: &Word,
    leaves: &dyn LeafOpener,
    check: CheckOptions,
) -> Result<Checked, BuildError> {
    let report = match scheme(word, leaves).await? {
        Scheme::Log(options) => log::check::check(rt, lower, options, check.repair).await?,
        Scheme::Classic(options) => classic::check::check(rt, lower, options, check.repair).await?,
    };
    let finding = |finding: layer::Finding| {
        let text = format!("{}: {}", String::from_utf8_lossy(&finding.path), finding.problem);
        Finding { text, repaired: finding.repaired }
    };
    let mut notes = Vec::new();
    if report.plain_files > 0 {
        let were = if report.plain_files == 1 { "was" } else { "were" };
        notes.push(format!("{} {were} not written by `{}`", counted(report.plain_files, "file"), word.name()));
    }
    Ok(Checked {
        findings: report.findings.into_iter().map(finding).collect(),
        unlisted: 0,
        repairable: report.repairable,
        not_compared: 0,
        notes,
        counts: vec![
            ("files", report.files),
            ("records", report.records),
            ("bytes", report.bytes_above),
            ("bytes_below", report.bytes_below),
        ],
    })
}
