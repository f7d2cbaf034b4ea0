//! Node ports, outer addresses of Services, and packets that come from outside, beside packets.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, Result, ensure};
use integration::{Lab, Node, eventually, executable, peer::Reply, traffic::End, world::Machine};
use serde_json::json;

use super::{SOON, answer::Answer};
use crate::support::{
    api,
    site::{ANYWHERE, Gateway, KEPT, Says, Site, blueprint},
};

const CLIENT: End<'_> = End::World(Machine::Client);
/// A port of the nodes that is no Service's.
const OF_HOST: u16 = 9999;

/// A question, the packet beside it, and what the verdict has to say.
struct Case<'a> {
    from: &'a End<'a>,
    /// The words of the command line.
    words: Vec<String>,
    place: SocketAddr,
    says: &'static [&'static str],
}

impl<'a> Case<'a> {
    fn new(
        from: &'a End<'a>,
        words: &[&str],
        place: SocketAddr,
        says: &'static [&'static str],
    ) -> Self {
        let words = words.iter().map(|word| (*word).to_owned());
        let port = ["--tcp".to_owned(), place.port().to_string()];
        Self { from, words: words.chain(port).collect(), place, says }
    }

    fn via(mut self, node: &Node) -> Self {
        self.words.extend(["--via".to_owned(), node.name.clone()]);
        self
    }
}

/// Asks trace on the node, and sends the packet, until both say the same.
fn agree(site: &Site<'_>, on: &Node, case: &Case<'_>) -> Result<()> {
    let words: Vec<&str> = case.words.iter().map(String::as_str).collect();
    eventually(&format!("packets are as trace says: {words:?}"), SOON, || {
        let before = dropped_by_switches(site.lab)?;
        let [replies, _] = site.lab.ask(case.from, &[case.place], &[])?;
        let reply = replies.first().context("a reply")?;
        // Which no database knows.
        let is_dropped = dropped_by_switches(site.lab)? > before;
        let program = on.command(executable::under_test(executable::SERVER)?);
        let answer = Answer::of_databases(program, site.api.url(), &words)?;
        let is_answered = matches!(reply, Reply::By(_));
        let said = answer.said("verdict");
        let says = |line: &String| case.says.iter().all(|word| line.contains(word));
        let agrees = match answer.status {
            0 => is_answered || is_dropped,
            1 => !is_answered,
            _ => false,
        };
        ensure!(
            agrees && said.iter().any(says),
            "{words:?}: {reply:?}, {}: {:#}",
            answer.status,
            answer.report
        );
        Ok(())
    })
}

/// Packets that switches have dropped for being recirculated too often, as Open vSwitch before 3.3
/// does with those of a gateway router (`gateways.rs`).
fn dropped_by_switches(lab: &Lab) -> Result<u64> {
    lab.nodes.iter().map(|node| node.coverage("datapath_drop_recirc_error")).sum()
}

fn at(address: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(address, port)
}

/// What comes from outside, of a family (0: IPv4), while nothing forbids it; the first `most` cases.
fn from_outside(site: &Site<'_>, family: usize, most: usize) -> Result<()> {
    let (lab, world) = (site.lab, site.lab.world());
    let [one, two] = &lab.nodes[..] else { panic!("two nodes") };
    let client = world.addresses(Machine::Client)[family].to_string();
    let [of_one, of_two] = [one, two].map(|node| world.of_node(node)[family]);
    let pod = Site::of_pod(&site.there)[family];
    let (external, ingress) = (ANYWHERE.external_ips()[family], ANYWHERE.ingress()[family]);
    for address in [external, ingress] {
        world.announce(address, one)?;
    }
    world.announce(pod, two)?;
    let any = ANYWHERE.node_port(Says::Backend);
    let kept = KEPT.node_port(Says::Backend);
    let port = ANYWHERE.port(Says::Backend);
    let ask = |to: &str, place, says| Case::new(&CLIENT, &[&client, to], place, says);
    for case in [
        ask("node/node1", at(of_one, any), &["delivered", "pod lab/node2-pod3"]),
        ask("node/node2", at(of_two, any), &["delivered", "pod lab/node2-pod3"]),
        ask(&of_two.to_string(), at(of_two, kept), &["delivered", "pod lab/node2-pod3"]),
        ask("node/node1", at(of_one, kept), &["refused: Service a/kept has no endpoint"]),
        ask("node/node1", at(of_one, OF_HOST), &["taken by the host of node node1"]),
        ask(&external.to_string(), at(external, port), &["delivered", "at node node1"]).via(one),
        ask("svc/a/anywhere", at(ingress, port), &["delivered", "at node node1"]).via(one),
        ask(&pod.to_string(), at(pod, 8080), &["dropped by the host of node node2"]),
    ]
    .into_iter()
    .take(most)
    {
        agree(site, one, &case)?;
    }
    Ok(())
}

