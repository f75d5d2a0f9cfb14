//! Traces and replay as a user sees them.

use std::process::Command;
use std::time::Duration;

use seekless_host::testing::{LoopDevice, Need, skip};
use serde_json::Value;

use crate::Scratch;

/// Two volumes of a hundred requests each, in the form of MSR Cambridge.
fn msr() -> String {
    let line = |n: u64| {
        let (ticks, disk) = (128_166_372_003_061_629 + n * 200_000, n % 2);
        let word = if n.is_multiple_of(5) { "Write" } else { "Read" };
        format!("{ticks},hm,{disk},{word},{},4096,50000\n", n * 7919 % 100_000 * 4096)
    };
    (0..200).map(line).collect()
}

/// Runs the program, which must succeed, and returns what it printed. How the trace was understood is said on standard
/// error.
fn out(scratch: &Scratch, arguments: &[&str]) -> String {
    let ended = scratch.run(arguments);
    assert_eq!(ended.code, 0, "{arguments:?}: {}", ended.err);
    ended.out
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// The detected format of a trace is reported with the reason; its requests can be shown, cut and converted, and are
/// preserved.
#[test]
fn traces_are_looked_at_and_converted() {
    let scratch = Scratch::new();
    scratch.write("hm.csv", msr());
    let info = out(&scratch, &["trace", "info", "hm.csv"]);
    assert!(info.contains("read as msr, all 200 lines") && info.contains("200 requests"), "{info}");
    assert!(info.contains("hm_0: 100 requests") && info.contains("recorded latency"), "{info}");
    let info: Value = serde_json::from_str(&out(&scratch, &["trace", "info", "--json", "hm.csv"])).unwrap();
    assert_eq!(
        (&info["import"]["requests"], &info["trace"]["operations"]["write"]["requests"]),
        (&200.into(), &40.into())
    );
    let head = out(&scratch, &["trace", "head", "-n", "3", "--device", "hm_1", "--json", "hm.csv"]);
    let head = json_lines(&head);
    assert_eq!((head.len(), &head[0]["offset"], &head[0]["latency_ns"]), (3, &(7919 * 4096).into(), &5_000_000.into()));
    out(&scratch, &["trace", "convert", "--to", "seekless", "-o", "hm.zst", "hm.csv"]);
    out(&scratch, &["trace", "convert", "--to", "msr", "-o", "back.csv.gz", "hm.zst"]);
    let back = out(&scratch, &["trace", "slice", "--until", "1h", "back.csv.gz"]);
    assert_eq!(back, msr());
    let part = out(&scratch, &["trace", "slice", "--from", "1s", "--until", "2s", "hm.csv"]);
    assert_eq!(part.lines().count(), 50);
    // The moments are those of the trace, whatever devices are asked for. The second device has its first request at 20 ms.
    let first = |device: &str| {
        let part = ["trace", "slice", "--from", "10ms", "--until", "1s", "--device", device, "hm.csv"];
        let part = scratch.run(&part);
        assert!(part.err.contains("count from the first request of the trace, which is at "), "{}", part.err);
        part.out.lines().count()
    };
    let whole = out(&scratch, &["trace", "slice", "--from", "10ms", "--until", "1s", "hm.csv"]);
    assert_eq!(first("hm_0") + first("hm_1"), whole.lines().count());
    assert!(out(&scratch, &["trace", "formats"]).contains("blktrace"));
    // A text whose unit its beginning tells is written with that of the format.
    for (name, unit) in [("s.csv", 1_u64), ("us.csv", 40_000_000_000)] {
        let line = |index: u64| format!("1,{},28,4096,{}\n", index * unit + index % 2, index * 8);
        let lines: String = (0..20).map(line).collect();
        scratch.write(name, format!("version,time,op,size,lbn\n{lines}"));
        let written = out(&scratch, &["trace", "slice", "-n", "5", name]);
        scratch.write("cut.csv", &written);
        let requests = |name: &str| out(&scratch, &["trace", "head", "-n", "5", "--json", name]);
        assert_eq!(requests("cut.csv"), requests(name), "{name}: {written}");
    }
}

/// A replay compares stacks and ends with a sentence; as JSON it is lines. The same arguments give the same.
#[test]
fn replays_compare() {
    let scratch = Scratch::new();
    scratch.write("hm.csv", msr());
    let one = ["replay", "hm.csv", "--device", "hm_0", "--on", "disk:dec-rz26", "--on", "disk:cheetah9lp"];
    let text = out(&scratch, &one);
    let sentence = text.lines().last().unwrap();
    assert!(sentence.contains("disk:cheetah9lp has the shortest time, ") && sentence.contains("p99 read"), "{text}");
    let lines = out(&scratch, &[&one[..], &["--json", "--timing", "think"]].concat());
    let kinds: Vec<Value> = json_lines(&lines).into_iter().map(|line| line["kind"].clone()).collect();
    assert_eq!(kinds, ["trace", "outcome", "outcome", "comparison"]);
    assert_eq!(lines, out(&scratch, &[&one[..], &["--json", "--timing", "think"]].concat()));
    let both = out(&scratch, &["replay", "hm.csv", "--devices", "concatenate", "--on", "disk:cheetah9lp"]);
    assert!(both.starts_with("200 requests"), "{both}");
    // A new flash drive has nothing to read, which is said; one that was used has.
    let flash = |fill: &str| {
        let stack = format!("ssd:nvme-a,size=4GiB{fill}");
        scratch.run(&["replay", "hm.csv", "--device", "hm_0", "--map", "wrap", "--on", &stack]).err
    };
    assert!(flash("").contains("is new: ") && flash("").contains(" had never been written"), "{}", flash(""));
    assert!(!flash(",fill=random").contains("is new"), "{}", flash(",fill=random"));
    scratch.write("one.csv", "0,R,4096,4096,0\n");
    let one = out(&scratch, &["replay", "one.csv", "--format", "alibaba", "--on", "disk:cheetah9lp"]);
    assert!(one.starts_with("1 request of") && one.contains(" serves 1 request in "), "{one}");
}

/// A replay on a new flash drive warns of reads that find nothing, and only of them. Method: reads in order of all that was written,
/// which the drive reads ahead; and small writes that merge with older data, so that flash reads more pages than were asked for.
#[test]
fn only_reads_of_what_was_not_written_are_warned_of() {
    let scratch = Scratch::new();
    let row = |op: &str, at: u64, bytes: u64| format!("0,{op},{at},{bytes},0\n");
    let in_order = |op: &str| (0..512).map(|n| row(op, n << 17, 1 << 17)).collect::<String>();
    scratch.write("written.csv", in_order("W") + &in_order("R"));
    let merges: String = (0..512).map(|n| row("W", n << 17, 512)).collect();
    let elsewhere: String = (0..512).map(|n| row("R", (1 << 30) + (n << 17), 4096)).collect();
    scratch.write("elsewhere.csv", in_order("W") + &merges + &elsewhere);
    let replay = |trace: &str| {
        let ended = scratch.run(&["replay", trace, "--format", "alibaba", "--json", "--on", "ssd:nvme-a,size=4GiB"]);
        assert_eq!(ended.code, 0, "{}", ended.err);
        let outcome = json_lines(&ended.out).into_iter().find(|line| line["kind"] == "outcome").unwrap();
        (ended.err, outcome["outcome"]["counters"].clone())
    };
    let (notes, counters) = replay("written.csv");
    assert!(!notes.contains("is new"), "{notes}{counters}");
    let (notes, counters) = replay("elsewhere.csv");
    assert!(notes.contains("is new: 512 of 512 units of 4 KiB"), "{notes}{counters}");
}

/// Every request of a replay is a row of a file, one file for each stack, whatever the order of answers; the same arguments give
/// the same bytes. Files are not replaced without permission, and a stack without a result leaves none.
#[test]
fn every_request_is_a_row() {
    let scratch = Scratch::new();
    scratch.write("hm.csv", msr());
    let command = [
        "replay",
        "hm.csv",
        "--device",
        "hm_0",
        "--timing",
        "window:4",
        "--on",
        "disk:dec-rz26",
        "--on",
        "disk:cheetah9lp",
    ];
    let rows = ["--rows", "one.csv", "--rows", "two.csv.gz"];
    out(&scratch, &[&command[..], &rows].concat());
    let text = std::fs::read_to_string(scratch.path("one.csv")).unwrap();
    let mut lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines[0][..3], ["number", "recorded_ns", "operation"]);
    let lines = lines.split_off(1);
    assert!(
        lines.windows(2).all(|pair| pair[0][9].parse::<u64>().unwrap() <= pair[1][9].parse().unwrap()),
        "by answer"
    );
    let mut numbers: Vec<u64> = lines.iter().map(|line| line[0].parse().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=100).collect::<Vec<_>>());
    let time = |line: &[&str], column: usize| line[column].parse::<u64>().unwrap();
    assert!(lines.iter().all(|line| time(line, 9) > time(line, 8) && line[5] == "5000000"), "{text}");
    let outcome = json_lines(&out(&scratch, &[&command[..], &["--json"]].concat()));
    let mean = lines.iter().map(|line| time(line, 9) - time(line, 8)).sum::<u64>() / 100;
    assert_eq!(outcome[1]["outcome"]["all"]["mean_ns"], mean, "rows and outcome agree");
    assert!(std::fs::read(scratch.path("two.csv.gz")).unwrap().starts_with(&[0x1f, 0x8b]));

    let again = scratch.run(&[&command[..], &rows].concat());
    assert!(again.code == 1 && again.err.contains("already exists"), "{}", again.err);
    out(&scratch, &[&command[..], &rows, &["--force"]].concat());
    assert_eq!(std::fs::read_to_string(scratch.path("one.csv")).unwrap(), text);
    for (words, wanted) in [
        (&["--rows", "three.csv"][..], "--rows is given 1 time for 2 stacks"),
        (&["--rows", "three.csv", "--rows", "three.csv"], "given twice"),
        (&["--rows", "three.csv", "--rows", "-"], "--rows - would be a file of that name"),
        (&["--rows", "three.csv", "--rows", "./three.csv", "--force"], "given twice"),
        (&["--rows", "hm.csv", "--rows", "three.csv", "--force"], "hm.csv is read by this command"),
    ] {
        let ended = scratch.run(&[&command[..], words].concat());
        assert!(ended.code > 0 && ended.err.contains(wanted), "{}", ended.err);
    }
    let small = ["replay", "hm.csv", "--device", "hm_0", "--on", "memory:1MiB", "--on", "disk:dec-rz26"];
    let ended = scratch.run(&[&small[..], &["--rows", "small.csv", "--rows", "large.csv"]].concat());
    assert_eq!(ended.code, 1, "{}", ended.err);
    assert!(
        !scratch.path("small.csv").exists()
            && scratch.path("large.csv").exists()
            && !scratch.path("three.csv").exists()
    );
}

