//! Sequential access: clustered reads with a window that grows, and clusters of delayed writes, as 4.4BSD has them
//! ([se95 §2]; McVoy and Kleiman 1991).
//!
//! Reading. A block that is not in memory is read. When access is sequential, the blocks that follow it on the volume
//! are read with it, or are read ahead. The window doubles each time, and halves when blocks read ahead were evicted
//! before they were used. Block 0 of a file never makes access sequential, and the last block is always read alone, so
//! that a file of two blocks takes two reads.
//!
//! Writing. A block that has been written to its end waits for the next one. A cluster is written to the device when it
//! is full, or when something else is written.

use futures_util::future::join_all;

use super::Ffs;
use super::cache::BufferKind;
use super::format::pointer_in;
use super::numbers::{FragNo, InodeNo};
use super::soft::Holder;
use super::state::*;
use crate::device::{Data, WriteFlags};
use crate::fs::{FsError, FsResult};

/// How one block is read.
enum BlockRead {
    Ready(Data),
    Hole,
    /// Read from here: first file block, address, blocks. Zero blocks stand for the short last one.
    Demand(Run),
}

/// What to do after a block was written to its end.
enum AfterWrite {
    /// Write these runs to the device now.
    Push(Vec<Vec<FragNo>>),
    /// This many blocks from this one on could be moved together first.
    Together(u64, u32),
}

/// Where the blocks of a cluster are that are to be together.
enum Cluster {
    /// Where they were: there is no run for them.
    Stays,
    /// Where they were, with copies from here on.
    Copied(FragNo),
    /// In one run. Their old addresses, still allocated, and the indirect blocks that hold their pointers.
    Moved(Vec<FragNo>, Vec<Holder>),
}

/// Consecutive blocks of a file on the volume.
#[derive(Clone, Copy, Debug)]
struct Run {
    lbn: u64,
    at: FragNo,
    count: u32,
}

impl State {
    /// How many blocks behind `lbn` follow it on the volume too, within one pointer block and a cluster.
    fn run_behind(&mut self, ino: InodeNo, lbn: u64, at: FragNo) -> Step<u64> {
        let most = (self.options.cluster_bytes / u64::from(self.layout.block_bytes)).saturating_sub(1);
        let size = self.inode(ino)?.inode.size;
        let path = self.layout.path(lbn);
        let mut run = 0;
        while run < most {
            let next = lbn + run + 1;
            let together = match (path, self.layout.path(next)) {
                (Some(one), Some(two)) if one.depth == two.depth && one.depth == 0 => true,
                (Some(one), Some(two)) if one.depth == two.depth && one.slot == two.slot => {
                    one.slots[..one.depth - 1] == two.slots[..two.depth - 1]
                }
                _ => false,
            };
            let whole = self.layout.block_frags(size, next) == self.layout.frag;
            let wanted = u64::from(at.0) + (run + 1) * u64::from(self.layout.frag);
            if !together || !whole || self.block_at(ino, next)?.map(|at| u64::from(at.0)) != Some(wanted) {
                break;
            }
            run += 1;
        }
        Ok(run)
    }

    fn is_near(&self, at: FragNo) -> bool {
        self.cache.peek(at).is_some() || self.cache.is_loading(at)
    }

    /// The blocks from `lbn` on that can be read with one request, at most `run` after the first.
    fn build_run(&mut self, ino: InodeNo, lbn: u64, at: FragNo, run: u64) -> Step<Run> {
        let (block, frag) = (u64::from(self.layout.block_bytes), self.layout.frag);
        let size = self.inode(ino)?.inode.size;
        let run = if block * (lbn + run + 1) > size { run.saturating_sub(1) } else { run };
        let mut count = 1;
        while u64::from(count) <= run && !self.is_near(at + count * frag) {
            count += 1;
        }
        Ok(Run { lbn, at, count })
    }

