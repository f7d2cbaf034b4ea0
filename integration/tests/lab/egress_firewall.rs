//! What pods reach outside of the cluster, by packets: EgressFirewalls, and what is none of their
//! business; policies of the whole cluster about nodes and names.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, Result, ensure};
use integration::{eventually, traffic::End, world::Machine};
use serde_json::{Value, json};

use crate::support::dns::Dns;
use crate::support::site::{ANYWHERE, Gateway, KEPT, SOON, Says, Site, blueprint};

/// Questions to one port of several addresses, and whose address each answer must have.
fn each(to: &[IpAddr], port: u16, named: &[IpAddr]) -> Vec<(SocketAddr, IpAddr)> {
    to.iter().map(|ip| SocketAddr::new(*ip, port)).zip(named.iter().copied()).collect()
}

fn to_net(kind: &str, address: IpAddr) -> Value {
    let length = if address.is_ipv4() { 32 } else { 128 };
    json!({"type": kind, "to": {"cidrSelector": format!("{address}/{length}")}})
}

/// Gives the pods' namespace an EgressFirewall with these rules, and denies everything else.
fn allow(site: &Site<'_>, rules: impl IntoIterator<Item = Value>) {
    let everything =
        ["0.0.0.0/0", "::/0"].map(|net| json!({"type": "Deny", "to": {"cidrSelector": net}}));
    let egress: Vec<Value> = rules.into_iter().chain(everything).collect();
    site.api.put(json!({
        "apiVersion": "k8s.ovn.org/v1",
        "kind": "EgressFirewall",
        "metadata": {"namespace": "lab", "name": "default", "uid": "firewall"},
        "spec": {"egress": egress},
    }));
}

fn closed(site: &Site<'_>, what: &str, to: &[(SocketAddr, IpAddr)]) -> Result<()> {
    let to: Vec<SocketAddr> = to.iter().map(|(to, _)| *to).collect();
    eventually(what, SOON, || {
        [&site.here, &site.there]
            .into_iter()
            .try_for_each(|pod| site.nothing_answers(&End::Pod(pod), &to))
    })
}

fn open(
    site: &Site<'_>,
    what: &str,
    to: impl Fn(&[IpAddr]) -> Vec<(SocketAddr, IpAddr)>,
) -> Result<()> {
    let world = site.lab.world();
    [&site.here, &site.there].into_iter().try_for_each(|pod| {
        let node = world.of_node(site.lab.node_of(pod));
        site.answers(what, &End::Pod(pod), &to(&node))
    })
}

fn only_what_is_allowed_leaves(site: &Site<'_>) -> Result<()> {
    let world = site.lab.world();
    let (web, resolver) = (world.addresses(Machine::Web), world.addresses(Machine::Resolver));
    let serve = |machine| site.lab.mirroring_outside(machine, 80);
    let _servers = [serve(Machine::Web)?, serve(Machine::Resolver)?];
    let ssh = |node| {
        world.of_node(node).into_iter().map(|ip| SocketAddr::new(ip, 22)).collect::<Vec<_>>()
    };
    let (first, second) = (&site.lab.nodes[0], &site.lab.nodes[1]);
    let _hosts = [
        site.lab.answering_at(&End::Node(first), &ssh(first))?,
        site.lab.answering_at(&End::Node(second), &ssh(second))?,
    ];
    let to_nodes = || {
        let own = |node| each(&world.of_node(node), 22, &world.of_node(node));
        [own(first), own(second)].concat()
    };
    open(site, "without rules everything leaves", |node| each(&resolver, 80, node))?;
    open(site, "without rules nodes answer", |_| to_nodes())?;

    allow(site, web.iter().map(|address| to_net("Allow", *address)));
    closed(site, "what no rule allows is closed", &each(&resolver, 80, &resolver))?;
    closed(site, "nodes are outside", &to_nodes())?;
    open(site, "what a rule allows is open", |node| each(&web, 80, node))?;
    eventually("the status says so", SOON, || {
        let status = site.api.status("EgressFirewall", "lab", "default");
        let expected = json!({
            "status": "EgressFirewall Rules applied", "messages": ["global: EgressFirewall Rules applied"],
        });
        ensure!(status.as_ref() == Some(&expected), "{status:?}");
        Ok(())
    })?;

    inside_is_not_its_business(site).context("inside of the cluster")?;
    what_came_in_is_answered(site).context("connections from outside")?;

    let nodes = json!({"type": "Allow", "to": {"nodeSelector": {}}});
    allow(site, [nodes]);
    open(site, "nodes are what a rule allows", |_| to_nodes())?;
    closed(site, "the rule from before is gone", &each(&web, 80, &web))?;

    site.api.replace("EgressFirewall", Vec::new());
    open(site, "without the object everything leaves", |node| each(&resolver, 80, node))
}

/// Pods, and Services whose backends are pods.
fn inside_is_not_its_business(site: &Site<'_>) -> Result<()> {
    let backend = Site::of_pod(&site.there);
    let pods = each(&backend, 8080, &backend);
    let service = each(&ANYWHERE.cluster_ips(), ANYWHERE.port(Says::Backend), &backend);
    site.answers("a pod answers a pod", &End::Pod(&site.here), &[pods, service].concat())
}

/// The client's address is one that the backend could not connect to.
fn what_came_in_is_answered(site: &Site<'_>) -> Result<()> {
    let world = site.lab.world();
    let (with_backend, client) = (&site.lab.nodes[1], world.addresses(Machine::Client));
    let to = each(&world.of_node(with_backend), KEPT.node_port(Says::Client), &client);
    site.answers("the backend answers a client outside", &End::World(Machine::Client), &to)
}

