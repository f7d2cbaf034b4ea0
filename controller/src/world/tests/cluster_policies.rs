//! Random changes around policies of the whole cluster: whatever changes the rows of a key makes
//! the key dirty.

use contract::{
    definition::CustomKind,
    names::{ClusterPolicyKey, ClusterPolicyKind},
};
use proptest::{collection::vec, prelude::*};
use serde_json::json;

use crate::key::SetId;

use super::*;

#[derive(Debug, Clone)]
enum Event {
    /// The label of a pod, and the number of its port.
    Pod(u8, u8, u16),
    PodGone(u8),
    /// The label of a namespace.
    Namespace(u8),
    /// The label of a node, and the number of its address; none: its annotations cannot be read.
    Node(u8, u8, Option<u8>),
    NodeGone(u8),
    /// What the DNS says of a name.
    Name(u8, Option<u8>),
    Policy(u8, Is),
    PolicyGone(u8),
    /// The rows of all policies are written.
    Settle,
}

#[derive(Debug, Clone, Copy)]
struct Is {
    baseline: bool,
    priority: u16,
    subject: u8,
    peer: u8,
    rules: usize,
    named: bool,
    /// What egress rules are about, too.
    outside: u8,
}

fn event() -> impl Strategy<Value = Event> {
    let is = (any::<bool>(), 0_u16..4, 0_u8..2, 0_u8..2, 0_usize..4, any::<bool>(), 0_u8..6)
        .prop_map(|(baseline, priority, subject, peer, rules, named, outside)| Is {
            baseline,
            priority,
            subject,
            peer,
            rules,
            named,
            outside,
        });
    prop_oneof![
        3 => (0_u8..3, 0_u8..2, 80_u16..82).prop_map(|(pod, label, port)| Event::Pod(pod, label, port)),
        1 => (0_u8..3).prop_map(Event::PodGone),
        2 => (0_u8..2).prop_map(Event::Namespace),
        4 => (0_u8..3, is).prop_map(|(policy, is)| Event::Policy(policy, is)),
        2 => (0_u8..3).prop_map(Event::PolicyGone),
        2 => Just(Event::Settle),
        3 => (1_u8..4, 0_u8..2, proptest::option::weighted(0.8, 0_u8..2))
            .prop_map(|(node, label, host)| Event::Node(node, label, host)),
        1 => (1_u8..4).prop_map(Event::NodeGone),
        2 => (0_u8..2, proptest::option::of(0_u8..3)).prop_map(|(name, answer)| Event::Name(name, answer)),
    ]
}

const KIND: ClusterPolicyKind = ClusterPolicyKind::ClusterNetworkPolicy;

fn policy_key(number: u8) -> ClusterPolicyKey {
    ClusterPolicyKey::new(KIND, &format!("p{number}")).unwrap()
}

fn policy(Is { baseline, priority, subject, peer, rules, named, outside }: Is) -> ClusterPolicy {
    let label = |value: u8| json!({"matchLabels": {"label": format!("v{value}")}});
    let ports = if named { json!([{"destinationNamedPort": "web"}]) } else { json!([]) };
    let rules = (0..rules).map(|number| {
        let action = if number % 2 == 0 { "Deny" } else { "Accept" };
        let pods = json!({"namespaceSelector": {}, "podSelector": label(peer)});
        json!({"action": action, "from": [{"pods": pods}], "protocols": ports})
    });
    let spec = json!({
        "tier": if baseline { "Baseline" } else { "Admin" },
        "priority": priority,
        "subject": {"pods": {"namespaceSelector": label(subject), "podSelector": {}}},
        "ingress": rules.collect::<Vec<_>>(),
        "egress": egress(outside),
    });
    ClusterPolicy::new(KIND, "uid", 1, spec)
}

fn egress(outside: u8) -> serde_json::Value {
    let label = |value: u8| json!({"matchLabels": {"label": format!("v{value}")}});
    match outside {
        0 => json!([]),
        1 => json!([{"action": "Deny", "to": [{"nodes": label(0)}]}]),
        2 => json!([{"action": "Deny", "to": [{"nodes": label(1)}, {"nodes": {}}]}]),
        3 => json!([{"action": "Accept", "to": [{"domainNames": ["name0.example"]}]}]),
        4 => {
            json!([{"action": "Accept", "to": [{"domainNames": ["name0.example", "name1.example"]}, {"nodes": label(0)}]}])
        }
        _ => json!([{"action": "Accept", "to": [{"domainNames": ["*.example"]}]}]),
    }
}

fn labels(value: u8) -> BTreeMap<String, String> {
    [("label".to_owned(), format!("v{value}"))].into()
}

fn subnet(number: u8) -> String {
    format!("10.244.{number}.0/24")
}

