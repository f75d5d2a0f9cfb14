//! Commands of pages.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use seekless_host::testing::{Need, skip};

use super::{pages, read, root, short};

/// Why a block is not run.
const REASONS: &[(&str, &str)] = &[
    ("build", "compiles or installs the project, or runs its tests"),
    ("hardware", "needs a device, an image, a trace or a directory of the reader's"),
    ("client", "needs another program or a file from elsewhere, such as qemu or an image of Debian"),
    ("long", "takes longer than a test may: minutes, or more than ten seconds with a program that is built for tests"),
];

/// Pages whose blocks are not meant to be run one after another: how the project is tested, and where it is changed.
const OTHERS: &[&str] = &["docs/testing.md"];

/// Pages that a reader may follow one after the other in the same directory.
const TOGETHER: &[&str] = &["README.md", "docs/tutorial.md"];

/// A page may take so long, in seconds.
const SECONDS_MAX: u32 = 600;

/// A command block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Block {
    /// Of its first command, from 1.
    pub(super) line: usize,
    pub(super) text: String,
    pub(super) mounts: bool,
    pub(super) not_run: Option<String>,
    /// What it prints, where the page says it.
    output: Option<String>,
}

/// The command blocks of a page, or what is wrong with them.
pub(super) fn blocks(page: &str) -> Result<Vec<Block>, String> {
    let mut blocks: Vec<Block> = Vec::new();
    // Of the last block: whether only empty lines have come since.
    let mut is_right_behind = false;
    let mut lines = page.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let Some(info) = line.strip_prefix("```") else {
            is_right_behind &= line.is_empty();
            continue;
        };
        let mut text = String::new();
        for (_, line) in lines.by_ref().take_while(|(_, line)| !line.starts_with("```")) {
            text += line;
            text.push('\n');
        }
        let mut words = info.split_whitespace();
        match (words.next(), words.clone().next()) {
            (Some("sh"), _) => {
                let mut block = Block { line: number + 2, text, mounts: false, not_run: None, output: None };
                for word in words {
                    match word.strip_prefix("no-run=") {
                        Some(reason) if REASONS.iter().any(|(known, _)| *known == reason) => {
                            block.not_run = Some(reason.to_owned());
                        }
                        None if word == "fuse" => block.mounts = true,
                        _ => return Err(format!("line {}: `{word}` behind `sh` means nothing", number + 1)),
                    }
                }
                if block.text.contains("seekless mount ") && !block.mounts && block.not_run.is_none() {
                    return Err(format!("line {}: a block that mounts begins with ```sh fuse", number + 1));
                }
                blocks.push(block);
                is_right_behind = true;
            }
            (Some("text"), Some("output")) => match blocks.last_mut() {
                Some(block) if is_right_behind => block.output = Some(text),
                _ => return Err(format!("line {}: output of no block of commands", number + 1)),
            },
            (Some("console" | "bash" | "shell"), _) => {
                return Err(format!("line {}: a block of commands begins with ```sh", number + 1));
            }
            _ => is_right_behind = false,
        }
    }
    Ok(blocks)
}

/// True when `printed` is what the page says.
fn is_said(said: &str, printed: &str) -> bool {
    let said: Vec<&str> = said.lines().map(str::trim_end).collect();
    let printed: Vec<&str> = printed.lines().map(str::trim_end).collect();
    fn agree(said: &[&str], printed: &[&str]) -> bool {
        match (said, printed) {
            ([], []) => true,
            (["…", rest @ ..], _) => (0..=printed.len()).any(|from| agree(rest, &printed[from..])),
            ([first, rest @ ..], [line, lines @ ..]) => {
                let same = match first.strip_suffix('…') {
                    Some(start) => line.starts_with(start),
                    None => first == line,
                };
                same && agree(rest, lines)
            }
            _ => false,
        }
    }
    agree(&said, &printed)
}

/// A directory in which the commands of one page run. What is left mounted in it is unmounted at the end, and what is left
/// running is ended.
pub(super) struct Desk(tempfile::TempDir);

