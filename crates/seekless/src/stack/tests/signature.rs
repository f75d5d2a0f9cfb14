use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use async_trait::async_trait;

use crate::device::{Device, Memory};
use crate::fs::{Fs, FsError};
use crate::rt::{Executor, HostProfile, Rt};
use crate::stack::{BuildError, Constructor, Identity, LeafOpener, Purpose, Sharing, Stack, WORDS, Word, signatures};
use crate::units::{MIB, SECTOR_BYTES, Sector};

/// Memory of 64 MiB for each path, and a part of 4 KiB behind it.
#[derive(Default)]
struct Stores(RefCell<BTreeMap<String, Device>>);

const STORE_BYTES: u64 = 64 * MIB + SECTOR_BYTES;

#[async_trait(?Send)]
impl LeafOpener for Stores {
    async fn device(&self, _: &Rt, word: &Word, _: Purpose) -> Result<Device, BuildError> {
        let path = word.text("path").unwrap_or_default().to_owned();
        Ok(self.0.borrow_mut().entry(path).or_insert_with(|| Rc::new(Memory::new(STORE_BYTES))).clone())
    }

    async fn file_system(&self, _: &Rt, _: &Word, _: Purpose, _: Sharing) -> Result<Fs, BuildError> {
        Err(FsError::NotDirectory.into())
    }
}

/// Aim: the signature of a word is that of the format which it makes, and each word that stores one has it. Method: each such
/// word of the table makes its format; on each store below, its signature is the first of all that match.
#[test]
fn what_is_made_has_the_signature_of_its_word() {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt().clone();
    let mut count = 0;
    for word in WORDS {
        let Some(signature) = word.signature() else { continue };
        count += 1;
        let name = word.name;
        let line = match word.constructor {
            Constructor::FileSystem(_) => format!("{name} / file:a"),
            Constructor::Spread(_) => format!("lfs / {name}:n=3 / file:a{{}}"),
            _ => format!("lfs / {name} / file:a"),
        };
        let stack = Stack::parse(&line).unwrap();
        let stores = Stores::default();
        let made = executor.block_on(async {
            let opened = stack.open(&rt, &stores, Purpose::Format).await?;
            opened.mkfs(&Identity::new([1, 2, 3, 4])).await
        });
        made.unwrap().unwrap();
        for (path, store) in stores.0.borrow().iter() {
            let holds = |offset: u64, magic: &[u8]| {
                let sector = Sector(offset / SECTOR_BYTES);
                let bytes = executor.block_on(store.read(sector, crate::device::Buf::zeroed(4096))).unwrap().unwrap();
                bytes[(offset % SECTOR_BYTES) as usize..].starts_with(magic)
            };
            let found = signatures().into_iter().find(|signature| {
                signature.magics.iter().any(|(at, magic)| at.within(STORE_BYTES).is_some_and(|at| holds(at, magic)))
            });
            assert_eq!(found.map(|found| found.name), Some(signature.name), "{line}: {path}");
        }
    }
    assert_eq!(count, 6);
}
