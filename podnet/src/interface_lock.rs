//! A lock for each interface of each sandbox, and a way for DEL to make an ADD in flight give up.
//!
//! A runtime that loses patience with an ADD calls DEL, sometimes before the ADD has noticed.
//! Without a lock the ADD could plug the pod after DEL has said that nothing is left. The lock is a
//! FIFO in a directory that belongs to root alone. The flock(2) on it is the right to work: the
//! kernel takes it back when its holder ends, however that ends. A byte in the FIFO is DEL's
//! request to the holder to give up. When the last reader closes the FIFO, DEL learns that the
//! holder is gone. Nothing here blocks: each system call returns at once.
//!
//! The holder removes the file. A file whose holder was killed is taken over by the next call for
//! the interface, or removed by [`remove_stale`].

use std::{
    ffi::OsStr,
    fs::{DirBuilder, File},
    io::{self, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use nix::{
    errno::Errno,
    fcntl::{AtFlags, Flock, FlockArg, OFlag, open, openat},
    sys::stat::{Mode, fchmod, fstat, fstatat},
    unistd::{UnlinkatFlags, geteuid, mkfifoat, unlinkat},
};
use tokio::{
    io::Interest,
    net::unix::pipe,
    time::{Instant, timeout_at},
};

use crate::plan::Identity;

/// How long DEL waits for the rollback of an ADD, which takes some four seconds for each answer of
/// a slow database. If the wait is too short, DEL and the rollback work on the interface at the
/// same time.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long DEL waits for the server, which holds locks for a list of links and one transaction,
/// some ten milliseconds. If the wait is longer, a DEL takes more than 2 s while the server is
/// stopped there (row 63 of the fault matrix). Much shorter, and the port of a pod that a busy
/// server is about to put back is there again after its DEL, until the server removes it.
const SERVERS_PATIENCE: Duration = Duration::from_millis(1200);
/// How long ADD waits for the lock. The server holds it for a moment while it looks whether a port
/// that vanished has to be put back, and the call before may be in its last system calls. A longer
/// wait would only delay the error for a second ADD.
const TURN: Duration = Duration::from_millis(500);
/// How often the file is opened again because its holder has just removed it. Each time, another
/// call was faster.
const MOST_TRIES: usize = 16;
/// A file without a lock that is older than this was left behind: a call locks the file at once
/// after it has made it. Much shorter, and a process that is stopped in between has to make its
/// file again.
pub const STALE: Duration = Duration::from_secs(60);
/// The byte that asks the holder to give up.
const GIVE_UP: u8 = b'D';
/// The modes of a lock's file: that of a call, and that of the server, which holds a lock for a
/// moment and does not listen. Only root can open a file in the directory, whatever its mode.
const MODE_OF_CALL: Mode = Mode::S_IRUSR.union(Mode::S_IWUSR);
const MODE_OF_SERVER: Mode = MODE_OF_CALL.union(Mode::S_IXUSR);

/// The lock on one interface of one sandbox, held until it is dropped.
#[derive(Debug)]
pub struct InterfaceLock {
    /// `None` if there could be no lock and the work goes on without.
    held: Option<Held>,
}

/// A lock that is held, with its file.
#[derive(Debug)]
struct Held {
    directory: OwnedFd,
    name: String,
    file: Flock<File>,
}

/// Another call works on the same interface.
#[derive(Debug, thiserror::Error)]
#[error("another call for this interface of this sandbox is under way")]
pub struct Busy;

/// Why there can be no lock.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InterfaceLockError {
    #[error(
        "directory {directory:?} has owner {owner} and mode {mode:04o}, not {expected} and 0700: remove it"
    )]
    Untrusted { directory: PathBuf, owner: u32, mode: u32, expected: u32 },
    #[error("directory {directory:?}")]
    Directory { directory: PathBuf, source: io::Error },
    #[error("file {name:?}")]
    File { name: String, source: io::Error },
}

/// The directory of the locks for all calls that use the server on this socket. The socket's own
/// directory is for root alone, too, and server and plugin find both by one path.
pub fn directory_beside(socket: &Path) -> PathBuf {
    socket.parent().unwrap_or_else(|| Path::new("/")).join("calls")
}

impl InterfaceLock {
    /// Takes the lock.
    ///
    /// If there can be no lock (no room for the directory, or the directory is not root's alone),
    /// the work goes on without: a pod that cannot be deleted is worse than two calls at once.
    ///
    /// # Errors
    /// [`Busy`] if another call has the lock.
    pub fn take(directory: &Path, identity: &Identity) -> Result<Self, Busy> {
        Self::take_as(MODE_OF_CALL, directory, identity)
    }

