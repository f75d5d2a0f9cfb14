//! The bodies of the fuzz targets, on samples with random damage.

use std::panic::{AssertUnwindSafe, catch_unwind};

use seekless::rng::Rng;
use seekless::units::Nanos;

use super::written;
use crate::trace::{DeviceId, FORMATS, Flags, Names, Op, Request, fuzz};

/// One valid sample of each format.
fn samples() -> Vec<Vec<u8>> {
    let requests: Vec<Request> = (0..12)
        .map(|n| Request {
            device: DeviceId::Block(8 << 20),
            flags: Flags(n as u8),
            latency: Some(Nanos(n * 300)),
            ..Request::new(Nanos(n * 1_000_000), Op::ALL[n as usize % 4], n * 4096, if n % 4 == 3 { 0 } else { 4096 })
        })
        .collect();
    let mut samples: Vec<Vec<u8>> = FORMATS
        .iter()
        .filter(|spec| spec.writes())
        .map(|spec| written(&spec.example(), &requests, &Names::default()))
        .collect();
    let by_hand: &[&[u8]] = &[
        b"89968195792462 20782 gzip 283193184 8 R 6 0 56f11b71961c2d1d39eef5e6e3ac1a3a\n",
        b"R Hit    8437604   4  10232.00000  40169.00000\nW Trip   25805  43  28803.5  20296.786638\n",
        b"1.000000002 D WS 8 8\n0.000000001 Q WS 8 8\n",
        b"x,1.5,w,10,2,sda\ny,2,0,11,1,sdb\n",
        b"1,w,10,2,3\n2,0,11,1,4\n",
        b"when; what ;\"lba\";n;took\n2;read;1;1;0.5\n3;trim;1;1;\n",
        b"1 read 2+3\n2 sync 0+0\n",
    ];
    samples.extend(by_hand.iter().map(|sample| sample.to_vec()));
    samples
}

/// Changes a few bytes, or moves, repeats or removes a part.
fn damage(bytes: &mut Vec<u8>, rng: &mut Rng) {
    const INTERESTING: &[&[u8]] =
        &[b"18446744073709551615", b"99999999999999999999", b"-1", b",", b" ", b"\n", b"\0", b"\xff\xff\xff\xff", b"."];
    for _ in 0..rng.between(1, 4) {
        if bytes.is_empty() {
            return;
        }
        let at = rng.below(bytes.len() as u64) as usize;
        let end = at + rng.below((bytes.len() - at) as u64 + 1) as usize;
        match rng.below(5) {
            0 => bytes[at] = rng.next_u64() as u8,
            1 => bytes[at] ^= 1 << rng.below(8),
            2 => drop(bytes.drain(at..end)),
            3 => {
                let part = bytes[at..end].to_vec();
                let place = rng.below(bytes.len() as u64) as usize;
                bytes.splice(place..place, part);
            }
            _ => drop(bytes.splice(at..at, rng.pick(INTERESTING).iter().copied())),
        }
    }
}

/// Aim: no bytes do harm to a reader. Method: damaged samples, each into its reader, into others and into detection.
#[test]
fn damaged_traces_do_no_harm() {
    let samples = samples();
    for seed in 0..1500 {
        let mut rng = Rng::new(seed);
        let mut bytes = rng.pick(&samples).clone();
        damage(&mut bytes, &mut rng);
        let name = *rng.pick(fuzz::READERS);
        let calm = catch_unwind(AssertUnwindSafe(|| {
            fuzz::detect(&bytes);
            fuzz::reader(name, &bytes);
        }));
        assert!(calm.is_ok(), "seed {seed}, reader {name}, input {:?}", String::from_utf8_lossy(&bytes));
    }
}

/// Aim: no description does harm. Method: damaged descriptions, parsed and written again.
#[test]
fn damaged_descriptions_do_no_harm() {
    for seed in 0..3000 {
        let mut rng = Rng::new(seed);
        let mut text = rng.pick(fuzz::READERS).as_bytes().to_vec();
        damage(&mut text, &mut rng);
        let calm = catch_unwind(AssertUnwindSafe(|| fuzz::description(&text)));
        assert!(calm.is_ok(), "seed {seed}: {:?}", String::from_utf8_lossy(&text));
    }
}

/// Aim: inputs that once did harm do none. Method: the inputs kept for the fuzzer, and each prefix of them.
#[test]
fn kept_inputs_do_no_harm() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/trace");
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    assert!(paths.len() >= fuzz::READERS.len(), "{} has a seed for each reader", folder.display());
    for path in paths {
        let input = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for end in (0..input.len()).step_by(7).chain([input.len()]) {
            let calm = catch_unwind(AssertUnwindSafe(|| fuzz::any(&input[..end])));
            assert!(calm.is_ok(), "the first {end} bytes of {}", path.display());
        }
    }
}

/// Writes a seed for each reader: `cargo test -p seekless-lab --lib write_seeds -- --ignored`.
#[test]
#[ignore = "writes fuzz/seeds/trace"]
fn write_seeds() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/trace");
    std::fs::create_dir_all(&folder).expect("a folder");
    let samples = samples();
    for (index, name) in fuzz::READERS.iter().enumerate() {
        let good = |sample: &&Vec<u8>| {
            let mut read = super::trace(sample, &super::as_format(name)).ok()?;
            read.next_batch(&mut Vec::new()).ok().filter(|_| read.import().rejected_count() == 0)
        };
        let sample = samples.iter().find(|sample| good(sample).is_some()).unwrap_or_else(|| panic!("{name}"));
        let word: String = name.chars().take_while(char::is_ascii_alphanumeric).collect();
        std::fs::write(folder.join(format!("{index:02}-{word}")), [&[index as u8], &sample[..]].concat())
            .expect("a seed");
        let text = [&[252], name.as_bytes()].concat();
        std::fs::write(folder.join(format!("description-{index:02}-{word}")), text).expect("a seed");
    }
}
