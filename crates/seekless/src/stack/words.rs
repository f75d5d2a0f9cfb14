//! Every word of the stack line, in one table.
//!
//! Errors, help, completion and the documentation all come from this table. A new file system, layer or device
//! is one more row.

use super::signature::Signature;
use super::spec::{Constructor, Param, WordSpec};
use super::value::ParamKind;
use super::{arrays, devices, ffs, flash, layers, lfs, vld, vlfs, zoned};

/// Every word of the stack line.
pub const WORDS: &[&WordSpec] = &[
    &layers::WRAP,
    &layers::ZSTD,
    &layers::LZ4,
    &layers::GZIP,
    &layers::COPY,
    &layers::UUENCODE,
    &layers::ENCRYPT,
    &lfs::LFS,
    &vlfs::VLFS,
    &ffs::FFS,
    &HOSTDIR,
    &MEMFS,
    &arrays::CONCAT,
    &arrays::RAID0,
    &arrays::RAID1,
    &arrays::RAID5,
    &arrays::REMAP,
    &arrays::PERMUTE,
    &arrays::VOLUME,
    &vld::VLD,
    &zoned::ZONED,
    &flash::SMR,
    &devices::FORK,
    &devices::FAULT,
    &devices::MEMORY,
    &devices::FILE,
    &devices::DISK,
    &flash::SSD,
    &flash::ZNS,
];

const HOSTDIR: WordSpec = WordSpec {
    name: "hostdir",
    help: "a directory of the host",
    argument: Some(&Param::new("path", ParamKind::Path, "the path of a directory").required()),
    options: &[Param::new("submounts", ParamKind::Switch, "enter file systems that are mounted inside the directory")
        .default("off")],
    properties: &[],
    constructor: Constructor::FileSystemLeaf,
};

pub(super) const MEMFS: WordSpec = WordSpec {
    name: "memfs",
    help: "the model file system of the tests, in memory; gone at unmount",
    argument: None,
    options: &[],
    properties: &[],
    constructor: Constructor::FileSystemLeaf,
};

/// The signatures of all words, the most specific first: a member of an array may have the beginning of what is on the array,
/// and a file system may be on a log that a stored device has, too.
pub fn signatures() -> Vec<&'static Signature> {
    let rank = |word: &WordSpec| match word.constructor {
        Constructor::Spread(_) => 0,
        Constructor::FileSystem(_) => 1,
        _ => 2,
    };
    let mut words = WORDS.to_vec();
    words.sort_by_key(|word| rank(word));
    let mut found: Vec<&Signature> = Vec::new();
    for signature in words.iter().filter_map(|word| word.signature()) {
        if !found.iter().any(|other| other.name == signature.name) {
            found.push(signature);
        }
    }
    found
}
