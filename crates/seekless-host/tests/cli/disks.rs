//! Drives and their validation as a user sees them. The traces are made here: for a test, the answer to a trace must be
//! known.

use std::fmt::Write;

use seekless::disk::validation::{Measured, replay};
use seekless::disk::{DataSheet, Drive};
use seekless::units::Nanos;
use seekless_host::testing::LoopDevice;
use serde_json::Value;

use crate::Scratch;

/// Random reads and writes of a drive, "measured" on its own model and then made slower by `error`.
fn trace(drive: &Drive, requests: u64, error: Nanos) -> String {
    let line = |n: u64| {
        let word = if n.is_multiple_of(3) { "W" } else { "R" };
        format!("{word} Hit {} {} 0 {}", n * 7919 * 4001 % (drive.sectors - 64), 1 + n % 64, 1000 * (n % 40))
    };
    let lines: Vec<String> = (0..requests).map(line).collect();
    let asked: Vec<Measured> = lines.iter().map(|line| Measured::parse(line).unwrap()).collect();
    let answers = replay(drive, &asked).unwrap();
    let mut text = String::new();
    for (line, answer) in lines.iter().zip(answers) {
        let fields: Vec<&str> = line.split(' ').collect();
        let micros = (answer.modelled + error).0 as f64 / 1e3;
        writeln!(text, "{} {micros:.3} {}", fields[..4].join(" "), fields[5]).unwrap();
    }
    text
}

