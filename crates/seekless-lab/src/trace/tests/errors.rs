//! Errors are reported: nothing usable, unknown devices, files that are missing or do not belong together.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::{as_format, lines, trace};
use crate::trace::input::Input;
use crate::trace::{DeviceId, Event, FORMATS, Format, Names, Op, Options, Request, Summary, Trace, TraceWriter};
use seekless::units::Nanos;

fn failure(sample: &[u8], options: &Options) -> String {
    let mut trace = trace(sample, options).unwrap_or_else(|error| panic!("{error}"));
    let mut out = Vec::new();
    loop {
        match trace.next_batch(&mut out) {
            Ok(true) => {}
            Ok(false) => panic!("no error, but {out:?}"),
            Err(error) => return error.to_string(),
        }
    }
}

/// A trace without a usable request is an error that lists why lines were not used.
#[test]
fn nothing_usable() {
    let text = failure(b"0,1,0,R,1.0\nnothing\n", &as_format("spc"));
    assert!(text.contains("no request in sample") && text.contains("2 lines, read as spc"), "{text}");
    assert!(text.contains("1 x a length of zero, first line 1: 0,1,0,R,1.0"), "{text}");
    assert!(text.contains("1 x the ASU is not a number, first line 2: nothing"), "{text}");
    let queued = b" a-1 [0] 1.0: block_bio_queue: 7,0 R 8 + 8 [a]\n";
    let text = failure(queued, &Options { event: Some(Event::Issue), ..Options::default() });
    assert!(text.contains("1 x queue event"), "{text}");
    // Without an option, the available event is taken.
    let mut trace = trace(queued, &Options::default()).expect("a trace");
    assert!(trace.next_batch(&mut Vec::new()).expect("a request"));
    assert!(trace.import().notes.iter().any(|note| note.contains("queued")));
}

/// Aim: what is compressed in a way that is not read is named, with a pipe that reads it. Method: the first bytes of each such file, and
/// text that begins like one.
#[test]
fn compressed_in_another_way() {
    let xz = [0xfd, b'7', b'z', b'X', b'Z', 0, 0, 4];
    for (bytes, how, command) in [
        (&xz[..], "xz", "xz -dc <'my trace.csv' | seekless trace info -"),
        (b"BZh91AY&SY", "bzip2", "bzip2 -dc <'my trace.csv' | seekless"),
        (&[4, 0x22, 0x4d, 0x18, 0x64, 0x40], "lz4", "lz4 -dc <'my trace.csv' | seekless"),
        (b"PK\x03\x04\x14\x00\x00", "zip", "funzip <'my trace.csv' | seekless"),
        (&[0x1f, 0x9d, 0x90, 0, 0, 0], "compress", "zcat <'my trace.csv' | seekless"),
    ] {
        let read = Box::new(std::io::Cursor::new(bytes.to_vec()));
        let error = Trace::from_reader("my trace.csv", read, &Options::default()).map(|_| ()).expect_err(how);
        let text = error.to_string();
        assert!(text.contains(&format!("it is compressed with {how}, and")) && text.contains(command), "{text}");
    }
    let text = "BZhang,1,2,R,512\n";
    let read = Box::new(std::io::Cursor::new(text.as_bytes().to_vec()));
    let options = as_format("csv:device=1,time=2:s,offset=3:sectors,op=4,length=5:B");
    assert!(Trace::from_reader("text", read, &options).is_ok());
}

