//! The leader elector of one Lease: tries to acquire it, renews it until that fails for too long,
//! and releases it.

use std::{pin::pin, time::Duration};

use contract::backoff::{self, Backoff};
use futures_util::TryStreamExt;
use k8s_openapi::{
    api::coordination::v1::Lease, api::core::v1::Namespace,
    apimachinery::pkg::apis::meta::v1::ObjectMeta, jiff::Timestamp,
};
use kube::{
    Api,
    api::{PostParams, WatchParams},
    core::WatchEvent,
};
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, sleep, sleep_until, timeout_at},
};

use super::{
    ElectionConfig, Leadership, Lost, State,
    moment::Moment,
    observed_record::{ObservedRecord, Verdict},
    record::Record,
};
use crate::{
    connection::Connection,
    metrics::Metrics,
    trouble::{Kind, Trouble},
};

/// How long the API server may take for one answer. A leader that renews every 26 s and must
/// succeed within 107 s has several attempts before its deadline. With a tenth of this, a busy API
/// server's answers would be dropped; with ten times as much, one lost answer would cost
/// leadership.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns when leadership is lost or the Lease is released. `before`: the leadership over what
/// comes first, without which the Lease is not taken: other Leases, or that the process is ready.
/// `metrics`: only for the Lease that comes last.
pub(super) async fn run(
    api: Connection,
    candidate: ElectionConfig,
    before: Leadership,
    metrics: Option<Metrics>,
    state: watch::Sender<State>,
    mut stopped: oneshot::Receiver<Instant>,
) -> Lost {
    let leases = Api::namespaced(api.client().clone(), &candidate.namespace);
    let mut task =
        LeaseTask { leases, api, candidate, before: before.clone(), metrics, state, said: None };
    let mut held = tokio::select! {
        held = task.win() => held,
        _ = &mut stopped => return Lost::Stopped,
    };
    // Biased: a clean stop takes precedence over the loss of a Lease, so that the Lease is
    // released.
    let deadline = tokio::select! {
        biased;
        deadline = &mut stopped => deadline,
        () = before.lost() => {
            task.ended();
            // The task of that Lease reports the reason. This one keeps the handle to its own Lease
            // for the release.
            stopped.await
        }
        lost = task.keep(&mut held) => {
            task.ended();
            return lost;
        }
    };
    // Stop leading first: the next leader may write as soon as the Lease is free.
    task.ended();
    if let Ok(deadline) = deadline {
        task.release(held, deadline).await;
    }
    Lost::Stopped
}

struct LeaseTask {
    api: Connection,
    leases: Api<Lease>,
    candidate: ElectionConfig,
    /// The leadership over the Leases that come first.
    before: Leadership,
    metrics: Option<Metrics>,
    state: watch::Sender<State>,
    /// The last reason for waiting that was logged, to log each one once.
    said: Option<String>,
}

/// A held Lease: the object as this process last wrote it, and until when it leads.
struct HeldLease {
    lease: Lease,
    until: Moment,
}