impl Desk {
    pub(super) fn new() -> Desk {
        let desk = tempfile::tempdir().unwrap();
        let here = desk.path().join("here");
        for folder in ["bin", "here", "out"] {
            std::fs::create_dir(desk.path().join(folder)).unwrap();
        }
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_seekless"), desk.path().join("bin/seekless")).unwrap();
        for folder in ["docs", "experiments"] {
            std::os::unix::fs::symlink(root().join(folder), here.join(folder)).unwrap();
        }
        Desk(desk)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs `blocks` in one shell. Returns what is wrong.
    fn run(&self, page: &Path, blocks: &[Block]) -> Option<String> {
        self.run_for(SECONDS_MAX, page, blocks)
    }

    /// The same for at most `seconds_max`.
    pub(super) fn run_for(&self, seconds_max: u32, page: &Path, blocks: &[Block]) -> Option<String> {
        let mut script = String::from("set -eu -o pipefail\n");
        for (number, block) in blocks.iter().enumerate() {
            let out = self.path("out");
            let out = out.display();
            let _ = writeln!(
                script,
                "echo {number} >{out}/started\n{{\n{}\n}} >{out}/{number}.out 2>{out}/{number}.err </dev/null",
                block.text
            );
        }
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap_or_default());
        let mut shell = Command::new("timeout");
        shell.args(["--kill-after=5", &seconds_max.to_string(), "bash", "-c", &script]);
        shell.current_dir(self.path("here")).env("PATH", path).env("HOME", self.0.path()).env_remove("SEEKLESS_BLESS");
        let status = shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        let text =
            |name: &str| String::from_utf8_lossy(&std::fs::read(self.path(name)).unwrap_or_default()).into_owned();
        if !status.success() {
            let last: usize = text("out/started").trim().parse().unwrap_or(0);
            let why = if status.code() == Some(124) {
                format!("{seconds_max} s were not enough")
            } else {
                status.to_string()
            };
            let Block { line, text: commands, .. } = &blocks[last];
            return Some(format!(
                "{}:{line}: {why}\n{commands}{}{}",
                short(page),
                text(&format!("out/{last}.out")),
                text(&format!("out/{last}.err"))
            ));
        }
        blocks.iter().enumerate().find_map(|(number, block)| {
            let printed = text(&format!("out/{number}.out"));
            let said = block.output.as_deref()?;
            (!is_said(said, &printed)).then(|| {
                let Block { line, text: commands, .. } = block;
                format!(
                    "{}:{line}: the page says\n{said}\nand this prints something else\n{commands}\n{printed}",
                    short(page)
                )
            })
        })
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        let table = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let places = table.lines().filter_map(|line| line.split(' ').nth(1));
        for place in places.filter(|place| Path::new(place).starts_with(self.0.path())) {
            // A test that has failed has said so already.
            let _ = Command::new(self.path("bin/seekless")).args(["umount", "--lazy", place]).output();
        }
        // Its processes are known by their home.
        let home = format!("HOME={}", self.0.path().display());
        let numbers = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        for number in numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
            let variables = std::fs::read(format!("/proc/{number}/environ")).unwrap_or_default();
            if variables.split(|byte| *byte == 0).any(|variable| variable == home.as_bytes()) {
                let process = rustix::process::Pid::from_raw(number);
                let _ = process.map(|it| rustix::process::kill_process(it, rustix::process::Signal::TERM));
            }
        }
    }
}

/// Aim: every command of every page does what the page says. Method: run them, in the order of the page, and compare what is
/// printed where the page shows it.
#[test]
fn commands_of_pages_work() {
    let can_mount = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    let together = Desk::new();
    let mut problems = Vec::new();
    let (mut run, mut left_out) = (0, BTreeMap::<String, usize>::new());
    for page in pages().into_iter().filter(|page| !OTHERS.contains(&&*short(page))) {
        let all = blocks(&read(&page)).unwrap_or_else(|problem| panic!("{}: {problem}", short(&page)));
        let mut chosen = Vec::new();
        for block in all {
            match &block.not_run {
                Some(reason) => *left_out.entry(reason.clone()).or_default() += 1,
                None if block.mounts && !can_mount => *left_out.entry("fuse".to_owned()).or_default() += 1,
                None => chosen.push(block),
            }
        }
        if chosen.is_empty() {
            continue;
        }
        let started = Instant::now();
        run += chosen.len();
        let own = Desk::new();
        let desk = if TOGETHER.contains(&&*short(&page)) { &together } else { &own };
        problems.extend(desk.run(&page, &chosen));
        eprintln!("{}: {} blocks in {:.1} s", short(&page), chosen.len(), started.elapsed().as_secs_f64());
    }
    eprintln!("{run} blocks were run. Not run:");
    for (reason, count) in &left_out {
        let why = REASONS
            .iter()
            .find(|(known, _)| known == reason)
            .map_or("mounting needs root and /dev/fuse", |(_, why)| why);
        eprintln!("  {count:3}  {reason}: {why}");
    }
    assert!(run > 20 || !can_mount, "only {run} blocks were found: the search is broken");
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n\n"));
    if !can_mount {
        skip(Need::Fuse, "blocks that mount need root and /dev/fuse");
    }
}

/// Aim: a page that is wrong is noticed. Method: pages of errors.
#[test]
fn wrong_pages_are_noticed() {
    let page = "text\n\n```sh\necho a\necho b\n```\n\n```text output\na\n…\n```\n\n```sh no-run=long\nx\n```\n\n```text\nfree\n```\n";
    let found = blocks(page).unwrap();
    let first =
        Block {
            line: 4, text: "echo a\necho b\n".into(), mounts: false, not_run: None, output: Some("a\n…\n".into())
        };
    assert_eq!((found.len(), &found[0], found[1].not_run.as_deref()), (2, &first, Some("long")));
    for wrong in [
        "```sh no-run=laziness\n```\n",
        "```sh quickly\n```\n",
        "```console\n$ x\n```\n",
        "```text output\n```\n",
        "```sh\nmkdir mnt\nseekless mount memfs mnt\n```\n",
    ] {
        assert!(blocks(wrong).is_err(), "{wrong}");
    }
    assert!(is_said("a\n…\nz\n", "a\nb\nc\nz\n") && is_said("took 3…\n", "took 3.2 s\n") && is_said("…\n", ""));
    assert!(!is_said("a\n…\nz\n", "a\nb\n") && !is_said("a\n", "a\nb\n") && !is_said("a\nb\n", "a\n"));

    let page = Path::new("page.md");
    let case = |text: &str, output: Option<&str>| {
        let output = output.map(str::to_owned);
        Desk::new().run(page, &[Block { line: 1, text: text.into(), mounts: false, not_run: None, output }])
    };
    assert_eq!(case("seekless list profiles\ntest -d docs && test -d experiments\n", None), None);
    assert!(case("seekless no-such-command\n", None).is_some());
    assert!(case("false | true\n", None).is_some());
    assert!(case("echo one\n", Some("two\n")).is_some());
    assert_eq!(case("echo one\n", Some("one\n")), None);
}
