//! Aim: with `encrypt` no content can be read below, and no other content is accepted in its place. Method: the
//! comparison with the model, a search for the plain text, and an attacker that changes files below.

use super::*;
use crate::fs::client::Client;
use crate::fs::{FsError, OpenFlags};
use crate::layer::codecs::{Key, Sealed};
use crate::testing::{Comparison, Generator, OpMix, Pair, Space};

fn sealed(key: u8) -> Options {
    Options { plain: Plain::Error, ..tiny(Arc::new(Sealed::new(&Key::new([key; 32]), None))) }
}

#[test]
fn it_answers_as_the_model() {
    for seed in replay("secret::it_answers_as_the_model").seeds(0..2) {
        simulate(seed, async |rt| {
            let (lower, model) = (model(&rt), model(&rt));
            let fs = stack_on(&rt, lower.clone(), sealed(1)).await.unwrap();
            let mut pair = Pair::new(&rt, fs, model, Comparison { times: false, ..Comparison::default() });
            for op in Generator::new(seed, Space::small(), OpMix::CURIOUS).take(600) {
                pair.apply(&op).await.unwrap_or_else(|mismatch| panic!("seed {seed}, {mismatch}"));
            }
            pair.release().await.unwrap();
            pair.check_trees().await.unwrap_or_else(|mismatch| panic!("seed {seed}, {mismatch}"));
            pair.fs().close().await.unwrap();
            assert_clean(&rt, &(lower as Fs), &sealed(1)).await;
        });
    }
}

/// Small appends and large writes reach the file system below by different paths: no plain text is there.
#[test]
fn nothing_is_stored_in_the_clear() {
    const SECRET: &[u8] = b"this text is secret!";
    simulate(1, async |rt| {
        let lower = model(&rt);
        let below = Client::new(lower.clone() as Fs);
        let fs = stack_on(&rt, lower.clone(), sealed(1)).await.unwrap();
        let client = Client::new(fs.clone());
        let file = client.create(b"/f").await.unwrap();
        for number in 0..600u64 {
            client.write(file, number * SECRET.len() as u64, SECRET).await.unwrap();
            if number % 7 == 0 {
                client.fsync(file).await.unwrap();
                let stored = below.read_file(b"/f").await.unwrap();
                assert!(!stored.windows(8).any(|window| window == &SECRET[..8]), "after {number}");
            }
        }
        client.close(file).await.unwrap();
        fs.close().await.unwrap();
        // Another key reads nothing, and no key reads nothing, also where the directory's mark is missing.
        for options in [sealed(2), zstd()] {
            let put = stack_on(&rt, lower.clone(), options.clone()).await.map(drop);
            assert!(matches!(put, Err(FsError::Invalid(_))), "{put:?}");
            let stored = below.read_file(b"/f").await.unwrap();
            let other = model(&rt);
            drop(stack_on(&rt, other.clone(), options.clone()).await.unwrap());
            Client::new(other.clone() as Fs).write_file(b"/f", &stored).await.unwrap();
            let client = Client::new(stack_on(&rt, other.clone(), options).await.unwrap());
            let read = client.read_file(b"/f").await;
            assert!(matches!(read, Err(FsError::Corrupt { .. })), "{read:?}");
        }
        let client = Client::new(stack_on(&rt, lower.clone(), sealed(1)).await.unwrap());
        assert_eq!(client.read_file(b"/f").await.unwrap(), SECRET.repeat(600));
    });
}

/// Files written without the key are refused, whether plain or in our format, with chunks and with tails.
#[test]
fn nothing_can_be_passed_off() {
    simulate(1, async |rt| {
        let lower = model(&rt);
        let below = Client::new(lower.clone() as Fs);
        below.write_file(b"/plain", b"believe me").await.unwrap();
        let fs = stack_on(&rt, lower.clone(), tiny(Arc::new(crate::layer::codecs::Copy))).await.unwrap();
        let client = Client::new(fs.clone());
        client.write_file(b"/raw", b"believe me").await.unwrap();
        let file = client.create(b"/tail").await.unwrap();
        client.write(file, 0, &[1; 100]).await.unwrap();
        client.fsync(file).await.unwrap();
        client.write(file, 100, b"and me").await.unwrap();
        client.fsync(file).await.unwrap();
        client.close(file).await.unwrap();
        fs.close().await.unwrap();
        let target = model(&rt);
        drop(stack_on(&rt, target.clone(), sealed(1)).await.unwrap());
        for name in [b"/plain".as_slice(), b"/raw", b"/tail"] {
            let stored = below.read_file(name).await.unwrap();
            Client::new(target.clone() as Fs).write_file(name, &stored).await.unwrap();
        }
        let client = Client::new(stack_on(&rt, target, sealed(1)).await.unwrap());
        for name in [b"/plain".as_slice(), b"/raw", b"/tail"] {
            let read = match client.open(name, OpenFlags::READ).await {
                Ok(file) => client.read(file, 0, 200).await,
                Err(error) => Err(error),
            };
            assert!(matches!(read, Err(FsError::Corrupt { .. })), "{}: {read:?}", String::from_utf8_lossy(name));
        }
    });
}
