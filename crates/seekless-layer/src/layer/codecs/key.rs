//! Keys of `encrypt`, and the files that hold them.
//!
//! A key is 32 bytes. A key file is text, so that it can be printed and kept in a safe:
//!
//! ```text
//! seekless key 1
//! key=<64 hexadecimal digits>
//! ```
//!
//! or, protected by a passphrase, with the key encrypted under a key that Argon2id (RFC 9106) derives from passphrase
//! and salt:
//!
//! ```text
//! seekless key 1
//! argon2id memory-kib=65536 passes=3 lanes=4
//! salt=<32 hexadecimal digits>
//! sealed=<96 hexadecimal digits>
//! ```
//!
//! So the passphrase can be changed without re-encrypting any file.

use std::fmt::Write;

use aes_gcm_siv::aead::{Aead, KeyInit, Payload};
use aes_gcm_siv::{Aes256GcmSiv, Nonce};
use argon2::{Algorithm, Argon2, Params, Version};

/// The first line of a key file.
const FIRST_LINE: &str = "seekless key 1";

/// Most memory that a key file may ask for, in KiB: 4 GiB.
const MEMORY_KIB_MAX: u32 = 4 << 20;

/// Most passes, and most lanes.
const PASSES_MAX: u32 = 1_000;
const LANES_MAX: u32 = 256;

/// A key. Its `Debug` output does not contain it.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; 32]);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Cost of trying passphrases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hardness {
    pub memory_kib: u32,
    pub passes: u32,
    pub lanes: u32,
}

impl Hardness {
    /// The second recommended option of RFC 9106 §4, for when memory is limited: about a second.
    pub const RECOMMENDED: Hardness = Hardness { memory_kib: 64 << 10, passes: 3, lanes: 4 };
}

impl Key {
    pub fn new(bytes: [u8; 32]) -> Key {
        Key(bytes)
    }

    pub(super) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The key file without a passphrase.
    pub fn to_file(&self) -> String {
        format!("{FIRST_LINE}\nkey={}\n", to_hex(&self.0))
    }

    /// The key file protected by `passphrase`. `salt` is random.
    ///
    /// # Errors
    /// When the passphrase is empty, or Argon2 refuses `hardness`; as text.
    pub fn to_protected_file(&self, passphrase: &[u8], salt: [u8; 16], hardness: Hardness) -> Result<String, String> {
        let cipher = cipher(passphrase, &salt, hardness)?;
        let first = format!("{FIRST_LINE}\n{}\nsalt={}\n", hardness_line(hardness), to_hex(&salt));
        // The salt gives this one message a key of its own, so that any nonce is safe.
        let payload = Payload { msg: &self.0, aad: first.as_bytes() };
        let sealed = cipher.encrypt(&Nonce::default(), payload).map_err(|error| error.to_string())?;
        Ok(format!("{first}sealed={}\n", to_hex(&sealed)))
    }

    /// Reads a key file. `passphrase` is called if the file needs one.
    ///
    /// # Errors
    /// What is wrong with the file or the passphrase, as text.
    pub fn from_file(file: &[u8], passphrase: impl FnOnce() -> Result<Vec<u8>, String>) -> Result<Key, String> {
        let text = std::str::from_utf8(file).map_err(|_| "it is not text".to_string())?;
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        match lines[..] {
            [FIRST_LINE, key] if key.starts_with("key=") => Ok(Key(from_hex(&key[4..])?)),
            [FIRST_LINE, argon, salt, sealed] => {
                let hardness = read_hardness(argon)?;
                let salt_bytes: [u8; 16] =
                    from_hex(salt.strip_prefix("salt=").ok_or("its third line is not `salt=`")?)?;
                let sealed: [u8; 48] =
                    from_hex(sealed.strip_prefix("sealed=").ok_or("its fourth line is not `sealed=`")?)?;
                let first = format!("{FIRST_LINE}\n{}\nsalt={}\n", hardness_line(hardness), to_hex(&salt_bytes));
                let cipher = cipher(&passphrase()?, &salt_bytes, hardness)?;
                let payload = Payload { msg: &sealed, aad: first.as_bytes() };
                let key = cipher.decrypt(&Nonce::default(), payload);
                let key = key.map_err(|_| "that is not its passphrase, or the file was changed".to_string())?;
                <[u8; 32]>::try_from(key).map(Key).map_err(|_| "its key is not of 32 bytes".to_string())
            }
            _ => Err(format!("it is no key file: the first of its 2 or 4 lines would be `{FIRST_LINE}`")),
        }
    }
}

