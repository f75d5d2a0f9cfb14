//! From words to running parts: opens the device of a stack, makes and mounts file systems, puts layers on them.
//!
//! What the engine can make itself (memory, modelled disks, layers) it makes from the word. What lies in the real
//! world is opened by the caller, through [`Leaves`].

use futures_util::future::LocalBoxFuture;

use super::error::{Cause, StackError, Trouble};
use super::file_systems::{CheckOptions, Checked, FileSystemKind, Finding, Identity, Probed, Usage, Verdict};
use super::order::Interface;
use super::part::Part;
use super::spec::{Convert, Leaves, Maker, Purpose, Sharing, Spread, StoredArray, StoredDevice, Surroundings, Tell};
use super::value::Value;
use super::{Stack, Word};
use crate::device::Device;
use crate::fs::Fs;
use crate::layer::log::pack::{Direction, Progress};
use crate::rt::Rt;
use crate::units::counted;

/// A word at the top that keeps a format of its own on what is below.
#[derive(Clone, Copy)]
enum Stored {
    Device(&'static dyn StoredDevice),
    Array(&'static dyn StoredArray),
}

/// A stack whose device side is open, and nothing on it yet.
pub struct Opened<'a> {
    rt: &'a Rt,
    stack: &'a Stack,
    leaves: &'a dyn Leaves,
    purpose: Purpose,
    /// The instances of each word that is a device, in the order of the words. Empty on a stack without a device.
    devices: Vec<Vec<Device>>,
    /// What a volume at the top stands on, where that alone was opened. A member that cannot be opened is `None`.
    below: Vec<Option<Device>>,
}

/// A running stack.
pub struct Mounted {
    /// The top.
    pub fs: Fs,
    /// All parts, top first, one for each word.
    pub parts: Vec<Part>,
}

impl Stack {
    /// Opens the devices of the stack, from the leaf up.
    ///
    /// # Errors
    /// What the leaf answered, pointing at its word.
    pub async fn open<'a>(
        &'a self,
        rt: &'a Rt,
        leaves: &'a dyn Leaves,
        purpose: Purpose,
    ) -> Result<Opened<'a>, StackError> {
        self.open_from(rt, leaves, purpose, 0).await
    }

    /// Opens what the volume of the stack stands on: the device of its file system, or, where there is none and the top
    /// is a device with a format of its own, what is below that. For whoever looks at the volume from outside.
    ///
    /// # Errors
    /// As [`Stack::open`].
    pub async fn open_below<'a>(
        &'a self,
        rt: &'a Rt,
        leaves: &'a dyn Leaves,
        purpose: Purpose,
    ) -> Result<Opened<'a>, StackError> {
        self.open_from(rt, leaves, purpose, usize::from(self.stored_device().is_some())).await
    }

    /// The same for words from `start` on.
    async fn open_from<'a>(
        &'a self,
        rt: &'a Rt,
        leaves: &'a dyn Leaves,
        purpose: Purpose,
        start: usize,
    ) -> Result<Opened<'a>, StackError> {
        let is_device = |word: &Word| word.spec.role().is() == Interface::Device;
        let first = (start..self.words.len()).find(|&index| is_device(&self.words[index]));
        let mut devices = vec![Vec::new(); first.map_or(0, |first| self.words.len() - first)];
        let mut below = Vec::new();
        if let Some(first) = first {
            let surroundings = Surroundings {
                purpose,
                is_volatile: self.is_volatile(),
                discard: !self.words.iter().any(|word| matches!(word.given("discard"), Some(Value::Switch(false)))),
                random: leaves.random(),
            };
            let mut opening = Opening { stack: self, rt, leaves, surroundings, first, devices: &mut devices };
            match self.words[0].spec.maker {
                Maker::Spread(spread) if start > 0 => {
                    let mut error = None;
                    for member in 0..(spread.members)(&self.words[0]) as usize {
                        let opened = opening.open(first, Some(member)).await;
                        below.push(opened.map_err(|trouble| error.get_or_insert(trouble).clone()).ok());
                    }
                    if let (Some(error), true) = (error, below.iter().all(Option::is_none)) {
                        return Err(error);
                    }
                }
                _ => below.push(Some(opening.open(first, None).await?)),
            }
        }
        Ok(Opened { rt, stack: self, leaves, purpose, devices, below })
    }

    /// Has `look` see the word of every leaf that is to be opened, with its number, before any is.
    ///
    /// # Errors
    /// What `look` has to say, pointing at the word.
    pub fn check_leaves(
        &self,
        purpose: Purpose,
        look: impl Fn(&Word) -> Result<(), Trouble>,
    ) -> Result<(), StackError> {
        let original = &self.words[self.words.len() - 1]; // S1
        if !matches!(original.spec.maker, Maker::DeviceLeaf) {
            return Ok(());
        }
        let told = |word: &Word, trouble: Trouble| self.blame(word, "open", trouble.explained(self, original, purpose));
        let counts = self.words.iter().filter_map(|word| match &word.spec.maker {
            Maker::Spread(spread) => Some((spread.members)(word)),
            _ => None,
        });
        match counts.reduce(|one, other| one * other) {
            None => look(original).map_err(|trouble| told(original, trouble)),
            Some(count) => (0..count as usize).try_for_each(|number| {
                let word = original.numbered(number);
                look(&word).map_err(|trouble| told(&word, trouble))
            }),
        }
    }

    /// Opens everything and mounts it. A stack on a volatile device gets a fresh file system first, which is called
    /// `identity`.
    ///
    /// # Errors
    /// What the part answered that could not be made, pointing at its word.
    pub async fn mount(
        &self,
        rt: &Rt,
        leaves: &dyn Leaves,
        identity: &Identity,
        usage: Usage,
    ) -> Result<Mounted, StackError> {
        let usage = Usage { read_only: usage.read_only || self.says_read_only(), ..usage };
        let purpose = if usage.read_only { Purpose::Inspect } else { Purpose::Use };
        let opened = self.open(rt, leaves, purpose).await?;
        if self.is_volatile() && self.file_system().is_some() {
            opened.mkfs(identity).await?;
        }
        opened.mount(usage).await
    }

    /// True when a word says `ro`.
    pub fn says_read_only(&self) -> bool {
        self.words.iter().any(|word| matches!(word.given("ro"), Some(Value::Switch(true))))
    }

    /// True when everything in the stack is made empty each time and gone at the end.
    pub fn is_volatile(&self) -> bool {
        self.words.last().is_some_and(|leaf| matches!(leaf.spec.maker, Maker::VolatileDevice(_)))
    }

    /// The word of the file system that lives on a device, if the stack has one.
    pub fn file_system(&self) -> Option<&Word> {
        self.words.iter().find(|word| matches!(word.spec.maker, Maker::FileSystem(_)))
    }

    /// True when the check of the stack's file system can repair it, or that of its layers where they stand on no device.
    /// Then the stack has to be opened to be used; to look is enough for all others.
    pub fn repairs(&self) -> bool {
        match self.file_system() {
            // What a member of an array below has lost is written again.
            Some(_) => self.kind("check").is_ok_and(|(_, kind)| kind.repairs()) || self.words.iter().any(keeps_copies),
            None => self.has_checkable_layer() || self.is_array(),
        }
    }

    /// True when the top is an array that keeps a format of its own on its members.
    pub fn is_array(&self) -> bool {
        matches!(self.stored_device(), Some((_, Stored::Array(_))))
    }

    /// The word at the top and its kind, where it is a device with a format of its own.
    fn stored_device(&self) -> Option<(&Word, Stored)> {
        let top = &self.words[0]; // S1
        match top.spec.maker {
            Maker::StoredDevice(kind) => Some((top, Stored::Device(kind))),
            Maker::Spread(Spread { stored: Some(kind), .. }) if kind.is_stored(top) => {
                Some((top, Stored::Array(*kind)))
            }
            _ => None,
        }
    }

    /// The word of what lives on a device here: a file system, or a device with a format of its own at the top.
    pub fn volume(&self) -> Option<&Word> {
        self.file_system().or_else(|| self.stored_device().map(|(word, _)| word))
    }

    /// Says whether there is a file system on a device, or a device with a format of its own at the top, before anything
    /// is opened or made.
    ///
    /// # Errors
    /// When there is none, with what it was needed for: to `make`, `check` ...
    pub fn needs_volume(&self, what_for: &str) -> Result<(), StackError> {
        match self.stored_device() {
            Some(_) => Ok(()),
            None => self.kind(what_for).map(drop),
        }
    }

    /// True when a layer of the stack keeps something that can be checked.
    pub fn has_checkable_layer(&self) -> bool {
        self.words.iter().any(|word| matches!(word.spec.maker, Maker::Layer(layer) if layer.check.is_some()))
    }

    /// The top of the stack, as one that turns files into its own.
    ///
    /// # Errors
    /// When it is none.
    pub fn converter(&self) -> Result<(&Word, Convert), StackError> {
        let top = &self.words[0]; // S1
        if let Maker::Layer(layer) = top.spec.maker
            && let Some(convert) = layer.convert
        {
            return Ok((top, convert));
        }
        let problem = format!("`{}` is no layer that stores files in a form of its own", top.name());
        Err(StackError::new(&self.line, top.name_span.clone(), problem).hint("for example: zstd / hostdir:DIR"))
    }

    /// Says whether there is anything to check, before anything is opened.
    ///
    /// # Errors
    /// When there is not.
    pub fn needs_checkable(&self) -> Result<(), StackError> {
        match self.has_checkable_layer() {
            true => Ok(()),
            false => self.needs_volume("check"),
        }
    }

    fn kind(&self, what_for: &str) -> Result<(&Word, &'static dyn FileSystemKind), StackError> {
        for word in &self.words {
            if let Maker::FileSystem(kind) = word.spec.maker {
                return Ok((word, kind));
            }
        }
        let leaf = &self.words[self.words.len() - 1]; // S1: a stack has at least one word
        let problem = format!("there is no file system on a device here to {what_for}");
        let hint = "for example: lfs / file:a.img";
        Err(StackError::new(&self.line, leaf.name_span.clone(), problem).hint(hint))
    }

    /// `trouble` with `word`, as an error that points at it.
    pub(super) fn blame(&self, word: &Word, operation: &str, trouble: Trouble) -> StackError {
        let at_word = |problem: String| StackError::new(&self.line, word.span(), problem);
        match trouble {
            Trouble::FileSystem(error) => {
                let problem = format!("cannot {operation} `{}`: {error}", word.name());
                at_word(problem).cause(Cause::FileSystem(error))
            }
            Trouble::Device(error) => {
                let problem = format!("cannot {operation} `{}`: {error}", word.name());
                at_word(problem).cause(Cause::Device(error))
            }
            Trouble::Option { key, problem } => {
                let span = word.setting(key).map_or(word.span(), |setting| setting.span.clone());
                StackError::new(&self.line, span, format!("`{key}` of `{}`: {problem}", word.name()))
            }
            Trouble::Missing { problem } => at_word(problem),
            Trouble::Other { problem, hint } => at_word(problem).hint_if(hint),
        }
    }
}

