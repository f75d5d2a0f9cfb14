//! Output for programs.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::Scratch;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// mkfs, info and fsck say the same of a file system, with its units in the names.
#[test]
fn facts_are_for_programs_too() {
    let scratch = Scratch::new();
    let uuid = "67e55044-10b1-426f-9247-bb680e5fe0c8";
    let made = json(&scratch.good(&["mkfs", "lfs:segment=256KiB / file:a.img,size=64MiB", "--json", "-U", uuid]));
    let info = json(&scratch.good(&["info", "--json", "lfs / file:a.img"]));
    for (key, value) in [
        ("uuid", Value::from(uuid)),
        ("label", Value::Null),
        ("size_bytes", (64 << 20).into()),
        ("segment_bytes", (256 << 10).into()),
        ("clean", true.into()),
        ("inodes", 1.into()),
    ] {
        assert_eq!((&made[key], &info[key]), (&value, &value), "{key}");
    }
    assert!(made["created"].as_str().unwrap().ends_with('Z'), "RFC 3339: {made}");
    assert_eq!(made["stack"], "lfs:segment=256KiB / file:a.img,size=64MiB");
    let checked = json(&scratch.good(&["fsck", "--data", "--json", "lfs / file:a.img"]));
    assert_eq!((&checked["verdict"], &checked["counts"]["directories"]), (&"clean".into(), &1.into()), "{checked}");
    assert_eq!(checked["findings"], Value::Array(Vec::new()));
    assert_eq!(checked["data_checked"], true);
    assert!(!scratch.good(&["fsck", "--data", "lfs / file:a.img"]).contains("file data"));
    assert_eq!(json(&scratch.good(&["fsck", "--json", "lfs / file:a.img"]))["data_checked"], false);
    assert!(scratch.good(&["dump", "lfs / file:a.img"]).starts_with("superblock\n"));
    assert_eq!(scratch.good(&["mkfs", "-f", "-q", "lfs / file:a.img"]), "");
}

/// A benchmark in virtual time is the same every time, and its JSON has what is needed to get it again. In real time it
/// runs on images and on directories, and leaves nothing behind.
#[test]
fn the_benchmark_reports_what_it_did() {
    let scratch = Scratch::new();
    let arguments = ["bench", "smallfile", "--files", "300", "--json", "--profile", "sparcstation2", "--on"];
    let simulated = || scratch.good(&[&arguments[..], &["lfs / disk:dec-rz26"]].concat());
    let text = simulated();
    assert_eq!(text, simulated());
    let report = json(&text);
    assert_eq!((&report["benchmark"], &report["spec"]["files"]), (&"smallfile".into(), &300.into()));
    let run = &report["runs"][0];
    assert_eq!((&run["clock"], &run["profile"]["name"]), (&"virtual".into(), &"sparcstation2".into()));
    let phases: Vec<&str> = run["phases"].as_array().unwrap().iter().filter_map(|it| it["phase"].as_str()).collect();
    assert_eq!(phases, ["create", "read", "delete"]);
    assert!(run["phases"][0]["elapsed_ns"].as_u64().unwrap() > 0);

    scratch.good(&["mkfs", "-q", "lfs / file:a.img,size=64MiB"]);
    scratch.make_directory("d");
    let table = scratch.good(&[
        "bench",
        "smallfile",
        "--files",
        "50",
        "--on",
        "wrap / lfs / file:a.img",
        "--on",
        "./d",
        "--on",
        "hostdir:d",
        "--on",
        "memfs",
    ]);
    assert!(table.contains("[1] wrap / lfs / file:a.img") && table.contains("[4] memfs"), "{table}");
    assert_eq!(std::fs::read_dir(scratch.path("d")).unwrap().count(), 0);
    let checked = json(&scratch.good(&["fsck", "--data", "--json", "lfs / file:a.img"]));
    assert_eq!(checked["counts"]["files"], 0);
}

/// Aim: a shell completes stack lines. Method: bash reads the script and completes lines, in quotes, as its user types them.
#[test]
fn a_shell_completes_stack_lines() {
    let scratch = Scratch::new();
    let script = scratch.good(&["completions", "bash"]);
    std::fs::write(scratch.path("script"), script).unwrap();
    std::fs::write(scratch.path("a.img"), b"").unwrap();
    let folder = Path::new(env!("CARGO_BIN_EXE_seekless")).parent().unwrap().display().to_string();
    let cases = [
        ("info", "'lfs / disk:cheetah9", "lfs / disk:cheetah9lp"),
        ("mkfs", "'zstd / lf", "zstd / lfs"),
        ("fsck", "'lfs / file:a.", "lfs / file:a.img"),
        ("mk", "", "mkfs"),
    ];
    for (command, line, expected) in cases {
        let words =
            if line.is_empty() { format!("seekless {command}") } else { format!("seekless {command} \"{line}\"") };
        let last = if line.is_empty() { command } else { line.trim_start_matches('\'') };
        let complete = format!(
            "PATH='{folder}':$PATH; source ./script; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _clap_complete_seekless seekless '{last}' x; printf '%s\n' \"${{COMPREPLY[@]}}\""
        );
        let output = Command::new("bash").args(["-c", &complete]).current_dir(scratch.path("")).output().unwrap();
        let lines = String::from_utf8(output.stdout).unwrap();
        assert!(
            lines.lines().any(|line| line == expected),
            "{line}: {lines} {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

/// What can be written on a line, for people and for programs; manual and completions are made.
#[test]
fn the_program_describes_itself() {
    let scratch = Scratch::new();
    let words = json(&scratch.good(&["list", "--json"]));
    let lfs = words.as_array().unwrap().iter().find(|word| word["name"] == "lfs").unwrap();
    let cleaner = lfs["options"].as_array().unwrap().iter().find(|option| option["name"] == "cleaner").unwrap();
    assert_eq!((&cleaner["default"], &cleaner["fixed_at_mkfs"]), (&"age-sort".into(), &false.into()));
    let drives = json(&scratch.good(&["list", "drives", "--json"]));
    assert!(drives.as_array().unwrap().iter().any(|drive| drive["name"] == "dec-rz26"));
    assert!(scratch.good(&["list", "profiles"]).contains("sparcstation2"));
    assert!(scratch.good(&["list"]).contains("cleaner=fifo|greedy|d-choices|cost-benefit"));
    for arguments in [&["list"][..], &["list", "drives"]] {
        assert!(scratch.good(arguments).contains("disk:size=1GiB,rpm=5400,seek=10ms,rate=4MB"), "{arguments:?}");
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(scratch.good(&["completions", shell]).contains("SEEKLESS_COMPLETE"), "{shell}");
    }
    scratch.make_directory("man");
    scratch.good(&["man", "man"]);
    assert!(std::fs::read_to_string(scratch.path("man/seekless-mount.1")).unwrap().contains("SIGTERM"));
    for entry in std::fs::read_dir(scratch.path("man")).unwrap() {
        let page = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        assert!(!page.contains(".SH \"EXTRA\"") && !page.contains("\nExamples:"), "{page}");
        assert_eq!(page.matches("\n.nf").count(), page.matches("\n.fi").count(), "{page}");
    }
    let page = std::fs::read_to_string(scratch.path("man/seekless-fsck.1")).unwrap();
    assert!(page.contains(".SH \"EXAMPLES\"\n.RS 4\n.nf\nseekless fsck ") && page.contains(".SH \"EXIT STATUS\"\n"));
    assert!(scratch.good(&["help", "--help"]).contains("Usage: seekless [OPTIONS] <COMMAND>"));
    assert!(scratch.good(&["--version"]).starts_with("seekless "));
}
