//! Where a fault happens: one node, its server, two pods that exchange packets all the time, and
//! the vocabulary in which the tests of rows are written.

use std::{
    slice,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;

use crate::{
    CniError, Lab, Node, Outcome, Pod, Runtime, eventually, peer::Echoes, runtime::Running,
};

/// Time limit for a call that should not wait at all: it takes some 20 ms, and a hundred times as
/// long on a machine with a load of 30.
pub const AT_ONCE: Duration = Duration::from_secs(2);
/// How long programs of a busy machine may need to notice something, one after the other.
pub const SHORTLY: Duration = Duration::from_secs(5);
/// What an ADD may take once nothing is missing any more (rows 22 and 29).
const PROMPT: Duration = Duration::from_millis(50);
/// The same with whatever else the machine does meanwhile.
const PROMPT_BESIDE_OTHERS: Duration = Duration::from_secs(1);
/// How long daemons that came back may take until they are connected to each other.
const RECOVERY: Duration = Duration::from_secs(20);

/// The site of a fault. Tests do not clean up the pods of a site; [`super::Case`] does.
#[derive(Debug)]
pub struct Site<'lab> {
    /// The whole lab.
    pub lab: &'lab Lab,
    /// Its first node, with its server running.
    pub node: &'lab Node,
    /// Attached before the fault, and exchanging packets until everything is over.
    pub bystanders: [Pod; 2],
    sandboxes: Mutex<Vec<Pod>>,
}

impl<'lab> Site<'lab> {
    /// Starts the node's server if it does not run, attaches the two bystanders, and waits until
    /// STATUS succeeds and they reach each other.
    pub(super) fn prepare(lab: &'lab Lab) -> Result<Self> {
        let node = lab.node_with_server()?;
        let bystanders = [lab.attached_pod(node)?, lab.attached_pod(node)?];
        let site = Self { lab, node, bystanders, sandboxes: Mutex::default() };
        site.until_healthy()?;
        site.bystanders_reach_each_other()?;
        Ok(site)
    }

    // --- Pods ---

    /// A pod as it is before its ADD.
    pub fn new_pod(&self) -> Result<Pod> {
        Ok(self.new_pods(1)?.remove(0))
    }

    /// Many of them.
    pub fn new_pods(&self, count: usize) -> Result<Vec<Pod>> {
        let pods = self.lab.new_pods(self.node, count)?;
        pods.iter().for_each(|pod| self.remember(pod));
        Ok(pods)
    }

    /// A new pod without its annotation; [`Node::write_manifest`] adds it.
    pub fn new_pod_without_annotation(&self) -> Result<Pod> {
        let pod = self.lab.plan_pod(self.node);
        self.remember(&pod);
        self.lab.add_ports(slice::from_ref(&pod))?;
        self.node.add_namespaces(slice::from_ref(&pod))?;
        self.node.write_manifest_text(&pod, &pod.manifest(None))?;
        Ok(pod)
    }

    /// An attached pod whose network has been checked.
    pub fn attached_pod(&self) -> Result<Pod> {
        let pod = self.new_pod()?;
        self.add(&pod)?.success()?;
        self.has_network(&pod)?;
        Ok(pod)
    }

    /// Creates the namespace of another sandbox of a pod, or of a pod that a test made itself. It
    /// is cleaned up like the others.
    pub fn adopt(&self, pod: Pod) -> Result<Pod> {
        self.node.add_namespaces(slice::from_ref(&pod))?;
        self.remember(&pod);
        Ok(pod)
    }

