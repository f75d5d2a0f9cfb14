//! Opens the devices of a stack, from the leaf up; what a stack of words is.
//!
//! Parts inside the engine (memory, modelled disks, layers) are made from the word. Parts in the real world are opened
//! by the caller, through [`LeafOpener`].

use futures_util::future::LocalBoxFuture;

use super::error::{BuildError, Cause, StackError};
use super::file_systems::{FileSystemKind, Identity, Usage};
use super::opened::{Mounted, Opened, Stored, keeps_copies};
use super::order::Interface;
use super::spec::{Constructor, Convert, InOrder, LeafOpener, OpenContext, Property, Purpose, Spread};
use super::value::Value;
use super::words::WORDS;
use super::{Stack, Word};
use crate::device::{Device, DeviceError};
use crate::fs::FsError;
use crate::rt::Rt;

impl Stack {
    /// Opens the devices of the stack, from the leaf up.
    ///
    /// # Errors
    /// The error of the leaf, pointing at its word.
    pub async fn open<'a>(
        &'a self,
        rt: &'a Rt,
        leaves: &'a dyn LeafOpener,
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
        leaves: &'a dyn LeafOpener,
        purpose: Purpose,
    ) -> Result<Opened<'a>, StackError> {
        self.open_from(rt, leaves, purpose, usize::from(self.stored_device().is_some())).await
    }

    /// The same for words from `start` on.
    async fn open_from<'a>(
        &'a self,
        rt: &'a Rt,
        leaves: &'a dyn LeafOpener,
        purpose: Purpose,
        start: usize,
    ) -> Result<Opened<'a>, StackError> {
        self.zones_are_modelled()?;
        let is_device = |word: &Word| word.spec.role().is() == Interface::Device;
        let first = (start..self.words.len()).find(|&index| is_device(&self.words[index]));
        let mut devices = vec![Vec::new(); first.map_or(0, |first| self.words.len() - first)];
        let mut below = Vec::new();
        if let Some(first) = first {
            let context = OpenContext {
                purpose,
                is_volatile: self.is_volatile(),
                discard: !self.words.iter().any(|word| matches!(word.given("discard"), Some(Value::Switch(false)))),
                random: leaves.random(),
            };
            let mut opening = Opening { stack: self, rt, leaves, context, first, devices: &mut devices };
            match self.words[0].spec.constructor {
                Constructor::Spread(spread) if start > 0 => {
                    for member in 0..(spread.members)(&self.words[0]) as usize {
                        below.push(opening.open(first, Some(member)).await);
                    }
                    if let Some(error) = below.first().and_then(|member| member.as_ref().err())
                        && below.iter().all(Result::is_err)
                    {
                        return Err(error.clone());
                    }
                }
                _ => below.push(Ok(opening.open(first, None).await?)),
            }
        }
        Ok(Opened { rt, stack: self, leaves, purpose, devices, below })
    }

    /// Checks that zones are over something that keeps nothing either.
    fn zones_are_modelled(&self) -> Result<(), StackError> {
        let Some(word) = self.word_with(Property::ModelledZones).filter(|_| !self.is_volatile()) else { return Ok(()) };
        let problem = format!(
            "`{}` is for modelled storage: write pointers are in memory, and nothing could be opened again",
            word.name()
        );
        let hint = "a modelled drive in its place works: lfs / zoned / smr:zone=32MiB / disk:nearline-4tb";
        Err(self.blame(word, "open", BuildError::other(problem).hint(hint)))
    }

    /// Shows `look` the word of every leaf that will be opened, with its number, before any is.
    ///
    /// # Errors
    /// The error of `look`, pointing at the word.
    pub fn check_leaves(
        &self,
        purpose: Purpose,
        look: impl Fn(&Word) -> Result<(), BuildError>,
    ) -> Result<(), StackError> {
        let original = &self.words[self.words.len() - 1]; // S1
        if !matches!(original.spec.constructor, Constructor::DeviceLeaf) {
            return Ok(());
        }
        let told =
            |word: &Word, cause: BuildError| self.blame(word, purpose.verb(), cause.explained(self, original, purpose));
        let counts = self.words.iter().filter_map(|word| match &word.spec.constructor {
            Constructor::Spread(spread) => Some((spread.members)(word)),
            _ => None,
        });
        match counts.reduce(|one, other| one * other) {
            None => look(original).map_err(|cause| told(original, cause)),
            Some(count) => (0..count as usize).try_for_each(|number| {
                let word = original.numbered(number);
                look(&word).map_err(|cause| told(&word, cause))
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
        leaves: &dyn LeafOpener,
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

    /// True when a word says `ro`, or means a snapshot, which nothing changes, and no `fork` above it keeps what is written.
    pub fn says_read_only(&self) -> bool {
        let is_read_only =
            |word: &Word| matches!(word.given("ro"), Some(Value::Switch(true))) || word.given("snapshot").is_some();
        self.words.iter().take_while(|word| !word.forgets()).any(is_read_only)
    }

    /// True when everything in the stack is made empty each time and vanishes at the end.
    pub fn is_volatile(&self) -> bool {
        self.words.last().is_some_and(|leaf| matches!(leaf.spec.constructor, Constructor::VolatileDevice(_)))
    }

    /// The word that keeps what is written to the stack in memory, and only there, if one does.
    pub fn keeps_in_memory(&self) -> Option<&Word> {
        let keeps = |leaf: &&Word| self.is_volatile() || leaf.name() == super::words::MEMFS.name;
        self.forgets().or_else(|| self.words.last().filter(keeps))
    }

    /// The word of the file system on a device, if the stack has one.
    pub fn file_system(&self) -> Option<&Word> {
        self.words.iter().find(|word| matches!(word.spec.constructor, Constructor::FileSystem(_)))
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
    pub(super) fn stored_device(&self) -> Option<(&Word, Stored)> {
        let top = &self.words[0]; // S1
        match top.spec.constructor {
            Constructor::StoredDevice(kind) => Some((top, Stored::Device(kind))),
            Constructor::Spread(Spread { stored: Some(kind), .. }) if kind.is_stored(top) => {
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
        self.words
            .iter()
            .any(|word| matches!(word.spec.constructor, Constructor::Layer(layer) if layer.check.is_some()))
    }

    /// The top of the stack, as a layer that converts files to its own form.
    ///
    /// # Errors
    /// When it is not one.
    pub fn converter(&self) -> Result<(&Word, Convert), StackError> {
        let top = &self.words[0]; // S1
        if let Constructor::Layer(layer) = top.spec.constructor
            && let Some(convert) = layer.convert
        {
            return Ok((top, convert));
        }
        let problem = format!("`{}` is not a layer that stores files encoded", top.name());
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

    pub(super) fn kind(&self, what_for: &str) -> Result<(&Word, &'static dyn FileSystemKind), StackError> {
        for word in &self.words {
            if let Constructor::FileSystem(kind) = word.spec.constructor {
                return Ok((word, kind));
            }
        }
        let leaf = &self.words[self.words.len() - 1]; // S1: a stack has at least one word
        let problem = format!("there is no file system on a device here to {what_for}");
        let hint = "for example: lfs / file:a.img";
        Err(StackError::new(&self.line, leaf.name_span.clone(), problem).hint(hint))
    }

    /// `cause` with `word`, as an error that points at it.
    pub(super) fn blame(&self, word: &Word, operation: &str, cause: BuildError) -> StackError {
        let at_word = |problem: String| StackError::new(&self.line, word.span(), problem);
        // What is being made holds nothing yet that could be given up.
        let is_new = operation == Purpose::Format.verb();
        let room = |is_full: bool| if is_full && !is_new { self.how_to_make_room() } else { None };
        match cause {
            BuildError::FileSystem(error) => {
                let problem = format!("cannot {operation} `{}`: {error}", word.name());
                let is_full = error.is_no_space();
                at_word(problem).hint_if(room(is_full)).cause(Cause::FileSystem(error))
            }
            BuildError::Device(error) => {
                let problem = format!("cannot {operation} `{}`: {error}", word.name());
                let is_full = matches!(error, DeviceError::NoSpace { .. });
                at_word(problem).hint_if(room(is_full)).cause(Cause::Device(error))
            }
            BuildError::Option { key, problem } => {
                let span = word.setting(key).map_or(word.span(), |setting| setting.span.clone());
                StackError::new(&self.line, span, format!("`{key}` of `{}`: {problem}", word.name()))
            }
            BuildError::Missing { problem } => at_word(problem),
            BuildError::InUse { problem, hint } => at_word(problem).hint_if(hint).cause(Cause::InUse),
            BuildError::Other { problem, hint } => at_word(problem).hint_if(hint),
        }
    }
}

/// Refuses a word that would write anywhere on a device that is written in order.
fn keeps_order(word: &Word, below: &Device) -> Result<(), BuildError> {
    let in_order = word.spec.in_order();
    let hint = match (below.geometry().zones, below.spans()) {
        (Some(_), _) if in_order < InOrder::Zones => {
            format!("of devices, {} can be on zones: lfs / zoned / concat:n=2 / zns:zns-a", that_keep(InOrder::Zones))
        }
        (_, Some(_)) if in_order < InOrder::ZonesAndSpans => format!(
            "of devices, {} can be on `zoned`; several drives go below it: lfs / zoned / concat:n=2 / zns:zns-a",
            that_keep(InOrder::ZonesAndSpans)
        ),
        _ => return Ok(()),
    };
    let problem = format!("`{}` writes anywhere, and what is below it is written in order, in zones", word.name());
    Err(BuildError::other(problem).hint(hint))
}

/// The words of devices that can be on what is written in order, as a text.
fn that_keep(order: InOrder) -> String {
    let words = WORDS.iter().filter(|word| word.in_order() >= order);
    let mut names: Vec<String> = words.map(|word| format!("`{}`", word.name)).collect();
    let last = names.pop().unwrap_or_default();
    if names.is_empty() { last } else { format!("{} and {last}", names.join(", ")) }
}

/// Opening the devices of a stack.
struct Opening<'a, 'b> {
    stack: &'a Stack,
    rt: &'a Rt,
    leaves: &'a dyn LeafOpener,
    context: OpenContext,
    /// The first word that is a device.
    first: usize,
    devices: &'b mut Vec<Vec<Device>>,
}

impl Opening<'_, '_> {
    /// What the word at `index` has to know. Below a `fork` nothing is written, not even what an array says of its members or a recovery
    /// mends. The leaf keeps others away as for any use: what is below must not change.
    fn context(&self, index: usize) -> OpenContext {
        let is_used = self.context.purpose == Purpose::Use;
        let is_forked = self.stack.words[..index].iter().any(Word::forgets);
        let purpose = if is_used && is_forked { Purpose::Inspect } else { self.context.purpose };
        OpenContext { purpose, ..self.context }
    }

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
            let made = match &word.spec.constructor {
                Constructor::DeviceLeaf => {
                    let opened = self.leaves.device(self.rt, word, self.context.purpose).await;
                    opened.map(|device| self.leaves.watched(self.rt, device))
                }
                Constructor::VolatileDevice(make) => {
                    make(self.rt, word).await.map(|device| self.leaves.watched(self.rt, device))
                }
                Constructor::DeviceLayer(_, make) => {
                    let below = self.open(index + 1, instance).await?;
                    match keeps_order(word, &below) {
                        Ok(()) => make(self.rt, below, word).await,
                        Err(error) => Err(error),
                    }
                }
                Constructor::StoredDevice(kind) => {
                    let below = self.open(index + 1, instance).await?;
                    match keeps_order(word, &below) {
                        Ok(()) => kind.open(self.rt, below, word, self.context(index)).await,
                        Err(error) => Err(error),
                    }
                }
                Constructor::Spread(spread) => {
                    let count = (spread.members)(word) as usize;
                    let mut members = Vec::with_capacity(count);
                    for member in 0..count {
                        let number = instance.unwrap_or(0) * count + member;
                        match self.open(index + 1, Some(number)).await {
                            Ok(device) => members.push(Some(device)),
                            // Its user may write to it, and what only one half has got would be acknowledged twice.
                            Err(error) if (spread.tolerates_missing)(word) && !error.is_in_use() => members.push(None),
                            Err(error) => return Err(error),
                        }
                    }
                    match members.iter().flatten().try_for_each(|member| keeps_order(word, member)) {
                        Ok(()) => (spread.make)(self.rt, members, word, self.context(index)).await,
                        Err(error) => Err(error),
                    }
                }
                // S2: `order` has checked the order of the words.
                _ => unreachable!("`{}` is a device", word.name()),
            };
            let device = made.map_err(|cause| {
                let original = &self.stack.words[index];
                let purpose = self.context.purpose;
                self.stack.blame(word, purpose.verb(), cause.explained(self.stack, original, purpose))
            })?;
            self.devices[index - self.first].push(device.clone());
            Ok(device)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The word that keeps in memory what is written is known.
    #[test]
    fn what_is_kept_in_memory_alone_is_known() {
        for (line, word) in [
            ("lfs / memory:9MiB", Some("memory")),
            ("zstd / memfs", Some("memfs")),
            ("lfs / raid1:n=2 / fork / file:a-{}", Some("fork")),
            ("ffs / ssd:nvme-a", Some("ssd")),
            ("lfs / file:a", None),
            ("zstd / hostdir:d", None),
        ] {
            assert_eq!(Stack::parse(line).unwrap().keeps_in_memory().map(|word| word.name()), word, "{line}");
        }
    }
}
