//! The unix socket that the plugin connects to. Only its owner may enter its directory, and only
//! one server listens on it.

use std::{
    fs::{DirBuilder, File, OpenOptions, Permissions},
    io,
    os::unix::{
        fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg, OFlag},
    unistd::geteuid,
};

/// Mode of the directory: only its owner may enter it or list it.
const DIRECTORY_MODE: u32 = 0o700;
const SOCKET_MODE: u32 = 0o600;

/// A listening socket.
#[derive(Debug)]
pub struct Socket {
    path: PathBuf,
    device_and_inode: (u64, u64),
}

/// Why the server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    #[error("{0:?} names no file in a directory")]
    NotAPath(PathBuf),
    #[error("directory {directory:?} of the server's socket")]
    Directory { directory: PathBuf, source: io::Error },
    #[error("directory {0:?} of the server's socket is a symbolic link, or no directory")]
    NotADirectory(PathBuf),
    #[error(
        "directory {directory:?} of the server's socket has owner {owner} and mode {mode:04o}, \
         not {expected} and 0700: any process that can write there can pose as the server. \
         Check what is in it, then remove it, or chown and chmod it"
    )]
    Untrusted { directory: PathBuf, owner: u32, mode: u32, expected: u32 },
    #[error(
        "another server answers on {0:?}: stop it first, or choose another place with --cni-socket"
    )]
    InUse(PathBuf),
    #[error("{0:?} is there and is no socket: remove it")]
    NotASocket(PathBuf),
    #[error("socket {path:?}")]
    Socket { path: PathBuf, source: io::Error },
}

impl Socket {
    /// Creates what is missing of the directory, verifies it, and listens. A stale socket is
    /// replaced; one on which a server answers is not.
    ///
    /// # Errors
    ///
    /// The path is not absolute or has no file name; the directory cannot be made or locked, is a
    /// symbolic link, or has another owner or mode; another server answers; the path is no socket,
    /// or bind(2) fails.
    pub fn listen(path: &Path) -> Result<(Self, UnixListener), SocketError> {
        let directory =
            path.parent().filter(|directory| directory.is_absolute() && path.file_name().is_some());
        let directory = directory.ok_or_else(|| SocketError::NotAPath(path.to_owned()))?;
        let open = open_directory(directory)?;
        // Held until this returns: of two servers that start at once, only one may take the socket
        // for stale and replace it.
        let _alone = Flock::lock(open, FlockArg::LockExclusive).map_err(|(_, errno)| {
            SocketError::Directory { directory: directory.to_owned(), source: errno.into() }
        })?;

        let failed = |source| SocketError::Socket { path: path.to_owned(), source };
        remove_stale(path)?;
        let listener = UnixListener::bind(path).map_err(failed)?;
        // bind(2) applies the umask to the mode. Until here the directory's mode keeps others away.
        std::fs::set_permissions(path, Permissions::from_mode(SOCKET_MODE)).map_err(failed)?;
        // To recognise this socket at the end, when another server may have replaced it.
        let device_and_inode = device_and_inode(path).map_err(failed)?;
        Ok((Self { path: path.to_owned(), device_and_inode }, listener))
    }

    /// The socket's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the file if it is still this server's. The listener must still be open: it keeps the
    /// kernel from giving the file's inode to another file.
    pub fn remove(self) {
        if device_and_inode(&self.path).is_ok_and(|now| now == self.device_and_inode)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(%error, path = %self.path.display(), "the server's socket is left behind");
        }
    }
}

/// Whether a server accepts connections on this socket.
pub fn is_answered(path: &Path) -> bool {
    UnixStream::connect(path).is_ok()
}

/// Opens the directory and verifies what was opened: the path may lead elsewhere a moment later.
fn open_directory(directory: &Path) -> Result<File, SocketError> {
    let failed = |source| SocketError::Directory { directory: directory.to_owned(), source };
    if let Some(parent) = directory.parent() {
        DirBuilder::new().recursive(true).mode(0o755).create(parent).map_err(failed)?;
    }
    // A directory that exists keeps its mode, which is verified below.
    match DirBuilder::new().mode(DIRECTORY_MODE).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    // A symbolic link could be changed between the verification and bind(2).
    let flags = (OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW).bits();
    let open =
        OpenOptions::new().read(true).custom_flags(flags).open(directory).map_err(|error| {
            match error.raw_os_error().map(Errno::from_raw) {
                Some(Errno::ELOOP | Errno::ENOTDIR) => {
                    SocketError::NotADirectory(directory.to_owned())
                }
                _ => failed(error),
            }
        })?;
    let metadata = open.metadata().map_err(failed)?;
    let (owner, mode, expected) = (metadata.uid(), metadata.mode() & 0o7777, geteuid().as_raw());
    if owner != expected || mode != DIRECTORY_MODE {
        return Err(SocketError::Untrusted {
            directory: directory.to_owned(),
            owner,
            mode,
            expected,
        });
    }
    Ok(open)
}

/// Removes a socket on which no server answers.
fn remove_stale(path: &Path) -> Result<(), SocketError> {
    let failed = |source| SocketError::Socket { path: path.to_owned(), source };
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(SocketError::NotASocket(path.to_owned()));
        }
        Ok(_) => {}
    }
    // connect(2) is refused where the file exists and no process listens: the server before was
    // killed.
    match UnixStream::connect(path) {
        Ok(_) => Err(SocketError::InUse(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(failed)
        }
        Err(error) => Err(failed(error)),
    }
}

fn device_and_inode(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = std::fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests;
