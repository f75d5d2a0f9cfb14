//! Aim: no command replaces another file without --force, and none leaves a partial file. Method: every option that
//! names an output file, on existing names, on other names of the input, on full disks, several at once, and killed.

use std::io::Write;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use seekless_host::testing::SmallTmpfs;

use crate::{Scratch, can_mount};

const DISKSPECS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/samples/disksim/acme.diskspecs");

/// Requests in a form that `trace convert` reads.
fn trace(requests: u64) -> String {
    (0..requests).map(|n| format!("0,R,{},4096,{}000\n", n * 4096, n + 1)).collect()
}

fn names(scratch: &Scratch, directory: &str) -> Vec<String> {
    let entries = std::fs::read_dir(scratch.path(directory)).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// An existing file stays without --force; with it, the complete new file replaces it.
#[test]
fn a_trace_takes_no_files_place() {
    let scratch = Scratch::new();
    scratch.write("in.csv", trace(20));
    scratch.write("out", "a letter");
    for command in [&["convert", "--to", "seekless"][..], &["slice", "-n", "5", "--to", "seekless"]] {
        let arguments = [&["trace"], command, &["in.csv", "-o", "out"]].concat();
        let refused = scratch.run(&arguments);
        assert_eq!((refused.code, &*refused.err), (1, "seekless: out already exists; --force replaces it\n"));
        assert_eq!(std::fs::read(scratch.path("out")).unwrap(), b"a letter");
        assert_eq!(scratch.run(&[&arguments[..], &["--force"]].concat()).code, 0);
        assert!(std::fs::read_to_string(scratch.path("out")).unwrap().contains("4096"));
        scratch.write("out", "a letter");
    }
    // An empty result replaces nothing either.
    let empty = scratch.run(&["trace", "slice", "--from", "9h", "in.csv", "-o", "out", "--force"]);
    assert_eq!((empty.code, std::fs::read(scratch.path("out")).unwrap()), (1, b"a letter".to_vec()), "{}", empty.err);
    assert_eq!(names(&scratch, "."), ["in.csv", "out"]);
}

/// The file that is read is not the one that is written, by whatever name it is called, also with --force.
#[test]
fn a_trace_does_not_replace_its_source() {
    let scratch = Scratch::new();
    scratch.write("in.csv", trace(20));
    std::fs::hard_link(scratch.path("in.csv"), scratch.path("hard")).unwrap();
    symlink("in.csv", scratch.path("link")).unwrap();
    scratch.make_directory("d");
    let absolute = scratch.path("in.csv").into_os_string().into_string().unwrap();
    for command in [&["convert", "--to", "seekless"][..], &["slice", "-n", "5"]] {
        for source in ["in.csv", "hard", "link", &absolute] {
            for target in ["in.csv", "hard", "link", "d/../in.csv", &absolute] {
                let ended = scratch.run(&[&["trace"], command, &[source, "--force", "-o", target]].concat());
                assert_eq!(ended.code, 1, "{source} {target}");
                let said = if target == "link" { "is a symbolic link" } else { "is read by this command" };
                assert!(ended.err.contains(said), "{source} {target}: {}", ended.err);
            }
        }
        // By descriptors: of standard input, and of a file that the program would read endlessly if it appended to it.
        for script in [
            r#"exec "$0" trace "$@" - --force -o in.csv <in.csv"#,
            r#"exec "$0" trace "$@" /proc/self/fd/3 --force -o in.csv 3<in.csv"#,
            r#"exec "$0" trace "$@" in.csv --force -o /proc/self/fd/3 3<in.csv"#,
            r#"exec "$0" trace "$@" in.csv >>in.csv"#,
        ] {
            let mut shell = std::process::Command::new("timeout");
            shell.args(["20", "sh", "-c", script, env!("CARGO_BIN_EXE_seekless")]).args(command);
            let ended = scratch.ended(&shell.current_dir(scratch.path("")).output().unwrap());
            assert_eq!((ended.code, &*ended.out), (1, ""), "{script}: {}", ended.err);
        }
    }
    assert_eq!(std::fs::read_to_string(scratch.path("hard")).unwrap(), trace(20));
    assert_eq!(names(&scratch, "."), ["d", "hard", "in.csv", "link"]);
}

/// What a replay or advice reads is not what it writes: traces, drive files of a stack, and stack files.
#[test]
fn a_page_does_not_replace_what_it_is_made_of() {
    let scratch = Scratch::new();
    scratch.write("in.csv", trace(20));
    let drive = scratch.good(&["disk", "info", "dec-rz26", "--toml"]);
    scratch.write("my.toml", &drive);
    scratch.write("s.toml", "stack = \"raid0:n=2 / disk:file=my.toml\"\n");
    for (command, option) in [("advise", "-o"), ("replay", "--rows"), ("replay", "--svg")] {
        for (on, target) in [
            ("disk:file=my.toml", "in.csv"),
            ("disk:file=my.toml", "my.toml"),
            ("@s.toml", "my.toml"),
            ("@s.toml", "s.toml"),
        ] {
            let ended = scratch.run(&[command, "in.csv", "--on", on, "--force", option, target]);
            assert_eq!(ended.code, 1, "{command} --on {on} {option} {target}: {}", ended.out);
            assert!(ended.err.contains("is read by this command"), "{on} {option} {target}: {}", ended.err);
        }
    }
    assert_eq!(std::fs::read_to_string(scratch.path("in.csv")).unwrap(), trace(20));
    assert_eq!(std::fs::read_to_string(scratch.path("my.toml")).unwrap(), drive);
    assert!(std::fs::read_to_string(scratch.path("s.toml")).unwrap().starts_with("stack = "));
}

/// A drive that is compared, fitted or measured is not what is written. Method: it is named in each way that there is.
#[test]
fn a_drive_is_not_replaced_by_what_is_found_of_it() {
    let scratch = Scratch::new();
    scratch.write("t", "R Hit 0 8 5000 0\nR Hit 4096 8 5000 0\n");
    let drive = scratch.good(&["disk", "info", "dec-rz26", "--toml"]);
    scratch.write("my.toml", &drive);
    scratch.write("s.toml", "stack = \"disk:file=my.toml\"\n");
    scratch.write("flash.toml", "stack = \"ssd:nvme-a\"\n");
    scratch.write("image", vec![7; 1 << 20]);
    let all =
        || ["t", "my.toml", "s.toml", "flash.toml", "image"].map(|name| std::fs::read(scratch.path(name)).unwrap());
    let before = all();
    for arguments in [
        &["disk", "validate", "my.toml", "t", "--svg", "my.toml"][..],
        &["disk", "validate", "./my.toml", "t", "--svg", "my.toml"],
        &["disk", "validate", "disk:file=my.toml", "t", "--svg", "my.toml"],
        &["disk", "validate", "@s.toml", "t", "--svg", "my.toml"],
        &["disk", "validate", "@s.toml", "t", "--svg", "s.toml"],
        &["disk", "validate", "my.toml", "t", "--svg", "t"],
        &["disk", "fit", "t", "--from", "my.toml", "-o", "my.toml"],
        &["disk", "fit", "t", "--from", "disk:file=my.toml", "-o", "my.toml"],
        &["disk", "fit", "t", "--from", "@s.toml", "-o", "s.toml"],
        &["disk", "fit", "t", "--from", "my.toml", "-o", "t"],
        &["disk", "measure", "image", "-o", "image"],
        &["flash", "validate", "@flash.toml", "--svg", "flash.toml"],
    ] {
        let ended = scratch.run(&[arguments, &["--force"]].concat());
        assert_eq!(ended.code, 1, "{arguments:?}: {}{}", ended.out, ended.err);
        assert!(ended.err.contains("is read by this command"), "{arguments:?}: {}", ended.err);
        assert!(all() == before, "{arguments:?} has changed a file");
    }
}

/// Aim: a page is replaced by the command that made it, and by no other without --force. Method: advice where a report is, and the other way
/// round; pages of another version.
#[test]
fn a_page_belongs_to_its_command() {
    let scratch = Scratch::new();
    scratch.write("in.csv", trace(20));
    let page = |made_by: &str| format!("<!doctype html>\n<meta name=\"generator\" content=\"seekless {made_by}\">\n");
    let advise = ["advise", "in.csv", "--on", "disk:dec-rz26", "-o", "a.html"];
    scratch.write("a.html", page("0.0.9"));
    let refused = scratch.run(&advise);
    assert!(refused.code == 1 && refused.err.contains("is not a page made by `seekless advise`"), "{}", refused.err);
    assert_eq!(std::fs::read_to_string(scratch.path("a.html")).unwrap(), page("0.0.9"));
    assert_eq!(scratch.run(&[&advise[..], &["--force"]].concat()).code, 0);
    assert_eq!(scratch.run(&advise).code, 0);
    scratch.write("a.html", page("0.0.9, advise"));
    assert_eq!(scratch.run(&advise).code, 0);
    let refused = scratch.run(&["report", "no-results", "-o", "a.html"]);
    assert!(refused.code == 1 && refused.err.contains("is not a page made by `seekless report`"), "{}", refused.err);
    // A stream cannot be read twice, which the help does not promise.
    let help = scratch.good(&["advise", "--help"]);
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("standard input is not taken") && !help.contains("- for standard input"), "{help}");
    let stream = scratch.run(&["advise", "-", "-o", "b.html"]);
    assert!(stream.code == 2 && stream.err.contains("write it to a file first"), "{}", stream.err);
}