/// Aim: text in an unusual dress is read, or the error says how to undress it, in words that work. Method: marks of UTF-8 and
/// UTF-16, a header that is missing, columns between other separators, a compressed file that is cut off.
#[test]
fn text_in_another_dress() {
    let whole = |text: &str| lines(text.as_bytes(), &Options::default()).0;
    let plain = "version,time,op,size,lbn\n1,5633898611441,28,4096,8\n1,5633898611443,2a,512,800\n";
    assert_eq!(whole(&format!("\u{feff}{plain}")), whole(plain));
    assert_eq!(whole(&plain.replace('\n', "\r\n")), whole(plain));
    let problem = |bytes: &[u8]| match trace(bytes, &Options::default()) {
        Ok(trace) => panic!("opened as {}", trace.format()),
        Err(error) => error.to_string(),
    };
    for (mark, high) in [([0xff, 0xfe], 1), ([0xfe, 0xff], 0)] {
        let pair = |byte: u8| if high == 1 { [byte, 0] } else { [0, byte] };
        let wide: Vec<u8> = mark.into_iter().chain(plain.bytes().flat_map(pair)).collect();
        let text = problem(&wide);
        assert!(
            text.contains("UTF-16") && text.contains("cat <sample | iconv -f UTF-16 -t UTF-8 | seekless"),
            "{text}"
        );
    }
    for odd in [plain.lines().skip(1).collect::<Vec<_>>().join("\n"), plain.replace(',', ", ")] {
        let text = problem(odd.as_bytes());
        assert!(text.ends_with("could be cloudphysics: --format cloudphysics"), "{text}");
        assert_eq!(lines(odd.as_bytes(), &as_format("cloudphysics")).0, whole(plain));
    }

    for (separator, word) in
        [(";", ",separator=;"), ("\t", ",separator=tab"), ("  ", ",separator=space"), ("|", ",separator=|")]
    {
        let odd = plain.replace(',', separator);
        let text = problem(odd.as_bytes());
        assert!(text.contains("4 is \"size\", 5 is \"lbn\""), "{text}");
        // The hint is a format, which needs other numbers and the words of this file alone.
        let hint = text.split("--format '").nth(1).and_then(|rest| rest.split('\'').next()).expect("a format");
        assert!(hint.ends_with(&format!("{word},header=1")), "{hint}");
        let right = hint.replace("time=1:us,op=2,offset=3:B,length=4:B", "time=2:us,op=3,offset=5:sectors,length=4:B");
        assert_eq!(lines(odd.as_bytes(), &as_format(&format!("{right},read=28,write=2a"))).0, whole(plain));
        assert_eq!(lines(odd.as_bytes(), &as_format(&format!("{right},read=28,write=2A"))).0, whole(plain));
    }
    // Without columns, and with columns that are no numbers.
    for odd in ["at 5 us: read 8+8\nwrite 800 at 7\n", "[0.1] dev=a RD 0x88+8\n[0.2] dev=a WR 0x90+8\n"] {
        let text = problem(odd.as_bytes());
        let hint = text.split("--format '").nth(1).and_then(|rest| rest.strip_suffix('\'')).expect("a format");
        assert!(hint.starts_with("regex:") && Format::parse(hint).is_ok(), "{hint}");
    }

    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, plain.repeat(50).as_bytes()).expect("memory");
    let mut packed = packed.finish().expect("memory");
    packed.truncate(packed.len() - 9);
    let text = match trace(&packed, &Options::default()) {
        Err(error) => error.to_string(),
        Ok(mut trace) => {
            let mut out = Vec::new();
            std::iter::from_fn(|| trace.next_batch(&mut out).err()).next().expect("it is cut off").to_string()
        }
    };
    assert!(text.contains("cut off") && text.contains(" zcat <sample 2>/dev/null | seekless trace info -"), "{text}");
    let input = Input::new("my traces/a".to_owned(), Box::new(std::io::empty())).expect("nothing to read");
    assert_eq!(input.shell("| wc"), "cat <'my traces/a' | wc");
}

