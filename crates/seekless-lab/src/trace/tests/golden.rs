//! Each format on a small sample: the meaning of its numbers, their units, and lines that are not requests.

use super::golden_tracers::TRACEFS;
use super::{as_format, lines, trace};
use crate::trace::Options;

/// Reasons with their counts.
pub(super) type Reasons = Vec<(String, u64)>;

/// Reads `sample` as `format` and, if `found`, with detection; both give `expected`. Returns skipped and rejected
/// reasons with their counts.
pub(super) fn check(format: &str, found: bool, sample: &[u8], expected: &[&str]) -> (Reasons, Reasons) {
    let (told, trace) = lines(sample, &as_format(format));
    assert_eq!(told, expected, "as {format}");
    if found {
        let (untold, trace) = lines(sample, &Options::default());
        assert_eq!(untold, expected, "found out");
        assert_eq!(trace.format().to_string(), format);
    }
    let import = trace.import();
    let pairs = |tallies: &[crate::trace::Tally]| -> Reasons {
        tallies.iter().map(|tally| (tally.reason.to_owned(), tally.count)).collect()
    };
    let requests = import.units - tallied(&import.skipped) - tallied(&import.rejected);
    assert!(import.requests >= requests, "T1: every line is accounted for");
    (pairs(&import.skipped), pairs(&import.rejected))
}

pub(super) fn tallied(tallies: &[crate::trace::Tally]) -> u64 {
    tallies.iter().map(|tally| tally.count).sum()
}

#[test]
fn seekless() {
    check(
        "seekless",
        true,
        b"time_ns,device,op,offset,bytes,flags,latency_ns,process,cpu\n\
          5,0,read,512,4096,,,,\n6,259:1,write,0,512,FS,77,12,3\n7,\"a b\",flush,0,0,,,,\n8,3,discard,1,2,M,,,\n",
        &[
            "5 0 read 512+4096 - -/-/-",
            "6 259,1 write 0+512 FS 77/12/3",
            "7 a b flush 0+0 - -/-/-",
            "8 3 discard 1+2 M -/-/-",
        ],
    );
}

/// Windows file time, bytes, response times in the same ticks, zero where unknown. The first time is that of the collection's first record.
#[test]
fn msr() {
    let (_, rejected) = check(
        "msr",
        true,
        b"128166372003061629,hm,0,Read,383496192,32768,113736\r\n\
          128166372016382155,hm,1,Write,2822144,4096,1270\r\n\
          128166372026382245,hm,0,Read,3221266432,4096,0\r\n",
        &[
            "1172163600306162900 hm_0 read 383496192+32768 - 11373600/-/-",
            "1172163601638215500 hm_1 write 2822144+4096 - 127000/-/-",
            "1172163602638224500 hm_0 read 3221266432+4096 - -/-/-",
        ],
    );
    assert_eq!(rejected, []);
}

/// Blocks of 512 bytes, sizes in bytes, seconds; either case, blanks, and further fields.
#[test]
fn spc() {
    let sample = b"0,20941264,8192,W,0.551706\n0,20939840,8192,w,0.554041\n 3, 10, 1, r, 1.5, more, fields\n";
    check(
        "spc",
        true,
        sample,
        &[
            "551706000 0 write 10721927168+8192 - -/-/-",
            "554041000 0 write 10721198080+8192 - -/-/-",
            "1500000000 3 read 5120+1 - -/-/-",
        ],
    );
    let (requests, trace) = lines(sample, &as_format("spc:4096"));
    assert_eq!(requests[2], "1500000000 3 read 40960+1 - -/-/-");
    assert!(trace.import().notes.iter().any(|note| note.contains("4096 bytes")));
}

/// Bytes and microseconds.
#[test]
fn alibaba() {
    check(
        "alibaba",
        true,
        b"0,R,126703644672,4096,1577808000000626\n7,W,8192,512,1577808000001000\n",
        &["1577808000000626000 0 read 126703644672+4096 - -/-/-", "1577808000001000000 7 write 8192+512 - -/-/-"],
    );
}

