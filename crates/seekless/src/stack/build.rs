//! Builds a running stack from words: opens the devices, makes and mounts file systems, puts layers on them.
//!
//! Parts inside the engine (memory, modelled disks, layers) are made from the word. Parts in the real world are opened
//! by the caller, through [`Leaves`].

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

/// A word at the top that stores its own format on the devices below.
#[derive(Clone, Copy)]
enum Stored {
    Device(&'static dyn StoredDevice),
    Array(&'static dyn StoredArray),
}

/// A stack whose devices are open, without a file system yet.
pub struct Opened<'a> {
    rt: &'a Rt,
    stack: &'a Stack,
    leaves: &'a dyn Leaves,
    purpose: Purpose,
    /// The instances of each word that is a device, in the order of the words. Empty on a stack without a device.
    devices: Vec<Vec<Device>>,
    /// The devices below a volume at the top, where only those were opened. A member that cannot be opened is `None`.
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
    /// The error of the leaf, pointing at its word.
    pub async fn open<'a>(
        &'a self,
        rt: &'a Rt,
        leaves: &'a dyn Leaves,
        purpose: Purpose,
    ) -> Result<Opened<'a>, StackError> {
        self.open_from(rt, leaves, purpose, 0).await
    }

    /// Opens the devices below the volume of the stack: the device of its file system or, where there is none and the
    /// top is a device with its own format, the devices below that. For examining the volume from outside.
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

    /// Shows `look` the word of every leaf that will be opened, with its number, before any is.
    ///
    /// # Errors
    /// The error of `look`, pointing at the word.
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

    /// Opens everything and mounts it. A stack on a volatile device first gets a new file system with `identity`.
    ///
    /// # Errors
    /// The error of the part that could not be made, pointing at its word.
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

    /// True when everything in the stack is made empty each time and vanishes at the end.
    pub fn is_volatile(&self) -> bool {
        self.words.last().is_some_and(|leaf| matches!(leaf.spec.maker, Maker::VolatileDevice(_)))
    }

    /// The word of the file system on a device, if the stack has one.
    pub fn file_system(&self) -> Option<&Word> {
        self.words.iter().find(|word| matches!(word.spec.maker, Maker::FileSystem(_)))
    }

    /// True when the check of the stack's file system can repair it, or that of its layers where they have no device
    /// below. Such a stack must be opened for use; otherwise inspection suffices.
    pub fn repairs(&self) -> bool {
        match self.file_system() {
            // What a member of an array below has lost is rewritten.
            Some(_) => self.kind("check").is_ok_and(|(_, kind)| kind.repairs()) || self.words.iter().any(keeps_copies),
            None => self.has_checkable_layer() || self.is_array(),
        }
    }

    /// True when the top is an array that stores its own format on its members.
    pub fn is_array(&self) -> bool {
        matches!(self.stored_device(), Some((_, Stored::Array(_))))
    }

    /// The word at the top and its kind, where it is a device with its own format.
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

    /// The word of the volume on a device: a file system, or a device with its own format at the top.
    pub fn volume(&self) -> Option<&Word> {
        self.file_system().or_else(|| self.stored_device().map(|(word, _)| word))
    }

    /// Checks that there is a file system on a device, or a device with its own format at the top, before anything is
    /// opened or made.
    ///
    /// # Errors
    /// When there is none, with the purpose: to `make`, `check` ...
    pub fn needs_volume(&self, what_for: &str) -> Result<(), StackError> {
        match self.stored_device() {
            Some(_) => Ok(()),
            None => self.kind(what_for).map(drop),
        }
    }

    /// True when a layer of the stack stores something that can be checked.
    pub fn has_checkable_layer(&self) -> bool {
        self.words.iter().any(|word| matches!(word.spec.maker, Maker::Layer(layer) if layer.check.is_some()))
    }

    /// The top of the stack, as a layer that converts files to its own form.
    ///
    /// # Errors
    /// When it is not one.
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

    /// Checks that there is something to check, before anything is opened.
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

