//! Asks the DNS for the names in rules, and again before their answers are old. Knows neither rules
//! nor sets.
//!
//! ```text
//! names ─▶ Resolver ─▶ the host's resolver (/etc/resolv.conf), for each family by itself
//!             └─ observations: addresses, or why there is no answer
//! ```
//!
//! Whoever has the fewest questions under way is next, so that the many names of one namespace, or
//! names whose servers are silent, hold up nobody else's. An address of a name that rotates its
//! answers stays for some minutes after the last answer with it: connections to it go on.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use contract::backoff;
use dns_lookup::{AddrFamily, AddrInfoHints, LookupErrorKind, SockType, getaddrinfo};
use futures_util::{StreamExt, stream::FuturesUnordered};
use kubeapi::services::Family;
use tokio::{
    sync::{mpsc::WeakUnboundedSender, watch},
    task::spawn_blocking,
    time::{Instant, sleep_until, timeout},
};

use crate::{
    key::AnyPolicy,
    select::names::{DnsName, NameUse},
    watch_event::WatchEvent,
};

/// The resolver of the C library does not tell how long an answer is good. Half a minute is the
/// shortest time that is usual for names whose addresses change, and a thousand names are 33
/// questions a second.
const REFRESH: Duration = Duration::from_secs(30);
/// The pause after the first question without an answer; it doubles with each further one, up to
/// [`REFRESH`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The C library asks each server twice, for five seconds each, and three servers at most.
const PATIENCE: Duration = Duration::from_secs(35);
/// Questions at a time. Each has a thread, which waits if the server does not answer; then others
/// must not.
const MOST: usize = 16;
/// Of these, about names without an answer the last time: so many wait for servers that may be
/// silent.
const MOST_UNANSWERED: usize = 8;
/// The same of one policy or EgressFirewall.
const MOST_OF_ONE: usize = 4;
/// How long an address stays after the last answer with it. Names of large services have hundreds
/// of addresses, and answers with another few of them each time: ten times [`REFRESH`] at the
/// least, or a download is cut off half-way. Ten times as much would keep addresses open that
/// others have by then.
const STAY: Duration = Duration::from_secs(600);
/// Addresses of one name. Those that were not in an answer for the longest time go first.
const MOST_ADDRESSES: usize = 1000;
/// How long the DNS has to say that there is no such name until its last addresses are not the
/// name's any more. A zone that is broken for a night has them back; what was given up is somebody
/// else's by the next day. An answer that says nothing (SERVFAIL, none at all) does not count.
const GIVEN_UP: Duration = Duration::from_secs(24 * 3600);

/// The task that asks. `lookup`: one question, [`lookup`] outside of tests.
#[derive(Debug)]
pub struct Resolver<L> {
    /// The families of the cluster's pods.
    pub families: Vec<Family>,
    pub names: watch::Receiver<BTreeMap<DnsName, NameUse>>,
    /// Weak: the receiver ends when the watches of the API server do.
    pub observations: WeakUnboundedSender<WatchEvent>,
    pub lookup: L,
}

/// Why there are no addresses of a family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoAddresses {
    /// There is no such name, or it has none of the family.
    None(Box<str>),
    /// The DNS does not tell.
    Unknown(Box<str>),
}

/// The addresses of a name in one family.
pub type FamilyAnswer = Result<BTreeSet<IpAddr>, NoAddresses>;

/// A name that is asked for.
#[derive(Debug)]
struct Asked {
    users: BTreeSet<AnyPolicy>,
    /// When to ask next; none: a question is under way.
    next: Option<Instant>,
    /// The last question had an answer. None was asked of a new name.
    is_answered: bool,
    failures: u32,
    /// With the time of the last answer that had it.
    addresses: BTreeMap<IpAddr, Instant>,
    /// Since when the DNS says that there is no such name.
    absent: Option<Instant>,
}

/// A question under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Answered,
    Unanswered,
}

