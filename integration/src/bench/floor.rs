//! The floor as a contestant: the work that no ADD and no DEL can avoid, done by one process whose
//! connections are already open.
//!
//! ADD: veth with its peer in the pod, one transaction, then address, up and route while ovs-vswitchd works,
//! then `ovn-installed`. DEL: one transaction, and the link. There is no exec, no server, no check of earlier
//! state, no guard and no rollback.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use contract::{
    external_ids::{ATTACHED_MAC, IFACE_ID, IFACE_ID_VER, OVN_INSTALLED, SANDBOX},
    mac::Mac,
    paths::{INTEGRATION_BRIDGE, OVSDB_ENDPOINT},
    stage::Stage,
};
use ovsdb::{Condition, Connection, Monitor, Monitored, Mutation, Options, Row, Transaction, Uuid};
use tokio::{runtime::Runtime, time::timeout};

use super::{
    measurements::{Call, Part},
    netlink::{Netlink, Netns},
    plan::PlannedPod,
};

/// Limit for one wait: far longer than any time that is worth measuring.
const PATIENCE: Duration = Duration::from_secs(30);

ovsdb::table! {
    /// The columns that show the progress of an interface.
    struct Interface in "Interface" {
        name: String,
        ofport: Option<i64>,
        error: Option<String>,
        external_ids: BTreeMap<String, String>,
    }
}

/// One caller with its connections. Several callers work at the same time.
#[derive(Debug)]
pub(crate) struct Floor {
    runtime: Runtime,
    connection: Connection,
    netlink: Netlink,
    mtu: u32,
}

/// A pod with a netlink socket in its namespace.
#[derive(Debug)]
pub(crate) struct FloorPod<'a> {
    pub(crate) pod: &'a PlannedPod,
    pub(crate) netns: Netns,
}

/// The data that DEL needs from an ADD.
#[derive(Debug, Clone)]
pub(crate) struct Attached {
    link: String,
    port: Uuid,
}

impl<'a> FloorPod<'a> {
    pub(crate) fn open(pod: &'a PlannedPod) -> Result<Self> {
        Ok(Self { pod, netns: Netns::open(&pod.netns)? })
    }
}

impl Floor {
    /// Opens the connections.
    pub(crate) fn open(mtu: u32) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // The connection is not served between calls: a probe would go unanswered, and close it.
        let options = Options { probe_interval: None, ..Options::default() };
        let connection =
            runtime.block_on(Connection::open(&OVSDB_ENDPOINT.parse()?, "Open_vSwitch", options))?;
        Ok(Self { runtime, connection, netlink: Netlink::open()?, mtu })
    }

    /// Attaches a pod as sandbox `sandbox`.
    pub(crate) fn add(&mut self, pod: &FloorPod<'_>, sandbox: &str) -> (Call, Option<Attached>) {
        let link: String = sandbox.chars().take(15).collect();
        let mut clock = Clock::start();
        let port = self.attach(pod, sandbox, &link, &mut clock);
        let (call, port) = clock.finish(port);
        (call, port.map(|port| Attached { link, port }))
    }

    /// Detaches the pod.
    pub(crate) fn del(&mut self, attached: &Attached) -> Call {
        let mut clock = Clock::start();
        let done = self.detach(attached, &mut clock);
        clock.finish(done).0
    }

    fn attach(
        &self,
        FloorPod { pod, netns }: &FloorPod<'_>,
        sandbox: &str,
        link: &str,
        clock: &mut Clock,
    ) -> Result<Uuid> {
        let mac = pod.mac.parse::<Mac>()?.octets();
        self.netlink.add_veth(link, self.mtu, mac, netns)?;
        clock.lap(Stage::Veth);
        self.runtime.block_on(async {
            let ids = [
                (IFACE_ID, &pod.iface_id[..]),
                (IFACE_ID_VER, &pod.uid),
                (ATTACHED_MAC, &pod.mac),
                (SANDBOX, sandbox),
            ];
            let mut tx = Transaction::new();
            let interface = tx.insert(
                "Interface",
                Row::new().with("name", link).with("external_ids", ovsdb::Datum::map(ids)),
            );
            let port = tx.insert("Port", Row::new().with("name", link).with("interfaces", &interface));
            tx.mutate(
                "Bridge",
                Condition::equal("name", INTEGRATION_BRIDGE),
                vec![Mutation::insert("ports", &port)],
            );
            // Monitor and transaction go out together, without a round trip in between. ovsdb-server handles
            // them in order, so the monitor sees the row from its insertion.
            let watch = Monitor::new().table::<Interface>(Condition::equal("name", link));
            let (watch, outcome) = tokio::join!(self.connection.monitor(watch), self.connection.transact(tx));
            let (mut watch, outcome) = (watch?, outcome?);
            clock.lap(Stage::Port);
            // While ovs-vswitchd creates the port, the pod's interface is configured.
            netns.netlink.configure_eth0(pod.address, pod.gateway)?;
            clock.lap(Stage::Pod);
            let interface = outcome.uuid(&interface);
            timeout(PATIENCE, installed(&mut watch, interface, clock))
                .await
                .context("waiting for ovn-installed")??;
            Ok(outcome.uuid(&port))
        })
    }

    fn detach(&self, Attached { link, port }: &Attached, clock: &mut Clock) -> Result<()> {
        let mut tx = Transaction::new();
        tx.mutate(
            "Bridge",
            Condition::equal("name", INTEGRATION_BRIDGE),
            vec![Mutation::delete("ports", *port)],
        );
        self.runtime.block_on(async { timeout(PATIENCE, self.connection.transact(tx)).await })??;
        clock.lap(Stage::Port);
        self.netlink.delete_link(link)?;
        clock.lap(Stage::Veth);
        Ok(())
    }
}

async fn installed(watch: &mut Monitored, interface: Uuid, clock: &mut Clock) -> Result<()> {
    let mut has_number = false;
    loop {
        if let Some(row) = watch.row::<Interface>(interface) {
            ensure!(row.error.is_none(), "ovs-vswitchd cannot use {}: {:?}", row.name, row.error);
            if !has_number && row.ofport.is_some_and(|number| number > 0) {
                has_number = true;
                clock.lap_since_port(Stage::Ofport);
            }
            if row.external_ids.get(OVN_INSTALLED).is_some_and(|value| value == "true") {
                clock.lap(Stage::OvnInstalled);
                return Ok(());
            }
        }
        watch.changed().await?;
    }
}

/// Measures the parts of a call.
struct Clock {
    start: Instant,
    lap: Instant,
    /// Time of the commit. From then on ovs-vswitchd works at the same time as the caller.
    committed: Instant,
    parts: Vec<(Part, f64)>,
}

impl Clock {
    fn start() -> Self {
        let now = Instant::now();
        Self { start: now, lap: now, committed: now, parts: Vec::with_capacity(8) }
    }

    fn lap(&mut self, stage: Stage) {
        self.note(stage, self.lap);
        if stage == Stage::Port {
            self.committed = self.lap;
        }
    }

    fn lap_since_port(&mut self, stage: Stage) {
        self.note(stage, self.committed);
    }

    fn note(&mut self, stage: Stage, since: Instant) {
        self.lap = Instant::now();
        self.parts.push((Part::Stage(stage), milliseconds(self.lap - since)));
    }

    fn finish<T>(self, result: Result<T>) -> (Call, Option<T>) {
        let duration = milliseconds(self.start.elapsed());
        let (value, error) = match result {
            Ok(value) => (Some(value), None),
            Err(error) => (None, Some(format!("{error:#}"))),
        };
        (Call { duration, parts: self.parts, error }, value)
    }
}

pub(crate) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
