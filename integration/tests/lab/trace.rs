//! `ovnkube trace` on real daemons: its verdicts beside packets, the object that it names, and what
//! it says while a partner is away.
//!
//! `make questions` asks 10,000 random ones.

mod answer;
mod outside;
mod random;

use std::{net::SocketAddr, process::Command, time::Duration};

use anyhow::{Context as _, Result, ensure};
use integration::{Families, Lab, Node, eventually, executable, peer::Reply, traffic::End};
use oracle::{
    policies::{self, Namespace},
    world::{Endpoint, EndpointSlice, Service, ServicePort},
};

use crate::support::{
    api::Api,
    policy_world::{self, NAMESPACE, attached, clients_alone, pod},
};
use answer::Answer;

/// Limit for rows and flows to follow, on a busy machine.
const SOON: Duration = Duration::from_secs(120);

fn service(name: &str, address: &str, pods: &[&policies::Pod]) -> (Service, EndpointSlice) {
    let named = Service::named(name, &[address], vec![ServicePort::tcp(80)]);
    let endpoint =
        |pod: &&policies::Pod| Endpoint::of(&oracle::world::Pod { node: pod.node, host: pod.host });
    let slice = EndpointSlice::of(name, 8080, pods.iter().map(endpoint).collect());
    (Service { namespace: NAMESPACE, ..named }, EndpointSlice { namespace: NAMESPACE, ..slice })
}

fn tell(api: &Api, world: &policies::World, services: &[(Service, EndpointSlice)]) {
    policy_world::tell(api, world);
    let (services, slices) = services.iter().cloned().unzip();
    let nodes = world.nodes();
    let of_services = oracle::World { nodes, services, slices, ..oracle::World::default() };
    let oracle::manifest::Manifests { services, slices, .. } = of_services.manifests();
    api.replace("Service", services);
    api.replace("EndpointSlice", slices);
}

#[test]
fn the_verdict_names_the_policy_or_service_that_decides_and_what_is_not_there() {
    Lab::of_nodes(2).families(Families::V4).empty().test(|lab| {
        let api = Api::start()?;
        let pods = vec![
            pod(1, 3, vec![("app", "client")]),
            pod(1, 4, vec![("app", "other")]),
            pod(2, 3, vec![("app", "server")]),
        ];
        let namespaces = vec![Namespace { name: NAMESPACE, labels: Vec::new() }];
        let policies = vec![clients_alone("policy")];
        let world = policies::World { namespaces, pods, policies, ..policies::World::default() };
        let [client, other, server] = &world.pods[..] else { unreachable!("three pods") };
        let services =
            [service("web", "10.96.0.10", &[server]), service("none", "10.96.0.11", &[])];
        tell(&api, &world, &services);
        api.control_plane().spawn()?;
        let attached = attached(lab, &world.pods)?;
        let at = SocketAddr::new(server.address(false), 8080);
        let _server = lab.answering(&attached[2], &[at])?;
        let open = [at, "10.96.0.10:80".parse()?];
        eventually("packets are as the policy says", SOON, || {
            let [replies, _] = lab.ask(&End::Pod(&attached[0]), &open, &[])?;
            let [denied, _] = lab.ask(&End::Pod(&attached[1]), &[at], &[])?;
            ensure!(
                replies == [Reply::By(at); 2] && denied == [Reply::Nothing],
                "{replies:?} {denied:?}"
            );
            Ok(())
        })?;

        let name = |pod: &policies::Pod| format!("{NAMESPACE}/{}", pod.name);
        let (from, to) = (name(client), name(server));
        let ask = |arguments: &[&str]| Answer::in_lab(api.url(), arguments);
        let allowed = ask(&[&from, &to, "--tcp", "8080"])?;
        allowed.must_say(0, "verdict", &["delivered to pod lab/node2-pod3"])?;
        allowed.must_say(
            0,
            "logical path",
            &["node2", "allowed by NetworkPolicy lab/policy, Ingress rule 0"],
        )?;
        let denied = ask(&[&name(other), &to, "--tcp", "8080"])?;
        denied.must_say(1, "verdict", &["dropped by", "lab/policy", "no rule allows this"])?;
        ask(&[&from, &to, "--tcp", "9090"])?.must_say(1, "verdict", &["lab/policy"])?;
        let web = ask(&[&from, "svc/lab/web", "--tcp", "80"])?;
        web.must_say(0, "verdict", &["delivered to each endpoint", "lab/node2-pod3"])?;
        web.must_say(0, "logical path", &["Service lab/web"])?;
        let refused = ask(&[&name(other), "svc/lab/web", "--tcp", "80"])?;
        refused.must_say(1, "verdict", &["lab/policy"])?;
        let none = ask(&[&from, "svc/lab/none", "--tcp", "80"])?;
        none.must_say(1, "verdict", &["Service lab/none has no endpoint"])?;
        let no_port = ask(&[&from, "svc/lab/web", "--tcp", "81"])?;
        no_port.must_say(1, "verdict", &["no TCP port 81; it has 80/TCP"])?;
        let nobody = ask(&[&from, "lab/nobody", "--tcp", "80"])?;
        nobody.must_say(1, "verdict", &["there is no pod lab/nobody"])?;
        let empty = ask(&[&from, "10.244.2.99", "--icmp"])?;
        empty.must_say(1, "verdict", &["dropped by router", "no port"])?;
        // Nobody has made the node's own port.
        let node = ask(&["node/node2", &to, "--tcp", "9090"])?;
        node.must_say(1, "verdict", &["no chassis has claimed the port k8s-node2"])?;

        // Without the API server, the databases say it.
        let nowhere = "http://127.0.0.1:1";
        let away = Answer::in_lab(nowhere, &[&from, "svc/lab/web", "--tcp", "80"])?;
        away.must_say(4, "sources", &["API server"])?;
        away.must_say(4, "verdict", &["delivered to each endpoint"])?;
        let unknown = Answer::in_lab(nowhere, &[&from, "lab/nobody", "--icmp"])?;
        unknown.must_say(1, "verdict", &["no logical port lab_nobody"])?;
        let mut command = Command::new(executable::under_test(executable::SERVER)?);
        command.env("HOME", "/nonexistent");
        let blind = Answer::of(
            command,
            &[&from, &to, "--icmp", "--sb-address=tcp:127.0.0.1:1", "--nb-address=tcp:127.0.0.1:1"],
        )?;
        blind.must_say(3, "verdict", &["southbound database"])
    });
}

