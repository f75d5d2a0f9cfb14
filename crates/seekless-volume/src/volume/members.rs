//! What the devices of this room share: several devices below, and requests split among them.
//!
//! A request becomes [`MemberPart`]s, each on one member; pieces that are neighbours on their member become one
//! [`Run`], a single request to the member. All runs of a request are under way at once.

use std::collections::BTreeMap;

use futures_util::future::join_all;

use crate::device::{Buf, Counter, Data, Device, DeviceError, Discard, Geometry, Guarantees, WriteFlags, worse};
use crate::units::{SECTOR_BYTES, Sector};

/// A part of a request that one member serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MemberPart {
    pub(super) member: usize,
    /// First sector on the member.
    pub(super) at: u64,
    pub(super) sectors: u64,
    /// Sectors from the start of the request.
    pub(super) offset: u64,
}

/// Consecutive pieces on one member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Run {
    pub(super) member: usize,
    pub(super) at: u64,
    pub(super) sectors: u64,
    /// Offset and length of each piece in the request, in sectors.
    pub(super) parts: Vec<(u64, u64)>,
}

/// The runs of `pieces`, at most `sectors_max` long, by member and address. A longer piece is cut.
pub(super) fn runs(pieces: impl IntoIterator<Item = MemberPart>, sectors_max: u64) -> Vec<Run> {
    let mut pieces: Vec<MemberPart> = pieces.into_iter().collect();
    pieces.sort_by_key(|piece| (piece.member, piece.at));
    let mut runs: Vec<Run> = Vec::new();
    for mut piece in pieces {
        while piece.sectors > 0 {
            let fits = |run: &&mut Run| {
                run.member == piece.member && run.at + run.sectors == piece.at && run.sectors < sectors_max
            };
            let run = match runs.last_mut().filter(fits) {
                Some(run) => run,
                None => {
                    runs.push(Run { member: piece.member, at: piece.at, sectors: 0, parts: Vec::new() });
                    let last = runs.len() - 1;
                    &mut runs[last]
                }
            };
            let take = piece.sectors.min(sectors_max - run.sectors);
            run.sectors += take;
            match run.parts.last_mut() {
                Some((offset, length)) if *offset + *length == piece.offset => *length += take,
                _ => run.parts.push((piece.offset, take)),
            }
            piece =
                MemberPart { at: piece.at + take, sectors: piece.sectors - take, offset: piece.offset + take, ..piece };
        }
    }
    runs
}

/// Sectors as a range of bytes in a buffer.
pub(super) fn bytes(offset: u64, sectors: u64) -> std::ops::Range<usize> {
    (offset * SECTOR_BYTES) as usize..((offset + sectors) * SECTOR_BYTES) as usize
}

impl Run {
    /// The data of the run, taken from the whole request: shared where it is one part, copied otherwise.
    pub(super) fn data(&self, whole: &Data) -> Data {
        debug_assert_eq!(
            self.parts.iter().map(|(_, sectors)| sectors).sum::<u64>(),
            self.sectors,
            "a run on a member is its parts of the request"
        );
        if let [(offset, sectors)] = self.parts[..] {
            return whole.slice(bytes(offset, sectors));
        }
        if whole.is_hole() {
            return Data::zeroes((self.sectors * SECTOR_BYTES) as usize);
        }
        let mut gathered = Buf::dirty((self.sectors * SECTOR_BYTES) as usize);
        let mut done = 0;
        for &(offset, sectors) in &self.parts {
            gathered[bytes(done, sectors)].copy_from_slice(&whole[bytes(offset, sectors)]);
            done += sectors;
        }
        gathered.freeze()
    }

    /// Copies the bytes read into the buffer of the whole request.
    pub(super) fn scatter(&self, read: &[u8], whole: &mut [u8]) {
        debug_assert_eq!(read.len() as u64, self.sectors * SECTOR_BYTES, "a member returns as much as was asked of it");
        let mut done = 0;
        for &(offset, sectors) in &self.parts {
            whole[bytes(offset, sectors)].copy_from_slice(&read[bytes(done, sectors)]);
            done += sectors;
        }
    }

    /// `error` of the member as reported to the caller of the whole request at `start`: with the caller's address.
    pub(super) fn blame(&self, error: DeviceError, start: Sector) -> DeviceError {
        let at = start + self.parts.first().map_or(0, |(offset, _)| *offset);
        relocate(error, self.member, at, self.sectors * SECTOR_BYTES)
    }
}

