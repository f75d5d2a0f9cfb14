//! TPC-B: transactions on a bank's accounts, by a database with its own cache and log.
//!
//! Paper: [se95 §4]: accounts, tellers, branches and a history, the accounts in a B-tree file of 237 MB with pages of 4
//! KB, a user-level cache of 4 MB, and the log on a separate device. Each transaction changes one random account, its
//! teller and its branch, and adds to the history: nearly always one page is read, and one dirty page written to make
//! room for it. This is not the benchmark of \[se93\], which differs in nearly every number.
//!
//! The tree is loaded from the bottom up and its keys do not change, so it never splits. One more, unused file sets the
//! utilisation of the file system. The log holds the records before and after each change; when it is made durable is a
//! parameter, since the model of [se95 §4] has no term for it: with `commits_wait`, each commit waits for the log;
//! without, the log is written and its file system makes it durable later. At the end the sums of accounts, tellers and
//! branches must equal that of the history.

use std::collections::BTreeMap;

use async_trait::async_trait;
use seekless::codec::get_at;
use seekless::rng::Rng;
use seekless::units::human_bytes;
use serde::{Deserialize, Serialize};

use super::meter::{Durable, Meter, Unit, look};
use super::{Form, Key, Outcome, Watch, Workload, WorkloadSpec, size};
use crate::LabError;
use crate::target::Target;

/// Parameters. The defaults are those of the paper, where it gives them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TpcB {
    /// From the benchmark's definition: 100,000 for each transaction per second of the target rate; 10 tellers and one
    /// branch.
    pub accounts: u64,
    /// Approximate size of the account file.
    #[serde(deserialize_with = "size")]
    pub bytes: u64,
    /// The database's own cache.
    #[serde(deserialize_with = "size")]
    pub cache: u64,
    /// Transactions before the measured ones.
    pub warmup: u64,
    pub transactions: u64,
    /// Each commit waits until the log is durable.
    pub commits_wait: bool,
    /// Utilisation according to `df` once the database is loaded, in per cent, set by a file that only takes up space.
    /// There is no such file when this is 0, or below the utilisation of the database alone.
    pub full: u64,
    #[serde(skip_deserializing)]
    pub seed: u64,
}

impl Default for TpcB {
    fn default() -> TpcB {
        TpcB {
            accounts: 1_000_000,
            bytes: 237 << 20,
            cache: 4 << 20,
            warmup: 0,
            transactions: 10_000,
            commits_wait: false,
            full: 0,
            seed: 1,
        }
    }
}

/// [se95 §4].
const PAGE: u64 = 4 << 10;

/// Bytes of an account, a teller and a branch, and of a line of the history (TPC-B, clause 3.2).
const RECORD: u64 = 100;
const HISTORY: u64 = 50;

const ACCOUNTS_PER_BRANCH: u64 = 100_000;
const TELLERS_PER_BRANCH: u64 = 10;

/// Keys and children in an inner page of the tree: a key of 8 bytes and a page number of 8 for each.
const FANOUT: u64 = PAGE / 16;

/// Bytes per write of the ballast.
const BALLAST_UNIT: u64 = 1 << 20;

pub const LOAD: &str = "load";
pub const TRANSACTIONS: &str = "transactions";

/// The database's files, by their place in [`Pool::files`].
const ACCOUNT: usize = 0;
const TELLER: usize = 1;
const BRANCH: usize = 2;
const HISTORIES: usize = 3;
const NAMES: [&str; 4] = ["account", "teller", "branch", "history"];
const LOG: &str = "log";
const BALLAST: &str = "ballast";

/// A page of one file.
type PageId = (usize, u64);

struct Page {
    bytes: Vec<u8>,
    dirty: bool,
    used: u64,
}

/// The database's cache: the least recently used page is replaced, and is written first when it is dirty.
struct Pool<'a, T: Target> {
    target: &'a T,
    files: Vec<T::File>,
    pages: BTreeMap<PageId, Page>,
    by_use: BTreeMap<u64, PageId>,
    uses: u64,
    pages_max: usize,
}