/// Aim: times of which the sums do not fit 64 bits are no times, in any format, and the report has the line. Method: minus one
/// and minus a millisecond without the sign, among times near zero, of lines and of requests in memory.
#[test]
fn times_below_zero() {
    let sample =
        "5,0,read,512,4096,,,,\n18446744073709551615,0,read,512,4096,,,,\n6,0,read,0,512,,18446744073708551616,,\n";
    let (requests, trace) = lines(sample.as_bytes(), &as_format("seekless"));
    assert_eq!(requests, ["5 0 read 512+4096 - -/-/-"]);
    let rejected = trace.import().rejected;
    let found: Vec<_> = rejected.iter().map(|tally| (tally.reason, tally.first_at)).collect();
    assert_eq!(found, [("the latency is beyond 2^63 ns", 3), ("the time is beyond 2^63 ns", 2)]);
    let given = [5, 1 << 63, u64::MAX].map(|time| Ok(Request::new(Nanos(time), Op::Read, 0, 512)));
    let mut trace = Trace::of_requests("a table", given.into_iter(), &[], &Options::default()).expect("a trace");
    let error = trace.next_batch(&mut Vec::new()).expect_err("the last has no time");
    assert_eq!(error.to_string(), "request 3: the time is beyond 2^63 ns");
}

/// Devices that are not in the trace: the error lists those that are.
#[test]
fn other_devices() {
    let sample = b"0,1,512,R,1.0\n3,1,512,R,1.0\n";
    let only =
        |devices: &[&str]| Options { devices: devices.iter().map(|d| d.to_string()).collect(), ..as_format("spc") };
    let text = failure(sample, &only(&["7"]));
    assert!(text.contains("asked for the devices 7; in the trace there are: 0 3"), "{text}");
    let requests: Vec<_> =
        trace(sample, &only(&["3"])).expect("a trace").into_iter().collect::<Result<_, _>>().expect("requests");
    assert_eq!(requests.len(), 1);
    // One of several that are asked for is not there: the others are passed on, and it is said.
    let notes = |sample: &[u8], options: &Options| {
        let (requests, trace) = lines(sample, options);
        (requests.len(), trace.import().notes.iter().filter(|note| note.contains("asked for")).cloned().collect())
    };
    let expected: (usize, Vec<String>) = (1, vec!["asked for the devices 7, 9; in the trace there are: 0 3".into()]);
    assert_eq!(notes(sample, &only(&["7", "3", "9"])), expected);
    assert_eq!(notes(sample, &only(&["0", "3"])), (2, vec![]));
    // A device may come later than the part that was read.
    let long: String = (0..20_000).map(|number| format!("3,{number},512,R,1.0\n")).collect();
    let text = long + "9,1,512,R,1.0\n";
    let mut begun = trace(text.as_bytes(), &only(&["3", "9"])).expect("a trace");
    begun.next_batch(&mut Vec::new()).expect("requests");
    assert!(!begun.import().notes.iter().any(|note| note.contains("asked for")), "{:?}", begun.import().notes);
    // Block devices as the file writes them.
    let sample =
        b"time_ns,device,op,offset,bytes,flags,latency_ns,process,cpu\n0,8:0,read,0,512,,,,\n1,9:0,read,0,512,,,,\n";
    for called in ["8:0", "8,0"] {
        let options = Options { devices: vec![called.to_owned(), "9,0".to_owned()], ..Options::default() };
        assert_eq!(notes(sample, &options), (2, vec![]), "{called}");
    }
}

/// Aim: T1 holds where a device was chosen: what is counted of other devices is requests, and their completions and requeues are skipped as
/// such. Method: a request of one device and two of another, each given back once and with its completion, as text of each tracer and as
/// records, with and without latencies.
#[test]
fn events_of_other_devices_are_accounted_for() {
    let of_device = |minor| [(1, "D", minor), (2, "R", minor), (3, "D", minor), (4, "C", minor)];
    for sample in super::of_tracers(&[0, 1, 1].map(of_device).concat()) {
        for latency in [false, true] {
            let options = Options { devices: vec!["7,0".to_owned()], latency, ..Options::default() };
            let (requests, trace) = lines(&sample, &options);
            let import = trace.import();
            // Issues of the others are counted as they are, also those that were given back.
            assert_eq!((requests.len(), import.requests, import.other_devices), (1, 1, 4), "{latency}");
            let skipped =
                |reason| import.skipped.iter().find(|tally| tally.reason == reason).map_or(0, |tally| tally.count);
            assert_eq!([skipped("completion of another device"), skipped("requeue of another device")], [2, 2]);
            let all: u64 = import.skipped.iter().map(|tally| tally.count).sum();
            assert_eq!(
                import.units,
                import.requests + import.other_devices + all + u64::from(latency),
                "T1: {latency}"
            );
        }
    }
}