/// The picture has a panel for each kind of request and one for the time of arrival, with a curve for each stack. It replaces
/// its like alone, and never the trace. The text has a line about the drives of each stack.
#[test]
fn a_replay_is_drawn() {
    let scratch = Scratch::new();
    scratch.write("hm.csv", msr());
    scratch.write("letter", "a letter");
    let array = "raid0:n=3 / disk:cheetah9lp";
    let stacks = ["replay", "hm.csv", "--device", "hm_1", "--on", "disk:dec-rz26", "--on", array, "--timing", "open"];
    let drawn = |more: &[&str]| scratch.run(&[&stacks[..], more].concat());
    for _ in 0..2 {
        let ended = drawn(&["--svg", "a.svg"]);
        assert_eq!(ended.code, 0, "{}", ended.err);
        assert!(ended.out.contains("requests waiting on average") && ended.out.contains("3 drives, "), "{}", ended.out);
    }
    let svg = std::fs::read_to_string(scratch.path("a.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("<!-- made by seekless -->"), "{svg}");
    for text in ["Response times of reads", "Mean response by time of arrival", "[1] disk:dec-rz26", "[2] raid0"] {
        assert!(svg.contains(text), "{text}");
    }
    for (target, wanted) in [("letter", "is not a picture made by this program"), ("hm.csv", "is read by this command")]
    {
        let ended = drawn(&["--svg", target]);
        assert!(ended.code == 1 && ended.out.is_empty() && ended.err.contains(wanted), "{}", ended.err);
    }
    let twice = drawn(&["--svg", "b.csv", "--rows", "b.csv", "--rows", "c.csv"]);
    assert!(twice.code == 2 && twice.err.contains("b.csv is the file of --rows and of --svg"), "{}", twice.err);
    let twice = drawn(&["--svg", "./b.csv", "--rows", "b.csv", "--rows", "c.csv", "--force"]);
    assert!(twice.code == 2 && twice.err.contains("b.csv is the file of --rows and of --svg"), "{}", twice.err);
    assert!(!scratch.path("b.csv").exists() && !scratch.path("c.csv").exists());
    drawn(&["--svg", "letter", "--force"]);
    assert!(std::fs::read_to_string(scratch.path("letter")).unwrap().starts_with("<svg"));
}

/// A trace that can be read only once is replayed on several stacks, with the results of a file; what needs its size beforehand is
/// refused.
#[test]
fn a_stream_is_replayed_on_several_stacks() {
    let scratch = Scratch::new();
    scratch.write("hm.csv", msr());
    let rest = ["--device", "hm_1", "--on", "disk:dec-rz26", "--on", "disk:cheetah9lp", "--json"];
    let from_file = json_lines(&out(&scratch, &[&["replay", "hm.csv"][..], &rest].concat()));
    let from_stream = |more: &[&str]| {
        let mut command = scratch.command();
        let input = std::fs::File::open(scratch.path("hm.csv")).unwrap();
        command.args(["replay", "-"]).args(rest).args(more).stdin(input).output().unwrap()
    };
    let ended = from_stream(&[]);
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let lines = json_lines(&String::from_utf8(ended.stdout).unwrap());
    assert_eq!(lines[1..], from_file[1..]);
    for key in ["requests", "units", "format", "other_devices"] {
        assert_eq!(lines[0]["import"][key], from_file[0]["import"][key], "{key}");
    }
    for more in [["--map", "scale"], ["--devices", "concatenate"]] {
        let ended = from_stream(&more);
        let told = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.code() == Some(2) && told.contains("write it to a file"), "{told}");
    }
}

/// What is wrong with a trace or a replay is said with what to do about it, and with the right exit code.
#[test]
fn troubles_are_explained() {
    let scratch = Scratch::new();
    scratch.write("hm.csv", msr());
    scratch.write("words", "these are\nno requests\n");
    scratch.write("far.csv", "0,R,1000000000000,4096,1577808000000626\n");
    for (arguments, code, said) in [
        (&["trace", "info", "gone"][..], 1, "there is no file gone"),
        (&["trace", "info", "words"], 1, "--format 'regex:"),
        (&["trace", "info", "--format", "spc", "words"], 1, "2 x the ASU is not a number, first line 1: these are"),
        (&["trace", "info", "--format", "cvs", "words"], 2, "there is no trace format `cvs`"),
        (&["trace", "info", "--format", "csv:time=1,op=2,offset=3:B,length=4:B", "words"], 2, "`time` needs a unit"),
        (&["trace", "info", "--device", "7", "hm.csv"], 1, "in the trace there are: hm_0 hm_1"),
        (&["trace", "convert", "--to", "fiu", "hm.csv"], 2, "can be read, but not written"),
        (&["trace", "slice", "--until", "10", "hm.csv"], 2, "write a time with its unit"),
        (
            &["trace", "slice", "--from", "10s", "--until", "5s", "hm.csv"],
            2,
            "--until 5.00 s is not after --from 10.0 s",
        ),
        (&["trace", "slice", "--until", "0s", "hm.csv"], 2, "there is no request between them"),
        (&["trace", "slice", "-n", "0", "hm.csv"], 2, "0 is less than 1"),
        (&["advise", "hm.csv", "--within", "0s"], 2, "--within 0"),
        (&["trace", "capture", "hm.csv", "-o", "x", "--for", "0s"], 2, "nothing would be recorded"),
        (&["trace", "capture", "hm.csv", "-o", "x", "--buffer", "0"], 2, "0 is less than 1"),
        (&["trace", "capture", "hm.csv", "-o", "x"], 1, "is neither a block device nor the file behind a loop device"),
        (&["replay", "hm.csv", "--on", "disk:cheetah9lp"], 1, "--devices concatenate"),
        (&["replay", "hm.csv", "--on", "lfs / memory:64MiB"], 2, "is a file system"),
        (&["replay", "far.csv", "--on", "disk:cheetah9lp"], 1, "--map wrap or --map scale"),
        (&["replay", "far.csv", "--on", "disk:cheetah9lp", "--timing", "think"], 2, "`think` needs"),
        (&["replay", "far.csv", "--on", "disk:cheetah9lp", "--timing", "soon"], 2, "there is no timing `soon`"),
    ] {
        let ended = scratch.run(arguments);
        assert_eq!(ended.code, code, "{arguments:?}: {}", ended.err);
        assert!(ended.err.contains(said), "{arguments:?}: {}", ended.err);
        assert_eq!(ended.out, "", "{arguments:?}");
    }
    assert!(!scratch.path("x").exists(), "a recording that did not begin leaves no file");
}

/// Aim: what a replay found is printed even when its file of requests cannot be named. Method: another file takes the name while the
/// replay waits for its trace, which comes through a pipe.
#[test]
fn results_are_printed_without_their_rows() {
    let scratch = Scratch::new();
    assert!(Command::new("mkfifo").arg(scratch.path("pipe")).status().unwrap().success());
    let mut replay = scratch.command();
    replay.args(["replay", "pipe", "--on", "disk:cheetah9lp", "--rows", "rows.csv", "--format", "spc"]);
    let replay = replay.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    // Opened when the replay opens it, by which time it has looked at the name.
    let mut pipe = std::fs::OpenOptions::new().write(true).open(scratch.path("pipe")).unwrap();
    scratch.write("rows.csv", "a letter");
    std::io::Write::write_all(&mut pipe, b"0,8,4096,R,0.5\n0,800,4096,W,0.6\n").unwrap();
    drop(pipe);
    let ended = scratch.ended(&replay.wait_with_output().unwrap());
    assert_eq!(ended.code, 1, "{}", ended.err);
    assert!(ended.err.contains("rows.csv already exists"), "{}", ended.err);
    assert!(ended.out.contains("2 requests of pipe"), "{}", ended.out);
    assert_eq!(std::fs::read_to_string(scratch.path("rows.csv")).unwrap(), "a letter");
}

/// Instances that the program has left in the kernel.
fn instances_left() -> Vec<String> {
    let entries = std::fs::read_dir("/sys/kernel/tracing/instances").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("seekless-")).collect()
}

