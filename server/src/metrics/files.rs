//! How large the logs are.

use std::path::PathBuf;

use prometheus::IntGaugeVec;

use super::register::Register;

#[derive(Debug)]
pub(super) struct LogFiles {
    files: Vec<PathBuf>,
    sizes: IntGaugeVec,
}

impl LogFiles {
    pub(super) fn register(register: &Register<'_>, name: &str, files: impl IntoIterator<Item = PathBuf>) -> Self {
        let sizes = register.int_gauges(name, "Size of a log, by its file name.", &["logfile_name"]);
        Self { files: files.into_iter().collect(), sizes }
    }

    /// Looks at the files; one that is not there, or is none (`/dev/stderr`), has no size.
    pub(super) fn look(&self) {
        self.sizes.reset();
        for file in &self.files {
            if let (Some(name), Some(metadata)) = (file.file_name(), file.metadata().ok().filter(std::fs::Metadata::is_file)) {
                let size = i64::try_from(metadata.len()).unwrap_or(i64::MAX);
                self.sizes.with_label_values(&[&name.to_string_lossy()]).set(size);
            }
        }
    }
}
