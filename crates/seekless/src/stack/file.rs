//! Stack files: a named stack, for fstab and for lines too long to type.

use super::{Stack, StackError};

/// Why a stack file cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StackFileError {
    /// The file is not TOML; the text shows where.
    #[error("not TOML: {0}")]
    Toml(String),
    #[error("the key `stack` is missing; write: stack = \"wrap / memfs\"")]
    Missing,
    #[error("`stack` is not text; write: stack = \"wrap / memfs\"")]
    NotText,
    #[error("there is no key `{0}`; the file has one key, `stack`")]
    UnknownKey(String),
    #[error(transparent)]
    Stack(#[from] StackError),
}

impl Stack {
    /// Parses the text of a stack file.
    ///
    /// # Errors
    /// The first mistake.
    pub fn parse_file(text: &str) -> Result<Stack, StackFileError> {
        let table: toml::Table = text
            .parse()
            .map_err(|error: toml::de::Error| StackFileError::Toml(error.to_string().trim_end().to_owned()))?;
        if let Some(key) = table.keys().find(|key| *key != "stack") {
            return Err(StackFileError::UnknownKey(key.clone()));
        }
        match table.get("stack") {
            Some(toml::Value::String(line)) => Ok(Stack::parse(line)?),
            Some(_) => Err(StackFileError::NotText),
            None => Err(StackFileError::Missing),
        }
    }
}