    /// Adapts the window for the `run` blocks that follow `lbn`. Returns how many of them to read.
    fn scale_window(sequence: &mut Sequence, lbn: u64, ahead: u64, run: u64) -> u64 {
        if run == 0 {
            return 0;
        }
        if ahead <= sequence.ahead_last {
            // It had been read ahead, and was evicted before it was used.
            sequence.window = (sequence.window / 2).max(1);
        } else if run > sequence.window && lbn != sequence.read_last {
            sequence.window = if sequence.window == 0 { 1 } else { run.min(sequence.window * 2) };
        }
        run.min(sequence.window)
    }

    /// Decides how block `lbn` is read, and what is read ahead of it.
    fn plan_read(&mut self, ino: InodeNo, lbn: u64) -> Step<(BlockRead, Option<Run>)> {
        let (block, frag) = (u64::from(self.layout.block_bytes), self.layout.frag);
        let inode = self.inode(ino)?.inode;
        let mut sequence = self.inode(ino)?.sequence;
        let Some(at) = self.block_at(ino, lbn)? else {
            self.inode(ino)?.sequence.read_last = lbn;
            return Ok((BlockRead::Hole, None));
        };
        let kind = BufferKind::File { ino, lbn };
        let is_last = (lbn + 1) * block >= inode.size;
        if is_last || !self.options.read_ahead {
            let data = self.buffer(at, self.layout.block_frags(inode.size, lbn), kind)?;
            self.inode(ino)?.sequence.read_last = lbn;
            return Ok((BlockRead::Ready(data), None));
        }
        let hit = self.cache.peek(at).is_some();
        let is_sequential = lbn != 0 && (lbn == sequence.read_last + 1 || lbn == sequence.read_last);
        let mut ahead = if hit { lbn + sequence.window.max(1) } else { lbn };
        let mut demand = Run { lbn, at, count: 1 };
        let mut further: Option<Run> = None;
        if !is_sequential {
            sequence.window = 0;
            sequence.ahead_last = lbn;
        } else if (ahead + 1) * block <= inode.size
            && let Some(ahead_at) = self.block_at(ino, ahead)?
            && !(hit && self.is_near(ahead_at))
        {
            let run = self.run_behind(ino, ahead, ahead_at)?;
            let run = Self::scale_window(&mut sequence, lbn, ahead, run);
            if hit {
                further = Some(self.build_run(ino, ahead, ahead_at, run)?);
            } else if run > 0 {
                demand = self.build_run(ino, lbn, at, run)?;
            } else {
                // The next block is elsewhere, and is read ahead by itself.
                ahead = lbn + 1;
                if (ahead + 1) * block <= inode.size
                    && let Some(ahead_at) = self.block_at(ino, ahead)?
                    && !self.is_near(ahead_at)
                {
                    let run = self.run_behind(ino, ahead, ahead_at)?;
                    let run = Self::scale_window(&mut sequence, lbn, ahead, run);
                    further = Some(self.build_run(ino, ahead, ahead_at, run)?);
                }
            }
        }
        if let Some(run) = further.or((!hit).then_some(demand)) {
            sequence.ahead_last = run.lbn + u64::from(run.count) - 1;
        }
        sequence.read_last = lbn;
        if !hit && self.cache.is_loading(at) {
            // It is in flight; the task that reads it has adapted the window.
            return need(Load { at, frags: frag, kind });
        }
        self.inode(ino)?.sequence = sequence;
        match self.cache.get(at) {
            Some(data) => {
                let data = data.clone();
                Ok((BlockRead::Ready(data), further))
            }
            None => Ok((BlockRead::Demand(demand), further)),
        }
    }

