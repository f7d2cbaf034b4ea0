//! A lock on this host. This process takes it at once, or as soon as the process that holds it has
//! ended. The kernel releases it when the process ends, by any signal and in any container.

use std::{
    fs::{DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::Path,
    time::Duration,
};

use kubeapi::election::{HostLock, Mark};
use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg, OFlag},
};
use tokio::{sync::watch, time::timeout};

/// machine-id(5): stays the same over reboots.
const MACHINE_ID: &str = "/etc/machine-id";
/// flock(2) has no event for a lock that becomes free, and a thread that blocks in it cannot be
/// ended. A restarted leader has two seconds to lead again; each look is one system call.
const POLL: Duration = Duration::from_millis(200);

/// The lock on `directory`/`name`, held or awaited. Needs a tokio runtime. The lock is released
/// when the returned value and its clones are dropped. The file stays: another process may wait for
/// its lock.
pub(crate) fn take(directory: &Path, name: &str) -> io::Result<HostLock> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let path = directory.join(name);
    let mut open = OpenOptions::new();
    // Only for its owner: flock(2) needs no more than an open file, so a user that may open it can
    // hold the lock.
    open.read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(OFlag::O_NOFOLLOW.bits());
    let file = open.open(&path)?;
    let metadata = file.metadata()?;
    let mark = Mark {
        boot: podnet::boot::id()?,
        file: format!("{}:{}", metadata.dev(), metadata.ino()),
        machine: std::fs::read_to_string(MACHINE_ID)
            .ok()
            .map(|id| id.trim().to_owned())
            .filter(|id| !id.is_empty()),
    };
    let (sender, held) = watch::channel(false);
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => {
            sender.send_replace(true);
            tokio::spawn(keep(lock, sender));
        }
        Err((file, Errno::EWOULDBLOCK)) => {
            tracing::warn!(
                path = %path.display(),
                "another process of this name runs on this host; if it leads, its lease has to run out"
            );
            tokio::spawn(wait(file, sender));
        }
        Err((_, errno)) => return Err(errno.into()),
    }
    Ok(HostLock { mark, held })
}

/// Takes the lock once it is free, or ends when the last receiver is dropped.
async fn wait(mut file: File, held: watch::Sender<bool>) {
    while timeout(POLL, held.closed()).await.is_err() {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => {
                held.send_replace(true);
                return keep(lock, held).await;
            }
            Err((same, Errno::EWOULDBLOCK | Errno::EINTR)) => file = same,
            Err((_, errno)) => {
                tracing::warn!(%errno, "the lock of this host cannot be waited for; a lease has to run out");
                return held.closed().await;
            }
        }
    }
}

/// Keeps the lock until the last receiver is dropped.
async fn keep(lock: Flock<File>, held: watch::Sender<bool>) {
    held.closed().await;
    drop(lock);
}

#[cfg(test)]
mod tests;
