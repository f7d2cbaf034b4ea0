//! Services by packets: the control plane as a process, with an API server that the test plays.
//!
//! `OVN_FLAP_SECONDS=60 cargo nextest run -p integration -E 'test(/^services::.*flap/)'` lets
//! endpoints flap for a minute.

use std::{
    collections::BTreeSet,
    env,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Datapath, Families, Lab, Pod, Versions, by_hand,
    central::SOUTHBOUND,
    connections::Server,
    eventually, let_pass,
    peer::{Connection, Moment, Pace, Reply},
    traffic::End,
};
use oracle::{
    Answer, Client, Probe, World, answer, probes,
    random::world_of,
    world::{
        AddressType, Endpoint, EndpointPort, EndpointSlice, Node, Protocol, Service, ServicePort,
        ServiceType, node_name,
    },
};
use proptest::{
    strategy::{Strategy as _, ValueTree as _},
    test_runner::TestRunner,
};

use crate::support::api::Api;
use crate::support::managed;

/// Limit for rows and flows to follow, on a busy machine.
const SOON: Duration = Duration::from_secs(30);
/// Changes of the flapping Service a second.
const FLAPS: u32 = 100;
/// Seconds for which it flaps.
const FLAPPING: u32 = 4;
/// Random worlds of a run.
const WORLDS: usize = 3;
/// Questions of each client in each world.
const QUESTIONS: usize = 16;

/// Attaches the pods with these numbers of nodes, in the order of their numbers.
fn attach(lab: &Lab, nodes: &[u8]) -> Result<Vec<Pod>> {
    nodes
        .iter()
        .map(|node| {
            let node = &lab.nodes[usize::from(*node) - 1];
            let pod = lab.plan_pod(node);
            node.add_namespaces(std::slice::from_ref(&pod))?;
            by_hand::attach(node, &pod)?;
            Ok(pod)
        })
        .collect()
}

/// The same pod as the model has it.
fn of_model(pod: &Pod) -> oracle::world::Pod {
    let number = |text: &str| {
        text.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().expect("a number")
    };
    let (node, host) = pod.name.split_once("-pod").expect("the lab names pods so");
    oracle::world::Pod { node: number(node), host: number(host) }
}

fn nodes() -> Vec<Node> {
    [1, 2].map(|number| Node { number, zone: None }).into()
}

