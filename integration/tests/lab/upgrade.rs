//! Each program of two nodes and of the control plane is replaced, in the order of an upgrade,
//! while flows of sixteen kinds go on. On the kernel's datapath not one packet may be lost; in user
//! space nothing is forwarded while the switch itself is replaced.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Datapath, Families, Lab, Node, Pod, by_hand, eventually,
    traffic::{Echo, End, Flow},
};
use oracle::world::{
    AddressType, Endpoint, EndpointPort, EndpointSlice, Protocol, Service, ServicePort, World,
};

use crate::support::api::Api;
use crate::support::managed;

/// Limit for rows and flows to follow, on a busy machine.
const SOON: Duration = Duration::from_secs(45);
/// Of the Service, in both families.
const VIPS: [&str; 2] = ["10.96.0.10", "fd00:10:96::10"];
/// Nodes and numbers of the pods: two on one node, one on the other.
const PODS: [oracle::world::Pod; 3] = [
    oracle::world::Pod { node: 1, host: 3 },
    oracle::world::Pod { node: 1, host: 4 },
    oracle::world::Pod { node: 2, host: 3 },
];
/// Of Open vSwitch's package: writes a script that restores the flows of bridges.
const SAVE: &str = "/usr/share/openvswitch/scripts/ovs-save";
const SAVED: &str = "/run/saved-flows";
/// How long a switch in user space may be silent while it is replaced.
const OF_USER_SPACE: Duration = Duration::from_secs(20);

#[test]
fn an_upgrade_in_order_loses_no_packet_where_the_kernel_forwards() {
    Lab::of_nodes(2).families(Families::Dual).empty().test(|lab| {
        let api = Api::start()?;
        api.tell(&world(&[]));
        let control_plane = api.control_plane();
        control_plane.spawn()?;
        let pods = attached(lab)?;
        for node in &lab.nodes {
            managed::serve(node, "10.96.0.0/16,fd00:10:96::/112")?;
        }
        let backends = pods[2]
            .addresses
            .iter()
            .map(|address| lab.echo(&End::Pod(&pods[2]), address.addr()))
            .collect::<Result<Vec<Echo>>>()?;
        api.tell(&world(&backends));
        let kinds = kinds(lab, &pods);
        ensure!(kinds.len() == 16, "{} kinds", kinds.len());
        for (from, to) in &kinds {
            eventually(&format!("{from} to {to:?} is answered"), SOON, || {
                once(lab, from, to, &backends)
            })?;
        }

        let upgrade = Upgrade { lab, kinds: &kinds, backends: &backends };
        upgrade.step("control plane", || {
            control_plane.stop()?;
            control_plane.spawn()
        })?;
        for node in &lab.nodes {
            upgrade.step("server", || {
                node.server.stop()?;
                node.start_server()?;
                managed::ready(node)
            })?;
        }
        for node in &lab.nodes {
            upgrade.step("ovn-controller", || {
                end_keeping_flows(node)?;
                node.start_ovn_controller()?;
                lab.central.sync()
            })?;
        }
        upgrade.step("databases", || {
            lab.central.southbound.stop()?;
            lab.central.start_southbound()?;
            lab.central.northbound.stop()?;
            lab.central.start_northbound()?;
            lab.central.sync()
        })?;
        upgrade.step("ovn-northd", || {
            lab.central.northd.stop()?;
            lab.central.northd.spawn()?;
            lab.central.sync()
        })?;
        for node in &lab.nodes {
            upgrade.step("Open vSwitch", || replace_switch(node))?;
        }
        Ok(())
    });
}

/// Where a flow goes.
#[derive(Debug, Clone, Copy)]
enum To<'a> {
    Pod(&'a Pod, IpAddr),
    Service(usize),
}

/// Ends of one node and of two, pods and nodes, and the Service from both nodes; in both families.
fn kinds<'a>(lab: &'a Lab, pods: &'a [Pod]) -> Vec<(End<'a>, To<'a>)> {
    let [near, beside, far] = pods else { unreachable!("three pods") };
    let [node, other] = &lab.nodes[..] else { unreachable!("two nodes") };
    let between = [
        (End::Pod(near), beside),
        (End::Pod(near), far),
        (End::Pod(far), near),
        (End::Node(node), near),
        (End::Node(node), far),
        (End::Node(other), near),
    ];
    let mut kinds = Vec::new();
    for family in [0, 1] {
        kinds.extend(
            between.iter().map(|(from, to)| (*from, To::Pod(to, to.addresses[family].addr()))),
        );
        kinds.extend([near, far].map(|pod| (End::Pod(pod), To::Service(family))));
    }
    kinds
}

/// The flow, and what answers it.
fn begin(
    lab: &Lab,
    from: &End<'_>,
    to: &To<'_>,
    backends: &[Echo],
) -> Result<(Option<Echo>, Flow)> {
    let (echo, address) = match to {
        To::Pod(pod, address) => {
            let echo = lab.echo(&End::Pod(pod), *address)?;
            let address = echo.address;
            (Some(echo), address)
        }
        To::Service(family) => {
            (None, SocketAddr::new(VIPS[*family].parse()?, backends[*family].address.port()))
        }
    };
    Ok((echo, lab.flow_to(from, address)?))
}

