//! File descriptors that connections leave for the server's own work.
//!
//! A caller that waits for a pod holds a descriptor, and the server needs one, too, to learn of
//! that pod. If callers held all of them, all would wait in vain.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

use nix::{
    errno::Errno,
    sys::resource::{Resource, getrlimit},
};

/// Descriptors that stay free: one for each thread that may block (8), the others for databases and
/// an API server whose connections are lost. With too few a full server cannot reconnect.
const RESERVE: u64 = 16;

/// Fails with `EMFILE` if another connection would leave fewer than [`RESERVE`] descriptors free.
pub(super) fn untouched(any: &impl AsFd) -> io::Result<()> {
    // The kernel gives a new descriptor the lowest free number: all below it are in use.
    let lowest = any.as_fd().try_clone_to_owned()?.as_raw_fd();
    let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if u64::try_from(lowest).is_ok_and(|in_use| in_use + 1 + RESERVE > limit) {
        Err(Errno::EMFILE.into())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::OwnedFd};

    use nix::sys::resource::setrlimit;

    use super::*;

    #[test]
    fn the_last_sixteen_are_not_for_connections() {
        let null = File::open("/dev/null").unwrap();
        let next = u64::try_from(null.as_fd().try_clone_to_owned().unwrap().as_raw_fd()).unwrap();
        let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, next + RESERVE + 3, most).unwrap();

        let mut taken: Vec<OwnedFd> =
            (0..3).map(|_| null.as_fd().try_clone_to_owned().unwrap()).collect();
        assert_eq!(untouched(&null).unwrap_err().raw_os_error(), Some(Errno::EMFILE as i32));
        taken.pop();
        untouched(&null).unwrap();
    }
}
