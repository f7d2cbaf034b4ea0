//! Sizes of the logs.

use std::path::PathBuf;

use prometheus::{IntGaugeVec, Opts, Registry};

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
        let sizes = IntGaugeVec::new(Opts::new(name, "Size of a log, by its file name."), &["logfile_name"]);
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