fn once(lab: &Lab, from: &End<'_>, to: &To<'_>, backends: &[Echo]) -> Result<()> {
    let (_echo, flow) = begin(lab, from, to, backends)?;
    integration::let_pass(Duration::from_millis(50));
    flow.stop()?.none_is_lost(1)
}

struct Upgrade<'a> {
    lab: &'a Lab,
    kinds: &'a [(End<'a>, To<'a>)],
    backends: &'a [Echo],
}

impl Upgrade<'_> {
    /// Does this while all flows go on.
    fn step(&self, what: &str, act: impl FnOnce() -> Result<()>) -> Result<()> {
        let begin = |(from, to): &(End<'_>, To<'_>)| begin(self.lab, from, to, self.backends);
        let flows = self.kinds.iter().map(begin).collect::<Result<Vec<_>>>()?;
        integration::let_pass(Duration::from_millis(200));
        act().with_context(|| what.to_owned())?;
        integration::let_pass(Duration::from_millis(200));
        let (mut sent, mut lost, mut silence) = (0, 0, Duration::ZERO);
        let mut losers = Vec::new();
        for ((_echo, flow), (from, to)) in flows.into_iter().zip(self.kinds) {
            let echoes = flow.stop()?;
            ensure!(echoes.received > 0, "{what}: {from} to {to:?}: {echoes:?}");
            sent += echoes.sent;
            if echoes.received < echoes.sent {
                losers.push(format!("{from} to {to:?}: {echoes:?}"));
            }
            lost += echoes.sent - echoes.received;
            silence = silence.max(echoes.silence());
        }
        eprintln!("{what}: {lost} of {sent} packets lost, silent for {silence:?} at most");
        let in_user_space = Datapath::of_lab() == Datapath::Netdev;
        match what {
            "Open vSwitch" if in_user_space => {
                ensure!(silence < OF_USER_SPACE, "{what}: silent for {silence:?}: {losers:#?}");
            }
            _ => ensure!(lost == 0, "{what}: {lost} of {sent} packets lost: {losers:#?}"),
        }
        Ok(())
    }
}

/// As its package does it: ovn-controller leaves its chassis and the flows.
fn end_keeping_flows(node: &Node) -> Result<()> {
    node.run(["ovn-appctl", "-t", "ovn-controller", "exit", "--restart"])?;
    eventually("ovn-controller has ended", SOON, || {
        ensure!(!node.ovn_controller.is_running(), "it runs");
        Ok(())
    })
}

/// As `ovs-ctl restart` does it: the new ovs-vswitchd leaves the kernel's flows alone until it has
/// those of OpenFlow again.
fn replace_switch(node: &Node) -> Result<()> {
    let bridges = node.vsctl(["list-br"])?.replace('\n', " ");
    node.shell(&format!("{SAVE} save-flows {bridges} >{SAVED} && test -s {SAVED}"))?;
    node.vsctl(["--no-wait", "set", "Open_vSwitch", ".", "other_config:flow-restore-wait=true"])?;
    node.vswitchd.stop()?;
    node.start_vswitchd()?;
    node.shell(&format!("sh {SAVED}"))?;
    node.vsctl(["--no-wait", "remove", "Open_vSwitch", ".", "other_config", "flow-restore-wait"])?;
    Ok(())
}

fn attached(lab: &Lab) -> Result<Vec<Pod>> {
    let attach = |of: &oracle::world::Pod| {
        let node = &lab.nodes[usize::from(of.node) - 1];
        let pod = lab.plan_pod(node);
        node.add_namespaces(std::slice::from_ref(&pod))?;
        by_hand::attach(node, &pod)?;
        Ok(pod)
    };
    PODS.iter().map(attach).collect()
}

/// The nodes, the pods and a Service in front of these ends of the last pod.
fn world(backends: &[Echo]) -> World {
    let family = |echo: &Echo| usize::from(echo.address.is_ipv6());
    let slices = backends.iter().map(|echo| EndpointSlice {
        name: format!("web-{}", family(echo)),
        address_type: [AddressType::Ipv4, AddressType::Ipv6][family(echo)],
        ports: vec![EndpointPort {
            name: Some(["four", "six"][family(echo)]),
            protocol: Some(Protocol::Udp),
            port: Some(echo.address.port()),
        }],
        ..EndpointSlice::of(
            "web",
            echo.address.port(),
            vec![Endpoint { address: echo.address.ip().to_string(), ..Endpoint::of(&PODS[2]) }],
        )
    });
    let ports = backends.iter().map(|echo| ServicePort {
        name: Some(["four", "six"][family(echo)]),
        protocol: Protocol::Udp,
        ..ServicePort::tcp(echo.address.port())
    });
    World {
        nodes: [1, 2].map(|number| oracle::world::Node { number, zone: None }).into(),
        pods: PODS.to_vec(),
        services: vec![Service::named("web", &VIPS, ports.collect())],
        slices: slices.collect(),
    }
}
