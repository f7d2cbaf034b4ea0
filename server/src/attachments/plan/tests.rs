use std::collections::BTreeMap;

use contract::{
    annotation::POD_NETWORKS,
    bandwidth::INGRESS_ANNOTATION,
    external_ids::{IFACE_ID, IFACE_ID_VER, POD_IF_NAME},
};

use super::*;

/// A sandbox for whose port ovs-vswitchd finds no device.
const DEVICELESS: &str = "c9";
const ANNOTATION: &str =
    r#"{"default":{"mac_address":"0a:58:0a:f4:01:05","ip_addresses":["10.244.1.5/24"]}}"#;

fn identity(sandbox: &str) -> Identity {
    Identity {
        sandbox: sandbox.parse().unwrap(),
        if_name: "eth0".parse().unwrap(),
        network: Network::Default,
    }
}

fn pod(name: &str) -> PodKey {
    PodKey::new("shop", name).unwrap()
}

/// The port of sandbox `sandbox` of pod `name`.
fn port(sandbox: &str, name: &str) -> RecordedPort {
    let ids = [
        (IFACE_ID, format!("shop_{name}")),
        (IFACE_ID_VER, "u1".to_owned()),
        (POD_IF_NAME, "eth0".to_owned()),
    ];
    let external_ids = ids.map(|(key, value)| (key.to_owned(), value)).into();
    let content = PortColumns { external_ids, ..PortColumns::default() };
    RecordedPort {
        name: sandbox.to_owned(),
        identity: identity(sandbox),
        pod: pod(name),
        content,
        qos: None,
    }
}

/// The link of a sandbox, made by the plugin of today for pod `name`.
fn link(index: u32, sandbox: &str, name: &str) -> Link {
    let alias = format!("{}:shop/{name}:u1", identity(sandbox).alias());
    Link {
        index,
        name: sandbox.to_owned(),
        alias,
        up: true,
        has_carrier: true,
        is_veth: true,
        ..Link::default()
    }
}

fn living(_: &PodKey, _: &str) -> Life {
    Life::Living(PodFacts {
        uid: "u1".to_owned(),
        annotations: BTreeMap::from([(POD_NETWORKS.to_owned(), ANNOTATION.to_owned())]),
    })
}

/// Names of ports to restore, and sandboxes of suspects with the reason.
fn outcome(
    recorded: &[RecordedPort],
    present: &[RecordedPort],
    links: &[Link],
    pods: &dyn Fn(&PodKey, &str) -> Life,
) -> (Vec<String>, Vec<String>) {
    let plan = compare(recorded, present, links, pods);
    let mut suspects: Vec<String> = plan
        .suspects
        .iter()
        .map(|it| format!("{} {}", it.identity.sandbox, it.reason.name()))
        .collect();
    suspects.sort();
    (plan.missing.iter().map(|attached| attached.name.clone()).collect(), suspects)
}

fn compare(
    recorded: &[RecordedPort],
    present: &[RecordedPort],
    links: &[Link],
    pods: &dyn Fn(&PodKey, &str) -> Life,
) -> Plan {
    compare_on(&OwnNode::Confirmed, &[], recorded, present, links, pods)
}

fn compare_on(
    own_node: &OwnNode,
    others: &[&str],
    recorded: &[RecordedPort],
    present: &[RecordedPort],
    links: &[Link],
    pods: &dyn Fn(&PodKey, &str) -> Life,
) -> Plan {
    let shared = |all: &[RecordedPort]| all.iter().cloned().map(Arc::new).collect::<Vec<_>>();
    let (recorded, present) = (shared(&[recorded, present].concat()), shared(present));
    let names = present.iter().map(|port| port.name.as_str()).collect();
    let links = links.iter().map(|link| (link.index, link.clone())).collect();
    let others = others.iter().copied().collect();
    let (recorded, present, deviceless) = (&recorded, &present, &HashSet::from([DEVICELESS]));
    AttachmentView {
        recorded,
        present,
        names: &names,
        links: &links,
        others: &others,
        deviceless,
        own_node,
        pods,
    }
    .compare()
}

fn names<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.map(str::to_owned).to_vec()
}

#[test]
fn where_nothing_is_wrong_nothing_is_done() {
    let port = port("c1", "a");
    assert_eq!(compare(&[], &[port], &[link(1, "c1", "a")], &living), Plan::default());
}

