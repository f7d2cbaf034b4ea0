//! Asks the DNS for the names in rules, and again before their answers are old. Knows neither rules nor sets.
//!
//! ```text
//! names ─▶ Resolver ─▶ the host's resolver (/etc/resolv.conf)
//!             └─ observations: addresses, or why there is no answer
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use contract::backoff;
use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::{
    net::lookup_host,
    sync::{mpsc::WeakUnboundedSender, watch},
    time::{Instant, sleep_until, timeout},
};

use crate::{
    observation::Observation,
    store::{Answer, DnsName},
};

/// The resolver of the C library does not tell how long an answer is good. Half a minute is the shortest time
/// that is usual for names whose addresses change, and a thousand names are 33 questions a second.
const REFRESH: Duration = Duration::from_secs(30);
/// The pause after the first question without an answer; it doubles with each further one, up to [`REFRESH`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The C library asks each server twice, for five seconds each, and three servers at most.
const PATIENCE: Duration = Duration::from_secs(35);
/// Questions at a time. Each has a thread, which waits if the server does not answer; then others must not.
const MOST: usize = 16;

/// The task that asks. `lookup`: one question, [`lookup`] outside of tests.
#[derive(Debug)]
pub struct Resolver<L> {
    pub names: watch::Receiver<BTreeSet<DnsName>>,
    /// Weak: the receiver ends when the watches of the API server do.
    pub observations: WeakUnboundedSender<Observation>,
    pub lookup: L,
}

/// A name that is asked for.
#[derive(Debug)]
struct Asked {
    /// When to ask next; none: a question is under way.
    next: Option<Instant>,
    failures: u32,
}

impl<L, F> Resolver<L>
where
    L: Fn(DnsName) -> F,
    F: Future<Output = Answer>,
{
    /// Asks until the names or the receiver of answers end.
    pub async fn run(self) {
        let Self { mut names, observations, lookup } = self;
        let mut asked: BTreeMap<DnsName, Asked> = BTreeMap::new();
        let mut under_way = FuturesUnordered::new();
        names.mark_changed();
        loop {
            let now = Instant::now();
            let due = |state: &Asked| state.next.is_some_and(|next| next <= now);
            while under_way.len() < MOST
                && let Some((name, state)) = asked.iter_mut().find(|(_, state)| due(state))
            {
                state.next = None;
                let (name, question) = (DnsName::clone(name), lookup(DnsName::clone(name)));
                under_way.push(async move { (name, question.await) });
            }
            let has_room = under_way.len() < MOST;
            let next = asked.values().filter_map(|state| state.next).min().filter(|_| has_room);
            tokio::select! {
                changed = names.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let wanted = names.borrow_and_update();
                    asked.retain(|name, _| wanted.contains(name));
                    for name in wanted.iter() {
                        asked.entry(DnsName::clone(name)).or_insert(Asked { next: Some(now), failures: 0 });
                    }
                }
                Some((name, answer)) = under_way.next() => {
                    // It may have gone, and come again, meanwhile: then it is asked for once more.
                    let Some(state) = asked.get_mut(&name) else { continue };
                    state.answered(&name, &answer);
                    let Some(observations) = observations.upgrade() else { return };
                    if observations.send(Observation::Name(name, answer)).is_err() {
                        return;
                    }
                }
                () = sleep_until(next.unwrap_or(now)), if next.is_some() => {}
            }
        }
    }
}

impl Asked {
    fn answered(&mut self, name: &str, answer: &Answer) {
        let pause = match answer {
            Ok(_) => {
                if self.failures > 0 {
                    tracing::info!(name, "the DNS has addresses for this name again");
                }
                self.failures = 0;
                REFRESH
            }
            Err(why) => {
                if self.failures == 0 {
                    tracing::warn!(name, %why, "the DNS has no addresses for this name; the last ones stay");
                }
                let pause = backoff::pause(FIRST_PAUSE, REFRESH, self.failures);
                self.failures = self.failures.saturating_add(1);
                pause
            }
        };
        self.next = Some(Instant::now() + pause);
    }
}

/// Asks the host's resolver, as `/etc/resolv.conf` has it, for addresses of both families. Domains to search
/// in are not used: the name is a whole one.
///
/// # Errors
/// There is no answer, or the name has no addresses.
pub async fn lookup(name: DnsName) -> Answer {
    let whole = format!("{}.", name.trim_end_matches('.').to_ascii_lowercase());
    match timeout(PATIENCE, lookup_host((whole, 0))).await {
        Ok(Ok(addresses)) => Ok(addresses.map(|address| address.ip().to_canonical()).collect()),
        Ok(Err(error)) => Err(error.to_string().into()),
        Err(_) => Err(format!("no answer within {PATIENCE:?}").into()),
    }
}

#[cfg(test)]
mod tests;
