//! A pod's network namespace, opened and verified once.
//!
//! A socket, and a directory of `/proc/sys/net`, stay in the namespace in which they were opened, so a thread enters only to open them,
//! and waits for nothing there. One that does not come back does not go on: it would do to a pod what is meant for the host.

use std::{
    fs::{File, OpenOptions},
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

/// Where a namespace's interfaces have their IPv6 settings.
const IPV6_SETTINGS: &str = "/proc/sys/net/ipv6/conf";

/// A network namespace.
#[derive(Debug)]
pub struct Netns {
    path: PathBuf,
    file: File,
    /// The one of the thread that opened it.
    home: File,
}

/// What was opened inside a namespace, to be used from outside.
#[derive(Debug)]
pub struct Inside {
    pub netlink: Netlink,
    /// A socket for requests to its interfaces' drivers.
    control: OwnedFd,
    /// `/proc/sys/net/ipv6/conf`; missing where the kernel has no IPv6.
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
    #[error("enter namespace {path}")]
    Enter { path: PathBuf, source: io::Error },
}

impl Netns {
    /// Opens a namespace and makes sure that it is one, and not the one this program runs in.
    pub fn open(path: &Path) -> Result<Self, NetnsError> {
        let opened = |path: &Path| {
            let failed = |source| NetnsError::Open { path: path.to_owned(), source };
            // Not blocking, in case that the path is a FIFO which nobody writes to.
            let file = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path).map_err(failed)?;
            let metadata = file.metadata().map_err(failed)?;
            Ok((file, metadata))
        };
        let (file, theirs) = opened(path)?;
        let kind = fstatfs(&file).map_err(|errno| NetnsError::Open { path: path.to_owned(), source: errno.into() })?;
        if kind.filesystem_type() != NSFS_MAGIC {
            return Err(NetnsError::NotANamespace(path.to_owned()));
        }
        let (home, own) = opened(Path::new("/proc/thread-self/ns/net"))?;
        if same_file(&own, &theirs) {
            return Err(NetnsError::Own(path.to_owned()));
        }
        Ok(Self { path: path.to_owned(), file, home })
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The descriptor, for netlink messages that name a namespace.
    pub fn raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Runs `work` inside the namespace. To be called by the thread that opened it, which goes there itself if it may come home again, and
    /// else sends another one, whose way ends there.
    fn visit<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        let go = |namespace: &File| setns(namespace, CloneFlags::CLONE_NEWNET).map_err(io::Error::from);
        if go(&self.home).is_ok() {
            go(&self.file)?;
            let _way_back = WayBack(&self.home);
            return Ok(work());
        }
        thread::scope(|scope| {
            let inside = thread::Builder::new().spawn_scoped(scope, || go(&self.file).map(|()| work()))?;
            inside.join().unwrap_or_else(|_| Err(io::Error::other("the thread has panicked")))
        })
    }

    /// Opens what is needed to act inside the namespace from outside.
    pub fn inside(&self) -> Result<Inside, NetnsError> {
        let failed = |source| NetnsError::Enter { path: self.path.clone(), source };
        let opened = self.visit(|| {
            let control = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None);
            let settings = open(IPV6_SETTINGS, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty());
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

/// Takes the thread home.
struct WayBack<'a>(&'a File);

impl Drop for WayBack<'_> {
    fn drop(&mut self) {
        if let Err(error) = setns(self.0, CloneFlags::CLONE_NEWNET) {
            tracing::error!(%error, "cannot leave the pod's network namespace again");
            process::abort();
        }
    }
}

impl Inside {
    /// A socket of the namespace, for `ioctl`.
    pub fn control(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// Writes a setting of an interface. The error is `NotFound` where the kernel has no IPv6.
    pub fn write_ipv6_setting(&self, if_name: &str, name: &str, value: &str) -> io::Result<()> {
        let directory = self.ipv6_settings.as_ref().map_err(|error| io::Error::from(error.kind()))?;
        let path = format!("{if_name}/{name}");
        let file = openat(directory, path.as_str(), OFlag::O_WRONLY | OFlag::O_TRUNC | OFlag::O_CLOEXEC, Mode::empty())?;
        File::from(file).write_all(value.as_bytes())
    }
}

/// A netlink connection of the host's namespace, for a server that does other things meanwhile. Needs a tokio runtime.
pub fn host_netlink() -> io::Result<Handle> {
    let (connection, handle, _) = rtnetlink::from_socket(TokioSocket::new(NETLINK_ROUTE)?);
    tokio::spawn(connection);
    Ok(handle)
}

fn same_file(a: &std::fs::Metadata, b: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}