impl LeaseTask {
    async fn win(&mut self) -> HeldLease {
        let mut observed = None;
        let mut backoff = Backoff::default();
        loop {
            // Read before the attempt, so that a change after this point ends the wait below.
            let mark = self.candidate.own_lease.mark().cloned();
            let has_others = self.before.is_leader();
            match self.attempt(&mut observed).await {
                Ok(Attempt::Won(held)) => {
                    let (lease, identity) = (&self.candidate, &self.candidate.identity);
                    match self.metrics {
                        Some(_) => tracing::info!(%lease, identity, "this process leads"),
                        None => {
                            tracing::info!(%lease, identity, "this process has the first of its leases")
                        }
                    }
                    self.lead(held.until);
                    return *held;
                }
                Ok(Attempt::Waits { holder, version, free_at }) => {
                    backoff.reset();
                    let mut what = format!("{holder} holds the lease {}", self.candidate);
                    // This process blocks other candidates for the first Lease and cannot lead
                    // itself, so it is not a mere standby.
                    let stuck = has_others && self.before.is_elected();
                    if stuck {
                        what.push_str(
                            ", and this process the one that comes first: no process has both",
                        );
                    }
                    self.wait_for(
                        what,
                        if stuck { Candidate::Hindered } else { Candidate::Standby },
                    );
                    let next = self.next_attempt();
                    tokio::select! {
                        () = sleep_until(next.min(free_at)) => {}
                        () = self.written(&version) => {}
                        () = self.candidate.own_lease.learns(mark.as_ref()) => {}
                        () = self.before.won(), if !has_others => {}
                    }
                }
                Ok(Attempt::Free { version }) => {
                    backoff.reset();
                    if let Some(why) = self.before.waits_for().filter(|_| !self.before.is_elected())
                    {
                        let what =
                            format!("it does not take the lease {} yet: {why}", self.candidate);
                        self.wait_for(what, Candidate::Hindered);
                    }
                    let next = self.next_attempt();
                    tokio::select! {
                        () = sleep_until(next) => {}
                        () = self.written(&version) => {}
                        () = self.before.won() => {}
                    }
                }
                Err(trouble) => {
                    let retry_after = trouble.retry_after;
                    self.wait_for(
                        format!("the lease {} cannot be acquired: {trouble}", self.candidate),
                        Candidate::Hindered,
                    );
                    sleep(backoff.next(retry_after)).await;
                }
            }
        }
    }

    fn next_attempt(&self) -> Instant {
        Instant::now() + backoff::a_fifth_more(self.candidate.durations.retry())
    }

    async fn attempt(&self, observed: &mut Option<ObservedRecord>) -> Result<Attempt, Trouble> {
        let found = self.read().await?;
        let now = Instant::now();
        // A Lease that was seen and then deleted is not free: its holder may not have noticed yet
        // and still lead. The time counts on from when it was last seen.
        if let Some(lease) = &found {
            *observed = Some(ObservedRecord::next(observed.take(), Record::of(lease), now));
        }
        let version = |found: Option<Lease>| {
            found.and_then(|lease| lease.metadata.resource_version).unwrap_or_default()
        };
        match observed
            .as_ref()
            .map_or(Verdict::Take, |observed| observed.verdict(&self.candidate, now))
        {
            Verdict::Take if !self.before.is_leader() => {
                Ok(Attempt::Free { version: version(found) })
            }
            Verdict::Take => {
                self.take(found.as_ref()).await.map(|held| Attempt::Won(Box::new(held)))
            }
            Verdict::WaitUntil(free_at) => Ok(Attempt::Waits {
                holder: observed
                    .as_ref()
                    .and_then(|observed| observed.holder())
                    .unwrap_or_default()
                    .to_owned(),
                version: version(found),
                free_at,
            }),
        }
    }

    async fn read(&self) -> Result<Option<Lease>, Trouble> {
        match self.api.ask(PATIENCE, self.leases.get(&self.candidate.lease)).await {
            Ok(lease) => Ok(Some(lease)),
            Err(Trouble { code: Some(404), .. }) => Ok(None),
            Err(trouble) => Err(trouble),
        }
    }

    async fn take(&self, over: Option<&Lease>) -> Result<HeldLease, Trouble> {
        let record =
            Record::taken(&self.candidate, over.map(Record::of).as_ref(), Timestamp::now());
        // Before the request: other processes count from when the API server has written the Lease,
        // which is later.
        let asked = Moment::now();
        let lease = record.lease(&self.candidate, over);
        let lease = match over {
            Some(_) => self.replace(&lease).await?,
            None => self.create(&lease).await?,
        };
        Ok(HeldLease { lease, until: asked.after(self.candidate.durations.renew()) })
    }

