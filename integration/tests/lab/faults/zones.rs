//! Two zones, of which one loses something, or has what the other one has. Real daemons of both,
//! with databases of their own, and packets between pods of each node.

use std::{
    fs,
    net::{SocketAddr, TcpStream},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Blueprint, Families, Lab, Node, Pod, central::Central, command, eventually, executable,
    faults::shim::Shim, let_pass,
};
use serde_json::json;

use crate::support::{
    api::Api,
    two_zones::{QUIET, SOON, Talk, TwoZones, Zone, annotation, new_pod, pings},
};

const NODE_ID: &str = "node-id";
const TRANSIT: &str = "node-transit-switch-port-ifaddr";
const HOUR: i64 = 3600;
/// The longest silence where nothing may be lost, on a machine that does much else.
const GAP: Duration = Duration::from_secs(1);

/// Zone `a` with two nodes, zone `b` with one.
fn three_nodes() -> Blueprint {
    Lab::of_nodes(3).families(Families::Dual).empty()
}

/// Both zones with pods on each node, which reach each other.
struct Site<'l> {
    lab: &'l Lab,
    api: Api,
    zones: TwoZones<'l>,
    /// On both nodes of zone `a`.
    here: Pod,
    beside: Pod,
    /// Beside the latter; it talks with the other zone.
    west: Pod,
    /// On the node of zone `b`.
    there: Pod,
}

impl<'l> Site<'l> {
    fn start(lab: &'l Lab, of_b: &'l Central) -> Result<Self> {
        let api = Api::start()?;
        let zones = TwoZones::start(lab, of_b, &api)?;
        let pod = |node: &Node| new_pod(lab, &api, node, "pod");
        let (here, beside) = (pod(&zones.a.nodes[0])?, pod(&zones.a.nodes[1])?);
        let (west, there) = (pod(&zones.a.nodes[1])?, pod(&zones.b.nodes[0])?);
        let site = Self { lab, api, zones, here, beside, west, there };
        site.all_talk("before the fault")?;
        Ok(site)
    }

    /// The node whose number, addresses and chassis are doubled.
    fn first(&self) -> &'l Node {
        &self.zones.a.nodes[1]
    }

    /// The node of zone `b`.
    fn second(&self) -> &'l Node {
        &self.zones.b.nodes[0]
    }

    fn all_talk(&self, when: &str) -> Result<()> {
        for (from, to) in [
            (&self.here, &self.beside),
            (&self.here, &self.there),
            (&self.beside, &self.there),
            (&self.there, &self.here),
        ] {
            pings(self.lab, &format!("{} reaches {}, {when}", from.node, to.node), from, to)?;
        }
        Ok(())
    }

    /// Packets and connections in the zone, and between the zones.
    fn talk(&self) -> Result<[Talk<'_>; 2]> {
        let talk = |from, to| Talk::begin(self.lab, from, to);
        Ok([talk(&self.here, &self.beside)?, talk(&self.west, &self.there)?])
    }

    fn annotate(&self, node: &Node, key: &str, value: &str) -> Result<()> {
        self.api.edit("Node", &node.name, |object| {
            object["metadata"]["annotations"][format!("k8s.ovn.org/{key}")] = json!(value);
        })
    }

    fn said(&self, node: &Node, key: &str) -> Result<String> {
        annotation(&self.api, &node.name, key)
            .with_context(|| format!("{} has no {key}", node.name))
    }

    fn is_told(&self, reason: &str) -> Result<()> {
        eventually(&format!("the event {reason}"), SOON, || {
            let events = self.api.events();
            ensure!(events.iter().any(|event| event == reason), "{events:?}");
            Ok(())
        })
    }

    /// A new pod of each zone reaches one of the other.
    fn new_pods_talk(&self, when: &str) -> Result<()> {
        let new = new_pod(self.lab, &self.api, self.second(), "pod")?;
        pings(self.lab, &format!("a new pod of b reaches a, {when}"), &new, &self.here)?;
        let new = new_pod(self.lab, &self.api, self.first(), "pod")?;
        pings(self.lab, &format!("a new pod of a reaches b, {when}"), &new, &self.there)
    }
}