/// A device of an msr trace by its name, as the file has it, and by the number or numbers that it has in the trace from which the file was
/// made; another host's disk with that number is not meant. Method: numbered devices written as msr, beside a host of the
/// collection.
#[test]
fn devices_of_msr_have_several_names() {
    let requests: Vec<Request> = [DeviceId::Number(0), DeviceId::Number(3), DeviceId::Block(8 << 20 | 3)]
        .iter()
        .map(|&device| Request { device, ..Request::new(Nanos(0), Op::Read, 0, 512) })
        .collect();
    let mut sample = super::written("msr", &requests, &Names::default());
    sample.extend_from_slice(b"128166372003061629,hm,3,Read,383496192,32768,113736\n");
    for (called, expected) in [
        ("disk_3", "disk_3"),
        ("3", "disk_3"),
        ("disk,3", "disk_3"),
        ("8,3", "disk_8:3"),
        ("hm_3", "hm_3"),
        ("hm,3", "hm_3"),
    ] {
        let options = Options { devices: vec![called.to_owned()], ..Options::default() };
        let (requests, _) = super::lines(&sample, &options);
        let found: Vec<_> = requests.iter().map(|line| line.split(' ').nth(1)).collect();
        assert_eq!(found, [Some(expected)], "{called}");
    }
    let text = failure(&sample, &Options { devices: vec!["hm".to_owned()], ..Options::default() });
    assert!(text.contains("asked for the devices hm; in the trace there are: disk_0 disk_3"), "{text}");
}

/// Files: missing, empty, of two formats, of several devices in one directory; per-processor files by their base.
#[test]
fn files() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let write = |name: &str, bytes: &[u8]| std::fs::write(path(name), bytes).expect("a file");
    let open = |paths: &[PathBuf]| Trace::open(paths, &Options::default());
    let problem = |paths: &[PathBuf]| match open(paths) {
        Ok(trace) => panic!("opened as {}", trace.format()),
        Err(error) => error.to_string(),
    };
    assert!(problem(&[path("gone")]).contains("no file"));
    assert!(problem(&[folder.path().to_owned()]).contains("no files NAME.blktrace.0"));
    write("empty", b"");
    assert!(problem(&[path("empty")]).contains("nothing in it"));
    write("spc", b"0,1,512,R,1.0\n");
    write("msr", b"128166372003061629,hm,0,Read,383496192,32768,113736\n");
    assert!(problem(&[path("spc"), path("msr")]).contains("not one trace"));
    write("cut.gz", &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0]);
    assert!(problem(&[path("cut.gz")]).contains("cannot read"));

    let request = |time, sector: u64| Request {
        device: crate::trace::DeviceId::Block(1),
        ..Request::new(Nanos(time), Op::Read, sector * 512, 512)
    };
    let processor = |requests: &[Request]| super::written("blktrace", requests, &Names::default());
    write("sda.blktrace.0", &processor(&[request(1, 1), request(5, 2)]));
    write("sda.blktrace.1", &processor(&[request(3, 3), request(4, 4)]));
    write("sda.blktrace.10", b"");
    for name in ["", "sda", "sda.blktrace"] {
        let requests: Vec<_> =
            open(&[path(name)]).expect("a trace").into_iter().collect::<Result<_, _>>().expect("requests");
        assert_eq!(requests.iter().map(|request| request.sector().0).collect::<Vec<_>>(), [1, 3, 4, 2], "{name}");
    }
    // A processor without events has an empty file, the first as well as any other.
    write("sda.blktrace.0", b"");
    write("sda.blktrace.10", &processor(&[request(1, 1), request(5, 2)]));
    let each: Vec<PathBuf> = ["sda.blktrace.0", "sda.blktrace.1", "sda.blktrace.10"].map(path).into();
    for paths in [vec![path("")], vec![path("sda")], vec![path("sda.blktrace")], each] {
        let requests: Vec<_> = open(&paths).expect("a trace").into_iter().collect::<Result<_, _>>().expect("requests");
        assert_eq!(requests.iter().map(|request| request.sector().0).collect::<Vec<_>>(), [1, 3, 4, 2], "{paths:?}");
    }
    assert!(problem(&[path("empty"), path("empty")]).contains("nothing in it"));
    write("sda.blktrace.0", &processor(&[request(1, 1), request(5, 2)]));
    let alone = open(&[path("sda.blktrace.0")]).expect("a trace");
    assert!(alone.import().notes.iter().any(|note| note.contains("2 files of other processors")));
    write("sdb.blktrace.0", &processor(&[request(1, 1)]));
    assert!(problem(&[folder.path().to_owned()]).contains("several devices"));
}