#[test]
fn a_port_that_was_there_is_put_back_for_as_long_as_its_link_is_there() {
    let (port, link) = (port("c1", "a"), link(1, "c1", "a"));
    let plan = compare(std::slice::from_ref(&port), &[], std::slice::from_ref(&link), &living);
    assert_eq!(plan.missing, [Arc::new(port.clone())]);
    assert_eq!(outcome(std::slice::from_ref(&port), &[], &[], &living), (names([]), names([])));
    // While the source cannot tell whether the pod lives, the link counts.
    assert_eq!(outcome(&[port], &[], &[link], &|_, _| Life::Unknown), (names(["c1"]), names([])));
}

#[test]
fn the_port_of_a_pod_that_is_gone_is_not_put_back() {
    let gone = |_: &PodKey, _: &str| Life::Gone;
    assert_eq!(
        outcome(&[port("c1", "a")], &[], &[link(1, "c1", "a")], &gone),
        (names([]), names(["c1 pod-gone"]))
    );
}

#[test]
fn another_link_of_the_name_is_not_the_ports() {
    let stranger = Link { alias: "uplink".to_owned(), ..link(1, "c1", "a") };
    assert_eq!(outcome(&[port("c1", "a")], &[], &[stranger], &living), (names([]), names([])));
    let other =
        Link { alias: format!("{}:shop/a:u1", identity("c2").alias()), ..link(1, "c1", "a") };
    assert_eq!(compare(&[port("c1", "a")], &[], &[other], &|_, _| Life::Unknown), Plan::default());
}

#[test]
fn upstreams_port_is_put_back_on_the_link_of_its_sandbox() {
    let mut port = port("c1", "a");
    port.content.external_ids.remove(POD_IF_NAME);
    let unmarked = Link { alias: String::new(), ..link(1, "c1", "a") };
    assert_eq!(
        outcome(std::slice::from_ref(&port), &[], std::slice::from_ref(&unmarked), &living),
        (names(["c1"]), names([]))
    );
    // Without an alias, a port or a record, a link has no known owner. Without an alias it is not
    // removed either when its pod is gone.
    assert_eq!(outcome(&[], &[], std::slice::from_ref(&unmarked), &living), (names([]), names([])));
    assert_eq!(outcome(&[port], &[], &[unmarked], &|_, _| Life::Gone), (names([]), names([])));
}

#[test]
fn of_two_sandboxes_of_a_pod_the_newer_one_is_put_back() {
    let links = [link(7, "c2", "a"), link(3, "c1", "a")];
    assert_eq!(outcome(&[], &[], &links, &living), (names(["c2"]), names([])));
    assert_eq!(
        outcome(&[port("c1", "a"), port("c2", "a")], &[], &links, &living),
        (names(["c2"]), names([]))
    );
}

#[test]
fn an_older_sandbox_of_a_pod_is_not_put_back_beside_the_newer_one() {
    let links = [link(7, "c2", "a"), link(3, "c1", "a")];
    assert_eq!(
        outcome(&[], &[port("c2", "a")], &links, &living),
        (names([]), names(["c1 replaced"]))
    );
    assert_eq!(
        outcome(&[port("c1", "a")], &[port("c2", "a")], &links, &living),
        (names([]), names(["c1 replaced"]))
    );
}

#[test]
fn a_link_alone_is_enough_if_its_pod_is_there() {
    let plan = compare(&[], &[], &[link(1, "c1", "a")], &living);
    let [attached] = plan.missing.as_slice() else { panic!("{plan:?}") };
    let ids: Vec<_> = attached
        .content
        .external_ids
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    let expected = [
        ("attached_mac", "0a:58:0a:f4:01:05"),
        ("iface-id", "shop_a"),
        ("iface-id-ver", "u1"),
        ("ip_address", "10.244.1.5/24"),
        ("ip_addresses", "10.244.1.5/24"),
        ("pod-if-name", "eth0"),
        ("sandbox", "c1"),
    ];
    assert_eq!(ids, expected);
    assert_eq!(
        outcome(&[], &[], &[link(1, "c1", "a")], &|_, _| Life::Unknown),
        (names([]), names([]))
    );
}

