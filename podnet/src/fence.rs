//! One call at a time for each interface of each sandbox, and a way for DEL to tell an ADD in flight to give up.
//!
//! A runtime that loses patience with an ADD calls DEL, sometimes before the ADD has noticed. Without a fence the ADD could plug the
//! pod after DEL has said that nothing is left. The fence is a FIFO in a directory that belongs to root alone. Its lock (flock(2)) is the
//! right to work: the kernel takes it back when its holder ends, however that ends. What is written into it is DEL's word to the holder.
//! The end of the last reader is how DEL learns that the holder is gone. Nothing here blocks: each system call answers at once.
//!
//! The file goes with the fence. One whose holder was killed is taken over by the next call for the interface, or removed by
//! [`remove_stale`].

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
    sys::stat::{Mode, fstat, fstatat},
    unistd::{UnlinkatFlags, geteuid, mkfifoat, unlinkat},
};
use tokio::{
    io::Interest,
    net::unix::pipe,
    time::{Instant, timeout_at},
};

use crate::plan::Identity;

/// How long DEL waits for an ADD to undo what it did: the rollback of an ADD whose database is slow takes some four seconds for each answer.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long ADD waits for its turn: the server holds a fence for a moment while it looks whether a port that vanished has to be put back, and the
/// call before may be in its last system calls.
const TURN: Duration = Duration::from_millis(500);
/// How often a file is opened that its holder has just removed: each time, another call was faster.
const MOST_TRIES: usize = 16;
/// A file without a lock that is older than this was left behind: between making and locking it is no time.
pub const STALE: Duration = Duration::from_secs(60);
/// What DEL says to the holder of a fence.
const GIVE_UP: u8 = b'D';

/// The right to work on one interface of one sandbox, until it is dropped.
#[derive(Debug)]
pub struct Fence {
    /// None where the fence could not be had and the work goes on without.
    held: Option<Held>,
}

/// A lock, with the name of its file.
#[derive(Debug)]
struct Held {
    directory: OwnedFd,
    name: String,
    file: Flock<File>,
}

/// Another call is at work on the same interface.
#[derive(Debug, thiserror::Error)]
#[error("another call for this interface of this sandbox is under way")]
pub struct Busy;

/// Why there is no fence.
#[derive(Debug, thiserror::Error)]
enum FenceError {
    #[error("directory {directory:?} has owner {owner} and mode {mode:04o}, not {expected} and 0700: remove it")]
    Untrusted { directory: PathBuf, owner: u32, mode: u32, expected: u32 },
    #[error("directory {directory:?}")]
    Directory { directory: PathBuf, source: io::Error },
    #[error("file {name:?}")]
    File { name: String, source: io::Error },
}

/// The directory of the fences of those who work with the server on this socket: the socket's own is for root alone, too, and server and
/// plugin find both by one path.
pub fn directory_beside(socket: &Path) -> PathBuf {
    socket.parent().unwrap_or_else(|| Path::new("/")).join("calls")
}

impl Fence {
    /// Takes the fence, or says that another call has it.
    ///
    /// Where there can be no fence (no room for the directory, or the directory is not root's alone), the work goes on without: a pod that
    /// cannot be deleted is worse than two calls at once.
    pub fn take(directory: &Path, identity: &Identity) -> Result<Self, Busy> {
        match lock(directory, identity) {
            Ok(Some(held)) => Ok(Self { held: Some(held) }),
            Ok(None) => Err(Busy),
            Err(error) => {
                tracing::warn!(error = crate::chain::chain(&error), "calls for this interface cannot be kept apart");
                Ok(Self { held: None })
            }
        }
    }

    /// Takes the fence as soon as its holder has gone, or says that another call keeps it.
    ///
    /// # Errors
    /// The holder is at work for longer than a look takes.
    pub async fn take_in_turn(directory: &Path, identity: &Identity) -> Result<Self, Busy> {
        let deadline = Instant::now() + TURN;
        loop {
            match Self::take(directory, identity) {
                Err(Busy) if Instant::now() < deadline => {
                    // A file that is gone, or that nobody reads, has no holder any more.
                    if let Ok(holder) = other_end(directory, identity).and_then(pipe::Sender::from_file) {
                        let _ = timeout_at(deadline, holder.ready(Interest::ERROR)).await;
                    }
                }
                taken => return taken,
            }
        }
    }

