//! The removal of tracked connections with an interface, and what becomes of those that it has no
//! time for.
//!
//! Addresses that could not be flushed in time have a file each, beside the locks of calls: in a
//! directory that is root's alone, and that does not survive a reboot, as connections do not. The
//! node's server flushes them as soon as there is such a file, and so does each GC, and the ADD of
//! an interface that gets the address, whichever comes first. They take turns, by a lock on the
//! directory: a flush that goes on while the address is in use again takes the connections of its
//! new holder.

use std::{
    fs::{self, File},
    io,
    net::IpAddr,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use contract::error::chain;
use nix::fcntl::{Flock, FlockArg};
use rustix::process::{getpriority_process, setpriority_process};
use tokio::{runtime::Builder, sync::oneshot, time::timeout};

use crate::{
    bridge::{Bridge, BridgeError},
    conntrack::{self, Flushed},
    interface_lock,
    plan::Identity,
    settings::{SHORT_TIMEOUT, Settings},
};

/// How long the flush of tracked connections may take. Linux 6.11 and newer look through 250,000 in
/// a tenth of a second, and remove as many IPv4 connections in less than one; where each has to be
/// removed by itself, a pod with very many takes longer. With a longer wait DEL could not end
/// within 2 s, and the server does the rest.
pub const FLUSH: Duration = Duration::from_millis(1500);

/// The addresses whose connections are left.
#[derive(Debug, Clone)]
pub struct Unflushed {
    directory: PathBuf,
}

/// Why addresses are still left.
#[derive(Debug, thiserror::Error)]
pub enum UnflushedError {
    #[error("directory {directory:?}")]
    Directory { directory: PathBuf, source: io::Error },
    #[error("whether another interface uses the addresses")]
    Holders(#[source] BridgeError),
    #[error("tracked connections")]
    Flush(#[source] io::Error),
}

impl Unflushed {
    /// Those that calls with these settings leave.
    pub fn of(settings: &Settings) -> Self {
        Self { directory: settings.calls.with_file_name("unflushed") }
    }

    /// The path of the directory of the files, whether it exists or not.
    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// The directory of the files, which exists from now on.
    ///
    /// # Errors
    /// It cannot be made, or is not root's alone.
    pub fn directory(&self) -> Result<&Path, UnflushedError> {
        self.open()?;
        Ok(&self.directory)
    }

    fn open(&self) -> Result<File, UnflushedError> {
        let opened = interface_lock::open_directory(&self.directory);
        opened.map(File::from).map_err(|error| self.failed(io::Error::other(error)))
    }

    /// Waits until no other process removes what is left, and keeps the others out. On a thread of
    /// its own: the wait blocks, and the caller may give up.
    async fn turn(&self) -> Result<Flock<File>, UnflushedError> {
        let directory = self.open()?;
        let lock =
            || Flock::lock(directory, FlockArg::LockExclusive).map_err(|(_, errno)| errno.into());
        let locked = async { on_a_thread(lock)?.await };
        locked.await.map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> UnflushedError {
        UnflushedError::Directory { directory: self.directory.clone(), source }
    }

    fn leave(&self, addresses: &[IpAddr]) -> Result<(), UnflushedError> {
        let directory = self.directory()?;
        let leave = |address: &IpAddr| fs::write(directory.join(address.to_string()), "");
        addresses.iter().try_for_each(leave).map_err(|source| self.failed(source))
    }

    /// All of them. Files with other names are no addresses.
    fn list(&self) -> Result<Vec<IpAddr>, UnflushedError> {
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|source| self.failed(source))?,
        };
        Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
    }

    fn is_left(&self, address: IpAddr) -> bool {
        self.directory.join(address.to_string()).exists()
    }

    fn settle(&self, addresses: &[IpAddr]) {
        for address in addresses {
            // Another process may have been faster.
            let _ = fs::remove_file(self.directory.join(address.to_string()));
        }
    }
}

/// Removes the connections that removals have left, except those of an address that an interface
/// uses by now: they are that interface's. Returns the addresses that were flushed.
///
/// # Errors
/// [`UnflushedError`]; the addresses are left for the next time.
pub async fn flush_left(settings: &Settings) -> Result<Vec<IpAddr>, UnflushedError> {
    let unflushed = Unflushed::of(settings);
    if unflushed.list()?.is_empty() {
        return Ok(Vec::new());
    }
    // A process whose turn takes longer is stopped, or removes very many: the rest is for the next
    // time.
    let Ok(turn) = timeout(SHORT_TIMEOUT, unflushed.turn()).await else { return Ok(Vec::new()) };
    let _turn = turn?;
    // It may have removed everything.
    let left = unflushed.list()?;
    let bridge =
        Bridge::connect(&settings.ovsdb, SHORT_TIMEOUT).await.map_err(UnflushedError::Holders)?;
    let taken = bridge.addresses_of_others(&[]).await.map_err(UnflushedError::Holders)?;
    let (held, free): (Vec<_>, Vec<_>) =
        left.into_iter().partition(|address| taken.contains(address));
    unflushed.settle(&held);
    if !free.is_empty() {
        start_flush(free.clone()).await.map_err(UnflushedError::Flush)?;
        unflushed.settle(&free);
    }
    Ok(free)
}

/// Removes what removals have left of these addresses, before a new interface uses them. Waits for
/// another process that is about it.
///
/// # Errors
/// [`UnflushedError`]; the addresses are left.
pub async fn flush_before_use(
    settings: &Settings,
    addresses: impl IntoIterator<Item = IpAddr>,
) -> Result<(), UnflushedError> {
    let unflushed = Unflushed::of(settings);
    let is_left = |address: &IpAddr| unflushed.is_left(*address);
    let mut left: Vec<IpAddr> = addresses.into_iter().filter(is_left).collect();
    if left.is_empty() {
        return Ok(());
    }
    let _turn = unflushed.turn().await?;
    left.retain(is_left);
    if !left.is_empty() {
        start_flush(left.clone()).await.map_err(UnflushedError::Flush)?;
        unflushed.settle(&left);
        tracing::info!(addresses = ?left, "removed tracked connections that a DEL had left");
    }
    Ok(())
}

/// The addresses that no other interface uses. A pod may have been given the address of one that is
/// long gone, and a late removal must not break its connections.
pub(super) async fn of_nobody_else(
    bridge: &Bridge,
    identities: &[Identity],
    addresses: Vec<IpAddr>,
) -> Vec<IpAddr> {
    if addresses.is_empty() {
        return addresses;
    }
    match bridge.addresses_of_others(identities).await {
        Ok(taken) => addresses.into_iter().filter(|address| !taken.contains(address)).collect(),
        Err(error) => {
            tracing::debug!(
                error = chain(&error),
                "tracked connections stay: it is unknown whether another interface uses the addresses"
            );
            Vec::new()
        }
    }
}

/// Starts to remove the connections of all addresses, on a thread of its own: the kernel takes as
/// long for it as for deleting a link, and blocks the caller for both. Best effort: a kernel
/// without connection tracking has no connections to remove. What takes longer than `patience` is
/// left.
pub(super) fn flush_within(
    patience: Duration,
    addresses: Vec<IpAddr>,
    unflushed: &Unflushed,
) -> impl Future<Output = ()> {
    let flushing = (!addresses.is_empty()).then(|| start_flush(addresses.clone()));
    async move {
        let Some(flushing) = flushing else { return };
        match timeout(patience, flushing).await {
            Ok(Ok(Flushed { at_once, connections, listed })) => {
                tracing::debug!(at_once, connections, listed, "flushed tracked connections")
            }
            Ok(Err(error)) => tracing::debug!(%error, "cannot flush tracked connections"),
            Err(_) => match unflushed.leave(&addresses) {
                Ok(()) => tracing::warn!(
                    patience_s = patience.as_secs_f32(),
                    "tracked connections of the pod's addresses are left to the server: flushing them takes \
                     too long"
                ),
                Err(error) => tracing::warn!(
                    error = chain(&error),
                    patience_s = patience.as_secs_f32(),
                    "tracked connections of the pod's addresses are left to their own timeouts: flushing them \
                     takes too long"
                ),
            },
        }
    }
}

/// Starts at once if a thread can be had. Otherwise the returned future does the work.
fn start_flush(addresses: Vec<IpAddr>) -> impl Future<Output = io::Result<Flushed>> {
    let apart = addresses.clone();
    let started = on_a_thread(move || {
        let _normal = NormalPriority::begin();
        Builder::new_current_thread().enable_all().build()?.block_on(conntrack::flush(&apart))
    });
    async move {
        match started {
            Ok(outcome) => outcome.await,
            Err(_) => {
                let _normal = NormalPriority::begin();
                conntrack::flush(&addresses).await
            }
        }
    }
}

/// Starts `work` on a thread of its own: it goes on if the caller gives up, and its result ends
/// with it.
///
/// # Errors
/// There can be no further thread.
fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<impl Future<Output = io::Result<T>>> {
    let (sender, receiver) = oneshot::channel();
    thread::Builder::new().spawn(move || {
        // The receiver is gone if the caller has given up.
        let _ = sender.send(work());
    })?;
    Ok(async {
        receiver.await.unwrap_or_else(|_| Err(io::Error::other("the thread has panicked")))
    })
}

/// The normal priority for this thread alone (setpriority(2)), until it is dropped: a table of a
/// million connections keeps a processor busy, and Open vSwitch must not wait for it. A lower
/// priority stays.
#[derive(Debug)]
struct NormalPriority {
    /// The priority before; `None` if it was not changed.
    before: Option<i32>,
}

impl NormalPriority {
    fn begin() -> Self {
        let before = getpriority_process(None).ok().filter(|nice| *nice < 0);
        Self { before: before.filter(|_| setpriority_process(None, 0).is_ok()) }
    }
}

impl Drop for NormalPriority {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            let _ = setpriority_process(None, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_of_connections_does_not_come_before_the_daemons_of_open_vswitch() {
        thread::spawn(|| {
            let nice = || getpriority_process(None).unwrap();
            setpriority_process(None, -20)
                .expect("a priority above the normal one: this test runs as root");
            let normal = NormalPriority::begin();
            assert_eq!(nice(), 0);
            let apart = thread::spawn(move || getpriority_process(None).unwrap());
            assert_eq!(apart.join().unwrap(), 0, "a thread begins with the priority of its maker");
            drop(normal);
            assert_eq!(nice(), -20, "the caller goes on as before");
            setpriority_process(None, 5).unwrap();
            let _normal = NormalPriority::begin();
            assert_eq!(nice(), 5, "a lower priority was given on purpose");
        })
        .join()
        .unwrap();
    }

    /// In a network namespace of its own, because it removes connections.
    #[test]
    fn addresses_that_a_removal_had_no_time_for_are_left_and_not_forgotten() {
        let tried = thread::spawn(|| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)
                .expect("a network namespace: this test runs as root");
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(no_time());
        });
        tried.join().unwrap();
    }

    async fn no_time() {
        let place = tempfile::tempdir().unwrap();
        let unflushed = Unflushed { directory: place.path().join("cni/unflushed") };
        assert_eq!(unflushed.list().unwrap(), [] as [IpAddr; 0]);
        let addresses: Vec<IpAddr> =
            ["10.244.1.3", "fd00::3"].map(|address| address.parse().unwrap()).into();
        flush_within(Duration::ZERO, addresses.clone(), &unflushed).await;
        let mut left = unflushed.list().unwrap();
        left.sort_unstable();
        assert_eq!(left, addresses);
        fs::write(unflushed.directory.join("no-address"), "").unwrap();
        unflushed.settle(&addresses);
        assert_eq!(unflushed.list().unwrap(), [] as [IpAddr; 0]);
    }
}
