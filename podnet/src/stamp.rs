//! A file beside the server's socket with the time at which the server could last answer ADDs.
//! STATUS forgives a server that is being replaced as long as the stamp is young.
//!
//! `BOOT SECONDS`: the kernel's id of this boot, and `CLOCK_BOOTTIME`, which no change of the wall
//! clock moves and which goes on while the machine sleeps. A stamp of an earlier boot counts as
//! none.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::boot;

/// How long a server may be away, or not know its pods yet, after it could answer. The update of a
/// DaemonSet pulls an image and starts a container in less; much longer would hide a server that
/// does not come back. The runtime takes the node out of service afterwards.
pub const FORGIVEN: Duration = Duration::from_secs(60);

/// The stamp of the server behind this socket. Its directory is root's alone.
pub fn file(socket: &Path) -> PathBuf {
    socket.with_extension("synced")
}

/// The contents of a stamp of now.
///
/// # Errors
/// The id of the boot cannot be read.
pub fn text() -> io::Result<String> {
    Ok(format!("{} {}\n", boot::id()?, boot::elapsed().as_secs()))
}

/// How long ago the server behind this socket could last answer ADDs. `None` without a stamp of
/// this boot.
pub fn age(socket: &Path) -> Option<Duration> {
    age_of(&fs::read_to_string(file(socket)).ok()?, &boot::id().ok()?, boot::elapsed())
}

fn age_of(stamp: &str, boot: &str, now: Duration) -> Option<Duration> {
    let (stamped_boot, seconds) = stamp.trim().split_once(' ')?;
    let then = Duration::from_secs(seconds.parse().ok()?);
    // The stamp has whole seconds. A time in the future is invalid.
    if stamped_boot == boot { now.checked_sub(then) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_stamp_of_this_boot_and_of_the_past_has_an_age() {
        let now = Duration::from_secs(100);
        assert_eq!(age_of("b 40\n", "b", now), Some(Duration::from_secs(60)));
        assert_eq!(age_of("b 100\n", "b", now), Some(Duration::ZERO));
        for none in ["a 99", "b 101", "b", "", "b x", "b -1", "b 18446744073709551616"] {
            assert_eq!(age_of(none, "b", now), None, "{none:?}");
        }
    }

    #[test]
    fn what_is_written_now_is_young() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("server.sock");
        assert_eq!(age(&socket), None);
        fs::write(directory.path().join("server.synced"), text().unwrap()).unwrap();
        assert!(age(&socket).unwrap() < FORGIVEN);
    }
}
