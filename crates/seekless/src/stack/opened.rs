//! A stack whose devices are open: what can be done with it.

use super::error::{BuildError, StackError};
use super::file_systems::{CheckOptions, Checked, FileSystemKind, Finding, Identity, Probed, Usage, Verdict};
use super::part::Part;
use super::spec::{
    Constructor, LayerSpec, LeafOpener, ProgressFn, Purpose, Sharing, Spread, StoredArray, StoredDevice,
};
use super::{Stack, Word};
use crate::device::Device;
use crate::fs::Fs;
use crate::layer::log::pack::{Direction, Progress};
use crate::rt::Rt;
use crate::units::counted;

/// A word at the top that stores its own format on the devices below.
#[derive(Clone, Copy)]
pub(super) enum Stored {
    Device(&'static dyn StoredDevice),
    Array(&'static dyn StoredArray),
}

/// A stack whose devices are open, without a file system yet.
pub struct Opened<'a> {
    pub(super) rt: &'a Rt,
    pub(super) stack: &'a Stack,
    pub(super) leaves: &'a dyn LeafOpener,
    pub(super) purpose: Purpose,
    /// The instances of each word that is a device, in the order of the words. Empty on a stack without a device.
    pub(super) devices: Vec<Vec<Device>>,
    /// The devices below a volume at the top, where only those were opened; or why one cannot be opened.
    pub(super) below: Vec<Result<Device, StackError>>,
}

/// A running stack.
pub struct Mounted {
    /// The top.
    pub fs: Fs,
    /// All parts, top first, one for each word.
    pub parts: Vec<Part>,
}

/// An array with redundancy, which can say what a member should hold.
pub(super) fn keeps_copies(word: &Word) -> bool {
    matches!(word.spec.constructor, Constructor::Spread(Spread { stored: Some(_), .. }))
}

impl<'a> Opened<'a> {
    /// The device of the stack's file system; the top of a stack of devices alone.
    pub fn device(&self) -> Option<&Device> {
        self.devices.first()?.first()
    }

    /// The instances of each word that is a device, top first: one of each, but below a word that spreads as many as it
    /// and those above it need, in the order of their numbers. For the counters of single disks.
    pub fn instances(&self) -> &[Vec<Device>] {
        &self.devices
    }

    /// The same as parts, top first, for their counters and descriptions.
    pub fn parts(&self) -> Vec<Part> {
        self.devices.iter().cloned().map(Part::of).collect()
    }

    /// Puts an empty file system on the device, whose content is lost: the caller has checked that this is allowed.
    ///
    /// # Errors
    /// When the stack has no file system on a device, and those of the file system. A device with its own format at the
    /// top was made when it was opened for formatting.
    pub async fn mkfs(&self, identity: &Identity) -> Result<(), StackError> {
        if self.stack.stored_device().is_some() {
            return match self.device() {
                Some(device) => {
                    device.release().await.map_err(|error| self.stack.blame(&self.stack.words[0], "make", error.into()))
                }
                None => Ok(()),
            };
        }
        let (word, kind) = self.stack.kind("make")?;
        let device = self.device_below(word)?;
        let made = match in_order_only(&device, word, kind) {
            Ok(()) => kind.mkfs(self.rt, device, word, identity).await,
            Err(cause) => Err(cause),
        };
        made.map_err(|cause| self.stack.blame(word, "make", cause))?;
        self.release_arrays(word, "make").await
    }

    /// Tells the arrays below the file system of `word` that what they were used for is done. A mounted file system
    /// does so when it is closed.
    async fn release_arrays(&self, word: &Word, action: &'static str) -> Result<(), StackError> {
        if self.purpose == Purpose::Inspect || !self.stack.words.iter().any(keeps_copies) {
            return Ok(());
        }
        let released = self.device_below(word)?.release().await;
        released.map_err(|error| self.stack.blame(word, action, error.into()))
    }