/// Sectors; whole seconds, over which requests are spread in order; 1 is a write.
#[test]
fn tencent() {
    check(
        "tencent",
        true,
        b"1538323199,105352008,584,1,1576\n1538323199,8,8,0,1576\n1538323199,16,8,0,2\n1538323199,24,8,0,2\n\
          1538323200,0,8,1,2\n",
        &[
            "1538323199000000000 1576 write 53940228096+299008 - -/-/-",
            "1538323199250000000 1576 read 4096+4096 - -/-/-",
            "1538323199500000000 2 read 8192+4096 - -/-/-",
            "1538323199750000000 2 read 12288+4096 - -/-/-",
            "1538323200000000000 2 write 0+4096 - -/-/-",
        ],
    );
}

/// Nanoseconds, sectors, and a process whose name has a blank.
#[test]
fn fiu() {
    let (_, rejected) = check(
        "fiu",
        true,
        b"89968195792462 20782 gzip 283193184 8 R 6 0 56f11b71961c2d1d39eef5e6e3ac1a3a\n\
          89968195811373 20782 a b 283193192 8 W 6 0 00f11b71961c2d1d39eef5e6e3ac1a3a\n",
        &[
            "89968195792462 6,0 read 144994910208+4096 - -/20782/-",
            "89968195811373 6,0 write 144994914304+4096 - -/20782/-",
        ],
    );
    assert_eq!(rejected, []);
}

/// Seconds that keep their digits, a header, a line without an operation.
#[test]
fn systor17() {
    let (skipped, rejected) = check(
        "systor17",
        true,
        b"Timestamp,Response,IOType,LUN,Offset,Size\n\
          1456095145.133076000,0.000806000,R,0,899056122368,131072\n\
          1456095145.133077000,0.000100000,,0,899056122368,131072\n\
          1456095145.140000000,,W,4,512,1024\n\
          1456095145.150000000,0.000000001,W,4,512,1024\n\
          1456095145.150000000,0.000000001,W,4,512,1024\n\
          1456095145.150000000,0.000000001,W,4,512,1024\n\
          1456095145.150000000,0.000000001,W,4,512,1024\n\
          1456095145.150000000,0.000000001,W,4,512,1024\n\
          1456095145.150000000,0.000000001,W,4,512,1024\n\
          1456095145.150000000,0.000000001,W,4,512,1024\n",
        &[
            "1456095145133076000 0 read 899056122368+131072 - 806000/-/-",
            "1456095145140000000 4 write 512+1024 - -/-/-",
            "1456095145150000000 4 write 512+1024 - 1/-/-",
            "1456095145150000000 4 write 512+1024 - 1/-/-",
            "1456095145150000000 4 write 512+1024 - 1/-/-",
            "1456095145150000000 4 write 512+1024 - 1/-/-",
            "1456095145150000000 4 write 512+1024 - 1/-/-",
            "1456095145150000000 4 write 512+1024 - 1/-/-",
            "1456095145150000000 4 write 512+1024 - 1/-/-",
        ],
    );
    assert_eq!(skipped, [("header".to_owned(), 1)]);
    assert_eq!(rejected, [("no operation".to_owned(), 1)]);
}

/// Version 3 has a stamp in microseconds; a sync carries the last offset and no length.
#[test]
fn iolog3() {
    let (skipped, _) = check(
        "iolog3",
        true,
        b"fio version 3 iolog\n23 /mnt/f add\n157 /mnt/f open\n162 /mnt/f read 12288 4096\n\
          373 /mnt/f write 192512 512\n380 /mnt/f sync 192512 0\n390 /mnt/f trim 0 4096\n400 /mnt/f close\n",
        &[
            "162000 /mnt/f read 12288+4096 - -/-/-",
            "373000 /mnt/f write 192512+512 - -/-/-",
            "380000 /mnt/f flush 0+0 - -/-/-",
            "390000 /mnt/f discard 0+4096 - -/-/-",
        ],
    );
    assert_eq!(skipped, [("a file is added, opened or closed".to_owned(), 3), ("header".to_owned(), 1)]);
}

