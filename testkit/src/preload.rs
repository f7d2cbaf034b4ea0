//! Libraries in C that are loaded before a program's own (`LD_PRELOAD`), built on demand.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use contract::fnv1a::fnv1a;

use crate::{command, executable};

/// Environment variable with the libraries that the dynamic loader loads first.
pub const VARIABLE: &str = "LD_PRELOAD";

/// The library of a source file. Built once for each source: the hash of the source is in its name.
///
/// # Errors
/// If the source cannot be read, or not be compiled.
pub fn library(source: &Path) -> Result<PathBuf> {
    let text = fs::read(source).with_context(|| format!("read {}", source.display()))?;
    let hash = fnv1a(text.iter().copied());
    let name = source.file_stem().unwrap_or_default().to_string_lossy();
    let tools = executable::target_dir()?.join("tools");
    let library = tools.join(format!("preload-{name}-{hash:016x}.so"));
    if !library.is_file() {
        fs::create_dir_all(&tools)?;
        let unfinished = tempfile::NamedTempFile::new_in(&tools)?.into_temp_path();
        let mut compiler = Command::new("cc");
        compiler
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
            .arg(&unfinished)
            .arg(source)
            .arg("-ldl");
        command::output(&mut compiler)
            .context("build the library that replaces calls of the C library")?;
        // A rename: tests that build it at the same time each put the same complete file in place.
        unfinished.persist(&library)?;
    }
    Ok(library)
}
