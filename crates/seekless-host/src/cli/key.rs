//! `seekless key`

use std::path::{Path, PathBuf};

use rustix::rand::{GetRandomFlags, getrandom};
use seekless::layer::codecs::{Hardness, Key};
use seekless_lab::output::{self as files, Replace, Wish};

use super::{Done, Failure, output};
use crate::leaves::{read_key, read_passphrase};

/// Make a key for `encrypt`
///
/// The file alone decrypts everything that was encrypted with it, and without it the data is lost: keep a copy in
/// another place. It is text and can be printed. With a passphrase, both the file and the passphrase are needed.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  seekless key ~/data.key
  seekless mount 'encrypt:/home/me/data.key / hostdir:/srv/data' /mnt

  seekless key data.key --passphrase /dev/stdin
  seekless key new.key --from data.key --from-passphrase old.txt --passphrase new.txt

Exit codes: 0 made, 1 failed, 2 wrong usage")]
pub(super) struct Args {
    /// The file to make
    file: PathBuf,

    /// A file with the passphrase that protects the key; a line end at its end does not count. From a terminal, /dev/stdin, it is
    /// read twice and not shown
    #[arg(long, value_name = "FILE")]
    passphrase: Option<PathBuf>,

    /// Keep the key of another file, to give it another passphrase
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,

    /// The passphrase of that file
    #[arg(long, value_name = "FILE", requires = "from")]
    from_passphrase: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> Done {
    let wish = Wish::new(Replace::Never(", and a key is never overwritten; name another file")).permissions(0o600);
    files::check(&args.file, &wish)?;
    let key = match &args.from {
        None => Key::new(random()?),
        Some(path) => {
            let asked = || match &args.from_passphrase {
                Some(passphrase) => {
                    let what = path.display().to_string();
                    read_passphrase(passphrase, &what, false).map_err(|error| error.to_string())
                }
                None => Err("it is protected by a passphrase; name its file with --from-passphrase FILE".to_owned()),
            };
            let wrong = |problem| Failure::new(format!("{}: {problem}", path.display()));
            let bytes = read_key(path).map_err(|error| cannot_read(path, &error))?;
            Key::from_file(&bytes, asked).map_err(wrong)?
        }
    };
    let text = match &args.passphrase {
        None => key.to_file(),
        Some(path) => {
            let passphrase = read_passphrase(path, &args.file.display().to_string(), true);
            let passphrase = passphrase.map_err(|error| cannot_read(path, &error))?;
            let made = key.to_protected_file(&passphrase, random()?, Hardness::RECOMMENDED);
            made.map_err(|problem| Failure::new(format!("{}: {problem}", path.display())))?
        }
    };
    // Bytes and name are durable when this returns: the key may be used at once.
    files::write(&args.file, text.as_bytes(), &wish)?;
    let made =
        format!("{} has been created. Data encrypted with it is lost without it: keep a copy.", args.file.display());
    output::print(&made).map_err(|failure| Failure::new(format!("{made}\n{}", failure.text)))?;
    Ok(0)
}

fn cannot_read(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot read {}: {error}", path.display()))
}

fn random<const N: usize>() -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(count) if count == N => Ok(bytes),
        Ok(count) => Err(Failure::new(format!("the system gave {count} random bytes instead of {N}"))),
        Err(error) => Err(Failure::new(format!("the system gives no random bytes: {error}"))),
    }
}
