//! Aim: the written bytes stay the same. Method: a small volume whose bytes are known.

use super::*;

/// The bytes of a small volume, created and filled in virtual time, never change by accident. An intended change
/// changes the number here, and says why.
#[test]
fn a_small_volume_is_always_the_same() {
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, 4 * MIB, &small_groups()).await;
        session(&rt, &device, Options::default(), async |client| {
            client.mkdir(b"/d").await.unwrap();
            client.write_file(b"/d/small", b"hello").await.unwrap();
            client.write_file(b"/d/big", &vec![7; 120_000]).await.unwrap();
            client.symlink(b"small", b"/d/link").await.unwrap();
            client.link(b"/d/small", b"/second").await.unwrap();
        })
        .await;
        let mut bytes = vec![0; 4 * MIB as usize];
        memory.image().read(Sector(0), &mut bytes);
        assert_eq!(format!("{:08x}", crate::codec::crc32c(&bytes)), "c87dfb1a");
    });
}