/// Version 2 has waits, each relative to the one before.
#[test]
fn iolog2() {
    check(
        "iolog2",
        true,
        b"fio version 2 iolog\nf add\nf open\nf read 0 4096\nf wait 150 0\nf write 4096 4096\nf wait 1000 0\n\
          f datasync 0 0\nf close\n",
        &["0 f read 0+4096 - -/-/-", "150000 f write 4096+4096 - -/-/-", "1150000 f flush 0+0 - -/-/-"],
    );
}

/// Milliseconds, sectors, flags in base 16 whose lowest bit says read.
#[test]
fn disksim() {
    check(
        "disksim",
        true,
        b"13.191135 30 0 5 1\n14.5 2 100\t8 0\n15.000001 2 100 8 1F\n",
        &[
            "13191135 30 read 0+2560 - -/-/-",
            "14500000 2 write 51200+4096 - -/-/-",
            "15000001 2 read 51200+4096 - -/-/-",
        ],
    );
}

/// As DiskSim's in shape, but whole nanoseconds, which is reported; the last line has no end.
#[test]
fn mqsim() {
    check(
        "mqsim",
        true,
        b"4851300 0 7504 8 0\n4851500 15 1204256 16 1",
        &["4851300 0 write 3842048+4096 - -/-/-", "4851500 15 read 616579072+8192 - -/-/-"],
    );
    let (_, trace) = lines(b"4851300 0 7504 8 0\n", &Options::default());
    assert!(trace.import().why.contains("--format disksim"), "{}", trace.import().why);
}

/// Microseconds: the service that was measured, then the pause before the next arrival.
#[test]
fn validation() {
    check(
        "validation",
        true,
        b"R Hit    8437604   4  10232.00000  40169.00000\nW Trip   25805  43  28803.5  20296.786638\nR Miss 1 1 1 1\n",
        &[
            "0 0 read 4320053248+2048 - 10232000/-/-",
            "50401000 0 write 13212160+22016 - 28803500/-/-",
            "99501287 0 read 512+512 - 1000/-/-",
        ],
    );
}

/// Little-endian records; lengths in bytes though the data set's description says sectors.
#[test]
fn vscsi() {
    let record = |sn: u32, length: u32, command: u16, sector: u64, time: u64| {
        let mut one = Vec::new();
        for word in [sn, length, 1] {
            one.extend_from_slice(&word.to_le_bytes());
        }
        one.extend_from_slice(&command.to_le_bytes());
        one.extend_from_slice(&0x100u16.to_le_bytes());
        one.extend_from_slice(&sector.to_le_bytes());
        one.extend_from_slice(&time.to_le_bytes());
        assert_eq!(one.len(), 32);
        one
    };
    let sample = [
        record(1, 512, 0x2a, 42932745, 5633898611441),
        record(2, 4096, 0x28, 100, 5633898611500),
        record(3, 0, 0x35, 0, 5633898611501),
        record(4, 0, 0x12, 0, 5633898611502),
        record(5, 24, 0x42, 0, 5633898611503),
    ]
    .concat();
    let (skipped, _) = check(
        "vscsi1",
        true,
        &sample,
        &[
            "5633898611441000 0 write 21981565440+512 - -/-/-",
            "5633898611500000 0 read 51200+4096 - -/-/-",
            "5633898611501000 0 flush 0+0 - -/-/-",
        ],
    );
    let unmap = "UNMAP, whose places are not in the trace";
    assert_eq!(skipped, [(unmap.to_owned(), 1), ("another SCSI command".to_owned(), 1)]);

    let mut second = Vec::new();
    second.extend_from_slice(&0x88u16.to_le_bytes());
    second.extend_from_slice(&0x200u16.to_le_bytes());
    for word in [9u32, 1024, 1] {
        second.extend_from_slice(&word.to_le_bytes());
    }
    for word in [3u64, 7, 99] {
        second.extend_from_slice(&word.to_le_bytes());
    }
    check("vscsi2", true, &second, &["7000 0 read 1536+1024 - -/-/-"]);
}