/// Devices, pipes, links and directories are refused by every option that names a file, and stay what they are.
#[test]
fn only_regular_files_are_written() {
    let scratch = Scratch::new();
    scratch.write("in.csv", trace(20));
    scratch.write("validate", "R Hit 1 2 3000 4\nW Hit 9 2 4000 4\n");
    scratch.write("letter", "a letter");
    scratch.make_directory("d");
    symlink("letter", scratch.path("link")).unwrap();
    let pipe = scratch.path("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let before = names(&scratch, ".");
    for target in ["/dev/null", "pipe", "link", "d"] {
        for arguments in [
            &["trace", "convert", "--to", "seekless", "in.csv", "--force", "-o", target][..],
            &["trace", "slice", "in.csv", "--force", "-o", target],
            &["report", "d", "--force", "-o", target],
            &["disk", "validate", "dec-rz26", "validate", "--force", "--svg", target],
            &["replay", "in.csv", "--on", "disk:dec-rz26", "--force", "--svg", target],
            &["disk", "import", DISKSPECS, "--force", "-o", target],
            &["key", target],
            &["export", "memory:64MiB", "--socket", "s", "--pid-file", target],
            &["mount", "memfs", "d", "--pid-file", target],
        ] {
            let ended = scratch.run(arguments);
            assert!(matches!(ended.code, 1 | 32), "{arguments:?}: {} {}", ended.code, ended.err);
            assert!(
                ended.err.contains("; name a regular file, or one that is not there"),
                "{arguments:?}: {}",
                ended.err
            );
        }
    }
    assert!(std::fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    assert!(std::fs::metadata(&pipe).unwrap().file_type().is_fifo());
    assert_eq!((std::fs::read(scratch.path("letter")).unwrap(), names(&scratch, ".")), (b"a letter".to_vec(), before));
    // A log is appended only to a log, or to an empty file.
    scratch.write("image", vec![0; 10_000]);
    for target in ["image", "pipe", "d"] {
        let ended = scratch.run(&["export", "memory:64MiB", "--socket", "s", "--log-file", target]);
        assert_eq!(ended.code, 1, "{target}: {}", ended.err);
    }
    assert_eq!(std::fs::metadata(scratch.path("image")).unwrap().len(), 10_000);
}

/// A page, a picture and a manual page are replaced by their own kind, and by nothing else unless the user says
/// --force.
#[test]
fn pages_replace_their_own_kind() {
    let scratch = Scratch::new();
    scratch.make_directory("sweep");
    scratch.write(
        "sweep/experiment.toml",
        "title = \"t\"\nworkload = { kind = \"count\", trace = \"a.csv\" }\ncontestant = [{ name = \"whole\" }]\n\
         [[figure]]\nid = \"f\"\ntitle = \"F\"\nx = \"contestant\"\ny = \"requests\"\n",
    );
    scratch.write("sweep/a.csv", trace(20));
    scratch.write("v", "R Hit 1 2 3000 4\nW Hit 9 2 4000 4\n");
    assert_eq!(scratch.run(&["run", "sweep", "--out", "r"]).code, 0);
    scratch.make_directory("man");
    for (arguments, made) in [
        (&["report", "r", "-o", "p.html"][..], "p.html"),
        (&["report", "r", "-o", "p.html", "--svg", "figures"], "figures/sweep-f.svg"),
        (&["disk", "validate", "dec-rz26", "v", "--svg", "fit.svg"], "fit.svg"),
        (&["man", "man"], "man/seekless-mkfs.1"),
    ] {
        for _ in 0..2 {
            scratch.good(arguments);
        }
        let good = std::fs::read(scratch.path(made)).unwrap();
        scratch.write(made, "a letter");
        let refused = scratch.run(arguments);
        assert_eq!(refused.code, 1, "{arguments:?}");
        assert!(
            refused.err.contains(" already exists, and is not a ") && refused.err.contains("--force"),
            "{}",
            refused.err
        );
        assert_eq!(std::fs::read(scratch.path(made)).unwrap(), b"a letter");
        scratch.good(&[arguments, &["--force"]].concat());
        assert_eq!(std::fs::read(scratch.path(made)).unwrap(), good);
    }
    let refused = scratch.run(&["report", "r", "--force", "-o", "r/rows.jsonl"]);
    assert!(refused.err.contains("is read by this command"), "{}", refused.err);
    assert_eq!(scratch.run(&["report", "r", "-o", "p.html"]).code, 0, "the results are what they were");
    // The name of an experiment begins the names of its pictures, and leads to no other folder.
    let resolved = std::fs::read_to_string(scratch.path("r/resolved.toml")).unwrap();
    let named = resolved.lines().find(|line| line.starts_with("name = ")).unwrap();
    for name in ["../outside", "/tmp/outside", "a/b", "..", ".", "", "a\\u0000b"] {
        scratch.write("r/resolved.toml", resolved.replace(named, &format!("name = \"{name}\"")));
        let refused = scratch.run(&["report", "r", "-o", "p.html", "--svg", "pictures", "--force"]);
        assert!(refused.code == 1 && refused.err.contains("experiment's name"), "{name}: {}", refused.err);
    }
    assert!(!scratch.path("outside-n.svg").exists() && !scratch.path("pictures").exists());
}

/// Results go into a folder of their own: where files of these names are something else, they stay.
#[test]
fn results_replace_no_other_files() {
    let scratch = Scratch::new();
    scratch.make_directory("sweep");
    let description =
        "title = \"t\"\nworkload = { kind = \"count\", trace = \"a.csv\" }\ncontestant = [{ name = \"whole\" }]\n";
    scratch.write("sweep/experiment.toml", description);
    scratch.write("sweep/a.csv", trace(20));
    for (name, said) in [
        ("rows.csv", "this is not a folder of results"),
        ("provenance.json", "this is not a folder of results"),
        ("points.jsonl", "its end is no measured point"),
    ] {
        scratch.make_directory("mine");
        scratch.write(&format!("mine/{name}"), "a letter");
        let ended = scratch.run(&["run", "sweep", "--out", "mine"]);
        assert_eq!(ended.code, 1, "{name}");
        assert!(ended.err.contains(said), "{name}: {}", ended.err);
        assert_eq!(std::fs::read(scratch.path(&format!("mine/{name}"))).unwrap(), b"a letter");
        std::fs::remove_dir_all(scratch.path("mine")).unwrap();
    }
    // Points of an earlier experiment stay, and count again for it.
    let points = || std::fs::read_to_string(scratch.path("r/points.jsonl")).unwrap();
    assert_eq!(scratch.run(&["run", "sweep", "--out", "r"]).code, 0);
    let first = points();
    scratch.write("sweep/a.csv", trace(30));
    let other = scratch.run(&["run", "sweep", "--out", "r"]);
    assert_eq!(other.code, 0, "{}", other.err);
    assert!(other.err.contains("r has 1 point of another experiment, or of other files or options"), "{}", other.err);
    let second = points();
    assert_eq!((second.starts_with(&first), second.lines().count()), (true, 2));
    scratch.write("sweep/a.csv", trace(20));
    let back = scratch.run(&["run", "sweep", "--out", "r"]);
    assert_eq!((back.code, back.err.as_str(), points()), (0, "1 of 1 points are already measured\n", second));
}

/// A key is for its owner alone and is never written over, not even by another key.
#[test]
fn a_key_is_never_written_over() {
    let scratch = Scratch::new();
    scratch.good(&["key", "k"]);
    let key = std::fs::read(scratch.path("k")).unwrap();
    assert_eq!(std::fs::metadata(scratch.path("k")).unwrap().permissions().mode() & 0o777, 0o600);
    let ended = scratch.run(&["key", "k", "--from", "k"]);
    assert_eq!(ended.code, 1);
    assert!(ended.err.contains("a key is never overwritten"), "{}", ended.err);
    assert_eq!((std::fs::read(scratch.path("k")).unwrap(), names(&scratch, ".")), (key, vec!["k".to_owned()]));
}

/// A full disk leaves the old file, or none: no half of a page, no empty key, no temporary file.
#[test]
fn a_full_disk_leaves_no_half() {
    let scratch = Scratch::new();
    scratch.make_directory("sweep");
    let description =
        "title = \"t\"\nworkload = { kind = \"count\", trace = \"a.csv\" }\ncontestant = [{ name = \"whole\" }]\n";
    scratch.write("sweep/experiment.toml", description);
    scratch.write("sweep/a.csv", trace(20));
    scratch.write("large.csv", trace(100_000));
    assert_eq!(scratch.run(&["run", "sweep", "--out", "r"]).code, 0);
    scratch.make_directory("full");
    // A page has half a MiB and more.
    let Some(_tmpfs) = SmallTmpfs::mount(&scratch.path("full"), 800 << 10) else { return };
    scratch.good(&["report", "r", "-o", "full/p.html"]);
    let page = std::fs::read(scratch.path("full/p.html")).unwrap();
    let ended = scratch.run(&["report", "r", "-o", "full/p.html", "--title", "another"]);
    assert_eq!(ended.code, 1, "{}", ended.err);
    assert!(ended.err.contains("No space left on device"), "{}", ended.err);
    assert!(std::fs::read(scratch.path("full/p.html")).unwrap() == page, "the old page");
    for to in ["x.csv", "x.csv.gz", "x.csv.zst"] {
        let target = format!("full/{to}");
        let ended = scratch.run(&["trace", "convert", "--to", "csv", "large.csv", "-o", &target]);
        let ended = if ended.code == 2 {
            scratch.run(&["trace", "convert", "--to", "seekless", "large.csv", "-o", &target])
        } else {
            ended
        };
        // Compressed, it may fit.
        assert_eq!(scratch.path(&target).exists(), ended.code == 0, "{to}: {}", ended.err);
    }
    let mut filler = std::fs::File::create(scratch.path("full/filler")).unwrap();
    while filler.write_all(&[1; 4096]).is_ok() {}
    assert_eq!(scratch.run(&["key", "full/k"]).code, 1);
    let made = scratch.run(&["mkfs", "lfs / vld / file:full/n.img,size=100MiB"]);
    assert!(made.code == 1 && made.err.contains("no space below"), "{}", made.err);
    assert!(!made.err.contains("snapshot"), "nothing has snapshots yet: {}", made.err);
    let pid = scratch.run(&["export", "memory:64MiB", "--socket", "s", "--pid-file", "full/pid"]);
    assert_eq!(pid.code, 1, "{}", pid.err);
    let left = names(&scratch, "full");
    assert!(
        left.iter().all(|name| !name.starts_with('.') && name != "k" && name != "pid" && name != "x.csv"),
        "{left:?}"
    );
}

/// A converter that waits for more on standard input.
fn waiting(scratch: &Scratch, target: &str) -> Child {
    let mut command = scratch.command();
    command.args(["trace", "convert", "--to", "seekless", "--sort-window", "1", "-", "-o", target]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(trace(20_000).as_bytes()).unwrap();
    child
}

/// A killed writer leaves nothing. (SIGINT is left out: a shell ignores it for background processes.)
#[test]
fn a_killed_writer_leaves_nothing() {
    let scratch = Scratch::new();
    for signal in [Signal::TERM, Signal::KILL] {
        let mut child = waiting(&scratch, "out");
        std::thread::sleep(Duration::from_millis(100));
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert!(!child.wait().unwrap().success());
        assert_eq!(names(&scratch, "."), [""; 0], "{signal:?}");
    }
}

/// Of several concurrent writers to one name, one makes the file and the others report an error.
#[test]
fn of_several_writers_one_makes_the_file() {
    let scratch = Scratch::new();
    let mut children: Vec<Child> = (0..4).map(|_| waiting(&scratch, "out")).collect();
    for child in &mut children {
        drop(child.stdin.take());
    }
    let ended: Vec<_> = children.into_iter().map(|child| scratch.ended(&child.wait_with_output().unwrap())).collect();
    assert_eq!(ended.iter().filter(|ended| ended.code == 0).count(), 1);
    for other in ended.iter().filter(|ended| ended.code != 0) {
        assert!(other.code == 1 && other.err.contains("out already exists"), "{} {}", other.code, other.err);
    }
    assert_eq!(names(&scratch, "."), ["out"]);
    let whole = std::fs::read_to_string(scratch.path("out")).unwrap();
    assert!(whole.lines().count() >= 20_000 && whole.ends_with('\n'));
}

/// A pid file of a dead process is replaced, even of a killed one; that of a running one is not, and the second daemon
/// exits.
#[test]
fn a_pid_file_is_of_one_daemon() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.good(&["mkfs", "-q", "lfs / file:a.img,size=64MiB"]);
    scratch.make_directory("mnt");
    scratch.make_directory("other");
    let mount = ["mount", "lfs / file:a.img", "mnt", "--pid-file", "pid"];
    scratch.good(&mount);
    let second = scratch.run(&["mount", "memfs", "other", "--pid-file", "pid"]);
    assert_eq!(second.code, 32, "{}", second.err);
    assert!(second.err.contains("which it names, is running") && !scratch.is_mounted("other"), "{}", second.err);
    let number: i32 = std::fs::read_to_string(scratch.path("pid")).unwrap().trim().parse().unwrap();
    kill_process(Pid::from_raw(number).unwrap(), Signal::KILL).unwrap();
    let begun = Instant::now();
    while std::fs::metadata(scratch.path("mnt")).is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(30), "the daemon does not die");
        std::thread::sleep(Duration::from_millis(10));
    }
    scratch.good(&["umount", "--lazy", "mnt"]);
    assert!(Path::new(&scratch.path("pid")).exists());
    scratch.good(&mount);
    scratch.good(&["umount", "mnt"]);
    assert!(!scratch.path("pid").exists());
}

/// Exit codes keep their meaning when the result cannot be printed, and with an option before the command.
#[test]
fn exit_codes_keep_their_meaning() {
    let scratch = Scratch::new();
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let run = |arguments: &[&str]| scratch.ended(&scratch.command().args(arguments).stdout(full()).output().unwrap());
    let line = "lfs / file:a.img";
    let made = run(&["mkfs", "lfs / file:a.img,size=32MiB"]);
    assert_eq!(made.code, 1, "{}", made.err);
    assert!(made.err.contains("it was created, but"), "{}", made.err);
    scratch.good(&["fsck", line]);
    for arguments in [&["fsck", "-n", line][..], &["fsck", line], &["fsck", "--json", line]] {
        assert_eq!(run(arguments).code, 8, "{arguments:?}");
    }
    for (command, code) in [("fsck", 16), ("scrub", 16), ("mount", 1), ("umount", 1), ("info", 2)] {
        assert_eq!(scratch.run(&["-q", command, "--no-such-option"]).code, code, "{command}");
        assert_eq!(scratch.run(&[command, "--no-such-option"]).code, code, "{command}");
    }
}