/// A recording holds the requests of a loop device while a command ran, reports a failed command, stops at Ctrl-C, and
/// leaves nothing in the kernel. Needs root, tracefs and loop devices.
#[test]
fn devices_are_recorded() {
    let scratch = Scratch::new();
    scratch.write("d.img", vec![0; 1 << 20]);
    let image = scratch.path("d.img");
    let probe = std::path::Path::new("/sys/kernel/tracing/instances/seekless-probe");
    if let Err(error) = std::fs::create_dir(probe) {
        return skip(Need::Tracefs, format_args!("cannot make {}: {error}", probe.display()));
    }
    std::fs::remove_dir(probe).unwrap();
    let Some(disk) = LoopDevice::attach(&image, 512) else { return };
    let device = disk.path().to_str().unwrap().to_owned();
    let before = instances_left();
    let read = format!("dd if={device} of=/dev/null bs=64k count=4 iflag=direct");
    let recorded = scratch.run(&["trace", "capture", "d.img", "-o", "one.gz", "--", "sh", "-c", &read]);
    let failing = format!("{read}; exit 3");
    let failed = scratch.run(&["trace", "capture", &device, "-o", "two", "--", "sh", "-c", &failing]);
    // Not over the image itself, whichever of the two is named.
    for named in [&*device, "d.img"] {
        let refused = scratch.run(&["trace", "capture", named, "-o", "d.img", "-f", "--for", "10ms"]);
        assert_eq!(refused.code, 1, "{named}: {}", refused.err);
        assert!(std::fs::read(&image).unwrap() == vec![0; 1 << 20], "{named}");
    }
    // Of an idle device nothing is recorded, and that is said.
    let idle = scratch.run(&["trace", "capture", &device, "-o", "idle", "--for", "10ms"]);
    // Ctrl-C, and a terminal that is closed; the process may have been started with the latter ignored, as by nohup.
    for (signal, name) in [("-INT", "three"), ("-HUP", "four")] {
        let program = scratch.command();
        let mut interrupted = Command::new("env");
        interrupted.arg("--default-signal=HUP").arg(program.get_program()).current_dir(scratch.path(""));
        let mut interrupted = interrupted.args(["trace", "capture", &device, "-o", name]).spawn().unwrap();
        let own = format!("/sys/kernel/tracing/instances/seekless-{}", interrupted.id());
        let is_on = |file: &str| std::fs::read_to_string(format!("{own}/{file}")).is_ok_and(|text| text.trim() == "1");
        // The last event is enabled while nothing is recorded; recording is turned on after that.
        while !(is_on("events/block/block_rq_complete/enable") && is_on("tracing_on")) {
            assert!(interrupted.try_wait().unwrap().is_none(), "the recording ended before it began");
            std::thread::sleep(Duration::from_millis(5));
        }
        for _ in 0..20 {
            Command::new("sh").args(["-c", &read]).output().unwrap();
        }
        Command::new("kill").args([signal, &interrupted.id().to_string()]).status().unwrap();
        assert_eq!(interrupted.wait().unwrap().code(), Some(0), "{signal}");
    }
    drop(disk);
    assert_eq!(recorded.code, 0, "{}", recorded.err);
    assert_eq!((failed.code, failed.err.contains("ended with 3")), (1, true), "{}", failed.err);
    // The system itself may have read the new device.
    let is_said = idle.err.contains("the device got no such request during the recording");
    assert!(idle.code == 0 || is_said, "{}", idle.err);
    for name in ["one.gz", "two", "three", "four"] {
        let info: Value = serde_json::from_str(&out(&scratch, &["trace", "info", "--json", name])).unwrap();
        let read = info["trace"]["operations"]["read"]["bytes"].as_u64().unwrap();
        assert!(read >= 4 * 65536, "{name}: {info}");
        assert_eq!(info["import"]["format"], "tracefs");
    }
    assert_eq!(instances_left(), before);
}