    /// Records that block `lbn`, at `at`, has been written to its end.
    fn note_written(&mut self, ino: InodeNo, lbn: u64, at: FragNo) -> Step<AfterWrite> {
        let (block, frag) = (u64::from(self.layout.block_bytes), self.layout.frag);
        let most = (self.options.cluster_bytes / block).saturating_sub(1);
        let size = self.inode(ino)?.inode.size;
        let mut sequence = self.inode(ino)?.sequence;
        let mut runs = Vec::new();
        if lbn == 0 {
            (sequence.cluster_more, sequence.cluster_first) = (0, 0);
            (sequence.write_last, sequence.write_at) = (0, FragNo::NONE);
        }
        let at_end = (lbn + 1) * block == size;
        let follows = lbn == sequence.write_last + 1;
        let goes_on = sequence.cluster_more != 0 && follows && at == sequence.write_at + frag;
        if !goes_on {
            let mut more = most;
            if sequence.cluster_more != 0 {
                debug_assert!(
                    sequence.cluster_first <= sequence.write_last + 1,
                    "a cluster ends where it was written last"
                );
                let length = sequence.write_last + 1 - sequence.cluster_first;
                if at_end && follows && sequence.cluster_more > length && self.options.realloc_blocks {
                    return Ok(AfterWrite::Together(sequence.cluster_first, length as u32 + 1));
                }
                runs.extend(self.cluster_runs(ino, sequence.cluster_first, length, lbn)?);
            }
            if !at_end {
                more = self.run_behind(ino, lbn, at)?;
            }
            sequence.cluster_more = more;
            if more == 0 {
                sequence.cluster_first = lbn + 1;
                runs.push(vec![at]);
            } else {
                sequence.cluster_first = lbn;
            }
        } else if lbn == sequence.cluster_first + sequence.cluster_more {
            runs.extend(self.cluster_runs(ino, sequence.cluster_first, sequence.cluster_more + 1, u64::MAX)?);
            sequence.cluster_more = 0;
            sequence.cluster_first = lbn + 1;
        }
        (sequence.write_last, sequence.write_at) = (lbn, at);
        self.inode(ino)?.sequence = sequence;
        Ok(AfterWrite::Push(runs))
    }

    /// Ends the cluster that began at `first`, and begins one at `lbn`. Returns the runs to write now.
    fn begin_cluster(&mut self, ino: InodeNo, first: u64, count: u32, lbn: u64, at: FragNo) -> Step<Vec<Vec<FragNo>>> {
        debug_assert!(count > 0, "a cluster that ends has at least the block that was written last");
        let runs = self.cluster_runs(ino, first, u64::from(count) - 1, u64::MAX)?;
        let most = self.options.cluster_bytes / u64::from(self.layout.block_bytes);
        let sequence = &mut self.inode(ino)?.sequence;
        sequence.cluster_more = most.saturating_sub(1);
        (sequence.cluster_first, sequence.write_last, sequence.write_at) = (lbn, lbn, at);
        Ok(runs)
    }

    /// The dirty blocks among `count` from `first` on, grouped into consecutive runs; `not` is left out.
    fn cluster_runs(&mut self, ino: InodeNo, first: u64, count: u64, not: u64) -> Step<Vec<Vec<FragNo>>> {
        let mut runs: Vec<Vec<FragNo>> = Vec::new();
        let frag = self.layout.frag;
        for lbn in (first..first + count).filter(|&lbn| lbn != not) {
            let Some(at) = self.block_at(ino, lbn)? else { continue };
            if self.cache.peek(at).is_none_or(|buffer| buffer.dirty.is_none()) {
                continue;
            }
            match runs.last_mut() {
                Some(run) if run.last().is_some_and(|&last| last + frag == at) => run.push(at),
                _ => runs.push(vec![at]),
            }
        }
        Ok(runs)
    }