/// An array with redundancy, which can say what a member should hold.
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
                // S2: `order` has checked the order of the words.
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
    /// The device of the stack's file system; the top of a stack of devices alone.
    pub fn device(&self) -> Option<&Device> {
        self.devices.first()?.first()
    }

    /// The instances of each word that is a device, top first: one of each, but below a word that spreads as many as it
    /// and those above it need, in the order of their numbers. For the counters of single disks.
    pub fn instances(&self) -> &[Vec<Device>] {
        &self.devices
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
        let made = kind.mkfs(self.rt, self.device_below(word)?, word, identity).await;
        made.map_err(|trouble| self.stack.blame(word, "make", trouble))
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
        let mut parts: Vec<Part> = self.devices.iter().rev().cloned().map(Part::of).collect();
        let mut top: Option<Fs> = None;
        for word in self.stack.words.iter().rev().skip(parts.len()) {
            let made = match (&word.spec.maker, top.take()) {
                (Maker::Layer(layer), Some(lower)) => (layer.make)(self.rt, lower, word, self.leaves).await,
                (Maker::FileSystem(kind), _) => kind.mount(self.rt, self.device_below(word)?, word, usage).await,
                (Maker::FileSystemLeaf, _) => self.file_system_leaf(word).await,
                // S2: `order` has checked the order of the words.
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
        // A file system on a device is not written to for the layers above it, which are only examined there.
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
            // Repairs are durable when this returns.
            let closed = fs.close().await;
            closed.map_err(|error| self.stack.blame(&self.stack.words[0], "close", error.into()))?;
        }
        Ok(checked)
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
        let Maker::FileSystem(kind) = word.spec.maker else { return Ok(None) };
        let is_stored = |word: &Word| matches!(word.spec.maker, Maker::StoredDevice(_));
        if !kind.has_checksums() || self.stack.words.iter().any(is_stored) {
            return Ok(None);
        }
        let options = CheckOptions { repair: false, data: true };
        let checked = kind.fsck(self.rt, self.device_below(word)?, word, options).await;
        checked.map(Some).map_err(|trouble| self.stack.blame(word, "check", trouble))
    }

    /// Converts the files below the top of the stack, a layer, to that layer's form, or back, see
    /// [`layer::log::pack`](crate::layer::log::pack). `tell` is called for every file.
    ///
    /// # Errors
    /// When the top is not a layer with its own form of files, and those of the file systems.
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
                // Devices are already open.
                _ => continue,
            };
            top = Some(made.map_err(|trouble| self.stack.blame(word, "mount", trouble))?);
        }
        match top {
            Some(fs) => Ok(fs),
            // S2: a layer is above a file system.
            None => unreachable!("there is a file system below a layer"),
        }
    }

    /// Opens the file system at the bottom, outside the engine.
    async fn file_system_leaf(&self, word: &Word) -> Result<Fs, Trouble> {
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
            return dumped.map_err(|trouble| self.stack.blame(word, "dump", trouble));
        }
        let (word, kind) = self.stack.kind("dump")?;
        let dumped = kind.dump(self.rt, self.device_below(word)?, word, what).await;
        dumped.map_err(|trouble| self.stack.blame(word, "dump", trouble))
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
            return probed.map_err(|trouble| self.stack.blame(word, "look at", trouble));
        }
        let (word, kind) = self.stack.kind("look at")?;
        let probed = kind.probe(self.rt, self.device_below(word)?).await;
        probed.map_err(|trouble| self.stack.blame(word, "look at", trouble))
    }

    /// The device below a device with its own format at the top, whether or not the latter was opened.
    fn below_top(&self) -> Device {
        let opened = self.devices.len() == self.stack.words.len();
        match self.devices.get(usize::from(opened)).and_then(|instances| instances.first()) {
            Some(device) => device.clone(),
            None => unreachable!("S2: it stands on a device"),
        }
    }

    /// The members of an array at the top, whether or not it was opened.
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