fn cipher(passphrase: &[u8], salt: &[u8; 16], hardness: Hardness) -> Result<Aes256GcmSiv, String> {
    // A line end is not part of the passphrase.
    let passphrase = passphrase.strip_suffix(b"\n").unwrap_or(passphrase);
    if passphrase.is_empty() {
        return Err("the passphrase is empty".to_string());
    }
    let Hardness { memory_kib, passes, lanes } = hardness;
    let params = Params::new(memory_kib, passes, lanes, Some(32)).map_err(|error| error.to_string())?;
    let mut key = [0; 32];
    let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    argon.hash_password_into(passphrase, salt, &mut key).map_err(|error| error.to_string())?;
    Ok(Aes256GcmSiv::new(&key.into()))
}

fn hardness_line(hardness: Hardness) -> String {
    let Hardness { memory_kib, passes, lanes } = hardness;
    format!("argon2id memory-kib={memory_kib} passes={passes} lanes={lanes}")
}

fn read_hardness(line: &str) -> Result<Hardness, String> {
    let wrong = || format!("`{line}` is not what a key file has in its second line");
    let words: Vec<&str> = line.split(' ').collect();
    let ["argon2id", memory, passes, lanes] = words[..] else { return Err(wrong()) };
    let number = |word: &str, name: &str, max: u32| {
        let value = word.strip_prefix(name).and_then(|value| value.parse::<u32>().ok());
        value.filter(|value| (1..=max).contains(value)).ok_or_else(wrong)
    };
    Ok(Hardness {
        memory_kib: number(memory, "memory-kib=", MEMORY_KIB_MAX)?,
        passes: number(passes, "passes=", PASSES_MAX)?,
        lanes: number(lanes, "lanes=", LANES_MAX)?,
    })
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn from_hex<const N: usize>(text: &str) -> Result<[u8; N], String> {
    let mut bytes = [0; N];
    if text.len() != 2 * N || !text.is_ascii() {
        return Err(format!("{} characters where there are {} hexadecimal digits", text.len(), 2 * N));
    }
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digits = std::str::from_utf8(digits).unwrap_or_default();
        *byte = u8::from_str_radix(digits, 16).map_err(|_| format!("`{digits}` is no hexadecimal number"))?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Hardness = Hardness { memory_kib: 64, passes: 1, lanes: 1 };

    fn no_passphrase() -> Result<Vec<u8>, String> {
        Err("no question is asked".to_string())
    }

    /// A key comes back from its file only with the right passphrase.
    #[test]
    fn key_files() {
        let key = Key::new([7; 32]);
        assert_eq!(Key::from_file(key.to_file().as_bytes(), no_passphrase), Ok(key.clone()));
        let file = key.to_protected_file(b"correct horse", [9; 16], QUICK).unwrap();
        assert_eq!(Key::from_file(file.as_bytes(), || Ok(b"correct horse\n".to_vec())), Ok(key.clone()));
        assert!(Key::from_file(file.as_bytes(), || Ok(b"correct horsf".to_vec())).is_err());
        assert!(Key::from_file(file.as_bytes(), || Ok(b"".to_vec())).is_err());
        assert!(Key::from_file(file.as_bytes(), no_passphrase).is_err());
        assert!(key.to_protected_file(b"", [9; 16], QUICK).is_err());
        for wrong in ["", "seekless key 1\n", "seekless key 2\nkey=00\n", "seekless key 1\nkey=00\n", "key"] {
            assert!(Key::from_file(wrong.as_bytes(), no_passphrase).is_err(), "{wrong}");
        }
        // Each changed character of the protected file is noticed, except where hexadecimal has two forms of a digit.
        for at in 0..file.len() {
            let mut changed = file.clone().into_bytes();
            changed[at] = if changed[at] == b'1' { b'2' } else { b'1' };
            let read = Key::from_file(&changed, || Ok(b"correct horse".to_vec()));
            assert!(read.is_err(), "byte {at} of\n{file}");
        }
    }

    #[test]
    fn keys_do_not_show_themselves() {
        assert_eq!(format!("{:?}", Key::new([7; 32])), "Key(..)");
    }
}