/// Columns by number and by name, units, own words for operations, other separators; a column that is not needed.
#[test]
fn columns() {
    let told = |format: &str, sample: &[u8]| lines(sample, &as_format(format)).0;
    let sample = b"x,1.5,w,10,2,sda\ny,2,0,11,1,sdb\n";
    assert_eq!(
        told("csv:time=2:ms,op=3,offset=4:sectors,length=5:4096,device=6,read=0", sample),
        ["1500000 sda write 5120+8192 - -/-/-", "2000000 sdb read 5632+4096 - -/-/-"]
    );
    let sample = b"when; what ;\"lba\";n;took\n2;read;1;1;0.5\n3;trim;1;1;\n";
    assert_eq!(
        told("csv:time=when:s,op=what,offset=lba:KiB,length=n:B,latency=took:us,separator=;", sample),
        ["2000000000 0 read 1024+1 - 500/-/-", "3000000000 0 discard 1024+1 - -/-/-"]
    );
    assert_eq!(
        told("csv:time=1:100ns,op=2,offset=3:B,length=4:B,process=5,cpu=6,separator=space", b"  7  r   0  1 5\t2\n"),
        ["700 0 read 0+1 - -/5/2"]
    );
    // File times of Windows, whose zero is in 1601; as mere ticks they are later than any trace.
    let sample = b"128166372003061629,w,512,4096,38\n128166372016382155,r,0,512,\n";
    let expected = ["1172163600306162900 0 write 512+4096 - 3800/-/-", "1172163601638215500 0 read 0+512 - -/-/-"];
    let columns = "op=2,offset=3:B,length=4:B,latency=5:100ns";
    assert_eq!(told(&format!("csv:time=1:filetime,{columns}"), sample), expected);
    let pattern = r"regex:^(?<time_filetime>\d+),(?<op>\w+),(?<offset_B>\d+),(?<length_B>\d+),(?<latency_100ns>\d*)$";
    assert_eq!(told(pattern, sample), expected);
    for (unit, times, problem) in [
        (
            "100ns",
            "128166372003061629",
            "the time is beyond 2^63 ns; a file time, 100 ns since 1601, has the unit filetime",
        ),
        ("filetime", "100", "the time is before 1970, so it is no file time: is its unit 100ns?"),
        ("s", "128166372003061629", "the time is beyond 2^63 ns"),
    ] {
        let sample = format!("{times},w,512,4096,38\n0,r,0,512,\n");
        let options = as_format(&format!("csv:time=1:{unit},{columns}"));
        let mut trace = trace(sample.as_bytes(), &options).expect("a trace");
        while trace.next_batch(&mut Vec::new()).unwrap_or(false) {}
        let rejected = trace.import().rejected[0].reason;
        assert_eq!(rejected, problem, "{unit}");
    }
    let pattern = r"regex:t=(?<time_us>\d+) (?<op>\w+) (?<offset_sectors>\d+)\+(?<length_B>\d+)(?: on (?<device>\w+))?";
    assert_eq!(
        told(pattern, b"t=1 read 2+3 on sda\nt=2 sync 0+0\n"),
        ["1000 sda read 1024+3 - -/-/-", "2000 0 flush 0+0 - -/-/-"]
    );
}