    /// The same devices, with the caller's device in front of the one with the file system: for example to cut it off.
    pub fn behind(&self, front: impl FnOnce(Device) -> Device) -> Opened<'a> {
        let mut devices = self.devices.clone();
        if let Some(top) = devices.first_mut().and_then(|instances| instances.first_mut()) {
            *top = front(top.clone());
        }
        Opened { devices, below: self.below.clone(), ..*self }
    }

    /// Mounts the file system and puts the layers on it. A stack opened for inspection is mounted read-only.
    ///
    /// # Errors
    /// When the stack consists of devices alone, and those of the parts.
    pub async fn mount(&self, usage: Usage) -> Result<Mounted, StackError> {
        let usage = Usage { read_only: usage.read_only || self.purpose == Purpose::Inspect, ..usage };
        let mut parts = self.parts();
        parts.reverse();
        let mut top: Option<Fs> = None;
        for word in self.stack.words.iter().rev().skip(parts.len()) {
            top = self.put_on(top, word, usage).await?;
            parts.extend(top.clone().map(Part::FileSystem));
        }
        parts.reverse();
        match top {
            Some(fs) => Ok(Mounted { fs, parts }),
            None => Err(self.stack.kind("mount").err().unwrap_or_else(|| unreachable!("a file system was mounted"))),
        }
    }

    /// Checks what the stack stores, and repairs it if `options` say so: the file system on the device, and if that is
    /// intact, what layers store in the files of the file system below them, from the lowest up.
    ///
    /// # Errors
    /// When the stack has nothing to check, and when the check could not be done. Damage is not an error; the result
    /// reports it.
    pub async fn fsck(&self, options: CheckOptions) -> Result<Checked, StackError> {
        if let Some((word, kind)) = self.stack.stored_device() {
            let checked = match kind {
                Stored::Device(kind) => kind.check(self.below_top()).await,
                Stored::Array(kind) => {
                    self.lacks_no_member(word, options)?;
                    kind.check(self.rt, self.members(), word, options).await
                }
            };
            let mut checked = checked.map_err(|cause| self.stack.blame(word, "check", cause))?;
            checked.notes.extend(self.unopened().map(|error| error.problem.clone()));
            return Ok(checked);
        }
        self.stack.needs_checkable()?;
        let mut checked = Checked::default();
        if self.stack.file_system().is_some() {
            let (word, kind) = self.stack.kind("check")?;
            let found = kind.fsck(self.rt, self.device_below(word)?, word, options).await;
            checked = found.map_err(|cause| self.stack.blame(word, "check", cause))?;
            checked.add(self.corrected());
            self.release_arrays(word, "check").await?;
        }
        if !self.stack.has_checkable_layer() || checked.verdict() == Verdict::Damaged {
            return Ok(checked);
        }
        // A file system on a device is not written to for the layers above it, which are only examined there.
        let read_only = self.purpose == Purpose::Inspect || self.stack.file_system().is_some();
        let usage = Usage { read_only, ..Usage::default() };
        let options = CheckOptions { repair: options.repair && self.stack.file_system().is_none(), ..options };
        let mut top: Option<Fs> = None;
        for word in self.stack.words.iter().rev() {
            if let (Constructor::Layer(LayerSpec { check: Some(check), .. }), Some(lower)) =
                (&word.spec.constructor, &top)
            {
                let found = check(self.rt, lower.clone(), word, self.leaves, options).await;
                let found = found.map_err(|cause| self.stack.blame(word, "check", cause))?;
                checked.add(Checked { repairable: found.repairable && self.stack.file_system().is_none(), ..found });
            }
            top = self.put_on(top, word, usage).await?;
        }
        if let Some(fs) = top {
            // Repairs are durable when this returns.
            let closed = fs.close().await;
            closed.map_err(|error| self.stack.blame(&self.stack.words[0], "close", error.into()))?;
        }
        Ok(checked)
    }

    /// Members of an array at the top that cannot be opened, and why.
    pub fn unopened(&self) -> impl Iterator<Item = &StackError> {
        self.below.iter().filter_map(|member| member.as_ref().err())
    }

