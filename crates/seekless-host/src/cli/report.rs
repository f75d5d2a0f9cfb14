//! `seekless report`: results as a page and as pictures.

use std::path::PathBuf;

use seekless::units::counted;
use seekless_lab::experiment::{Stored, draw};

use super::{Done, Failure, output};
use crate::report;

/// Make a page of results: one file with interactive figures, which needs no network
///
/// Published figures stand beside measured ones, claims with their verdicts, and everything can be taken along as CSV and
/// SVG. The page is made of the results' files alone; nothing is measured.
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

    /// Title of the page
    #[arg(long, default_value = "Seekless: results")]
    title: String,
}

pub(super) fn run(args: &Args) -> Done {
    let results: Vec<Stored> = args.results.iter().map(|folder| Stored::read(folder)).collect::<Result<_, _>>()?;
    let page = report::page(&args.title, &results).map_err(Failure::new)?;
    write(&args.output, &page)?;
    let mut pictures: u64 = 0;
    if let Some(folder) = &args.svg {
        std::fs::create_dir_all(folder)
            .map_err(|error| Failure::new(format!("cannot make {}: {error}", folder.display())))?;
        for stored in &results {
            for figure in &stored.description.figures {
                let drawing = draw(figure, &stored.description, &stored.rows, &stored.published);
                let name = format!("{}-{}.svg", stored.name, figure.id);
                write(&folder.join(name), &report::to_svg(&drawing).map_err(Failure::new)?)?;
                pictures += 1;
            }
        }
    }
    let and = if pictures > 0 { format!(", and {}", counted(pictures, "picture")) } else { String::new() };
    output::print(&format!("{}: {} KiB{and}\n", args.output.display(), page.len().div_ceil(1024)))?;
    Ok(0)
}

fn write(path: &std::path::Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))
}
