//! The current boot of the machine: its id, and the time since.

use std::{fs, io, time::Duration};

use rustix::time::{ClockId, clock_gettime};

/// The kernel's id of this boot (random(4)): a new one after each start of the machine, the same in
/// every container.
///
/// # Errors
/// `/proc` cannot be read.
pub fn id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// `CLOCK_BOOTTIME` in whole seconds (clock_gettime(2)): no change of the wall clock moves it, and
/// it goes on while the machine sleeps.
pub fn elapsed() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::from_secs(now.tv_sec.try_into().unwrap_or_default())
}
