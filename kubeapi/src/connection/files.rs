//! The moment when one of the files changes that lead to the API server.
//!
//! Directories are watched, not files: files are replaced, and a mounted Secret changes all of its files by one link (`..data`). What
//! inotify cannot see (a file system of another machine, a link to a link) is found by looking once in a while.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures_util::StreamExt;
use inotify::{EventStream, Inotify, WatchMask};
use tokio::time::timeout;

use super::gateway::Gateway;

/// How often everything is read without an event.
const RESYNC: Duration = Duration::from_secs(60);
/// The link of a mounted Secret or ConfigMap.
const MOUNT_LINK: &str = "..data";

/// Has `gateway` read its files again after each change, for ever.
pub(super) async fn follow(gateway: Arc<Gateway>) {
    loop {
        let files = gateway.files();
        let mut changes = Changes::of(&files);
        // What changed since they were read is found now.
        Arc::clone(&gateway).renew(None).await;
        while gateway.files() == files {
            changes.next().await;
            Arc::clone(&gateway).renew(None).await;
        }
    }
}

struct Changes {
    events: Option<EventStream<[u8; 4096]>>,
    names: BTreeSet<OsString>,
}

impl Changes {
    /// Changes of `files` from now on.
    fn of(files: &BTreeSet<PathBuf>) -> Self {
        let directories: BTreeSet<&Path> = files.iter().filter_map(|file| file.parent()).collect();
        let names = files.iter().filter_map(|file| file.file_name()).map(OsStr::to_owned).chain([MOUNT_LINK.into()]).collect();
        let listen = || -> std::io::Result<EventStream<[u8; 4096]>> {
            let inotify = Inotify::init()?;
            let mask = WatchMask::CLOSE_WRITE | WatchMask::MOVED_TO | WatchMask::CREATE | WatchMask::ONLYDIR;
            for directory in directories {
                // A directory that is not there yet is looked at again when all files are.
                let _ = inotify.watches().add(directory, mask);
            }
            inotify.into_event_stream([0; 4096])
        };
        let events =
            listen().inspect_err(|error| tracing::warn!(%error, every = ?RESYNC, "credentials are only looked at once in a while"));
        Self { events: events.ok(), names }
    }

    /// Waits for the next one; ends after a while without any, too.
    async fn next(&mut self) {
        let Self { events, names } = self;
        let change = async {
            while let Some(stream) = events {
                match stream.next().await {
                    Some(Ok(event)) if event.name.as_ref().is_some_and(|name| !names.contains(name)) => {}
                    Some(Ok(_)) => return,
                    Some(Err(_)) | None => *events = None,
                }
            }
            std::future::pending().await
        };
        let _ = timeout(RESYNC, change).await;
    }
}
