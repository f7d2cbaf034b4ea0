//! Keeps processors awake.
//!
//! A processor without work sleeps; a virtual one is taken away by its host. When it wakes up its caches are empty,
//! and the first millisecond of whatever runs then takes twice as long. That time counts as the program's.

use std::{
    process::{Child, Command},
    thread::available_parallelism,
};

use anyhow::{Context as _, Result};

/// Loops of the policy SCHED_IDLE, one for each processor: they run while nothing else wants to. Dropped, they end.
pub(super) struct Awake(Vec<Child>);

impl Awake {
    pub(super) fn start() -> Result<Self> {
        let mut awake = Self(Vec::new());
        for _ in 0..available_parallelism()?.get() {
            let mut command = Command::new("chrt");
            let spawned = command.args(["--idle", "0", "sh", "-c", "while :; do :; done"]).spawn();
            awake.0.push(spawned.context("start chrt")?);
        }
        Ok(awake)
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Ended already is ended, too.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