/// Aim: no writer merges two devices into one. Method: a request of each of several devices, some of which have the same number in
/// another sense, through every writer; what comes back has as many devices as requests.
#[test]
fn writers_keep_devices_apart() {
    let mut names = Names::default();
    let named = names.intern(b"disk_a").expect("few names");
    let devices =
        [DeviceId::Number(3), DeviceId::Number(0), named, DeviceId::Block(8 << 20), DeviceId::Number(8 << 20)];
    for spec in FORMATS.iter().filter(|spec| spec.writes() && spec.parameter.is_none()) {
        let mut writer = TraceWriter::new(&Format::parse(spec.name).expect("a format"), Vec::new()).expect("a writer");
        let request =
            |device, at: u64| Request { device, ..Request::new(Nanos(at * 1_000_000_000), Op::Read, at * 4096, 4096) };
        let all = devices.iter().chain(&devices).zip(1..);
        all.for_each(|(device, at)| writer.write(&request(*device, at), &names).expect("memory takes everything"));
        let (written, bytes) = writer.finish().expect("memory takes everything");
        let mut read = trace(&bytes, &as_format(spec.name)).expect("a trace");
        let mut back = Vec::new();
        while read.next_batch(&mut back).unwrap_or_else(|error| panic!("{}: {error}", spec.name)) {}
        let kept: BTreeSet<DeviceId> = back.iter().map(|request| request.device).collect();
        assert_eq!(back.len() as u64, written.requests, "{}", spec.name);
        assert_eq!(back.len(), 2 * kept.len(), "{}: {kept:?}", spec.name);
        let dropped: u64 = written.dropped.iter().map(|(_, count)| count).sum();
        assert_eq!(written.requests + dropped, 10, "{}", spec.name);
        if ["vscsi1", "vscsi2", "cloudphysics"].contains(&spec.name) {
            let reason = "is of another device, and the format has one; choose it with --device";
            assert_eq!(written.dropped, [(reason, 8)], "{}", spec.name);
            assert_eq!(back.iter().map(|request| request.offset).collect::<Vec<_>>(), [4096, 6 * 4096]);
        }
    }
}

