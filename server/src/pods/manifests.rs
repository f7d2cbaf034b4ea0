//! Pods out of a directory of manifests, for machines without a cluster: like a kubelet's static pods, watched with inotify.
//!
//! The directory's state ([`Directory`]) is a function of its files; this part only says when to look.

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use contract::names::PodKey;
use futures_util::{StreamExt, future::BoxFuture};
use inotify::{EventMask, EventOwned, EventStream, Inotify, WatchMask};
use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::{sleep, timeout},
};

use self::directory::Directory;
use super::{PodSource, PodWatch, Pods, Readiness, Whereabouts};

mod directory;
pub mod manifest;

/// How often a directory that vanished is looked for, and a file that could not be read for want of descriptors is read again.
const RETRY: Duration = Duration::from_secs(1);
/// The link that Kubernetes turns when it updates a mounted ConfigMap: all of its files change at once.
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
    /// Reads all manifests in `directory` and follows it from then on. Needs a tokio runtime.
    pub fn start(directory: &Path) -> Result<Self, ManifestsError> {
        let pods = Pods::default();
        let failed = |source| ManifestsError { directory: directory.to_owned(), source };
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
            let pods = Pods::default();
            match blocking(Directory::new(&self.directory, pods.clone()), Directory::scan).await {
                (state, Ok(())) if state.has_unread() => Err("some manifests cannot be read now".to_owned()),
                (_, Ok(())) => Ok(pods.uids()),
                (state, Err(error)) => Err(format!("pod manifests in {:?}: {error}", state.path())),
            }
        })
    }

    fn readiness(&self) -> Readiness {
        self.readiness.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn whereabouts(&self) -> Whereabouts {
        Whereabouts::Manifests(self.directory.clone())
    }
}

impl Drop for Manifests {
    fn drop(&mut self) {
        self.watcher.abort();
    }
}

type Events = EventStream<[u8; 4096]>;

/// Complete files only: closed after writing, or moved into place.
fn listen(directory: &Path) -> io::Result<Events> {
    let inotify = Inotify::init()?;
    let mask = WatchMask::CLOSE_WRITE
        | WatchMask::MOVED_TO
        | WatchMask::MOVED_FROM
        | WatchMask::DELETE
        | WatchMask::DELETE_SELF
        | WatchMask::MOVE_SELF
        | WatchMask::ONLYDIR;
    inotify.watches().add(directory, mask)?;
    inotify.into_event_stream([0; 4096])
}

/// Keeps `state` as the directory is, for ever.
async fn follow(mut state: Directory, mut events: Events, readiness: Arc<Mutex<Readiness>>) {
    let say = |now: Readiness| *readiness.lock().unwrap_or_else(PoisonError::into_inner) = now;
    loop {
        let event = if state.has_unread() { timeout(RETRY, events.next()).await } else { Ok(events.next().await) };
        let lost = match event {
            Ok(Some(Ok(event))) => {
                let (next, outcome) = blocking(state, move |state| apply(state, &event)).await;
                state = next;
                outcome.err()
            }
            Ok(Some(Err(error))) => Some(error),
            Ok(None) => Some(io::ErrorKind::UnexpectedEof.into()),
            Err(_) => {
                state = blocking(state, Directory::look_again).await.0;
                None
            }
        };
        let Some(error) = lost else { continue };

        // The pods stay as they were known: a directory that is missing for a moment must not cost them their requests.
        tracing::error!(%error, directory = %state.path().display(), "the directory of pod manifests is lost; waiting for it");
        say(Readiness::NotSynced(format!("the directory of pod manifests {:?} is lost: {error}", state.path())));
        events = loop {
            sleep(RETRY).await;
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

/// Does one event's work; an error means that the directory itself is lost.
fn apply(state: &mut Directory, event: &EventOwned) -> io::Result<()> {
    if event.mask.intersects(EventMask::DELETE_SELF | EventMask::MOVE_SELF | EventMask::IGNORED | EventMask::UNMOUNT) {
        return Err(io::ErrorKind::NotFound.into());
    }
    match &event.name {
        Some(name) if name == CONFIG_MAP_LINK => state.scan(),
        Some(name) => {
            state.look_at(name);
            Ok(())
        }
        None if event.mask.contains(EventMask::Q_OVERFLOW) => state.scan(),
        None => Ok(()),
    }
}

/// Runs `work`, which reads files, on a thread that may block.
async fn blocking<T: Send + 'static>(mut state: Directory, work: impl FnOnce(&mut Directory) -> T + Send + 'static) -> (Directory, T) {
    let run = spawn_blocking(move || {
        let outcome = work(&mut state);
        (state, outcome)
    });
    run.await.expect("reading manifests does not panic, and the runtime outlives its tasks")
}

#[cfg(test)]
mod tests;
