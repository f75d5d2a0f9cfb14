//! Checks all files below a layer of the scheme `classic`, and repairs their indexes.
//!
//! Units have no checksums: whatever decodes counts as right [za01 §5].

use std::collections::{BTreeMap, BTreeSet};

use super::format::{Index, SUFFIX};
use super::index::{BadIndex, FoundIndex, find, index_name};
use super::units::Content;
use super::{Classic, Options};
use crate::device::Data;
use crate::fs::client::Client;
use crate::fs::{Attr, EntryName, FileKind, Fs, FsError, FsResult, NewNode, NodeKind, SetAttr, WriteMode};
use crate::layer::{Finding, Report, directory};
use crate::rt::Rt;
use crate::units::Ino;

/// Checks every file of `lower`, which no other task may use until this returns. With `repair`, rebuilds indexes that
/// do not match their files, and removes those without a file.
///
/// # Errors
/// When the check itself fails. Damage is in the report.
pub async fn check(rt: &Rt, lower: Fs, options: Options, repair: bool) -> FsResult<Report> {
    let classic = Classic::new(rt, &lower, options);
    classic.claim().make(&lower, true).await?;
    let client = Client::new(lower.clone());
    let mut report = Report::default();
    let mut seen = Seen::default();
    let mut open = vec![Vec::new()];
    while let Some(directory) = open.pop() {
        let parent = client.resolve(&directory).await?;
        for entry in client.read_dir(&directory).await? {
            let path = [&directory[..], b"/", &entry.name].concat();
            let checked = match (entry.kind, entry.name.strip_suffix(SUFFIX)) {
                (FileKind::Directory, _) => {
                    open.push(path);
                    continue;
                }
                (FileKind::Regular, None) => {
                    let place = EntryName { parent, name: &entry.name };
                    let name = seen.find(&lower, place).await?;
                    let mut known = Report::default();
                    let counted = if name.is_known { &mut known } else { &mut report };
                    let checked = match name.has_new_index {
                        true => classic.check_file(&lower, place, &name, repair, counted).await?,
                        false => None,
                    };
                    seen.forget(&lower, name).await;
                    report.repairable |= known.repairable;
                    checked
                }
                (FileKind::Regular, Some(name)) => {
                    classic.check_left_over(&lower, EntryName { parent, name }, repair, &mut report).await?
                }
                _ => None,
            };
            if let Some(Problem { what, repaired }) = checked {
                report.findings.push(Finding { path, problem: what, repaired });
            }
        }
        client.forget(parent).await;
    }
    for ino in seen.looked_up {
        lower.forget(ino, 1).await;
    }
    Ok(report)
}

/// The files with several names, and their indexes. Numbers are those of lookups, which last until the end: a host may list the same number for
/// all files, as sshfs does.
#[derive(Default)]
struct Seen {
    files: BTreeSet<Ino>,
    /// After a crash, two names of a file may have different indexes.
    pairs: BTreeSet<(Ino, Option<Ino>)>,
    /// The first file beside which each index is.
    owners: BTreeMap<Ino, Ino>,
    looked_up: Vec<Ino>,
}

/// A name that was found, with one lookup of its file counted, and one of the index beside it.
struct FoundName {
    attr: Attr,
    index: Option<FoundIndex>,
    /// The file was found by another name before,
    is_known: bool,
    /// and not with this index.
    has_new_index: bool,
    /// Another file was found with this index.
    is_of_another: bool,
}

impl FoundName {
    /// Most have one name and an index of their own.
    fn is_alone(&self) -> bool {
        self.attr.links <= 1 && self.index.is_none_or(|index| index.links <= 1)
    }

    fn inodes(&self) -> impl Iterator<Item = Ino> {
        [Some(self.attr.ino), self.index.map(|index| index.ino)].into_iter().flatten()
    }
}

impl Seen {
    async fn find(&mut self, lower: &Fs, place: EntryName<'_>) -> FsResult<FoundName> {
        let attr = lower.lookup(place.parent, place.name).await?.attr;
        let index = find(lower, place).await?;
        let mut name = FoundName { attr, index, is_known: false, has_new_index: true, is_of_another: false };
        if !name.is_alone() {
            let index = index.map(|index| index.ino);
            name.is_known = !self.files.insert(attr.ino);
            name.has_new_index = self.pairs.insert((attr.ino, index));
            name.is_of_another = index.is_some_and(|index| *self.owners.entry(index).or_insert(attr.ino) != attr.ino);
        }
        Ok(name)
    }

    /// Forgets its lookups, now or at the end.
    async fn forget(&mut self, lower: &Fs, name: FoundName) {
        if !name.is_alone() {
            return self.looked_up.extend(name.inodes());
        }
        for ino in name.inodes() {
            lower.forget(ino, 1).await;
        }
    }
}

/// Removes the attribute of a directory without encoded files, so that another layer can use it. `lower` is used by no other task until this
/// returns. Returns what was found, and whether the directory is free now.
///
/// # Errors
/// Those of [`check`].
pub async fn let_go(rt: &Rt, lower: Fs, options: Options) -> FsResult<(Report, bool)> {
    let classic = Classic::new(rt, &lower, options.clone());
    let report = check(rt, lower.clone(), options, false).await?;
    let is_free =
        report.encoded_files == 0 && report.findings.is_empty() && directory::let_go(&lower, classic.claim()).await?;
    Ok((report, is_free))
}