/// An array that can tell what a member should hold.
fn keeps_copies(word: &Word) -> bool {
    matches!(word.spec.maker, Maker::Spread(Spread { stored: Some(_), .. }))
}

/// Opening the devices of a stack.
struct Opening<'a, 'b> {
    stack: &'a Stack,
    rt: &'a Rt,
    leaves: &'a dyn Leaves,
    surroundings: Surroundings,
    /// The first word that is a device.
    first: usize,
    devices: &'b mut Vec<Vec<Device>>,
}

impl Opening<'_, '_> {
    /// Opens the word at `index` and all below it. `instance` is its number, below a word that spreads.
    fn open(&mut self, index: usize, instance: Option<usize>) -> LocalBoxFuture<'_, Result<Device, StackError>> {
        Box::pin(async move {
            let word = &self.stack.words[index];
            let numbered;
            let word = match instance {
                Some(instance) => {
                    numbered = word.numbered(instance);
                    &numbered
                }
                None => word,
            };
            let made = match &word.spec.maker {
                Maker::DeviceLeaf => self.leaves.device(self.rt, word, self.surroundings.purpose).await,
                Maker::VolatileDevice(make) => make(self.rt, word).await,
                Maker::DeviceLayer(make) => {
                    let below = self.open(index + 1, instance).await?;
                    make(self.rt, below, word).await
                }
                Maker::StoredDevice(kind) => {
                    let below = self.open(index + 1, instance).await?;
                    kind.open(self.rt, below, word, self.surroundings).await
                }
                Maker::Spread(spread) => {
                    let count = (spread.members)(word) as usize;
                    let mut members = Vec::with_capacity(count);
                    for member in 0..count {
                        let number = instance.unwrap_or(0) * count + member;
                        match self.open(index + 1, Some(number)).await {
                            Ok(device) => members.push(Some(device)),
                            Err(_) if (spread.bears_missing)(word) => members.push(None),
                            Err(error) => return Err(error),
                        }
                    }
                    (spread.make)(self.rt, members, word, self.surroundings).await
                }
                // S2: `order` has checked what stands on what.
                _ => unreachable!("`{}` is a device", word.name()),
            };
            let device = made.map_err(|trouble| {
                let original = &self.stack.words[index];
                self.stack.blame(word, "open", trouble.explained(self.stack, original, self.surroundings.purpose))
            })?;
            self.devices[index - self.first].push(device.clone());
            Ok(device)
        })
    }
}

