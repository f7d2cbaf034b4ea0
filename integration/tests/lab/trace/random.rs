//! Random questions in random worlds, beside packets.

use std::{
    env,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};

use anyhow::{Context as _, Result, bail, ensure};
use fastrand::Rng;
use integration::{Families, Lab, Pod, connections::Server, eventually, peer::Reply, traffic::End};
use oracle::{
    policies::{
        self, ContainerPort, End as ModelEnd, Namespace, NetworkPolicy,
        cluster::{ClusterPeer, ClusterPolicy, Kind},
        random::{self, Passes},
    },
    world::{EndpointSlice, Protocol, Service, ServiceType},
};
use proptest::{
    collection::vec,
    option,
    sample::{select, subsequence},
    strategy::{Strategy, ValueTree as _},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use serde_json::Value;

use super::{SOON, answer::Answer, service, tell};
use crate::support::{
    api::Api,
    policy_world::{NAMESPACE, attached, pod},
};

/// How many questions the long form asks; without the variable, the short form.
const QUESTIONS: &str = "OVN_TRACE_QUESTIONS";
/// A number: another one gives other worlds.
const SEED: &str = "OVN_TRACE_SEED";
/// The number of the world to begin with: that of an error.
const WORLD: &str = "OVN_TRACE_WORLD";
/// Worlds of the short form, and questions in each of them.
const SHORT: [usize; 2] = [2, 50];
/// Pods of a world on each of its two nodes.
const PODS: u8 = 3;
/// Where each of them answers, over TCP and UDP.
const PORTS: [u16; 2] = [80, 8080];
/// The node ports of the Services begin here.
const NODE_PORTS: u16 = 30_080;
const SERVICES: usize = 2;
/// Priorities of the cluster's policies.
const PRIORITIES: [u16; 2] = [500, 37];

/// One question, and the packet beside it.
#[derive(Debug, Clone)]
struct Question {
    /// The number of the client's pod.
    client: usize,
    from: String,
    to: String,
    protocol: Protocol,
    place: SocketAddr,
    server: Target,
}

/// Who is to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    /// The pod with this number: the model knows as well.
    Pod(usize),
    /// An endpoint of a Service.
    Service,
}

/// What is drawn for a world.
struct Drawn {
    world: policies::World,
    services: Vec<(Service, EndpointSlice)>,
}

/// An answer that agrees with its packet.
struct Answered {
    /// The exit status.
    status: i32,
    /// At the first try, and not once the last rows were there.
    is_at_once: bool,
}

/// What was asked in all worlds.
#[derive(Debug, Default)]
struct Tally {
    asked: usize,
    delivered: usize,
    /// Delivered to some endpoints of several, and the packet goes to any.
    in_part: usize,
    at_once: usize,
}

fn runner(seed: u64) -> TestRunner {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    TestRunner::new_with_rng(Config::default(), rng)
}

fn number(variable: &str) -> Option<usize> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

/// A ClusterNetworkPolicy without names of the DNS.
fn cluster_policy(passes: Passes) -> impl Strategy<Value = ClusterPolicy> {
    let is_named = |peer: &ClusterPeer| matches!(peer, ClusterPeer::DomainNames(_));
    random::cluster_policy(passes).prop_map(move |mut policy| {
        policy.egress.retain(|rule| !rule.peers.iter().any(is_named));
        policy
    })
}

/// The objects of a world with these pods.
fn drawn(
    runner: &mut TestRunner,
    number: usize,
    pods: &[policies::Pod],
    passes: Passes,
) -> Result<Drawn> {
    let port = option::of((select(vec![Protocol::Tcp, Protocol::Udp]), select(PORTS.to_vec())));
    let strategy = (
        vec((random::labels(), port), pods.len()),
        vec(random::policy(), 1..=4),
        vec(cluster_policy(passes), 0..=PRIORITIES.len()),
        vec(subsequence((0..pods.len()).collect::<Vec<_>>(), 0..=3), SERVICES),
    );
    let tree = strategy.new_tree(runner).map_err(anyhow::Error::msg)?;
    let (of_pods, policies, cluster_policies, endpoints) = tree.current();
    let pods = pods.iter().zip(of_pods).map(|(pod, (labels, port))| {
        let named = |(protocol, number)| ContainerPort { name: "web", protocol, number };
        policies::Pod { labels, ports: port.map(named).into_iter().collect(), ..pod.clone() }
    });
    let policies = policies.into_iter().enumerate().map(|(own, policy)| NetworkPolicy {
        namespace: NAMESPACE,
        name: format!("policy{number}-{own}"),
        ..policy
    });
    // The API server of the lab has one kind.
    let of_cluster = |(policy, priority): (ClusterPolicy, &u16)| ClusterPolicy {
        kind: Kind::ClusterNetworkPolicy(policy.kind.tier(), *priority),
        name: format!("cluster{number}-{priority}"),
        ..policy
    };
    let world = policies::World {
        namespaces: vec![Namespace { name: NAMESPACE, labels: Vec::new() }],
        pods: pods.collect(),
        policies: policies.collect(),
        cluster_policies: cluster_policies.into_iter().zip(&PRIORITIES).map(of_cluster).collect(),
    };
    let services = endpoints.iter().zip(0_u16..).map(|(endpoints, own)| {
        let pods: Vec<&policies::Pod> = endpoints.iter().map(|index| &world.pods[*index]).collect();
        let (mut service, slice) =
            service(&format!("service{own}"), &format!("10.96.0.{}", 20 + own), &pods);
        service.kind = ServiceType::NodePort;
        service.ports[0].node_port = Some(NODE_PORTS + own);
        (service, slice)
    });
    let services = services.collect();
    Ok(Drawn { world, services })
}

