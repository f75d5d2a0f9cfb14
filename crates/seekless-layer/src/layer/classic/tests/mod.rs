//! Aim: the paper's scheme returns what was written, costs what the paper says, and damages only the file that is being
//! written. Method: the harnesses for all file systems, and small programs.

mod access;
mod cases;
mod crash;
mod model;

use std::rc::Rc;

use super::*;
use crate::fs::client::Client;
use crate::layer::codecs::{Copy, Deflate, Uuencode, Zstd};
use crate::rng::Rng;
use crate::testing::volumes::simulate;
use crate::testing::{MemFs, MemFsOptions, Replay};

fn replay(test: &str) -> Replay {
    crate::testing::environment::replay(&format!("layer::classic::tests::{test}"))
}

fn model(rt: &Rt) -> Rc<MemFs> {
    MemFs::with_options(rt, MemFsOptions { capacity_bytes: 1 << 50, ..Default::default() })
}

fn gzip() -> Options {
    Options::new(Arc::new(Deflate::default()))
}

fn codec(seed: u64) -> Options {
    let codec: Arc<dyn Codec> = match seed % 4 {
        0 => Arc::new(Deflate::default()),
        1 => Arc::new(Uuencode),
        2 => Arc::new(Copy),
        _ => Arc::new(Zstd::default()),
    };
    Options { fast_tails: seed % 3 != 2, ..Options::new(codec) }
}

fn text(bytes: usize) -> Vec<u8> {
    let mut rng = Rng::new(bytes as u64);
    let words: [&[u8]; 6] = [b"the ", b"quick ", b"brown fox ", b"jumps over ", b"a lazy ", b"dog\n"];
    let mut text = Vec::new();
    while text.len() < bytes {
        text.extend_from_slice(words[rng.below(6) as usize]);
    }
    text.truncate(bytes);
    text
}

async fn assert_clean(rt: &Rt, lower: &Fs) {
    let report = check::check(rt, lower.clone(), gzip(), false).await.expect("the check runs");
    assert_eq!(report.findings, []);
}

fn counter(fs: &Fs, name: &str) -> u64 {
    fs.counters().into_iter().find(|(found, _)| *found == name).map(|(_, count)| count).expect("a counter")
}