/// Advice is a table, sentences, JSON and a page, which a second run replaces; what is wrong is said before anything runs.
#[test]
fn storage_is_advised() {
    let scratch = Scratch::new();
    let lines: String = (0..200u64)
        .map(|n| format!("0,{},{},4096,{}\n", if n % 3 == 0 { "R" } else { "W" }, n * 7919 % 5000 * 4096, n * 50_000))
        .collect();
    scratch.write("a.csv", lines);
    let ask = [
        "advise",
        "a.csv",
        "--format",
        "alibaba",
        "--on",
        "disk:cheetah9lp",
        "--on",
        "ssd:nvme-a",
        "--price",
        "disk=80",
        "--price",
        "ssd=200",
    ];
    for _ in 0..2 {
        let ended = scratch.run(&ask);
        assert_eq!(ended.code, 0, "{}", ended.err);
        assert!(
            ended.out.contains("Fastest: ssd:nvme-a") && ended.out.contains("The page: advice.html"),
            "{}",
            ended.out
        );
        assert!(
            ended.out.contains("Cheapest of those that keep up with the trace: disk:cheetah9lp. Price 80; "),
            "{}",
            ended.out
        );
    }
    let page = std::fs::read_to_string(scratch.path("advice.html")).unwrap();
    assert!(page.contains("Storage for a.csv") && page.contains("99 of 100 requests take no longer"));
    let json = scratch.run(&[&ask[..], &["--json"]].concat());
    let last: serde_json::Value = serde_json::from_str(json.out.lines().last().unwrap()).unwrap();
    assert_eq!((last["fastest"].as_str(), last["cheapest"].as_str()), (Some("ssd:nvme-a"), Some("disk:cheetah9lp")));
    scratch.write("mine.html", "mine");
    for (more, code) in [
        (&["-o", "mine.html"][..], 1),
        (&["--price", "disk"], 2),
        (&["--price", "disk=90"], 2),
        (&["--within", "10"], 2),
        (&["--on", "lfs / disk:cheetah9lp"], 2),
    ] {
        assert_eq!(scratch.run(&[&ask[..], more].concat()).code, code, "{more:?}");
    }
    assert_eq!(std::fs::read(scratch.path("mine.html")).unwrap(), b"mine");

    let ended = scratch.run(&[&ask[..], &["--price", "foo=3"]].concat());
    assert_eq!(ended.code, 2, "{}", ended.err);
    assert!(
        ended.err.contains(
            "--price foo=...: no candidate's drive begins with `foo`\nthe drives: disk:cheetah9lp; ssd:nvme-a"
        ),
        "{}",
        ended.err
    );

    // Of candidates none of which can be asked, each is named with the reason.
    let ended = scratch.run(&["advise", "a.csv", "--format", "alibaba", "--on", "zns:zns-a"]);
    assert!(
        ended.out.contains("Fastest: none") && ended.out.contains("zns:zns-a is out of the question"),
        "{}",
        ended.out
    );
}

