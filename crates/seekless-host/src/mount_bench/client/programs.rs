//! Phases that are programs of others: SQLite, tar, git, a compiler, and PostMark as the lab has it.

use std::fs::{self, File};
use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Stdio};

use seekless_lab::run::run_in_directory;
use seekless_lab::target::Host;
use seekless_lab::workload::postmark::PostMark;

use super::super::material::{self, ARCHIVE, REPOSITORY, SOURCES};
use super::super::process::run;
use super::{Task, Work, failed};

pub(super) fn sqlite<'a>(task: &'a Task, journal: &str) -> Result<Work<'a>, String> {
    let database = task.directory.join(format!("{journal}.db"));
    let begin = format!("PRAGMA journal_mode={journal}; CREATE TABLE entry(number INTEGER PRIMARY KEY, text TEXT);");
    ask_sqlite(&database, &begin)?;
    // In a connection's own hand, so that no default of a distribution decides about durability.
    let mut script = String::from("PRAGMA synchronous=full;\n");
    for number in 0..task.syncs {
        script += &format!("INSERT INTO entry VALUES({number}, '{}');\n", format!("{number:010}").repeat(10));
    }
    script += "SELECT count(*) FROM entry;\n";
    Ok(Box::new(move || {
        let answer = ask_sqlite(&database, &script)?;
        match answer.lines().next_back() == Some(task.syncs.to_string().as_str()) {
            true => Ok(task.syncs),
            false => Err(format!("{} has {answer} rows, and should have {}", database.display(), task.syncs)),
        }
    }))
}

fn ask_sqlite(database: &Path, script: &str) -> Result<String, String> {
    let cannot = |error: std::io::Error| format!("cannot run sqlite3: {error}");
    let mut command = Command::new("sqlite3");
    command.args(["-batch", "-bail"]).arg(database).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().map_err(cannot)?;
    let mut input = child.stdin.take().ok_or("sqlite3 has no standard input")?;
    // Its answers are a few lines, so neither side waits for the other.
    let written = input.write_all(script.as_bytes());
    drop(input);
    let ended = child.wait_with_output().map_err(cannot)?;
    let complaint = String::from_utf8_lossy(&ended.stderr);
    match ended.status.success() && written.is_ok() {
        true => Ok(String::from_utf8_lossy(&ended.stdout).into_owned()),
        false => Err(format!("sqlite3 on {}: {}", database.display(), complaint.trim())),
    }
}

/// PostMark without its syncs: the client makes everything durable at the end, as in other phases.
pub(super) fn postmark(task: &Task) -> Result<Work<'_>, String> {
    let program = PostMark { files: (task.files / 4).max(1), transactions: task.files, ..PostMark::default() };
    let host = Host { sync: |_, _| Ok(()), drop_caches: |_| Ok(()) };
    let directory = task.directory.display().to_string();
    Ok(Box::new(move || {
        run_in_directory(&directory, host, &program, &|_| ControlFlow::Continue(()))
            .map_err(|error| error.to_string())?;
        Ok(program.transactions)
    }))
}

pub(super) fn untar(task: &Task) -> Result<Work<'_>, String> {
    let mut command = Command::new("tar");
    command.arg("-xf").arg(task.material.join(ARCHIVE)).arg("-C").arg(&task.directory);
    let files = material::files(&task.material)?;
    Ok(Box::new(move || run(&mut command).map(|_| files)))
}

/// Reads what [`untar`] has made.
pub(super) fn read_tree(task: &Task) -> Result<Work<'_>, String> {
    let tree = task.directory.join(material::TREE);
    let files = material::files(&task.material)?;
    Ok(Box::new(move || {
        let mut found = 0;
        material::each_file(&tree, &mut |path| {
            let mut file = File::open(path)?;
            std::io::copy(&mut file, &mut std::io::sink())?;
            found += 1;
            Ok(())
        })?;
        match found == files {
            true => Ok(found),
            false => Err(format!("{} has {found} files, and should have {files}", tree.display())),
        }
    }))
}

/// Deletes what [`untar`] has made.
pub(super) fn remove(task: &Task) -> Result<Work<'_>, String> {
    let tree = task.directory.join(material::TREE);
    if !tree.is_dir() {
        return Err(format!("there is no {}, which `untar` makes", tree.display()));
    }
    let files = material::files(&task.material)?;
    Ok(Box::new(move || run(Command::new("rm").arg("-rf").arg(&tree)).map(|_| files)))
}

pub(super) fn build(task: &Task) -> Result<Work<'_>, String> {
    let directory = task.directory.join("build");
    fs::create_dir(&directory).map_err(|error| failed("make the directory", &directory, error))?;
    let mut names = Vec::new();
    for number in 0..material::SOURCE_FILES {
        let name = material::source_name(number);
        let (from, to) = (task.material.join(SOURCES).join(&name), directory.join(&name));
        fs::copy(&from, &to).map_err(|error| failed("write", &to, error))?;
        names.push(name);
    }
    Ok(Box::new(move || {
        for name in &names {
            run(Command::new("cc").current_dir(&directory).args(["-O1", "-c", name]))?;
        }
        let objects = names.iter().map(|name| name.replace(".c", ".o"));
        run(Command::new("cc").current_dir(&directory).args(["-o", "program"]).args(objects))?;
        run(&mut Command::new(directory.join("program")))?;
        Ok(material::SOURCE_FILES)
    }))
}

pub(super) fn git_checkout(task: &Task) -> Result<Work<'_>, String> {
    let work = task.directory.join("work");
    let mut clone = material::git(&task.material);
    // Objects are copied, not linked, so that all of them are on the measured file system.
    clone.args(["clone", "-q", "--no-hardlinks"]).arg(task.material.join(REPOSITORY)).arg(&work);
    run(&mut clone)?;
    let mut checkout = material::git(&task.material);
    checkout.arg("-C").arg(&work).args(["checkout", "-q", material::OTHER_BRANCH]);
    Ok(Box::new(move || run(&mut checkout).map(|_| material::FILES_CHANGED)))
}