/// `error` of `member`, with the address that the caller knows.
pub(super) fn relocate(error: DeviceError, member: usize, at: Sector, bytes: u64) -> DeviceError {
    match error {
        DeviceError::NoSpace { .. } => DeviceError::NoSpace { at, bytes },
        DeviceError::ReadOnly => DeviceError::ReadOnly,
        DeviceError::Gone(why) => {
            let cause = format!("member {member} is gone: {why}");
            DeviceError::Io { operation: "use", at, bytes, cause }
        }
        DeviceError::Io { operation, cause, .. } => {
            DeviceError::Io { operation, at, bytes, cause: format!("member {member}: {cause}") }
        }
        other => DeviceError::Io { operation: "use", at, bytes, cause: format!("member {member}: {other}") },
    }
}

/// Why devices cannot be combined.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ShapeError {
    #[error("there is no member")]
    NoMember,
    #[error(
        "{what} is {bytes} bytes, which is no multiple of the {block_bytes} bytes that member {member} reads and writes at once"
    )]
    Grain { what: &'static str, bytes: u64, block_bytes: u32, member: usize },
    #[error(
        "member {member} has not the zones that member 0 has: all of them need zones of one size and capacity, or none"
    )]
    Zones { member: usize },
    #[error("{what} must be at least one sector")]
    Zero { what: &'static str },
    #[error("member {member} has {sectors} sectors, fewer than the {needed} that are needed")]
    TooSmall { member: usize, sectors: u64, needed: u64 },
    #[error("there would be {sectors} sectors, which is more than an address can say")]
    TooLarge { sectors: u128 },
}

/// The largest block of all members.
pub(super) fn block_bytes(members: &[Device]) -> u32 {
    members.iter().map(|member| member.geometry().block_bytes).max().unwrap_or(SECTOR_BYTES as u32)
}

/// Checks that `sectors` is a whole number of every member's blocks.
pub(super) fn check_grain(members: &[Device], what: &'static str, sectors: u64) -> Result<(), ShapeError> {
    if sectors == 0 {
        return Err(ShapeError::Zero { what });
    }
    for (member, device) in members.iter().enumerate() {
        let block_bytes = device.geometry().block_bytes;
        if !(sectors * SECTOR_BYTES).is_multiple_of(u64::from(block_bytes)) {
            return Err(ShapeError::Grain { what, bytes: sectors * SECTOR_BYTES, block_bytes, member });
        }
    }
    Ok(())
}

/// The longest request that every member takes, in sectors: at least one of its blocks.
pub(super) fn request_sectors_max(members: &[Device]) -> u64 {
    let of = |geometry: Geometry| {
        let blocks = u64::from(geometry.request_bytes_max / geometry.block_bytes).max(1);
        blocks * u64::from(geometry.block_bytes) / SECTOR_BYTES
    };
    members.iter().map(|member| of(member.geometry())).min().unwrap_or(1)
}

/// Longest request of an array, in bytes. Longer ones are not faster; buffers only get larger.
const REQUEST_BYTES_MAX: u64 = 64 << 20;