    /// Takes the lock for the server, which holds it for a moment: a DEL waits for it less long
    /// than for an ADD.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn take_for_server(directory: &Path, identity: &Identity) -> Result<Self, Busy> {
        Self::take_as(MODE_OF_SERVER, directory, identity)
    }

    fn take_as(mode: Mode, directory: &Path, identity: &Identity) -> Result<Self, Busy> {
        match lock(directory, identity, mode) {
            Ok(Some(held)) => Ok(Self { held: Some(held) }),
            Ok(None) => Err(Busy),
            Err(error) => {
                tracing::warn!(
                    error = contract::error::chain(&error),
                    "calls for this interface cannot be kept apart"
                );
                Ok(Self { held: None })
            }
        }
    }

    /// Takes the lock as soon as its holder has released it.
    ///
    /// # Errors
    /// [`Busy`] if the holder keeps it longer than the server's look takes.
    pub async fn take_in_turn(directory: &Path, identity: &Identity) -> Result<Self, Busy> {
        Self::take_by(Instant::now() + TURN, directory, identity, other_end).await
    }

    /// Whether the lock is held. `false` if there could be none, and other calls may be at work.
    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Tells the holder to give up, waits until it has, and takes the lock. Goes on without the
    /// lock if the holder takes too long.
    pub async fn take_over(directory: &Path, identity: &Identity) -> Self {
        Self::take_by(Instant::now() + PATIENCE, directory, identity, tell).await.unwrap_or_else(
            |Busy| {
                tracing::warn!("the call that is under way does not give up; going on without it");
                Self { held: None }
            },
        )
    }

    /// Takes the lock, and before each further attempt waits for the end of the holder that `reach`
    /// opens. [`Busy`] once the deadline has passed.
    async fn take_by(
        deadline: Instant,
        directory: &Path,
        identity: &Identity,
        reach: impl Fn(&Path, &Identity) -> io::Result<File>,
    ) -> Result<Self, Busy> {
        let of_server = deadline.min(Instant::now() + SERVERS_PATIENCE);
        loop {
            match Self::take(directory, identity) {
                Err(Busy) if Instant::now() < deadline => {
                    // A file that is gone, or that no process has open for reading (ENXIO), has no
                    // holder any more.
                    let Ok(holder) = reach(directory, identity) else { continue };
                    let deadline = if is_of_server(&holder) { of_server } else { deadline };
                    if Instant::now() >= deadline {
                        return Err(Busy);
                    }
                    if let Ok(holder) = pipe::Sender::from_file(holder) {
                        // The write end of a pipe is in error once its last reader is gone
                        // (poll(2), POLLERR).
                        let _ = timeout_at(deadline, holder.ready(Interest::ERROR)).await;
                    }
                }
                taken => return taken,
            }
        }
    }

    /// Returns when a DEL asks the holder to give up. Never returns without a lock.
    pub async fn challenged(&self) {
        let Some(words) = self
            .held
            .as_ref()
            .and_then(|held| pipe::Receiver::from_file(held.file.try_clone().ok()?).ok())
        else {
            return std::future::pending().await;
        };
        let mut word = [0];
        loop {
            if words.readable().await.is_err() {
                return std::future::pending().await;
            }
            match words.try_read(&mut word) {
                Ok(1) if word == [GIVE_UP] => return,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return std::future::pending().await,
            }
        }
    }
}

impl Drop for Held {
    /// In `Drop`, although it is I/O: a future that is dropped at its deadline must not leave a
    /// file behind.
    fn drop(&mut self) {
        // While the lock is held, the name refers to this file or to none.
        if means(&self.directory, self.name.as_str(), &self.file) {
            let _ = unlinkat(&self.directory, self.name.as_str(), UnlinkatFlags::NoRemoveDir);
        }
    }
}

