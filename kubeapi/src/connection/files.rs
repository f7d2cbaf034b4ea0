//! Notices when a file with credentials, authorities or a kubeconfig changes.
//!
//! It watches directories, not files: programs replace files, and the kubelet updates all files of
//! a mounted Secret by replacing one symbolic link (`..data`). inotify misses some changes (a
//! network file system, a symbolic link behind another one), so all files are also read
//! periodically.

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

use super::reloading_client::ReloadingClient;

/// The time between two reads without an event. Within this time a change that inotify misses takes
/// effect; a refused token is read again at once anyway. The files are small, and unchanged content
/// has no effect, but a tenth of this would read from a slow network file system all the time.
const RESYNC: Duration = Duration::from_secs(60);
/// The symbolic link of a mounted Secret or ConfigMap.
const MOUNT_LINK: &str = "..data";

/// Lets `reloading` read its files again after each change, for ever.
pub(super) async fn follow(reloading: Arc<ReloadingClient>) {
    loop {
        let files = reloading.files();
        let mut changes = Changes::of(&files);
        // The watches exist now: this read finds what changed before that.
        Arc::clone(&reloading).renew(None).await;
        // A kubeconfig may name other files now; then the watches have to be set anew.
        while reloading.files() == files {
            changes.next().await;
            Arc::clone(&reloading).renew(None).await;
        }
    }
}

struct Changes {
    events: Option<EventStream<[u8; 4096]>>,
    names: BTreeSet<OsString>,
}

impl Changes {
    /// Watches the directories of `files` from now on.
    fn of(files: &BTreeSet<PathBuf>) -> Self {
        let directories: BTreeSet<&Path> = files.iter().filter_map(|file| file.parent()).collect();
        let names = files
            .iter()
            .filter_map(|file| file.file_name())
            .map(OsStr::to_owned)
            .chain([MOUNT_LINK.into()])
            .collect();
        let listen = || -> std::io::Result<EventStream<[u8; 4096]>> {
            let inotify = Inotify::init()?;
            let mask = WatchMask::CLOSE_WRITE
                | WatchMask::MOVED_TO
                | WatchMask::CREATE
                | WatchMask::ONLYDIR;
            for directory in directories {
                // A missing directory is not watched. The periodic read finds its files.
                let _ = inotify.watches().add(directory, mask);
            }
            inotify.into_event_stream([0; 4096])
        };
        let events = listen().inspect_err(|error| {
            let every = RESYNC;
            tracing::warn!(%error, ?every, "credential files cannot be watched; reading them periodically");
        });
        Self { events: events.ok(), names }
    }

    /// Waits for the next change, for [`RESYNC`] at most.
    async fn next(&mut self) {
        let Self { events, names } = self;
        let change = async {
            while let Some(stream) = events {
                match stream.next().await {
                    // Files of other programs in the same directory.
                    Some(Ok(event))
                        if event.name.as_ref().is_some_and(|name| !names.contains(name)) => {}
                    Some(Ok(_)) => return,
                    Some(Err(_)) | None => *events = None,
                }
            }
            std::future::pending().await
        };
        let _ = timeout(RESYNC, change).await;
    }
}