/// The endpoints serve all the time, so a client must not notice that they come and go, nor that
/// the control plane is killed meanwhile. The last state holds when it is back.
#[test]
fn clients_notice_neither_endpoints_that_flap_nor_a_control_plane_that_is_killed() {
    let seconds: u32 = env::var("OVN_FLAP_SECONDS")
        .map_or(FLAPPING, |text| text.parse().expect("OVN_FLAP_SECONDS is a number"));
    Lab::of_nodes(2).families(Families::Dual).empty().test(|lab| {
        let api = Api::start()?;
        let world = |pods: &[oracle::world::Pod], endpoints: Vec<Endpoint>| World {
            nodes: nodes(),
            pods: pods.to_vec(),
            services: vec![Service::named("web", &["10.96.0.10"], vec![ServicePort::tcp(80)])],
            slices: vec![EndpointSlice::of("web", 8080, endpoints)],
        };
        let model = [(1, 3), (1, 4), (2, 3), (2, 4)].map(|(node, host)| oracle::world::Pod { node, host });
        api.tell(&world(&model, vec![Endpoint::of(&model[1])]));
        let control_plane = api.control_plane();
        control_plane.spawn()?;
        let pods = attach(lab, &model.each_ref().map(|pod| pod.node))?;
        let [client, servers @ ..] = &pods[..] else { unreachable!("four pods") };
        let addresses = servers.iter().map(|pod| SocketAddr::new(pod.address(), 8080));
        let addresses: Vec<SocketAddr> = addresses.collect();
        let answering = servers.iter().zip(&addresses).map(|(pod, address)| lab.answering(pod, &[*address]));
        let _answering: Vec<Server> = answering.collect::<Result<_>>()?;
        let vip: SocketAddr = "10.96.0.10:80".parse()?;
        eventually("the Service answers", SOON, || {
            let [replies, _] = lab.ask(&End::Pod(client), &[vip], &[])?;
            ensure!(replies == [Reply::By(addresses[0])], "{replies:?}");
            Ok(())
        })?;

        let connections = lab.connections(client, vip, Pace::PATIENT)?;
        let changes = seconds * FLAPS;
        let begun = Instant::now();
        for change in 1..=changes {
            // The first endpoint stays; of the others, another choice each time.
            let there = (0..3).filter(|place| *place == 0 || change >> (place - 1) & 1 == 1);
            let endpoints = there.map(|place: u32| Endpoint::of(&model[1 + place as usize])).collect();
            let slice = &world(&model, endpoints).manifests().slices[0];
            api.put(slice.clone());
            if change == changes / 3 {
                control_plane.kill()?;
            }
            if change == changes / 2 {
                control_plane.spawn()?;
            }
            let_pass(
                (begun + Duration::from_secs(1) / FLAPS * change).saturating_duration_since(Instant::now()),
            );
        }
        let flapped = Moment::now();
        // Only the last one: rows and flows follow a control plane that was killed in between.
        api.put(world(&model, vec![Endpoint::of(&model[3])]).manifests().slices[0].clone());
        connections.wait("the last state holds", SOON, |seen| {
            // As many in a row as three endpoints would hardly give by chance.
            let last: Vec<&Connection> = seen.iter().rev().take(20).collect();
            (last.len() == 20 && last.iter().all(|connection| connection.by == Some(addresses[2])))
                .then_some(())
        })?;
        // A connection that is begun now is answered or given up after all earlier ones.
        let_pass(Pace::PATIENT.patience);
        let all = connections.all();
        let (while_it_flapped, refused) = (
            all.iter().filter(|connection| connection.begun < flapped),
            all.iter().filter(|connection| connection.by.is_none()).count(),
        );
        let by: BTreeSet<SocketAddr> =
            while_it_flapped.clone().filter_map(|connection| connection.by).collect();
        let (answered, unanswered) = (while_it_flapped.count(), connections.unanswered().len());
        let took = |connection: &Connection| connection.answered.milliseconds_since(connection.begun);
        let slowest = all.iter().map(took).fold(0., f64::max);
        // TCP repeats a lost packet after one second.
        let repeated = all.iter().filter(|connection| took(connection) > 900.).count();
        println!(
            "{changes} changes: {answered} connections, {refused} refused, {unanswered} not answered, \
             {repeated} after a repeated packet, the slowest {slowest:.0} ms"
        );
        ensure!(
            refused == 0 && unanswered == 0,
            "{refused} refused, {unanswered} not answered, of {answered}"
        );
        ensure!(answered > 10 * seconds as usize, "{answered} connections");
        ensure!(by.len() == 3, "only {by:?} answered: nothing has flapped");
        Ok(())
    });
}

/// A node port is one load balancer for all nodes. A pod reaches it at the addresses of its own
/// node, which are variables, of both families.
#[test]
fn node_ports_with_variables_answer_pods_at_the_addresses_of_their_nodes() {
    Lab::of_nodes(2).families(Families::Dual).empty().test(|lab| {
        let api = Api::start()?;
        let model = [(1, 3), (2, 3)].map(|(node, host)| oracle::world::Pod { node, host });
        let port = ServicePort { node_port: Some(30_080), ..ServicePort::tcp(80) };
        let service = Service::named("web", &["10.96.0.10", "fd00:10:96::10"], vec![port]);
        let [v4, v6] = model[1].addresses();
        let of_v4 = EndpointSlice::of("web", 8080, vec![Endpoint::of(&model[1])]);
        let of_v6 = EndpointSlice {
            name: "web-v6".to_owned(),
            address_type: AddressType::Ipv6,
            endpoints: vec![Endpoint { address: v6.to_string(), ..Endpoint::of(&model[1]) }],
            ..of_v4.clone()
        };
        api.tell(&World {
            nodes: nodes(),
            pods: model.to_vec(),
            services: vec![Service { kind: ServiceType::NodePort, ..service }],
            slices: vec![of_v4, of_v6],
        });
        api.control_plane().spawn()?;
        let pods = attach(lab, &model.each_ref().map(|pod| pod.node))?;
        let backends = [v4, v6].map(|address| SocketAddr::new(address, 8080));
        let _answering = lab.answering(&pods[1], &backends)?;
        for (pod, node) in pods.iter().zip(nodes()) {
            let at = node.addresses().map(|address| SocketAddr::new(address, 30_080));
            eventually("the node port answers", SOON, || {
                let [replies, _] = lab.ask(&End::Pod(pod), &at, &[])?;
                ensure!(replies == backends.map(Reply::By), "{}: {replies:?}", pod.name);
                Ok(())
            })?;
        }
        let names = lab.central.nbctl(["--bare", "--columns=name", "list", "Load_Balancer"])?;
        ensure!(
            names.contains("_node_switch_template_IPv4") && !names.contains("_node1"),
            "{names}"
        );
        Ok(())
    });
}