#[test]
fn a_link_alone_of_a_migratable_virtual_machine_gets_its_addresses_too() {
    let migratable = |pod: &PodKey, uid: &str| match living(pod, uid) {
        Life::Living(mut facts) => {
            facts.annotations.insert(MIGRATABLE.to_owned(), "true".to_owned());
            Life::Living(facts)
        }
        other @ (Life::Gone | Life::Unknown) => other,
    };
    let plan = compare(&[], &[], &[link(1, "c1", "a")], &migratable);
    assert_eq!(plan.missing[0].content.external_ids["ip_addresses"], "10.244.1.5/24");
}

#[test]
fn a_link_alone_gets_the_rates_that_its_pod_asks_for_or_nothing_if_they_make_no_sense() {
    let limited = |rate: &'static str| {
        move |_: &PodKey, _: &str| {
            let annotations = [(POD_NETWORKS, ANNOTATION), (INGRESS_ANNOTATION, rate)]
                .map(|(key, value)| (key.to_owned(), value.to_owned()));
            Life::Living(PodFacts { uid: "u1".to_owned(), annotations: annotations.into() })
        }
    };
    let plan = compare(&[], &[], &[link(1, "c1", "a")], &limited("10M"));
    assert_eq!(
        plan.missing[0].content.qos.as_ref().map(|qos| qos.other_config["max-rate"].as_str()),
        Some("10000000")
    );
    assert_eq!(outcome(&[], &[], &[link(1, "c1", "a")], &limited("fast")), (names([]), names([])));
}

#[test]
fn a_link_whose_plugin_died_before_there_was_a_port_waits_for_its_del_or_its_pods_end() {
    let half = Link { has_carrier: false, ..link(1, "c1", "a") };
    assert_eq!(outcome(&[], &[], std::slice::from_ref(&half), &living), (names([]), names([])));
    assert_eq!(outcome(&[], &[], &[half], &|_, _| Life::Gone), (names([]), names(["c1 pod-gone"])));
}

#[test]
fn a_port_without_a_link_is_suspected_whatever_its_pod() {
    for life in [Life::Gone, Life::Unknown] {
        assert_eq!(
            outcome(&[], &[port("c1", "a")], &[], &|_, _| life.clone()),
            (names([]), names(["c1 link-gone"]))
        );
    }
    assert_eq!(
        outcome(&[], &[port("c1", "a")], &[], &living),
        (names([]), names(["c1 link-gone"]))
    );
}

#[test]
fn a_port_whose_pod_is_gone_is_suspected_and_one_of_which_nobody_can_say_it_is_not() {
    let links = [link(1, "c1", "a")];
    assert_eq!(
        outcome(&[], &[port("c1", "a")], &links, &|_, _| Life::Gone),
        (names([]), names(["c1 pod-gone"]))
    );
    assert_eq!(
        outcome(&[], &[port("c1", "a")], &links, &|_, _| Life::Unknown),
        (names([]), names([]))
    );
}

#[test]
fn links_of_older_plugins_and_of_others_are_left_alone() {
    let older = Link { alias: identity("c1").alias(), ..link(1, "c1", "a") };
    let other =
        Link { name: "c2".to_owned(), alias: "somebody's".to_owned(), ..link(2, "c2", "a") };
    for life in [Life::Gone, Life::Unknown] {
        assert_eq!(
            outcome(&[], &[], &[older.clone(), other.clone()], &|_, _| life.clone()),
            (names([]), names([]))
        );
    }
}

#[test]
fn upstreams_port_is_removed_with_its_link_only() {
    let mut port = port("c1", "a");
    port.content.external_ids.remove(POD_IF_NAME);
    let unmarked = Link { alias: String::new(), ..link(1, "c1", "a") };
    assert_eq!(
        outcome(&[], std::slice::from_ref(&port), &[unmarked], &|_, _| Life::Gone),
        (names([]), names([]))
    );
    assert_eq!(outcome(&[], &[port], &[], &living), (names([]), names(["c1 link-gone"])));
}

/// `count` ports with their links.
fn attached(count: usize) -> (Vec<RecordedPort>, Vec<Link>) {
    let ports: Vec<RecordedPort> =
        (0..count).map(|n| port(&format!("c{n}"), &format!("p{n}"))).collect();
    let links =
        (0u32..).zip(&ports).map(|(n, port)| link(n, &port.name, port.pod.name())).collect();
    (ports, links)
}

fn unconfirmed() -> OwnNode {
    OwnNode::Unconfirmed("no such node".to_owned())
}