    /// A repair records what is missing as failed. A member that is only unplugged is not to be lost by that, so a line that
    /// does not say to go on without one is refused, as it is for any other use. One in use is never given up.
    fn lacks_no_member(&self, word: &Word, options: CheckOptions) -> Result<(), StackError> {
        let Constructor::Spread(spread) = word.spec.constructor else { return Ok(()) };
        let is_missed = |error: &&StackError| error.is_in_use() || !(spread.tolerates_missing)(word);
        match self.unopened().find(is_missed).filter(|_| options.repair) {
            None => Ok(()),
            Some(error) if error.is_in_use() => Err(error.clone()),
            Some(error) => {
                let hint = "degraded=on goes on without it, for good; fsck -n looks at the others, and writes nothing";
                let known = error.hint.iter().map(|hint| format!("{hint}\n")).collect::<String>();
                Err(error.clone().hint(format!("{known}{hint}")))
            }
        }
    }

    /// Errors on members of arrays that checksums above have revealed since they were opened.
    pub fn corrected(&self) -> Checked {
        let mut checked = Checked::default();
        let repaired = self.purpose == Purpose::Use;
        for array in self.arrays() {
            let Some(status) = array.redundancy().map(|redundancy| redundancy.status()) else { continue };
            for (slot, member) in status.members.iter().enumerate().filter(|(_, member)| member.wrong > 0) {
                let (name, places) = (status.name, counted(member.wrong, "place"));
                let text = format!(
                    "{name}: member {slot} held something else than was stored in {places}; the others have what is right"
                );
                checked.findings.push(Finding { text, repaired });
                checked.repairable = true;
            }
        }
        checked
    }

    /// The arrays of the stack that are open, top first.
    pub fn arrays(&self) -> Vec<Device> {
        self.devices.iter().flatten().filter(|device| device.redundancy().is_some()).cloned().collect()
    }

    /// Reads everything that the file system of the stack can reach and compares it with checksums; `None` where the
    /// stack has no file system with checksums of all its data, or where data without checksums is stored between it
    /// and the arrays.
    ///
    /// # Errors
    /// When the check could not be done.
    pub async fn verify(&self) -> Result<Option<Checked>, StackError> {
        let Some(word) = self.stack.file_system() else { return Ok(None) };
        let Constructor::FileSystem(kind) = word.spec.constructor else { return Ok(None) };
        let is_stored = |word: &Word| matches!(word.spec.constructor, Constructor::StoredDevice(_));
        if !kind.has_checksums() || self.stack.words.iter().any(is_stored) {
            return Ok(None);
        }
        let options = CheckOptions { data: true, ..CheckOptions::default() };
        let checked = kind.fsck(self.rt, self.device_below(word)?, word, options).await;
        checked.map(Some).map_err(|cause| self.stack.blame(word, "check", cause))
    }

    /// Converts the files below the top of the stack, a layer, to that layer's form, or back, see
    /// [`layer::log::pack`](crate::layer::log::pack). `tell` is called for every file.
    ///
    /// # Errors
    /// When the top is not a layer with its own form of files, and those of the file systems.
    pub async fn convert(&self, direction: Direction, tell: &ProgressFn<'_>) -> Result<Progress, StackError> {
        let (word, convert) = self.stack.converter()?;
        let usage = Usage { read_only: self.purpose == Purpose::Inspect, ..Usage::default() };
        let mut below = None;
        for word in self.stack.words[1..].iter().rev() {
            below = self.put_on(below, word, usage).await?;
        }
        let Some(lower) = below else { unreachable!("S2: a layer is above a file system") };
        let converted = convert(self.rt, lower.clone(), word, self.leaves, direction, tell).await;
        converted.map_err(|cause| self.stack.blame(word, "convert", cause))
    }

    /// Puts `word` on what is below it: a layer on the file system `below`, a file system on its device. Returns the
    /// new top; `None` above a device, which is open already.
    async fn put_on(&self, below: Option<Fs>, word: &Word, usage: Usage) -> Result<Option<Fs>, StackError> {
        let made = match (&word.spec.constructor, below) {
            (Constructor::Layer(layer), Some(lower)) => (layer.make)(self.rt, lower, word, self.leaves).await,
            (Constructor::FileSystem(kind), None) => kind.mount(self.rt, self.device_below(word)?, word, usage).await,
            (Constructor::FileSystemLeaf, None) => self.file_system_leaf(word).await,
            (_, None) => return Ok(None),
            // S2: `order` has checked the order of the words.
            (_, Some(_)) => unreachable!("`{}` is not above a file system", word.name()),
        };
        made.map(Some).map_err(|cause| self.stack.blame(word, "mount", cause))
    }