/// Aim: what no advice and no arrivals follow from is refused, and said once. Method: a trace without times, of one request, and with an
/// address that is beyond every candidate; a short one is answered, with a note.
#[test]
fn a_trace_that_says_too_little_gets_no_advice() {
    let scratch = Scratch::new();
    let line = |n: u64, time: u64| format!("0,R,{},4096,{time}\n", n * 4096);
    scratch.write("timeless.csv", (0..9).map(|n| line(n, 5)).collect::<String>());
    scratch.write("one.csv", line(1, 5));
    scratch.write("far.csv", format!("{}{}", line(1, 5), line(1 << 36, 9)));
    scratch.write("short.csv", (0..9).map(|n| line(n, 1000 * n)).collect::<String>());
    let on = ["--format", "alibaba", "--on", "disk:cheetah9lp", "--on", "disk:nearline-4tb"];
    for (command, trace, code, said) in [
        (&["replay", "--timing", "open"][..], "timeless.csv", 2, "all 9 have the same time"),
        (&["advise"], "timeless.csv", 2, "--timing window:8"),
        (&["advise"], "one.csv", 1, "a single request"),
        (
            &["advise"],
            "far.csv",
            1,
            "every candidate is too small: the trace touches 256.0 TiB, but the storage has 3.5 TiB",
        ),
    ] {
        let ended = scratch.run(&[command, &[trace], &on].concat());
        assert_eq!(ended.code, code, "{command:?} {trace}: {}", ended.err);
        assert_eq!(ended.err.matches(said).count(), 1, "{command:?} {trace}: {}", ended.err);
        assert_eq!(ended.out, "", "{command:?} {trace}");
    }
    assert!(!scratch.path("advice.html").exists());
    assert_eq!(scratch.run(&[&["replay", "one.csv", "--timing", "open"][..], &on].concat()).code, 0);
    let ended = scratch.run(&[&["advise", "short.csv"][..], &on].concat());
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(ended.out.contains("`99 of 100` is the slowest of them"), "{}", ended.out);
}

