//! A pod's network namespace, opened and verified once.
//!
//! A socket, and a directory of `/proc/sys/net`, stay in the namespace in which they were opened, so a thread enters only to open
//! them, and never comes back: it does its work and ends. Nothing has to be restored, and the runtime's own thread never leaves the
//! host.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    path::{Path, PathBuf},
    thread,
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

/// Where a namespace's interfaces have their IPv6 settings.
const IPV6_SETTINGS: &str = "/proc/sys/net/ipv6/conf";

/// A network namespace.
#[derive(Debug)]
pub struct Netns {
    path: PathBuf,
    namespace: netns_rs::NetNs,
}

/// What was opened inside a namespace, to be used from outside.
#[derive(Debug)]
pub struct Inside {
    /// A netlink connection.
    pub netlink: Handle,
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
        let failed = |source: io::Error| NetnsError::Open { path: path.to_owned(), source };
        // netns-rs says "not found" without the reason; opening the file says why.
        File::open(path).map_err(failed)?;
        let namespace = netns_rs::get_from_path(path).map_err(|error| failed(io::Error::other(error)))?;
        let kind = fstatfs(namespace.file().as_fd()).map_err(|errno| failed(errno.into()))?;
        if kind.filesystem_type() != NSFS_MAGIC {
            return Err(NetnsError::NotANamespace(path.to_owned()));
        }
        let own_path = Path::new("/proc/thread-self/ns/net");
        let own = File::open(own_path).and_then(|own| own.metadata());
        let own = own.map_err(|source| NetnsError::Open { path: own_path.to_owned(), source })?;
        let theirs = namespace.file().metadata().map_err(failed)?;
        if same_file(&own, &theirs) {
            return Err(NetnsError::Own(path.to_owned()));
        }
        Ok(Self { path: path.to_owned(), namespace })
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The descriptor, for netlink messages that name a namespace.
    pub fn raw_fd(&self) -> RawFd {
        self.namespace.file().as_raw_fd()
    }

    /// Runs `work` on a thread of its own inside the namespace.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NetnsError> {
        let failed = |source| NetnsError::Enter { path: self.path.clone(), source };
        thread::scope(|scope| {
            let inside = thread::Builder::new().spawn_scoped(scope, || {
                setns(self.namespace.file().as_fd(), CloneFlags::CLONE_NEWNET)?;
                Ok(work())
            });
            let joined = inside.map_err(failed)?.join();
            joined.unwrap_or_else(|_| Err(nix::Error::EIO)).map_err(|errno| failed(errno.into()))
        })
    }

    /// Opens what is needed to act inside the namespace from outside: one thread, once. Needs a tokio runtime.
    pub fn inside(&self) -> Result<Inside, NetnsError> {
        let runtime = tokio::runtime::Handle::current();
        let failed = |source| NetnsError::Enter { path: self.path.clone(), source };
        let (socket, control, ipv6_settings) = self.enter(|| {
            let _registered_with = runtime.enter();
            let control = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None);
            let settings = open(IPV6_SETTINGS, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty());
            (TokioSocket::new(NETLINK_ROUTE), control, settings)
        })?;
        Ok(Inside {
            netlink: socket.map(connect).map_err(failed)?,
            control: control.map_err(|errno| failed(errno.into()))?,
            ipv6_settings: ipv6_settings.map_err(Into::into),
        })
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

/// A netlink connection of the host's namespace. Needs a tokio runtime.
pub fn host_netlink() -> io::Result<Handle> {
    TokioSocket::new(NETLINK_ROUTE).map(connect)
}

fn connect(socket: TokioSocket) -> Handle {
    let (connection, handle, _) = rtnetlink::from_socket(socket);
    tokio::spawn(connection);
    handle
}

fn same_file(a: &std::fs::Metadata, b: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}