/// Aim: an unknown response time stays unknown in a format that needs a number, and the report says so. Method: a known one and an
/// unknown one there and back.
#[test]
fn unknown_response_times() {
    let mut names = Names::default();
    let device = names.intern(b"hm_0").expect("few names");
    let request = |at: u64, latency| Request { device, latency, ..Request::new(Nanos(at), Op::Read, at * 512, 512) };
    let sent = [request(100, None), request(200, Some(Nanos(700))), request(300, None)];
    let mut writer = TraceWriter::new(&Format::parse("msr").expect("a format"), Vec::new()).expect("a writer");
    sent.iter().for_each(|request| writer.write(request, &names).expect("memory takes everything"));
    let (written, bytes) = writer.finish().expect("memory takes everything");
    assert_eq!(written.latencies_unknown, 2);
    let back: Vec<_> =
        trace(&bytes, &as_format("msr")).expect("a trace").into_iter().collect::<Result<_, _>>().expect("requests");
    assert_eq!(back, sent);
    // An empty field says the same elsewhere.
    let mut writer = TraceWriter::new(&Format::parse("systor17").expect("a format"), Vec::new()).expect("a writer");
    sent.iter().for_each(|request| writer.write(request, &names).expect("memory takes everything"));
    assert_eq!(writer.finish().expect("memory takes everything").0.latencies_unknown, 0);
}

/// A writer skips and counts requests that its format cannot hold, and reports truncated times.
#[test]
fn writers_bend_nothing() {
    let names = Names::default();
    let mut writer = TraceWriter::new(&Format::parse("disksim").expect("a format"), Vec::new()).expect("a writer");
    for request in [
        Request::new(Nanos(1), Op::Read, 512, 512),
        Request::new(Nanos(1), Op::Read, 100, 512),
        Request::new(Nanos(1), Op::Discard, 512, 512),
        Request::new(Nanos(1), Op::Flush, 0, 0),
    ] {
        writer.write(&request, &names).expect("memory takes everything");
    }
    let (written, bytes) = writer.finish().expect("memory takes everything");
    assert_eq!(bytes, b"0.000001 0 1 1 1\n");
    assert_eq!((written.requests, written.dropped.len(), written.times_cut), (1, 3, 0));
    let mut writer = TraceWriter::new(&Format::parse("alibaba").expect("a format"), Vec::new()).expect("a writer");
    writer.write(&Request::new(Nanos(1_500), Op::Read, 512, 512), &names).expect("memory takes everything");
    assert_eq!(writer.finish().expect("memory takes everything").0.times_cut, 1);

    // Waits are from the first request on, wherever that is in the history of the world.
    let mut writer = TraceWriter::new(&Format::parse("iolog2").expect("a format"), Vec::new()).expect("a writer");
    let date = 1_577_808_000_000_000_500;
    for time in [date, date + 2_000, date + 2_000, date + 5_000] {
        writer.write(&Request::new(Nanos(time), Op::Read, 512, 512), &names).expect("memory takes everything");
    }
    let (written, bytes) = writer.finish().expect("memory takes everything");
    assert_eq!(written.from_ns, Some(date));
    let text = String::from_utf8(bytes).expect("text");
    let waits: Vec<&str> = text.lines().filter(|line| line.contains("wait")).collect();
    assert_eq!(waits, ["disk-0 wait 2 0", "disk-0 wait 3 0"]);
}

/// Response times that a format shortens or has no place for are counted.
#[test]
fn shortened_latencies_are_counted() {
    let counts = |format: &str, time: u64, latency: u64| {
        let mut writer = TraceWriter::new(&Format::parse(format).expect(format), Vec::new()).expect(format);
        let request = Request { latency: Some(Nanos(latency)), ..Request::new(Nanos(time), Op::Read, 0, 4096) };
        writer.write(&request, &Names::default()).expect("memory takes everything");
        let written = writer.finish().expect("memory takes everything").0;
        (written.requests, written.latencies_cut, written.latencies_lost)
    };
    for (format, time, latency, cut, lost) in [
        ("msr", 5000, 1_234_567, 1, 0),
        ("msr", 5000, 1_234_500, 0, 0),
        ("msr", 5000, 50, 0, 1),
        ("seekless", 5000, 1_234_567, 0, 0),
        ("systor17", 5000, 1_234_567, 0, 0),
        ("alibaba", 5000, 1_000_000, 0, 1),
        ("spc", 5000, 1_000_000, 0, 1),
        ("vscsi1", 5000, 1_000_000, 0, 1),
        ("tracefs", 5500, 1000, 0, 0),
        ("tracefs", 5500, 1400, 1, 0),
        ("blkparse", 5500, 1400, 0, 0),
    ] {
        assert_eq!(counts(format, time, latency), (1, cut, lost), "{format}, {latency}");
    }
}