/// Whether the datapath gives packets of SCTP the backend's port. The userspace datapath tracks
/// SCTP by addresses alone before 3.2.0 (`docs/troubleshooting.md`).
fn ports_of_sctp_are_translated() -> Result<bool> {
    let version = Versions::installed()?.open_vswitch;
    let numbers: Vec<u32> = version.split('.').map(str::parse).collect::<Result<_, _>>()?;
    Ok(Datapath::of_lab() == Datapath::System || numbers >= vec![3, 2])
}

/// Without SCTP in the kernel, the first packets of an association: they have the Service's address
/// and port on one side and the pod's on the other, and each time a right checksum.
#[test]
fn an_sctp_port_is_answered_by_its_pod_and_refuses_at_once_without_one() {
    Lab::of_nodes(2).families(Families::Dual).empty().test(|lab| {
        let api = Api::start()?;
        let model = [(1, 3), (1, 4), (2, 3)].map(|(node, host)| oracle::world::Pod { node, host });
        let target = if ports_of_sctp_are_translated()? { 8080 } else { 80 };
        let port = ServicePort { protocol: Protocol::Sctp, ..ServicePort::tcp(80) };
        let slice = |of: &str, pod: &oracle::world::Pod, number: usize| {
            let (name, address_type) =
                [("v4", AddressType::Ipv4), ("v6", AddressType::Ipv6)][number];
            let endpoint =
                Endpoint { address: pod.addresses()[number].to_string(), ..Endpoint::of(pod) };
            EndpointSlice {
                name: format!("{of}-{name}"),
                address_type,
                ports: vec![EndpointPort {
                    name: None,
                    protocol: Some(Protocol::Sctp),
                    port: Some(target),
                }],
                ..EndpointSlice::of(of, target, vec![endpoint])
            }
        };
        let named = |(name, last): (&str, u8)| {
            let addresses = [format!("10.96.0.{last}"), format!("fd00:10:96::{last}")];
            Service::named(name, &addresses.each_ref().map(String::as_str), vec![port.clone()])
        };
        // By a pod of the client's node, and of the other one.
        let served = [("near", 10), ("far", 11)];
        let slices = served.iter().zip(&model[1..]);
        api.tell(&World {
            nodes: nodes(),
            pods: model.to_vec(),
            services: served.into_iter().chain([("empty", 12)]).map(named).collect(),
            slices: slices
                .flat_map(|((name, _), pod)| [0, 1].map(|number| slice(name, pod, number)))
                .collect(),
        });
        api.control_plane().spawn()?;
        let pods = attach(lab, &model.each_ref().map(|pod| pod.node))?;
        let ask = |last: u8| -> Result<Vec<Reply>> {
            let vips = [
                format!("10.96.0.{last}:80").parse()?,
                format!("[fd00:10:96::{last}]:80").parse()?,
            ];
            lab.ask_sctp(&End::Pod(&pods[0]), &vips)
        };
        for (((name, last), pod), server) in served.iter().zip(&pods[1..]).zip(&model[1..]) {
            let backends = server.addresses().map(|address| SocketAddr::new(address, target));
            let _answering = lab.answering_sctp(pod, &backends)?;
            eventually(&format!("the pod of {name} answers"), SOON, || {
                let replies = ask(*last)?;
                ensure!(replies == backends.map(Reply::By), "{replies:?}");
                Ok(())
            })?;
        }
        eventually("a Service without endpoints refuses", SOON, || {
            let replies = ask(12)?;
            ensure!(replies == [Reply::Refused; 2], "{replies:?}");
            Ok(())
        })
    });
}