    fn remember(&self, pod: &Pod) {
        self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner).push(pod.clone());
    }

    // --- Calls ---

    /// ADD with the default deadline.
    pub fn add(&self, pod: &Pod) -> Result<Outcome> {
        self.node.runtime().add(pod)
    }

    /// ADD with a deadline of that many seconds.
    pub fn add_within(&self, seconds: u64, pod: &Pod) -> Result<Outcome> {
        self.patient_for(seconds).add(pod)
    }

    /// Starts an ADD with a deadline of that many seconds.
    pub fn start_add_within(&self, seconds: u64, pod: &Pod) -> Result<Running> {
        self.patient_for(seconds).call("ADD", Some(pod)).start()
    }

    /// Starts an ADD of each, with the default deadline.
    pub fn start_adds(&self, pods: &[Pod]) -> Result<Vec<Running>> {
        pods.iter().map(|pod| self.node.runtime().call("ADD", Some(pod)).start()).collect()
    }

    /// DEL.
    pub fn del(&self, pod: &Pod) -> Result<Outcome> {
        self.node.runtime().del(pod)
    }

    /// A runtime whose ADDs have that many seconds.
    pub fn patient_for(&self, seconds: u64) -> Runtime<'lab> {
        self.node.runtime().with("timeoutSeconds", json!(seconds))
    }

    // --- What is seen ---

    /// Checks that the ADD of `pod` failed with this code, with all `words` in its message and a
    /// hint what to look at next, and left nothing.
    pub fn failed(
        &self,
        pod: &Pod,
        outcome: &Outcome,
        code: u32,
        words: &[&str],
    ) -> Result<CniError> {
        let error = failed_with(outcome, code, words)?;
        self.nothing_of(pod)?;
        Ok(error)
    }

    /// Checks that STATUS fails with this code and names `words`.
    pub fn status_is(&self, code: u32, words: &[&str]) -> Result<()> {
        failed_with(&self.node.runtime().status()?, code, words).map(drop)
    }

    /// Waits until STATUS succeeds: daemons need a while to connect to each other.
    pub fn until_healthy(&self) -> Result<()> {
        self.healthy_within(RECOVERY)
    }

    pub(super) fn healthy_within(&self, limit: Duration) -> Result<()> {
        eventually("STATUS succeeds", limit, || self.node.runtime().status()?.success().map(drop))
    }

    /// Checks that no link and no row of this sandbox is on the node.
    pub fn nothing_of(&self, pod: &Pod) -> Result<()> {
        let census = self.node.census()?;
        let left =
            [census.lines_with(&pod.host_interface()), census.lines_with(&pod.sandbox)].concat();
        ensure!(left.is_empty(), "left of {}: {left:?}", pod.name);
        Ok(())
    }

    /// Checks that Open vSwitch has exactly one interface of this pod.
    pub fn one_port_of(&self, pod: &Pod) -> Result<()> {
        let iface_id = format!("external_ids:iface-id={}", pod.port());
        let rows = self.node.vsctl(["--bare", "--columns=name", "find", "Interface", &iface_id])?;
        ensure!(
            rows.split_whitespace().count() == 1,
            "one port expected of {}: {rows:?}",
            pod.name
        );
        Ok(())
    }

    /// Checks that the pod reaches a bystander, and the gateway of its subnet, for which OVN
    /// answers.
    pub fn has_network(&self, pod: &Pod) -> Result<()> {
        self.lab.reaches_gateway(pod)?;
        self.lab.ping(pod, self.bystanders[0].address())
    }

    /// Waits until the database has a port of the pod.
    pub fn is_plugged(&self, pod: &Pod) -> Result<()> {
        self.node.vsctl(["wait-until", "Interface", &pod.host_interface(), "name!=x"]).map(drop)
    }

    /// Waits until ovs-vswitchd has given the pod's port its number.
    pub fn has_ofport(&self, pod: &Pod) -> Result<()> {
        self.node.vsctl(["wait-until", "Interface", &pod.host_interface(), "ofport>0"]).map(drop)
    }

    /// Waits until the server's log says of each pod that it waits for the annotation.
    pub fn are_waited_for(&self, pods: &[Pod]) -> Result<()> {
        eventually("the server waits for the annotations", SHORTLY, || {
            let log = self.node.server_log()?;
            let waits = |pod: &&Pod| {
                log.lines().any(|line| line.contains(&pod.name) && line.contains("no annotation"))
            };
            let waiting = pods.iter().filter(waits).count();
            ensure!(waiting == pods.len(), "{waiting} of {}", pods.len());
            Ok(())
        })
    }

    /// Checks that the bystanders reach each other now.
    pub fn bystanders_reach_each_other(&self) -> Result<()> {
        let [first, second] = &self.bystanders;
        self.lab.ping(first, second.address())?;
        self.lab.ping(second, first.address())
    }

    /// Checks that every datagram was answered. Otherwise: which were not, and what counts packets
    /// that are dropped.
    pub(super) fn lost_nothing(&self, echoes: &Echoes) -> Result<()> {
        let Echoes { sent, received, .. } = *echoes;
        if received >= sent {
            return Ok(());
        }
        let which: Vec<String> = echoes.lost.iter().map(ToString::to_string).collect();
        // `d`, the last number of the memory of the sockets that the switch reads ports by, counts
        // packets that found them full.
        let names = self.bystanders.each_ref().map(Pod::host_interface);
        // `sed` ends well also where it finds nothing.
        let counters = self.node.shell(&format!(
            "ss -0 -a -n -m -O | sed -nE '/{0}|{1}/p'; ip -s -s link show {0}; ip -s -s link show {1}; \
             ovs-appctl --target=ovs-vswitchd coverage/show | sed -nE '/drop|fail|lost|stall/p'",
            names[0], names[1]
        ));
        let counters = counters.unwrap_or_else(|error| format!("{error:#}"));
        bail!("they lost {} of {sent} packets: {}\n{counters}", sent - received, which.join(", "))
    }

    /// Cleans up as a runtime does, whatever became of an ADD: DEL, which has to succeed, and then
    /// the end of the namespace.
    pub(super) fn clean_up(&self) -> Result<()> {
        let pods =
            std::mem::take(&mut *self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner));
        for pod in &pods {
            self.del(pod)?.success()?;
        }
        let there: Vec<Pod> =
            pods.into_iter().filter(|pod| self.node.path(&pod.netns).exists()).collect();
        self.node.remove_namespaces(&there)
    }
}

/// Checks that the call failed with this code, with all `words` in its message and a hint what to
/// look at next.
pub fn failed_with(outcome: &Outcome, code: u32, words: &[&str]) -> Result<CniError> {
    let error = outcome.failure()?;
    ensure!(error.code == code, "code {code} expected: {error:?}");
    for word in words {
        ensure!(error.msg.contains(word), "no {word:?} in {error:?}");
    }
    ensure!(!error.details.is_empty(), "no hint what to look at next: {error:?}");
    Ok(error)
}

/// Checks several times from the moment when nothing was missing any more to the end of the ADD.
/// The best one shows plugin and server; the worst also shows what else the machine did.
///
/// # Errors
/// If none is as short as rows 22 and 29 demand, or one is much longer.
pub fn promptly(times: &[Duration]) -> Result<()> {
    let best = times.iter().min().context("no ADD was measured")?;
    ensure!(*best <= PROMPT, "no ADD ended within {PROMPT:?}: {times:?}");
    ensure!(times.iter().all(|time| *time <= PROMPT_BESIDE_OTHERS), "an ADD went on: {times:?}");
    Ok(())
}

/// Checks that no stage of the call waited for its deadline.
pub fn at_once(outcome: &Outcome) -> Result<()> {
    ensure!(outcome.duration < AT_ONCE, "it took {:?}: {}", outcome.duration, outcome.stdout);
    Ok(())
}