fn unreadable() -> Unreadable {
    Unreadable { annotation: "k8s.ovn.org/host-cidrs", why: "not JSON".to_owned() }
}

fn happen(store: &mut Store, event: Event, dirty: &mut Dirty<'_>) {
    let name = |pod| format!("pod{pod}");
    let policies = |seen| WatchEvent::ClusterPolicies(KIND, seen);
    let observation = match event {
        Event::Pod(number, label, port) => {
            let named = NamedPort {
                name: "web".into(),
                protocol: kubeapi::services::Protocol::Tcp,
                number: port,
            };
            let pod = Pod {
                labels: labels(label).into_iter().collect(),
                ports: [named].into(),
                ..claiming(&name(number), &format!("10.244.1.{}/24", number + 3))
            };
            WatchEvent::Pods(Seen::Applied((key(&name(number)), pod)))
        }
        Event::PodGone(number) => WatchEvent::Pods(Seen::Deleted(key(&name(number)))),
        Event::Namespace(label) => {
            let namespace =
                Namespace { uid: "uid".into(), labels: labels(label), ..Namespace::default() };
            WatchEvent::Namespaces(Seen::Applied(("shop".into(), namespace)))
        }
        Event::Node(number, label, host) => {
            let read = Node {
                labels: Arc::new(labels(label)),
                ..node(&format!("n{number}"), &subnet(number))
            };
            let node = match host {
                Some(host) => Node {
                    host_addresses: vec![net(&format!("172.18.{host}.{number}/32")).addr()],
                    ..read
                },
                None => Node { unreadable: vec![unreadable()], ..read },
            };
            WatchEvent::Nodes(Seen::Applied(node))
        }
        Event::NodeGone(number) => WatchEvent::Nodes(Seen::Deleted(format!("n{number}").into())),
        Event::Name(name, answer) => {
            let address = |host| [net(&format!("192.0.2.{host}/32")).addr()].into();
            let answer = answer.map(address).ok_or_else(|| "no answer".into());
            WatchEvent::Name(format!("name{name}.example").into(), answer)
        }
        Event::Policy(number, is) => policies(Seen::Applied((policy_key(number), policy(is)))),
        Event::PolicyGone(number) => policies(Seen::Deleted(policy_key(number))),
        Event::Settle => {
            (0..3).for_each(|number| store.settled(&Key::from(policy_key(number)), dirty));
            return;
        }
    };
    store.observe(observation, dirty);
}

proptest! {
    #[test]
    fn whatever_changes_the_rows_of_a_policy_its_pods_or_its_sets_makes_them_dirty(
        events in vec(event(), 1..25)
    ) {
        changed_rows_are_dirty(events, happen)?;
    }
}

fn named(names: &[&str]) -> ClusterPolicy {
    let spec = json!({
        "tier": "Admin",
        "priority": 1,
        "subject": {"namespaces": {}},
        "egress": [{"action": "Accept", "to": [{"domainNames": names}]}],
    });
    ClusterPolicy::new(KIND, "uid", 1, spec)
}

fn put(store: &mut Store, policy: ClusterPolicy) -> Vec<Key> {
    observe(store, WatchEvent::ClusterPolicies(KIND, Seen::Applied((policy_key(0), policy))))
}

/// The standings of the conditions that are to be written.
fn said(store: &mut Store) -> Vec<RowsState> {
    store.take_conditions().into_iter().map(|condition| condition.standing).collect()
}

fn reasons(store: &mut Store) -> Vec<&'static str> {
    store.take_problems().into_iter().map(|trouble| trouble.reason).collect()
}

#[test]
fn a_condition_says_that_a_name_has_no_addresses_until_it_has() {
    let mut store = complete(vec![], vec![]);
    let name = || DnsName::from("name0.example");
    let set = || Key::Set(SetId::Name(name()));
    let own = || Key::from(policy_key(0));
    let says = |answer: Result<&str, &str>| {
        let answer = answer.map(|address| [net(address).addr()].into()).map_err(Into::into);
        WatchEvent::Name(name(), answer)
    };
    assert_eq!(put(&mut store, named(&["name0.example"])), [own(), set()]);
    assert_eq!(asked(&mut store), ["name0.example"]);
    store.settled(&own(), &mut |key, _| panic!("{key} is dirty"));
    assert_eq!(said(&mut store), [RowsState::Ready]);

    assert_eq!(observe(&mut store, says(Err("servfail"))), []);
    let why = "the domain name \"name0.example\" has no addresses: servfail; until then the policy allows none \
               for it";
    assert_eq!(said(&mut store), [RowsState::Failed(why.into())]);
    assert_eq!(reasons(&mut store), ["NoAddresses"]);
    assert_eq!(observe(&mut store, says(Ok("192.0.2.1/32"))), [set()]);
    assert_eq!(said(&mut store), [RowsState::Ready]);
    assert_eq!(observe(&mut store, says(Err("servfail"))), []);
    assert_eq!(
        (said(&mut store), reasons(&mut store)),
        (vec![], vec![]),
        "the last addresses stay"
    );

    // Rows that are refused are not made good by an answer.
    store.rows_failed(&own(), "syntax error");
    assert_eq!(said(&mut store), [RowsState::Failed("syntax error".into())]);
    observe(&mut store, says(Ok("192.0.2.2/32")));
    assert_eq!(said(&mut store), []);
}