/// Aim: no request is taken for a header, and names are found, wherever comments, blank lines and `#` before the header are.
/// Method: the same requests below each such beginning, by number and by name.
#[test]
fn headers_of_columns() {
    let by_number = |header: &str| format!("csv:time=1:s,op=2,offset=3:B,length=4:B{header}");
    let by_name = |more: &str| format!("csv:time=ts:s,op=op,offset=off:B,length=len:B{more}");
    let named = by_name("");
    let requests = "1,R,0,512\n2,W,512,512\n";
    let expected = ["1000000000 0 read 0+512 - -/-/-", "2000000000 0 write 512+512 - -/-/-"];
    for (format, beginning) in [
        (by_number(""), ""),
        (by_number(""), "\n# ts,op,off,len\n"),
        (by_number(",header=1"), "ts,op,off,len\n"),
        (by_number(",header=1"), "#ts,op,off,len\n"),
        (by_number(",header=1"), "\n \t\r\n# ts,op,off,len\r\n"),
        (by_number(",header=1"), "# made by hand\nts,op,off,len\n"),
        (by_number(",header=2"), "# made by hand\nts,op,off,len\n"),
        (by_number(",header=2"), "ts,op,off,len\ns,,B,B\n"),
        (by_number(",header=2"), "#ts,op,off,len\n#s,,B,B\n"),
        (named.clone(), "ts,op,off,len\n"),
        (named.clone(), "#ts,op,off,len\n"),
        (named.clone(), "#ts,op,off,len\r\n"),
        (by_name(",header=2"), "#ts,op,off,len\r\n#s,,B,B\r\n"),
        (named.clone(), "## \"ts\",op,off,len\n"),
        (named.clone(), "\n\n# ts, op, off, len\n\n"),
        (named.clone(), "# made by hand\n# of ts,op\nts,op,off,len\n"),
        (named.clone(), "# made by hand\n#ts,op,off,len\n# ts and op\n"),
        (by_name(",header=2"), "#ts,op,off,len\n#s,,B,B\n"),
        (by_name(",header=2"), "ts,op,off,len\ns,,B,B\n"),
        (by_name(",header=2"), "# made by hand\nts,op,off,len\n"),
        ("csv:time=#ts:s,op=op,offset=off:B,length=len:B".to_owned(), "#ts,op,off,len\n"),
    ] {
        let sample = format!("{beginning}{requests}# the end\n");
        let (requests, trace) = lines(sample.as_bytes(), &as_format(&format));
        assert_eq!(requests, expected, "{format} of {beginning:?}");
        assert!(trace.import().rejected.is_empty(), "{format} of {beginning:?}: {:?}", trace.import().rejected);
    }
    let blank = "#t op o n\n\n  1 R 0 512\n 2  W 512 512\n";
    let format = "csv:time=t:s,op=op,offset=o:B,length=n:B,separator=space";
    assert_eq!(lines(blank.as_bytes(), &as_format(format)).0, expected);
}

/// Aim: addresses and lengths of logs may be hexadecimal, where each says so. Method: both kinds of description, the largest number and
/// what is none; times and devices stay what they are.
#[test]
fn hexadecimal_columns() {
    let csv = "csv:time=1:us,op=2,offset=3:B,length=4:sectors,device=5";
    let sample = b"1,R,0x1f000,0x8,0x10\n2,W,0X1F200,8,sda\n3,R,\"0xffffffff00\",1,sda\n";
    assert_eq!(
        lines(sample, &as_format(csv)).0,
        [
            "1000 0x10 read 126976+4096 - -/-/-",
            "2000 sda write 127488+4096 - -/-/-",
            "3000 sda read 1099511627520+512 - -/-/-"
        ]
    );
    let pattern = r"regex:^(?<time_us>\d+) (?<op>\w+) (?<offset_sectors>\w+)\+(?<length_B>\w+)";
    assert_eq!(
        lines(b"1 read 0xff+0x200\n2 write 256+512\n", &as_format(pattern)).0,
        ["1000 0 read 130560+512 - -/-/-", "2000 0 write 131072+512 - -/-/-"]
    );
    let wrong =
        b"1,R,0,1,x\n2,R,1f000,8,x\n3,R,0x,8,x\n4,R,0x+1,8,x\n5,R,0x1ffffffffffffffff,8,x\n6,R,0,a,x\n7,R,here,8,x\n";
    let (_, mut rejected) = check(csv, false, wrong, &["1000 x read 0+512 - -/-/-"]);
    rejected.sort();
    assert_eq!(
        rejected,
        [
            ("the length is not a number; a hexadecimal one begins with 0x".to_owned(), 1),
            ("the offset is not a number".to_owned(), 4),
            ("the offset is not a number; a hexadecimal one begins with 0x".to_owned(), 1),
        ]
    );
}