    /// Moves the `count` blocks from `first` on into one consecutive run, if there is a free one.
    ///
    /// With `keep_moved` in two steps: the first makes copies, and once these are written, the second, called with the place
    /// of the first copy, points to them.
    fn realloc(&mut self, ino: InodeNo, first: u64, count: u32, copied: Option<FragNo>) -> Step<Cluster> {
        let frag = self.layout.frag;
        let mut old = Vec::new();
        for lbn in first..first + u64::from(count) {
            let Some(at) = self.block_at(ino, lbn)? else { return Ok(Cluster::Stays) };
            old.push(at);
        }
        let dirty = |at: &FragNo| self.cache.peek(*at).is_some_and(|buffer| buffer.dirty.is_some());
        let (Some(&one), Some(&last)) = (old.first(), old.last()) else { return Ok(Cluster::Stays) };
        // A block in another group is there because of the policy.
        if copied.is_none() && !old.iter().all(dirty) || self.layout.group_of(one) != self.layout.group_of(last) {
            return Ok(Cluster::Stays);
        }
        let Some(path) = self.layout.path(first) else { return Ok(Cluster::Stays) };
        let inode = self.inode(ino)?.inode;
        let mut holders: Vec<Holder> = Vec::new();
        let mut before = inode.db.to_vec();
        for lbn in first..first + u64::from(count) {
            let Some(path) = self.layout.path(lbn) else { return Ok(Cluster::Stays) };
            if path.depth == 0 {
                continue;
            }
            let mut at = inode.ib[path.slot];
            for &slot in &path.slots[..path.depth - 1] {
                at = pointer_in(&self.buffer(at, frag, BufferKind::Indirect { ino })?, slot);
            }
            let block = self.buffer(at, frag, BufferKind::Indirect { ino })?;
            if lbn == first {
                before = (0..self.layout.pointers_per_block as usize).map(|slot| pointer_in(&block, slot)).collect();
            }
            let slot = path.slots[path.depth - 1];
            match holders.last_mut() {
                Some((holder, slots)) if *holder == at => slots.end = slot + 1,
                _ => holders.push((at, slot..slot + 1)),
            }
        }
        let new = match copied {
            Some(new) => new,
            None => {
                let index = if path.depth == 0 { path.slot } else { path.slots[path.depth - 1] };
                let preferred = self.preferred_block(ino, first, index, &before);
                let Some(new) = self.take_cluster(preferred, count)? else { return Ok(Cluster::Stays) };
                new
            }
        };
        debug_assert!(
            old.iter().all(|at| !(new..new + count * frag).contains(at)),
            "U2: the run that was free holds no block of the file"
        );
        let copies_first = self.options.keeps_moved();
        for (index, &at) in old.iter().enumerate() {
            let (lbn, place) = (first + index as u64, new + index as u32 * frag);
            if copied.is_none() {
                let Some(data) = self.cache.peek(at).map(|buffer| buffer.data.clone()) else { continue };
                self.cache.create(place, data, BufferKind::File { ino, lbn });
                self.note_taken(place);
                if copies_first {
                    continue;
                }
            }
            self.cache.forget(at, frag);
            let Some(path) = self.layout.path(lbn) else { continue };
            if path.depth == 0 {
                self.inode_mut(ino)?.db[path.slot] = place;
                continue;
            }
            let mut at = inode.ib[path.slot];
            for &slot in &path.slots[..path.depth - 1] {
                at = pointer_in(&self.buffer(at, frag, BufferKind::Indirect { ino })?, slot);
            }
            let slot = path.slots[path.depth - 1];
            self.put_pointers(ino, at, slot..slot + 1, place)?;
        }
        if copies_first && copied.is_none() {
            return Ok(Cluster::Copied(new));
        }
        self.counters.clusters_moved += 1;
        if self.soft.is_none() && copied.is_none() {
            let since = self.cache.tick();
            self.copied_tails.insert(ino, since);
        }
        let sequence = &mut self.inode(ino)?.sequence;
        sequence.write_last = first + u64::from(count) - 1;
        sequence.write_at = new + (count - 1) * frag;
        if self.soft.is_some() {
            let in_inode = first < super::format::DIRECT as u64;
            let frags = old.drain(..).map(|at| (at, frag)).collect();
            self.free_later(ino, in_inode, &holders, frags);
        }
        Ok(Cluster::Moved(old, holders))
    }
}

impl Ffs {
    /// Called after the writing of a whole block: writes out clusters.
    pub(super) async fn write_clustered(&self, ino: InodeNo, lbn: u64, at: FragNo) -> FsResult<()> {
        let runs = match self.step(|state| state.note_written(ino, lbn, at)).await? {
            AfterWrite::Push(runs) => runs,
            AfterWrite::Together(first, count) => match self.move_cluster(ino, first, count).await? {
                true => return Ok(()),
                // There is no such run. The cluster so far is written, and another begins.
                false => self.step(|state| state.begin_cluster(ino, first, count, lbn, at)).await?,
            },
        };
        for run in runs {
            self.push_run(&run);
        }
        Ok(())
    }

