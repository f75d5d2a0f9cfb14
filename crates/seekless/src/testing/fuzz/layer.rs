//! The scheme `log` of layers: its decoders, and invalid lower files.

use std::rc::Rc;
use std::sync::Arc;

use super::Bytes;
use crate::codec::crc32c;
use crate::fs::client::Client;
use crate::fs::{Fs, FsError, OpenFlags};
use crate::layer::codecs::Zstd;
use crate::layer::log::format::{Commit, Entry, FileRecord, Head, SLOT_BYTES, SizeMark, Slot, SlotState};
use crate::layer::log::{Options, check, stack_on};
use crate::rt::Limits;
use crate::testing::MemFs;
use crate::testing::subject::simulate;
use crate::units::Nanos;

/// Every decoder, on any bytes; decoded values are encoded to the same bytes.
pub fn decoders(input: &[u8]) {
    let mut bytes = Bytes::new(input);
    let entry = Entry { offset: bytes.edge(), bytes: bytes.u32(), crc: bytes.u32() };
    let _ = entry.check(bytes.edge());
    let rest = bytes.take(usize::MAX);
    let mut slot = rest.to_vec();
    slot.resize(SLOT_BYTES as usize, 0);
    for seal in [false, true] {
        if seal {
            // Wrong bytes with a valid checksum.
            slot[..8].copy_from_slice(&crate::layer::log::format::SLOT_MAGIC);
            slot[8..12].fill(0);
            slot[12..14].copy_from_slice(&1u16.to_le_bytes());
            let crc = crc32c(&slot);
            slot[8..12].copy_from_slice(&crc.to_le_bytes());
            assert!(Slot::decode(&slot).is_some());
        }
        if let SlotState::Good(commit) = Commit::decode(&slot) {
            assert_eq!(Commit::decode(&commit.encode()), SlotState::Good(commit));
        }
    }
    let _ = Commit::decode(rest);
    let _ = Head::checked(rest);
    let _ = FileRecord::decode(rest, &entry);
    let _ = FileRecord::decode(rest, &Entry { bytes: rest.len() as u32, ..entry });
    if let Some(mark) = SizeMark::from_bytes(rest) {
        assert_eq!(mark.to_bytes()[..], *rest);
    }
}

const LIMITS: Limits = Limits { events: 5_000_000, until: Nanos::from_secs(1_000_000) };

/// A lower file that the layer made and another program changed, with checksums of slots and records corrected:
/// reading, writing and checking it end in results or errors.
pub fn lower_file(input: &[u8]) {
    let run = simulate(1, LIMITS, async |rt| {
        let mut bytes = Bytes::new(input);
        let options = Options { chunk_shift: 12, ..Options::new(Arc::new(Zstd::default())) };
        let lower = MemFs::new(&rt);
        let below: Fs = lower.clone();
        let fs = stack_on(&rt, below.clone(), options.clone()).await?;
        let client = Client::new(fs.clone());
        let length = usize::from(bytes.u16()) * 2;
        let content: Vec<u8> = (0..length).map(|at| (at / 97) as u8).collect();
        client.write_file(b"f", &content).await?;
        fs.close().await?;
        let under = Client::new(below.clone());
        let mut file = under.read_file(b"f").await?;
        for _ in 0..=bytes.u8() % 8 {
            change(&mut file, &mut bytes);
        }
        under.write_file(b"f", &file).await?;
        let fs = stack_on(&rt, below.clone(), options.clone()).await?;
        let client = Client::new(fs.clone());
        // A megabyte of reading is enough: the size may be any number.
        if let Ok(open) = client.open(b"f", OpenFlags::READ_WRITE).await {
            let _ = client.read(open, 0, 1 << 20).await;
            let _ = client.write(open, bytes.u16().into(), b"written").await;
            let _ = client.fsync(open).await;
            let _ = client.read(open, 0, 1 << 20).await;
            let _ = client.close(open).await;
        }
        let _ = fs.close().await;
        for repair in [false, true] {
            match check::check(&rt, below.clone(), options.clone(), repair).await {
                Ok(_) | Err(FsError::Corrupt { .. }) => {}
                Err(error) => panic!("the check failed: {error}"),
            }
        }
        Ok::<_, FsError>(Rc::strong_count(&lower))
    });
    match run {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => panic!("{error}"),
        Err(why) => panic!("{why}"),
    }
}

/// Makes a change, and corrects the checksums that cover it.
fn change(file: &mut Vec<u8>, bytes: &mut Bytes<'_>) {
    if file.len() < 1024 + Head::BYTES {
        return;
    }
    match bytes.u8() % 4 {
        0 => {
            let slot = usize::from(bytes.u8() % 2) * 512;
            let at = slot + 12 + usize::from(bytes.u16()) % 150;
            file[at] = bytes.u8();
            file[slot + 8..slot + 12].fill(0);
            let crc = crc32c(&file[slot..slot + 512]);
            file[slot + 8..slot + 12].copy_from_slice(&crc.to_le_bytes());
        }
        1 => {
            let at = 1024 + 12 + usize::from(bytes.u8()) % (Head::BYTES - 12);
            file[at] = bytes.u8();
            file[1024 + 4..1024 + 8].fill(0);
            let crc = crc32c(&file[1024..1024 + Head::BYTES]);
            file[1024 + 4..1024 + 8].copy_from_slice(&crc.to_le_bytes());
            // The slot's entry with it.
            for slot in [0, 512] {
                file[slot + 80 + 12..slot + 80 + 16].copy_from_slice(&crc.to_le_bytes());
                file[slot + 8..slot + 12].fill(0);
                let crc = crc32c(&file[slot..slot + 512]);
                file[slot + 8..slot + 12].copy_from_slice(&crc.to_le_bytes());
            }
        }
        2 => {
            let at = bytes.u32() as usize % file.len();
            file[at] ^= bytes.u8();
        }
        _ => {
            let length = bytes.u32() as usize % (file.len() + 1);
            file.truncate(length);
        }
    }
}