/// The names to ask for, if they or their users are others.
fn asked(store: &mut Store) -> Vec<String> {
    store.take_names().unwrap().into_keys().map(|name| name.to_string()).collect()
}

/// Whoever ran the zone of a name could open the kubelets, the API server and each host's own
/// services by it, and in the first tier against all NetworkPolicies.
#[test]
fn an_address_of_the_cluster_itself_is_left_out_of_a_name_and_told() {
    let host = net("192.0.2.1/32").addr();
    let mut store =
        complete(vec![Node { host_addresses: vec![host], ..node("n1", &subnet(1)) }], vec![]);
    put(&mut store, named(&["name0.example"]));
    store.settled(&Key::from(policy_key(0)), &mut |_, _| ());
    assert_eq!(said(&mut store), [RowsState::Ready]);
    let own = ["192.0.2.1", "127.0.0.1", "169.254.169.254", "10.96.0.10", "10.244.1.5"];
    let all = own.iter().chain(&["203.0.113.1"]).map(|address| address.parse().unwrap()).collect();
    observe(&mut store, WatchEvent::Name("name0.example".into(), Ok(all)));
    let set = SetId::Name("name0.example".into());
    assert_eq!(
        store.set_addresses(&set).collect::<Vec<_>>(),
        ["203.0.113.1".parse::<IpAddr>().unwrap()]
    );
    assert_eq!(reasons(&mut store), ["OwnAddress"]);
    let [RowsState::Failed(why)] = &said(&mut store)[..] else { panic!("one") };
    assert!(why.contains("\"name0.example\" has the address 10.96.0.10"), "{why}");
    // A rule of an EgressFirewall that denies the name still denies them.
    let spec = json!({"egress": [{"type": "Deny", "to": {"dnsName": "Name0.Example."}}]});
    let firewall = EgressFirewall::new("uid", spec, json!({}));
    observe(&mut store, WatchEvent::custom(Seen::Applied(("shop".into(), firewall))));
    let rule =
        format!("{:?}", desired(&store, &Key::custom(CustomKind::EgressFirewall, "shop".into())));
    assert!(rule.contains("ip4.dst == 192.0.2.1"), "{rule}");
    let other = || Ok(["203.0.113.1".parse().unwrap()].into());
    let dirty = observe(&mut store, WatchEvent::Name("name0.example".into(), other()));
    assert!(
        dirty.contains(&Key::custom(CustomKind::EgressFirewall, "shop".into()))
            && dirty.contains(&Key::Set(set)),
        "{dirty:?}"
    );
    assert_eq!(said(&mut store), [RowsState::Ready]);
}

/// `Example.org`, `example.org` and `example.org.` were three names: three questions, and three
/// sets.
#[test]
fn a_name_is_one_however_it_is_spelled() {
    let mut store = complete(vec![], vec![]);
    put(&mut store, named(&["Name0.Example", "name0.example.", "name0.EXAMPLE"]));
    assert_eq!(asked(&mut store), ["name0.example"]);
}

/// The set of a name goes when neither an EgressFirewall nor a policy has it, and its rows are
/// written.
#[test]
fn a_name_is_asked_for_as_long_as_a_rule_of_any_kind_has_it() {
    let mut store = complete(vec![], vec![]);
    let name = || DnsName::from("name0.example");
    let spec = json!({"egress": [{"type": "Allow", "to": {"dnsName": "name0.example"}}]});
    let firewall = EgressFirewall::new("uid", spec, json!({}));
    observe(&mut store, WatchEvent::custom(Seen::Applied(("shop".into(), firewall))));
    assert_eq!(asked(&mut store), ["name0.example"]);
    put(&mut store, named(&["name0.example"]));
    assert_eq!(asked(&mut store), ["name0.example"], "for two");
    assert_eq!(store.take_names(), None);
    observe(&mut store, WatchEvent::custom::<EgressFirewall>(Seen::Deleted("shop".into())));
    assert_eq!(asked(&mut store), ["name0.example"], "the policy has it");
    assert_eq!(
        dirtied(
            |dirty| store.settled(&Key::custom(CustomKind::EgressFirewall, "shop".into()), dirty)
        ),
        []
    );
    assert!(store.is_set(&SetId::Name(name())));
    put(&mut store, named(&["name1.example"]));
    assert_eq!(asked(&mut store), ["name1.example"]);
    let dirty = dirtied(|dirty| store.settled(&Key::from(policy_key(0)), dirty));
    assert_eq!(dirty, [Key::Set(SetId::Name(name()))]);
    assert!(!store.is_set(&SetId::Name(name())));
}

