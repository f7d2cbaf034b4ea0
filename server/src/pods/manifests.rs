//! Pods from a directory of manifests, for machines without a cluster: like a kubelet's static
//! pods, watched with inotify(7).
//!
//! The state ([`Directory`]) is a function of the files; this part only decides when they are read.

use std::{
    collections::{HashMap, HashSet},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use contract::names::PodKey;
use futures_util::{StreamExt, future::BoxFuture, stream::ReadyChunks};
use inotify::{EventMask, EventOwned, EventStream, Inotify, WatchMask};
use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::{sleep, timeout},
};

use self::directory::Directory;
use super::{PodSource, PodWatch, Pods, Readiness, SourceDescription};

mod directory;
pub mod manifest;

/// The interval at which a directory that vanished is looked for, and a file is read again that
/// could not be read for want of descriptors or memory. Neither ends with an event. An ADD waits 5
/// s for a pod that is not known, so a second is short enough.
const RETRY: Duration = Duration::from_secs(1);
/// The most events that are handled together, so that a file that was written ten times is read
/// once. The limit bounds the memory for events; the kernel queues 16,384
/// (`fs.inotify.max_queued_events`).
const MOST_EVENTS: usize = 1024;
/// The symbolic link that the kubelet switches when it updates a mounted ConfigMap: all files
/// change at once.
const CONFIG_MAP_LINK: &str = "..data";

/// A directory of Pod manifests as a source of pods.
#[derive(Debug)]
pub struct Manifests {
    pods: Pods,
    readiness: Arc<Mutex<Readiness>>,
    directory: PathBuf,
    watcher: JoinHandle<()>,
}

/// Why a directory cannot be a source of pods.
#[derive(Debug, thiserror::Error)]
#[error("pod manifests in {directory:?}")]
pub struct ManifestsError {
    directory: PathBuf,
    source: io::Error,
}

impl Manifests {
    /// Reads all manifests in `directory`, and follows it from then on. Blocks while it reads.
    /// Needs a tokio runtime.
    ///
    /// # Errors
    ///
    /// The directory cannot be read or watched. A single manifest that cannot be used is a warning
    /// in the log.
    pub fn start(directory: &Path) -> Result<Self, ManifestsError> {
        let pods = Pods::default();
        let failed = |source| ManifestsError { directory: directory.to_owned(), source };
        // Watched before it is read, so that no change in between is missed.
        let events = listen(directory).map_err(failed)?;
        let mut state = Directory::new(directory, pods.clone());
        state.scan().map_err(failed)?;
        let readiness = Arc::new(Mutex::new(Readiness::Synced));
        let watcher = tokio::spawn(follow(state, events, Arc::clone(&readiness)));
        Ok(Self { pods, readiness, directory: directory.to_owned(), watcher })
    }
}

impl PodSource for Manifests {
    fn watch(&self, pod: &PodKey) -> PodWatch {
        self.pods.watch(pod)
    }

    fn look_again(&self) -> BoxFuture<'_, Result<HashMap<PodKey, String>, String>> {
        Box::pin(async move {
            // Into a cache of its own: what is known here may be what the caller doubts.
            let pods = Pods::default();
            match blocking(Directory::new(&self.directory, pods.clone()), Directory::scan).await {
                (state, Ok(())) if state.has_unread() => {
                    Err("some manifests cannot be read now".to_owned())
                }
                (_, Ok(())) => Ok(pods.uids()),
                (state, Err(error)) => Err(format!("pod manifests in {:?}: {error}", state.path())),
            }
        })
    }

    fn readiness(&self) -> Readiness {
        self.readiness.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn source_description(&self) -> SourceDescription {
        SourceDescription::Manifests(self.directory.clone())
    }
}

impl Drop for Manifests {
    fn drop(&mut self) {
        self.watcher.abort();
    }
}

type ManifestEvents = ReadyChunks<EventStream<[u8; 4096]>>;