/// The longest request of an array that spreads a request over `spread` members, in bytes.
pub(super) fn request_bytes_max(members: &[Device], spread: u64) -> u32 {
    let block = u64::from(block_bytes(members));
    let longest = (request_sectors_max(members) * SECTOR_BYTES).saturating_mul(spread).min(REQUEST_BYTES_MAX);
    let bytes = (longest / block).max(1) * block;
    debug_assert!(
        members.iter().all(|member| bytes.is_multiple_of(u64::from(member.geometry().block_bytes))),
        "the longest request has whole blocks of every member"
    );
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Guarantees of a device whose requests are cut at multiples of `grain` sectors and go to several `members`.
///
/// A write is atomic only where it stays in one piece, aligned as on the member. The order of writes is lost: members
/// are independent, so of two requests that were split, parts of the later one may complete first.
pub(super) fn joined(members: &[Device], grain: u64) -> Guarantees {
    debug_assert!(grain > 0, "requests are cut at multiples of something");
    let all: Vec<Guarantees> = members.iter().map(|member| member.guarantees()).collect();
    let atomic = all.first().map_or(SECTOR_BYTES as u32, |first| first.atomic_write_bytes);
    let is_kept = all.iter().all(|each| each.atomic_write_bytes == atomic)
        && (grain * SECTOR_BYTES).is_multiple_of(u64::from(atomic));
    Guarantees {
        atomic_write_bytes: if is_kept { atomic } else { SECTOR_BYTES as u32 },
        durable_on_completion: all.iter().all(|each| each.durable_on_completion),
        ordered: false,
        discard: match all.first().map(|first| first.discard) {
            Some(discard) if all.iter().all(|each| each.discard == discard) => discard,
            _ => Discard::Undefined,
        },
    }
}

/// Flushes all `members` at once.
pub(super) async fn flush_all(members: &[Device]) -> Result<(), DeviceError> {
    if let [only] = members {
        return only.flush().await;
    }
    let results = join_all(members.iter().map(|member| member.flush())).await.into_iter().enumerate();
    results.map(|(member, result)| result.map_err(|error| relocate(error, member, Sector::ZERO, 0))).fold(Ok(()), worse)
}

/// Reads `runs` into `whole`.
pub(super) async fn read_runs(
    members: &[Device],
    runs: &[Run],
    start: Sector,
    whole: &mut Buf,
) -> Result<(), DeviceError> {
    let read = |run: &Run| {
        let buf = Buf::dirty((run.sectors * SECTOR_BYTES) as usize);
        let (member, at) = (members[run.member].clone(), Sector(run.at));
        async move { member.read(at, buf).await }
    };
    let results = join_all(runs.iter().map(read)).await.into_iter();
    let blamed = runs.iter().zip(results).map(|(run, result)| result.map_err(|error| run.blame(error, start)));
    scatter_all(runs, &blamed.collect::<Result<Vec<Buf>, DeviceError>>()?, whole);
    Ok(())
}

/// Copies what was read for each of `runs` into the buffer of the whole request. Members that keep no data return buffers without memory:
/// then that one takes none either.
pub(super) fn scatter_all(runs: &[Run], read: &[Buf], whole: &mut Buf) {
    debug_assert_eq!(runs.len(), read.len(), "each run has been read");
    match read.iter().all(Buf::is_hole) {
        true => *whole = Buf::zeroed(whole.len()),
        false => runs.iter().zip(read).for_each(|(run, read)| run.scatter(read, whole)),
    }
}

/// Writes `runs` out of `whole`. All of them have ended when this returns, even after an error.
pub(super) async fn write_runs(
    members: &[Device],
    runs: &[Run],
    start: Sector,
    whole: &Data,
    flags: WriteFlags,
) -> Result<(), DeviceError> {
    let write = |run: &Run| {
        let (member, at, data) = (members[run.member].clone(), Sector(run.at), run.data(whole));
        async move { member.write(at, data, flags).await }
    };
    let results = join_all(runs.iter().map(write)).await;
    runs.iter().zip(results).map(|(run, result)| result.map_err(|error| run.blame(error, start))).fold(Ok(()), worse)
}

/// Counters of all `members`: sums, and the largest of those that are maxima.
pub fn counters_of<'a>(members: impl IntoIterator<Item = &'a Device>) -> Vec<Counter> {
    let mut order: Vec<&'static str> = Vec::new();
    let mut totals: BTreeMap<&'static str, u64> = BTreeMap::new();
    for (name, value) in members.into_iter().flat_map(|member| member.counters()) {
        let total = totals.entry(name).or_insert_with(|| {
            order.push(name);
            0
        });
        *total = if name.ends_with("_max") { (*total).max(value) } else { *total + value };
    }
    order.into_iter().map(|name| (name, totals[name])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Neighbours on a member become one run, in any order, and no run is too long.
    #[test]
    fn neighbours_are_merged() {
        let piece = |member, at, sectors, offset| MemberPart { member, at, sectors, offset };
        let pieces =
            [piece(0, 8, 4, 0), piece(1, 8, 4, 4), piece(0, 12, 4, 8), piece(1, 20, 4, 12), piece(0, 16, 9, 16)];
        let run = |member, at, sectors, parts: &[(u64, u64)]| Run { member, at, sectors, parts: parts.to_vec() };
        assert_eq!(
            runs(pieces, 12),
            [
                run(0, 8, 12, &[(0, 4), (8, 4), (16, 4)]),
                run(0, 20, 5, &[(20, 5)]),
                run(1, 8, 4, &[(4, 4)]),
                run(1, 20, 4, &[(12, 4)])
            ]
        );
    }
}
