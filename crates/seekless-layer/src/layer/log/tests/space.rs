//! Aim: what is overwritten makes room for what comes after it, also in files that were written by an earlier mount, whether
//! that was closed or killed. Method: a file is overwritten and made durable many times over; the file below stays small.

use super::*;
use crate::fs::client::Client;
use crate::rng::Rng;

const FILE_BYTES: usize = 64 << 10;

/// Bytes that no codec makes smaller.
fn noise(rng: &mut Rng, bytes: usize) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    rng.fill(&mut noise);
    noise
}

#[test]
fn space_is_used_again() {
    for (seed, is_closed) in [(1, true), (2, false)] {
        simulate(seed, async |rt| {
            let mut rng = Rng::new(seed);
            let lower: Fs = model(&rt);
            let options = tiny(Arc::new(Zstd::default()));
            let mut content = noise(&mut rng, FILE_BYTES);
            {
                let fs = stack_on(&rt, lower.clone(), options.clone()).await.expect("stack");
                let client = Client::new(fs.clone());
                client.write_file(b"/f", &content).await.expect("written");
                client.sync().await.expect("synced");
                if is_closed {
                    fs.close().await.expect("closed");
                }
            }
            let fs = stack_on(&rt, lower.clone(), options.clone()).await.expect("stacked again");
            let client = Client::new(fs.clone());
            let file = client.open(b"/f", crate::fs::OpenFlags::READ_WRITE).await.expect("open");
            for round in 0..200 {
                let (at, piece) = (round * 7 % 16 * 4096, noise(&mut rng, 4096));
                client.write(file, at as u64, &piece).await.expect("written");
                client.fsync(file).await.expect("synced");
                content[at..at + 4096].copy_from_slice(&piece);
            }
            client.close(file).await.expect("released");
            let size = Client::new(lower.clone()).stat(b"/f").await.expect("it is there").size;
            assert!(
                size < 2 * FILE_BYTES as u64,
                "{size} bytes below after 200 times 4 KiB in {FILE_BYTES} (closed: {is_closed})"
            );
            assert!(client.read_file(b"/f").await.expect("read") == content);
            fs.close().await.expect("closed");
            assert_clean(&rt, &lower, &options).await;
        });
    }
}