/// Watches `directory` for complete files only: closed after writing, or moved into place.
fn listen(directory: &Path) -> io::Result<ManifestEvents> {
    let inotify = Inotify::init()?;
    let mask = WatchMask::CLOSE_WRITE
        | WatchMask::MOVED_TO
        | WatchMask::MOVED_FROM
        | WatchMask::DELETE
        | WatchMask::DELETE_SELF
        | WatchMask::MOVE_SELF
        | WatchMask::ONLYDIR;
    inotify.watches().add(directory, mask)?;
    Ok(inotify.into_event_stream([0; 4096])?.ready_chunks(MOST_EVENTS))
}

/// Keeps `state` up to date for as long as the runtime lives.
async fn follow(
    mut state: Directory,
    mut events: ManifestEvents,
    readiness: Arc<Mutex<Readiness>>,
) {
    let say = |now: Readiness| *readiness.lock().unwrap_or_else(PoisonError::into_inner) = now;
    loop {
        let some = if state.has_unread() {
            timeout(RETRY, events.next()).await
        } else {
            Ok(events.next().await)
        };
        let lost = match some {
            Ok(Some(some)) => {
                let (next, outcome) = blocking(state, move |state| apply(state, some)).await;
                state = next;
                outcome.err()
            }
            Ok(None) => Some(io::ErrorKind::UnexpectedEof.into()),
            Err(_) => {
                state = blocking(state, Directory::look_again).await.0;
                None
            }
        };
        let Some(error) = lost else { continue };

        // The pods stay known: a directory that is missing for a moment must not fail their
        // requests.
        tracing::error!(
            %error,
            directory = %state.path().display(),
            "the directory of pod manifests is lost; waiting for it"
        );
        say(Readiness::NotSynced(format!(
            "the directory of pod manifests {:?} is lost: {error}",
            state.path()
        )));
        events = loop {
            sleep(RETRY).await;
            // Watched anew before it is read again, as at the start.
            let Ok(events) = listen(state.path()) else { continue };
            let (next, outcome) = blocking(state, Directory::scan).await;
            state = next;
            if outcome.is_ok() {
                break events;
            }
        };
        tracing::info!(directory = %state.path().display(), "the directory of pod manifests is back");
        say(Readiness::Synced);
    }
}

/// Reads the files that `events` name. An error means that the directory itself is lost.
fn apply(state: &mut Directory, events: Vec<io::Result<EventOwned>>) -> io::Result<()> {
    let mut names = Vec::new();
    let mut are_some_missing = false;
    for event in events {
        let event = event?;
        if event.mask.intersects(
            EventMask::DELETE_SELF | EventMask::MOVE_SELF | EventMask::IGNORED | EventMask::UNMOUNT,
        ) {
            return Err(io::ErrorKind::NotFound.into());
        }
        match event.name {
            Some(name) if name == CONFIG_MAP_LINK => are_some_missing = true,
            Some(name) => names.push(name),
            // The kernel's queue was full, and events were dropped.
            None => are_some_missing |= event.mask.contains(EventMask::Q_OVERFLOW),
        }
    }
    // Each file once, in the order of the last events: of two files with the same pod, the one
    // written last counts.
    let mut seen = HashSet::new();
    names.reverse();
    names.retain(|name| seen.insert(name.clone()));
    names.iter().rev().for_each(|name| state.look_at(name));
    if are_some_missing { state.scan() } else { Ok(()) }
}

/// Runs `work`, which reads files, on a thread that may block.
async fn blocking<T: Send + 'static>(
    mut state: Directory,
    work: impl FnOnce(&mut Directory) -> T + Send + 'static,
) -> (Directory, T) {
    let run = spawn_blocking(move || {
        let outcome = work(&mut state);
        (state, outcome)
    });
    run.await.expect("reading manifests does not panic, and the runtime outlives its tasks")
}

#[cfg(test)]
mod tests;