    /// Fails (409) if another client has written the Lease since it was read: the object carries
    /// its `resourceVersion`.
    async fn replace(&self, lease: &Lease) -> Result<Lease, Trouble> {
        self.api
            .ask(
                PATIENCE,
                self.leases.replace(&self.candidate.lease, &PostParams::default(), lease),
            )
            .await
    }

    async fn create(&self, lease: &Lease) -> Result<Lease, Trouble> {
        let post = PostParams::default();
        match self.api.ask(PATIENCE, self.leases.create(&post, lease)).await {
            // The creation of a Lease answers 404 if its namespace is missing, or there are no
            // Leases.
            Err(Trouble { code: Some(404), .. }) => {}
            answer => return answer,
        }
        let name = &self.candidate.namespace;
        let namespace = Namespace {
            metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
            ..Namespace::default()
        };
        match self
            .api
            .ask(PATIENCE, Api::all(self.api.client().clone()).create(&post, &namespace))
            .await
        {
            Ok(_) => tracing::info!(namespace = name, "created the namespace of the lease"),
            Err(Trouble { code: Some(409), .. }) => {}
            Err(trouble) => {
                let text = format!(
                    "its namespace is missing and cannot be created ({trouble}): \
                     kubectl create namespace {name}"
                );
                return Err(Trouble { text, ..trouble });
            }
        }
        self.api.ask(PATIENCE, self.leases.create(&post, lease)).await.map_err(|trouble| match trouble.code {
            // Its namespace is there by now.
            Some(404) => {
                let text = format!(
                    "this API server has no Leases (coordination.k8s.io/v1), which Kubernetes has since 1.14; \
                     --ha-election=false does without: {trouble}"
                );
                Trouble { text, ..trouble }
            }
            _ => trouble,
        })
    }

    /// Returns when the Lease is written again. Its holder has released it, or has renewed it: its
    /// time then counts from that moment and not from the next attempt. Without the right to watch
    /// this never returns, and the next attempt finds the change.
    async fn written(&self, version: &str) {
        let params =
            WatchParams::default().fields(&format!("metadata.name={}", self.candidate.lease));
        if let Ok(events) = self.leases.watch(&params, version).await {
            let mut events = pin!(events);
            while let Ok(Some(event)) = events.try_next().await {
                match event {
                    WatchEvent::Added(_) | WatchEvent::Modified(_) => return,
                    // A deleted Lease is not free at once (see `attempt`), so there is nothing to
                    // gain from an early attempt.
                    WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => {}
                    WatchEvent::Error(_) => break,
                }
            }
        }
        std::future::pending().await
    }

    /// Renews until that fails for too long. Returns why leadership is lost.
    async fn keep(&self, held: &mut HeldLease) -> Lost {
        let durations = self.candidate.durations;
        let mut backoff = Backoff::default();
        let mut next = held.until.clock - durations.renew() + durations.retry();
        let mut problem = "no renewal was sent in time".to_owned();
        loop {
            sleep_until(next.min(held.until.clock)).await;
            // Check after each sleep: the process may have been stopped, or the machine suspended,
            // past the deadline.
            if held.until.has_passed() {
                return Lost::Late {
                    lease: self.candidate.to_string(),
                    deadline: durations.renew(),
                    problem,
                };
            }
            // Before the request, as in `take`: a slow answer must not prolong leadership.
            let asked = Moment::now();
            let renewed = Record::of(&held.lease)
                .renewed(Timestamp::now())
                .lease(&self.candidate, Some(&held.lease));
            let answer =
                timeout_at(held.until.clock, self.replace(&renewed)).await.unwrap_or_else(|_| {
                    Err(Trouble::without_answer(
                        Kind::Unavailable,
                        "the API server did not answer in time".to_owned(),
                    ))
                });
            match answer {
                Ok(lease) => {
                    *held = HeldLease { lease, until: asked.after(durations.renew()) };
                    self.lead(held.until);
                    backoff.reset();
                    next = asked.clock + durations.retry();
                }
                Err(trouble) => {
                    // Either another client wrote or deleted the Lease, or the answer to an earlier
                    // renewal was lost.
                    if matches!(trouble.code, Some(404 | 409))
                        && let Some(lost) = self.look(held).await
                    {
                        return lost;
                    }
                    if problem != trouble.text {
                        tracing::warn!(
                            lease = %self.candidate,
                            problem = %trouble,
                            "the lease is not renewed yet"
                        );
                    }
                    next = Instant::now() + backoff.next(trouble.retry_after);
                    problem = trouble.text;
                }
            }
        }
    }

