//! Another tenant, who must not notice a row: pods on two nodes that exchange packets, a pod that a
//! policy closes to everybody, and new pods.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use integration::{
    Pod,
    connections::{Connections, Server},
    matrix::Findings,
    peer::{Echoes, Pace},
    tenants,
    traffic::{End, Flow},
};
use serde_json::json;

use crate::tenants::{
    site::{Site, Traffic},
    watch::{Seen, Watch},
};

/// Its namespace.
pub(crate) const NAMESPACE: &str = "bystander";
/// The port on which its pods answer.
pub(crate) const PORT: u16 = 8080;
/// What a busy machine adds to twice the time of a new pod, and beside other labs.
const BUSY: [Duration; 2] = [Duration::from_millis(700), Duration::from_secs(4)];
/// New pods whose best time counts.
const TRIES: usize = 3;
/// How long the northbound database's server may be silent, and beside other labs.
const SILENT: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3)];
/// How long its connection may be without an answer, where other labs run beside it.
const GAP: Duration = Duration::from_secs(1);
/// Kilobytes that a control plane of a few objects may take besides twice its memory.
const SMALL: u64 = 32 * 1024;

/// Its pods.
pub(crate) struct Bystander {
    /// On the first node.
    pub(crate) here: Pod,
    /// On the second one.
    pub(crate) there: Pod,
    /// On the first node; a policy lets nobody in.
    pub(crate) closed: Pod,
    /// What a new pod takes when nobody disturbs.
    alone: Duration,
    _servers: Vec<Server>,
}

/// One row's time, as the bystander sees it.
pub(crate) struct Observed {
    flow: Flow,
    intruder: Connections,
    watch: Watch,
    memory: u64,
}

impl Bystander {
    pub(crate) fn start(site: &Site<'_>) -> Result<Self> {
        let [here, there, closed] = [("here", 0), ("there", 1), ("closed", 0)]
            .map(|(name, node)| site.attached(NAMESPACE, name, node));
        let (here, there, closed) = (here?, there?, closed?);
        let servers = [&here, &there, &closed].map(|pod| site.answering(pod, PORT));
        site.put(&json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"namespace": NAMESPACE, "name": "closed"},
            "spec": {"podSelector": {"matchLabels": {"name": "closed"}}, "policyTypes": ["Ingress"]},
        }))?;
        site.is_closed(&End::Pod(&here), &[SocketAddr::new(closed.address(), PORT)])?;
        let mut alone = Duration::MAX;
        for number in 0..TRIES {
            alone = alone.min(new_pod(site, &here, &format!("alone-{number}"))?);
        }
        let servers = servers.into_iter().collect::<Result<Vec<Server>>>()?;
        Ok(Self { here, there, closed, alone, _servers: servers })
    }

    /// Where its open pod on the second node answers.
    pub(crate) fn open(&self) -> SocketAddr {
        SocketAddr::new(self.there.address(), PORT)
    }

    /// Where its closed pod would answer.
    pub(crate) fn shut(&self) -> SocketAddr {
        SocketAddr::new(self.closed.address(), PORT)
    }

    /// Looks from now on.
    pub(crate) fn observe(&self, site: &Site<'_>) -> Result<Observed> {
        let pace = Pace { every: Duration::from_millis(200), patience: Duration::from_millis(500) };
        let control_plane = site.control_plane().running_pid()?;
        Ok(Observed {
            flow: site.lab.flow(&self.here, &self.there)?,
            intruder: site.lab.connections(&self.there, self.shut(), pace)?,
            memory: integration::faults::process::Held::by(control_plane)?.memory,
            watch: Watch::begin(control_plane),
        })
    }

    /// What was seen since [`Bystander::observe`], in words; what it should not have noticed goes
    /// to `findings`.
    pub(crate) fn judge(
        &self,
        site: &Site<'_>,
        seen: Observed,
        findings: &mut Findings,
    ) -> Result<String> {
        let Observed { flow, intruder, watch, memory } = seen;
        let limit = 2 * self.alone + of_form(BUSY);
        let pod = self.quickest(site, limit);
        findings.note("a new pod", in_time(&pod, limit));
        let echoes = flow.stop()?;
        let lost = echoes.sent.saturating_sub(echoes.received);
        if site.traffic() == Traffic::GoesOn {
            findings.note("a running connection", nothing_lost(&echoes));
        }
        let entered = intruder.all().iter().filter(|connection| connection.by.is_some()).count();
        findings.note("a policy that closes", no_entry(entered));
        let Seen { silence, memory: most } = watch.end().context("watch the control plane")?;
        findings.note("the northbound database", answers(silence));
        findings.note("the control plane", in_bounds(memory, most));
        let pod = pod.map_or_else(|_| "none".to_owned(), |time| format!("{time:.2?}"));
        Ok(format!(
            "{lost} of {} packets lost, {entered} entries, new pod {pod} (alone {:.2?}), database silent {silence:.2?} at most, \
             control plane {} MB (before {} MB)",
            echoes.sent,
            self.alone,
            most / 1024,
            memory / 1024
        ))
    }

    fn quickest(&self, site: &Site<'_>, limit: Duration) -> Result<Duration> {
        let mut best = Duration::MAX;
        for number in 0..TRIES {
            best = best.min(new_pod(site, &self.here, &format!("new-{number}"))?);
            if best <= limit {
                break;
            }
        }
        Ok(best)
    }
}

/// Of a limit with a wider one for `make test`, where six labs run at once.
fn of_form([alone, beside_others]: [Duration; 2]) -> Duration {
    if tenants::long_forms() { alone } else { beside_others }
}

fn in_time(took: &Result<Duration>, limit: Duration) -> Result<()> {
    match took {
        Ok(took) => ensure!(*took <= limit, "{took:.2?} instead of {limit:.2?} at most"),
        Err(error) => bail!("{error:#}"),
    }
    Ok(())
}

fn nothing_lost(echoes: &Echoes) -> Result<()> {
    let lost: Vec<String> = echoes.lost.iter().map(ToString::to_string).collect();
    if tenants::long_forms() {
        ensure!(lost.is_empty(), "of {} packets were lost {}", echoes.sent, lost.join(", "));
    }
    // Beside other labs a packet is lost now and then, whatever a row does; but none for long.
    ensure!(
        lost.is_empty() || echoes.silence() <= GAP,
        "{:.2?} without an answer; lost {}",
        echoes.silence(),
        lost.join(", ")
    );
    Ok(())
}

fn no_entry(entered: usize) -> Result<()> {
    ensure!(entered == 0, "{entered} connections were let in");
    Ok(())
}

fn answers(silence: Duration) -> Result<()> {
    ensure!(silence <= of_form(SILENT), "silent for {silence:.2?}");
    Ok(())
}

fn in_bounds(before: u64, most: u64) -> Result<()> {
    ensure!(most <= 2 * before + SMALL, "it had {most} kB at most, and {before} kB before");
    Ok(())
}

/// From the object of a new pod on the first node to its first answer from another one.
fn new_pod(site: &Site<'_>, other: &Pod, name: &str) -> Result<Duration> {
    let object = site.pod_object(NAMESPACE, name, 0);
    let began = Instant::now();
    let created = site.objects.put(&object)?;
    let pod = site.attach(&created);
    let reached = pod.as_ref().map_or(Ok(()), |pod| site.lab.ping(pod, other.address()));
    let took = began.elapsed();
    if let Ok(pod) = &pod {
        site.detach(pod)?;
    }
    site.objects.remove(&object)?;
    pod.and(reached.map(|()| took))
}
