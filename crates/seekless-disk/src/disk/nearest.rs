//! The name that a misspelt one probably means.

/// The name that was probably meant: about one character in three may be wrong.
pub(super) fn nearest<'a>(key: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // The comparison takes time in proportion to both lengths, and no name is as long.
    const CHARS_MAX: usize = 64;
    if key.chars().count() > CHARS_MAX {
        return None;
    }
    let key = key.to_ascii_lowercase();
    let distances = names.map(|name| (strsim::damerau_levenshtein(&key, &name.to_ascii_lowercase()), name));
    let (distance, name) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= name.chars().count().max(key.chars().count()) / 3).then_some(name)
}