impl<T: Target> Pool<'_, T> {
    /// A page for reading and writing; a `fresh` one has never been written.
    async fn page(&mut self, id: PageId, fresh: bool) -> Result<&mut Page, LabError> {
        self.uses += 1;
        let uses = self.uses;
        let before = match self.pages.get_mut(&id) {
            Some(page) => Some(std::mem::replace(&mut page.used, uses)),
            None => None,
        };
        match before {
            Some(before) => {
                self.by_use.remove(&before);
            }
            None => {
                while self.pages.len() >= self.pages_max {
                    self.evict().await?;
                }
                let mut bytes = vec![0; PAGE as usize];
                if !fresh {
                    let read = self.target.read(&mut self.files[id.0], id.1 * PAGE, &mut bytes).await?;
                    if read < bytes.len() {
                        let detail = format!("page {} has {read} bytes", id.1);
                        return Err(LabError::Content { path: NAMES[id.0].to_owned(), detail });
                    }
                }
                self.pages.insert(id, Page { bytes, dirty: false, used: uses });
            }
        }
        self.by_use.insert(uses, id);
        match self.pages.get_mut(&id) {
            Some(page) => Ok(page),
            None => unreachable!("it was just put there"),
        }
    }

    async fn evict(&mut self) -> Result<(), LabError> {
        let Some((_, id)) = self.by_use.pop_first() else { return Ok(()) };
        match self.pages.remove(&id).filter(|page| page.dirty) {
            Some(page) => self.target.write(&mut self.files[id.0], id.1 * PAGE, &page.bytes).await,
            None => Ok(()),
        }
    }

    /// Writes all dirty pages, in the order of their places.
    async fn flush(&mut self) -> Result<(), LabError> {
        for (id, page) in self.pages.iter_mut().filter(|(_, page)| page.dirty) {
            self.target.write(&mut self.files[id.0], id.1 * PAGE, &page.bytes).await?;
            page.dirty = false;
        }
        Ok(())
    }

    /// Adds `delta` to the balance of a record. Returns the record as it was and as it is.
    async fn add(&mut self, place: RecordLocation, delta: i64) -> Result<[Vec<u8>; 2], LabError> {
        let page = self.page((place.file, place.page), false).await?;
        let record = &mut page.bytes[place.offset..place.offset + RECORD as usize];
        let before = record.to_vec();
        let balance = balance_of(record) + delta;
        record[8..16].copy_from_slice(&balance.to_le_bytes());
        page.dirty = true;
        Ok([before, page.bytes[place.offset..place.offset + RECORD as usize].to_vec()])
    }
}

/// Where a record is.
#[derive(Clone, Copy)]
struct RecordLocation {
    file: usize,
    page: u64,
    offset: usize,
}

/// A record consists of its number, its balance, and padding.
fn record(number: u64) -> Vec<u8> {
    let mut bytes = vec![0x20; RECORD as usize];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[8..16].copy_from_slice(&0_i64.to_le_bytes());
    bytes
}

fn number_of(record: &[u8]) -> u64 {
    get_at(record, 0).unwrap_or(0)
}

fn balance_of(record: &[u8]) -> i64 {
    get_at::<u64>(record, 8).unwrap_or(0) as i64
}

/// The shape of the account tree: leaves first, then each level of inner pages, the root last.
struct Shape {
    accounts: u64,
    accounts_per_leaf: u64,
    /// Page numbers at which the levels begin, and the end.
    levels: Vec<u64>,
}

impl Shape {
    fn new(spec: &TpcB) -> Shape {
        let leaves_wanted = (spec.bytes / PAGE).max(1);
        let most = PAGE / RECORD;
        let accounts_per_leaf = spec.accounts.div_ceil(leaves_wanted).clamp(1, most);
        let mut pages = spec.accounts.div_ceil(accounts_per_leaf);
        let mut levels = vec![0, pages];
        while pages > 1 {
            pages = pages.div_ceil(FANOUT);
            levels.push(levels[levels.len() - 1] + pages);
        }
        Shape { accounts: spec.accounts, accounts_per_leaf, levels }
    }

    fn pages(&self) -> u64 {
        self.levels[self.levels.len() - 1]
    }