/// All questions about a world: each pair of pods at each port, and each pod with each Service, at
/// its address and at the node port of its own node.
fn questions(drawn: &Drawn) -> Vec<Question> {
    let Drawn { world, services } = drawn;
    let nodes = world.nodes();
    let mut all = Vec::new();
    for (client, model) in world.pods.iter().enumerate() {
        let from = format!("{NAMESPACE}/{}", model.name);
        let question = |to: String, protocol, place, server| Question {
            client,
            from: from.clone(),
            to,
            protocol,
            place,
            server,
        };
        for (index, server) in world.pods.iter().enumerate().filter(|(index, _)| *index != client) {
            for (protocol, port) in [Protocol::Tcp, Protocol::Udp]
                .into_iter()
                .flat_map(|protocol| PORTS.map(|port| (protocol, port)))
            {
                let place = SocketAddr::new(server.address(false), port);
                // By its name or by its address.
                let to = match all.len() % 2 {
                    0 => format!("{NAMESPACE}/{}", server.name),
                    _ => place.ip().to_string(),
                };
                all.push(question(to, protocol, place, Target::Pod(index)));
            }
        }
        let own = nodes.iter().find(|node| node.number == model.node).expect("a pod has a node");
        for (service, _) in services {
            let place = SocketAddr::new(service.cluster_ips[0], 80);
            let to = format!("svc/{NAMESPACE}/{}", service.name);
            all.push(question(to, Protocol::Tcp, place, Target::Service));
            let port = service.ports[0].node_port.expect("it has a node port");
            let place = SocketAddr::new(own.addresses()[0], port);
            let to = place.ip().to_string();
            all.push(question(to, Protocol::Tcp, place, Target::Service));
        }
    }
    all
}

/// What becomes of the packets, all at once.
fn replies(lab: &Lab, attached: &[Pod], questions: &[Question]) -> Result<Vec<Reply>> {
    let of_client = |client: usize| -> Result<Vec<(usize, Reply)>> {
        let own = |protocol| {
            let of = move |(_, question): &(usize, &Question)| {
                question.client == client && question.protocol == protocol
            };
            questions.iter().enumerate().filter(of)
        };
        let places = |protocol| own(protocol).map(|(_, it)| it.place).collect::<Vec<_>>();
        let (tcp, udp) = (places(Protocol::Tcp), places(Protocol::Udp));
        let [by_tcp, by_udp] = lab.ask(&End::Pod(&attached[client]), &tcp, &udp)?;
        let indices = own(Protocol::Tcp).chain(own(Protocol::Udp)).map(|(index, _)| index);
        Ok(indices.zip(by_tcp.into_iter().chain(by_udp)).collect())
    };
    let found = thread::scope(|scope| {
        let clients = (0..attached.len()).map(|client| scope.spawn(move || of_client(client)));
        let clients: Vec<_> = clients.collect();
        let answers = clients.into_iter().map(|it| it.join().expect("a client does not panic"));
        answers.collect::<Result<Vec<_>>>()
    })?;
    let mut found = found.concat();
    found.sort_by_key(|(index, _)| *index);
    Ok(found.into_iter().map(|(_, reply)| reply).collect())
}

