use std::collections::BTreeMap;

use proptest::{collection::vec, prelude::*, sample::Index};

use super::*;

fn pod(number: usize) -> PodKey {
    PodKey::new("ns", &format!("p{number}")).unwrap()
}

fn subnet(text: &str) -> IpNet {
    text.parse().unwrap()
}

#[test]
fn addresses_come_in_turn_and_never_reserved_ones() {
    for (text, first, last, room) in [
        ("10.244.1.0/24", "10.244.1.3", "10.244.1.254", 252),
        ("10.244.1.16/29", "10.244.1.19", "10.244.1.22", 4),
        ("10.244.1.0/30", "", "", 0),
        ("10.0.0.0/16", "10.0.0.3", "10.0.255.254", 65_532),
        ("10.0.0.0/12", "10.0.0.3", "10.0.255.255", 65_533),
        ("fd00:1:2:3::/64", "fd00:1:2:3::3", "fd00:1:2:3::ffff", 65_533),
        ("fd00::/125", "fd00::3", "fd00::7", 5),
    ] {
        let (subnet, mut addresses) = (subnet(text), Addresses::default());
        let given: Vec<IpAddr> =
            std::iter::from_fn(|| addresses.give(&pod(0), &[subnet], |_| false).ok())
                .map(|nets| nets[0].addr())
                .collect();
        assert_eq!(given.len(), room, "{text}");
        assert_eq!(given.first().map(ToString::to_string).unwrap_or_default(), first);
        assert_eq!(given.last().map(ToString::to_string).unwrap_or_default(), last);
        assert!(given.iter().all(|address| !ovn::reserved(&subnet, *address)), "{text}");
    }
}

#[test]
fn an_address_is_not_given_again_before_all_others() {
    let (subnet, mut addresses) = (subnet("10.244.1.0/29"), Addresses::default());
    let mut next = |number| {
        let given = addresses.give(&pod(number), &[subnet], |_| false).unwrap()[0].addr();
        addresses.release(&pod(number), given);
        given.to_string()
    };
    let turns: Vec<String> = (0..6).map(&mut next).collect();
    assert_eq!(
        turns,
        ["10.244.1.3", "10.244.1.4", "10.244.1.5", "10.244.1.6", "10.244.1.3", "10.244.1.4"]
    );
}

#[test]
fn both_families_or_none() {
    let mut addresses = Addresses::default();
    let (v4, v6) = (subnet("10.244.1.0/29"), subnet("fd00::/126"));
    addresses.give(&pod(0), &[v4, v6], |_| false).unwrap();
    assert_eq!(addresses.give(&pod(1), &[v4, v6], |_| false), Err(Exhausted { subnet: v6 }));
    assert_eq!(addresses.owner("10.244.1.4".parse().unwrap()), None);
}

#[test]
fn after_a_start_it_goes_on_behind_the_highest() {
    let (subnet, mut addresses) = (subnet("10.244.1.0/29"), Addresses::default());
    for address in ["10.244.1.5", "10.244.1.3", "10.9.9.9", "10.244.1.2"] {
        addresses.go_on_behind(&subnet, address.parse().unwrap());
    }
    assert_eq!(
        addresses.give(&pod(0), &[subnet], |_| false).unwrap()[0].to_string(),
        "10.244.1.6/29"
    );
    addresses.go_on_behind(&subnet, "10.244.1.6".parse().unwrap());
    assert_eq!(
        addresses.give(&pod(0), &[subnet], |_| false).unwrap()[0].to_string(),
        "10.244.1.3/29"
    );
}

#[derive(Debug, Clone)]
enum Step {
    Give,
    Claim(u8),
    Release(Index),
}

proptest! {
    #[test]
    fn no_address_has_two_owners(steps in vec(prop_oneof![
        3 => Just(Step::Give),
        1 => (0_u8..=32).prop_map(Step::Claim),
        2 => any::<Index>().prop_map(Step::Release),
    ], 0..200)) {
        let (subnet, mut addresses) = (subnet("10.244.1.0/28"), Addresses::default());
        let mut model: BTreeMap<IpAddr, PodKey> = BTreeMap::new();
        for (number, step) in steps.into_iter().enumerate() {
            let me = pod(number);
            match step {
                Step::Give => match addresses.give(&me, &[subnet], |_| false) {
                    Ok(given) => {
                        prop_assert!(!ovn::reserved(&subnet, given[0].addr()) && subnet.contains(&given[0].addr()));
                        prop_assert_eq!(model.insert(given[0].addr(), me), None);
                    }
                    Err(_) => prop_assert_eq!(model.keys().filter(|address| subnet.contains(*address) && !ovn::reserved(&subnet, **address)).count(), 12),
                },
                Step::Claim(last) => {
                    let net: IpNet = format!("10.244.1.{last}/28").parse().unwrap();
                    match addresses.claim(&me, &[net]) {
                        Ok(()) => prop_assert_eq!(model.insert(net.addr(), me), None),
                        Err(Taken { address, by }) => prop_assert_eq!(model.get(&address), Some(&by)),
                    }
                }
                Step::Release(which) => {
                    let Some((address, owner)) = (!model.is_empty()).then(|| which.index(model.len())).and_then(|at| model.clone().into_iter().nth(at)) else { continue };
                    addresses.release(&me, address);
                    prop_assert_eq!(addresses.owner(address), Some(&owner), "only its owner releases it");
                    addresses.release(&owner, address);
                    model.remove(&address);
                }
            }
            prop_assert_eq!(addresses.owners.len(), model.len());
        }
    }
}
