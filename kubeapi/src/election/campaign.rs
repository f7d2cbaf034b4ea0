//! Asks for the Lease until it has it, then renews it until it cannot.

use std::{pin::pin, time::Duration};

use contract::backoff::{self, Backoff};
use futures_util::TryStreamExt;
use k8s_openapi::{api::coordination::v1::Lease, api::core::v1::Namespace, apimachinery::pkg::apis::meta::v1::ObjectMeta, jiff::Timestamp};
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
    Candidate, Leadership, Lost, State,
    moment::Moment,
    record::Record,
    sight::{Sight, Verdict},
};
use crate::{
    connection::Connection,
    metrics::Metrics,
    trouble::{Kind, Trouble},
};

/// How long the API server may take for one answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Ends when leadership was lost or given up. `before`: over the Leases that come first. `metrics`: of the Lease that comes last.
pub(super) async fn run(
    api: Connection,
    candidate: Candidate,
    before: Option<Leadership>,
    metrics: Option<Metrics>,
    state: watch::Sender<State>,
    mut stopped: oneshot::Receiver<Instant>,
) -> Lost {
    let leases = Api::namespaced(api.client().clone(), &candidate.namespace);
    let before = before.unwrap_or_else(Leadership::always);
    let mut campaign = Campaign { leases, api, candidate, before: before.clone(), metrics, state, said: None };
    let mut reign = tokio::select! {
        reign = campaign.win() => reign,
        _ = &mut stopped => return Lost::Stopped,
    };
    let deadline = tokio::select! {
        biased;
        deadline = &mut stopped => deadline,
        () = before.lost() => {
            campaign.ended();
            // Why, the campaign for that Lease says.
            stopped.await
        }
        lost = campaign.keep(&mut reign) => {
            campaign.ended();
            return lost;
        }
    };
    campaign.ended();
    if let Ok(deadline) = deadline {
        campaign.release(reign, deadline).await;
    }
    Lost::Stopped
}

struct Campaign {
    api: Connection,
    leases: Api<Lease>,
    candidate: Candidate,
    /// Whether this process has the Leases that come first.
    before: Leadership,
    metrics: Option<Metrics>,
    state: watch::Sender<State>,
    /// What was last said to be waited for.
    said: Option<String>,
}

/// The Lease as this process wrote it, and until when it leads.
struct Reign {
    lease: Lease,
    until: Moment,
}

impl Campaign {
    async fn win(&mut self) -> Reign {
        let mut sight = None;
        let mut backoff = Backoff::default();
        loop {
            let mark = self.candidate.own_lease.mark().cloned();
            let has_others = self.before.is_leader();
            match self.attempt(&mut sight).await {
                Ok(Attempt::Won(reign)) => {
                    let identity = &self.candidate.identity;
                    match self.metrics {
                        Some(_) => tracing::info!(lease = %self.candidate, identity, "this process leads"),
                        None => tracing::info!(lease = %self.candidate, identity, "this process has the first of its leases"),
                    }
                    self.lead(reign.until);
                    return *reign;
                }
                Ok(Attempt::Waits { holder, version, free_at }) => {
                    backoff.reset();
                    let mut what = format!("{holder} holds the lease {}", self.candidate);
                    // It keeps others from leading, and cannot lead: no mere standby.
                    let stuck = has_others && self.before.is_elected();
                    if stuck {
                        what.push_str(", and this process the one that comes first: nobody has both");
                    }
                    self.wait_for(what, !stuck);
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
                    let next = self.next_attempt();
                    tokio::select! {
                        () = sleep_until(next) => {}
                        () = self.written(&version) => {}
                        () = self.before.won() => {}
                    }
                }
                Err(trouble) => {
                    let retry_after = trouble.retry_after;
                    self.wait_for(format!("the lease {} cannot be had: {trouble}", self.candidate), false);
                    sleep(backoff.next(retry_after)).await;
                }
            }
        }
    }

