//! Network policies by packets: the control plane as a process, with an API server that the test
//! plays.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use integration::{
    Families, Lab, Node, by_hand, central::SOUTHBOUND, eventually, let_pass, peer::Reply,
    traffic::End, versions::Versions,
};
use oracle::policies::{
    ContainerPort, Direction, Labels, Namespace, NetworkPolicy, Number, Peer, Pod, Port, Rule,
    Selector, World,
    cluster::{Action, ClusterPeer, ClusterPolicy, ClusterPort, ClusterRule, Kind, Tier},
};
use oracle::world::Protocol;
use serde_json::json;

use crate::support::{
    api::Api,
    policy_world::{self, attached, tell},
};

/// Limit for rows and flows to follow, on a busy machine.
const SOON: Duration = Duration::from_secs(30);
/// How long a policy is in force. A client that is slow only makes it longer. Well below the time
/// after which the connection itself gives up.
const FORBIDDEN: Duration = Duration::from_secs(3);
/// Has OVN read the ports of fragments.
const OPTION: &str = "options:acl_ct_translation";
/// Pods that start under a policy that isolates them.
const STARTS: usize = 5;

fn selector(match_labels: Labels) -> Selector {
    Selector { match_labels, match_expressions: Vec::new() }
}

/// The pod of the lab with this number on the node, as the lab names it.
fn pod(node: u8, host: u8, labels: Labels, ports: Vec<ContainerPort>) -> Pod {
    Pod { ports, ..policy_world::pod(node, host, labels) }
}

fn policy(ingress: Vec<Rule>) -> NetworkPolicy {
    NetworkPolicy {
        namespace: "lab",
        name: "policy".to_owned(),
        pod_selector: selector(vec![("app", "server")]),
        policy_types: vec![Direction::Ingress],
        ingress,
        egress: Vec::new(),
    }
}

fn web(number: u16) -> Vec<ContainerPort> {
    vec![ContainerPort { name: "web", protocol: Protocol::Tcp, number }]
}

/// Two clients and two servers on two nodes. The name of a port stands for each server's own
/// number; upstream opens all ports.
#[test]
fn packets_pass_where_a_policy_lets_them_and_a_policy_that_is_gone_opens() {
    Lab::of_nodes(2).families(Families::Dual).empty().test(|lab| {
        let api = Api::start()?;
        let pods = [
            pod(1, 3, vec![("app", "client")], Vec::new()),
            pod(1, 4, vec![("app", "other")], Vec::new()),
            pod(2, 3, vec![("app", "server")], web(8080)),
            pod(2, 4, vec![("app", "server")], web(9090)),
        ];
        let namespaces = vec![Namespace { name: "lab", labels: Vec::new() }];
        let of_clients =
            Peer::Selectors { namespaces: None, pods: Some(selector(vec![("app", "client")])) };
        let named = Port { protocol: None, number: Some(Number::Named("web")) };
        let rule = Rule { peers: vec![of_clients], ports: vec![named] };
        let world = World {
            namespaces,
            pods: pods.to_vec(),
            policies: vec![policy(vec![rule])],
            ..World::default()
        };
        tell(&api, &world);
        api.control_plane().spawn()?;
        let attached = attached(lab, &pods)?;
        let places = |pod: &Pod| {
            let all = [false, true].into_iter().flat_map(|is_ipv6| {
                [8080, 9090].map(|port| SocketAddr::new(pod.address(is_ipv6), port))
            });
            all.collect::<Vec<SocketAddr>>()
        };
        let _first = lab.answering(&attached[2], &places(&pods[2]))?;
        let _second = lab.answering(&attached[3], &places(&pods[3]))?;
        // By server and family: 8080, then 9090.
        let asked: Vec<SocketAddr> = pods[2..].iter().flat_map(places).collect();
        let expect = |what: &str, client: usize, open: [bool; 2], other: [bool; 2]| {
            let expected: Vec<bool> = [open, open, other, other].concat();
            eventually(what, SOON, || {
                let [replies, _] = lab.ask(&End::Pod(&attached[client]), &asked, &[])?;
                let by =
                    replies.iter().zip(&asked).map(|(reply, place)| *reply == Reply::By(*place));
                let seen: Vec<bool> = by.collect();
                ensure!(seen == expected, "{asked:?}: {replies:?}");
                Ok(())
            })
        };
        expect("the client reaches each server's own port", 0, [true, false], [false, true])?;
        expect("the other pod reaches nothing", 1, [false, false], [false, false])?;
        api.replace("NetworkPolicy", Vec::new());
        expect("without the policy all is open", 1, [true, true], [true, true])?;
        Ok(())
    });
}