/// A client that comes to an idled Service waits for its pod and is answered. Nobody is refused:
/// neither while it is idled, nor while it is idled no longer and its pod not ready yet.
#[test]
fn a_connection_to_an_idled_service_asks_for_its_pod_and_is_answered_by_it() {
    Lab::of_nodes(2).families(Families::Dual).empty().test(|lab| {
        let api = Api::start()?;
        let model = [(1, 3), (2, 3)].map(|(node, host)| oracle::world::Pod { node, host });
        let world = World {
            nodes: nodes(),
            pods: model.to_vec(),
            services: vec![Service::named("web", &["10.96.0.10"], vec![ServicePort::tcp(80)])],
            slices: vec![EndpointSlice::of("web", 8080, vec![])],
        };
        api.tell(&world);
        let awake = world.manifests().services[0].clone();
        let mut idled = awake.clone();
        // By another program than upstream's own.
        idled["metadata"]["annotations"]["idling.example.org/idled-at"] =
            "2026-01-01T00:00:00Z".into();
        api.put(idled);
        let options = ["--ovn-empty-lb-events".to_owned(), format!("--sb-address={SOUTHBOUND}")];
        api.control_plane_with(options).spawn()?;
        let pods = attach(lab, &model.each_ref().map(|pod| pod.node))?;
        let backend = SocketAddr::new(pods[1].address(), 8080);
        let _answering = lab.answering(&pods[1], &[backend])?;
        eventually("the load balancer is there", SOON, || {
            let options =
                lab.central.nbctl(["--bare", "--columns=options", "list", "Load_Balancer"])?;
            ensure!(options.contains("event=true"), "{options}");
            Ok(())
        })?;
        lab.central.sync()?;

        let pace = Pace { every: Duration::from_millis(100), patience: Duration::from_secs(20) };
        let connections = lab.connections(&pods[0], "10.96.0.10:80".parse()?, pace)?;
        eventually("the event asks for pods", SOON, || {
            let events = api.events();
            ensure!(events.iter().any(|reason| reason == "NeedPods"), "{events:?}");
            Ok(())
        })?;
        api.put(awake);
        eventually("the Service is idled no longer", SOON, || {
            let options =
                lab.central.nbctl(["--bare", "--columns=options", "list", "Load_Balancer"])?;
            ensure!(options.contains("event=true"), "no grace: {options}");
            Ok(())
        })?;
        // Connections during the grace; refusals would be among them.
        let_pass(Duration::from_millis(500));
        let before = Moment::now();
        let ready = EndpointSlice::of("web", 8080, vec![Endpoint::of(&model[1])]);
        api.put(World { slices: vec![ready], ..world }.manifests().slices[0].clone());
        connections.wait("a connection from before the pod is answered", SOON, |seen| {
            seen.iter().any(|of| of.begun < before && of.by == Some(backend)).then_some(())
        })?;
        let refused = connections.all().iter().filter(|connection| connection.by.is_none()).count();
        ensure!(refused == 0, "{refused} connections are refused");
        Ok(())
    });
}

/// A few of the worlds that the law asks OVN about, with packets from pods and hosts.
#[test]
fn packets_find_the_backends_that_the_reference_says_in_random_worlds() {
    Lab::of_nodes(2).families(Families::Dual).empty().test(|lab| {
        let mut runner = TestRunner::deterministic();
        let mut draw = || world_of(2..=2).new_tree(&mut runner).map(|tree| tree.current());
        let mut worlds = Vec::new();
        while worlds.len() < WORLDS {
            let world: World = draw().map_err(|why| anyhow::anyhow!("{why}"))?;
            // One in which something answers.
            if questions(&world).iter().any(|(_, expected)| matches!(expected, Answer::OneOf(_))) {
                worlds.push(world);
            }
        }
        let api = Api::start()?;
        let most = worlds.iter().max_by_key(|world| world.pods.len()).context("some")?;
        let mut planned: Vec<oracle::world::Pod> =
            worlds.iter().flat_map(|world| world.pods.clone()).collect();
        planned.sort_by_key(|pod| (pod.host, pod.node));
        planned.dedup();
        let all = World { pods: planned.clone(), ..most.clone() };
        api.tell(&all);
        let control_plane = api.control_plane();
        control_plane.spawn()?;
        for node in &lab.nodes {
            managed::serve(node, "10.96.0.0/16,fd00:10:96::/112")?;
        }
        let pods = attach(lab, &planned.iter().map(|pod| pod.node).collect::<Vec<_>>())?;
        ensure!(pods.iter().map(of_model).eq(planned.iter().cloned()), "{planned:?}: {pods:?}");
        for world in &worlds {
            // Pods of other worlds are no endpoints here, and stay.
            let world = &World { pods: planned.clone(), ..world.clone() };
            api.tell(world);
            check(lab, world, &pods).with_context(|| format!("in this world:\n{world}"))?;
        }
        Ok(())
    });
}