/// Aim: a program that fills file systems does not fill the memory of the machine, and is compared on what is alike. Method: it is refused
/// on a drive of 4 TB, whose contents no machine has room for, and with `full=0` it is not; on small drives the page says how large they are.
#[test]
fn a_program_that_fills_has_its_limits() {
    let scratch = Scratch::new();
    let small = ["--set", "largest=8KiB", "--set", "bytes=64KiB"];
    let ask = |on: &[&str], more: &[&str]| {
        let on: Vec<&str> = on.iter().flat_map(|line| ["--on", line]).collect();
        scratch.run(&[&["advise", "aged"][..], &small, &on, more].concat())
    };
    let disk = |mib: u32| format!("lfs / disk:size={mib}MiB,rpm=7200,seek=7.45ms,rate=180MiB");
    let ended = ask(&[&disk(24), "lfs / disk:nearline-4tb"], &[]);
    assert_eq!(ended.code, 1, "{}", ended.err);
    for text in
        ["`aged` fills the file systems", "`lfs / disk:nearline-4tb` would take up to 4.", "lfs / disk:size=1GiB"]
    {
        assert!(ended.err.contains(text), "{text}: {}", ended.err);
    }
    assert!(!scratch.path("advice.html").exists());
    let ended = ask(&["lfs / disk:nearline-4tb"], &["--set", "full=0"]);
    assert!(ended.code == 0 && ended.out.contains("Every file system is new and fills its drives"), "{}", ended.err);
    let ended = ask(&[&disk(24), &disk(25)], &[]);
    assert!(
        ended.code == 0 && ended.out.contains("The program fills file systems that are new before"),
        "{}",
        ended.err
    );
    let ended = ask(&[&disk(24), &disk(48)], &[]);
    assert!(
        ended.code == 0 && ended.out.contains("which differ in size: lfs / disk:size=24MiB"),
        "{} {}",
        ended.err,
        ended.out
    );
}

