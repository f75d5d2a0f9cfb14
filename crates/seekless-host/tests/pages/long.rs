//! Commands that take too long for a test are run before a release, as they are written.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use rustix::process::geteuid;
use seekless_host::testing::{Need, skip};

use super::commands::{Block, Desk, blocks};
use super::{pages, read, root, short};

/// What is run in another form than the page has it: the page, its text, what is run, and why.
const CHANGED: &[(&str, &str, &str, &str)] = &[(
    "docs/guide/install.md",
    "make install ",
    "make install DESTDIR=\"$DESK\" ",
    "what is under /usr/local would stay there",
)];

/// Commands of blocks that build or install the project, of which a step of scripts/release-check.sh does the work.
const DONE_BY_STEPS: &[(&str, &str)] = &[
    ("make demo", "demo"),
    ("make test", "tests"),
    ("make wheel", "wheel"),
    ("pip install target/wheels/seekless-*.whl", "wheel"),
    ("make deb", "deb"),
    ("apt install ./target/seekless_*.deb", "deb"),
    ("make tarball", "tarball"),
];

/// Files of the reader's that a long block reads: the page, the name, and a file of the project that has what it needs.
const OF_THE_READER: &[(&str, &str, &str)] =
    &[("docs/guide/flash.md", "mine.csv", "crates/seekless-flash/src/flash/measured/nvme-a.csv")];

/// A page with its long blocks may take so long, in seconds.
const SECONDS_MAX: u32 = 4 * 3600;

/// The commands of a block without comments.
fn commands(block: &Block) -> impl Iterator<Item = &str> {
    block.text.lines().map(|line| line.split(" # ").next().unwrap_or_default().trim()).filter(|line| !line.is_empty())
}

/// The text of a block as it is run.
fn changed(page: &str, text: &str) -> String {
    let changes = CHANGED.iter().filter(|(of, ..)| *of == page);
    changes.fold(text.to_owned(), |text, (_, from, to, _)| text.replace(from, to))
}

/// What a page wants before a release: blocks to be run in its own directory, if one of them is long, and commands to be run
/// in the sources.
fn to_be_run(page: &Path) -> (Vec<Block>, Vec<String>) {
    let name = short(page);
    let mut all = blocks(&read(page)).unwrap_or_else(|problem| panic!("{name}: {problem}"));
    all.iter_mut().for_each(|block| block.text = changed(&name, &block.text));
    let is = |block: &Block, reason: &str| block.not_run.as_deref() == Some(reason);
    let is_done = |command: &str| DONE_BY_STEPS.iter().any(|(done, _)| *done == command);
    let building = all.iter().filter(|block| is(block, "build")).flat_map(commands);
    let building = building.filter(|command| !is_done(command)).map(str::to_owned).collect();
    let has_long = all.iter().any(|block| is(block, "long"));
    all.retain(|block| has_long && (block.not_run.is_none() || is(block, "long")));
    (all, building)
}

/// True when the value of `SEEKLESS_PAGES` names the page.
fn is_wanted(wanted: &str, page: &str) -> bool {
    wanted == "all" || wanted.split(',').any(|name| name.trim() == page)
}

/// Aim: commands that are too long for a test do what the page says. Method: when `SEEKLESS_PAGES` is `all`, or has the page's name,
/// the page is run with them, in its order; and commands that build the project, unless another step of the release does.
#[test]
fn long_commands_of_pages_work() {
    let Ok(wanted) = std::env::var("SEEKLESS_PAGES") else {
        eprintln!("not run: SEEKLESS_PAGES=all runs all pages, SEEKLESS_PAGES=docs/guide/cleaning.md this one");
        return;
    };
    let is_root = geteuid().is_root();
    let (mut run, mut problems) = (0, Vec::new());
    for page in pages().into_iter().filter(|page| is_wanted(&wanted, &short(page))) {
        let name = short(&page);
        let (blocks, building) = to_be_run(&page);
        let needs_root =
            blocks.iter().any(|block| block.mounts || commands(block).any(|line| line.starts_with("sudo ")));
        if needs_root && !is_root {
            skip(Need::Root, format_args!("{name} mounts"));
            continue;
        }
        let desk = Desk::new();
        let started = Instant::now();
        if !blocks.is_empty() {
            run += blocks.iter().filter(|block| block.not_run.is_some()).count();
            // For root, which may have no sudo, or one that looks for programs elsewhere.
            let sudo = desk.path("bin/sudo");
            std::fs::write(&sudo, "#!/bin/sh\nexec \"$@\"\n").unwrap();
            std::fs::set_permissions(&sudo, std::fs::Permissions::from_mode(0o755)).unwrap();
            for (_, file, source) in OF_THE_READER.iter().filter(|(of, ..)| *of == name) {
                std::fs::copy(root().join(source), desk.path("here").join(file)).unwrap();
            }
            problems.extend(desk.run_for(SECONDS_MAX, &page, &blocks));
        }
        for command in &building {
            run += 1;
            let mut shell = Command::new("bash");
            let shell = shell.args(["-eu", "-o", "pipefail", "-c", command]).current_dir(root());
            let output = shell.env("DESK", desk.path("out")).stdin(Stdio::null()).output().unwrap();
            if !output.status.success() {
                let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
                problems.push(format!("{name}: {command}: {}\n{out}{err}", output.status));
            }
        }
        if !blocks.is_empty() || !building.is_empty() {
            eprintln!("{name}: {:.0} s", started.elapsed().as_secs_f64());
        }
    }
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n\n"));
    assert!(run > 0, "SEEKLESS_PAGES={wanted} names no page with a long command");
}

/// Aim: the lists above are of what is on the pages and in the steps. Method: each of their texts is where it should be.
#[test]
fn long_commands_are_known() {
    let pages = pages();
    let page = |name: &str| pages.iter().find(|page| short(page) == name).unwrap_or_else(|| panic!("no page {name}"));
    for (name, from, ..) in CHANGED {
        assert!(read(page(name)).contains(from), "{name} does not have `{from}`");
    }
    for (name, file, source) in OF_THE_READER {
        let (blocks, _) = to_be_run(page(name));
        assert!(blocks.iter().any(|block| block.text.contains(file)), "{name} reads no {file}");
        assert!(root().join(source).is_file(), "{source} is missing");
    }
    let steps = read(&root().join("scripts/release-check.sh"));
    for (command, step) in DONE_BY_STEPS {
        assert!(steps.contains(&format!("\n{step}() {{")), "{command}: no step {step}");
        let is_there = |page: &std::path::PathBuf| read(page).lines().any(|line| line.starts_with(command));
        assert!(pages.iter().any(is_there), "no page has `{command}`");
    }
    let (long, building): (usize, usize) =
        pages.iter().map(|page| to_be_run(page)).fold((0, 0), |sum, (blocks, lines)| {
            (sum.0 + blocks.iter().filter(|block| block.not_run.is_some()).count(), sum.1 + lines.len())
        });
    assert!(
        long > 10 && building > 1,
        "only {long} long blocks and {building} commands that build: the search is broken"
    );
}