    fn level_of(&self, page: u64) -> usize {
        self.levels.partition_point(|&first| first <= page) - 1
    }

    /// The first account below a page.
    fn first_account(&self, page: u64) -> u64 {
        let level = self.level_of(page);
        let within = page - self.levels[level];
        within * FANOUT.pow(level as u32) * self.accounts_per_leaf
    }

    /// A page in its initial state.
    fn page(&self, page: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(PAGE as usize);
        let level = self.level_of(page);
        match level.checked_sub(1) {
            None => {
                let first = self.first_account(page);
                let end = (first + self.accounts_per_leaf).min(self.accounts);
                (first..end).for_each(|account| bytes.extend_from_slice(&record(account)));
            }
            Some(below) => {
                let first = self.levels[below] + (page - self.levels[level]) * FANOUT;
                for child in first..(first + FANOUT).min(self.levels[level]) {
                    bytes.extend_from_slice(&self.first_account(child).to_le_bytes());
                    bytes.extend_from_slice(&child.to_le_bytes());
                }
            }
        }
        bytes.resize(PAGE as usize, 0xff);
        bytes
    }
}

struct Bank<'a, T: Target> {
    spec: TpcB,
    shape: Shape,
    pool: Pool<'a, T>,
    log_target: &'a T,
    log: T::File,
    log_bytes: u64,
    rng: Rng,
    /// Lines of the history, and the sum of their amounts.
    lines: u64,
    sum: i64,
}

impl<T: Target> Bank<'_, T> {
    fn branches(&self) -> u64 {
        branches(&self.spec)
    }

    /// Searches the tree from its root.
    async fn find(&mut self, account: u64) -> Result<RecordLocation, LabError> {
        let mut page = self.shape.pages() - 1;
        for _ in 1..self.shape.levels.len() - 1 {
            let bytes = &self.pool.page((ACCOUNT, page), false).await?.bytes;
            let entries =
                bytes.chunks_exact(16).take_while(|entry| get_at(entry, 0).is_some_and(|key: u64| key <= account));
            let child = entries.last().and_then(|entry| get_at::<u64>(entry, 8));
            page = child.filter(|child| *child < page).ok_or_else(|| lost(account))?;
        }
        let bytes = &self.pool.page((ACCOUNT, page), false).await?.bytes;
        let slot = bytes.chunks_exact(RECORD as usize).position(|record| number_of(record) == account);
        let slot = slot.ok_or_else(|| lost(account))?;
        Ok(RecordLocation { file: ACCOUNT, page, offset: slot * RECORD as usize })
    }

    async fn transaction(&mut self) -> Result<(), LabError> {
        let account = self.rng.below(self.spec.accounts);
        let teller = self.rng.below(self.branches() * TELLERS_PER_BRANCH);
        let branch = teller / TELLERS_PER_BRANCH;
        let delta = self.rng.below(1_999_999) as i64 - 999_999;
        let mut logged = Vec::new();
        let account = self.find(account).await?;
        for place in [account, flat(TELLER, teller), flat(BRANCH, branch)] {
            for image in self.pool.add(place, delta).await? {
                logged.extend_from_slice(&image);
            }
        }
        let per_page = PAGE / HISTORY;
        let (page, slot) = (self.lines / per_page, self.lines % per_page);
        let history = self.pool.page((HISTORIES, page), slot == 0).await?;
        let at = (slot * HISTORY) as usize;
        history.bytes[at..at + 8].copy_from_slice(&delta.to_le_bytes());
        history.bytes[at + 8..at + 16].copy_from_slice(&teller.to_le_bytes());
        history.dirty = true;
        logged.extend_from_slice(&history.bytes[at..at + HISTORY as usize]);
        self.lines += 1;
        self.sum += delta;
        self.log_target.write(&mut self.log, self.log_bytes, &logged).await?;
        self.log_bytes += logged.len() as u64;
        match self.spec.commits_wait {
            true => self.log_target.fsync(&mut self.log).await,
            false => Ok(()),
        }
    }

    /// Sums up all balances of a file.
    async fn total(&mut self, file: usize, pages: u64, watch: Watch<'_>) -> Result<i64, LabError> {
        let mut total = 0;
        for page in 0..pages {
            look(watch)?;
            let bytes = &self.pool.page((file, page), false).await?.bytes;
            let records = bytes.chunks_exact(RECORD as usize).filter(|record| number_of(record) != u64::MAX);
            total += records.map(balance_of).sum::<i64>();
        }
        Ok(total)
    }

    /// The condition of TPC-B, clause 2.3.
    async fn check(&mut self, watch: Watch<'_>) -> Result<(), LabError> {
        let records = |count: u64| count.div_ceil(PAGE / RECORD);
        let (tellers, branches) = (records(self.branches() * TELLERS_PER_BRANCH), records(self.branches()));
        for (file, pages) in [(ACCOUNT, self.shape.levels[1]), (TELLER, tellers), (BRANCH, branches)] {
            let total = self.total(file, pages, watch).await?;
            if total != self.sum {
                let detail = format!("its balances come to {total}, and the history to {}", self.sum);
                return Err(LabError::Content { path: NAMES[file].to_owned(), detail });
            }
        }
        Ok(())
    }
}