/// Aim: a workload has advice in the place of a trace. Method: small files on two file systems, with prices and a wanted time; a
/// file of the same name is a trace; what belongs to the other kind is refused.
#[test]
fn storage_for_a_workload_is_advised() {
    let scratch = Scratch::new();
    let disk = ["--on", "ffs / disk:cheetah9lp", "--price", "disk=80"];
    let flash = ["--on", "lfs / ssd:nvme-a,size=1GiB", "--price", "ssd=200", "--within", "1h"];
    let ask = [&["advise", "smallfile", "--set", "files=50", "--set", "bytes=1KiB"][..], &disk, &flash].concat();
    let ended = scratch.run(&ask);
    assert_eq!(ended.code, 0, "{}", ended.err);
    for text in
        ["Fastest: lfs / ssd:nvme-a", "within 3600 s: ffs / disk:cheetah9lp. Price 80; ", "Bottleneck of", "create"]
    {
        assert!(ended.out.contains(text), "{text}: {}", ended.out);
    }
    let page = std::fs::read_to_string(scratch.path("advice.html")).unwrap();
    assert!(page.contains("File system and storage for smallfile") && page.contains("Time of each phase"));
    let json = scratch.run(&[&ask[..], &["--json"]].concat());
    let last: serde_json::Value = serde_json::from_str(json.out.lines().last().unwrap()).unwrap();
    assert_eq!(last["cheapest"].as_str(), Some("ffs / disk:cheetah9lp"));
    for (more, problem) in [
        (&["--set", "fils=3"][..], "has no number `fils`"),
        (&["--set", "files=60"], "given twice"),
        (&["--set", "bytes"], "as files=500"),
        (&["--map", "wrap"], "is a workload"),
        (&["--format", "msr"], "is a workload"),
        (&["--on", "disk:cheetah9lp"], "not a file system on modelled storage"),
        (&["--on", "lfs / file:a.img"], "not a file system on modelled storage"),
    ] {
        let ended = scratch.run(&[&ask[..], more].concat());
        assert_eq!(ended.code, 2, "{more:?}: {}", ended.err);
        assert!(ended.err.contains(problem), "{more:?}: {}", ended.err);
    }
    for (name, wanted) in [
        (
            "smalfile",
            "there is no trace smalfile, and no workload of that name; did you mean `smallfile`?\nworkloads: ",
        ),
        ("unlike-all", "there is no trace unlike-all, and no workload of that name\nworkloads: "),
        ("folder/smalfile", "there is no file folder/smalfile"),
    ] {
        let ended = scratch.run(&["advise", name]);
        assert!(ended.code > 0 && ended.err.contains(wanted), "{}", ended.err);
    }
    scratch.write("smallfile", "0,R,0,4096,0\n0,W,4096,4096,5\n");
    let ended = scratch.run(&["advise", "smallfile", "--format", "alibaba", "--on", "disk:cheetah9lp"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let ended = scratch.run(&["advise", "smallfile", "--set", "files=3"]);
    assert!(ended.code == 2 && ended.err.contains("the file smallfile is taken for a trace"), "{}", ended.err);
}