/// Compressed samples are read as they are.
#[test]
fn compression_is_transparent() {
    use std::io::Write;
    let plain: Vec<u8> = (0..5000).flat_map(|n| format!("{n}.5 0 {n} 8 1\n").into_bytes()).collect();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&plain).expect("memory takes everything");
    let gzip = gzip.finish().expect("memory takes everything");
    let zstd = zstd::encode_all(&plain[..], 1).expect("memory takes everything");
    // Two members one after another, as `cat a.gz b.gz` makes them.
    let twice = [gzip.clone(), gzip.clone()].concat();
    let (expected, _) = lines(&plain, &Options::default());
    for (compressed, times) in [(gzip, 1), (zstd, 1), (twice, 2)] {
        let (read, _) = lines(&compressed, &Options { sort_window: 0, ..Options::default() });
        assert_eq!(read.len(), expected.len() * times);
        assert_eq!(read[..expected.len()], expected);
    }
}

/// The iterator gives what the batches give.
#[test]
fn a_trace_is_an_iterator() {
    let read = trace(TRACEFS, &Options::default()).expect("a trace");
    let requests: Vec<_> = read.into_iter().collect::<Result<_, _>>().expect("a trace");
    let (mut batches, mut expected) = (trace(TRACEFS, &Options::default()).expect("a trace"), Vec::new());
    while batches.next_batch(&mut expected).expect("a trace") {}
    assert_eq!(requests, expected);
}

/// SCSI commands in hexadecimal, microseconds, bytes and sectors, recognised by the header.
#[test]
fn cloudphysics() {
    let (skipped, rejected) = check(
        "cloudphysics:us",
        true,
        b"version,time,op,size,lbn\n1,5633898611441,28,512,42932745\n1,5633898651744,2A,4096,42932746\n\
          1,5633898651745,0x88,512,1\n1,5633898651746,12,512,1\n1,5633898651747,zz,512,1\n1,5633898651748,35,0,0\n",
        &[
            "5633898611441000 0 read 21981565440+512 - -/-/-",
            "5633898651744000 0 write 21981565952+4096 - -/-/-",
            "5633898651745000 0 read 512+512 - -/-/-",
            "5633898651748000 0 flush 0+0 - -/-/-",
        ],
    );
    assert_eq!(skipped, [("another SCSI command".into(), 1), ("header".into(), 1)]);
    assert_eq!(rejected, [("the command is no hexadecimal number".into(), 1)]);
}

/// The first twenty rows that libCacheSim publishes (data/trace.csv). The binary trace of the same requests has
/// 5633898368802 us for the first.
const CLOUDPHYSICS_SECONDS: &str = "version,time,op,size,lbn
1,5633898,2a,512,42932745
1,5633898,2a,512,42932746
1,5633898,2a,512,42932747
1,5633898,2a,6656,40409911
1,5633899,2a,6144,31954535
1,5633899,2a,57344,6238199
1,5633899,2a,4096,6160447
1,5633899,2a,4096,6160431
1,5633900,2a,2048,42600911
1,5633900,2a,8192,26185655
1,5633901,2a,512,1313767
1,5633901,2a,4096,6238311
1,5633901,2a,4096,6160455
1,5633901,2a,3584,1313768
1,5633901,2a,2560,1329911
1,5633901,2a,4096,1329916
1,5633901,2a,1536,1329924
1,5633901,2a,2560,1386815
1,5633901,2a,4096,6160447
1,5633901,2a,512,1313767
";

