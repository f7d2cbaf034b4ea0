//! Keeps the CNI configuration in place for as long as the server lives: writes it again when it is
//! removed or changed, or when the chained plugins change, and reports when runtimes prefer another
//! file.
//!
//! Another program may write files of the same directory again and again. So events are collected
//! for a moment, and the file is restored less and less often while another program keeps removing
//! it.

use std::{io, path::Path, pin::pin, time::Duration};

use futures_util::StreamExt;
use inotify::{Inotify, WatchMask};
use tokio::time::{Instant, sleep, sleep_until};

use super::{CniConf, CniConfError, Preferred};
use crate::{
    chain,
    conditions::{Conditions, Part},
};

/// How long events are collected: a program that replaces files does so in several steps, and has
/// finished by then. Much longer, and pods fail meanwhile; much shorter, and half-done steps are
/// answered.
const SETTLE: Duration = Duration::from_millis(300);
/// The longest time between two looks, in case no event comes: the directory may be mounted over,
/// or not exist yet, and inotify(7) tells of neither.
const RESYNC: Duration = Duration::from_secs(30);
/// The shortest time between two restorations, at first. Runtimes look at the directory within
/// seconds, so a longer one would be felt by pods.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest time between two restorations, while another program keeps removing the file: pods
/// start in between, and the log gets one line a minute.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// After this long without a restoration, the other program has stopped. Longer than
/// [`LONGEST_PAUSE`], or a persistent one would be answered at once each time.
const QUIET: Duration = Duration::from_secs(300);

/// Follows the directory, which need not exist yet, and restores the file.
#[derive(Debug)]
pub(crate) struct ConfReconciler {
    conf: CniConf,
    conditions: Conditions,
    damping: Damping,
    was_in_place: bool,
    preferred: Option<Preferred>,
}

/// The back-off of restorations.
#[derive(Debug, Default)]
struct Damping {
    last: Option<Instant>,
    pause: Duration,
}

impl ConfReconciler {
    pub(crate) fn new(conf: CniConf, conditions: Conditions) -> Self {
        Self { conf, conditions, damping: Damping::default(), was_in_place: false, preferred: None }
    }

    /// Follows the directory. Needs a tokio runtime.
    pub(crate) async fn run(mut self) {
        loop {
            // Watches before it looks, so that no change in between is missed. Each round watches
            // anew: the directory of that name may be another one by now.
            let mut events = self.listen();
            let mut resync = pin!(sleep(RESYNC));
            let mut due = pin!(sleep_until(self.look().await));
            loop {
                tokio::select! {
                    happened = next(&mut events) => match happened {
                        DirectoryEvent::Changed => {
                            // A look that is due earlier stays due: events never delay it.
                            let soon = due.deadline().min(Instant::now() + SETTLE);
                            due.as_mut().reset(soon);
                        }
                        DirectoryEvent::Lost => events = None,
                    },
                    () = &mut due => due.as_mut().reset(self.look().await),
                    () = &mut resync => break,
                }
            }
        }
    }

    /// Looks at the directory and repairs it. Returns when to look again without an event.
    async fn look(&mut self) -> Instant {
        let conf = self.conf.clone();
        let may_write = self.damping.allows(Instant::now());
        // File system calls may block, which must not happen on the threads that serve the socket.
        let looked = tokio::task::spawn_blocking(move || {
            let wrote = if may_write { conf.put()? } else { false };
            let preferred = conf.preferred();
            conf.answer_to_old_name(preferred.as_ref())?;
            Ok::<_, CniConfError>((wrote, conf.is_in_place()?, preferred))
        });
        let later = Instant::now() + RESYNC;
        match looked.await.unwrap_or_else(|panic| {
            Err(CniConfError::Io { path: self.conf.path(), source: io::Error::other(panic) })
        }) {
            Err(error) => {
                self.say(Some(chain(&error)));
                later
            }
            Ok((wrote, is_in_place, preferred)) => {
                // The first write is not a restoration: it neither warns nor counts.
                if wrote && self.was_in_place {
                    let next_s = self.damping.wrote(Instant::now()).as_secs();
                    tracing::warn!(
                        path = %self.conf.path().display(),
                        next_s,
                        "the CNI configuration was removed or changed, and is put back"
                    );
                }
                self.was_in_place |= is_in_place;
                let missing = match (is_in_place, &preferred) {
                    (false, _) => Some(format!(
                        "{} was removed or changed; it is put back before long",
                        self.conf.path().display()
                    )),
                    (true, Some(foreign @ Preferred { is_ours: false, .. })) => {
                        Some(foreign.to_string())
                    }
                    (true, _) => None,
                };
                self.note(preferred);
                self.say(missing);
                if is_in_place { later } else { self.damping.next(Instant::now()).min(later) }
            }
        }
    }