/// Two devices never become one, though their names are the same once a format has replaced characters of them.
#[test]
fn devices_stay_apart() {
    for (format, one, two) in [("iolog3", "a b", "a_b"), ("seekless", "x\"y", "x_y"), ("msr", "sda", "sda_0")] {
        let mut names = Names::default();
        let devices = [one, two].map(|name| names.intern(name.as_bytes()).expect("two names"));
        let mut writer = TraceWriter::new(&Format::parse(format).expect(format), Vec::new()).expect(format);
        for device in [devices[0], devices[1], devices[0]] {
            let request = Request { device, ..Request::new(Nanos(0), Op::Read, 0, 4096) };
            writer.write(&request, &names).expect("memory takes everything");
        }
        let written = writer.finish().expect("memory takes everything").0;
        assert_eq!((written.requests, written.dropped.len()), (2, 1), "{format}: {:?}", written.dropped);
    }
}

/// Latencies in a wrong unit do not let all of a trace wait for its completions.
#[test]
fn waiting_completions_are_limited() {
    for format in ["blkparse", "tracefs", "blktrace"] {
        let mut writer = TraceWriter::new(&Format::parse(format).expect(format), Vec::new()).expect(format);
        let mut write = |time: u64, latency: u64| {
            let request = Request { latency: Some(Nanos(latency)), ..Request::new(Nanos(time), Op::Read, 0, 4096) };
            writer.write(&request, &Names::default()).expect("memory takes everything");
        };
        (0..70_000).for_each(|n| write(n * 1000, 1 << 60));
        write(1 << 61, 1000);
        let written = writer.finish().expect("memory takes everything").0;
        assert_eq!((written.requests, written.dropped.len()), (65_537, 1), "{format}");
    }
}

/// Aim: an opcode table names what the file has, and no opcode is taken for another. Method: opcodes as numbers with and without `0x`, and as
/// decimal numbers, against tables of each kind; a digit alone may be either, so that only the same word is the same.
#[test]
fn opcode_tables() {
    let ops = |opcodes: [&str; 2], table: &str| {
        let [one, two] = opcodes;
        let sample = format!("1,{one},0,512\n2,{two},0,512\n");
        let mut trace =
            trace(sample.as_bytes(), &as_format(&format!("csv:time=1:us,op=2,offset=3:B,length=4:B,{table}")))
                .expect("a trace");
        let mut requests = Vec::new();
        while trace.next_batch(&mut requests).unwrap_or(false) {}
        let ops: Vec<Op> = requests.iter().map(|request| request.op).collect();
        (ops, trace.import().rejected.first().map(|rejected| rejected.reason))
    };
    let both = (vec![Op::Read, Op::Write], None);
    for (opcodes, table) in [
        (["28", "2a"], "read=28,write=2a"),
        (["28", "2A"], "read=28,write=2a"),
        (["0x28", "0x2a"], "read=0x28,write=0x2A"),
        (["0x28", "0X2A"], "read=0x028,write=0x2a"),
        (["0x28", "0x2a"], "read=40,write=42"),
        (["40", "42"], "read=0x28,write=0x2a"),
        (["0x88", "0x2a"], "read=0x28,read=0x88,write=0x2a"),
    ] {
        assert_eq!(ops(opcodes, table), both, "{opcodes:?} {table}");
    }
    // Hexadecimal digits without 0x may be decimal ones.
    let (found, why) = ops(["0x28", "0x2a"], "read=28,write=2a");
    assert!(found.is_empty() && why.expect("a reason").contains("named by read=0x28"), "{found:?} {why:?}");
    let (found, why) = ops(["28", "42"], "read=0x28,write=0x2a");
    assert_eq!((found, why), (vec![Op::Write], Some("the operation is unknown")));
}