    /// Checks, after a conflict, which client wrote the Lease: another one, or this process with a
    /// request whose answer was lost. Returns the loss in the former case, and takes over the new
    /// version in the latter.
    async fn look(&self, held: &mut HeldLease) -> Option<Lost> {
        let found = timeout_at(held.until.clock, self.read()).await.ok()?.ok()?;
        let taken =
            |holder: String| Some(Lost::Taken { lease: self.candidate.to_string(), holder });
        match found {
            Some(lease) if Record::of(&lease).is_reign_of(&Record::of(&held.lease)) => {
                held.lease = lease;
                None
            }
            Some(lease) => taken(match Record::of(&lease).holder {
                Some(holder) if holder == self.candidate.identity => {
                    format!("another process that calls itself {holder}")
                }
                Some(holder) => holder,
                None => "a process that released it".to_owned(),
            }),
            None => taken("a client that deleted it".to_owned()),
        }
    }

    async fn release(&self, mut held: HeldLease, deadline: Instant) {
        let mut backoff = Backoff::default();
        // After `until` another process may hold the Lease: it is not released any more.
        while Instant::now() < held.until.clock.min(deadline) {
            let released = Record::of(&held.lease)
                .released(Timestamp::now())
                .lease(&self.candidate, Some(&held.lease));
            match timeout_at(deadline, self.replace(&released)).await {
                Ok(Ok(_)) => return tracing::info!(lease = %self.candidate, "released the lease"),
                Ok(Err(trouble)) => {
                    // A renewal that was under way may have arrived first. A Lease of another
                    // process is left alone.
                    let look = timeout_at(deadline, self.look(&mut held));
                    if trouble.code == Some(409) && matches!(look.await, Ok(Some(_))) {
                        return;
                    }
                    tracing::debug!(
                        lease = %self.candidate,
                        problem = %trouble,
                        "the lease is not released yet"
                    );
                    let _ = timeout_at(deadline, sleep(backoff.next(None))).await;
                }
                Err(_) => break,
            }
        }
        tracing::warn!(
            lease = %self.candidate,
            "the lease could not be released: other processes wait until it expires"
        );
    }

    fn lead(&self, until: Moment) {
        self.metrics.iter().for_each(|metrics| metrics.leads());
        self.state.send_replace(State::Leading { until: Some(until) });
    }

    fn wait_for(&mut self, what: String, candidate: Candidate) {
        let stands_by = candidate == Candidate::Standby;
        if self.said.as_ref() != Some(&what) {
            tracing::info!(waits_for = what, "this process does not lead yet");
            self.state.send_replace(State::Waiting { what: what.clone(), stands_by });
        }
        self.said = Some(what);
    }

    fn ended(&self) {
        self.metrics.iter().for_each(|metrics| metrics.leads_no_more());
        self.state.send_replace(State::Over);
    }
}

/// A process that does not lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Candidate {
    /// Another process leads, as it should be.
    Standby,
    Hindered,
}

/// The outcome of an attempt to acquire the Lease.
enum Attempt {
    Won(Box<HeldLease>),
    Waits {
        holder: String,
        version: String,
        free_at: Instant,
    },
    /// The Lease is free, and is taken once the Leases before it are held.
    Free {
        version: String,
    },
}

impl Drop for LeaseTask {
    /// Whichever way the task ends, also when it is aborted, no clone may report leadership
    /// afterwards.
    fn drop(&mut self) {
        self.ended();
    }
}