/// What becomes of all packets, once those between pods are as the model of policies says.
fn settled(
    lab: &Lab,
    attached: &[Pod],
    world: &policies::World,
    asked: &[Question],
) -> Result<Vec<Reply>> {
    let mut found = replies(lab, attached, asked)?;
    eventually("packets are as the model of policies says", SOON, || {
        // Of hundreds at once, a busy machine loses one now and then: what is right stays so.
        let wrong: Vec<usize> =
            (0..asked.len()).filter(|it| !agrees(world, &asked[*it], &found[*it])).collect();
        let Some(first) = wrong.first() else { return Ok(()) };
        let said = format!("{:?}: {:?} is not what the model says", asked[*first], found[*first]);
        let again: Vec<Question> = wrong.iter().map(|index| asked[*index].clone()).collect();
        for (index, reply) in wrong.iter().zip(replies(lab, attached, &again)?) {
            found[*index] = reply;
        }
        bail!("{} of {}, as {said}", wrong.len(), asked.len())
    })?;
    Ok(found)
}

/// Whether a packet between pods is as the model of policies says.
fn agrees(world: &policies::World, question: &Question, reply: &Reply) -> bool {
    let Target::Pod(server) = question.server else { return true };
    let (protocol, port) = (question.protocol, question.place.port());
    let place = policies::verdict::Place { is_ipv6: false, protocol, port };
    let client = ModelEnd::Pod(&world.pods[question.client]);
    is_answered(reply) == world.allows(client, &world.pods[server], place)
}

/// Whether a packet was answered.
fn is_answered(reply: &Reply) -> bool {
    matches!(reply, Reply::By(_))
}

/// The exit status of the answer, if it agrees with the packet.
fn compared(api_server: &str, question: &Question, reply: &Reply) -> Result<i32> {
    let port = question.place.port().to_string();
    let protocol = if question.protocol == Protocol::Tcp { "--tcp" } else { "--udp" };
    let answer = Answer::in_lab(api_server, &[&question.from, &question.to, protocol, &port])?;
    let status = of_ipv4(&answer);
    let is_right = match status {
        0 => is_answered(reply),
        1 => !is_answered(reply),
        // Some endpoints are reached, and the load balancer chooses.
        4 => question.server == Target::Service,
        _ => false,
    };
    ensure!(is_right, "{question:?}: {reply:?}, {status}: {:#}", answer.report);
    explained(api_server, question, reply)?;
    Ok(status)
}

/// Whether `policy explain` agrees with the packet, and the database with the policies. Node ports
/// are none of its business.
fn explained(api_server: &str, question: &Question, reply: &Reply) -> Result<()> {
    let Question { from, to, protocol, place, server, .. } = question;
    if *server == Target::Service && !to.starts_with("svc/") {
        return Ok(());
    }
    let port = format!("{}/{}", place.port(), protocol.name());
    let answer = Answer::explained(api_server, [from, to, &port])?;
    let findings = answer.report["findings"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_of_ipv4 = |finding: &&Value| {
        finding["subject"] == "verdict"
            && finding["name"].as_str().is_some_and(|name| !name.contains(':'))
    };
    let verdicts = findings.iter().filter(is_of_ipv4).map(|it| it["details"]["allowed"] == true);
    let verdicts: Vec<bool> = verdicts.collect();
    // Of several backends, the load balancer chooses.
    let is_right = verdicts.contains(&is_answered(reply))
        || verdicts.is_empty() && *server == Target::Service && !is_answered(reply);
    let is_carried = answer.status == 0;
    ensure!(is_right && is_carried, "explain: {question:?}: {reply:?}: {:#}", answer.report);
    Ok(())
}

/// The exit status that the verdict about IPv4 has, which packets are sent by. Policies name blocks of
/// one family, and pods have addresses of both.
fn of_ipv4(answer: &Answer) -> i32 {
    let findings = answer.report["findings"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_of_ipv4 = |finding: &&Value| {
        let name = finding["name"].as_str().unwrap_or_default();
        let client = name.split_once(" to ").map(|(client, _)| client.parse::<Ipv4Addr>());
        finding["subject"] == "verdict" && client.is_some_and(|client| client.is_ok())
    };
    match findings.iter().find(is_of_ipv4).and_then(|verdict| verdict["state"].as_str()) {
        Some("ok") => 0,
        Some("failed") => 1,
        Some("warning") => 4,
        Some(_) => 3,
        // Without a packet: there is no such end.
        None => answer.status,
    }
}

/// Asks all questions about a world.
fn ask(
    lab: &Lab,
    api: &Api,
    attached: &[Pod],
    drawn: &Drawn,
    asked: &[Question],
) -> Result<Vec<Answered>> {
    let first = settled(lab, attached, &drawn.world, asked)
        .with_context(|| format!("{:#?}", drawn.world))?;
    let (next, statuses) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let again = |question: &Question| {
        // Services may be there before all their rows, or after.
        eventually("packets are as trace says", SOON, || {
            let reply = replies(lab, attached, std::slice::from_ref(question))?;
            let reply = reply.first().context("a reply")?;
            ensure!(agrees(&drawn.world, question, reply), "{question:?}: {reply:?}");
            compared(api.url(), question, reply)
        })
    };
    let work = || -> Result<()> {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(question) = asked.get(index) else { return Ok(()) };
            let at_once = compared(api.url(), question, &first[index]);
            let is_at_once = at_once.is_ok();
            let status = at_once.or_else(|_| again(question));
            let status = status.with_context(|| format!("{:#?}", drawn.world))?;
            let answered = Answered { status, is_at_once };
            statuses.lock().unwrap_or_else(PoisonError::into_inner).push(answered);
        }
    };
    thread::scope(|scope| {
        let workers = thread::available_parallelism().map_or(2, usize::from);
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|it| it.join().expect("a worker does not panic"))
    })?;
    Ok(statuses.into_inner().unwrap_or_else(PoisonError::into_inner))
}