/// Aim: of msr lines with times that cannot be, those that say what was asked count. Method: response times below zero, with and without their
/// sign, are unknown, and counted; a time of zero is rejected, and times that go back are sorted.
#[test]
fn msr_with_times_that_cannot_be() {
    let sample = b"128166372003061629,hm,0,Read,0,4096,-113736\n\
          128166372016382155,hm,0,Write,4096,4096,18446744073709437880\n\
          0,hm,0,Read,8192,4096,500\n\
          128166372016382154,hm,0,Read,12288,4096,99999999999999999\n\
          128166372016382156,hm,0,Read,16384,4096,-\n\
          128166372016382156,hm,0,Read,20480,4096,-7\n";
    let (requests, trace) = super::lines(sample, &as_format("msr"));
    let expected = [
        "1172163600306162900 hm_0 read 0+4096 - -/-/-",
        "1172163601638215400 hm_0 read 12288+4096 - -/-/-",
        "1172163601638215500 hm_0 write 4096+4096 - -/-/-",
        "1172163601638215600 hm_0 read 20480+4096 - -/-/-",
    ];
    assert_eq!(requests, expected);
    let import = trace.import();
    let pairs = |tallies: &[crate::trace::Tally]| {
        tallies.iter().map(|tally| (tally.reason, tally.count, tally.first_at)).collect::<Vec<_>>()
    };
    let rejected = [
        ("the response time is not a number", 1, 5),
        ("the time is zero or before 1970, so it is no Windows file time", 1, 3),
    ];
    assert_eq!((pairs(&import.skipped), pairs(&import.rejected)), (Vec::new(), rejected.to_vec()));
    let in_part = [
        ("the response time is below zero, taken for unknown", 2, 1),
        ("the response time is beyond 2^63 ns, taken for unknown", 2, 2),
    ];
    assert_eq!(pairs(&import.in_part), in_part);
    assert_eq!((import.out_of_order, import.back_max_ns, import.too_late), (1, 100, 0));
    let text = import.to_text();
    assert!(
        text.contains("  used in part: 2 x the response time is below zero, taken for unknown, first line 1"),
        "{text}"
    );
}

/// Aim: a request with a wrong time, far from all others, is pointed out, as a replay waits for it. Method: it is first or last by days, by minutes,
/// and none is.
#[test]
fn a_time_far_from_all_others_is_pointed_out() {
    let warned = |wrong: u64| {
        let line = |n: u64, time: u64| format!("{time},usr,0,Read,{},4096,500\n", n * 4096);
        let start = 128_166_372_003_061_629;
        let mut sample: String = (0..200).map(|n| line(n, start + n * 1_000_000)).collect();
        sample += &line(200, wrong);
        let (mut trace, mut summary) =
            (trace(sample.as_bytes(), &as_format("msr")).expect("a trace"), Summary::default());
        let mut requests = Vec::new();
        while trace.next_batch(&mut requests).expect("lines") {}
        requests.iter().for_each(|request| summary.add(request));
        let warnings = summary.warnings(trace.format(), &trace.import());
        warnings.iter().any(|warning| warning.contains("may have a wrong time"))
    };
    const DAY: u64 = 864_000_000_000;
    let start = 128_166_372_003_061_629;
    assert_eq!([start - 3 * DAY, start + 3 * DAY, start + DAY / 240, start].map(warned), [true, true, false, false]);
}