fn branches(spec: &TpcB) -> u64 {
    spec.accounts.div_ceil(ACCOUNTS_PER_BRANCH)
}

/// The place of a record in a file without a tree.
fn flat(file: usize, number: u64) -> RecordLocation {
    let per_page = PAGE / RECORD;
    RecordLocation { file, page: number / per_page, offset: ((number % per_page) * RECORD) as usize }
}

fn lost(account: u64) -> LabError {
    LabError::Content {
        path: NAMES[ACCOUNT].to_owned(),
        detail: format!("account {account} is not where its key says"),
    }
}

impl TpcB {
    /// Writes the ballast for a database of `database` bytes.
    async fn write_ballast<T: Target>(&self, target: &T, database: u64, watch: Watch<'_>) -> Result<(), LabError> {
        let space = target.space().await?;
        let used = space.used + database;
        let wanted = (u128::from(space.total()) * u128::from(self.full) / 100) as u64;
        let bytes = wanted.saturating_sub(used);
        let unit = vec![0x55; BALLAST_UNIT as usize];
        let mut ballast = target.create(BALLAST).await?;
        for at in (0..bytes).step_by(BALLAST_UNIT as usize) {
            look(watch)?;
            target.write(&mut ballast, at, &unit[..BALLAST_UNIT.min(bytes - at) as usize]).await?;
        }
        target.close(ballast).await?;
        target.sync().await
    }

    async fn load<T: Target>(
        &self,
        target: &T,
        meter: &mut Meter<'_, T>,
        shape: &Shape,
        watch: Watch<'_>,
    ) -> Result<Vec<T::File>, LabError> {
        self.write_ballast(target, shape.pages() * PAGE, watch).await?;
        let mut load = meter.begin(LOAD, Unit::Bytes, shape.pages() * PAGE);
        let mut files = Vec::new();
        for (file, name) in NAMES.into_iter().enumerate() {
            let mut open = target.create(name).await?;
            let count = match file {
                ACCOUNT => {
                    for page in 0..shape.pages() {
                        target.write(&mut open, page * PAGE, &shape.page(page)).await?;
                        meter.step(&mut load, PAGE, PAGE)?;
                    }
                    0
                }
                TELLER => branches(self) * TELLERS_PER_BRANCH,
                BRANCH => branches(self),
                _ => 0,
            };
            let numbers: Vec<u64> = (0..count).collect();
            for (page, numbers) in numbers.chunks((PAGE / RECORD) as usize).enumerate() {
                let mut bytes: Vec<u8> = numbers.iter().flat_map(|&number| record(number)).collect();
                bytes.resize(PAGE as usize, 0xff);
                target.write(&mut open, page as u64 * PAGE, &bytes).await?;
            }
            target.close(open).await?;
            files.push(target.open_to_write(name).await?);
        }
        meter.end(load, Durable::Yes).await?;
        Ok(files)
    }
}