/// The policies with these tiers, priorities and actions of ingress rules, each about all.
fn placed(policies: &[(&str, u16, Vec<&str>)], tiers: Tiers) -> Store {
    let mut store = complete(vec![node("n1", &subnet(1))], Vec::new());
    store.use_tiers(tiers);
    let all = policies.iter().enumerate().map(|(number, (tier, priority, actions))| {
        let rule = |action: &&str| json!({"action": action, "from": [{"namespaces": {}}]});
        let spec = json!({
            "tier": tier, "priority": priority, "subject": {"namespaces": {}},
            "ingress": actions.iter().map(rule).collect::<Vec<_>>(),
        });
        (policy_key(u8::try_from(number).unwrap()), ClusterPolicy::new(KIND, "uid", 1, spec))
    });
    observe(&mut store, WatchEvent::ClusterPolicies(KIND, Seen::All(all.collect())));
    store
}

fn placement(store: &Store, number: u8) -> Option<Placement> {
    store.effect(&policy_key(number)).map(|(_, placement)| placement)
}

/// A policy with more changes of action than its priority has levels denied nothing, nor did one
/// without room.
#[test]
fn a_policy_that_is_too_deep_takes_the_levels_behind_it_and_one_without_room_only_denies() {
    let deep = |changes: usize| ["Deny", "Accept"].repeat(changes)[..changes].to_vec();
    let store = placed(
        &[("Admin", 5, deep(40)), ("Admin", 6, deep(2)), ("Admin", 7, deep(2))],
        Tiers::Present,
    );
    assert_eq!(placement(&store, 0), Some(Placement::From(5 * 31)));
    assert_eq!(placement(&store, 1), Some(Placement::From(5 * 31 + 40)), "it makes room");
    assert_eq!(placement(&store, 2), Some(Placement::From(7 * 31)), "and no more than needed");
    assert_eq!(store.cluster_policy_trouble(&policy_key(0)), None);

    let store = placed(&[("Admin", 999, deep(1000)), ("Admin", 1000, deep(2))], Tiers::Present);
    assert_eq!(placement(&store, 0), Some(Placement::DenialsAt(31_667)));
    assert_eq!(store.cluster_policy_trouble(&policy_key(0)), Some(ClusterPolicyProblem::NoRoom));
    assert_eq!(placement(&store, 1), Some(Placement::From(31_000)), "it holds up no other");
    let rows = desired(&store, &policy_key(0).into());
    assert_eq!(rows.len(), 1 + 500, "its group, and all that it denies");

    let store = placed(&[("Baseline", 1, deep(998)), ("Baseline", 2, deep(2))], Tiers::Present);
    let all = [placement(&store, 0), placement(&store, 1)];
    assert_eq!(all, [Some(Placement::From(0)), Some(Placement::DenialsAt(999))]);

    let store = placed(&[("Admin", 5, vec!["Pass", "Deny"])], Tiers::Absent);
    assert_eq!(placement(&store, 0), Some(Placement::DenialsAt(5 * 31)));
    assert_eq!(store.cluster_policy_trouble(&policy_key(0)), Some(ClusterPolicyProblem::NoTiers));
    assert_eq!(desired(&store, &policy_key(0).into()).len(), 2);
}

/// One typo in a policy about all namespaces denied kubelets' probes, too, and restarted every pod
/// that has one.
#[test]
fn a_rule_that_denies_all_in_place_of_another_one_is_not_about_the_hosts_of_pods() {
    let mut store = complete(vec![node("n1", &subnet(1))], vec![]);
    let rule = json!({"action": "Deny", "from": [{"nonsense": {}}]});
    let spec = json!({"tier": "Admin", "priority": 0, "subject": {"namespaces": {}}, "ingress": [rule],
        "egress": [{"action": "Deny", "to": [{"nonsense": {}}]}]});
    put(&mut store, ClusterPolicy::new(KIND, "uid", 1, spec));
    let rows = format!("{:?}", desired(&store, &policy_key(0).into()));
    assert!(rows.contains("ip4.src != 10.244.0.2/255.255.0.255 && outport == @"), "{rows}");
    assert!(rows.contains("\"ip4 && inport == @"), "{rows}");
}
