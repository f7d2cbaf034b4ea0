//! What every measuring command shares: the machine, percentiles, the plugin's stages, and where
//! figures go.

use std::{
    fmt::Display,
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use integration::executable;
use serde::Serialize;

pub(crate) mod environment;
pub(crate) mod gate;
pub(crate) mod percentiles;
pub(crate) mod stage_log;

/// Prints lines with the time since now.
pub(crate) fn progress() -> impl Fn(&str) + Sync {
    let began = Instant::now();
    move |text| eprintln!("{:6.1} s  {text}", began.elapsed().as_secs_f64())
}

pub(crate) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Prints `text`, and writes `figures` to `file` in cargo's target directory.
pub(crate) fn publish(text: impl Display, figures: &impl Serialize, file: &str) -> Result<()> {
    print!("{text}");
    let file = executable::target_dir()?.join(file);
    fs::create_dir_all(file.parent().context("a file has a directory")?)?;
    fs::write(&file, serde_json::to_string_pretty(figures)?)
        .with_context(|| format!("write {}", file.display()))?;
    println!("\nall figures: {}", file.display());
    Ok(())
}
