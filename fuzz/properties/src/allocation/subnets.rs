//! Subnets of nodes. In a small range the next subnet is predictable: the first free one behind the
//! last one assigned.

use std::net::IpAddr;

use arbitrary::{Result, Unstructured};
use controller::{
    allocate::subnets::{Overlap, Subnets},
    config::ClusterSubnet,
    key::NodeName,
    problem::Family,
};
use ipnet::IpNet;

use crate::draw;

/// Ranges with more bits for the number of their subnets are not enumerated.
const FEW: u8 = 6;

/// The last address of the subnet that was assigned or claimed last, for each range.
type Latest = Vec<Option<IpAddr>>;

pub(super) fn check(u: &mut Unstructured<'_>) -> Result<()> {
    let ranges: Vec<ClusterSubnet> =
        (0..u.int_in_range(1..=3)?).map(|_| range(u)).collect::<Result<_>>()?;
    let (mut subnets, mut used) = (Subnets::new(&ranges), Vec::<(NodeName, IpNet)>::new());
    let mut latest: Latest = vec![None; ranges.len()];
    let mut claims = 0;
    while !u.is_empty() {
        let node: NodeName = format!("n{}", u.int_in_range(0..=4)?).into();
        match u.int_in_range(0..=4)? {
            0 | 1 => {
                let family = *u.choose(&[Family::V4, Family::V6])?;
                let given = subnets.give(&node, family);
                check_given(&ranges, &used, &mut latest, family, given);
                used.extend(given.map(|subnet| (node, subnet)));
            }
            2 | 3 => {
                claims += 1;
                let subnet = near(u, &ranges)?;
                let (node, is_own) = match used.iter().find(|(_, used)| *used == subnet) {
                    Some((owner, _)) if u.arbitrary()? => (owner.clone(), true),
                    _ => (format!("c{claims}").into(), false),
                };
                let other = used
                    .iter()
                    .filter(|(owner, _)| *owner != node)
                    .any(|(_, used)| overlap(used, &subnet));
                match subnets.claim(&node, subnet) {
                    Ok(()) => assert!(!other, "{subnet} overlaps what another node has"),
                    Err(Overlap { subnet: refused, other: there, by }) => {
                        assert!(
                            other && refused == subnet && overlap(&there, &subnet),
                            "{subnet}: {there} of {by}"
                        );
                        assert!(used.contains(&(by, there)));
                        continue;
                    }
                }
                for (_, latest) in
                    ranges.iter().zip(&mut latest).filter(|(range, _)| range.cidr.contains(&subnet))
                {
                    *latest = (*latest).max(Some(subnet.broadcast()));
                }
                if !is_own {
                    used.push((node, subnet));
                }
            }
            _ if !used.is_empty() => {
                let (node, subnet) = used.swap_remove(u.choose_index(used.len())?);
                subnets.release(&"nobody".into(), &subnet);
                assert!(
                    subnets.claim(&"nobody".into(), subnet).is_err(),
                    "{subnet} was released for its owner by another"
                );
                subnets.release(&node, &subnet);
            }
            _ => {}
        }
    }
    Ok(())
}

/// A range that the options permit: a node's subnet is smaller than the range.
fn range(u: &mut Unstructured<'_>) -> Result<ClusterSubnet> {
    let net = draw::net(u)?;
    let longest = net.max_prefix_len();
    let length = u.int_in_range(0..=longest - 1)?;
    let bits = u.int_in_range(1..=longest - length)?;
    let bits = if u.ratio(3, 4)? { bits.min(FEW) } else { bits };
    let cidr = IpNet::new(net.addr(), length).expect("no longer than the address").trunc();
    Ok(ClusterSubnet { cidr, host_length: length + bits })
}

/// A subnet inside a range, around it, or elsewhere.
fn near(u: &mut Unstructured<'_>, ranges: &[ClusterSubnet]) -> Result<IpNet> {
    let ClusterSubnet { cidr, host_length } = *u.choose(ranges)?;
    let address = match draw::ip_of(u, cidr)? {
        inside if u.ratio(3, 4)? => {
            let host =
                IpNet::new(inside, cidr.prefix_len()).expect("of the same family").hostmask();
            draw::or(cidr.network(), draw::and(inside, host))
        }
        anywhere => anywhere,
    };
    let length = match u.int_in_range(0..=3)? {
        0 => host_length,
        1 => cidr.prefix_len(),
        2 => (host_length + 1).min(cidr.max_prefix_len()),
        _ => u.int_in_range(0..=cidr.max_prefix_len())?,
    };
    Ok(IpNet::new(address, length).expect("no longer than the address").trunc())
}

fn overlap(one: &IpNet, other: &IpNet) -> bool {
    one.contains(other) || other.contains(one)
}

fn is_of(family: Family, net: &IpNet) -> bool {
    Family::of(&net.network()) == family
}

fn check_given(
    ranges: &[ClusterSubnet],
    used: &[(NodeName, IpNet)],
    latest: &mut Latest,
    family: Family,
    given: Option<IpNet>,
) {
    let is_free = |part: &IpNet| !used.iter().any(|(_, used)| overlap(used, part));
    if let Some(given) = given {
        let fits = |range: &ClusterSubnet| {
            range.cidr.contains(&given) && range.host_length == given.prefix_len()
        };
        assert!(is_of(family, &given) && ranges.iter().any(fits), "{given} is of no range");
        assert!(is_free(&given), "{given} overlaps what a node has");
    }
    let of_family = |range: &ClusterSubnet| is_of(family, &range.cidr);
    let few = |range: &ClusterSubnet| range.host_length - range.cidr.prefix_len() <= FEW;
    if ranges.iter().filter(|range| of_family(range)).all(few) {
        let next = ranges.iter().zip(&*latest).filter(|(range, _)| of_family(range)).find_map(
            |(range, latest)| {
                let free: Vec<IpNet> = range
                    .cidr
                    .subnets(range.host_length)
                    .expect("a part is less than the whole")
                    .filter(is_free)
                    .collect();
                free.iter().find(|part| Some(part.network()) > *latest).or(free.first()).copied()
            },
        );
        assert_eq!(given, next, "the next free part of {ranges:?} behind {latest:?}");
    }
    // Of two ranges that contain the subnet, the first one has assigned it.
    let gave = |range: &ClusterSubnet| {
        given.is_some_and(|given| {
            range.cidr.contains(&given) && range.host_length == given.prefix_len()
        })
    };
    if let Some(index) = ranges.iter().position(gave) {
        latest[index] = given.map(|given| given.broadcast());
    }
}
