//! `wrap`: the null layer, `Wrapfs` of \[za01\]. It passes everything on and changes nothing, so that its difference
//! from the file system below is the cost of stacking alone.

use std::rc::Rc;

use super::{At, Layer, Stacked};
use crate::fs::{Attr, EntryName, Fs, FsResult};

/// How the layer behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Data of files need not come through the layer, where the caller can read and write the files below directly. Then
    /// it is no measure of stacking any more.
    pub passthrough: bool,
}

/// See the head of the file.
struct Wrap(Options);

impl Layer for Wrap {
    type Node = ();

    const NAME: &'static str = "wrap";

    async fn open_node(&self, _lower: &Fs, _attr: &Attr, _place: Option<EntryName<'_>>) -> FsResult<()> {
        Ok(())
    }

    fn passes_files(&self) -> bool {
        self.0.passthrough
    }

    async fn shows_file(&self, _at: At<'_, ()>) -> FsResult<bool> {
        Ok(true)
    }
}

/// Stacks the null layer on `lower`.
///
/// # Errors
/// When the root of `lower` cannot be read.
pub async fn stack_on(lower: Fs, options: Options) -> FsResult<Fs> {
    Ok(Rc::new(Stacked::new(lower, Wrap(options)).await?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rt::Limits;
    use crate::testing::environment::replay;
    use crate::testing::subject::simulate;
    use crate::testing::{Comparison, Generator, MemFs, OpMix, Pair, Space};
    use crate::units::Nanos;

    /// A run has some 900 operations, each of some events; none takes time.
    const LIMITS: Limits = Limits { events: 300_000, until: Nanos::from_secs(100_000) };

    /// Aim: the layer shows what the model does. Method: the same generated operations on the layer over a model and on another model.
    #[test]
    fn over_the_model() {
        for seed in replay("layer::wrap::tests::over_the_model").seeds(0..8) {
            let run = simulate(seed, LIMITS, async |rt| {
                let fs = stack_on(MemFs::new(&rt), Options::default()).await.unwrap();
                let mut pair = Pair::new(&rt, fs, MemFs::new(&rt), Comparison::default());
                for (number, op) in Generator::new(seed, Space::small(), OpMix::CURIOUS).take(900).enumerate() {
                    let compared = pair.apply(&op).await;
                    compared.unwrap_or_else(|mismatch| panic!("seed {seed}, operation {number}, {mismatch}"));
                }
                pair.release().await.unwrap();
                pair.check_trees().await.unwrap_or_else(|mismatch| panic!("seed {seed}, {mismatch}"));
                pair.fs().close().await.unwrap();
            });
            run.unwrap_or_else(|problem| panic!("seed {seed}: {problem}"));
        }
    }
}