/// Aim: times of the published text are seconds, and those of texts made from the binary traces microseconds, though both
/// have the same header. Method: real rows; the same with other times, from the start of a machine and from zero; what
/// says nothing is an error, and the word of the user counts.
#[test]
fn cloudphysics_in_seconds() {
    let sample = CLOUDPHYSICS_SECONDS;
    for options in [Options::default(), as_format("cloudphysics"), as_format("cloudphysics:s")] {
        let (requests, trace) = lines(sample.as_bytes(), &options);
        assert_eq!(trace.format().to_string(), "cloudphysics:s");
        assert_eq!(requests.len(), 20);
        assert_eq!(requests[0], "5633898000000000 0 write 21981565440+512 - -/-/-");
        // Four requests in the first second, ten in the last.
        assert_eq!(requests[1], "5633898250000000 0 write 21981565952+512 - -/-/-");
        assert_eq!(requests[19], "5633901900000000 0 write 672648704+512 - -/-/-");
        let import = trace.import();
        assert!(options.format.is_none() != import.why.starts_with("as asked"), "{}", import.why);
        assert!(
            import.notes.iter().any(|note| note.contains("seconds") && note.contains("spread")),
            "{:?}",
            import.notes
        );
    }
    let (_, found) = lines(sample.as_bytes(), &Options::default());
    assert!(found.import().why.ends_with("its times grow by 3 over 20 requests, so they are seconds"));

    // Row by row with other times.
    let with = |time: &dyn Fn(u64) -> String, rows: u64| {
        let rows: String = (0..rows).map(|row| format!("1,{},2a,512,{row}\n", time(row))).collect();
        format!("version,time,op,size,lbn\n{rows}")
    };
    let unit = |sample: &str| match trace(sample.as_bytes(), &Options::default()) {
        Ok(trace) => trace.format().to_string(),
        Err(error) => error.to_string(),
    };
    assert_eq!(unit(&with(&|row| (5_633_898_368_802 + row).to_string(), 2)), "cloudphysics:us");
    assert_eq!(unit(&with(&|row| format!("{row}.5"), 1)), "cloudphysics:s");
    // Bursts of four every minute, and a request every 150 us from zero on.
    assert_eq!(unit(&with(&|row| (row / 4 * 60).to_string(), 40)), "cloudphysics:s");
    assert_eq!(unit(&with(&|row| (row * 150 + row % 7).to_string(), 400)), "cloudphysics:us");
    for undecided in [with(&|row| (row * 30).to_string(), 20), with(&|row| row.to_string(), 3)] {
        let problem = unit(&undecided);
        assert!(problem.ends_with("--format cloudphysics:s or --format cloudphysics:us"), "{problem}");
        let (requests, _) = lines(undecided.as_bytes(), &as_format("cloudphysics:us"));
        assert!(requests[1] == "30000 0 write 512+512 - -/-/-" || requests[1] == "1000 0 write 512+512 - -/-/-");
    }
    // Whole seconds between others keep their place.
    let mixed = "version,time,op,size,lbn\n1,7,2a,512,1\n1,7,2a,512,2\n1,8.25,2a,512,3\n1,9,2a,512,4\n";
    let (requests, _) = lines(mixed.as_bytes(), &Options::default());
    let times: Vec<&str> = requests.iter().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(times, ["7000000000", "7500000000", "8250000000", "9000000000"]);
}

