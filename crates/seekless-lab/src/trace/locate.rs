//! The files of a trace. blktrace writes one for each processor: `sda.blktrace.0`, `sda.blktrace.1` and so on.

use std::path::{Path, PathBuf};

use super::TraceError;

/// The files that `paths` name, and remarks about them.
pub(super) fn files(paths: &[PathBuf]) -> Result<(Vec<PathBuf>, Vec<String>), TraceError> {
    let (mut files, mut notes) = (Vec::new(), Vec::new());
    for path in paths {
        if path.as_os_str() == "-" || path.is_file() {
            if paths.len() == 1
                && let Some(base) = base_of(path)
            {
                let others = siblings(&base)?.len().saturating_sub(1);
                if others > 0 {
                    let base = base.display();
                    notes.push(format!(
                        "{} not read: {base} names them all",
                        match others {
                            1 => "a file of another processor lies beside it and is".to_owned(),
                            _ => format!("{others} files of other processors lie beside it and are"),
                        }
                    ));
                }
            }
            files.push(path.clone());
        } else if path.is_dir() {
            files.extend(in_directory(path)?);
        } else {
            let found = siblings(path)?;
            if found.is_empty() && path.symlink_metadata().is_ok() {
                files.push(path.clone()); // A pipe or a device.
            } else if found.is_empty() {
                let path = path.display();
                let problem = format!("there is no file {path}, and no {path}.blktrace.0");
                return Err(TraceError::Files(problem));
            }
            files.extend(found);
        }
    }
    Ok((files, notes))
}

/// `sda` of `sda.blktrace.0`, with its directory.
fn base_of(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let (base, number) = name.rsplit_once(".blktrace.")?;
    number.parse::<u32>().ok()?;
    Some(path.with_file_name(base))
}

/// The files of all processors whose names begin with `base`, which may end in `.blktrace`; by processor.
fn siblings(base: &Path) -> Result<Vec<PathBuf>, TraceError> {
    let Some(name) = base.file_name().and_then(|name| name.to_str()) else { return Ok(Vec::new()) };
    let name = name.strip_suffix(".blktrace").unwrap_or(name);
    let directory = match base.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut found = per_processor(directory)?;
    found.retain(|(base, _, _)| base == name);
    Ok(found.into_iter().map(|(_, _, path)| path).collect())
}

/// blktrace's files in a directory, which must be of one device.
fn in_directory(directory: &Path) -> Result<Vec<PathBuf>, TraceError> {
    let found = per_processor(directory)?;
    let mut bases: Vec<&str> = found.iter().map(|(base, _, _)| base.as_str()).collect();
    bases.dedup();
    match bases[..] {
        [_] => Ok(found.into_iter().map(|(_, _, path)| path).collect()),
        [] => Err(TraceError::Files(format!("there are no files NAME.blktrace.0 in {}", directory.display()))),
        [one, ..] => {
            let (list, example) = (bases.join(", "), directory.join(one));
            Err(TraceError::Files(format!(
                "there are traces of several devices in {}: {list}\nname one, for example {}",
                directory.display(),
                example.display()
            )))
        }
    }
}

/// Base, processor and path of each of blktrace's files in a directory, in this order.
fn per_processor(directory: &Path) -> Result<Vec<(String, u32, PathBuf)>, TraceError> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(|cause| TraceError::Io { name: directory.display().to_string(), cause })?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let Some((base, number)) = name.rsplit_once(".blktrace.")
            && let Ok(number) = number.parse()
        {
            found.push((base.to_owned(), number, path.clone()));
        }
    }
    found.sort();
    Ok(found)
}
