//! Allocation of addresses and subnets: no two owners share one, none is outside of its range or
//! reserved, and no request is refused while one is free.

mod subnets;

use std::{collections::BTreeMap, net::IpAddr};

use arbitrary::{Result, Unstructured};
use contract::{names::PodKey, ovn};
use controller::allocate::addresses::{Addresses, Exhausted, Taken};
use ipnet::IpNet;

use crate::{addresses, draw};

/// Limit for checking addresses one by one, so that a run stays fast.
const MANY: usize = 300;

/// `data` is the source of drawn subnets and operations on them.
pub fn check(data: &[u8]) {
    addresses::check(data);
    let mut u = Unstructured::new(data);
    // The only error is the end of the bytes to draw from.
    let _ = match u.arbitrary() {
        Ok(true) => check_addresses(&mut u),
        _ => subnets::check(&mut u),
    };
}

/// A subnet of the size of a node's, or any other.
fn subnet(u: &mut Unstructured<'_>) -> Result<IpNet> {
    let net = draw::net(u)?;
    let longest = net.max_prefix_len();
    let length = if u.ratio(3, 4)? { longest - u.int_in_range(0..=6)? } else { net.prefix_len() };
    Ok(IpNet::new(net.addr(), length).expect("no longer than the address").trunc())
}

fn check_addresses(u: &mut Unstructured<'_>) -> Result<()> {
    let subnets: Vec<IpNet> =
        (0..u.int_in_range(1..=3)?).map(|_| subnet(u)).collect::<Result<_>>()?;
    let (mut addresses, mut owners) = (Addresses::default(), BTreeMap::<IpAddr, PodKey>::new());
    while !u.is_empty() {
        let pod =
            PodKey::new("shop", &format!("p{}", u.int_in_range(0..=9)?)).expect("a good name");
        let subnet = *u.choose(&subnets)?;
        let near =
            ovn::nth(&subnet, u.int_in_range(0..=40)?).map_or(subnet.network(), |net| net.addr());
        match u.int_in_range(0..=6)? {
            0..=2 => give(
                &mut addresses,
                &mut owners,
                &pod,
                &subnets[..=u.int_in_range(0..=subnets.len() - 1)?],
            ),
            3 => {
                let nets = [near, *u.choose(&[near, subnet.broadcast(), subnets[0].network()])?]
                    .map(IpNet::from);
                claim(&mut addresses, &mut owners, &pod, &nets);
            }
            4 => {
                let free = owners.get(&near).is_none_or(|owner| *owner == pod);
                assert_eq!(addresses.hold(&pod, near), free, "{near}");
                owners.entry(near).or_insert(pod);
            }
            5 => {
                addresses.release(&pod, near);
                owners.retain(|address, owner| *address != near || *owner != pod);
            }
            _ if u.arbitrary()? => addresses.go_on_behind(&subnet, draw::ip_of(u, subnet)?),
            _ => addresses.forget(&subnet),
        }
        assert_eq!(addresses.owner(near), owners.get(&near), "{near}");
        for (address, owner) in &owners {
            assert_eq!(addresses.owner(*address), Some(owner), "{address}");
        }
    }
    Ok(())
}

fn give(
    addresses: &mut Addresses,
    owners: &mut BTreeMap<IpAddr, PodKey>,
    pod: &PodKey,
    subnets: &[IpNet],
) {
    match addresses.give(pod, subnets, |_| false) {
        Ok(given) => {
            assert_eq!(given.len(), subnets.len());
            for (net, subnet) in given.iter().zip(subnets) {
                assert!(
                    subnet.contains(&net.addr()) && net.prefix_len() == subnet.prefix_len(),
                    "{net} is not of {subnet}"
                );
                assert!(!ovn::reserved(subnet, net.addr()), "{net} is reserved");
                assert_eq!(
                    owners.insert(net.addr(), pod.clone()),
                    None,
                    "{net} had an owner already"
                );
            }
        }
        Err(Exhausted { subnet }) => {
            assert!(subnets.contains(&subnet));
            // The same subnet may be requested twice, and so may one inside another: each request
            // needs an address of its own.
            let asked = subnets.len();
            let free = subnet.hosts().take(MANY).filter(|address| {
                !ovn::reserved(&subnet, *address) && !owners.contains_key(address)
            });
            assert!(free.count() < asked, "{subnet} is said to be exhausted");
        }
    }
}

fn claim(
    addresses: &mut Addresses,
    owners: &mut BTreeMap<IpAddr, PodKey>,
    pod: &PodKey,
    nets: &[IpNet],
) {
    let other = nets
        .iter()
        .find_map(|net| owners.get_key_value(&net.addr()).filter(|(_, owner)| *owner != pod));
    let expected =
        other.map_or(Ok(()), |(address, by)| Err(Taken { address: *address, by: by.clone() }));
    assert_eq!(addresses.claim(pod, nets), expected);
    if expected.is_ok() {
        owners.extend(nets.iter().map(|net| (net.addr(), pod.clone())));
    }
}