    /// Whether no other call can have it: not where there was no fence to be had.
    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Takes the fence after telling its holder to give up, and waiting until it has.
    pub async fn take_over(directory: &Path, identity: &Identity) -> Self {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match Self::take(directory, identity) {
                Ok(fence) => return fence,
                Err(Busy) if Instant::now() >= deadline => {
                    tracing::warn!("the call that is under way does not give up; going on without it");
                    return Self { held: None };
                }
                Err(Busy) => {
                    // A file that is gone, or that nobody reads, has no holder any more.
                    if let Ok(holder) = tell(directory, identity) {
                        let _ = timeout_at(deadline, holder.ready(Interest::ERROR)).await;
                    }
                }
            }
        }
    }

    /// Returns when a DEL wants the work to stop.
    pub async fn challenged(&self) {
        let Some(words) = self.held.as_ref().and_then(|held| pipe::Receiver::from_file(held.file.try_clone().ok()?).ok()) else {
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
    /// Not left to a call of its own: a call that runs into its deadline must not leave a file behind.
    fn drop(&mut self) {
        // While the lock is held, the name means this file or none.
        if means(&self.directory, self.name.as_str(), &self.file) {
            let _ = unlinkat(&self.directory, self.name.as_str(), UnlinkatFlags::NoRemoveDir);
        }
    }
}

/// Removes the files of holders that were killed and whose interfaces nobody has asked for since; how many there were. Leaves those alone
/// that are younger than `age`: a file that was made a moment ago may be about to be locked.
///
/// # Errors
/// A directory that cannot be read, or is not root's alone. One that does not exist has no files.
pub fn remove_stale(directory: &Path, age: Duration) -> io::Result<usize> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        entries => entries?,
    };
    let opened = open_directory(directory).map_err(io::Error::other)?;
    let mut removed = 0;
    for entry in entries {
        let entry = entry?;
        // One that cannot be looked at is gone.
        let Ok(metadata) = entry.metadata() else { continue };
        let is_old = metadata.modified()?.elapsed().is_ok_and(|since| since >= age);
        if !metadata.file_type().is_fifo() || !is_old {
            continue;
        }
        let Ok(Some(file)) = lock_now(&opened, &entry.file_name()) else { continue };
        if means(&opened, entry.file_name().as_os_str(), &file) {
            unlinkat(&opened, entry.file_name().as_os_str(), UnlinkatFlags::NoRemoveDir)?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// The lock; none if another call has it.
fn lock(path: &Path, identity: &Identity) -> Result<Option<Held>, FenceError> {
    let directory = open_directory(path)?;
    let name = name(identity);
    let failed = |errno: Errno| FenceError::File { name: name.clone(), source: errno.into() };
    for _ in 0..MOST_TRIES {
        match mkfifoat(&directory, name.as_str(), Mode::S_IRUSR | Mode::S_IWUSR) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(failed(errno)),
        }
        match lock_now(&directory, OsStr::new(&name)) {
            Ok(None) => return Ok(None),
            // Its holder may have removed it between the two steps: then the name means another file, or none.
            Ok(Some(file)) if means(&directory, name.as_str(), &file) => return Ok(Some(Held { directory, name, file })),
            Ok(Some(_)) | Err(Errno::ENOENT) => {}
            Err(errno) => return Err(failed(errno)),
        }
    }
    Ok(None)
}

/// Opens a FIFO for both directions, which does not wait for another end, and locks it; none if it is locked.
fn lock_now(directory: &impl AsFd, name: &OsStr) -> Result<Option<Flock<File>>, Errno> {
    let flags = OFlag::O_RDWR | OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let file = File::from(openat(directory, name, flags, Mode::empty())?);
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(file) => Ok(Some(file)),
        Err((_, Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, errno)) => Err(errno),
    }
}

/// Whether `name` means this file.
fn means(directory: &impl AsFd, name: &(impl nix::NixPath + ?Sized), file: &File) -> bool {
    let named = fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW);
    named.is_ok_and(|named| fstat(file).is_ok_and(|open| (named.st_dev, named.st_ino) == (open.st_dev, open.st_ino)))
}

/// Tells the holder to give up; what is returned is in error once nobody holds the file any more.
fn tell(path: &Path, identity: &Identity) -> io::Result<pipe::Sender> {
    let mut file = other_end(path, identity)?;
    match file.write(&[GIVE_UP]) {
        // It is full of the same word.
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
        _ => {}
    }
    pipe::Sender::from_file(file)
}

/// The end of the FIFO that is written to; an error if nobody has the other one.
fn other_end(path: &Path, identity: &Identity) -> io::Result<File> {
    let directory = open_directory(path).map_err(io::Error::other)?;
    let flags = OFlag::O_WRONLY | OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(File::from(openat(&directory, name(identity).as_str(), flags, Mode::empty())?))
}

/// Creates what is missing of the directory, opens it, and looks at what was opened, not at what has its name.
fn open_directory(path: &Path) -> Result<OwnedFd, FenceError> {
    let failed = |source| FenceError::Directory { directory: path.to_owned(), source };
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
        return Err(FenceError::Untrusted { directory: path.to_owned(), owner, mode, expected });
    }
    Ok(directory.into())
}

/// The directory and that of the server's socket are for root alone; the ones above are everybody's to pass.
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

/// A file's name has room for 255 bytes, and so may have a container id alone.
fn name(identity: &Identity) -> String {
    format!("{:.12}-{:016x}", identity.sandbox.as_str(), identity.key())
}

#[cfg(test)]
mod tests;