/// What pods and nodes send to node ports and outer addresses; the first `most` cases.
fn from_inside(site: &Site<'_>, family: usize, most: usize) -> Result<()> {
    let (lab, world) = (site.lab, site.lab.world());
    let [one, two] = &lab.nodes[..] else { panic!("two nodes") };
    let [of_one, of_two] = [one, two].map(|node| world.of_node(node)[family]);
    let pod = format!("lab/{}", site.here.name);
    let (of_pod, of_node) = (End::Pod(&site.here), End::Node(one));
    let any = ANYWHERE.node_port(Says::Backend);
    let external = ANYWHERE.external_ips()[family];
    let there: &[&str] = &["delivered", "pod lab/node2-pod3"];
    let of_one = at(of_one, any);
    for case in [
        Case::new(&of_pod, &[&pod, &of_one.ip().to_string()], of_one, there),
        Case::new(&of_pod, &[&pod, &of_two.to_string()], at(of_two, any), there),
        Case::new(&of_node, &["node/node1", &of_one.ip().to_string()], of_one, there),
        Case::new(&of_node, &["node/node1", &of_two.to_string()], at(of_two, any), there),
        Case::new(
            &of_node,
            &["node/node1", &external.to_string()],
            at(external, ANYWHERE.port(Says::Backend)),
            there,
        ),
    ]
    .into_iter()
    .take(most)
    {
        agree(site, one, &case)?;
    }
    Ok(())
}

/// What a Service's ranges and a pod's policy forbid, with their names.
fn what_is_forbidden_is_named(site: &Site<'_>) -> Result<()> {
    let world = site.lab.world();
    let one = &site.lab.nodes[0];
    let client = world.addresses(Machine::Client)[0].to_string();
    let ingress = at(ANYWHERE.ingress()[0], ANYWHERE.port(Says::Backend));
    let node_port = at(world.of_node(one)[0], ANYWHERE.node_port(Says::Backend));
    let ranges = |ranges: serde_json::Value| {
        site.api.edit("Service", ANYWHERE.name(), |service| {
            service["spec"]["loadBalancerSourceRanges"] = ranges;
        })
    };
    let to_ingress =
        |says| Case::new(&CLIENT, &[&client, &ingress.ip().to_string()], ingress, says).via(one);
    ranges(json!(["192.0.2.0/24"]))?;
    agree(
        site,
        one,
        &to_ingress(&["Service a/anywhere, loadBalancerSourceRanges", "host of node node1"]),
    )?;
    ranges(json!(["203.0.113.0/24"]))?;
    agree(site, one, &to_ingress(&["delivered"]))?;
    api::policy(&site.api, json!({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": []}));
    for case in [
        to_ingress(&["dropped by", "no rule allows this"]),
        Case::new(&CLIENT, &[&client, "node/node1"], node_port, &["dropped by", "lab/policy"]),
    ] {
        agree(site, one, &case)?;
    }
    Ok(())
}

/// The node that is asked says what its bridge and its host do; of another one, the command to run
/// there is named.
fn the_node_says_what_it_does(site: &Site<'_>, gateway: Gateway) -> Result<()> {
    let [one, two] = &site.lab.nodes[..] else { panic!("two nodes") };
    let client = site.lab.world().addresses(Machine::Client)[0].to_string();
    let port = ANYWHERE.node_port(Says::Backend).to_string();
    for (node, says) in [(one, "its rules translate to 10.96.0.10:80"), (two, "this is node node2")]
    {
        let program = node.command(executable::under_test(executable::SERVER)?);
        let words = [&client, "node/node1", "--tcp", &port];
        let answer = Answer::of_databases(program, site.api.url(), &words)?;
        answer.must_say(0, "physical path", &[says])?;
        if gateway == Gateway::Shared && node.name == one.name {
            answer.must_say(
                0,
                "physical path",
                &["enters by eth0, the bridge leads it to the host"],
            )?;
        }
    }
    Ok(())
}

#[test]
fn node_ports_and_packets_from_outside_have_the_verdict_of_packets() {
    blueprint().test(|lab| {
        let site = Site::start(lab, Gateway::None)?;
        let own = lab.world().of_node(&lab.nodes[0]);
        let own: Vec<SocketAddr> = own.into_iter().map(|address| at(address, OF_HOST)).collect();
        let _host = lab.answering_at(&End::Node(&lab.nodes[0]), &own)?;
        from_outside(&site, 0, usize::MAX).context("IPv4")?;
        from_inside(&site, 0, usize::MAX).context("IPv4")?;
        from_outside(&site, 1, 3).context("IPv6")?;
        from_inside(&site, 1, 2).context("IPv6")?;
        the_node_says_what_it_does(&site, Gateway::None)?;
        for node in &lab.nodes {
            site.restart(node, Gateway::Shared)?;
        }
        from_outside(&site, 0, 4).context("with a shared gateway")?;
        from_inside(&site, 0, 2).context("with a shared gateway")?;
        the_node_says_what_it_does(&site, Gateway::Shared)?;
        what_is_forbidden_is_named(&site)
    });
}