/// Whole seconds, objects as sectors or as blocks, no operations. It is recognised by what its records say of each other.
#[test]
fn oracle_general() {
    let record = |second: u32, object: u64, bytes: u32, next: i64| {
        [&second.to_le_bytes()[..], &object.to_le_bytes(), &bytes.to_le_bytes(), &next.to_le_bytes()].concat()
    };
    let trace = [
        record(7, 8, 4096, 3),
        record(7, 24, 512, -1),
        record(7, 16, 8192, i64::MAX),
        record(9, 8, 4096, 77),
        record(9, 40, 512, -1),
    ]
    .concat();
    let expected = [
        "7000000000 0 read 4096+4096 - -/-/-",
        "7333333333 0 read 12288+512 - -/-/-",
        "7666666666 0 read 8192+8192 - -/-/-",
        "9000000000 0 read 4096+4096 - -/-/-",
        "9500000000 0 read 20480+512 - -/-/-",
    ];
    check("oracleGeneral", true, &trace, &expected);
    check("oracleGeneral:4096", false, &trace[..24], &["7000000000 0 read 32768+4096 - -/-/-"]);
    let torn = [&trace[..24], &record(8, u64::MAX, 512, -1), &record(9, 1, 0, -1), &trace[..5]].concat();
    let (_, rejected) = check("oracleGeneral", false, &torn, &expected[..1]);
    let reasons = [
        "a length of zero",
        "a record cut off at the end",
        "the object is beyond 2^64 bytes; if objects are hashes: --format oracleGeneral:hash",
    ];
    assert_eq!(rejected, reasons.map(|reason| (reason.to_owned(), 1)));
    // Hashes have places, the same for the same object, and no length is still no request.
    let hashed =
        [record(7, u64::MAX, 512, 2), record(7, 1 << 40, 0, -1), record(7, u64::MAX, 512, -1), record(8, 3, 9, -1)];
    let (_, rejected) = check(
        "oracleGeneral:hash",
        false,
        &hashed.concat(),
        &[
            "7000000000 0 read 1099511623680+512 - -/-/-",
            "7500000000 0 read 1099511623680+512 - -/-/-",
            "8000000000 0 read 12288+9 - -/-/-",
        ],
    );
    assert_eq!(rejected, [("a length of zero".to_owned(), 1)]);
    // It is recognised with some lengths of 0, and not where most are.
    let empty = |count: usize| -> Vec<u8> {
        (0..20).flat_map(|n| record(7, 8 * n as u64, if n < count { 0 } else { 512 }, 30 + n as i64)).collect()
    };
    assert_eq!(super::trace(&empty(10), &Options::default()).expect("a trace").format().to_string(), "oracleGeneral");
    assert!(super::trace(&empty(11), &Options::default()).is_err());
    // Random bytes, zeroes, and times that fall are not it.
    for other in [vec![0; 240], (0..240).map(|byte| (byte * 37 % 251) as u8).collect()] {
        assert!(super::trace(&other, &Options::default()).is_err());
    }
}

/// A header and big-endian records, with and without the length of the queue; the tracer's doubts and damage are counted.
#[test]
fn srt() {
    let record = |version: u32, kind: u32, fields: [u32; 10]| {
        let queue: &[u32] = if version == 4 { &[3] } else { &[] };
        let doubt: &[u32] = if kind == 4 { &[1] } else { &[] };
        let rest = [&fields[..], &[0], queue, doubt].concat();
        let whole = [&[8 + 4 * rest.len() as u32, version << 16 | kind], &rest[..]].concat();
        whole.iter().flat_map(|field| field.to_be_bytes()).collect::<Vec<u8>>()
    };
    // Seconds, microseconds, start, end, bytes, block, device, driver, cylinder, flags.
    let first = record(4, 1, [1, 500_000, 30, 25_030, 8192, 1000, 0x0e01_0200, 7, 3, 0x0100_0001]);
    let second = record(3, 1, [2, 7, 0, 100, 1024, 5, 0x0100, 7, 3, 0x100]);
    let doubted = record(4, 4, [2, 8, 0, 0, 1024, 5, 0, 7, 3, 1]);
    assert_eq!((first.len(), second.len(), doubted.len()), (56, 52, 60));
    let header = b"$$TR_IOREC-1.3\ntracedate\t= \"Sat May 30 00:00:00 1992\";\n\x0c";
    let expected = ["1500000000 2 read 1024000+8192 S 25030000/-/-", "2000007000 1 write 5120+1024 - 100000/-/-"];
    let whole = [&header[..], &first, &doubted, &second].concat();
    let (skipped, rejected) = check("srt", true, &whole, &expected);
    assert_eq!(skipped, [("a request that the tracer doubts".into(), 1), ("header".into(), 1)]);
    assert_eq!(rejected, []);
    // Joined files have no headers; and damage costs what is damaged.
    check("srt", true, &[&first[..], &second].concat(), &expected);
    let (_, rejected) = check("srt", false, &[&first[..], b"what is this?", &second, &first[..50]].concat(), &expected);
    let reasons = ["a record cut off at the end", "bytes that are no record"];
    assert_eq!(rejected, reasons.map(|reason| (reason.to_owned(), 1)));
    check("srt:512", false, &second, &["2000007000 1 write 2560+1024 - 100000/-/-"]);
}