#[test]
fn who_says_that_every_pod_is_gone_is_believed_only_on_this_hosts_own_node() {
    let gone = |_: &PodKey, _: &str| Life::Gone;
    for count in [1, 3, BELIEVABLE, 50] {
        let (ports, links) = attached(count);
        let plan = compare_on(&unconfirmed(), &[], &[], &ports, &links, &gone);
        assert_eq!(
            (plan.suspects.len(), plan.doubt),
            (0, Some(Doubt { gone: count, known: 0, why: "no such node".to_owned() }))
        );
        let plan = compare(&[], &ports, &links, &gone);
        assert_eq!(
            (plan.suspects.len(), plan.doubt),
            (count, None),
            "the last pods of a node that was drained"
        );
    }
    // Links without ports, of a node whose database was lost.
    let (_, links) = attached(3);
    assert_eq!(compare_on(&unconfirmed(), &[], &[], &[], &links, &gone).suspects, []);
    assert_eq!(compare(&[], &[], &links, &gone).suspects.len(), 3);
}

#[test]
fn a_list_that_is_nearly_empty_is_as_doubtful_as_an_empty_one() {
    let but = |living: usize| {
        move |pod: &PodKey, uid: &str| {
            let number: usize = pod.name()[1..].parse().unwrap();
            if number < living { self::living(pod, uid) } else { Life::Gone }
        }
    };
    let gone = |living: usize, count: usize| {
        let (ports, links) = attached(living + count);
        let plan = compare_on(&unconfirmed(), &[], &[], &ports, &links, &but(living));
        (plan.suspects.len(), plan.doubt.is_some())
    };
    assert_eq!(gone(1, BELIEVABLE), (BELIEVABLE, false));
    assert_eq!(gone(1, BELIEVABLE + 1), (0, true));
    assert_eq!(gone(20, 20), (20, false));
    assert_eq!(gone(20, 21), (0, true));
    assert_eq!(gone(3, 0), (0, false));
}

#[test]
fn a_doubt_keeps_only_pods_that_are_gone_from_being_suspected() {
    let (ports, links) = attached(3);
    let plan = compare_on(&unconfirmed(), &[], &[], &ports, &links[1..], &|_, _| Life::Gone);
    let suspects: Vec<Reason> = plan.suspects.iter().map(|suspect| suspect.reason).collect();
    assert_eq!(suspects, [Reason::LinkGone], "a link that is gone is seen on this host");
    assert_eq!(plan.doubt.map(|doubt| doubt.gone), Some(2));
}

#[test]
fn a_second_look_finds_a_pod_by_its_name_and_uid() {
    let suspect = StaleAttachment::of(&port("c1", "a"), Reason::PodGone);
    let pods = |name: &str, uid: &str| HashMap::from([(pod(name), uid.to_owned())]);
    assert!(suspect.lives_among(&pods("a", "u1")) && suspect.lives_among(&pods("a", "")));
    assert!(!suspect.lives_among(&pods("a", "u2")) && !suspect.lives_among(&pods("b", "u1")));
}

#[test]
fn a_port_whose_device_is_of_another_kind_than_ours_is_left_alone() {
    let ports = [port("pf0vf3", "a")];
    for life in [Life::Gone, Life::Unknown] {
        let plan =
            compare_on(&OwnNode::Confirmed, &["pf0vf3"], &[], &ports, &[], &|_, _| life.clone());
        assert_eq!(plan, Plan::default(), "a representor of a function of a NIC");
    }
}

#[test]
fn ovs_vswitchd_is_a_witness_of_a_link_that_is_gone_and_of_nothing_else() {
    let gone = |_: &PodKey, _: &str| Life::Gone;
    let witnesses = |ports: &[RecordedPort], links: &[Link]| {
        let plan = compare(&[], ports, links, &gone);
        plan.suspects.iter().map(|suspect| (suspect.reason, suspect.witnesses)).collect::<Vec<_>>()
    };
    let lost = port(DEVICELESS, "a");
    assert_eq!(
        witnesses(std::slice::from_ref(&lost), &[]),
        [(Reason::LinkGone, Witnesses::Vswitchd)]
    );
    assert_eq!(witnesses(&[port("c1", "a")], &[]), [(Reason::LinkGone, Witnesses::Server)]);
    // A device that is there and could not be opened yet.
    assert_eq!(
        witnesses(&[lost], &[link(1, DEVICELESS, "a")]),
        [(Reason::PodGone, Witnesses::Server)]
    );
}