    /// Moves blocks of a file into one run. Returns false when there is no such run.
    ///
    /// The new pointers are on the volume before the old places can belong to another file.
    async fn move_cluster(&self, ino: InodeNo, first: u64, count: u32) -> FsResult<bool> {
        let frag = self.state.borrow().layout.frag;
        let mut moved = self.step(|state| state.realloc(ino, first, count, None)).await?;
        if let Cluster::Copied(new) = moved {
            // Some of these blocks may be on the volume, with bytes that were synced.
            let copies: Vec<FragNo> = (0..count).map(|index| new + index * frag).collect();
            let pointed = match self.write_run_in_order(&copies).await {
                Ok(()) => self.step(|state| state.realloc(ino, first, count, Some(new))).await,
                Err(FsError::NoSpace) => Ok(Cluster::Stays),
                Err(error) => Err(error),
            };
            if !matches!(pointed, Ok(Cluster::Moved(..))) {
                for at in copies {
                    self.step(|state| state.free_frags(at, frag)).await?;
                }
            }
            moved = pointed?;
        }
        let Cluster::Moved(old, holders) = moved else { return Ok(false) };
        if let Err(error) = self.write_pointers(ino, &holders).await {
            if error != FsError::NoSpace {
                return Err(error);
            }
            if self.options.keeps_moved() {
                let mut state = self.state.borrow_mut();
                old.into_iter().for_each(|at| state.leave_behind(ino, at, frag));
                return Ok(true);
            }
        }
        for at in old {
            self.step(|state| state.free_frags(at, frag)).await?;
        }
        Ok(true)
    }

    /// Writes the inode and indirect blocks in order. One that finds no space below does not keep the others from being
    /// written.
    async fn write_pointers(&self, ino: InodeNo, holders: &[Holder]) -> FsResult<()> {
        let mut written = self.write_inode_in_order(ino).await;
        for &(holder, _) in holders {
            match written {
                Ok(()) => written = self.write_in_order(holder).await,
                Err(FsError::NoSpace) => self.write_in_order_or_later(holder).await?,
                Err(_) => break,
            }
        }
        written
    }

    /// Writes out a run, unless a part of it is in flight; that part then stays dirty until the next update.
    fn push_run(&self, run: &[FragNo]) {
        let free = {
            let state = self.state.borrow();
            let frag = state.layout.frag;
            run.iter().all(|&at| !state.cache.is_in_flight(at, frag))
        };
        if free {
            self.begin_write(run, WriteFlags::NONE);
        }
    }

    /// Reads up to `bytes` from `offset`.
    pub(super) async fn read_data(&self, ino: InodeNo, offset: u64, bytes: u64) -> FsResult<Vec<Data>> {
        let size = self.step(|state| Ok(state.regular(ino)?.size)).await?;
        let end = size.min(offset.saturating_add(bytes));
        if offset >= end {
            return Ok(Vec::new());
        }
        if !self.options.cache_data {
            return self.read_uncached(ino, offset, end).await;
        }
        let block = u64::from(self.state.borrow().layout.block_bytes);
        let mut pieces = Vec::new();
        for lbn in offset / block..=(end - 1) / block {
            let (from, to) = (offset.max(lbn * block), end.min((lbn + 1) * block));
            let data = self.read_block(ino, lbn, to == (lbn + 1) * block || to == size).await?;
            let within = (from - lbn * block) as usize..(to - lbn * block) as usize;
            pieces.push(match data {
                Some(data) if data.len() >= within.end => data.slice(within),
                Some(_) => {
                    return Err(FsError::corrupt("file", format_args!("inode {ino}, block {lbn}"), "it is short"));
                }
                None => Data::zeroes(within.len()),
            });
        }
        Ok(pieces)
    }

