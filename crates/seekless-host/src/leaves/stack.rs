//! Opens the leaves that a stack line names: `file`, `hostdir`, `memfs`.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use async_trait::async_trait;
use rustix::io::Errno;
use seekless::device::{BlockDevice, Device};
use seekless::fs::{Fs, OpenProtocol};
use seekless::rt::Rt;
use seekless::stack::{Leaves, Purpose, Trouble, Value, Word};
use seekless::testing::{MemFs, MemFsOptions};
use seekless::units::human_bytes;

use super::{FileDevice, FileError, FileOptions, HostDir, HostDirError, HostDirOptions};
use crate::reactor::Reactor;

/// The real world, for [`seekless::stack::Stack::mount`].
pub struct HostLeaves {
    reactor: Reactor,
    files: RefCell<Vec<Rc<FileDevice>>>,
}

impl HostLeaves {
    pub fn new(reactor: &Reactor) -> HostLeaves {
        HostLeaves { reactor: reactor.clone(), files: RefCell::default() }
    }

    /// The files and block devices opened so far, for a mount that wants to be one of the device's (`fuseblk`).
    pub fn files(&self) -> Vec<Rc<FileDevice>> {
        self.files.borrow().clone()
    }

    fn open_file(&self, rt: &Rt, word: &Word, purpose: Purpose) -> Result<FileDevice, Trouble> {
        let path = Path::new(word.text("path").unwrap_or_default());
        let options = FileOptions { direct: word.switch("direct"), read_only: purpose == Purpose::Inspect };
        let size = match word.given("size") {
            Some(Value::Bytes(bytes)) => Some(*bytes),
            _ => None,
        };
        match (FileDevice::open(rt, &self.reactor, path, options), purpose) {
            (Err(FileError::Os { cause: Errno::NOENT, .. }), Purpose::Format) => {
                let Some(bytes) = size else {
                    let problem = format!("{} does not exist", path.display());
                    return Err(Trouble::other(problem).hint("say how large it is to be made, for example size=1GiB"));
                };
                FileDevice::create(rt, &self.reactor, path, bytes, options)
            }
            (Err(error @ FileError::Os { cause: Errno::NOENT, .. }), _) => {
                return Err(Trouble::other(error.to_string()).hint("make it with mkfs"));
            }
            (Ok(device), Purpose::Format) => {
                let found = device.geometry().bytes();
                match size {
                    Some(wanted) if wanted != found => {
                        let problem = format!(
                            "{} exists and has {}; leave size out to use it as it is",
                            path.display(),
                            human_bytes(found)
                        );
                        return Err(Trouble::Option { key: "size", problem });
                    }
                    _ => Ok(device),
                }
            }
            (result, _) => result,
        }
        .map_err(|error| Trouble::other(error.to_string()))
    }
}

#[async_trait(?Send)]
impl Leaves for HostLeaves {
    async fn device(&self, rt: &Rt, word: &Word, purpose: Purpose) -> Result<Device, Trouble> {
        match word.name() {
            "file" => {
                let device = Rc::new(self.open_file(rt, word, purpose)?);
                self.files.borrow_mut().push(device.clone());
                Ok(device)
            }
            other => Err(Trouble::other(format!("this program cannot open `{other}`"))),
        }
    }

