//! Keeps the CNI configuration in place for as long as the server lives: writes it again when it is removed or changed, or when the chained plugins
//! change, and says when runtimes prefer another file.
//!
//! Another program may write files of the same directory again and again. So events are gathered for a moment, and the file is put back less and
//! less often while somebody keeps taking it away.

use std::{
    io,
    path::{Path, PathBuf},
    pin::pin,
    time::Duration,
};

use futures_util::StreamExt;
use inotify::{Inotify, WatchMask};
use tokio::time::{Instant, sleep, sleep_until};

use super::{CniConf, CniConfError, Preferred};
use crate::{
    chain,
    conditions::{Conditions, Part},
};

/// Whoever replaces files does it in several steps, and is done after this.
const SETTLE: Duration = Duration::from_millis(300);
/// The safety net below the events: a directory may be mounted over, or not be there yet.
const RESYNC: Duration = Duration::from_secs(30);
/// Between two times that the file is put back, at first. A runtime looks at the directory within seconds.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// And at last, while somebody keeps taking it away: pods start in between, and the log stays readable.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// So long after it was put back last, whoever took it away has stopped.
const QUIET: Duration = Duration::from_secs(300);

/// Keeps the configuration, from a directory where nothing may be yet.
#[derive(Debug)]
pub(crate) struct ConfKeeper {
    conf: CniConf,
    conditions: Conditions,
    damping: Damping,
    was_in_place: bool,
    preferred: Option<Preferred>,
}

/// When the file may be put back.
#[derive(Debug, Default)]
struct Damping {
    last: Option<Instant>,
    pause: Duration,
}

impl ConfKeeper {
    pub(crate) fn new(conf: CniConf, conditions: Conditions) -> Self {
        Self { conf, conditions, damping: Damping::default(), was_in_place: false, preferred: None }
    }

    /// Follows the directory. Needs a tokio runtime.
    pub(crate) async fn keep(mut self) {
        loop {
            let mut events = self.listen();
            let mut resync = pin!(sleep(RESYNC));
            let mut due = pin!(sleep_until(self.look().await));
            loop {
                tokio::select! {
                    happened = next(&mut events) => match happened {
                        Happened::Changed => {
                            let soon = due.deadline().min(Instant::now() + SETTLE);
                            due.as_mut().reset(soon);
                        }
                        Happened::Lost => events = None,
                    },
                    () = &mut due => due.as_mut().reset(self.look().await),
                    () = &mut resync => break,
                }
            }
        }
    }

    /// Looks at the directory and does what is to be done; when to look again without an event.
    async fn look(&mut self) -> Instant {
        let conf = self.conf.clone();
        let may_write = self.damping.allows(Instant::now());
        let looked = tokio::task::spawn_blocking(move || {
            let wrote = if may_write { conf.put()? } else { false };
            Ok::<_, CniConfError>((wrote, conf.is_in_place()?, conf.preferred()))
        });
        let later = Instant::now() + RESYNC;
        match looked.await.unwrap_or_else(|panic| Err(CniConfError::Io { path: self.conf.path(), source: io::Error::other(panic) })) {
            Err(error) => {
                self.say(Some(chain(&error)));
                later
            }
            Ok((wrote, is_in_place, preferred)) => {
                if wrote && self.was_in_place {
                    let next_s = self.damping.wrote(Instant::now()).as_secs();
                    tracing::warn!(path = %self.conf.path().display(), next_s, "the CNI configuration was removed or changed, and is put back");
                }
                self.was_in_place |= is_in_place;
                let missing = match (is_in_place, &preferred) {
                    (false, _) => Some(format!("{} was removed or changed; it is put back before long", self.conf.path().display())),
                    (true, Some(foreign @ Preferred { is_ours: false, .. })) => Some(foreign.to_string()),
                    (true, _) => None,
                };
                self.note(preferred);
                self.say(missing);
                if is_in_place { later } else { self.damping.next(Instant::now()).min(later) }
            }
        }
    }

    /// Says on the log, once, that runtimes prefer another file.
    fn note(&mut self, preferred: Option<Preferred>) {
        if preferred != self.preferred {
            match &preferred {
                Some(other) if other.is_ours => {
                    tracing::info!(path = %other.path.display(), "runtimes read this file first, which leads to ours")
                }
                Some(other) => tracing::warn!(why = %other, "pods of this node get another network"),
                None => tracing::info!("runtimes prefer no other CNI configuration any longer"),
            }
            self.preferred = preferred;
        }
    }

    fn say(&self, missing: Option<String>) {
        match missing {
            Some(why) => self.conditions.missing(Part::CniConf, why),
            None => self.conditions.met(Part::CniConf),
        }
    }

    /// Events of the directory, and of where the chained plugins are.
    fn listen(&self) -> Option<inotify::EventStream<[u8; 1024]>> {
        // A file is followed through its directory: it may be replaced.
        let chain = self.conf.chain.as_deref().map(|path| if path.is_dir() { Some(path) } else { path.parent() });
        let places: Vec<PathBuf> =
            [Some(self.conf.directory.as_path()), chain.flatten()].into_iter().flatten().map(Path::to_owned).collect();
        let begun = Inotify::init().and_then(|inotify| {
            let changes = WatchMask::CREATE | WatchMask::CLOSE_WRITE | WatchMask::MOVE | WatchMask::DELETE | WatchMask::DELETE_SELF;
            for place in &places {
                inotify.watches().add(place, changes | WatchMask::ONLYDIR)?;
            }
            inotify.into_event_stream([0; 1024])
        });
        begun.inspect_err(|error| tracing::debug!(%error, ?places, "cannot be followed now")).ok()
    }
}

enum Happened {
    Changed,
    /// The directory went away.
    Lost,
}

async fn next(events: &mut Option<inotify::EventStream<[u8; 1024]>>) -> Happened {
    let Some(stream) = events else { return std::future::pending().await };
    match stream.next().await {
        Some(Ok(event)) if !event.mask.contains(inotify::EventMask::IGNORED) => Happened::Changed,
        Some(_) | None => Happened::Lost,
    }
}

impl Damping {
    fn allows(&self, now: Instant) -> bool {
        self.next(now) <= now
    }

    /// The next moment at which the file may be put back.
    fn next(&self, now: Instant) -> Instant {
        self.last.map_or(now, |last| last + self.pause)
    }

    /// It was put back; how long the next time has to wait.
    fn wrote(&mut self, now: Instant) -> Duration {
        let is_quiet = self.last.is_none_or(|last| now.duration_since(last) >= QUIET);
        self.pause = if is_quiet { FIRST_PAUSE } else { (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE) };
        self.last = Some(now);
        self.pause
    }
}

#[cfg(test)]
mod tests;
