//! Keys and passphrases from files, which have a limit; a passphrase also from a terminal in place of a file, such as `/dev/stdin`: that
//! shows a prompt, and not what is typed.
//!
//! On a terminal it is one line. Its mode is restored when the line ends and when Control-C ends it, so that is read here as a key
//! and not left to a signal.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::termios::{self, LocalModes, OptionalActions, SpecialCodeIndex, Termios};

/// Limit of a line.
const BYTES_MAX: usize = 4096;
/// Limit of a file, which may be a device without an end.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads the passphrase in `path`, of what the prompt calls `what`. One that `is_new` is asked for twice on a terminal: a mistyped one could
/// not be known.
///
/// # Errors
/// When it cannot be read; `Interrupted` after Control-C.
pub fn read_passphrase(path: &Path, what: &str, is_new: bool) -> io::Result<Vec<u8>> {
    // A terminal does not become that of this process.
    let noctty = rustix::fs::OFlags::NOCTTY.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(noctty).open(path)?;
    if !termios::isatty(&file) {
        return contents(file);
    }
    // Without the right to write to it, it has no prompt.
    let shown = OpenOptions::new().write(true).custom_flags(noctty).open(path).ok();
    let quiet = Quiet::new(file)?;
    let first = quiet.line(&format!("passphrase of {what}: "), shown.as_ref())?;
    if is_new && quiet.line("the same again: ", shown.as_ref())? != first {
        return Err(io::Error::other("the two passphrases differ"));
    }
    Ok(first)
}

/// Reads the file of a key.
///
/// # Errors
/// When it cannot be read, or is too long to be one.
pub fn read_key(path: &Path) -> io::Result<Vec<u8>> {
    contents(File::open(path)?)
}

fn contents(file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > FILE_BYTES_MAX {
        true => Err(io::Error::other(format!("it exceeds {FILE_BYTES_MAX} bytes"))),
        false => Ok(bytes),
    }
}

/// A terminal that does not show what is typed, as long as this lives.
struct Quiet {
    terminal: File,
    before: Termios,
}

impl Quiet {
    fn new(terminal: File) -> io::Result<Quiet> {
        let before = termios::tcgetattr(&terminal)?;
        let mut quiet = before.clone();
        quiet.local_modes -= LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG | LocalModes::IEXTEN;
        quiet.special_codes[SpecialCodeIndex::VMIN] = 1;
        quiet.special_codes[SpecialCodeIndex::VTIME] = 0;
        // What was typed before is kept: a program may have written it.
        termios::tcsetattr(&terminal, OptionalActions::Now, &quiet)?;
        Ok(Quiet { terminal, before })
    }

    /// A line, without its end.
    fn line(&self, prompt: &str, shown: Option<&File>) -> io::Result<Vec<u8>> {
        const CONTROL_C: u8 = 3;
        const CONTROL_D: u8 = 4;
        const CONTROL_U: u8 = 21;
        const CONTROL_BACKSLASH: u8 = 28;
        show(shown, prompt);
        let mut line = Vec::new();
        let read = loop {
            let mut key = [0];
            match (&self.terminal).read(&mut key) {
                Ok(0) => break Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => break Err(error),
            }
            match key[0] {
                b'\n' | b'\r' | CONTROL_D => break Ok(line),
                CONTROL_C | CONTROL_BACKSLASH => break Err(io::ErrorKind::Interrupted.into()),
                CONTROL_U => line.clear(),
                8 | 127 => remove_character(&mut line),
                _ if line.len() == BYTES_MAX => break Err(io::Error::other(format!("it exceeds {BYTES_MAX} bytes"))),
                byte => line.push(byte),
            }
        };
        show(shown, "\n");
        read
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // A terminal that is gone has no mode.
        let _ = termios::tcsetattr(&self.terminal, OptionalActions::Now, &self.before);
    }
}

/// Writes to the terminal, which also works without.
fn show(shown: Option<&File>, text: &str) {
    if let Some(mut shown) = shown {
        let _ = shown.write_all(text.as_bytes());
    }
}

/// Removes the last character, which in UTF-8 may have several bytes.
fn remove_character(line: &mut Vec<u8>) {
    while line.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
}

#[cfg(test)]
mod tests {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

    use super::*;

    /// What `read_passphrase` returns and what the terminal shows, where `keys` are typed, each after a prompt; and whether the terminal shows
    /// what is typed afterwards.
    fn typed(keys: &'static [&'static str], is_new: bool) -> (io::Result<Vec<u8>>, String, bool) {
        let master = File::from(openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap());
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let path = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        // The other end stays open, so that the terminal keeps its mode.
        let kept = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let mut screen = master.try_clone().unwrap();
        let user = std::thread::spawn(move || {
            let (mut shown, mut master) = (Vec::new(), master);
            for keys in keys {
                let before = shown.len();
                while !shown[before..].ends_with(b": ") {
                    let mut byte = [0];
                    screen.read_exact(&mut byte).unwrap();
                    shown.push(byte[0]);
                }
                master.write_all(keys.as_bytes()).unwrap();
            }
            (shown, screen)
        });
        let read = read_passphrase(Path::new(&path), "the key", is_new);
        let shows = termios::tcgetattr(&kept).unwrap().local_modes.contains(LocalModes::ECHO);
        (&kept).write_all(b"$").unwrap();
        let (mut shown, mut screen) = user.join().unwrap();
        while shown.last() != Some(&b'$') {
            let mut byte = [0];
            screen.read_exact(&mut byte).unwrap();
            shown.push(byte[0]);
        }
        (read, String::from_utf8(shown).unwrap(), shows)
    }

    /// A device without an end is refused, and does not fill the memory.
    #[test]
    fn a_file_has_a_limit() {
        let zeroes = Path::new("/dev/zero");
        for read in [read_passphrase(zeroes, "a key", false), read_key(zeroes)] {
            assert_eq!(read.unwrap_err().to_string(), "it exceeds 1048576 bytes");
        }
    }

    /// A terminal shows the prompt and nothing that is typed, keys that correct act as usual, and its mode is what it was, also after Control-C.
    #[test]
    fn a_terminal_does_not_show_a_passphrase() {
        let (read, shown, shows) = typed(&["wrong\u{15}hunté\u{7f}er3\u{8}2\n"], false);
        assert_eq!((read.unwrap(), shows), (b"hunter2".to_vec(), true));
        assert_eq!(shown, "passphrase of the key: \r\n$");
        let (read, shown, shows) = typed(&["one\n", "one\n"], true);
        assert_eq!((read.unwrap(), shows), (b"one".to_vec(), true));
        assert_eq!(shown, "passphrase of the key: \r\nthe same again: \r\n$");
        let (read, _, shows) = typed(&["one\n", "two\n"], true);
        assert!(read.unwrap_err().to_string().contains("differ") && shows);
        let (read, shown, shows) = typed(&["one\u{3}"], false);
        assert_eq!((read.unwrap_err().kind(), shows), (io::ErrorKind::Interrupted, true));
        assert!(!shown.contains("one"), "{shown}");
    }
}