    fn next_attempt(&self) -> Instant {
        Instant::now() + backoff::a_fifth_more(self.candidate.durations.retry())
    }

    async fn attempt(&self, sight: &mut Option<Sight>) -> Result<Attempt, Trouble> {
        let found = self.read().await?;
        let now = Instant::now();
        // One that was deleted may still be led by: its holder does not know yet.
        if let Some(lease) = &found {
            *sight = Some(Sight::next(sight.take(), Record::of(lease), now));
        }
        let version = |found: Option<Lease>| found.and_then(|lease| lease.metadata.resource_version).unwrap_or_default();
        match sight.as_ref().map_or(Verdict::Take, |sight| sight.verdict(&self.candidate, now)) {
            Verdict::Take if !self.before.is_leader() => Ok(Attempt::Free { version: version(found) }),
            Verdict::Take => self.take(found.as_ref()).await.map(|reign| Attempt::Won(Box::new(reign))),
            Verdict::WaitUntil(free_at) => Ok(Attempt::Waits {
                holder: sight.as_ref().and_then(|sight| sight.holder()).unwrap_or_default().to_owned(),
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

    async fn take(&self, over: Option<&Lease>) -> Result<Reign, Trouble> {
        let record = Record::taken(&self.candidate, over.map(Record::of).as_ref(), Timestamp::now());
        let asked = Moment::now();
        let lease = record.lease(&self.candidate, over);
        let lease = match over {
            Some(_) => self.replace(&lease).await?,
            None => self.create(&lease).await?,
        };
        Ok(Reign { lease, until: asked.after(self.candidate.durations.renew()) })
    }

    /// Fails if somebody else has written it since it was read.
    async fn replace(&self, lease: &Lease) -> Result<Lease, Trouble> {
        self.api.ask(PATIENCE, self.leases.replace(&self.candidate.lease, &PostParams::default(), lease)).await
    }

    async fn create(&self, lease: &Lease) -> Result<Lease, Trouble> {
        let post = PostParams::default();
        match self.api.ask(PATIENCE, self.leases.create(&post, lease)).await {
            // Of a Lease that is to be created, only the namespace can be missing.
            Err(Trouble { code: Some(404), .. }) => {}
            answer => return answer,
        }
        let name = &self.candidate.namespace;
        let namespace = Namespace { metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() }, ..Namespace::default() };
        match self.api.ask(PATIENCE, Api::all(self.api.client().clone()).create(&post, &namespace)).await {
            Ok(_) => tracing::info!(namespace = name, "created the namespace of the lease"),
            Err(Trouble { code: Some(409), .. }) => {}
            Err(trouble) => {
                let text = format!("its namespace is missing and cannot be created ({trouble}): kubectl create namespace {name}");
                return Err(Trouble { text, ..trouble });
            }
        }
        self.api.ask(PATIENCE, self.leases.create(&post, lease)).await
    }

    /// Returns when the Lease is written again: its holder has let go of it, or has renewed it, and its time counts from now on and not from
    /// the next attempt. Without the right to watch, that will tell.
    async fn written(&self, version: &str) {
        let params = WatchParams::default().fields(&format!("metadata.name={}", self.candidate.lease));
        if let Ok(events) = self.leases.watch(&params, version).await {
            let mut events = pin!(events);
            while let Ok(Some(event)) = events.try_next().await {
                match event {
                    WatchEvent::Added(_) | WatchEvent::Modified(_) => return,
                    WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => {}
                    WatchEvent::Error(_) => break,
                }
            }
        }
        std::future::pending().await
    }

    /// Renews until that fails for too long.
    async fn keep(&self, reign: &mut Reign) -> Lost {
        let durations = self.candidate.durations;
        let mut backoff = Backoff::default();
        let mut next = reign.until.clock - durations.renew() + durations.retry();
        let mut problem = "nothing was asked in time".to_owned();
        loop {
            sleep_until(next.min(reign.until.clock)).await;
            if reign.until.has_passed() {
                return Lost::Late { lease: self.candidate.to_string(), deadline: durations.renew(), problem };
            }
            let asked = Moment::now();
            let renewed = Record::of(&reign.lease).renewed(Timestamp::now()).lease(&self.candidate, Some(&reign.lease));
            let answer = timeout_at(reign.until.clock, self.replace(&renewed))
                .await
                .unwrap_or_else(|_| Err(Trouble::without_answer(Kind::Unavailable, "the API server did not answer in time".to_owned())));
            match answer {
                Ok(lease) => {
                    *reign = Reign { lease, until: asked.after(durations.renew()) };
                    self.lead(reign.until);
                    backoff.reset();
                    next = asked.clock + durations.retry();
                }
                Err(trouble) => {
                    if matches!(trouble.code, Some(404 | 409))
                        && let Some(lost) = self.look(reign).await
                    {
                        return lost;
                    }
                    if problem != trouble.text {
                        tracing::warn!(lease = %self.candidate, problem = %trouble, "the lease is not renewed yet");
                    }
                    next = Instant::now() + backoff.next(trouble.retry_after);
                    problem = trouble.text;
                }
            }
        }
    }

    /// Somebody has written the Lease, perhaps this process with a request whose answer was lost.
    async fn look(&self, reign: &mut Reign) -> Option<Lost> {
        let found = timeout_at(reign.until.clock, self.read()).await.ok()?.ok()?;
        let taken = |holder: String| Some(Lost::Taken { lease: self.candidate.to_string(), holder });
        match found {
            Some(lease) if Record::of(&lease).is_reign_of(&Record::of(&reign.lease)) => {
                reign.lease = lease;
                None
            }
            Some(lease) => taken(match Record::of(&lease).holder {
                Some(holder) if holder == self.candidate.identity => format!("another process that calls itself {holder}"),
                Some(holder) => holder,
                None => "somebody who let go of it".to_owned(),
            }),
            None => taken("somebody who deleted it".to_owned()),
        }
    }

    async fn release(&self, mut reign: Reign, deadline: Instant) {
        let mut backoff = Backoff::default();
        while Instant::now() < reign.until.clock.min(deadline) {
            let released = Record::of(&reign.lease).released(Timestamp::now()).lease(&self.candidate, Some(&reign.lease));
            match timeout_at(deadline, self.replace(&released)).await {
                Ok(Ok(_)) => return tracing::info!(lease = %self.candidate, "the lease is given up"),
                Ok(Err(trouble)) => {
                    if trouble.code == Some(409) && self.look(&mut reign).await.is_some() {
                        return;
                    }
                    tracing::debug!(lease = %self.candidate, problem = %trouble, "the lease is not given up yet");
                    let _ = timeout_at(deadline, sleep(backoff.next(None))).await;
                }
                Err(_) => break,
            }
        }
        tracing::warn!(lease = %self.candidate, "the lease could not be given up: others have to wait until it runs out");
    }

    fn lead(&self, until: Moment) {
        self.metrics.iter().for_each(|metrics| metrics.leads(true));
        self.state.send_replace(State::Leading { until: Some(until) });
    }

    fn wait_for(&mut self, what: String, stands_by: bool) {
        if self.said.as_ref() != Some(&what) {
            tracing::info!(waits_for = what, "this process does not lead yet");
            self.state.send_replace(State::Waiting { what: what.clone(), stands_by });
        }
        self.said = Some(what);
    }

    fn ended(&self) {
        self.metrics.iter().for_each(|metrics| metrics.leads(false));
        self.state.send_replace(State::Over);
    }
}

/// What came of asking for the Lease.
enum Attempt {
    Won(Box<Reign>),
    Waits {
        holder: String,
        version: String,
        free_at: Instant,
    },
    /// Nobody has it, and it is taken once those before it are had.
    Free {
        version: String,
    },
}

impl Drop for Campaign {
    /// However it ends, nobody may believe to lead afterwards.
    fn drop(&mut self) {
        self.ended();
    }
}
