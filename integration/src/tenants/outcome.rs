//! What became of a row. The test writes it into a file, because one test tries many rows.

use std::{fs, io, path::PathBuf};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::executable;

/// What became of one row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The row.
    pub number: u8,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// What was measured at the attack.
    pub figure: String,
    /// What the bystander noticed.
    pub bystander: String,
    /// What does not hold, if anything.
    pub failure: Option<String>,
}

impl Outcome {
    /// Keeps it for the report.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn keep(&self) -> Result<()> {
        let file = file(self.number)?;
        let directory = file.parent().context("a file is in a directory")?;
        fs::create_dir_all(directory)?;
        fs::write(&file, serde_json::to_vec_pretty(self)?)
            .with_context(|| format!("write {}", file.display()))
    }

    /// What was kept of this row, if anything.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn of(number: u8) -> Result<Option<Self>> {
        let file = file(number)?;
        match fs::read(&file) {
            Ok(text) => serde_json::from_slice(&text)
                .with_context(|| format!("read {}", file.display()))
                .map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("read {}", file.display())),
        }
    }

    /// Forgets what was kept of this row: it must not stand for another run.
    ///
    /// # Errors
    /// If the file cannot be removed.
    pub fn forget(number: u8) -> Result<()> {
        let removed = fs::remove_file(file(number)?);
        removed.or_else(|error| {
            if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error.into()) }
        })
    }
}

fn file(number: u8) -> Result<PathBuf> {
    Ok(executable::target_dir()?.join("tenants").join(format!("{number:02}.json")))
}
