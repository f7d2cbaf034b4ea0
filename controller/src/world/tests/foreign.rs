use super::*;

fn held(address: &str, node: &str) -> ForeignAddress {
    ForeignAddress { address: address.parse().unwrap(), port: "int".into(), node: node.into() }
}

fn foreign(store: &mut Store, left: Vec<ForeignAddress>, came: Vec<ForeignAddress>) -> Vec<Key> {
    dirtied(|dirty| store.foreign_addresses(left, came, dirty))
}

#[test]
fn a_pod_that_waits_for_any_address_gets_that_of_a_foreign_port_that_goes() {
    let mut store = complete(vec![node("n1", "10.244.1.0/29")], vec![]);
    let ports = ["10.244.1.3", "10.244.1.5"].map(|address| held(address, "n1"));
    assert_eq!(foreign(&mut store, Vec::new(), ports.to_vec()), []);
    for name in ["a", "b", "c"] {
        apply(&mut store, name, pod(name));
    }
    assert_eq!(
        ["a", "b", "c"].map(|name| address(&store, name)),
        [Some("10.244.1.4/29".into()), Some("10.244.1.6/29".into()), None]
    );
    assert_eq!(foreign(&mut store, vec![ports[1].clone()], Vec::new()), changed("c"));
    assert_eq!(address(&store, "c").unwrap(), "10.244.1.5/29");
    let told: Vec<&str> = store.take_problems().iter().map(|problem| problem.reason).collect();
    assert_eq!(told, ["NoFreeAddress"], "c waited");
}

#[test]
fn a_port_of_a_node_that_is_gone_keeps_no_pod_from_its_address() {
    let mut store =
        complete(vec![node("n1", "10.244.1.0/24"), node("n2", "10.244.2.0/24")], vec![]);
    foreign(&mut store, Vec::new(), vec![held("10.244.1.9", "n2")]);
    // It runs, so it is not given another one.
    apply(
        &mut store,
        "a",
        Pod { reported: Reported::AsAnnotated, ..claiming("u1", "10.244.1.9/24") },
    );
    let (_, trouble) = store.troubles().next().unwrap();
    assert!(
        matches!(trouble, PodProblem::Claim(ClaimProblem::AddressOfPort { .. })),
        "{trouble:?}"
    );
    let keys = observe(&mut store, WatchEvent::Nodes(Seen::Deleted("n2".into())));
    assert!(keys.contains(&Key::Pod(key("a"))), "{keys:?}");
    assert_eq!(address(&store, "a").unwrap(), "10.244.1.9/24");
}

#[test]
fn a_pod_hears_once_of_a_foreign_port_with_its_address() {
    let mut store = complete(vec![node("n1", "10.244.1.0/24")], vec![]);
    apply(&mut store, "a", pod("u1"));
    foreign(&mut store, Vec::new(), vec![held("10.244.1.3", "n1")]);
    let [shared] = &store.take_problems()[..] else { panic!("one") };
    assert_eq!((&shared.object, &*shared.uid), (&Object::Pod(key("a")), "u1"));
    assert_eq!(
        shared.note,
        "the logical switch port int of node n1 has this pod's address 10.244.1.3, too; delete that port or give it another address, or \
         delete this pod, and its successor gets another one"
    );
    apply(&mut store, "a", Pod { created: 1, ..pod("u1") });
    assert_eq!(
        (store.take_problems(), address(&store, "a").unwrap().as_str()),
        (vec![], "10.244.1.3/24")
    );
}