#[test]
fn only_what_an_egress_firewall_allows_leaves_through_a_local_gateway() {
    blueprint().test(|lab| only_what_is_allowed_leaves(&Site::start(lab, Gateway::Local)?));
}

#[test]
fn only_what_an_egress_firewall_allows_leaves_through_a_shared_gateway() {
    blueprint().test(|lab| only_what_is_allowed_leaves(&Site::start(lab, Gateway::Shared)?));
}

/// The control plane asks the lab's name server. Later that fails, and the control plane is another
/// process.
#[test]
fn a_name_in_a_rule_is_open_and_stays_so_when_the_name_server_and_the_control_plane_fail() {
    blueprint().test(|lab| {
        let site = Site::start(lab, Gateway::Local)?;
        let (web, other) =
            (lab.world().addresses(Machine::Web), lab.world().addresses(Machine::Resolver));
        let _web = lab.mirroring_outside(Machine::Web, 80)?;
        let _other = lab.mirroring_outside(Machine::Resolver, 80)?;
        let dns = Dns::start("web.example.org", web.clone())?;
        let named = json!({"type": "Allow", "to": {"dnsName": "Web.example.org"}});
        allow(&site, [named.clone()]);
        closed(&site, "what has no name is closed", &each(&other, 80, &other))?;
        open(&site, "what has the name is open", |node| each(&web, 80, node))?;

        dns.fails();
        site.control_plane.kill()?;
        site.control_plane.spawn()?;
        // A rule more, which only the new process can have written.
        allow(
            &site,
            [named].into_iter().chain(other.iter().map(|address| to_net("Allow", *address))),
        );
        open(&site, "the new rule is there", |node| each(&other, 80, node))?;
        open(&site, "what had the name is open", |node| each(&web, 80, node))
    });
}

/// Gives all pods a policy of the cluster with these rules, and denies everything else.
fn accept(site: &Site<'_>, peers: &[Value]) {
    let rule = |action: &str, peer: &Value| json!({"action": action, "to": [peer]});
    let accepted = peers.iter().map(|peer| rule("Accept", peer));
    let everything = rule("Deny", &json!({"networks": ["0.0.0.0/0", "::/0"]}));
    let egress: Vec<Value> = accepted.chain([everything]).collect();
    site.api.put(json!({
        "apiVersion": "policy.networking.k8s.io/v1alpha2",
        "kind": "ClusterNetworkPolicy",
        "metadata": {"name": "outside", "uid": "outside", "generation": 1},
        "spec": {"tier": "Admin", "priority": 10, "subject": {"namespaces": {}}, "egress": egress},
    }));
}

fn nodes_and_names_are_what_a_policy_accepts(site: &Site<'_>) -> Result<()> {
    let (lab, world) = (site.lab, site.lab.world());
    let (web, other) = (world.addresses(Machine::Web), world.addresses(Machine::Resolver));
    let _web = lab.mirroring_outside(Machine::Web, 80)?;
    let _other = lab.mirroring_outside(Machine::Resolver, 80)?;
    let (first, second) = (&lab.nodes[0], &lab.nodes[1]);
    let ssh = |node| {
        world.of_node(node).into_iter().map(|ip| SocketAddr::new(ip, 22)).collect::<Vec<_>>()
    };
    let _hosts = [
        lab.answering_at(&End::Node(first), &ssh(first))?,
        lab.answering_at(&End::Node(second), &ssh(second))?,
    ];
    let to_node = |node| each(&world.of_node(node), 22, &world.of_node(node));
    open(site, "without a policy nodes answer", |_| [to_node(first), to_node(second)].concat())?;

    // Its pods are the subject.
    site.api.put(
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "lab", "uid": "lab"}}),
    );
    let of_edge = json!({"nodes": {"matchLabels": {"role": "edge"}}});
    accept(site, std::slice::from_ref(&of_edge));
    closed(site, "a node without the label is closed", &to_node(second))?;
    open(site, "a node with the label is open", |_| to_node(first))?;
    site.api.edit("Node", "node2", |node| node["metadata"]["labels"]["role"] = json!("edge"))?;
    open(site, "a node that gets the label is open", |_| {
        [to_node(first), to_node(second)].concat()
    })?;
    site.api.edit("Node", "node1", |node| node["metadata"]["labels"]["role"] = json!("inner"))?;
    closed(site, "a node that loses the label is closed", &to_node(first))?;

    let _dns = Dns::start("web.example.org", web.clone())?;
    accept(site, &[of_edge.clone(), json!({"domainNames": ["Web.example.org"]})]);
    open(site, "what has the name is open", |node| each(&web, 80, node))?;
    closed(site, "what has no name is closed", &each(&other, 80, &other))?;

    accept(site, &[of_edge, json!({"domainNames": ["*.example.org"]})]);
    closed(site, "a wildcard allows nothing", &each(&web, 80, &web))?;
    open(site, "the other rule counts", |_| to_node(second))?;
    eventually("an event says so", SOON, || {
        let events = site.api.events();
        ensure!(events.iter().any(|reason| reason == "Wildcard"), "{events:?}");
        Ok(())
    })
}

#[test]
fn a_policy_of_the_cluster_lets_pods_reach_nodes_by_their_labels_and_names_of_the_dns() {
    blueprint()
        .test(|lab| nodes_and_names_are_what_a_policy_accepts(&Site::start(lab, Gateway::Local)?));
}
