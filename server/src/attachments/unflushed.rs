//! Finishes what removals had no time for: the flush of tracked connections of an address that is
//! gone. Must not know why it was left.

use std::{io, path::Path, time::Duration};

use futures_util::StreamExt as _;
use inotify::{EventStream, Inotify, WatchMask};
use podnet::{
    detach::{Unflushed, flush_left},
    settings::Settings,
};
use tokio::time::timeout;

use crate::chain;

/// Interval of a look in case that an event was lost, or that the database or the kernel refused
/// the last time.
const RESYNC: Duration = Duration::from_secs(60);

/// Flushes what is left, now and whenever something is left, for as long as the runtime lives.
pub(crate) async fn finish_flushes(settings: Settings) {
    let unflushed = Unflushed::of(&settings);
    loop {
        let listening = unflushed.directory().map_err(|error| chain(&error));
        let mut events =
            match listening.and_then(|path| listen(path).map_err(|error| error.to_string())) {
                Ok(events) => Some(events),
                Err(error) => {
                    tracing::debug!(
                        error,
                        "it goes unnoticed for a while if tracked connections are left"
                    );
                    None
                }
            };
        // After the watch was added, so that nothing in between is missed.
        match flush_left(&settings).await {
            Ok(addresses) if addresses.is_empty() => {}
            Ok(addresses) => {
                tracing::info!(?addresses, "removed tracked connections that a DEL had left")
            }
            Err(error) => {
                tracing::warn!(
                    error = chain(&error),
                    "tracked connections that a DEL had left are not removed yet"
                )
            }
        }
        let next = async {
            match &mut events {
                Some(events) => drop(events.next().await),
                None => std::future::pending().await,
            }
        };
        let _ = timeout(RESYNC, next).await;
    }
}

fn listen(directory: &Path) -> io::Result<EventStream<[u8; 1024]>> {
    let inotify = Inotify::init()?;
    inotify.watches().add(directory, WatchMask::CREATE | WatchMask::ONLYDIR)?;
    inotify.into_event_stream([0; 1024])
}
