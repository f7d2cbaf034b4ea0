use proptest::{collection::vec, prelude::*};

use super::*;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn subnets(ranges: &[(&str, u8)]) -> Subnets {
    Subnets::new(
        &ranges
            .iter()
            .map(|(cidr, host_length)| ClusterSubnet { cidr: net(cidr), host_length: *host_length })
            .collect::<Vec<_>>(),
    )
}

fn give(subnets: &mut Subnets, node: &str, family: Family) -> String {
    subnets.give(&node.into(), family).map_or_else(String::new, |subnet| subnet.to_string())
}

#[test]
fn the_next_free_subnet_of_the_first_range_that_has_one() {
    let mut all = subnets(&[("10.0.0.0/23", 24), ("fd00::/48", 64), ("10.9.0.0/24", 25)]);
    assert_eq!(all.families(), [Family::V4, Family::V6]);
    let v4: Vec<String> =
        (0..5).map(|node| give(&mut all, &format!("n{node}"), Family::V4)).collect();
    assert_eq!(v4, ["10.0.0.0/24", "10.0.1.0/24", "10.9.0.0/25", "10.9.0.128/25", ""]);
    assert_eq!(
        [give(&mut all, "n0", Family::V6), give(&mut all, "n1", Family::V6)],
        ["fd00::/64", "fd00:0:0:1::/64"]
    );
    all.release(&"n1".into(), &net("10.0.1.0/24"));
    all.release(&"n1".into(), &net("10.9.0.0/25"));
    assert_eq!(give(&mut all, "n5", Family::V4), "10.0.1.0/24");
    assert_eq!(give(&mut all, "n6", Family::V4), "", "n1 never had the other one");
}

#[test]
fn claims_of_other_sizes_are_in_the_way_and_may_not_overlap() {
    let mut all = subnets(&[("10.0.0.0/16", 24)]);
    for (node, subnet, by) in [
        ("a", "10.0.0.128/25", None),
        ("b", "10.0.2.0/23", None),
        ("c", "10.0.3.0/24", Some("b")),
        ("c", "10.0.0.0/8", Some("a")),
        ("b", "10.0.0.0/22", Some("a")),
        ("c", "192.168.1.0/24", None),
        ("a", "10.0.0.128/25", None),
    ] {
        let claimed = all.claim(&node.into(), net(subnet));
        assert_eq!(
            claimed.err().map(|overlap| overlap.by.to_string()).as_deref(),
            by,
            "{node} {subnet}"
        );
    }
    assert_eq!(
        [give(&mut all, "d", Family::V4), give(&mut all, "e", Family::V4)],
        ["10.0.4.0/24", "10.0.5.0/24"]
    );
}

/// Pods of a deleted node live on for minutes, while their addresses were routed to another node.
#[test]
fn a_subnet_that_was_freed_is_given_after_all_others() {
    let mut all = subnets(&[("10.0.0.0/22", 24)]);
    assert_eq!(
        [give(&mut all, "a", Family::V4), give(&mut all, "b", Family::V4)],
        ["10.0.0.0/24", "10.0.1.0/24"]
    );
    all.release(&"a".into(), &net("10.0.0.0/24"));
    let given = ["c", "d", "e", "f"].map(|node| give(&mut all, node, Family::V4));
    assert_eq!(given, ["10.0.2.0/24", "10.0.3.0/24", "10.0.0.0/24", ""]);
    // After a start the search continues behind the subnets in use.
    let mut all = subnets(&[("10.0.0.0/22", 24)]);
    all.claim(&"b".into(), net("10.0.1.0/24")).unwrap();
    assert_eq!(give(&mut all, "c", Family::V4), "10.0.2.0/24");
}

#[test]
fn ranges_at_the_end_of_all_addresses_end_there() {
    let mut all =
        subnets(&[("255.255.255.0/24", 25), ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ff00/120", 121)]);
    for family in [Family::V4, Family::V6] {
        assert_eq!(
            (0..3).filter(|node| !give(&mut all, &format!("n{node}"), family).is_empty()).count(),
            2
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn subnets_in_use_never_overlap_and_a_free_one_is_given(steps in vec((0_u8..3, 0_u8..20, 24_u8..29), 0..80)) {
        let mut all = subnets(&[("10.0.0.0/24", 27)]);
        let mut model: Vec<(NodeName, IpNet)> = Vec::new();
        for (step, (kind, number, length)) in steps.into_iter().enumerate() {
            let node: NodeName = format!("n{number}").into();
            match kind {
                0 => {
                    let free: Vec<IpNet> = net("10.0.0.0/24").subnets(27).unwrap()
                        .filter(|part| !model.iter().any(|(_, used)| used.contains(part) || part.contains(used)))
                        .collect();
                    let given = all.give(&node, Family::V4);
                    prop_assert_eq!(given.is_some(), !free.is_empty());
                    prop_assert!(given.is_none_or(|given| free.contains(&given)), "{:?} of {:?}", given, free);
                    model.extend(given.map(|subnet| (node, subnet)));
                }
                1 => {
                    let subnet = IpNet::new(format!("10.0.0.{}", number * 12).parse().unwrap(), length).unwrap().trunc();
                    let free = !model.iter().any(|(_, used)| used.contains(&subnet) || subnet.contains(used));
                    let foreign: NodeName = format!("claims{step}").into();
                    prop_assert_eq!(all.claim(&foreign, subnet).is_ok(), free);
                    if free {
                        model.push((foreign, subnet));
                    }
                }
                _ if !model.is_empty() => {
                    let (node, subnet) = model.remove(usize::from(number) % model.len());
                    all.release(&"nobody".into(), &subnet);
                    all.release(&node, &subnet);
                }
                _ => {}
            }
            prop_assert_eq!(all.used.len(), model.len());
        }
    }
}
