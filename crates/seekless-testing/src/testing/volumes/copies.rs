//! Aim: where a format keeps copies, a damaged or unreadable one loses nothing, and is rewritten. Method: one copy
//! after another is zeroed, or loses each of its sectors in turn; then the volume is mounted read-only and for writing,
//! and repaired.

use async_trait::async_trait;

use super::*;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::device::{BlockDevice, Data, DeviceError, Image, WriteFlags};
use crate::fs::{Fs, FsError, FsResult};
use crate::units::{SECTOR_BYTES, Sector};

/// The copies in a format.
pub struct Copies {
    /// Sectors of each copy of the superblock: a mount for writing and a repair rewrite them.
    pub superblocks: Vec<std::ops::Range<u64>>,
    /// Other structures of which one copy may be lost: the next use rewrites it.
    pub others: Vec<std::ops::Range<u64>>,
}

/// A file system that can be mounted read-only and repaired.
#[async_trait(?Send)]
pub trait Repairable: FsUnderTest {
    async fn mount_read_only(&self, rt: &Rt, device: Device) -> FsResult<Fs>;
    /// The repaired and the unrepaired errors.
    async fn repair(&self, rt: &Rt, device: Device) -> FsResult<(Vec<String>, Vec<String>)>;
}

const CONTENT: &[u8] = b"what is kept twice is not lost once";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Harm {
    Zeroes,
    Noise,
    Lost,
}

/// A device that holds `image`, with damage.
fn harmed(
    rt: &Rt,
    image: &Image,
    bytes: u64,
    harm: Harm,
    sectors: &std::ops::Range<u64>,
) -> (Rc<Memory>, Rc<FaultDevice>) {
    let mut image = image.clone();
    for sector in sectors.clone() {
        match harm {
            Harm::Zeroes => image.zero(Sector(sector), 1),
            Harm::Noise => image.write(Sector(sector), &[0xa5; SECTOR_BYTES as usize]),
            Harm::Lost => {}
        }
    }
    let memory = Rc::new(Memory::from_image(bytes, image));
    let fault = FaultDevice::new(rt, memory.clone(), 1);
    if harm == Harm::Lost {
        fault.lose(Sector(sectors.start)..Sector(sectors.end));
    }
    (memory, fault)
}

async fn is_right(fs: Fs) -> bool {
    Client::new(fs).read_file(b"/f").await.is_ok_and(|read| read == CONTENT)
}

fn sectors_of(image: &Image, sectors: &std::ops::Range<u64>) -> Vec<u8> {
    let mut bytes = vec![0; ((sectors.end - sectors.start) * SECTOR_BYTES) as usize];
    image.read(Sector(sectors.start), &mut bytes);
    bytes
}

impl Copies {
    /// A volume with a file on it that was closed, and one that was not.
    async fn volumes(rt: &Rt, subject: &dyn Repairable, bytes: u64) -> Vec<Image> {
        let memory = Rc::new(Memory::new(bytes));
        subject.mkfs(rt, memory.clone()).await.expect("mkfs");
        // Twice, so that both checkpoint slots are in use.
        for _ in 0..2 {
            let fs = subject.mount(rt, memory.clone()).await.expect("mount");
            fs.close().await.expect("close");
        }
        let fs = subject.mount(rt, memory.clone()).await.expect("mount");
        let client = Client::new(fs.clone());
        client.write_file(b"/f", CONTENT).await.expect("there is room");
        client.sync().await.expect("sync");
        let unclosed = memory.image();
        fs.close().await.expect("close");
        vec![memory.image(), unclosed]
    }

    /// Every damage that leaves another copy: each copy as a whole, and each of its sectors.
    fn harms(&self) -> Vec<(Harm, std::ops::Range<u64>, bool)> {
        let mut harms = Vec::new();
        for (copy, is_superblock) in
            self.superblocks.iter().map(|copy| (copy, true)).chain(self.others.iter().map(|copy| (copy, false)))
        {
            harms.extend([Harm::Zeroes, Harm::Noise, Harm::Lost].map(|harm| (harm, copy.clone(), is_superblock)));
            harms.extend(copy.clone().map(|sector| (Harm::Lost, sector..sector + 1, is_superblock)));
        }
        harms
    }

    pub fn may_be_lost(&self, subject: &dyn Repairable, bytes: u64) {
        simulate(1, async |rt| {
            for image in Copies::volumes(&rt, subject, bytes).await {
                for (harm, sectors, is_superblock) in self.harms() {
                    let what = format!("{}: {harm:?} at {sectors:?}", subject.name());
                    self.read_only(&rt, subject, &image, bytes, harm, &sectors, &what).await;
                    self.for_writing(&rt, subject, &image, bytes, harm, &sectors, is_superblock, &what).await;
                    if is_superblock {
                        self.repaired(&rt, subject, &image, bytes, harm, &sectors, &what).await;
                    }
                }
            }
        });
    }

    /// Read-only, the file is there, and nothing is written; nor by a check.
    #[allow(clippy::too_many_arguments)]
    async fn read_only(
        &self,
        rt: &Rt,
        subject: &dyn Repairable,
        image: &Image,
        bytes: u64,
        harm: Harm,
        sectors: &std::ops::Range<u64>,
        what: &str,
    ) {
        let (_, fault) = harmed(rt, image, bytes, harm, sectors);
        let writes = Rule::new(Kinds::WRITE | Kinds::FLUSH | Kinds::DISCARD, When::Always, Effect::ReadOnly);
        fault.add(writes);
        let fs = subject.mount_read_only(rt, fault.clone()).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(is_right(fs).await, "{what}");
        let found = subject.fsck(rt, fault.clone()).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(found.len() <= 1, "{what}: {found:?}");
        assert_eq!(fault.looked_at(0), 0, "{what}: nothing is written");
    }