/// Some questions whose answer a pod gives, or nobody.
fn questions(world: &World) -> Vec<(Probe, Answer)> {
    let is_pod = |address: IpAddr| world.pods.iter().any(|pod| pod.addresses().contains(&address));
    let all = probes(world).into_iter().filter(|probe| probe.protocol != Protocol::Sctp);
    // The route of a host leads to the range of Services alone.
    let all = all.filter(|probe| probe.client.pod.is_some() || is_cluster_ip(world, probe.address));
    let all = all.map(|probe| (answer(world, &probe), probe));
    let all = all.filter(|(answer, _)| match answer {
        Answer::NoService => false,
        Answer::Refused => true,
        Answer::OneOf(backends) => backends.iter().all(|backend| is_pod(backend.ip())),
    });
    all.map(|(answer, probe)| (probe, answer)).collect()
}

fn is_cluster_ip(world: &World, address: IpAddr) -> bool {
    world.services.iter().any(|service| service.cluster_ips.contains(&address))
}

/// Asks as each client, until all answers are those of the model.
fn check(lab: &Lab, world: &World, pods: &[Pod]) -> Result<()> {
    let questions = questions(world);
    let backends: BTreeSet<SocketAddr> = questions
        .iter()
        .filter_map(
            |(_, answer)| if let Answer::OneOf(backends) = answer { Some(backends) } else { None },
        )
        .flatten()
        .copied()
        .collect();
    let mut servers = Vec::new();
    for pod in pods {
        let own = pod.addresses.iter().map(|net| net.addr());
        let own: BTreeSet<IpAddr> = own.collect();
        let at: Vec<SocketAddr> =
            backends.iter().filter(|backend| own.contains(&backend.ip())).copied().collect();
        if !at.is_empty() {
            servers.push(lab.answering(pod, &at)?);
        }
    }
    for node in &world.nodes {
        for is_pod in [true, false] {
            let own: Vec<&(Probe, Answer)> = questions
                .iter()
                .filter(|(Probe { client: Client { node: on, pod }, .. }, _)| {
                    on == node && pod.is_some() == is_pod
                })
                .collect();
            // Evenly over all of them.
            let step = own.len().div_ceil(QUESTIONS).max(1);
            let own: Vec<&(Probe, Answer)> = own.into_iter().step_by(step).collect();
            let from = match pods.iter().find(|pod| pod.node == node_name(node.number)) {
                Some(pod) if is_pod => End::Pod(pod),
                _ => End::Node(&lab.nodes[usize::from(node.number) - 1]),
            };
            eventually("the answers are those of the model", SOON, || ask(lab, &from, &own))?;
        }
    }
    Ok(())
}

fn ask(lab: &Lab, from: &End<'_>, questions: &[&(Probe, Answer)]) -> Result<()> {
    let of = |protocol: Protocol| -> Vec<&(Probe, Answer)> {
        questions.iter().filter(|(probe, _)| probe.protocol == protocol).copied().collect()
    };
    let asked = [Protocol::Tcp, Protocol::Udp].map(of);
    let [tcp, udp] = asked.each_ref().map(|asked| -> Vec<SocketAddr> {
        asked.iter().map(|(probe, _)| SocketAddr::new(probe.address, probe.port)).collect()
    });
    let replies = lab.ask(from, &tcp, &udp)?;
    for ((probe, expected), reply) in asked.iter().flatten().zip(replies.iter().flatten()) {
        let is_right = match (expected, reply) {
            (Answer::OneOf(backends), Reply::By(backend)) => backends.contains(backend),
            (Answer::Refused, Reply::Refused) => true,
            _ => false,
        };
        ensure!(is_right, "{probe:?}: {reply:?}, and not {expected:?}");
    }
    Ok(())
}