/// Removes the files of holders that were killed, and returns their number. Files younger than
/// `age` stay: a file that was made a moment ago may be about to be locked.
///
/// # Errors
/// The directory cannot be read, or is not root's alone. A directory that does not exist has no
/// files.
pub fn remove_stale(directory: &Path, age: Duration) -> io::Result<usize> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        entries => entries?,
    };
    let opened = open_directory(directory).map_err(io::Error::other)?;
    let mut removed = 0;
    for entry in entries {
        let entry = entry?;
        // An entry without metadata is gone.
        let Ok(metadata) = entry.metadata() else { continue };
        let is_old = metadata.modified()?.elapsed().is_ok_and(|since| since >= age);
        if !metadata.file_type().is_fifo() || !is_old {
            continue;
        }
        // Only with the lock: a file that is in use stays.
        let Ok(Some(file)) = lock_now(&opened, &entry.file_name()) else { continue };
        if means(&opened, entry.file_name().as_os_str(), &file) {
            unlinkat(&opened, entry.file_name().as_os_str(), UnlinkatFlags::NoRemoveDir)?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// The lock; `None` if another call has it.
fn lock(path: &Path, identity: &Identity, mode: Mode) -> Result<Option<Held>, InterfaceLockError> {
    let directory = open_directory(path)?;
    let name = name(identity);
    let failed =
        |errno: Errno| InterfaceLockError::File { name: name.clone(), source: errno.into() };
    for _ in 0..MOST_TRIES {
        match mkfifoat(&directory, name.as_str(), MODE_OF_CALL) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(failed(errno)),
        }
        match lock_now(&directory, OsStr::new(&name)) {
            Ok(None) => return Ok(None),
            // The holder may have removed the file between the two steps. Then the name refers to
            // another file, or to none, and a lock on this one protects nothing.
            Ok(Some(file)) if means(&directory, name.as_str(), &file) => {
                // After the lock: a killed holder of the other kind may have left the file.
                fchmod(&*file, mode).map_err(failed)?;
                return Ok(Some(Held { directory, name, file }));
            }
            Ok(Some(_)) | Err(Errno::ENOENT) => {}
            Err(errno) => return Err(failed(errno)),
        }
    }
    Ok(None)
}

/// Opens a FIFO for reading and writing, which does not wait for a peer (fifo(7)), and locks it.
/// `None` if it is locked.
fn lock_now(directory: &impl AsFd, name: &OsStr) -> Result<Option<Flock<File>>, Errno> {
    let flags = OFlag::O_RDWR | OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let file = File::from(openat(directory, name, flags, Mode::empty())?);
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(file) => Ok(Some(file)),
        Err((_, Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, errno)) => Err(errno),
    }
}

/// Whether `name` refers to this file.
fn means(directory: &impl AsFd, name: &(impl nix::NixPath + ?Sized), file: &File) -> bool {
    let named = fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW);
    named.is_ok_and(|named| {
        fstat(file).is_ok_and(|open| (named.st_dev, named.st_ino) == (open.st_dev, open.st_ino))
    })
}

/// Whether the server holds the lock on this file.
fn is_of_server(file: &File) -> bool {
    fstat(file).is_ok_and(|stat| stat.st_mode & MODE_OF_SERVER.bits() == MODE_OF_SERVER.bits())
}

/// Asks the holder to give up. The returned file is in error once no process has the FIFO open for
/// reading.
fn tell(path: &Path, identity: &Identity) -> io::Result<File> {
    let mut file = other_end(path, identity)?;
    match file.write(&[GIVE_UP]) {
        // The FIFO is full of the same byte.
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Ok(file),
    }
}

/// Opens the FIFO for writing; an error if no process has it open for reading.
fn other_end(path: &Path, identity: &Identity) -> io::Result<File> {
    let directory = open_directory(path).map_err(io::Error::other)?;
    let flags = OFlag::O_WRONLY | OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(File::from(openat(&directory, name(identity).as_str(), flags, Mode::empty())?))
}

/// Creates what is missing of the directory, opens it, and checks what was opened, not what has its
/// name.
pub(crate) fn open_directory(path: &Path) -> Result<OwnedFd, InterfaceLockError> {
    let failed = |source| InterfaceLockError::Directory { directory: path.to_owned(), source };
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let directory = match open(path, flags, Mode::empty()) {
        Err(Errno::ENOENT) => {
            create_directory(path).map_err(failed)?;
            open(path, flags, Mode::empty())
        }
        opened => opened,
    };
    let directory = File::from(directory.map_err(|errno| failed(errno.into()))?);
    let metadata = directory.metadata().map_err(failed)?;
    let (owner, mode, expected) = (metadata.uid(), metadata.mode() & 0o7777, geteuid().as_raw());
    if owner != expected || mode & 0o077 != 0 {
        return Err(InterfaceLockError::Untrusted {
            directory: path.to_owned(),
            owner,
            mode,
            expected,
        });
    }
    Ok(directory.into())
}

/// The directory and that of the server's socket are for root alone; every user may pass the ones
/// above.
fn create_directory(path: &Path) -> io::Result<()> {
    let of_socket = path.parent().unwrap_or(path);
    if let Some(above) = of_socket.parent() {
        DirBuilder::new().recursive(true).mode(0o755).create(above)?;
    }
    for directory in [of_socket, path] {
        match DirBuilder::new().mode(0o700).create(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// The name of the lock's file: the beginning of the container id for the reader, and the key of
/// the interface. A file's name has room for 255 bytes, and a container id alone may have as many.
fn name(identity: &Identity) -> String {
    format!("{:.12}-{:016x}", identity.sandbox.as_str(), identity.key())
}

#[cfg(test)]
mod tests;