    /// Opens the file system at the bottom, outside the engine.
    async fn file_system_leaf(&self, word: &Word) -> Result<Fs, BuildError> {
        let sharing = if self.stack.has_checkable_layer() { Sharing::Alone } else { Sharing::Shared };
        self.leaves.file_system(self.rt, word, self.purpose, sharing).await
    }

    /// The structures on the device, as text: an overview, or the part that `what` names, in a form of
    /// [`FileSystemKind::dumps`].
    ///
    /// # Errors
    /// As [`Opened::fsck`], and when there is no such part.
    pub async fn dump(&self, what: Option<&str>) -> Result<String, StackError> {
        if let Some((word, Stored::Array(kind))) = self.stack.stored_device() {
            let dumped = kind.dump(&self.members()).await;
            return dumped.map_err(|cause| self.stack.blame(word, "dump", cause));
        }
        let (word, kind) = self.stack.kind("dump")?;
        let dumped = kind.dump(self.rt, self.device_below(word)?, word, what).await;
        dumped.map_err(|cause| self.stack.blame(word, "dump", cause))
    }

    /// The content of the superblock on the device, or `None` when it is not one of the stack's volume.
    ///
    /// # Errors
    /// When the stack has no file system on a device, and when the device cannot be read.
    pub async fn probe(&self) -> Result<Option<Probed>, StackError> {
        if let Some((word, kind)) = self.stack.stored_device() {
            let probed = match kind {
                Stored::Device(kind) => kind.probe(self.below_top()).await,
                Stored::Array(kind) => kind.probe(&self.members()).await,
            };
            return probed.map_err(|cause| self.stack.blame(word, "look at", cause));
        }
        let (word, kind) = self.stack.kind("look at")?;
        let probed = kind.probe(self.rt, self.device_below(word)?).await;
        probed.map_err(|cause| self.stack.blame(word, "look at", cause))
    }

    /// The device below a device with its own format at the top, whether or not the latter was opened.
    fn below_top(&self) -> Device {
        let opened = self.devices.len() == self.stack.words.len();
        match self.devices.get(usize::from(opened)).and_then(|instances| instances.first()) {
            Some(device) => device.clone(),
            None => unreachable!("S2: it is on a device"),
        }
    }

    /// The members of an array at the top, whether or not it was opened.
    fn members(&self) -> Vec<Option<Device>> {
        match self.devices.len() == self.stack.words.len() {
            true => self.devices[1].iter().cloned().map(Some).collect(),
            false => self.below.iter().map(|member| member.clone().ok()).collect(),
        }
    }

    fn device_below(&self, word: &Word) -> Result<Device, StackError> {
        match self.device() {
            Some(device) => Ok(device.clone()),
            // S2 again.
            None => unreachable!("`{}` is on a device", word.name()),
        }
    }
}

/// Checks that a file system can be on a device that may have to be written in order.
fn in_order_only(device: &Device, word: &Word, kind: &dyn FileSystemKind) -> Result<(), BuildError> {
    let name = word.name();
    let (problem, hint) = match (device.geometry().zones, device.spans(), kind.writes_in_order()) {
        (Some(_), _, true) => {
            (format!("`{name}` needs `zoned` between it and zones"), format!("{name} / zoned / zns:zns-a"))
        }
        (Some(_), _, false) | (_, Some(_), false) => {
            let problem = format!("`{name}` writes anywhere, and a device with zones only at write pointers");
            (problem, "lfs / zoned / zns:zns-a".to_owned())
        }
        _ => return Ok(()),
    };
    Err(BuildError::other(problem).hint(format!("for example: {hint}")))
}
