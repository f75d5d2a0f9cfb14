//! Reads the attributes of many files, as `ls -lR` does.
//!
//! Paper: [za01 §7.5]: `ls -lRF` on the 1,225 files of a built package, from the disk and once more from caches.

use async_trait::async_trait;
use seekless::rng::Rng;
use seekless::units::human_bytes;
use serde::{Deserialize, Serialize};

use super::contents::{Contents, Data};
use super::meter::{Durable, Meter, Unit, look};
use super::{
    DATA, Form, Key, Outcome, Watch, Workload, WorkloadSpec, begins_directory, numbered_directory, remove_all, size,
};
use crate::LabError;
use crate::target::Target;

/// Parameters. The number of files is the paper's; their mean size comes from its tree of 22.9 MB.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Attributes {
    pub files: u64,
    /// Mean size of a file.
    #[serde(deserialize_with = "size")]
    pub bytes: u64,
    pub files_per_directory: u64,
    pub data: Data,
    #[serde(skip_deserializing)]
    pub seed: u64,
}

impl Default for Attributes {
    fn default() -> Attributes {
        Attributes { files: 1_225, bytes: 18_700, files_per_directory: 25, data: Data::Text, seed: 1 }
    }
}

pub const COLD: &str = "cold";
pub const WARM: &str = "warm";

#[async_trait(?Send)]
impl Workload for Attributes {
    const SPEC: WorkloadSpec = WorkloadSpec::of::<Attributes>(
        "attributes",
        "Read the attributes of many files, cold and warm [za01 §7]",
        &[
            Key::new("files", Form::Count, "Number of files"),
            Key::new("bytes", Form::Bytes, "Mean size of a file"),
            Key::new("files_per_directory", Form::Count, "Most files in a directory"),
            DATA,
        ],
    )
    .examples(&["--on 'lfs / disk:dec-rz26'", "--on 'zstd / hostdir:/srv/data' --on /srv/plain --files 10000"]);

    fn check(&self) -> Result<(), LabError> {
        let fault = match self {
            Attributes { files: 0, .. } => "there must be at least one file",
            Attributes { files: 10_000_001.., .. } => "there can be at most 10,000,000 files",
            Attributes { files_per_directory: 0, .. } => "a directory holds at least one file",
            Attributes { bytes: 0, .. } => "a file has at least one byte on average",
            Attributes { bytes, .. } if *bytes > 1 << 28 => "a file has at most 256 MiB on average",
            _ => return Ok(()),
        };
        Err(LabError::Spec(fault.to_owned()))
    }

    fn title(&self) -> String {
        format!("attributes of {} files of {}, seed {}", self.files, human_bytes(self.bytes), self.seed)
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn with_seed(self, seed: u64) -> Attributes {
        Attributes { seed, ..self }
    }

    async fn run<T: Target>(&self, target: &T, watch: Watch<'_>) -> Result<Outcome, LabError> {
        self.check()?;
        let contents = Contents::of(self.data, self.seed, 2 * self.bytes);
        let mut rng = Rng::new(self.seed);
        let sizes: Vec<u64> = (0..self.files).map(|_| rng.between(1, 2 * self.bytes)).collect();
        let path = |file: u64| format!("{}/f{file:07}", numbered_directory(file, self.files_per_directory));
        for (file, &bytes) in (0..).zip(&sizes) {
            look(watch)?;
            if begins_directory(file, self.files_per_directory) {
                target.mkdir(&numbered_directory(file, self.files_per_directory)).await?;
            }
            let mut open = target.create(&path(file)).await?;
            target.write(&mut open, 0, &contents.piece(file, bytes)).await?;
            target.close(open).await?;
        }
        let mut meter = Meter::start(target, watch).await?;
        meter.drop_caches().await?;
        for name in [COLD, WARM] {
            let mut phase = meter.begin(name, Unit::Files, self.files);
            for (file, &bytes) in (0..).zip(&sizes) {
                if begins_directory(file, self.files_per_directory) {
                    target.list(&numbered_directory(file, self.files_per_directory)).await?;
                }
                let found = target.stat(&path(file)).await?;
                if found != bytes {
                    let detail = format!("{found} bytes instead of {bytes}");
                    return Err(LabError::Content { path: path(file), detail });
                }
                meter.step(&mut phase, 1, 0)?;
            }
            meter.end(phase, Durable::No).await?;
        }
        remove_all(target, "").await;
        target.sync().await?;
        Ok(meter.outcome())
    }
}