    /// One block; `None` for a hole. `to_end`: it will not be needed again soon.
    async fn read_block(&self, ino: InodeNo, lbn: u64, to_end: bool) -> FsResult<Option<Data>> {
        let (read, ahead) = self.step(|state| state.plan_read(ino, lbn)).await?;
        let demanded = match read {
            BlockRead::Demand(run) => self.begin_run(run.at, run.count),
            _ => Vec::new(),
        };
        if let Some(run) = ahead {
            let (ffs, places) = (self.this(), self.begin_run(run.at, run.count));
            // It begins when this task waits. A task that needs these blocks waits for them, and gets an error by
            // itself.
            self.rt.spawn(async move { ffs.load_run(ino, run.lbn, places).await.ok() });
        }
        let data = match read {
            BlockRead::Hole => return Ok(None),
            BlockRead::Ready(data) => data,
            BlockRead::Demand(run) => {
                let loaded = self.load_run(ino, run.lbn, demanded).await;
                // Of several, another one may be damaged: the block is read again by itself.
                if run.count == 1 {
                    loaded?;
                }
                let frag = self.state.borrow().layout.frag;
                self.step(|state| state.buffer(run.at, frag, BufferKind::File { ino, lbn })).await?
            }
        };
        if to_end {
            let aged = self.step(|state| {
                if let Some(at) = state.block_at(ino, lbn)? {
                    state.cache.age(at);
                }
                Ok(())
            });
            aged.await?;
        }
        Ok(Some(data))
    }

    /// Reads without caching, in requests as long as the volume allows. For use below a kernel, which caches what it
    /// reads and reads ahead by itself.
    async fn read_uncached(&self, ino: InodeNo, offset: u64, end: u64) -> FsResult<Vec<Data>> {
        const REQUEST_BYTES_MAX: usize = 1 << 20;
        enum Piece {
            Ready(Data),
            Part { request: usize, from: usize, to: usize },
        }
        let block = u64::from(self.state.borrow().layout.block_bytes);
        let mut pieces = Vec::new();
        // First fragment and bytes of each request.
        let mut requests: Vec<(FragNo, usize)> = Vec::new();
        for lbn in offset / block..=(end - 1) / block {
            let (from, to) = (offset.max(lbn * block), end.min((lbn + 1) * block));
            let (from, to) = ((from - lbn * block) as usize, (to - lbn * block) as usize);
            let found = self.step(|state| {
                let size = state.inode(ino)?.inode.size;
                let Some(at) = state.block_at(ino, lbn)? else { return Ok(None) };
                let bytes = (state.layout.block_frags(size, lbn) * state.layout.frag_bytes) as usize;
                Ok(Some((at, bytes, state.cache.get(at).cloned())))
            });
            let frag_bytes = self.state.borrow().layout.frag_bytes as usize;
            pieces.push(match found.await? {
                None => Piece::Ready(Data::zeroes(to - from)),
                Some((_, _, Some(data))) if data.len() >= to => Piece::Ready(data.slice(from..to)),
                Some((at, bytes, _)) => {
                    let follows = |&(first, length): &(FragNo, usize)| {
                        first.index() * frag_bytes + length == at.index() * frag_bytes
                            && length + bytes <= REQUEST_BYTES_MAX
                    };
                    match requests.last_mut() {
                        Some(request) if follows(request) => {
                            let start = request.1;
                            request.1 += bytes;
                            Piece::Part { request: requests.len() - 1, from: start + from, to: start + to }
                        }
                        _ => {
                            requests.push((at, bytes));
                            Piece::Part { request: requests.len() - 1, from, to }
                        }
                    }
                }
            });
        }
        let reads = requests.iter().map(|&(at, bytes)| {
            let sector = self.state.borrow().layout.sector(at);
            async move { super::io::read_bytes(&self.device, sector, bytes).await }
        });
        let mut read = Vec::new();
        for result in join_all(reads).await {
            read.push(result?.freeze());
        }
        self.state.borrow_mut().counters.block_reads += read.len() as u64;
        let pieces = pieces.into_iter().map(|piece| match piece {
            Piece::Ready(data) => data,
            Piece::Part { request, from, to } => read[request].slice(from..to),
        });
        Ok(pieces.collect())
    }
}