    /// For writing, the file is there, the copy is repaired, and that is reported once.
    #[allow(clippy::too_many_arguments)]
    async fn for_writing(
        &self,
        rt: &Rt,
        subject: &dyn Repairable,
        image: &Image,
        bytes: u64,
        harm: Harm,
        sectors: &std::ops::Range<u64>,
        is_superblock: bool,
        what: &str,
    ) {
        let (memory, fault) = harmed(rt, image, bytes, harm, sectors);
        for round in 0..2 {
            let mounted = subject.mount(rt, fault.clone()).await;
            let fs = mounted.unwrap_or_else(|error| panic!("{what}, mount {round}: {error}"));
            let said = fs.warnings();
            assert_eq!(!said.is_empty(), is_superblock && round == 0, "{what}, mount {round}: {said:?}");
            assert!(is_right(fs.clone()).await, "{what}, mount {round}");
            // By then both of a pair are written.
            for _ in 0..2 {
                Client::new(fs.clone()).write_file(b"/g", CONTENT).await.expect("there is room");
                fs.syncfs().await.unwrap_or_else(|error| panic!("{what}: {error}"));
            }
            fs.close().await.unwrap_or_else(|error| panic!("{what}: {error}"));
        }
        if is_superblock {
            assert_eq!(fault.lost(), Vec::<Sector>::new(), "{what}: it is written again");
            assert!(sectors_of(&memory.image(), sectors) == sectors_of(image, sectors), "{what}: as it was");
        }
        let found = subject.fsck(rt, fault.clone()).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(!is_superblock || found.is_empty(), "{what}: {found:?}");
    }

    /// A repair rewrites it and reports it; a second repair finds nothing.
    #[allow(clippy::too_many_arguments)]
    async fn repaired(
        &self,
        rt: &Rt,
        subject: &dyn Repairable,
        image: &Image,
        bytes: u64,
        harm: Harm,
        sectors: &std::ops::Range<u64>,
        what: &str,
    ) {
        let (memory, fault) = harmed(rt, image, bytes, harm, sectors);
        let (mended, left) = subject.repair(rt, fault.clone()).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!((mended.len(), left.len()), (1, 0), "{what}: {mended:?} {left:?}");
        assert!(sectors_of(&memory.image(), sectors) == sectors_of(image, sectors), "{what}: as it was");
        let again = subject.repair(rt, fault.clone()).await.expect("it is checked");
        assert_eq!(again, (Vec::new(), Vec::new()), "{what}");
    }

    /// All superblocks but one are lost, and the writes that repair them fail or tear: the last good one is unchanged,
    /// and the volume still mounts.
    pub fn mending_never_makes_it_worse(&self, subject: &dyn Repairable, bytes: u64) {
        simulate(1, async |rt| {
            let image = Copies::volumes(&rt, subject, bytes).await.remove(0);
            for good in &self.superblocks {
                for (nth, effect) in (1..6).flat_map(|nth| [(nth, Effect::Error), (nth, Effect::Gone)]) {
                    let what = format!("{}: only {good:?} is good, write {nth}, {effect:?}", subject.name());
                    let (memory, fault) = harmed(&rt, &image, bytes, Harm::Zeroes, &(0..0));
                    for bad in self.superblocks.iter().filter(|bad| *bad != good) {
                        for at in bad.clone() {
                            memory.write(Sector(at), Data::zeroes(512), WriteFlags::NONE).await.expect("memory");
                        }
                    }
                    fault.add(Rule::new(Kinds::WRITE, When::Nth(nth), effect));
                    // Any answer is allowed; the volume may have stopped, too.
                    if let Ok(fs) = subject.mount(&rt, fault.clone()).await {
                        let _ = fs.close().await;
                    }
                    assert!(sectors_of(&memory.image(), good) == sectors_of(&image, good), "{what}");
                    let fs = subject.mount(&rt, memory.clone()).await.unwrap_or_else(|error| panic!("{what}: {error}"));
                    assert!(is_right(fs.clone()).await, "{what}");
                    fs.close().await.expect("close");
                    assert_clean(&rt, subject, &(memory as Device)).await;
                }
            }
        });
    }

    /// A device that is gone, or completely unreadable, is not a damaged copy: the error says what it is.
    pub fn gone_is_no_damage(&self, subject: &dyn Repairable, bytes: u64) {
        simulate(1, async |rt| {
            let image = Copies::volumes(&rt, subject, bytes).await.remove(0);
            for nth in 1..8 {
                let (_, fault) = harmed(&rt, &image, bytes, Harm::Zeroes, &(0..0));
                fault.add(Rule::new(Kinds::READ, When::Nth(nth), Effect::Gone));
                let error = subject.mount_read_only(&rt, fault).await.err();
                let is_gone = matches!(error, Some(FsError::Device(DeviceError::Gone(_))));
                assert!(is_gone, "{}, read {nth}: {error:?}", subject.name());
            }
            let (_, fault) = harmed(&rt, &image, bytes, Harm::Lost, &(0..bytes / SECTOR_BYTES));
            let error = subject.mount(&rt, fault).await.err();
            assert!(matches!(error, Some(FsError::Device(DeviceError::Io { .. }))), "{error:?}");
        });
    }
}
