//! Libraries in C that are loaded before a program's own (`LD_PRELOAD`), built when they are needed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use contract::fnv1a::fnv1a;

use crate::{command, executable};

/// The variable with the libraries that are loaded first.
pub(super) const VARIABLE: &str = "LD_PRELOAD";

/// The library of `src/faults/NAME.c`. Built once: its name says of which source. Tests that build it at the same time put the same file in
/// place.
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
        compiler.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]).arg(&unfinished).arg(&file).arg("-ldl");
        command::output(&mut compiler).context("build the library that replaces calls of the C library")?;
        unfinished.persist(&library)?;
    }
    Ok(library)
}
