//! A lock of this host that this process takes at once, or as soon as the process that has it has ended. It goes with the process, however
//! that ends, and in whatever container it ran.

use std::{
    fs::{DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::Path,
};

use kubeapi::election::{HostLock, Mark};
use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg, OFlag},
};
use tokio::{runtime::Handle, sync::watch};

/// machine-id(5): of the machine, whatever kernel runs.
const MACHINE_ID: &str = "/etc/machine-id";

/// The lock on `directory`/`name`, or the hope for it. Needs a tokio runtime. It is given back when all that came of it is dropped. The file stays: another process may wait for it.
pub(crate) fn take(directory: &Path, name: &str) -> io::Result<HostLock> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let path = directory.join(name);
    let mut open = OpenOptions::new();
    // Nobody else may open it: whoever can, can lock it.
    open.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(OFlag::O_NOFOLLOW.bits());
    let file = open.open(&path)?;
    let metadata = file.metadata()?;
    let mark = Mark {
        boot: podnet::boot::id()?,
        file: format!("{}:{}", metadata.dev(), metadata.ino()),
        machine: std::fs::read_to_string(MACHINE_ID).ok().map(|id| id.trim().to_owned()).filter(|id| !id.is_empty()),
    };
    let (sender, held) = watch::channel(false);
    let runtime = Handle::current();
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => {
            sender.send_replace(true);
            runtime.spawn(keep(lock, sender));
        }
        Err((file, Errno::EWOULDBLOCK)) => {
            tracing::warn!(path = %path.display(), "another process of this name runs on this host; if it leads, its lease has to run out");
            // The kernel tells when the lock is free, and only to who waits for it. A thread of its own: a runtime waits for its threads
            // when it ends.
            std::thread::Builder::new().name("host-lock".to_owned()).spawn(move || {
                if let Ok(lock) = Flock::lock(file, FlockArg::LockExclusive) {
                    sender.send_replace(true);
                    runtime.spawn(keep(lock, sender));
                }
            })?;
        }
        Err((_, errno)) => return Err(errno.into()),
    }
    Ok(HostLock { mark, held })
}

/// Keeps the lock for as long as it matters to anybody.
async fn keep(lock: Flock<File>, held: watch::Sender<bool>) {
    held.closed().await;
    drop(lock);
}

#[cfg(test)]
mod tests;