impl<L, F> Resolver<L>
where
    L: Fn(DnsName, Family) -> F,
    F: Future<Output = FamilyAnswer>,
{
    /// Asks until the names or the receiver of answers end.
    pub async fn run(self) {
        let Self { families, mut names, observations, lookup } = self;
        let mut asked: BTreeMap<DnsName, Asked> = BTreeMap::new();
        let mut under_way = FuturesUnordered::new();
        let mut busy = Busy::default();
        names.mark_changed();
        loop {
            let now = Instant::now();
            while let Some((name, user)) = busy.next_question(&asked, now) {
                let Some(state) = asked.get_mut(&name) else { break };
                state.next = None;
                let class = state.class();
                busy.begin(&user, class);
                let questions = families.iter().map(|family| {
                    let question = lookup(DnsName::clone(&name), *family);
                    async move { (*family, question.await) }
                });
                let questions: Vec<_> = questions.collect();
                under_way.push(async move {
                    let mut answers = Vec::with_capacity(questions.len());
                    for question in questions {
                        answers.push(question.await);
                    }
                    (name, user, class, answers)
                });
            }
            // While there is no room for any of those that are due, an answer makes some.
            let next =
                asked.values().filter_map(|state| state.next).filter(|next| *next > now).min();
            tokio::select! {
                changed = names.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let wanted = names.borrow_and_update();
                    asked.retain(|name, _| wanted.contains_key(name));
                    for (name, NameUse { users, found }) in wanted.iter() {
                        let state = asked.entry(DnsName::clone(name)).or_insert_with(|| Asked::new(found, now));
                        state.users.clone_from(users);
                    }
                }
                Some((name, user, class, answers)) = under_way.next() => {
                    busy.end(&user, class);
                    // It may have gone, and come again, meanwhile: then it is asked for once more.
                    let Some(state) = asked.get_mut(&name) else { continue };
                    let observed = state.answered(&name, answers, Instant::now());
                    let Some(observations) = observations.upgrade() else { return };
                    for answer in observed {
                        if observations.send(WatchEvent::Name(DnsName::clone(&name), answer)).is_err() {
                            return;
                        }
                    }
                }
                () = sleep_until(next.unwrap_or(now)), if next.is_some() => {}
            }
        }
    }
}

/// How many questions are under way.
#[derive(Debug, Default)]
struct Busy {
    all: usize,
    unanswered: usize,
    of: BTreeMap<AnyPolicy, usize>,
}

impl Busy {
    fn begin(&mut self, user: &AnyPolicy, class: Class) {
        self.all += 1;
        self.unanswered += usize::from(class == Class::Unanswered);
        *self.of.entry(user.clone()).or_default() += 1;
    }

    fn end(&mut self, user: &AnyPolicy, class: Class) {
        self.all -= 1;
        self.unanswered -= usize::from(class == Class::Unanswered);
        if let Some(own) = self.of.get_mut(user) {
            *own -= 1;
            if *own == 0 {
                self.of.remove(user);
            }
        }
    }

    /// The next name to ask for, if there is room, and in whose turn it is.
    fn next_question(
        &self,
        asked: &BTreeMap<DnsName, Asked>,
        now: Instant,
    ) -> Option<(DnsName, AnyPolicy)> {
        if self.all >= MOST {
            return None;
        }
        let is_due = |state: &Asked| {
            state.next.is_some_and(|next| next <= now)
                && (state.class() == Class::Answered || self.unanswered < MOST_UNANSWERED)
        };
        let busy = |user: &&AnyPolicy| self.of.get(*user).copied().unwrap_or_default();
        let due = asked.iter().filter(|(_, state)| is_due(state)).filter_map(|(name, state)| {
            let user = state.users.iter().min_by_key(busy)?;
            Some((busy(&user), state.next, name, user))
        });
        let (_, _, name, user) = due.filter(|(busy, ..)| *busy < MOST_OF_ONE).min()?;
        Some((DnsName::clone(name), user.clone()))
    }
}

impl Asked {
    /// `found`: addresses that the name had before this process began.
    fn new(found: &BTreeSet<IpAddr>, now: Instant) -> Self {
        Self {
            users: BTreeSet::new(),
            next: Some(now),
            is_answered: false,
            failures: 0,
            addresses: found.iter().map(|address| (*address, now)).collect(),
            absent: None,
        }
    }