fn json(scratch: &Scratch, arguments: &[&str]) -> Value {
    let text = scratch.good(arguments);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn near(value: &Value, expected: f64) {
    let found = value.as_f64().unwrap();
    assert!((found - expected).abs() < 1e-6, "{found} instead of {expected}");
}

/// A model that is right has no demerit; one that is wrong by a constant has the constant as its demerit. A drive can
/// be one of the catalogue or a data sheet; the model's results do not depend on the measurements.
#[test]
fn models_are_compared_with_measurements() {
    let scratch = Scratch::new();
    let rz26 = Drive::named("dec-rz26").unwrap();
    scratch.write("right", trace(rz26, 300, Nanos::ZERO));
    scratch.write("slower", trace(rz26, 300, Nanos::from_millis(2)));
    let sheet = DataSheet::new(5400, Nanos::from_millis(10), 1 << 30, 4_000_000).drive().unwrap();
    scratch.write("sheet", trace(&sheet, 100, Nanos::ZERO));
    let generic = "disk:size=1GiB,rpm=5400,seek=10ms,rate=4MB";
    let arguments = ["disk", "validate", "dec-rz26", "right", "disk:dec-rz26", "slower", generic, "sheet"];
    let value = json(&scratch, &[&arguments[..], &["--json"]].concat());
    let [right, slower, sheet] = &value["comparisons"].as_array().unwrap()[..] else { panic!("{value}") };
    assert_eq!((&right["requests"], &right["trace"]), (&300.into(), &"right".into()));
    for key in ["demerit_ms", "per_request_rms_ms", "mean_error"] {
        near(&right[key], 0.0);
        near(&sheet[key], 0.0);
    }
    near(&slower["demerit_ms"], 2.0);
    near(&slower["per_request_rms_ms"], 2.0);
    near(&slower["within_half_ms"], 0.0);
    near(&slower["modelled_mean_ms"], slower["measured_mean_ms"].as_f64().unwrap() - 2.0);
    assert_eq!(slower["modelled_mean_ms"], right["modelled_mean_ms"]);
    assert_eq!(sheet["known_from"], "data sheet");
    assert_eq!(right["disksim_demerit_ms"], Value::Null, "DiskSim has not seen this trace");

    let text = scratch.good(&arguments);
    let row = text.lines().find(|line| line.contains("disk:dec-rz26")).unwrap();
    assert!(row.contains(" 300 ") && row.contains(" 2.000 ") && row.contains(" 2.00 "), "{text}");
}

/// The plot is a self-contained SVG file, with a diagram for each drive, also through compression.
#[test]
fn distributions_are_drawn() {
    let scratch = Scratch::new();
    let hp = Drive::named("hp97560").unwrap();
    scratch.write("a<b>&.trace", trace(hp, 200, Nanos::from_millis(1)));
    let arguments = ["disk", "validate", "hp97560", "a<b>&.trace", "hp97560", "a<b>&.trace", "--svg"];
    scratch.good(&[&arguments[..], &["fit.svg"]].concat());
    let svg = std::fs::read_to_string(scratch.path("fit.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>\n<!-- made by seekless -->"), "{svg}");
    for text in ["service time (ms)", "requests done within it (%)", "measured on the drive", "modelled"] {
        assert_eq!(svg.matches(text).count(), 2, "{text}");
    }
    assert_eq!(svg.matches("HP 97560").count(), 2);
    let addresses = svg.matches("http").count();
    assert_eq!(addresses, svg.matches("xmlns=\"http://www.w3.org/2000/svg\"").count(), "something is asked for");
    assert!(!svg.contains("<script") && !svg.contains("<image") && !svg.contains("url("));
}

/// The catalogue can be shown, for people and for programs.
#[test]
fn drives_are_shown() {
    let scratch = Scratch::new();
    assert_eq!(scratch.good(&["disk", "list"]), scratch.good(&["list", "drives"]));
    let names = json(&scratch, &["disk", "list", "--json"]);
    assert!(names.as_array().unwrap().iter().any(|drive| drive["name"] == "cheetah9lp"));
    let text = scratch.good(&["disk", "info", "cheetah9lp"]);
    for part in ["measured on the drive, validated", "DiskSim 4.0", "10045 rpm", "MB/s", "demerit figure 0.108 ms"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // As the guide has it: under a name of its own it is the same drive, and with another speed it is none that was validated.
    let file = scratch.good(&["disk", "info", "cheetah9lp", "--toml"]).replace("\"cheetah9lp\"", "\"mine\"");
    scratch.write("mine.toml", &file);
    let mine = scratch.good(&["disk", "info", "mine.toml"]);
    assert!(mine.contains("measured on the drive, validated") && mine.contains("0.108 ms"), "{mine}");
    scratch.write("faster.toml", file.replace("rpm = 10045", "rpm = 15000"));
    let faster = scratch.good(&["disk", "info", "faster.toml"]);
    assert!(faster.contains("15000 rpm") && faster.contains("no drive with its parameters was"), "{faster}");
    assert!(!faster.contains("measured on the drive") && !faster.contains("demerit figure"), "{faster}");
    let info = json(&scratch, &["disk", "info", "disk:size=1GiB,rpm=5400,seek=10ms,rate=4MB", "--json"]);
    assert_eq!((&info["rpm"], &info["known_from"]), (&5400.into(), &"data sheet".into()));
    assert_eq!(info["seek"]["three_point"]["average_ns"], 10_000_000);
    assert!(info["zones"][0]["media_bytes_per_second"].as_u64().unwrap().abs_diff(4_000_000) < 50_000, "{info}");
}

/// Aim: a drive of the catalogue can be printed, edited and used under another name, with a path of any form. Method: changed so that the change
/// shows; a device and a directory in place of the file end at once.
#[test]
fn drives_of_files() {
    let scratch = Scratch::new();
    let text = scratch.good(&["disk", "info", "hp97560", "--toml"]);
    assert!(text.starts_with("# HP 97560, as public models that name [rw94 Table 1] have it"), "{text}");
    scratch.write("my, drive.toml", text.replace("\"hp97560\"", "\"mine\"").replace("rpm = 4002", "rpm = 8004"));
    for drive in
        ["my, drive.toml", "./my, drive.toml", "disk:file=\"my, drive.toml\"", "disk:file=\"./my, drive.toml\",age=3"]
    {
        let info = json(&scratch, &["disk", "info", drive, "--json"]);
        assert_eq!((&info["name"], &info["rpm"]), (&"mine".into(), &8004.into()), "{drive}");
    }
    // What is printed of a file is the same drive again, and so is what a data sheet makes.
    for drive in ["./my, drive.toml", "disk:size=1GiB,rpm=5400,seek=10ms,rate=4MB"] {
        let text = scratch.good(&["disk", "info", drive, "--toml"]);
        scratch.write("again.toml", &text);
        assert_eq!(scratch.good(&["disk", "info", "again.toml", "--toml"]), text);
        assert_eq!(
            scratch.good(&["disk", "info", "again.toml", "--json"]),
            scratch.good(&["disk", "info", drive, "--json"])
        );
    }
    let trace = trace(&Drive::from_toml(&text).unwrap(), 50, Nanos::ZERO);
    scratch.write("hp.trace", trace);
    let shown = scratch.good(&["disk", "validate", "hp97560", "hp.trace", "my, drive.toml", "hp.trace"]);
    assert!(shown.contains("hp97560") && shown.contains("my, drive.toml"), "{shown}");
    scratch.write("wrong.toml", "name = \"a\"\nheads = 300\n");
    std::fs::create_dir(scratch.path("directory.toml")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", scratch.path("endless.toml")).unwrap();
    std::fs::write(scratch.path("binary.toml"), [0xff, 0xfe, 0]).unwrap();
    for (file, problem) in [
        ("wrong.toml", "wrong.toml: line 1: `cylinders`: this key is missing"),
        ("missing.toml", "cannot read the drive file missing.toml: No such file"),
        ("directory.toml", "cannot read the drive file directory.toml: Is a directory"),
        ("endless.toml", "endless.toml: line 1: the text has 1048577 bytes; a drive file has at most 1048576"),
        ("binary.toml", "cannot read the drive file binary.toml: it is not text in UTF-8"),
    ] {
        for arguments in [&["disk", "info", file][..], &["replay", "hp.trace", "--on", &format!("disk:file={file}")]] {
            let ended = scratch.run(arguments);
            assert_eq!(ended.code, 2, "{arguments:?}: {}", ended.err);
            assert!(ended.err.contains(problem), "{arguments:?}: {}", ended.err);
        }
    }
}

/// Aim: DiskSim's parameter files become a drive file, which takes no other file's place. Method: the sample of the guide.
#[test]
fn drives_are_imported() {
    let scratch = Scratch::new();
    let samples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/samples/disksim");
    for name in ["acme.diskspecs", "acme.model", "acme.seek"] {
        std::fs::copy(format!("{samples}/{name}"), scratch.path(name)).unwrap();
    }
    let ended = scratch.run(&["disk", "import", "acme.diskspecs"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(ended.err.starts_with("note: Skews in revolutions are rounded to whole sectors.\n"), "{}", ended.err);
    assert!(ended.err.contains("note: `Preseeking level` is left out"), "{}", ended.err);
    let drive = Drive::from_toml(&ended.out).unwrap();
    // What its zones hold; its block count is less.
    assert_eq!((&*drive.name, drive.sectors, drive.zones[1].cylinder_skew), ("acme-2000", 1_049_300, 19));
    assert_eq!(scratch.run(&["disk", "import", "acme.diskspecs", "-o", "a.toml"]).code, 0);
    assert_eq!(std::fs::read_to_string(scratch.path("a.toml")).unwrap(), ended.out);
    let refused = scratch.run(&["disk", "import", "acme.diskspecs", "-o", "a.toml"]);
    let expected = format!("{}seekless: a.toml already exists; --force replaces it\n", ended.err);
    assert_eq!((refused.code, refused.err), (1, expected));
    assert_eq!(scratch.run(&["disk", "import", "acme.diskspecs", "-o", "a.toml", "--force"]).code, 0);
    for source in ["acme.diskspecs", "acme.seek"] {
        let refused = scratch.run(&["disk", "import", "acme.diskspecs", "--force", "-o", source]);
        assert!(refused.code == 1 && refused.err.contains("is read by this command"), "{}", refused.err);
    }
    std::fs::remove_file(scratch.path("acme.model")).unwrap();
    let ended = scratch.run(&["disk", "import", "acme.diskspecs"]);
    let problem = "seekless: acme.diskspecs: line 3: cannot read acme.model: No such file";
    assert!(ended.code == 1 && ended.err.starts_with(problem) && ended.out.is_empty(), "{}", ended.err);
    assert!(scratch.run(&["disk", "import", "missing"]).err.contains("cannot read missing: No such file"));
}

/// An error in a trace, a drive or their pairing is reported with its place and a hint, and no picture is left behind.
#[test]
fn troubles_are_explained() {
    let scratch = Scratch::new();
    scratch.write("good", "R Hit 1 2 3000 4000\n");
    scratch.write("short", "R Hit 1 2 3000 4000\n\nR Hit 1 2 3000\nR\n");
    scratch.write("far", "R Hit 1 2 3000 4000\n\nW Hit 99999999 2 3000 4000\n");
    scratch.write("idle", "R Hit 1 2 0 4000\n");
    scratch.write("empty", "\n");
    scratch.write("seconds", "R Hit 1 2 3e99 4000\n");
    scratch.write("binary", [0xff; 100_000]);
    scratch.write("half.gz", [0x1f, 0x8b, 8, 0, 0]);
    for (arguments, code, said) in [
        (&["cheetah9pl", "good"][..], 2, "did you mean `cheetah9lp`?"),
        (&["Cheetah9LP", "good"], 2, "did you mean `cheetah9lp`?"),
        (
            &["good", "cheetah9lp"],
            2,
            "good is a file, where a drive is expected\na drive file ends in .toml, and each drive comes",
        ),
        (&["cheetah9lp"], 2, "2 values required"),
        (&["cheetah9lp", "good", "dec-rz26"], 2, "there is no trace for dec-rz26"),
        (&["lfs / disk:cheetah9lp", "good"], 2, "this is no single modelled disk"),
        (&["memory:64MiB", "good"], 2, "this is no single modelled disk"),
        (&["disk:rpm=5400", "good"], 2, "`disk` needs a drive of the catalogue, or `size` as well"),
        (&["disk", "good"], 2, "`disk` needs a drive of the catalogue, or `size` as well"),
        (&["disk:size=1TiB,rpm=60,seek=1ms,rate=1KiB", "good"], 2, "drive generic: "),
        (&["cheetah9lp", "gone"], 1, "cannot read gone: No such file"),
        (&["cheetah9lp", "."], 1, "cannot read .: Is a directory"),
        (&["cheetah9lp", "half.gz"], 1, "cannot read half.gz"),
        (
            &["cheetah9lp", "short"],
            1,
            "short, line 3: 5 fields instead of 6: \"R Hit 1 2 3000\" (and 1 more line like it)",
        ),
        (&["cheetah9lp", "seconds"], 1, "seconds, line 1: \"3e99\" is no time in microseconds"),
        (&["cheetah9lp", "binary"], 1, "binary, line 1: 1 field instead of 6"),
        (
            &["cheetah9lp", "far"],
            1,
            "far, line 3: request of 1024 bytes at sector 99999999 passes the end of the device",
        ),
        (&["cheetah9lp", "far"], 1, "was it measured on another drive?"),
        (&["cheetah9lp", "idle"], 1, "no request took any time"),
        (&["cheetah9lp", "empty"], 1, "there is no request in empty"),
        (&["cheetah9lp", "good", "--svg", "no/where.svg"], 1, "cannot write no/where.svg: No such file"),
    ] {
        let own: &[&str] = if arguments.contains(&"--svg") { &[] } else { &["--svg", "x.svg"] };
        let ended = scratch.run(&[&["disk", "validate"], arguments, own].concat());
        assert_eq!(ended.code, code, "{arguments:?}: {}", ended.err);
        assert!(ended.err.contains(said), "{arguments:?}: {}", ended.err);
        assert!(ended.err.len() < 2000, "{arguments:?}: {}", ended.err.len());
        assert_eq!(ended.out, "", "{arguments:?}");
    }
    assert!(!scratch.path("x.svg").exists());
    let ended = scratch.run(&["disk", "info", "hp97650"]);
    assert_eq!((ended.code, ended.err.contains("did you mean `hp97560`?")), (2, true), "{}", ended.err);
}

/// Aim: times in another unit are noticed and read. Method: the times of a modelled drive in each unit, with and without the unit's name; the
/// hint is used as it is.
#[test]
fn units_of_times_are_noticed() {
    let scratch = Scratch::new();
    let rz26 = Drive::named("dec-rz26").unwrap();
    let lines = trace(rz26, 600, Nanos::from_micros(100));
    scratch.write("us", &lines);
    let plain = json(&scratch, &["disk", "validate", "dec-rz26", "us", "--json"]);
    assert_eq!(plain["unit"], "us");
    for (name, factor) in [("ms", 1e3), ("s", 1e6)] {
        let scaled = |line: &str| {
            let mut fields: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            for field in &mut fields[4..] {
                *field = format!("{:.9}", field.parse::<f64>().unwrap() / factor);
            }
            fields.join(" ") + "\n"
        };
        scratch.write(name, lines.lines().map(scaled).collect::<String>());
        for command in
            [&["disk", "validate", "dec-rz26", name][..], &["disk", "fit", name, "--from", "dec-rz26", "-o", "x.toml"]]
        {
            let ended = scratch.run(command);
            assert_eq!(ended.code, 1, "{command:?}: {}", ended.out);
            assert!(ended.err.contains(&format!("seconds: --unit {name}; if they are")), "{command:?}: {}", ended.err);
        }
        let told = json(&scratch, &["disk", "validate", "dec-rz26", name, "--unit", name, "--json"]);
        near(&told["comparisons"][0]["demerit_ms"], plain["comparisons"][0]["demerit_ms"].as_f64().unwrap());
        assert_eq!(told["unit"], name);
        let text = scratch.good(&["disk", "validate", "dec-rz26", name, "--unit", "us"]);
        assert!(text.contains("times of the traces: taken for microseconds"), "{text}");
        let output = format!("{name}.toml");
        let fit = ["disk", "fit", name, "--from", "dec-rz26", "--unit", name, "-o", &output, "--replays", "1"];
        assert_eq!(scratch.run(&fit).code, 0);
    }
    let ended = scratch.run(&["disk", "validate", "dec-rz26", "us", "--unit", "min"]);
    assert!(ended.code == 2 && ended.err.contains("units of time are us, ms and s"), "{}", ended.err);
}

/// Aim: the size on a data sheet is rounded, which the trace of the drive must not fail for, and another drive's still does. Method: the example of
/// `disk fit --help` with a trace that reaches to the last sector of such a drive, and one that reaches far beyond.
#[test]
fn a_rounded_size_holds_its_trace() {
    let scratch = Scratch::new();
    let help = scratch.good(&["disk", "fit", "--help"]);
    let sheet = help.split_whitespace().find(|word| word.starts_with("disk:size=9")).unwrap();
    assert!(sheet.starts_with("disk:size=9.1GB,"), "{sheet}");
    let lines = trace(Drive::named("dec-rz26").unwrap(), 400, Nanos::from_millis(1));
    // The last sector of a drive that is sold with 9.1 GB.
    scratch.write("mine.trace", format!("{lines}R Hit 17783239 1 9000 1000\n"));
    let ended = scratch.run(&["disk", "fit", "mine.trace", "--from", sheet, "-o", "mine.toml", "--replays", "20"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(
        ended.err.contains("its size is taken to be rounded") && ended.err.contains("size=9105018880,"),
        "{}",
        ended.err
    );
    assert!(scratch.good(&["disk", "info", "mine.toml"]).contains("17783240 sectors"));
    assert_eq!(scratch.run(&["disk", "validate", sheet, "mine.trace"]).code, 0);
    scratch.write("far.trace", "R Hit 37783239 1 9000 1000\n");
    let ended = scratch.run(&["disk", "validate", sheet, "far.trace"]);
    assert!(ended.code == 1 && ended.err.contains("was it measured on another drive?"), "{}", ended.err);
}

/// Aim: what is wrong with a drive, a trace or a measurement comes with what to do next. Method: wrong words and files of a first-time user, one
/// at a time.
#[test]
fn wrong_words_come_with_a_remedy() {
    let scratch = Scratch::new();
    let rz26 = Drive::file_text("dec-rz26").unwrap();
    scratch.write("key.toml", rz26.replace("\nrpm = ", "\nrmp = "));
    scratch.write("type.toml", rz26.replacen("\nheads = ", "\nheads = 0.5 # ", 1));
    scratch.write("drive.toml", rz26);
    scratch.write("in.csv", "1;2;R;3\n");
    scratch.write("old.specs", "Disk brand name: HP_C2247A\nAccess time (in msecs): -1.0\n");
    let head = "engine,format,case,block_size,iodepth,iops";
    scratch.write("columns.csv", format!("# measured\n{head}\n"));
    scratch.write("case.csv", format!("{head},latency_mean_us\nio_uring,lbaf3,wrte/4096bs/1zone,4096,16,300000,53\n"));
    scratch.write("value.csv", format!("{head},latency_mean_us\nio_uring,lbaf3,write/4096bs/1zone,4096,16,-3,53\n"));
    for (arguments, said) in [
        (&["disk", "info", "key.toml"][..], "did you mean `rpm`?\na whole drive file, to compare: seekless disk info"),
        (&["disk", "info", "type.toml"], "is expected here, not a number with a fraction"),
        (&["disk", "info", "disk:size=4TB,rpm=7200,seek=8ms,rate=180MB/s"], "write it without `/s`"),
        (&["disk", "info", "disk:size=4XB,rpm=7200,seek=8ms,rate=180MB"], "TiB, kB, MB, GB, TB"),
        (&["disk", "info", "disk:size=1TiB,rpm=60,seek=1ms,rate=1KiB"], "1 TiB do not fit on 16777216 cylinders"),
        (&["disk", "import", "drive.toml"], "it is a drive file already: seekless disk info drive.toml"),
        (&["disk", "import", "in.csv"], "in.csv does not look like a file of DiskSim"),
        (&["disk", "import", "old.specs"], "old.specs is a file of DiskSim 1 or 2"),
        (&["disk", "measure", "gone"], "a device is a disk such as /dev/sdb"),
        (&["trace", "info", "in.csv", "--format", "mrs"], "did you mean `msr`?"),
        (&["trace", "info", "in.csv", "--format", "msr"], "is it of another format?"),
        (&["trace", "info", "in.csv", "--format", "csv:time=1:us"], "for example csv:time=1:us,op=2"),
        (&["replay", "in.csv", "--on", "lfs / disk:dec-rz26"], "without it: --on 'disk:dec-rz26'"),
        (&["replay", "in.csv", "--on", "gone.toml"], "there is no drive file gone.toml\na stack has a drive file as"),
        (&["advise", "smallfile", "--set", "files=many"], "--set files=many: a whole number from 0 on is expected"),
        (
            &["flash", "validate", "nvme-a", "columns.csv"],
            "line 2: there is no column `latency_mean_us`\nthe first line names",
        ),
        (&["flash", "validate", "nvme-a", "case.csv"], "a case is operation/block size/zones"),
        (&["flash", "validate", "nvme-a", "value.csv"], "line 2: iops \"-3\" is no number from 0"),
        (&["flash", "validate", "ssd:nvme-a,dies=63"], "63 dies do not spread evenly over"),
        (&["clean", "greedy", "--pattern", "trace"], "which one? For example trace:file=my.trace"),
    ] {
        let ended = scratch.run(arguments);
        assert!(matches!(ended.code, 1 | 2) && ended.err.contains(said), "{arguments:?}: {}", ended.err);
    }
    // Of a stack that cannot be opened, the line is that of the user.
    scratch.write("a.trace", "time_ns,device,op,offset,bytes,flags,latency_ns,process,cpu\n1,0,read,0,512,,,,\n");
    let ended = scratch.run(&["replay", "a.trace", "--on", "raid5:n=2 / disk:dec-rz26"]);
    assert!(ended.code == 1 && ended.err.contains("raid5:n=2 / disk:dec-rz26\n"), "{}", ended.err);
    assert!(!ended.err.contains("keep"), "{}", ended.err);
}

/// Aim: a drive file by another name than `*.toml` is recognised, and the name that the hint gives works. Method: here and in a folder.
#[test]
fn a_drive_file_by_another_name_gets_a_name_that_works() {
    let scratch = Scratch::new();
    scratch.make_directory("d");
    let text = Drive::file_text("dec-rz26").unwrap();
    for name in ["mine", "./mine", "d/mine.drive"] {
        scratch.write(name, text);
        let ended = scratch.run(&["disk", "info", name]);
        let (_, hint) = ended.err.split_once("it is a drive file: name it ").unwrap_or_else(|| panic!("{}", ended.err));
        let pasted = hint.split_once(", or").unwrap().0;
        assert!(scratch.good(&["disk", "info", pasted]).starts_with("dec-rz26\n"), "{pasted}");
    }
    scratch.write("a, b", text);
    let ended = scratch.run(&["disk", "info", "a, b"]);
    assert!(ended.code == 2 && ended.err.contains("let its name end in .toml"), "{}", ended.err);
}

/// Aim: flash drives are listed and compared, with measurements of the project and with one's own. Method: the errors of both
/// halves, a file of two lines, and a picture; wrong drives and files are named.
#[test]
fn flash_drives_are_compared() {
    let scratch = Scratch::new();
    assert!(scratch.good(&["flash", "list"]).contains("ssd:nvme-a"));
    assert!(json(&scratch, &["flash", "list", "--json"])[0]["source"].as_str().unwrap().contains("do23"));
    let info = json(&scratch, &["flash", "info", "ssd:nvme-a,spare=28%", "--json"]);
    assert!(info["spare"]["share"].as_f64().is_some_and(|share| (0.28..0.282).contains(&share)), "{info}");
    assert!(scratch.good(&["flash", "info", "zns-a"]).contains("904 of 1.1 GiB, 2 GiB apart; at most 14 open"));
    for (command, drive, hint) in [
        ("flash", "cheetah9lp", "one of: nvme-a"),
        ("flash", "disk:cheetah9lp", "it is a disk: `seekless disk --help`"),
        ("disk", "ssd:nvme-a", "it is a flash drive: `seekless flash --help`"),
        ("disk", "zns:zns-a", "it is a flash drive: `seekless flash --help`"),
    ] {
        let ended = scratch.run(&[command, "info", drive]);
        assert!(ended.code == 2 && ended.err.contains(hint), "{drive}: {}", ended.err);
    }
    let head = "engine,format,case,block_size,iodepth,iops,latency_mean_us\n";
    let lines = "io_uring,lbaf3,write/4096bs/1zone,4096,16,300000,53\nio_uring,lbaf3,append/4096bs/1zone,4096,16,1,1\n";
    scratch.write("mine.csv", format!("{head}{lines}"));
    let value = json(&scratch, &["flash", "validate", "nvme-a", "mine.csv", "--svg", "fit.svg", "--json"]);
    assert_eq!((&value["cases"][0]["measured_iops"], &value["without_answer"]), (&300_000.0.into(), &1.into()));
    let modelled = value["cases"][0]["modelled_iops"].as_f64().unwrap();
    assert!((250_000.0..350_000.0).contains(&modelled), "{modelled}");
    let slower = json(&scratch, &["flash", "validate", "ssd:nvme-a,program=8.39ms", "mine.csv", "--json"]);
    assert!(slower["cases"][0]["modelled_iops"].as_f64().unwrap() < modelled / 8.0);
    let svg = std::fs::read_to_string(scratch.path("fit.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("commands outstanding") && svg.contains("write (io_uring, lbaf3)"));
    assert!(
        scratch
            .good(&["flash", "validate", "nvme-a", "mine.csv"])
            .contains("1 case has an operation that this drive lacks")
    );
    // The measurements that come with the project.
    let value = json(&scratch, &["flash", "validate", "nvme-a", "--json"]);
    assert!(value["cases"].as_array().is_some_and(|cases| cases.len() > 100), "{value}");
    // A search that ends too early says so.
    let case = |operation, depth| format!("io_uring,lbaf3,{operation}/4096bs/1zone,4096,{depth},300000,{depth}\n");
    let few: String =
        ["write", "randwrite", "read"].map(|operation| case(operation, 1) + &case(operation, 16)).concat();
    scratch.write("few.csv", format!("{head}{few}"));
    let ended = scratch.run(&["flash", "fit", "nvme-a", "few.csv", "--drives", "2"]);
    assert!(
        ended.code == 0 && ended.err.contains("ended at its limit of 2 drives; --drives allows more"),
        "{}",
        ended.err
    );
    scratch.write("bad.csv", format!("{head}io_uring,lbaf3,write/4096bs/1zone,4096,zero,1,1\n"));
    for (arguments, problem) in [
        (["nvme-b", "mine.csv"], "nvme-a"),
        (["disk:cheetah9lp", "mine.csv"], "no single modelled flash drive"),
        (["nvme-a", "bad.csv"], "line 2"),
    ] {
        let ended = scratch.run(&[&["flash", "validate"][..], &arguments].concat());
        assert!(ended.code != 0 && ended.err.contains(problem), "{arguments:?}: {}", ended.err);
    }
}

/// A drive is fitted to a trace: what is written is a drive file that describes the trace better than the drive to begin with, also in
/// the half that was not fitted. Nothing is replaced without --force, and the trace is never the output.
#[test]
fn a_drive_is_fitted() {
    let scratch = Scratch::new();
    let rz26 = Drive::named("dec-rz26").unwrap();
    let trace = trace(rz26, 600, Nanos::from_millis(2));
    scratch.write("slower", &trace);
    let fit = ["disk", "fit", "slower", "--from", "dec-rz26", "-o", "fitted.toml", "--replays", "200", "--json"];
    let first = scratch.run(&fit);
    assert_eq!(first.code, 0, "{}", first.err);
    let value: Value = serde_json::from_str(&first.out).unwrap();
    for half in ["fitted_half", "other_half"] {
        near(&value["before"][half]["demerit_ms"], 2.0);
        assert!(value["after"][half]["demerit_ms"].as_f64().unwrap() < 0.8, "{value:#}");
        assert_eq!(value["after"][half]["requests"], 300, "{value:#}");
    }
    let validated = json(&scratch, &["disk", "validate", "fitted.toml", "slower", "--json"]);
    assert!(validated["comparisons"][0]["demerit_ms"].as_f64().unwrap() < 0.8, "{validated:#}");
    let again = scratch.run(&fit);
    assert!(again.code == 1 && again.err.contains("--force"), "{}", again.err);
    let own = scratch.run(&["disk", "fit", "slower", "--from", "dec-rz26", "-o", "slower", "--force"]);
    assert_ne!(own.code, 0);
    assert_eq!(std::fs::read_to_string(scratch.path("slower")).unwrap(), trace);
    // Without -o the drive file is what is printed.
    let printed = scratch.run(&["disk", "fit", "slower", "--from", "dec-rz26", "--name", "mine", "--replays", "20"]);
    assert_eq!((printed.code, printed.err.contains("other half")), (0, true), "{}", printed.err);
    assert_eq!(&*Drive::from_toml(&printed.out).unwrap().name, "mine");
}

/// Aim: a fit that makes the half worse that it has not seen says so. Method: a trace whose halves are of two drives.
#[test]
fn a_fit_that_does_not_hold_says_so() {
    let scratch = Scratch::new();
    let rz26 = Drive::named("dec-rz26").unwrap();
    let first = trace(rz26, 300, Nanos::from_millis(3));
    let half = |text: &str, first: bool| -> Vec<String> {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let middle = lines.len() / 2;
        if first { lines[..middle].to_vec() } else { lines[middle..].to_vec() }
    };
    let second = trace(rz26, 300, Nanos::ZERO);
    scratch.write("halves", [half(&first, true), half(&second, false)].concat().join("\n") + "\n");
    let fit = ["disk", "fit", "halves", "--from", "dec-rz26", "-o", "fitted.toml", "--replays", "60", "--json"];
    let ended = scratch.run(&fit);
    assert!(
        ended.code == 0 && ended.err.contains("the half that was not fitted is worse than before"),
        "{}",
        ended.err
    );
    let value: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(value["other_half_is_worse"], true, "{value:#}");
    let demerit = |when: &str| value[when]["other_half"]["demerit_ms"].as_f64().unwrap();
    assert!(demerit("after") > demerit("before"), "{value:#}");
    // One that holds does not.
    scratch.write("slower", &first);
    let ended = scratch.run(&["disk", "fit", "slower", "--from", "dec-rz26", "--replays", "60"]);
    assert!(ended.code == 0 && !ended.err.contains("worse than before"), "{}", ended.err);
}

/// What cannot be fitted or measured is refused with the reason and a hint.
#[test]
fn what_cannot_be_fitted_or_measured_is_refused() {
    let scratch = Scratch::new();
    let rz26 = Drive::named("dec-rz26").unwrap();
    let right = trace(rz26, 300, Nanos::ZERO);
    let milliseconds: String = right
        .lines()
        .map(|line| {
            let fields: Vec<&str> = line.split(' ').collect();
            let service = fields[4].parse::<f64>().unwrap() / 1000.0;
            format!("{} {service:.6} {}\n", fields[..4].join(" "), fields[5])
        })
        .collect();
    scratch.write("ms", milliseconds);
    scratch.write("few", right.lines().take(50).map(|line| format!("{line}\n")).collect::<String>());
    scratch.write("right", right);
    scratch.write("image", vec![0; 64 << 20]);
    for (arguments, code, problem) in [
        (&["fit", "ms", "--from", "dec-rz26"][..], 1, "microseconds"),
        (&["fit", "few", "--from", "dec-rz26"], 1, "50 requests are too few"),
        (&["fit", "right", "--from", "hp97560-wa99"], 1, "was it measured on another drive?"),
        (&["fit", "right", "--from", "dec-rz62"], 2, "dec-rz26"),
        (&["fit", "right", "--from", "dec-rz26", "--name", "No Name"], 2, "lower case"),
        (&["fit", "/dev/zero", "--from", "dec-rz26"], 1, "cannot read /dev/zero: it exceeds 256 MiB"),
        (&["measure", "image"], 1, "no rotation"),
        (&["measure", "missing"], 1, "missing"),
        (&["measure", "nbd+unix:///?socket=missing"], 1, "cannot connect"),
        (&["measure", "nbd+unix:///"], 2, "socket=PATH"),
        (&["measure", "image", "--places", "2"], 2, "at least 8"),
        (&["measure", "image", "--time", "0"], 2, "0 is less than 1"),
    ] {
        let run = scratch.run(&[&["disk"], arguments].concat());
        assert!(run.code == code && run.err.contains(problem), "{arguments:?}: {} {}", run.code, run.err);
        assert!(run.out.is_empty(), "{}", run.out);
    }
}

/// Aim: a block device is measured like an image, and only read. Method: a loop device, which has no rotation to be found.
#[test]
fn a_loop_device_has_no_rotation() {
    let scratch = Scratch::new();
    scratch.write("image", (0..64u64 << 20).map(|at| at as u8).collect::<Vec<_>>());
    let Some(device) = LoopDevice::attach(&scratch.path("image"), 512) else { return };
    let run = scratch.run(&["disk", "measure", device.path().to_str().unwrap()]);
    assert!(run.code == 1 && run.err.contains("no rotation") && run.out.is_empty(), "{} {}", run.code, run.err);
    let after = std::fs::read(scratch.path("image")).unwrap();
    assert!(after.iter().enumerate().all(|(at, &byte)| byte == at as u8), "it is only read");
}

/// Aim: a flash drive is fitted to a file of measurements, and the line that is printed is a drive. Method: few cases that a slower
/// drive would have, few attempts; the line goes into `flash validate`; files that will not do are refused.
#[test]
fn a_flash_drive_is_fitted() {
    let scratch = Scratch::new();
    let mut lines = "engine,format,case,block_size,iodepth,iops,latency_mean_us\n".to_owned();
    for size in [4096, 8192, 65536] {
        for format in ["lbaf0", "lbaf3"] {
            let latency = 20.0 + f64::from(size) / 1000.0;
            lines += &format!("io_uring,{format},write/{size}bs,{size},1,{},{latency}\n", 1e6 / latency);
        }
    }
    scratch.write("mine.csv", &lines);
    let fit = ["flash", "fit", "nvme-a", "mine.csv", "--drives", "40"];
    let ended = scratch.run(&fit);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let line = ended.out.lines().last().unwrap();
    assert!(line.starts_with("ssd:nvme-a,") && ended.out.contains("after, fitted"), "{}", ended.out);
    let json = scratch.run(&[&fit[..], &["--json"]].concat());
    let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(json["drive"].as_str(), Some(line));
    let error = |when: &str| json[when]["fitted"]["latency_median"].as_f64().unwrap();
    assert!(error("after") < error("before"), "{json}");
    let checked = scratch.run(&["flash", "validate", line, "mine.csv"]);
    assert_eq!(checked.code, 0, "{}", checked.err);
    // What is kept stays, and what no case depends on is that of the drive also where the fit begins with round figures.
    let kept = scratch.run(&[&fit[..], &["--round", "--keep", "program,link-rate"]].concat());
    let line = kept.out.lines().last().unwrap();
    assert!(line.contains(",command=") && !line.contains("program=") && !line.contains("read="), "{line}");
    let ended = scratch.run(&[&fit[..4], &["--keep", "size"]].concat());
    assert!(ended.code == 2 && ended.err.contains("possible values: program, "), "{}", ended.err);
    scratch.write("none.csv", "engine,format,case,block_size,iodepth,iops,latency_mean_us\n");
    for option in ["--cases", "--drives"] {
        let ended = scratch.run(&[&fit[..4], &[option, "0"]].concat());
        assert!(ended.code == 2 && ended.err.contains("0 is less than 1"), "{option}: {}", ended.err);
    }
    for (file, code) in [("none.csv", 1), ("gone.csv", 1)] {
        let ended = scratch.run(&["flash", "fit", "nvme-a", file]);
        assert_eq!(ended.code, code, "{file}: {}", ended.err);
    }
}
