//! The archive: entries without secrets, up to a bound.

use std::{fs::OpenOptions, io, os::unix::fs::OpenOptionsExt as _, path::Path};

use serde::Serialize;
use tar::{Builder, Header};

use super::scrub;

/// Bytes of a header, and of the end of an entry.
const PADDING: u64 = 1024;

/// A tar file that is being written. Everything goes through [`scrub`] on its way into it.
pub(super) struct Archive {
    builder: Builder<std::fs::File>,
    /// Bytes that may still be written.
    left: u64,
    /// Seconds since the epoch, of every entry.
    time: u64,
    /// Entries for which there was no room.
    omitted: Vec<String>,
}

impl Archive {
    /// A new file, which its owner alone may read.
    ///
    /// # Errors
    ///
    /// The file exists already, or cannot be made.
    pub(super) fn create(path: &Path, most: u64, time: u64) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        Ok(Self { builder: Builder::new(file), left: most, time, omitted: Vec::new() })
    }

    /// # Errors
    ///
    /// The file cannot be written.
    pub(super) fn json(&mut self, name: &str, value: &impl Serialize) -> io::Result<()> {
        let mut value = serde_json::to_value(value).map_err(io::Error::other)?;
        scrub::json(&mut value);
        let bytes = serde_json::to_vec(&value).map_err(io::Error::other)?;
        self.entry(name, &bytes)
    }

    /// # Errors
    ///
    /// The file cannot be written.
    pub(super) fn text(&mut self, name: &str, text: &str) -> io::Result<()> {
        self.entry(name, scrub::text(text).as_bytes())
    }

    /// Ends the archive. The names of what is not in it.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub(super) fn finish(mut self) -> io::Result<Vec<String>> {
        self.builder.finish()?;
        self.builder.get_ref().sync_all()?;
        Ok(self.omitted)
    }

    fn entry(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let Some(left) = self.left.checked_sub(size.saturating_add(PADDING)) else {
            self.omitted.push(name.to_owned());
            return Ok(());
        };
        self.left = left;
        let mut header = Header::new_gnu();
        header.set_size(size);
        header.set_mode(0o600);
        header.set_mtime(self.time);
        self.builder.append_data(&mut header, name, bytes)
    }
}