impl<'a> Opened<'a> {
    /// The device on which the file system of the stack stands; the top of a stack of devices alone.
    pub fn device(&self) -> Option<&Device> {
        self.devices.first()?.first()
    }

    /// The instances of each word that is a device, top first: one of each, but below a word that spreads over several
    /// as many as it and those above it ask for, in the order of their numbers. For the counters of single disks.
    pub fn instances(&self) -> &[Vec<Device>] {
        &self.devices
    }

    /// Puts an empty file system on the device. Whatever was there is lost: whether that is allowed, the caller
    /// has found out.
    ///
    /// # Errors
    /// When the stack has no file system on a device, and what the file system answers. A device with a format of its own
    /// at the top was made when it was opened for that.
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
        let made = kind.mkfs(self.rt, self.device_below(word)?, word, identity).await;
        made.map_err(|trouble| self.stack.blame(word, "make", trouble))
    }

    /// The same devices, with one of the caller's in front of that on which the file system stands: to take it away
    /// from whoever uses it.
    pub fn behind(&self, front: impl FnOnce(Device) -> Device) -> Opened<'a> {
        let mut devices = self.devices.clone();
        if let Some(top) = devices.first_mut().and_then(|instances| instances.first_mut()) {
            *top = front(top.clone());
        }
        Opened { devices, below: self.below.clone(), ..*self }
    }

    /// Mounts the file system and puts the layers on it. What was opened to look at is mounted read-only.
    ///
    /// # Errors
    /// When the stack is of devices alone, and what the parts answer.
    pub async fn mount(&self, usage: Usage) -> Result<Mounted, StackError> {
        let usage = Usage { read_only: usage.read_only || self.purpose == Purpose::Inspect, ..usage };
        let mut parts: Vec<Part> = self.devices.iter().rev().cloned().map(Part::of).collect();
        let mut top: Option<Fs> = None;
        for word in self.stack.words.iter().rev().skip(parts.len()) {
            let made = match (&word.spec.maker, top.take()) {
                (Maker::Layer(layer), Some(lower)) => (layer.make)(self.rt, lower, word, self.leaves).await,
                (Maker::FileSystem(kind), _) => kind.mount(self.rt, self.device_below(word)?, word, usage).await,
                (Maker::FileSystemLeaf, _) => self.file_system_leaf(word).await,
                // S2: `order` has checked what stands on what.
                _ => unreachable!("`{}` in its place", word.name()),
            };
            let fs = made.map_err(|trouble| self.stack.blame(word, "mount", trouble))?;
            parts.push(Part::FileSystem(fs.clone()));
            top = Some(fs);
        }
        parts.reverse();
        match top {
            Some(fs) => Ok(Mounted { fs, parts }),
            None => Err(self.stack.kind("mount").err().unwrap_or_else(|| unreachable!("a file system was mounted"))),
        }
    }

    /// Checks what the stack keeps on its storage, and repairs it if told to: the file system on the device, and if that is
    /// whole, what layers keep in the files of the file system below them, from the lowest up.
    ///
    /// # Errors
    /// When there is nothing in the stack to check, and when the check could not be done. Damage is no error here, but in
    /// the result.
    pub async fn fsck(&self, options: CheckOptions) -> Result<Checked, StackError> {
        if let Some((word, kind)) = self.stack.stored_device() {
            let checked = match kind {
                Stored::Device(kind) => kind.check(self.below_top()).await,
                Stored::Array(kind) => kind.check(self.rt, self.members(), word, options).await,
            };
            return checked.map_err(|trouble| self.stack.blame(word, "check", trouble));
        }
        self.stack.needs_checkable()?;
        let mut checked = Checked::default();
        if self.stack.file_system().is_some() {
            let (word, kind) = self.stack.kind("check")?;
            let found = kind.fsck(self.rt, self.device_below(word)?, word, options).await;
            checked = found.map_err(|trouble| self.stack.blame(word, "check", trouble))?;
            checked.add(self.corrected());
            if self.purpose == Purpose::Use && self.stack.words.iter().any(keeps_copies) {
                let released = self.device_below(word)?.release().await;
                released.map_err(|error| self.stack.blame(word, "check", error.into()))?;
            }
        }
        if !self.stack.has_checkable_layer() || checked.verdict() == Verdict::Damaged {
            return Ok(checked);
        }
        // A file system on a device is not written to for what lies above it, which is only looked at there.
        let read_only = self.purpose == Purpose::Inspect || self.stack.file_system().is_some();
        let usage = Usage { read_only, ..Usage::default() };
        let options = CheckOptions { repair: options.repair && self.stack.file_system().is_none(), ..options };
        let mut top: Option<Fs> = None;
        for word in self.stack.words.iter().rev() {
            let made = match (&word.spec.maker, top.take()) {
                (Maker::Layer(layer), Some(lower)) => {
                    if let Some(check) = layer.check {
                        let found = check(self.rt, lower.clone(), word, self.leaves, options).await;
                        let found = found.map_err(|trouble| self.stack.blame(word, "check", trouble))?;
                        checked.add(found);
                    }
                    (layer.make)(self.rt, lower, word, self.leaves).await
                }
                (Maker::FileSystem(kind), _) => kind.mount(self.rt, self.device_below(word)?, word, usage).await,
                (Maker::FileSystemLeaf, _) => self.file_system_leaf(word).await,
                // Devices.
                _ => continue,
            };
            top = Some(made.map_err(|trouble| self.stack.blame(word, "mount", trouble))?);
        }
        if let Some(fs) = top {
            // What was mended is durable when this returns.
            let closed = fs.close().await;
            closed.map_err(|error| self.stack.blame(&self.stack.words[0], "close", error.into()))?;
        }
        Ok(checked)
    }

    /// What checksums above have shown to be wrong on members of arrays, since they were opened.
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
            }
        }
        checked
    }

    /// The arrays of the stack that are open, top first.
    pub fn arrays(&self) -> Vec<Device> {
        self.devices.iter().flatten().filter(|device| device.redundancy().is_some()).cloned().collect()
    }

    /// Reads everything that the file system of the stack can reach and compares it with checksums; `None` where the stack
    /// has none that keeps checksums of all that it stores, or something between it and the arrays keeps what has none.
    ///
    /// # Errors
    /// When the check could not be done.
    pub async fn verify(&self) -> Result<Option<Checked>, StackError> {
        let Some(word) = self.stack.file_system() else { return Ok(None) };
        let Maker::FileSystem(kind) = word.spec.maker else { return Ok(None) };
        let is_stored = |word: &Word| matches!(word.spec.maker, Maker::StoredDevice(_));
        if !kind.has_checksums() || self.stack.words.iter().any(is_stored) {
            return Ok(None);
        }
        let options = CheckOptions { repair: false, data: true };
        let checked = kind.fsck(self.rt, self.device_below(word)?, word, options).await;
        checked.map(Some).map_err(|trouble| self.stack.blame(word, "check", trouble))
    }

    /// Turns the files below the top of the stack, a layer, into that layer's own, or back, see
    /// [`layer::log::pack`](crate::layer::log::pack). `tell` hears of every file.
    ///
    /// # Errors
    /// When the top is no layer that has files of its own, and what the file systems answer.
    pub async fn convert(&self, direction: Direction, tell: &Tell<'_>) -> Result<Progress, StackError> {
        let (word, convert) = self.stack.converter()?;
        let lower = self.mount_words(&self.stack.words[1..]).await?;
        let converted = convert(self.rt, lower.clone(), word, self.leaves, direction, tell).await;
        converted.map_err(|trouble| self.stack.blame(word, "convert", trouble))
    }

    /// Mounts the lower end of the stack.
    async fn mount_words(&self, words: &[Word]) -> Result<Fs, StackError> {
        let usage = Usage { read_only: self.purpose == Purpose::Inspect, ..Usage::default() };
        let mut top: Option<Fs> = None;
        for word in words.iter().rev() {
            let made = match (&word.spec.maker, top.take()) {
                (Maker::Layer(layer), Some(lower)) => (layer.make)(self.rt, lower, word, self.leaves).await,
                (Maker::FileSystem(kind), _) => kind.mount(self.rt, self.device_below(word)?, word, usage).await,
                (Maker::FileSystemLeaf, _) => self.file_system_leaf(word).await,
                // Devices, which are open.
                _ => continue,
            };
            top = Some(made.map_err(|trouble| self.stack.blame(word, "mount", trouble))?);
        }
        match top {
            Some(fs) => Ok(fs),
            // S2: a layer stands on a file system.
            None => unreachable!("there is a file system below a layer"),
        }
    }

    /// Opens the file system at the bottom, which lies outside.
    async fn file_system_leaf(&self, word: &Word) -> Result<Fs, Trouble> {
        let sharing = if self.stack.has_checkable_layer() { Sharing::Alone } else { Sharing::Shared };
        self.leaves.file_system(self.rt, word, self.purpose, sharing).await
    }

    /// What is on the device, for people: in outline, or the part that `what` names, in a form of
    /// [`FileSystemKind::dumps`].
    ///
    /// # Errors
    /// As [`Opened::fsck`], and when there is no such part.
    pub async fn dump(&self, what: Option<&str>) -> Result<String, StackError> {
        if let Some((word, Stored::Array(kind))) = self.stack.stored_device() {
            let dumped = kind.dump(&self.members()).await;
            return dumped.map_err(|trouble| self.stack.blame(word, "dump", trouble));
        }
        let (word, kind) = self.stack.kind("dump")?;
        let dumped = kind.dump(self.rt, self.device_below(word)?, word, what).await;
        dumped.map_err(|trouble| self.stack.blame(word, "dump", trouble))
    }

    /// What the superblock on the device says, or `None` when it is not one of the stack's volume.
    ///
    /// # Errors
    /// When the stack has no file system on a device, and when the device cannot be read.
    pub async fn probe(&self) -> Result<Option<Probed>, StackError> {
        if let Some((word, kind)) = self.stack.stored_device() {
            let probed = match kind {
                Stored::Device(kind) => kind.probe(self.below_top()).await,
                Stored::Array(kind) => kind.probe(&self.members()).await,
            };
            return probed.map_err(|trouble| self.stack.blame(word, "look at", trouble));
        }
        let (word, kind) = self.stack.kind("look at")?;
        let probed = kind.probe(self.rt, self.device_below(word)?).await;
        probed.map_err(|trouble| self.stack.blame(word, "look at", trouble))
    }

    /// What a device with a format of its own at the top stands on, whether it was opened itself or not.
    fn below_top(&self) -> Device {
        let opened = self.devices.len() == self.stack.words.len();
        match self.devices.get(usize::from(opened)).and_then(|instances| instances.first()) {
            Some(device) => device.clone(),
            None => unreachable!("S2: it stands on a device"),
        }
    }

    /// The members of an array at the top, whether it was opened itself or not.
    fn members(&self) -> Vec<Option<Device>> {
        match self.devices.len() == self.stack.words.len() {
            true => self.devices[1].iter().cloned().map(Some).collect(),
            false => self.below.clone(),
        }
    }

    fn device_below(&self, word: &Word) -> Result<Device, StackError> {
        match self.device() {
            Some(device) => Ok(device.clone()),
            // S2 again.
            None => unreachable!("`{}` stands on a device", word.name()),
        }
    }
}
