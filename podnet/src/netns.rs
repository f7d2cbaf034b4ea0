//! A pod's network namespace, opened and verified once.
//!
//! A socket, and a directory of `/proc/sys/net`, stays in the namespace in which it was opened. So
//! a thread enters only to open them, and waits for nothing there. If it cannot come back, the
//! process aborts: it would do to a pod what is meant for the host.

use std::{
    fs::{File, OpenOptions, metadata},
    io::{self, Write},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
        unix::fs::OpenOptionsExt,
    },
    path::{Path, PathBuf},
    process, thread,
};

use netlink_sys::{AsyncSocket, TokioSocket, protocols::NETLINK_ROUTE};
use nix::{
    fcntl::{OFlag, open, openat},
    sched::{CloneFlags, setns},
    sys::{
        socket::{AddressFamily, SockFlag, SockType, socket},
        stat::Mode,
        statfs::{NSFS_MAGIC, fstatfs},
    },
};
use rtnetlink::Handle;

use crate::netlink::Netlink;

/// The directory of the IPv6 settings of a namespace's interfaces.
const IPV6_SETTINGS: &str = "/proc/sys/net/ipv6/conf";

/// A network namespace.
#[derive(Debug)]
pub struct Netns {
    path: PathBuf,
    file: File,
    /// The namespace of the thread that opened it.
    home: File,
}

/// Descriptors that were opened inside a namespace, to be used from outside.
#[derive(Debug)]
pub struct Inside {
    pub netlink: Netlink,
    /// A socket for requests to the drivers of its interfaces.
    control: OwnedFd,
    /// `/proc/sys/net/ipv6/conf`; an error if the kernel has no IPv6.
    ipv6_settings: io::Result<OwnedFd>,
}

/// Why a namespace cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NetnsError {
    #[error("namespace {path}")]
    Open { path: PathBuf, source: io::Error },
    #[error("{0} is no namespace (left behind by a namespace that is gone?)")]
    NotANamespace(PathBuf),
    #[error("{0} is the host's own namespace")]
    Own(PathBuf),
    #[error("namespace {0} was deleted meanwhile")]
    Deleted(PathBuf),
    #[error("enter namespace {path}")]
    Enter { path: PathBuf, source: io::Error },
}

impl Netns {
    /// Opens a namespace and makes sure that it is one, and not the one this program runs in.
    ///
    /// # Errors
    /// The path cannot be opened, is not a network namespace, or is the program's own one.
    pub fn open(path: &Path) -> Result<Self, NetnsError> {
        let opened = |path: &Path| {
            let failed = |source| NetnsError::Open { path: path.to_owned(), source };
            // Non-blocking: open(2) of a FIFO without a writer would wait.
            let file = OpenOptions::new()
                .read(true)
                .custom_flags(OFlag::O_NONBLOCK.bits())
                .open(path)
                .map_err(failed)?;
            let metadata = file.metadata().map_err(failed)?;
            Ok((file, metadata))
        };
        let (file, theirs) = opened(path)?;
        let kind = fstatfs(&file)
            .map_err(|errno| NetnsError::Open { path: path.to_owned(), source: errno.into() })?;
        if kind.filesystem_type() != NSFS_MAGIC {
            return Err(NetnsError::NotANamespace(path.to_owned()));
        }
        let (home, own) = opened(Path::new("/proc/thread-self/ns/net"))?;
        // A namespace is identified by device and inode (namespaces(7)).
        if same_file(&own, &theirs) {
            return Err(NetnsError::Own(path.to_owned()));
        }
        Ok(Self { path: path.to_owned(), file, home })
    }

    /// The path by which it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that the path still leads to this namespace. The descriptor keeps a namespace alive
    /// whose last process has ended and whose name is gone: nobody but its holder can reach it any
    /// more.
    ///
    /// # Errors
    /// [`NetnsError::Deleted`] if the path leads nowhere, or elsewhere.
    pub fn is_reachable(&self) -> Result<(), NetnsError> {
        let is_here =
            self.file.metadata().and_then(|own| Ok(same_file(&own, &metadata(&self.path)?)));
        if is_here.unwrap_or(false) { Ok(()) } else { Err(NetnsError::Deleted(self.path.clone())) }
    }

    /// The descriptor, for netlink messages that name a namespace.
    pub fn raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Runs `work` inside the namespace. Must be called by the thread that opened it. That thread
    /// enters the namespace if it may come back; otherwise a new thread enters, and ends there.
    pub(crate) fn visit<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        let go =
            |namespace: &File| setns(namespace, CloneFlags::CLONE_NEWNET).map_err(io::Error::from);
        // Entering its own namespace shows whether the thread may come back.
        if go(&self.home).is_ok() {
            go(&self.file)?;
            let _way_back = WayBack(&self.home);
            return Ok(work());
        }
        thread::scope(|scope| {
            let inside =
                thread::Builder::new().spawn_scoped(scope, || go(&self.file).map(|()| work()))?;
            inside.join().unwrap_or_else(|_| Err(io::Error::other("the thread has panicked")))
        })
    }

    /// Opens what is needed to act inside the namespace from outside.
    ///
    /// # Errors
    /// [`NetnsError::Enter`] if the namespace cannot be entered, or a socket cannot be opened in
    /// it.
    pub fn inside(&self) -> Result<Inside, NetnsError> {
        let failed = |source| NetnsError::Enter { path: self.path.clone(), source };
        let opened = self.visit(|| {
            let control =
                socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None);
            let settings = open(
                IPV6_SETTINGS,
                OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
                Mode::empty(),
            );
            (Netlink::open(), control, settings)
        });
        let (netlink, control, ipv6_settings) = opened.map_err(failed)?;
        Ok(Inside {
            netlink: netlink.map_err(failed)?,
            control: control.map_err(|errno| failed(errno.into()))?,
            ipv6_settings: ipv6_settings.map_err(Into::into),
        })
    }
}

/// Takes the thread back to its own namespace.
struct WayBack<'a>(&'a File);

impl Drop for WayBack<'_> {
    fn drop(&mut self) {
        if let Err(error) = setns(self.0, CloneFlags::CLONE_NEWNET) {
            tracing::error!(%error, "cannot leave the pod's network namespace again");
            // Nothing may run on this thread any more, not even the rollback.
            process::abort();
        }
    }
}

impl Inside {
    /// A socket of the namespace, for ioctl(2).
    pub fn control(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// Writes an IPv6 setting of an interface.
    ///
    /// # Errors
    /// `NotFound` if the kernel has no IPv6; otherwise the kernel refuses the value.
    pub fn write_ipv6_setting(&self, if_name: &str, name: &str, value: &str) -> io::Result<()> {
        let directory =
            self.ipv6_settings.as_ref().map_err(|error| io::Error::from(error.kind()))?;
        let path = format!("{if_name}/{name}");
        let file = openat(
            directory,
            path.as_str(),
            OFlag::O_WRONLY | OFlag::O_TRUNC | OFlag::O_CLOEXEC,
            Mode::empty(),
        )?;
        File::from(file).write_all(value.as_bytes())
    }
}

/// A netlink connection in the host's namespace, for a server that does other things meanwhile.
/// Needs a tokio runtime.
///
/// # Errors
/// The kernel has no socket left.
pub fn host_netlink() -> io::Result<Handle> {
    let (connection, handle, _) = rtnetlink::from_socket(TokioSocket::new(NETLINK_ROUTE)?);
    tokio::spawn(connection);
    Ok(handle)
}

fn same_file(a: &std::fs::Metadata, b: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}