/// Flows grow with peers plus ports, in clusters of both families, too: the ACL of the two
/// families' addresses is not multiplied out.
#[test]
fn the_flows_of_a_policy_are_not_its_peers_times_its_ports() {
    const CLIENTS: u8 = 30;
    Lab::of_nodes(1).families(Families::Dual).empty().test(|lab| {
        let api = Api::start()?;
        let server = pod(1, 3, vec![("app", "server")], web(8080));
        // Of these the server's node knows the addresses in a set.
        let clients =
            (4..4 + CLIENTS).map(|host| pod(1, host, vec![("app", "client")], Vec::new()));
        let pods: Vec<Pod> = std::iter::once(server.clone()).chain(clients).collect();
        let of_clients =
            Peer::Selectors { namespaces: None, pods: Some(selector(vec![("app", "client")])) };
        let numbers =
            (8000..8010).map(Number::Of).chain([Number::Range(9000, 9009), Number::Named("web")]);
        let ports = numbers.map(|number| Port { protocol: None, number: Some(number) }).collect();
        let rule = Rule { peers: vec![of_clients], ports };
        let mut world = World {
            namespaces: vec![Namespace { name: "lab", labels: Vec::new() }],
            pods,
            // It isolates the server and opens nothing yet.
            policies: vec![policy(Vec::new())],
            ..World::default()
        };
        tell(&api, &world);
        api.control_plane().spawn()?;
        attached(lab, &[server])?;
        let flows = || {
            lab.central.sync()?;
            let dumped = lab.nodes[0].run(["ovs-ofctl", "dump-flows", "br-int"])?;
            Ok::<usize, anyhow::Error>(dumped.lines().count())
        };
        let acl = |what, condition, text| {
            eventually(what, SOON, || {
                let found =
                    lab.central.nbctl(["--bare", "--columns=match", "find", "ACL", condition])?;
                ensure!(found.contains(text), "{found}");
                Ok(())
            })
        };
        acl("the policy isolates the server", "action=drop", "outport")?;
        let before = flows()?;
        world.policies = vec![policy(vec![rule])];
        tell(&api, &world);
        acl("the rule is there", "action=allow-related", "tcp.dst==8000")?;
        let added = flows()?.saturating_sub(before);
        let sum = usize::from(CLIENTS) + 10 + 10;
        // OVN has each ACL in two logical flows, and the port with a name is a conjunction of its
        // own.
        ensure!(
            added > sum && added < 8 * sum,
            "{added} flows for {CLIENTS} peers of two families, {before} before"
        );
        Ok(())
    });
}