    fn class(&self) -> Class {
        if self.is_answered { Class::Answered } else { Class::Unanswered }
    }

    /// Takes the answers in all families. Returns what is to be observed.
    fn answered(
        &mut self,
        name: &str,
        answers: Vec<(Family, FamilyAnswer)>,
        now: Instant,
    ) -> Vec<Result<BTreeSet<IpAddr>, Box<str>>> {
        let mut unanswered = Vec::new();
        self.is_answered = false;
        for (family, answer) in answers {
            match answer {
                Ok(addresses) => {
                    self.is_answered = true;
                    self.addresses.extend(addresses.into_iter().map(|address| (address, now)));
                    let is_old = |address: &IpAddr, seen: &Instant| {
                        Family::of(address) == family && now.duration_since(*seen) >= STAY
                    };
                    self.addresses.retain(|address, seen| !is_old(address, seen));
                }
                Err(why) => unanswered.push(why),
            }
        }
        while self.addresses.len() > MOST_ADDRESSES {
            let oldest =
                self.addresses.iter().min_by_key(|(_, seen)| **seen).map(|(address, _)| *address);
            oldest.map(|address| self.addresses.remove(&address));
        }
        if self.is_answered {
            if self.failures > 0 {
                tracing::info!(name, "the DNS has addresses for this name again");
            }
            (self.failures, self.absent) = (0, None);
            self.next = Some(now + REFRESH);
            return vec![Ok(self.addresses.keys().copied().collect())];
        }
        self.next = Some(now + backoff::pause(FIRST_PAUSE, REFRESH, self.failures));
        let is_absent = unanswered.iter().all(|why| matches!(why, NoAddresses::None(_)));
        let why = unanswered.into_iter().map(|why| match why {
            NoAddresses::None(why) | NoAddresses::Unknown(why) => why,
        });
        let why = why.reduce(|first, _| first).unwrap_or_default();
        if self.failures == 0 {
            tracing::warn!(name, %why, "the DNS has no addresses for this name; the last ones stay");
        }
        self.failures = self.failures.saturating_add(1);
        let since = *self.absent.get_or_insert(now);
        if !is_absent {
            self.absent = None;
            return vec![Err(why)];
        }
        if now.duration_since(since) < GIVEN_UP {
            return vec![Err(why)];
        }
        if !self.addresses.is_empty() {
            tracing::warn!(
                name,
                "there is no such name for a day: its last addresses are given up"
            );
            self.addresses.clear();
        }
        vec![Ok(BTreeSet::new()), Err(why)]
    }
}

/// Asks the host's resolver, as `/etc/resolv.conf` has it, for addresses of one family: an answer
/// about the other one, which servers of balancers and companies often get wrong, would make the C
/// library refuse both. Domains to search in are not used: the name is a whole one.
///
/// # Errors
/// There is no answer, or the name has no addresses of the family.
pub async fn lookup(name: DnsName, family: Family) -> FamilyAnswer {
    let address = match family {
        Family::V4 => AddrFamily::Inet,
        Family::V6 => AddrFamily::Inet6,
    };
    // One entry for each address, and not one for each type of socket.
    let hints = AddrInfoHints {
        address: address.into(),
        socktype: SockType::Stream.into(),
        ..AddrInfoHints::default()
    };
    let whole = format!("{name}.");
    let question = spawn_blocking(move || {
        let found = getaddrinfo(Some(&whole), None, Some(hints)).map_err(|error| {
            let is_none = matches!(error.kind(), LookupErrorKind::NoName | LookupErrorKind::NoData);
            let why = std::io::Error::from(error).to_string().into();
            if is_none { NoAddresses::None(why) } else { NoAddresses::Unknown(why) }
        })?;
        let addresses = found.filter_map(Result::ok).map(|info| info.sockaddr.ip().to_canonical());
        Ok(addresses.filter(|address| Family::of(address) == family).collect())
    });
    match timeout(PATIENCE, question).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(panic)) => std::panic::resume_unwind(panic.into_panic()),
        Err(_) => Err(NoAddresses::Unknown(format!("no answer within {PATIENCE:?}").into())),
    }
}

#[cfg(test)]
mod tests;
