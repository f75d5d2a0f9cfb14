//! Aim: decoding returns what was encoded, whatever it was, and no input causes a panic. Method: every codec, on data
//! of several kinds and all small lengths; then damaged and invented bytes.

use super::*;
use crate::rng::Rng;

const HERE: Position = Position { file_id: 1, chunk: 2, generation: 3 };

fn all() -> Vec<Arc<dyn Codec>> {
    let mut codecs: Vec<Arc<dyn Codec>> = (0..=u8::MAX).filter_map(known).collect();
    codecs.push(Arc::new(Deflate { level: 9 }));
    codecs.push(Arc::new(Zstd { level: -5 }));
    codecs.push(Arc::new(Zstd { level: 19 }));
    codecs
}

/// Zeroes, repetitive text, noise, and a mixture.
fn samples(bytes: usize) -> Vec<Vec<u8>> {
    let mut noise = vec![0; bytes];
    Rng::new(bytes as u64).fill(&mut noise);
    let text: Vec<u8> = b"all work and no play makes jack a dull boy\n".iter().copied().cycle().take(bytes).collect();
    let mixed = noise.iter().zip(&text).map(|(noise, text)| if noise % 8 == 0 { *noise } else { *text }).collect();
    vec![vec![0; bytes], text, noise, mixed]
}

#[test]
fn encoding_is_undone() {
    let lengths = (0..=260).chain([4095, 4096, 4097, 65_535, 65_536, CHUNK_BYTES_MAX]);
    for bytes in lengths {
        for raw in samples(bytes) {
            for codec in all() {
                let Some(stored) = codec.encode(&raw, &HERE) else { continue };
                let name = codec.name();
                assert!(!codec.shrinks() || stored.len() < raw.len(), "{name}: raw is better");
                assert!(codec.decode(&stored, bytes, &HERE) == Ok(raw.clone()), "{name} of {bytes} bytes");
                for wrong in [bytes + 1, bytes.saturating_sub(1)] {
                    if wrong != bytes {
                        assert!(codec.decode(&stored, wrong, &HERE).is_err(), "{name}: {wrong} instead of {bytes}");
                    }
                }
            }
        }
    }
}

/// Compressible data is compressed, and other data is left raw.
#[test]
fn compressors_compress() {
    for codec in all().into_iter().filter(|codec| codec.shrinks()) {
        let samples = samples(65_536);
        for (raw, least) in [(&samples[0], 100), (&samples[1], 10)] {
            let stored = codec.encode(raw, &HERE).expect("it shrinks").len();
            assert!(stored * least < raw.len(), "{} makes {stored} bytes of {}", codec.name(), raw.len());
        }
        assert_eq!(codec.encode(&samples[2], &HERE), None, "{}", codec.name());
    }
}

/// A thread keeps its contexts: what it has compressed or failed to decompress before, at whatever level, leaves no trace.
#[test]
fn zstd_depends_on_the_chunk_alone() {
    let alone =
        |raw: &[u8], level: i32| zstd::bulk::compress(raw, level).ok().filter(|stored| stored.len() < raw.len());
    let mut rng = Rng::new(7);
    for bytes in [1usize << 10, 70_000, 65_536, 9, (1 << 20) + 1, 65_536] {
        let mut words = vec![0; bytes];
        rng.fill(&mut words);
        words.iter_mut().for_each(|byte| *byte %= 16);
        for level in [3, 19, -5, 1, 3] {
            let codec = Zstd { level };
            let stored = codec.encode(&words, &HERE);
            assert_eq!(stored, alone(&words, level), "{bytes} bytes at level {level}");
            let Some(stored) = stored else { continue };
            assert!(codec.decode(&stored[..stored.len() - 1], bytes, &HERE).is_err());
            assert_eq!(codec.decode(&stored, bytes, &HERE), Ok(words.clone()));
        }
    }
}

/// The characters are those of uuencode(1), which encodes `Cat` as `0V%T`.
#[test]
fn uuencode_is_what_it_says() {
    assert_eq!(Uuencode.encode(b"Cat", &HERE).as_deref(), Some(&b"0V%T"[..]));
    assert_eq!(Uuencode.encode(b"", &HERE).as_deref(), Some(&b""[..]));
    assert!(Uuencode.decode(b"0V%a", 3, &HERE).is_err());
    assert!(Uuencode.decode(b"0_", 1, &HERE).is_err(), "bits behind the end");
}

/// Checksums are verified before codecs run; a codec that gets damaged bytes anyway returns an error or other bytes.
#[test]
fn damaged_bytes_do_no_harm() {
    let mut rng = Rng::new(1);
    for raw in samples(3_000) {
        for codec in all() {
            let Some(stored) = codec.encode(&raw, &HERE) else { continue };
            for _ in 0..200 {
                let mut damaged = stored.clone();
                let at = rng.below(damaged.len() as u64) as usize;
                damaged[at] ^= 1 << rng.below(8);
                damaged.truncate(rng.between(1, damaged.len() as u64) as usize);
                let _ = codec.decode(&damaged, raw.len(), &HERE);
            }
        }
    }
    let mut noise = vec![0; 2_000];
    for round in 0..400 {
        rng.fill(&mut noise);
        for codec in all() {
            let _ = codec.decode(&noise[..round * 5], 65_536, &HERE);
        }
    }
}

/// A sealed chunk decrypts only with its key, at its position, unchanged.
#[test]
fn sealed_chunks_open_at_their_place() {
    let key = |byte| Key::new([byte; 32]);
    let inners: [Option<Arc<dyn Codec>>; 2] = [None, Some(Arc::new(Zstd::default()))];
    for inner in inners {
        let codec = Sealed::new(&key(1), inner.clone());
        for bytes in [1, 15, 16, 17, 4096, 65_536] {
            for raw in samples(bytes) {
                let stored = codec.encode(&raw, &HERE).expect("everything is encrypted");
                assert!(codec.decode(&stored, bytes, &HERE) == Ok(raw.clone()));
                assert!(bytes < 16 || !stored.windows(16).any(|window| raw.starts_with(window)));
                let elsewhere = [
                    Position { file_id: 2, ..HERE },
                    Position { chunk: 0, ..HERE },
                    Position { generation: 4, ..HERE },
                ];
                for place in elsewhere {
                    assert!(codec.decode(&stored, bytes, &place).is_err());
                }
                assert!(codec.decode(&stored, bytes + 1, &HERE).is_err());
                assert!(Sealed::new(&key(2), inner.clone()).decode(&stored, bytes, &HERE).is_err());
                let mut rng = Rng::new(bytes as u64);
                for _ in 0..20 {
                    let mut changed = stored.clone();
                    let at = rng.below(changed.len() as u64) as usize;
                    changed[at] ^= 1 << rng.below(8);
                    assert!(codec.decode(&changed, bytes, &HERE).is_err(), "byte {at}");
                    assert!(codec.decode(&stored[..at], bytes, &HERE).is_err(), "cut at {at}");
                }
            }
        }
    }
}