/// A pod under a policy that allows nothing starts again and again, while its neighbour knocks: not
/// one answer.
#[test]
fn a_pod_that_starts_under_a_policy_answers_nobody() {
    Lab::of_nodes(1).families(Families::Dual).empty().test(|lab| {
        let api = Api::start()?;
        let namespaces = vec![Namespace { name: "lab", labels: Vec::new() }];
        let client = pod(1, 3, vec![("app", "client")], Vec::new());
        let mut world = World {
            namespaces,
            pods: vec![client],
            policies: vec![policy(Vec::new())],
            ..World::default()
        };
        tell(&api, &world);
        api.control_plane().spawn()?;
        let node = &lab.nodes[0];
        let neighbour = lab.plan_pod(node);
        node.add_namespaces(std::slice::from_ref(&neighbour))?;
        by_hand::attach(node, &neighbour)?;
        let mut servers = Vec::new();
        for start in 0..STARTS {
            let server = lab.plan_pod(node);
            let at = SocketAddr::new(server.address(), 8080);
            node.add_namespaces(std::slice::from_ref(&server))?;
            let pace = integration::peer::Pace {
                every: Duration::from_millis(5),
                patience: Duration::from_millis(500),
            };
            let knocking = lab.connections(&neighbour, at, pace)?;
            let host = u8::try_from(4 + start)?;
            world.pods.push(pod(1, host, vec![("app", "server")], Vec::new()));
            tell(&api, &world);
            by_hand::attach(node, &server)?;
            servers.push(lab.answering(&server, &[at])?);
            // Longer than the flows of a port take.
            let_pass(Duration::from_secs(2));
            let answered =
                knocking.all().iter().filter(|connection| connection.by.is_some()).count();
            ensure!(answered == 0, "start {start}: {answered} connections were answered");
        }
        // They do answer once nothing isolates them.
        api.replace("NetworkPolicy", Vec::new());
        let at: Vec<SocketAddr> =
            world.pods[1..].iter().map(|pod| SocketAddr::new(pod.address(false), 8080)).collect();
        eventually("without the policy they answer", SOON, || {
            let [replies, _] = lab.ask(&End::Pod(&neighbour), &at, &[])?;
            let all: Vec<Reply> = at.iter().map(|place| Reply::By(*place)).collect();
            ensure!(replies == all, "{replies:?}");
            Ok(())
        })
    });
}

/// A connection from before the policy that forbids it: it stands still while the policy is in
/// force, without an end, and goes on after it.
#[test]
fn a_policy_stops_connections_from_before_it() {
    Lab::of_nodes(2).families(Families::V4).empty().test(|lab| {
        let api = Api::start()?;
        let namespaces = vec![Namespace { name: "lab", labels: Vec::new() }];
        let pods = vec![
            pod(1, 3, vec![("app", "client")], Vec::new()),
            pod(2, 3, vec![("app", "server")], Vec::new()),
        ];
        let open = World { namespaces, pods, ..World::default() };
        tell(&api, &open);
        api.control_plane().spawn()?;
        let attached = attached(lab, &open.pods)?;
        let (client, server) = (End::Pod(&attached[0]), &attached[1]);
        let at = |port| SocketAddr::new(server.address(), port);
        let _answering = lab.answering(server, &[at(8080)])?;
        let echo = lab.tcp_echo(&End::Pod(server), at(9000))?;
        let is_open = |what: &str, expected: bool| {
            eventually(what, SOON, || {
                let [replies, _] = lab.ask(&client, &[at(8080)], &[])?;
                ensure!((replies == [Reply::By(at(8080))]) == expected, "{replies:?}");
                Ok(())
            })
        };
        is_open("without a policy they connect", true)?;
        let old = lab.drip(&client, echo.address, Duration::from_millis(50))?;
        tell(&api, &World { policies: vec![policy(Vec::new())], ..open.clone() });
        is_open("the policy is in force for new connections", false)?;
        let_pass(FORBIDDEN);
        tell(&api, &open);
        is_open("the policy is gone", true)?;
        let kept = old.stop()?;
        let least = u64::try_from(FORBIDDEN.as_millis())?;
        ensure!(kept.slowest >= least, "the connection went on under the policy: {kept:?}");
        Ok(())
    });
}

/// A policy of the whole cluster about the servers, with one rule for connections from pods with
/// this label.
fn cluster_policy(kind: Kind, action: Action, from: Labels) -> ClusterPolicy {
    let all = || selector(Vec::new());
    let peers = vec![ClusterPeer::Pods(all(), selector(from))];
    ClusterPolicy {
        kind,
        name: format!("{action:?}").to_lowercase(),
        subject: (all(), Some(selector(vec![("app", "server")]))),
        ingress: vec![ClusterRule { action, peers, ports: Vec::new() }],
        egress: Vec::new(),
    }
}