fn end(talks: [Talk<'_>; 2], what: &str, longest: Duration) -> Result<()> {
    talks.into_iter().try_for_each(|talk| talk.end(what, longest))
}

// --- 98

#[test]
fn row_98_a_node_that_is_cloned_into_another_zone_keeps_its_chassis() {
    three_nodes().test(|lab| {
        let central = Central::of_zone("b")?;
        let site = Site::start(lab, &central)?;
        let (first, clone) = (site.first(), site.second());
        let talk = Talk::begin(lab, &site.here, &site.beside)?;
        has_chassis(&site.zones.b, clone, &first.name)?;
        site.is_told("ChassisTaken")?;
        let_pass(QUIET);
        let hostname = site.zones.a.central.sbctl(["get", "Chassis", &first.name, "hostname"])?;
        ensure!(hostname.trim().trim_matches('"') == first.name, "it is {hostname}'s now");
        pings(lab, "the node that had it goes on", &site.here, &site.beside)?;
        talk.end("row 98", GAP)?;
        has_chassis(&site.zones.b, clone, &clone.name)?;
        site.all_talk("with a chassis for each")?;
        site.new_pods_talk("with a chassis for each")
    });
}

/// The node's machine starts with this name of its chassis, as one that is installed anew.
fn has_chassis(zone: &Zone<'_>, node: &Node, name: &str) -> Result<()> {
    let before = node.vsctl(["get", "Open_vSwitch", ".", "external_ids:system-id"])?;
    node.ovn_controller.stop()?;
    let before = before.trim().trim_matches('"');
    zone.central.sbctl(["--if-exists", "chassis-del", before])?;
    let id = format!("external_ids:system-id={name}");
    node.vsctl(["set", "Open_vSwitch", ".", &id])?;
    node.start_ovn_controller()?;
    eventually("the node has this chassis", SOON, || {
        let hostname = zone.central.sbctl(["get", "Chassis", name, "hostname"])?;
        ensure!(hostname.trim().trim_matches('"') == node.name, "it is of {hostname}");
        Ok(())
    })
}

// --- 99

#[test]
fn row_99_a_node_id_that_two_zones_have_is_one_nodes_alone() {
    three_nodes().test(|lab| {
        let central = Central::of_zone("b")?;
        let site = Site::start(lab, &central)?;
        let (first, second) = (site.first(), site.second());
        let talks = site.talk()?;
        site.zones.manager.stop()?;
        let (id, transit) = (site.said(first, NODE_ID)?, site.said(first, TRANSIT)?);
        site.annotate(second, TRANSIT, &transit)?;
        site.annotate(second, NODE_ID, &id)?;
        site.is_told("JoinAddressTaken")?;
        let_pass(QUIET);
        site.all_talk("with one id twice")?;
        site.zones.manager.spawn()?;
        eventually("each node has an id of its own", SOON, || {
            let (now, transit_now) = (site.said(second, NODE_ID)?, site.said(second, TRANSIT)?);
            ensure!(site.said(first, NODE_ID)? == id, "the first node has lost its id");
            ensure!(now != id && transit_now != transit, "{id} and {now}, {transit_now}");
            Ok(())
        })?;
        site.all_talk("with an id for each")?;
        end(talks, "row 99", GAP)?;
        site.new_pods_talk("with an id for each")
    });
}

// --- 100

#[test]
fn row_100_a_transit_address_that_two_zones_have_changes_no_row() {
    three_nodes().test(|lab| {
        let central = Central::of_zone("b")?;
        let site = Site::start(lab, &central)?;
        let (first, second) = (site.first(), site.second());
        let talks = site.talk()?;
        let [before, before_b] = [site.zones.a.rows_of(second)?, site.zones.b.rows_of(first)?];
        site.zones.manager.stop()?;
        let (own, others) = (site.said(second, TRANSIT)?, site.said(first, TRANSIT)?);
        site.annotate(second, TRANSIT, &others)?;
        let_pass(QUIET);
        let controller = &site.zones.a.controller;
        controller.stop()?;
        controller.spawn()?;
        let_pass(QUIET);
        let now = [site.zones.a.rows_of(second)?, site.zones.b.rows_of(first)?];
        ensure!(now == [before, before_b], "{now:?}");
        site.all_talk("with one transit address twice")?;
        site.zones.manager.spawn()?;
        eventually("the node has its own address", SOON, || {
            let now = site.said(second, TRANSIT)?;
            ensure!(now == own, "{now} instead of {own}");
            Ok(())
        })?;
        site.all_talk("with an address for each")?;
        end(talks, "row 100", GAP)?;
        site.new_pods_talk("with an address for each")
    });
}

// --- 101

#[test]
fn row_101_zones_whose_clocks_are_an_hour_apart_are_one_cluster() {
    three_nodes().test(|lab| {
        let central = Central::of_zone("b")?;
        let site = Site::start(lab, &central)?;
        let clock = Shim::for_program(executable::SERVER)?;
        let of_b = [&site.zones.b.controller, &site.second().server];
        let talks = site.talk()?;
        for daemon in of_b {
            daemon.stop()?;
            daemon.set_environment(clock.environment());
        }
        clock.set_clock_ahead(HOUR)?;
        site.zones.b.controller.spawn()?;
        site.second().start_server()?;
        has_hour(&site)?;
        site.all_talk("an hour apart")?;
        site.new_pods_talk("with one zone an hour ahead")?;
        // Without a start.
        clock.set_clock_ahead(-HOUR)?;
        site.new_pods_talk("with one zone an hour behind")?;
        has_hour(&site)?;
        ensure!(of_b.iter().all(|daemon| daemon.is_running()), "a process has ended");
        end(talks, "row 101", GAP)
    });
}

/// The controller's last log line has another hour than this process: the fault takes effect.
fn has_hour(site: &Site<'_>) -> Result<()> {
    let log = site.zones.b.controller.log().with_extension("log");
    eventually("the log has the other hour", SOON, || {
        let text = fs::read_to_string(&log)?;
        let last = text.lines().last().context("a line")?;
        let hour: String = last.chars().take(13).collect();
        let now = command::output(Command::new("date").args(["-u", "+%Y-%m-%dT%H"]))?;
        ensure!(hour != now.trim(), "{last}");
        Ok(())
    })
}

// --- 102

#[test]
fn row_102_a_zone_that_is_alone_writes_nothing_and_serves_its_pods() {
    three_nodes().test(|lab| {
        let central = Central::of_zone("b")?;
        let site = Site::start(lab, &central)?;
        let (zone, other) = (&site.zones.a, &site.zones.b);
        let talks = site.talk()?;
        let before = zone.central.transactions()?;
        let away = Away::begin(&site.api)?;
        site.zones.manager.stop()?;
        other.controller.stop()?;
        let databases = [&central.northd, &central.northbound, &central.southbound];
        databases.iter().try_for_each(|daemon| daemon.kill())?;
        let_pass(2 * QUIET);
        zone.controller.stop()?;
        zone.controller.spawn()?;
        let_pass(2 * QUIET);
        ensure!(zone.controller.is_running(), "the controller has ended");
        let now = zone.central.transactions()?;
        ensure!(now == before, "{now:?} transactions, and before {before:?}");
        site.all_talk("with a zone alone")?;

        drop(away);
        central.start_northbound()?;
        central.start_southbound()?;
        central.northd.spawn()?;
        site.zones.manager.spawn()?;
        other.controller.spawn()?;
        site.new_pods_talk("after all are back")?;
        end(talks, "row 102", GAP)
    });
}

/// The API server answers nobody while this lives.
struct Away;

impl Away {
    fn begin(api: &Api) -> Result<Self> {
        let url = api.url().trim_start_matches("http://").trim_end_matches('/');
        let address: SocketAddr = url.parse()?;
        let port = address.port();
        let rules = format!(
            "add table inet away; \
             add chain inet away input {{ type filter hook input priority 0; }}; \
             add rule inet away input tcp dport {port} reject with tcp reset; \
             add rule inet away input tcp sport {port} reject with tcp reset"
        );
        TcpStream::connect(address).context("the API server answers before")?;
        command::output(Command::new("nft").arg(rules))?;
        let away = Self;
        let asked = TcpStream::connect_timeout(&address, Duration::from_secs(1));
        ensure!(asked.is_err(), "the API server answers");
        Ok(away)
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        let removed =
            command::output(Command::new("nft").args(["delete", "table", "inet", "away"]));
        if let Err(error) = removed {
            eprintln!("{error:#}");
        }
    }
}
