//! `encrypt`: chunks encrypted and authenticated with AES-256-GCM-SIV (RFC 8452), compressed before that if somebody asks
//! for it.
//!
//! Bound to their place: the file, the number of the chunk and the generation are associated data, so that a chunk decrypts
//! nowhere but where it was written, and not as another version of itself.
//!
//! Why GCM-SIV: the engine has no randomness of the operating system, and need not have any. The nonce is made from the
//! place and the generation, which are the same again when a chunk is written twice before a commit, or when a file is copied
//! below and both copies are written. With this cipher that shows whether the two are equal, and nothing else; with others
//! it would give away their contents.
//!
//! What whoever reads the lower files learns: names, sizes and times of files, which chunks have been changed and when, and
//! where there are holes. With compression also how well each chunk compresses: whoever can have a file of ours hold text of
//! their choice next to a secret, in one chunk, can find out the secret from sizes, a little at a time (as in CRIME). So
//! compression is off unless it is asked for.
//!
//! What a person who writes to them can do: bring back an older version of single chunks or of a whole file, exchange whole
//! files, cut them, and make holes of chunks: slots and indexes are not authenticated. Content that was never written cannot
//! be made.

use std::sync::Arc;

use aes_gcm_siv::aead::{Aead, KeyInit, Payload};
use aes_gcm_siv::{Aes256GcmSiv, Nonce};
use siphasher::sip128::{Hasher128, SipHasher24};

use super::key::Key;
use super::{Codec, CodecCost, Position, ids, known};

/// See the head of the file.
#[derive(Clone)]
pub struct Sealed {
    cipher: Aes256GcmSiv,
    /// What is done before.
    inner: Option<Arc<dyn Codec>>,
}

/// Bytes of the authentication tag.
const TAG_BYTES: usize = 16;

impl Sealed {
    pub fn new(key: &Key, inner: Option<Arc<dyn Codec>>) -> Sealed {
        Sealed { cipher: Aes256GcmSiv::new(key.bytes().into()), inner }
    }

    /// What a chunk is bound to: its place, how long it is, and what it was compressed with.
    fn associated(position: &Position, raw_bytes: usize, inner: u8) -> [u8; 33] {
        let mut data = [0; 33];
        data[..8].copy_from_slice(&position.file_id.to_le_bytes());
        data[8..16].copy_from_slice(&position.chunk.to_le_bytes());
        data[16..24].copy_from_slice(&position.generation.to_le_bytes());
        data[24..32].copy_from_slice(&(raw_bytes as u64).to_le_bytes());
        data[32] = inner;
        data
    }

    /// Different for each place. That it can be guessed does no harm.
    fn nonce(position: &Position) -> Nonce {
        use std::hash::Hasher;
        let mut hasher = SipHasher24::new();
        for word in [position.file_id, position.chunk, position.generation] {
            hasher.write(&word.to_le_bytes());
        }
        let mut nonce = Nonce::default();
        nonce.copy_from_slice(&hasher.finish128().as_bytes()[..12]);
        nonce
    }
}

impl Codec for Sealed {
    fn id(&self) -> u8 {
        ids::SEALED
    }

    fn name(&self) -> &'static str {
        "encrypt"
    }

    fn encode(&self, raw: &[u8], position: &Position) -> Option<Vec<u8>> {
        let inner = self.inner.as_ref().and_then(|inner| Some((inner.id(), inner.encode(raw, position)?)));
        let (id, plain) = match &inner {
            Some((id, plain)) => (*id, &plain[..]),
            None => (ids::RAW, raw),
        };
        let payload = Payload { msg: plain, aad: &Self::associated(position, raw.len(), id) };
        // It fails for messages of 64 GiB.
        let sealed = self.cipher.encrypt(&Self::nonce(position), payload).ok()?;
        Some([&[id], &sealed[..]].concat())
    }

    fn decode(&self, stored: &[u8], raw_bytes: usize, position: &Position) -> Result<Vec<u8>, String> {
        let Some((&id, sealed)) = stored.split_first().filter(|(_, sealed)| sealed.len() >= TAG_BYTES) else {
            return Err(format!("{} bytes are too few for an encrypted chunk", stored.len()));
        };
        let payload = Payload { msg: sealed, aad: &Self::associated(position, raw_bytes, id) };
        let plain = self.cipher.decrypt(&Self::nonce(position), payload);
        let plain =
            plain.map_err(|_| "it was encrypted with another key, for another place, or changed".to_string())?;
        match known(id) {
            Some(inner) => inner.decode(&plain, raw_bytes, position),
            None => Err(format!("codec {id} is not known here")),
        }
    }

    fn is_secret(&self) -> bool {
        true
    }

    /// The tag of an empty message, for a purpose that no chunk has: what a chunk is bound to is of another length.
    fn key_check(&self) -> Option<[u8; 16]> {
        let payload = Payload { msg: &[], aad: b"seekless: the key of a directory" };
        let tag = self.cipher.encrypt(&Nonce::default(), payload).ok()?;
        tag.try_into().ok()
    }

    fn cost(&self) -> CodecCost {
        // 2.2 and 2.3 GB/s for chunks of 4 KiB and more, with AES instructions (measured).
        let sealing = CodecCost::of_throughput(2_200, 2_300);
        let inner = self.inner.as_ref().map_or(CodecCost::of_throughput(u64::MAX, u64::MAX), |inner| inner.cost());
        CodecCost {
            encode_cycles_per_kib: sealing.encode_cycles_per_kib + inner.encode_cycles_per_kib,
            decode_cycles_per_kib: sealing.decode_cycles_per_kib + inner.decode_cycles_per_kib,
        }
    }
}