#[async_trait(?Send)]
impl Workload for TpcB {
    const SPEC: WorkloadSpec = WorkloadSpec::of::<TpcB>(
        "tpcb",
        "Transactions on a bank's accounts, by a database with its own cache and log [se95 §4]",
        &[
            Key::new("accounts", Form::Count, "Number of accounts"),
            Key::new("bytes", Form::Bytes, "Size of the account file, about"),
            Key::new("cache", Form::Bytes, "Size of the database's own cache"),
            Key::new("warmup", Form::Count, "Transactions before the measured ones"),
            Key::new("transactions", Form::Count, "Number of transactions"),
            Key::new("commits_wait", Form::Switch, "Each commit waits until the log is durable"),
            Key::new("full", Form::Percent, "How full the file system is when the database is loaded, by a file that only takes up room"),
        ],
    )
    .about(
        "Each changes an account at random, its teller and its branch, and adds to the history. At the end all sums must agree.",
    )
    .examples(&[
        "--on 'lfs / disk:dec-rz26' --log 'lfs / disk:dec-rz26' --profile sparcstation2",
        "--on /mnt --accounts 100000 --bytes 24MiB --commits-wait",
    ])
    .with_log();

    fn check(&self) -> Result<(), LabError> {
        let fault = match self {
            TpcB { accounts: 0, .. } => "there must be at least one account",
            TpcB { accounts: 1_000_000_001.., .. } => "there can be at most 1,000,000,000 accounts",
            TpcB { bytes, .. } if *bytes > 1 << 44 => "the account file has at most 16 TiB",
            TpcB { cache, .. } if *cache < 16 * PAGE || *cache > 1 << 40 => "the cache has between 64 KiB and 1 TiB",
            TpcB { transactions: 0, .. } => "there must be at least one transaction",
            TpcB { full: 100.., .. } => "a file system that is 100 % full has no room for transactions",
            _ => return Ok(()),
        };
        Err(LabError::Spec(fault.to_owned()))
    }

    fn title(&self) -> String {
        format!(
            "TPC-B: {} accounts in {}, a cache of {}, {} transactions after {}, {}, seed {}",
            self.accounts,
            human_bytes(self.bytes),
            human_bytes(self.cache),
            self.transactions,
            self.warmup,
            if self.commits_wait { "commits wait for the log" } else { "commits do not wait" },
            self.seed
        )
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn with_seed(self, seed: u64) -> TpcB {
        TpcB { seed, ..self }
    }

    fn fills(&self) -> bool {
        self.full > 0
    }

    async fn run<T: Target>(&self, target: &T, watch: Watch<'_>) -> Result<Outcome, LabError> {
        self.check()?;
        let mut meter = Meter::start(target, watch).await?;
        let shape = Shape::new(self);
        let files = self.load(target, &mut meter, &shape, watch).await?;
        let log_target = target.beside().unwrap_or(target);
        let log = log_target.create(LOG).await?;
        meter.drop_caches().await?;
        let pages_max = (self.cache / PAGE) as usize;
        let (pages, by_use) = (BTreeMap::new(), BTreeMap::new());
        let pool = Pool { target, files, pages, by_use, uses: 0, pages_max };
        let rng = Rng::new(self.seed);
        let mut bank = Bank { spec: *self, shape, pool, log_target, log, log_bytes: 0, rng, lines: 0, sum: 0 };
        for _ in 0..self.warmup {
            look(watch)?;
            bank.transaction().await?;
        }
        let mut transactions = meter.begin(TRANSACTIONS, Unit::Transactions, self.transactions);
        for _ in 0..self.transactions {
            bank.transaction().await?;
            meter.step(&mut transactions, 1, 0)?;
        }
        bank.pool.flush().await?;
        meter.end(transactions, Durable::Yes).await?;
        bank.check(watch).await?;

        for file in std::mem::take(&mut bank.pool.files) {
            target.close(file).await?;
        }
        log_target.close(bank.log).await?;
        log_target.unlink(LOG).await?;
        for name in NAMES.into_iter().chain([BALLAST]) {
            target.unlink(name).await?;
        }
        target.sync().await?;
        Ok(meter.outcome())
    }
}
