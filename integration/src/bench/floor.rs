//! The floor as a contestant: the work that no ADD and no DEL can avoid, done by one process whose
//! connections are already open.
//!
//! ADD: veth with its peer in the pod, one transaction, then address, up and route while
//! ovs-vswitchd works, then `ovn-installed`. DEL: one transaction, and the link. There is no exec,
//! no server, no check of earlier state, no guard and no rollback.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use contract::{
    external_ids::{ATTACHED_MAC, IFACE_ID, IFACE_ID_VER, OVN_INSTALLED, SANDBOX},
    mac::Mac,
    paths::{INTEGRATION_BRIDGE, OVSDB_ENDPOINT},
    stage::Stage,
};
use integration::Pod;
use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::{
    RouteNetlinkMessage::{DelLink, NewAddress, NewLink, NewRoute, SetLink},
    link::{AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoVeth, LinkAttribute},
};
use ovsdb::{Condition, Connection, Monitor, Monitored, Mutation, Options, Row, Transaction, Uuid};
use podnet::{
    bridge::Bridge,
    link,
    netlink::Netlink,
    netns::{Inside, Netns},
};
use rtnetlink::{
    AddressMessageBuilder, LinkMessageBuilder, LinkUnspec, LinkVeth, RouteMessageBuilder,
};
use serde_json::Value;
use tokio::{runtime::Runtime, time::timeout};

use super::measurements::Call;
use crate::report::milliseconds;

/// Limit for one wait: far longer than any time that is worth measuring.
const PATIENCE: Duration = Duration::from_secs(30);
/// For a message that adds something.
const ADD: u16 = NLM_F_CREATE | NLM_F_EXCL;

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
    pub(crate) pod: &'a Pod,
    netns: Netns,
    inside: Inside,
}

impl<'a> FloorPod<'a> {
    pub(crate) fn open(pod: &'a Pod) -> Result<Self> {
        let netns = Netns::open(&pod.netns)?;
        Ok(Self { pod, inside: netns.inside()?, netns })
    }
}

impl Floor {
    /// Opens the connections.
    pub(crate) fn open(mtu: u32) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // The connection is not served between calls: a probe would go unanswered, and close it.
        let options = Options { probe_interval: None, ..Options::default() };
        let endpoint = OVSDB_ENDPOINT.parse()?;
        let connection = runtime.block_on(Connection::open(&endpoint, "Open_vSwitch", options))?;
        Ok(Self { runtime, connection, netlink: Netlink::open()?, mtu })
    }

    /// Waits until ovs-vswitchd has applied what its database says now.
    pub(crate) fn settle(&self) -> Result<()> {
        let bridge = Bridge::over(self.connection.clone(), PATIENCE);
        let settled = self.runtime.block_on(async { timeout(PATIENCE, bridge.settle()).await });
        Ok(settled.context("ovs-vswitchd does not come to rest")??)
    }

    /// Attaches a pod. The result, which DEL needs, is the UUID of the port's row.
    pub(crate) fn add(&self, pod: &FloorPod<'_>) -> (Call, Option<Value>) {
        let (call, port) = timed(|parts| self.attach(pod, parts));
        (call, port.map(|port| port.to_string().into()))
    }

    /// Detaches the pod.
    pub(crate) fn del(&self, pod: &FloorPod<'_>, result: &Value) -> Call {
        timed(|parts| self.detach(pod.pod, result, parts)).0
    }

    fn attach(&self, pod: &FloorPod<'_>, parts: &mut Parts) -> Result<Uuid> {
        let Pod { uid, mac, sandbox, .. } = pod.pod;
        let link = &*pod.pod.host_interface();
        let begun = Instant::now();
        self.add_veth(link, pod).context("create the veth")?;
        let begun = lap(parts, Stage::Veth, begun);
        self.runtime.block_on(async {
            let port = pod.pod.port();
            let ids = [
                (IFACE_ID, &port[..]),
                (IFACE_ID_VER, uid),
                (ATTACHED_MAC, mac),
                (SANDBOX, sandbox),
            ];
            let mut tx = Transaction::new();
            let row = Row::new().with("name", link).with("external_ids", ovsdb::Datum::map(ids));
            let interface = tx.insert("Interface", row);
            let port =
                tx.insert("Port", Row::new().with("name", link).with("interfaces", &interface));
            let bridge = Condition::equal("name", INTEGRATION_BRIDGE);
            tx.mutate("Bridge", bridge, vec![Mutation::insert("ports", &port)]);
            // Monitor and transaction go out together, without a round trip in between.
            // ovsdb-server handles them in order, so the monitor sees the row from its insertion.
            let watch = Monitor::new().table::<Interface>(Condition::equal("name", link));
            let (watch, outcome) =
                tokio::join!(self.connection.monitor(watch), self.connection.transact(tx));
            let (mut watch, outcome) = (watch?, outcome?);
            let committed = lap(parts, Stage::Port, begun);
            // While ovs-vswitchd creates the port, the pod's interface is configured.
            configure_eth0(pod).context("configure eth0")?;
            lap(parts, Stage::Pod, committed);
            let installed = installed(&mut watch, outcome.uuid(&interface), committed, parts);
            timeout(PATIENCE, installed).await.context("waiting for ovn-installed")??;
            Ok(outcome.uuid(&port))
        })
    }

    fn detach(&self, pod: &Pod, result: &Value, parts: &mut Parts) -> Result<()> {
        let begun = Instant::now();
        let port: Uuid = result.as_str().context("no UUID of a port")?.parse()?;
        let mut tx = Transaction::new();
        let bridge = Condition::equal("name", INTEGRATION_BRIDGE);
        tx.mutate("Bridge", bridge, vec![Mutation::delete("ports", port)]);
        self.runtime
            .block_on(async { timeout(PATIENCE, self.connection.transact(tx)).await })??;
        let begun = lap(parts, Stage::Port, begun);
        // With it goes its peer.
        let link = LinkMessageBuilder::<LinkUnspec>::new().name(pod.host_interface()).build();
        self.netlink.request(DelLink(link), 0).context("delete the veth")?;
        lap(parts, Stage::Veth, begun);
        Ok(())
    }

    /// Creates a veth pair with the peer `eth0` in the pod, and brings `host`, the node's end, up.
    /// The node's end gets no IPv6 link-local address: it is not needed, and each address and route
    /// is an event for every daemon that follows links. The kernel accepts
    /// `IFLA_INET6_ADDR_GEN_MODE` only for an existing link, so the second message sets it.
    fn add_veth(&self, host: &str, FloorPod { pod, netns, .. }: &FloorPod<'_>) -> Result<()> {
        let peer = LinkMessageBuilder::<LinkUnspec>::new()
            .name("eth0".to_owned())
            .mtu(self.mtu)
            .address(pod.mac.parse::<Mac>()?.octets().to_vec())
            .setns_by_fd(netns.raw_fd());
        let veth = InfoData::Veth(InfoVeth::Peer(peer.build()));
        let pair = LinkVeth::new(host, "eth0").mtu(self.mtu).set_info_data(veth).build();
        let mut up = LinkMessageBuilder::<LinkUnspec>::new().name(host.to_owned()).up().build();
        let no_address = AfSpecUnspec::Inet6(vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)]);
        up.attributes.push(LinkAttribute::AfSpecUnspec(vec![no_address]));
        Ok(self
            .netlink
            .request_all(vec![(NewLink(pair), ADD), (SetLink(up), 0)])
            .map_err(|(_, error)| error)?)
    }
}