    async fn file_system(&self, rt: &Rt, word: &Word, _purpose: Purpose) -> Result<Fs, Trouble> {
        match word.name() {
            "hostdir" => {
                let options = HostDirOptions { submounts: word.switch("submounts"), ..HostDirOptions::default() };
                let path = Path::new(word.text("path").unwrap_or_default());
                match HostDir::open(rt, &self.reactor, path, options) {
                    Ok(directory) => Ok(Rc::new(directory)),
                    Err(error @ HostDirError::NotADirectory { .. }) => {
                        Err(Trouble::other(error.to_string())
                            .hint("for an image file or a block device write file:PATH"))
                    }
                    Err(error) => Err(Trouble::other(error.to_string())),
                }
            }
            "memfs" => {
                let options = MemFsOptions { open_protocol: OpenProtocol::ZeroMessage, ..MemFsOptions::default() };
                Ok(MemFs::with_options(rt, options))
            }
            other => Err(Trouble::other(format!("this program cannot open `{other}`"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use seekless::fs::client::Client;
    use seekless::stack::{Identity, Stack};

    use super::*;
    use crate::reactor::ReactorOptions;

    /// Aim: a stack line reaches files and directories, and says what is wrong with them. Method: each kind of leaf,
    /// good and bad, in a temporary directory; `T` stands for it.
    #[test]
    fn lines_open_files_and_directories() {
        let directory = tempfile::tempdir().unwrap();
        let at = |line: &str| line.replace('T', &directory.path().to_string_lossy());
        std::fs::write(directory.path().join("small"), [0; 100_000]).unwrap();
        let reactor = Reactor::new(ReactorOptions::default()).unwrap();
        let executor = reactor.executor();
        let rt = executor.rt().clone();
        let identity = Identity::new([1, 2, 3, 4]);
        let run = async {
            let leaves = HostLeaves::new(&reactor);
            let error = async |line: &str, purpose: Purpose| {
                let stack = Stack::parse(&at(line)).unwrap();
                let error = match stack.open(&rt, &leaves, purpose).await {
                    Ok(opened) => opened.mount().await.err().unwrap(),
                    Err(error) => error,
                };
                let hint = error.hint.clone().unwrap_or_default();
                let text = format!("{} | {hint}", error.problem);
                text.replace(&*directory.path().to_string_lossy(), "T")
            };
            for (line, purpose, text) in [
                ("hostdir:T/missing", Purpose::Use, "there is no directory T/missing; create it first | "),
                (
                    "wrap / hostdir:T/small",
                    Purpose::Use,
                    "T/small is not a directory | for an image file or a block device write file:PATH",
                ),
                (
                    "lfs / file:T/missing",
                    Purpose::Use,
                    "cannot open T/missing: No such file or directory (os error 2) | make it with mkfs",
                ),
                (
                    "lfs / file:T/missing",
                    Purpose::Format,
                    "T/missing does not exist | say how large it is to be made, for example size=1GiB",
                ),
                (
                    "lfs / file:T/small,size=64MiB",
                    Purpose::Format,
                    "`size` of `file`: T/small exists and has 97.5 KiB; leave size out to use it as it is | ",
                ),
            ] {
                assert_eq!(error(line, purpose).await, text);
            }
            assert!(error("lfs / file:T", Purpose::Use).await.starts_with("T is a directory"));
            assert!(error("lfs / file:T/small", Purpose::Use).await.contains("no intact LFS superblock"));

            let stack = Stack::parse(&at("wrap / lfs / file:T/image,size=64MiB")).unwrap();
            stack.open(&rt, &leaves, Purpose::Format).await.unwrap().mkfs(&identity).await.unwrap();
            drop(leaves);
            let leaves = HostLeaves::new(&reactor);
            let mounted = stack.mount(&rt, &leaves, &identity).await.unwrap();
            assert_eq!(leaves.files().len(), 1);
            let client = Client::new(mounted.fs.clone());
            client.write_file(b"f", b"hello").await.unwrap();
            let busy = stack.mount(&rt, &HostLeaves::new(&reactor), &identity).await.err().unwrap();
            assert!(busy.problem.contains("is in use by another mount or process"), "{busy}");
            mounted.fs.close().await.unwrap();

            for line in ["wrap / hostdir:T", "memfs"] {
                let mounted = Stack::parse(&at(line)).unwrap().mount(&rt, &leaves, &identity).await.unwrap();
                let client = Client::new(mounted.fs.clone());
                client.write_file(b"g", b"hello").await.unwrap();
                mounted.fs.close().await.unwrap();
            }
            assert_eq!(std::fs::read(directory.path().join("g")).unwrap(), b"hello");
        };
        executor.block_on(run).unwrap();
    }
}