/// The command on a node, whose server is asked for its switch.
fn on_node(node: &Node, arguments: &[&str]) -> Result<Answer> {
    Answer::of(node.command(executable::under_test(executable::SERVER)?), arguments)
}

#[test]
fn the_switch_of_each_node_is_asked_on_that_node() {
    Lab::of_nodes(2).families(Families::V4).test(|lab| {
        let [first, second] = &lab.nodes[..] else { unreachable!("two nodes") };
        for node in &lab.nodes {
            node.start_server()?;
        }
        let (from, to) = (lab.attached_pod(first)?, lab.attached_pod(second)?);
        lab.ping(&from, to.address())?;
        let words = [from.to_string(), to.to_string()];
        let [from_name, to_name] = &words;
        for (node, other, size) in [(first, second, "1500"), (second, first, "100")] {
            eventually("both nodes' parts are there", SOON, || {
                let answer = on_node(node, &[from_name, to_name, "--icmp", "--size", size])?;
                let physical = answer.said("physical path");
                let of = |name: &str| {
                    physical.iter().find(|line| line.starts_with(&format!("{name}: ")))
                };
                let own = of(&node.name).context("this node's switch")?;
                let far = of(&other.name).context("the other node's switch")?;
                ensure!(
                    own.contains("enters br-int by") && own.contains("actions"),
                    "{physical:?}"
                );
                ensure!(far.contains(&format!("this is node {}", node.name)), "{physical:?}");
                ensure!([0, 4].contains(&answer.status), "{}: {:#}", answer.status, answer.report);
                // Only where the packet starts, the interface is known.
                let fits = physical.iter().any(|line| line.contains("do not fit into"));
                ensure!(fits == (size == "1500"), "{physical:?}");
                Ok(())
            })?;
        }
        first.server.stop()?;
        let answer = on_node(first, &[from_name, to_name, "--icmp"])?;
        answer.must_say(answer.status, "physical path", &["does not run"])?;
        answer.must_say(answer.status, "verdict", &["delivered to pod"])
    });
}
