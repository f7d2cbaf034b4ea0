//! Sizes of the logs, and the lines that were lost.

use std::path::PathBuf;

use ovslog::background::LostLines;
use prometheus::{IntCounter, IntGaugeVec, Opts, Registry};

use super::known;

#[derive(Debug)]
pub(super) struct LogFiles {
    files: Vec<PathBuf>,
    sizes: IntGaugeVec,
}

impl LogFiles {
    pub(super) fn register(
        registry: &Registry,
        name: &str,
        files: impl IntoIterator<Item = PathBuf>,
    ) -> prometheus::Result<Self> {
        let sizes = IntGaugeVec::new(
            Opts::new(name, "Size of a log, by its file name."),
            &["logfile_name"],
        );
        Ok(Self { files: files.into_iter().collect(), sizes: known(registry, sizes)? })
    }

    /// Reads the sizes. A file that is missing, or is no regular file (`/dev/stderr`), has none.
    pub(super) fn look(&self) {
        // A log that is gone must not keep its last size.
        self.sizes.reset();
        for file in &self.files {
            if let (Some(name), Some(metadata)) =
                (file.file_name(), file.metadata().ok().filter(std::fs::Metadata::is_file))
            {
                let size = i64::try_from(metadata.len()).unwrap_or(i64::MAX);
                self.sizes.with_label_values(&[&name.to_string_lossy()]).set(size);
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct LostLogLines {
    counter: IntCounter,
    lost: Option<LostLines>,
}

impl LostLogLines {
    pub(super) fn register(registry: &Registry, name: &str) -> prometheus::Result<Self> {
        let help = "Lines that this process's log has lost: its file could not be written, or too many lines \
                    waited for the disk.";
        Ok(Self { counter: known(registry, IntCounter::new(name, help))?, lost: None })
    }

    /// Counts these from now on.
    pub(super) fn of(&mut self, lost: LostLines) {
        self.lost = Some(lost);
    }

    pub(super) fn look(&self) {
        let lost = self.lost.as_ref().map_or(0, LostLines::count);
        self.counter.inc_by(lost.saturating_sub(self.counter.get()));
    }
}
