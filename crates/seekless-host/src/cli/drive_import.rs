//! `seekless disk import`

use std::cell::RefCell;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use seekless::disk::Drive;
use seekless::disk::import::{ImportError, Imported, ReadError};
use seekless::stack::quoted_path;
use seekless_lab::output as files;
use seekless_lab::output::{Replace, Sources, Wish};

use super::{Done, Failure, output};

/// Make a drive file of DiskSim's parameter files
///
/// Layouts of zones (dm_layout_g1), maps of tracks (dm_layout_g2) and patterns of tracks (dm_layout_g4) are read; the latter two become the
/// nearest zones. Files that FILE includes (its model, its seek curve, its map) are looked for beside the file that names them, then beside FILE. What is left out or approximate is
/// said on standard error, and in comments of the drive file.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  seekless disk import cheetah9LP.diskspecs -o cheetah.toml
  seekless disk validate cheetah.toml cheetah9LP.trace
  seekless disk import system.parv --drive HP_C2249A -o hp.toml

Exit codes: 0 imported, 1 failed, 2 wrong usage")]
pub(super) struct Args {
    /// A .diskspecs, a .parv with a whole system, which has the bus too, or a .model with the mechanics alone
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// The drive's name in FILE, or its name in the topology, where there are several
    #[arg(long, value_name = "NAME")]
    drive: Option<String>,

    /// Write to a file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Replace the file if there is one
    #[arg(long, requires = "output")]
    force: bool,
}

/// The longest parameter file; what is longer is refused when it is parsed.
const BYTES_MAX: u64 = 32 << 20;

pub(super) fn run(args: &Args) -> Done {
    let folder = args.file.parent().unwrap_or(Path::new(""));
    let name = args.file.file_name().unwrap_or(args.file.as_os_str()).to_string_lossy().into_owned();
    let read_files = RefCell::new(Vec::new());
    let read = |name: &str| {
        let path = folder.join(name);
        let text = read_text(&path).map_err(|error| {
            let problem = format!("cannot read {}: {error}", path.display());
            match error.kind() {
                ErrorKind::NotFound => ReadError::Missing(problem),
                _ => ReadError::Failed(problem),
            }
        });
        if text.is_ok() {
            read_files.borrow_mut().push(path);
        }
        text
    };
    let imported =
        Imported::read(&name, args.drive.as_deref(), &read).map_err(|error| failure(&error, &args.file, &name))?;
    for note in &imported.notes {
        output::note(&format!("note: {note}"));
    }
    let text = imported.to_toml();
    match &args.output {
        None => output::print_raw(&text)?,
        Some(path) => {
            let sources = Sources::of(&read_files.into_inner());
            files::write(path, text.as_bytes(), &Wish::new(Replace::forced(args.force)).sources(sources))?;
        }
    }
    Ok(0)
}

/// What is wrong, and what to do if the file is none of DiskSim's.
fn failure(error: &ImportError, path: &Path, name: &str) -> Failure {
    let text = match read_text(path) {
        Ok(text) => text,
        Err(problem) => return Failure::new(format!("cannot read {}: {problem}", path.display())),
    };
    let failure = Failure::new(error);
    if Drive::from_toml(&text).is_ok() {
        return failure.hint(format!("it is a drive file already: seekless disk info {}", quoted_path(path)));
    }
    // Every file of DiskSim that has a drive names one of its kinds of blocks, or includes a file that does.
    let begins = ["disksim_", "dm_", "memsmodel_", "ssdmodel_", "source ", "topology "];
    let is_of_disksim = text.lines().any(|line| begins.iter().any(|word| line.trim_start().starts_with(word)));
    // Files of DiskSim 1 and 2 have a parameter on each line, with a colon.
    let older = ["Disk brand name:", "Access time (in msecs):", "Disk Spec #"];
    if text.lines().any(|line| older.iter().any(|begin| line.trim_start().starts_with(begin))) {
        return failure.hint(format!(
            "{name} is a file of DiskSim 1 or 2, and files of DiskSim 3 and 4 are read here: write its values as a .diskspecs and a .model, \
             or as a drive file"
        ));
    }
    match is_of_disksim || error.file != name {
        true => failure,
        false => failure.hint(format!(
            "{name} does not look like a file of DiskSim: a .diskspecs, a .parv or a .model is read here; see `seekless disk import --help`"
        )),
    }
}

/// Text in UTF-8; other bytes are in comments of old files, if at all.
fn read_text(path: &Path) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