#[test]
fn verdicts_about_random_questions_in_random_worlds_are_those_of_packets() {
    Lab::of_nodes(2).families(Families::V4).empty().test(|lab| {
        let api = Api::start()?;
        let seed = number(SEED).unwrap_or_default() as u64;
        let (mut runner, mut rng) = (runner(seed), Rng::with_seed(seed));
        let hosts = [1, 2].into_iter().flat_map(|node| (3..3 + PODS).map(move |host| (node, host)));
        let pods: Vec<policies::Pod> =
            hosts.map(|(node, host)| pod(node, host, Vec::new())).collect();
        let namespaces = vec![Namespace { name: NAMESPACE, labels: Vec::new() }];
        let open = policies::World { namespaces, pods: pods.clone(), ..policies::World::default() };
        tell(&api, &open, &[]);
        api.control_plane().spawn()?;
        let attached = attached(lab, &pods)?;
        let at = |pod: &policies::Pod| PORTS.map(|port| SocketAddr::new(pod.address(false), port));
        let answering =
            attached.iter().zip(&pods).map(|(pod, model)| lab.answering(pod, &at(model)));
        let _servers: Vec<Server> = answering.collect::<Result<_>>()?;
        let (began, mut tally, mut worlds) = (Instant::now(), Tally::default(), 0);
        // Of a policy with rules that pass, only what denies has an effect without tiers of ACLs.
        lab.central.nbctl(["--columns=priority", "list", "ACL"])?;
        let has_tiers = lab.central.nbctl(["--columns=tier", "list", "ACL"]).is_ok();
        let passes = if has_tiers { Passes::Yes } else { Passes::No };
        let first_world = number(WORLD).unwrap_or_default();
        let [short_worlds, short_questions] = SHORT;
        let wanted = number(QUESTIONS).unwrap_or(short_worlds * short_questions);
        let is_long = wanted > short_worlds * short_questions;
        while tally.asked < wanted {
            let drawn = drawn(&mut runner, worlds, &pods, passes)?;
            let mut asked = questions(&drawn);
            rng.shuffle(&mut asked);
            if worlds < first_world {
                worlds += 1;
                continue;
            }
            asked.truncate(if is_long { wanted - tally.asked } else { short_questions });
            tell(&api, &drawn.world, &drawn.services);
            let statuses = ask(lab, &api, &attached, &drawn, &asked)
                .with_context(|| format!("world {worlds} of the seed {seed}"))?;
            let count = |wanted: i32| statuses.iter().filter(|it| it.status == wanted).count();
            tally.asked += statuses.len();
            tally.delivered += count(0);
            tally.in_part += count(4);
            tally.at_once += statuses.iter().filter(|it| it.is_at_once).count();
            worlds += 1;
            if is_long {
                println!("{} questions in {:.0} s", tally.asked, began.elapsed().as_secs_f64());
            }
        }
        let Tally { asked, delivered, in_part, at_once } = tally;
        println!(
            "{asked} of {asked} verdicts of trace and explain in {} worlds agree with packets, \
             {at_once} at the first try: {delivered} delivered, {in_part} to some endpoints; \
             {:.0} s",
            worlds - first_world,
            began.elapsed().as_secs_f64()
        );
        ensure!(delivered > 0 && delivered < asked, "{delivered} of {asked} are delivered");
        Ok(())
    });
}
