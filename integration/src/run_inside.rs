//! One measurement in namespaces of its own, in a process of its own.

use std::{env, ffi::OsString, fs, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use integration::{executable, inside};
use serde::de::DeserializeOwned;

/// Runs this command again in namespaces of its own, so that no state of another run is left in
/// them, with `options` and `--into FILE`, and reads the figures that it writes to that file.
/// `command`: for the logs.
pub(crate) fn run_inside<F: DeserializeOwned>(
    command: &str,
    what: &str,
    options: impl IntoIterator<Item = String>,
    file: PathBuf,
) -> Result<F> {
    let name = format!("{command}-{}", std::process::id());
    let mut arguments: Vec<OsString> = env::args_os().skip(1).collect();
    arguments.extend(options.into_iter().map(OsString::from));
    arguments.extend(["--into".into(), file.clone().into()]);
    let (status, signal) = inside::run_again(&name, arguments)?;
    ensure!(signal.is_none(), "{what}: interrupted");
    let logs = executable::target_dir()?.join("lab-logs").join(name);
    ensure!(status.success(), "{what}: {status} (see above); logs: {}", logs.display());
    serde_json::from_slice(&fs::read(&file)?).with_context(|| format!("read {}", file.display()))
}