/// Configures the pod's `eth0`: address, up, default route.
fn configure_eth0(FloorPod { pod, inside, .. }: &FloorPod<'_>) -> Result<()> {
    let index = link::find(&inside.netlink, "eth0")?.context("there is none")?.index;
    let (IpNet::V4(net), IpAddr::V4(gateway)) = (pod.addresses[0], pod.gateways[0]) else {
        bail!("the first address is not of IPv4")
    };
    let address =
        AddressMessageBuilder::<Ipv4Addr>::new().index(index).address(net.addr(), net.prefix_len());
    let up = LinkMessageBuilder::<LinkUnspec>::new().index(index).up();
    let route = RouteMessageBuilder::<Ipv4Addr>::new().output_interface(index).gateway(gateway);
    // Up before the route: the kernel refuses a route over a link that is down (ENETDOWN).
    let messages = vec![
        (NewAddress(address.build()), ADD),
        (SetLink(up.build()), 0),
        (NewRoute(route.build()), ADD),
    ];
    Ok(inside.netlink.request_all(messages).map_err(|(_, error)| error)?)
}

/// Waits until the port works. Since the transaction was `committed`, ovs-vswitchd works beside the
/// caller.
async fn installed(
    watch: &mut Monitored,
    interface: Uuid,
    committed: Instant,
    parts: &mut Parts,
) -> Result<()> {
    let mut numbered = None;
    loop {
        if let Some(row) = watch.row::<Interface>(interface) {
            ensure!(row.error.is_none(), "ovs-vswitchd cannot use {}: {:?}", row.name, row.error);
            if numbered.is_none() && row.ofport.is_some_and(|number| number > 0) {
                numbered = Some(lap(parts, Stage::Ofport, committed));
            }
            if row.external_ids.get(OVN_INSTALLED).is_some_and(|value| value == "true") {
                lap(parts, Stage::OvnInstalled, numbered.unwrap_or(committed));
                return Ok(());
            }
        }
        watch.changed().await?;
    }
}

type Parts = BTreeMap<String, f64>;

/// Adds the part `stage`, which lasted from `begun` until now, and returns the present time.
fn lap(parts: &mut Parts, stage: Stage, begun: Instant) -> Instant {
    let now = Instant::now();
    parts.insert(stage.name().to_owned(), milliseconds(now - begun));
    now
}

fn timed<T>(work: impl FnOnce(&mut Parts) -> Result<T>) -> (Call, Option<T>) {
    let (begun, mut parts) = (Instant::now(), Parts::new());
    let result = work(&mut parts);
    let duration = milliseconds(begun.elapsed());
    let error = result.as_ref().err().map(|error| format!("{error:#}"));
    (Call { duration, parts, error, ..Call::default() }, result.ok())
}