/// An administrator's policy is before a namespace's, and a default behind it. To pass from the one
/// to the other needs an OVN with tiers; with an older one, the policy has no effect, and an event
/// says so.
#[test]
fn administrators_policies_are_before_those_of_namespaces_and_defaults_behind() {
    Lab::of_nodes(2).families(Families::Dual).empty().test(|lab| {
        let api = Api::start()?;
        let pods = [
            pod(1, 3, vec![("app", "client")], Vec::new()),
            pod(1, 4, vec![("app", "other")], Vec::new()),
            pod(2, 3, vec![("app", "server")], Vec::new()),
        ];
        let namespaces = vec![Namespace { name: "lab", labels: Vec::new() }];
        let mut world = World { namespaces, pods: pods.to_vec(), ..World::default() };
        let deny_other = cluster_policy(
            Kind::ClusterNetworkPolicy(Tier::Admin, 10),
            Action::Deny,
            vec![("app", "other")],
        );
        world.cluster_policies = vec![deny_other.clone()];
        tell(&api, &world);
        api.control_plane().spawn()?;
        let attached = attached(lab, &pods)?;
        let asked = [false, true].map(|is_ipv6| SocketAddr::new(pods[2].address(is_ipv6), 8080));
        let _server = lab.answering(&attached[2], &asked)?;
        let expect = |what: &str, open: [bool; 2]| {
            eventually(what, SOON, || {
                for (client, open) in attached.iter().zip(open) {
                    let [replies, _] = lab.ask(&End::Pod(client), &asked, &[])?;
                    let by = replies
                        .iter()
                        .zip(&asked)
                        .map(|(reply, place)| *reply == Reply::By(*place));
                    ensure!(by.clone().all(|by| by == open), "{}: {replies:?}", client.name);
                }
                Ok(())
            })
        };
        expect("the administrator's policy denies the other pod alone", [true, false])?;
        let baseline = Kind::ClusterNetworkPolicy(Tier::Baseline, 0);
        let deny_all = ClusterPolicy {
            name: "baseline".to_owned(),
            ..cluster_policy(baseline, Action::Deny, Vec::new())
        };
        world.cluster_policies = vec![deny_other.clone(), deny_all.clone()];
        tell(&api, &world);
        expect("the default denies both", [false, false])?;
        world.policies = vec![policy(vec![Rule { peers: Vec::new(), ports: Vec::new() }])];
        tell(&api, &world);
        expect(
            "the namespace's policy goes before the default, not before the administrator's",
            [true, false],
        )?;
        let pass = cluster_policy(
            Kind::ClusterNetworkPolicy(Tier::Admin, 5),
            Action::Pass,
            vec![("app", "other")],
        );
        world.cluster_policies = vec![pass, deny_other, deny_all];
        tell(&api, &world);
        // ovn-nbctl refuses a column that the schema lacks.
        let has_tiers = lab.central.nbctl(["--columns=tier", "list", "ACL"]).is_ok();
        if has_tiers {
            expect("what passes is the namespace's decision", [true, true])?;
        } else {
            eventually("an event says what OVN lacks", SOON, || {
                let events = api.events();
                ensure!(events.iter().any(|reason| reason == "NoTiers"), "{events:?}");
                Ok(())
            })?;
            expect("the policy has no effect", [true, false])?;
        }
        world.policies.clear();
        world.cluster_policies.clear();
        tell(&api, &world);
        expect("without policies all is open", [true, true])?;
        Ok(())
    });
}

