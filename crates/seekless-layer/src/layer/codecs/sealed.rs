//! `encrypt`: chunks encrypted and authenticated with AES-256-GCM-SIV (RFC 8452), optionally compressed before that.
//!
//! Each chunk is bound to its position: the file, the number of the chunk and the generation are associated data. So a
//! chunk decrypts only where it was written, and not in place of another version of itself.
//!
//! Why GCM-SIV: the engine has no access to the operating system's randomness, and needs none. The nonce is derived
//! from position and generation. These repeat when a chunk is written twice before a commit, or when a file is copied
//! below and both copies are written. With this cipher a repeated nonce reveals only whether the two chunks are equal;
//! with others it would reveal their contents.
//!
//! What a reader of the lower files learns: names, sizes and times of files, which chunks have been changed and when,
//! and where there are holes. With compression also how well each chunk compresses: an attacker who can place chosen
//! text next to a secret, in one chunk of a file, can find out the secret from sizes, a little at a time (as in CRIME).
//! So compression is off by default.
//!
//! What a writer to the lower files can do: bring back an older version of single chunks or of a whole file, exchange
//! whole files, truncate them, and make holes of chunks: slots and indexes are not authenticated. Content that was
//! never written cannot be forged.

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
    /// The compression before encryption.
    inner: Option<Arc<dyn Codec>>,
}

/// Bytes of the authentication tag.
const TAG_BYTES: usize = 16;

impl Sealed {
    pub fn new(key: &Key, inner: Option<Arc<dyn Codec>>) -> Sealed {
        Sealed { cipher: Aes256GcmSiv::new(key.bytes().into()), inner }
    }

    /// The associated data of a chunk: its position, its length, and its compression codec.
    fn associated(position: &Position, raw_bytes: usize, inner: u8) -> [u8; 33] {
        let mut data = [0; 33];
        data[..8].copy_from_slice(&position.file_id.to_le_bytes());
        data[8..16].copy_from_slice(&position.chunk.to_le_bytes());
        data[16..24].copy_from_slice(&position.generation.to_le_bytes());
        data[24..32].copy_from_slice(&(raw_bytes as u64).to_le_bytes());
        data[32] = inner;
        data
    }

    /// Different for each position. It need not be unpredictable.
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
        // Encryption fails only for messages of 64 GiB.
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

    fn shrinks(&self) -> bool {
        false
    }

    fn is_secret(&self) -> bool {
        true
    }

    /// The tag of an empty message. Its associated data differs in length from that of every chunk.
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
