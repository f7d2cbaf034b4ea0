//! How much a process has allocated and not freed, exactly: a library counts the calls of its
//! allocator (`heap.c`).
//!
//! Works with executables that link the GNU C library dynamically, as cargo builds them for tests.
//! In others nothing is counted.

use std::{
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use testkit::preload;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/heap.c");
const FILE: &str = "OVN_HEAP_FILE";

/// The environment of a process whose allocations are to be counted, in `file`, which starts at
/// zero.
pub(crate) fn environment(file: &Path) -> Result<[(&'static str, String); 2]> {
    fs::write(file, [0; 16]).with_context(|| format!("write {}", file.display()))?;
    Ok([(preload::VARIABLE, library()?), (FILE, file.to_string_lossy().into_owned())])
}

/// Path of the library that counts, for callers that preload other libraries, too.
pub(crate) fn library() -> Result<String> {
    Ok(preload::library(Path::new(SOURCE))?.to_string_lossy().into_owned())
}

/// The bytes that the process with this id has allocated and not freed, if they are counted.
pub(crate) fn allocated(pid: u32) -> Result<Option<u64>> {
    let process = Path::new("/proc").join(pid.to_string());
    let maps = fs::read_to_string(process.join("maps"))
        .with_context(|| format!("read maps of process {pid}"))?;
    // A statically linked program inherits the variables, but loads no library.
    if !maps.contains(&library()?) {
        return Ok(None);
    }
    let environment = fs::read(process.join("environ"))
        .with_context(|| format!("read environ of process {pid}"))?;
    let variable = environment
        .split(|byte| *byte == 0)
        .find_map(|variable| variable.strip_prefix(FILE.as_bytes())?.strip_prefix(b"="));
    let file = PathBuf::from(OsStr::from_bytes(
        variable.with_context(|| format!("process {pid} has no {FILE}"))?,
    ));
    let bytes = fs::read(&file).with_context(|| format!("read {}", file.display()))?;
    // Two 64-bit numbers (`heap.c`): the process that counts, and its bytes.
    let number =
        |index: usize| bytes.get(8 * index..8 * index + 8)?.try_into().ok().map(i64::from_ne_bytes);
    ensure!(
        number(0) == Some(pid.into()),
        "{} counts process {:?} and not {pid}",
        file.display(),
        number(0)
    );
    let count = number(1).with_context(|| format!("no count in {}", file.display()))?;
    Ok(Some(
        u64::try_from(count)
            .with_context(|| format!("process {pid} has freed more than it allocated"))?,
    ))
}
