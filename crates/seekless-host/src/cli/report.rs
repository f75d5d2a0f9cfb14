//! `seekless report`: results as a page and as pictures.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};

use seekless::units::counted;
use seekless_lab::experiment::{Stored, draw, files_of};
use seekless_lab::output::{self as files, Replace, Sources, Wish};

use super::run::which_was_meant;
use super::{Done, Failure, output};
use crate::report::{self, Maker};

/// Make a page of results: one file with interactive figures, which needs no network
///
/// Published figures are shown beside measured ones, claims with their verdicts, and everything can be downloaded as
/// CSV and SVG. The page is made of the results' files alone; nothing is measured. A page or picture that a report has
/// made is replaced once the new one is whole; any other file needs --force.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  seekless report results/st05-fig6 -o fig6.html
  seekless report results/st05-* -o st05.html --svg figures

Exit codes: 0 made, 1 failed, 2 wrong usage")]
pub(super) struct Args {
    /// Folders that `seekless run` has written
    #[arg(required = true, value_name = "RESULTS")]
    results: Vec<PathBuf>,

    /// The page to write
    #[arg(short = 'o', long, default_value = "report.html", value_name = "FILE")]
    output: PathBuf,

    /// Write each figure as an SVG file into this folder, too
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,

    /// Replace existing files that `seekless report` did not write
    #[arg(short, long)]
    force: bool,

    /// Title of the page
    #[arg(long, default_value = "Seekless: results")]
    title: String,
}

pub(super) fn run(args: &Args) -> Done {
    let sources: Vec<PathBuf> = args.results.iter().flat_map(|folder| files_of(folder)).collect();
    let sources = Sources::of(&sources);
    let wish = |own: fn(&File) -> Result<(), String>| {
        let replace = if args.force { Replace::Always } else { Replace::Own(own) };
        Wish::new(replace).sources(sources.clone())
    };
    files::check(&args.output, &wish(is_page))?;
    let read = |folder: &PathBuf| {
        Stored::read(folder).map_err(|error| match near(folder) {
            Some(question) => Failure::new(error).hint(question),
            None => Failure::new(error),
        })
    };
    let results: Vec<Stored> = args.results.iter().map(read).collect::<Result<_, _>>()?;
    let page = report::page(&args.title, &results, Maker::Report).map_err(Failure::new)?;
    files::write(&args.output, page.as_bytes(), &wish(is_page))?;
    let mut pictures: BTreeSet<String> = BTreeSet::new();
    if let Some(folder) = &args.svg {
        std::fs::create_dir_all(folder)
            .map_err(|error| Failure::new(format!("cannot make {}: {error}", folder.display())))?;
        for stored in &results {
            for figure in &stored.description.figures {
                let drawing = draw(figure, &stored.description, &stored.rows, &stored.published);
                // Two results of one experiment have figures of the same name.
                let numbered = |number: u64| match number {
                    1 => format!("{}-{}.svg", stored.name, figure.id),
                    number => format!("{}-{}-{number}.svg", stored.name, figure.id),
                };
                let Some(name) = (1..).map(numbered).find(|name| !pictures.contains(name)) else { continue };
                let picture = output::signed(&report::to_svg(&drawing).map_err(Failure::new)?);
                files::write(&folder.join(&name), picture.as_bytes(), &wish(output::is_picture))?;
                pictures.insert(name);
            }
        }
    }
    let count = pictures.len() as u64;
    let and = if count > 0 { format!(", and {}", counted(count, "picture")) } else { String::new() };
    output::print(&format!("{}: {} KiB{and}\n", args.output.display(), page.len().div_ceil(1024)))?;
    Ok(0)
}

/// Which folder was meant, where there is none of this name: one beside it, or one in `results`.
fn near(missing: &Path) -> Option<String> {
    let name = missing.file_name().filter(|_| !missing.exists())?.to_str()?;
    let beside = missing.parent().unwrap_or(Path::new(""));
    let mut places = vec![beside];
    if beside.as_os_str().is_empty() {
        places.push(Path::new("results"));
    }
    let known: Vec<(String, PathBuf)> = places.into_iter().flat_map(folders_in).collect();
    which_was_meant(name, &known)
}

/// Names and paths of the folders in a folder; none where it cannot be read.
fn folders_in(folder: &Path) -> Vec<(String, PathBuf)> {
    let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let entries = std::fs::read_dir(here).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.path().is_dir());
    let names = folders.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| !name.starts_with('.')).map(|name| (name.clone(), folder.join(name))).collect()
}

/// Accepts a page made by a report of any version; each names its constructor at its beginning.
fn is_page(file: &File) -> Result<(), String> {
    is_page_of(Maker::Report, file)
}

pub(super) fn is_page_of(maker: Maker, file: &File) -> Result<(), String> {
    let beginning = files::beginning(file, 4096)?;
    match Maker::of(&String::from_utf8_lossy(&beginning)) {
        Some(found) if found == maker => Ok(()),
        _ => {
            let name = if maker == Maker::Report { "report" } else { "advise" };
            Err(format!(", and is not a page made by `seekless {name}`{}", files::FORCE))
        }
    }
}