/// The control plane has OVN read the ports of fragments on this datapath, which is in user space,
/// unless an administrator does not want that. An OVN before 26.03 does not know the option.
#[test]
fn a_rule_that_denies_a_port_denies_fragments_to_it() {
    Lab::of_nodes(2).families(Families::Dual).empty().test(|lab| {
        let api = Api::start()?;
        let pods = [
            pod(1, 3, vec![("app", "client")], Vec::new()),
            pod(2, 3, vec![("app", "server")], Vec::new()),
        ];
        let mut deny = cluster_policy(
            Kind::ClusterNetworkPolicy(Tier::Admin, 10),
            Action::Deny,
            vec![("app", "client")],
        );
        deny.ingress[0].ports = vec![ClusterPort::Range(Protocol::Udp, 1024, 65_000)];
        let namespaces = vec![Namespace { name: "lab", labels: Vec::new() }];
        let world = World { namespaces, pods: pods.to_vec(), ..World::default() };
        tell(&api, &world);
        let set = |value| {
            lab.central.nbctl(["set", "NB_Global", ".", &format!("{OPTION}={value}")]).map(drop)
        };
        let has = |value: &str| {
            let found = lab.central.nbctl(["--if-exists", "get", "NB_Global", ".", OPTION])?;
            ensure!(found.trim().trim_matches('"') == value, "{found}");
            Ok(())
        };
        set("false")?;
        let control_plane = api.control_plane_with([format!("--sb-address={SOUTHBOUND}")]);
        control_plane.spawn()?;
        let [client, server] = &attached(lab, &pods)?[..] else { bail!("two pods") };
        let sent = |size| lab.udp(client, server, 5, size);
        for size in [100, 4000] {
            eventually("all is open", SOON, || {
                let echoes = sent(size)?;
                ensure!(echoes.received == echoes.sent, "{size} bytes: {echoes:?}");
                Ok(())
            })?;
        }
        has("false")?;
        control_plane.stop()?;
        lab.central.nbctl(["remove", "NB_Global", ".", "options", "acl_ct_translation"])?;
        control_plane.spawn()?;
        eventually("the option is set", SOON, || has("true"))?;

        tell(&api, &World { cluster_policies: vec![deny], ..world });
        eventually("the policy denies", SOON, || {
            let echoes = sent(100)?;
            ensure!(echoes.received == 0, "{echoes:?}");
            Ok(())
        })?;
        lab.central.sync()?;
        let in_fragments = sent(4000)?;
        ensure!(in_fragments.received == 0 || !reads_ports_of_fragments()?, "{in_fragments:?}");
        Ok(())
    });
}

/// Whether OVN has the option: since 26.03.
fn reads_ports_of_fragments() -> Result<bool> {
    let release = Versions::installed()?.ovn;
    let year = release.split('.').next().context("a year")?.parse::<u32>()?;
    Ok(year >= 26)
}

/// Where the server of a node shows what it has counted.
const METRICS: &str = "127.0.0.1:9410";
/// Packets that a dry run would drop.
const WOULD_DROP: u64 = 20;

/// The node's number of packets that the policy of the servers would drop. None: it has no series.
fn would_drop(node: &Node) -> Result<Option<u64>> {
    let (host, port) = METRICS.split_once(':').context("an address and a port")?;
    let ask = r"GET /metrics HTTP/1.0\r\nHost: node\r\n\r\n";
    let script = format!("exec 3<>/dev/tcp/{host}/{port} && printf '{ask}' >&3 && cat <&3");
    let page = node.run(["bash", "-c", &script])?;
    ensure!(page.contains("ovnkube_node_build_info"), "{page}");
    let name = "ovnkube_node_dry_run_would_drop_packets_total{";
    let Some(line) = page.lines().find(|line| line.starts_with(name)) else { return Ok(None) };
    let labels = r#"direction="Ingress",namespace="lab",policy="policy"} "#;
    let number = line.strip_prefix(name).and_then(|rest| rest.strip_prefix(labels));
    Ok(Some(number.with_context(|| line.to_owned())?.parse()?))
}

