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
pub(super) const VARIABLE: &str = "LD_PRELOAD";

/// The library of `src/faults/NAME.c`. Built once for each source: the hash of the source is in its name.
pub(super) fn library(name: &str) -> Result<PathBuf> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/faults").join(format!("{name}.c"));
    let source = fs::read(&file).with_context(|| format!("read {}", file.display()))?;
    let hash = fnv1a(source.iter().copied());
    let tools = executable::target_dir()?.join("tools");
    let library = tools.join(format!("fault-{name}-{hash:016x}.so"));
    if !library.is_file() {
        fs::create_dir_all(&tools)?;
        let unfinished = tempfile::NamedTempFile::new_in(&tools)?.into_temp_path();
        let mut compiler = Command::new("cc");
        compiler
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
            .arg(&unfinished)
            .arg(&file)
            .arg("-ldl");
        command::output(&mut compiler).context("build the library that replaces calls of the C library")?;
        // A rename: tests that build it at the same time each put the same complete file in place.
        unfinished.persist(&library)?;
    }
    Ok(library)
}