    /// Logs once that runtimes prefer another file.
    fn note(&mut self, preferred: Option<Preferred>) {
        if preferred != self.preferred {
            match &preferred {
                Some(other) if other.is_ours => {
                    tracing::info!(
                        path = %other.path.display(),
                        "runtimes read this file first, which leads to ours"
                    )
                }
                Some(other) => {
                    tracing::warn!(why = %other, "pods of this node get another network")
                }
                None => tracing::info!("runtimes use the CNI configuration of this network again"),
            }
            self.preferred = preferred;
        }
    }

    fn say(&self, missing: Option<String>) {
        match missing {
            Some(why) => self.conditions.missing(Part::CNI_CONF, why),
            None => self.conditions.met(Part::CNI_CONF),
        }
    }

    /// Watches the directory, and the place of the chained plugins; `None` if they cannot be
    /// watched now.
    fn listen(&self) -> Option<inotify::EventStream<[u8; 1024]>> {
        // A file is watched through its directory: a watch of the file itself ends when it is
        // replaced.
        let chain = self
            .conf
            .chain
            .as_deref()
            .map(|path| if path.is_dir() { Some(path) } else { path.parent() });
        let begun = Inotify::init().and_then(|inotify| {
            let changes = WatchMask::CREATE
                | WatchMask::CLOSE_WRITE
                | WatchMask::MOVE
                | WatchMask::DELETE
                | WatchMask::DELETE_SELF;
            let watch = |place: &Path| {
                let watched = inotify.watches().add(place, changes | WatchMask::ONLYDIR);
                watched
                    .inspect_err(|error| tracing::debug!(%error, ?place, "cannot be followed now"))
            };
            watch(&self.conf.directory)?;
            // Without the place of the chained plugins, the periodic check still reads them.
            let _ = chain.flatten().map(watch);
            inotify.into_event_stream([0; 1024])
        });
        begun.ok()
    }
}

enum DirectoryEvent {
    Changed,
    /// A watched directory was removed.
    Lost,
}

async fn next(events: &mut Option<inotify::EventStream<[u8; 1024]>>) -> DirectoryEvent {
    let Some(stream) = events else { return std::future::pending().await };
    match stream.next().await {
        // IN_IGNORED: the kernel has removed the watch, as it does when the directory is gone
        // (inotify(7)).
        Some(Ok(event)) if !event.mask.contains(inotify::EventMask::IGNORED) => {
            DirectoryEvent::Changed
        }
        Some(_) | None => DirectoryEvent::Lost,
    }
}

impl Damping {
    fn allows(&self, now: Instant) -> bool {
        self.next(now) <= now
    }

    /// The next moment at which the file may be restored.
    fn next(&self, now: Instant) -> Instant {
        self.last.map_or(now, |last| last + self.pause)
    }

    /// Notes a restoration. Returns how long the next one has to wait.
    fn wrote(&mut self, now: Instant) -> Duration {
        let is_quiet = self.last.is_none_or(|last| now.duration_since(last) >= QUIET);
        self.pause =
            if is_quiet { FIRST_PAUSE } else { (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE) };
        self.last = Some(now);
        self.pause
    }
}

#[cfg(test)]
mod tests;