/// The policy would let the client reach one port. It gets there, and to all others as well, and of
/// these packets the node counts each. It may count a few more: reports of multicast listeners go
/// to all pods. Without tiers of ACLs a dry run has no effect, and an event says so.
#[test]
fn a_dry_run_drops_nothing_and_each_packet_that_it_would_drop_is_counted() {
    Lab::of_nodes(1).families(Families::V4).empty().test(|lab| {
        let api = Api::start()?;
        let pods = vec![
            pod(1, 3, vec![("app", "client")], Vec::new()),
            pod(1, 4, vec![("app", "server")], Vec::new()),
        ];
        let namespaces = vec![Namespace { name: "lab", labels: Vec::new() }];
        let port = Port { protocol: None, number: Some(Number::Of(8080)) };
        let policies = vec![policy(vec![Rule { peers: Vec::new(), ports: vec![port] }])];
        let world = World { namespaces, pods, policies, ..World::default() };
        let enforced = world.manifests().policies;
        tell(&api, &World { policies: Vec::new(), ..world.clone() });
        api.control_plane().spawn()?;
        let attached = attached(lab, &world.pods)?;
        let node = &lab.nodes[0];
        node.server.set_arguments([
            format!("--init-node={}", node.name),
            format!("--k8s-apiserver={}", api.url()),
            format!("--mtu={}", node.mtu),
            format!("--metrics-bind-address={METRICS}"),
            "--cluster-subnets=10.244.0.0/16/24,fd00:10:244::/48".to_owned(),
            "--k8s-service-cidrs=10.96.0.0/16,fd00:10:96::/112".to_owned(),
        ]);
        node.start_server()?;
        let (client, server) = (&attached[0], &attached[1]);
        let at = |port| SocketAddr::new(server.address(), port);
        let _answering = lab.answering(server, &[at(8080), at(9090)])?;
        let all_are_open = || {
            let [replies, _] = lab.ask(&End::Pod(client), &[at(8080), at(9090)], &[])?;
            ensure!(replies == [Reply::By(at(8080)), Reply::By(at(9090))], "{replies:?}");
            Ok(())
        };
        eventually("without the policy all is open", SOON, all_are_open)?;
        ensure!(would_drop(node)?.is_none(), "there is no dry run yet");

        let mut dry_run = enforced.clone();
        dry_run[0]["metadata"]["annotations"] = json!({"k8s.ovn.org/policy-dry-run": "true"});
        api.replace("NetworkPolicy", dry_run);
        // ovn-nbctl refuses a column that the schema lacks.
        if lab.central.nbctl(["--columns=tier", "list", "ACL"]).is_err() {
            eventually("an event says what OVN lacks", SOON, || {
                let events = api.events();
                ensure!(events.iter().any(|reason| reason == "NoTiers"), "{events:?}");
                Ok(())
            })?;
            // What is counted is what ovn-controller logs: an ACL by hand stands for the policy's.
            let switch = node.name.as_str();
            let matching = format!("ip4.dst == {} && icmp4", server.address());
            let name = "--name=DryRun:lab:policy:Ingress";
            let acl = ["acl-add", switch, "to-lport", "900", &matching, "allow"];
            let words = ["--log", "--severity=info", name].into_iter().chain(acl);
            lab.central.nbctl(words)?;
        }
        let mut counted = 0;
        eventually("ovn-controller has made the flows", SOON, || {
            counted = would_drop(node)?.context("no series")?;
            Ok(())
        })?;
        // What the policy would allow is not counted: these are more packets than those below.
        for _ in 0..10 {
            let [replies, _] = lab.ask(&End::Pod(client), &[at(8080)], &[])?;
            ensure!(replies == [Reply::By(at(8080))], "{replies:?}");
        }
        let (count, address) = (WOULD_DROP.to_string(), server.address().to_string());
        let pings =
            node.run_in_pod(client, ["ping", "-c", &count, "-i", "0.01", "-W", "5", &address])?;
        ensure!(pings.contains(&format!("{WOULD_DROP} received")), "{pings}");
        eventually("each packet is counted, once", SOON, || {
            let now = would_drop(node)?.context("no series")?.saturating_sub(counted);
            ensure!((WOULD_DROP..2 * WOULD_DROP).contains(&now), "{now} packets of {WOULD_DROP}");
            Ok(())
        })?;
        all_are_open()?;
        Ok(())
    });
}