/// Whether there is a file with the name of the index, where no index was found.
async fn is_taken(lower: &Fs, place: EntryName<'_>) -> FsResult<bool> {
    match lower.lookup(place.parent, &index_name(place.name)).await {
        Ok(other) => {
            lower.forget(other.attr.ino, 1).await;
            Ok(true)
        }
        Err(FsError::NotFound | FsError::NameTooLong) => Ok(false),
        Err(error) => Err(error),
    }
}

/// What is wrong with a file.
struct Problem {
    what: String,
    repaired: bool,
}

impl Problem {
    fn left(what: String) -> Problem {
        Problem { what, repaired: false }
    }
}

impl Classic {
    /// The problem of a file, if it has one.
    async fn check_file(
        &self,
        lower: &Fs,
        place: EntryName<'_>,
        name: &FoundName,
        repair: bool,
        report: &mut Report,
    ) -> FsResult<Option<Problem>> {
        let FoundName { attr, index: found, .. } = *name;
        let content = self.scan(lower, attr.ino, attr.size).await?;
        report.files += 1;
        report.bytes_below += attr.sectors * 512;
        let said = match found {
            Some(found) => match self.read_index(lower, found).await {
                Ok(index) => Some(Ok(index)),
                Err(BadIndex::Wrong(problem)) => Some(Err(problem)),
                Err(BadIndex::Failed(error)) => return Err(error),
            },
            None => None,
        };
        let is_plain = matches!(content, Content::Plain) || attr.size == 0;
        report.encoded_files += u64::from(!is_plain || said.is_some());
        match (content, said) {
            (Content::Plain, None) => {
                report.plain_files += 1;
                report.bytes_above += attr.size;
                Ok(None)
            }
            (Content::Plain, Some(_)) => {
                Ok(Some(Problem::left("it has an index and does not begin with a unit".to_string())))
            }
            (Content::Damaged(what), _) => Ok(Some(Problem::left(what))),
            (Content::Units { index, is_certain: false }, None) => {
                report.records += index.ends.len() as u64 + u64::from(index.has_tail);
                report.bytes_above += index.size;
                let what = "only an index beside it would tell it from a plain file".to_string();
                if is_taken(lower, place).await? {
                    return Ok(Some(Problem::left(format!("{what}, and another file has the name of that"))));
                }
                report.repairable = true;
                let repaired = repair && self.make_lost_index(lower, place, &index).await?;
                Ok(Some(Problem { what, repaired }))
            }
            (Content::Units { index, .. }, said) => {
                report.records += index.ends.len() as u64 + u64::from(index.has_tail);
                report.bytes_above += index.size;
                let what = match said {
                    Some(Ok(said)) if said == index => return Ok(None),
                    // A missing index costs time and nothing else.
                    None => return Ok(None),
                    Some(Ok(_)) => "its index is of another state of the file".to_string(),
                    Some(Err(problem)) => format!("its index: {problem}"),
                };
                report.repairable = true;
                // Two names of a file have one index; two files have one only where a crash has interrupted an exchange of names.
                let is_of_another = name.is_of_another || found.is_some_and(|found| found.links != attr.links);
                let repaired = repair
                    && match is_of_another {
                        true => {
                            lower.unlink(place.parent, &index_name(place.name)).await?;
                            self.make_lost_index(lower, place, &index).await?
                        }
                        false => self.replace_index(lower, place, &index).await?,
                    };
                Ok(Some(Problem { what, repaired }))
            }
        }
    }

    /// Creates a missing index. Returns false when its name is taken.
    async fn make_lost_index(&self, lower: &Fs, place: EntryName<'_>, index: &Index) -> FsResult<bool> {
        let entry = lower.lookup(place.parent, place.name).await?;
        lower.forget(entry.attr.ino, 1).await;
        let Attr { permissions, uid, gid, .. } = entry.attr;
        let new = NewNode { permissions: permissions & 0o777, umask: 0, uid, gid };
        match lower.mknod(place.parent, &index_name(place.name), NodeKind::Regular, new).await {
            Ok(made) => lower.forget(made.attr.ino, 1).await,
            Err(FsError::Exists) => return Ok(false),
            Err(error) => return Err(error),
        }
        self.replace_index(lower, place, index).await
    }

    async fn replace_index(&self, lower: &Fs, place: EntryName<'_>, index: &Index) -> FsResult<bool> {
        let Some(FoundIndex { ino, .. }) = find(lower, place).await? else { return Ok(false) };
        let bytes = index.words(0);
        let cut = SetAttr { size: Some(0), ..SetAttr::default() };
        lower.setattr(ino, None, cut).await?;
        lower.write(ino, None, 0, Data::from_slice(&bytes), WriteMode::default()).await?;
        lower.fsync(ino, None, false).await?;
        lower.forget(ino, 1).await;
        Ok(true)
    }

    /// An index whose file does not exist.
    async fn check_left_over(
        &self,
        lower: &Fs,
        place: EntryName<'_>,
        repair: bool,
        report: &mut Report,
    ) -> FsResult<Option<Problem>> {
        if let Ok(entry) = lower.lookup(place.parent, place.name).await {
            lower.forget(entry.attr.ino, 1).await;
            return Ok(None);
        }
        let Some(index) = find(lower, place).await? else { return Ok(None) };
        lower.forget(index.ino, 1).await;
        report.repairable = true;
        if repair {
            lower.unlink(place.parent, &index_name(place.name)).await?;
        }
        Ok(Some(Problem { what: "an index without a file".to_string(), repaired: repair }))
    }
}
