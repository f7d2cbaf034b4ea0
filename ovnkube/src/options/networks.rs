//! Parsers for options that are networks. An error ends the sentence that begins with the option's
//! name.

use controller::config::{ClusterSubnet, Zone};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use kube::core::Selector;

use super::kind::shown;

/// The prefix length of a node's part of an IPv4 network, unless it is given: upstream's since
/// 2018. 254 addresses are enough for the kubelet's default of 110 pods.
const V4_HOST_LENGTH: u8 = 24;
/// The prefix length of a node's part of any IPv6 network, as upstream has it.
const V6_HOST_LENGTH: u8 = 64;

/// `CIDR[/LENGTH],…`, with the prefix length of a node's part: the same for all IPv4 networks, 64
/// for IPv6 networks.
pub(super) fn cluster_subnets(text: &str) -> Result<Vec<ClusterSubnet>, String> {
    let subnets =
        text.split(',').map(|entry| cluster_subnet(entry.trim())).collect::<Result<Vec<_>, _>>()?;
    let mut lengths = subnets
        .iter()
        .filter(|subnet| subnet.cidr.addr().is_ipv4())
        .map(|subnet| subnet.host_length);
    let first = lengths.next();
    match first.and_then(|first| Some((first, lengths.find(|other| *other != first)?))) {
        Some((first, other)) => {
            let text = shown(text);
            Err(format!(
                "{text:?} gives nodes an IPv4 part of /{first} in one range and of /{other} in another: \
                 they have to be the same"
            ))
        }
        None => Ok(subnets),
    }
}

fn cluster_subnet(entry: &str) -> Result<ClusterSubnet, String> {
    let mut parts = entry.splitn(3, '/');
    let (address, prefix, host_length) =
        (parts.next().unwrap_or_default(), parts.next(), parts.next());
    let cidr =
        cidr(&prefix.map_or_else(|| address.to_owned(), |prefix| format!("{address}/{prefix}")))?;
    // /29 is the smallest part with room for pods: 8 addresses, less network, broadcast, gateway
    // and management port.
    let (usual, longest) =
        if cidr.addr().is_ipv4() { (V4_HOST_LENGTH, 29) } else { (V6_HOST_LENGTH, V6_HOST_LENGTH) };
    let entry = shown(entry);
    let host_length = match host_length {
        None => usual,
        Some(length) => length
            .parse()
            .map_err(|_| format!("{entry:?}: {:?} is no prefix length", shown(length)))?,
    };
    if cidr.addr().is_ipv6() && host_length != V6_HOST_LENGTH {
        return Err(format!(
            "{entry:?}: a node's part of an IPv6 network is always /{V6_HOST_LENGTH}"
        ));
    }
    if host_length > longest {
        return Err(format!("{entry:?}: a node's part of /{host_length} has no room for pods"));
    }
    if host_length <= cidr.prefix_len() {
        return Err(format!(
            "{entry:?}: a node's part, /{host_length}, has to be less than the whole, /{}",
            cidr.prefix_len()
        ));
    }
    Ok(ClusterSubnet { cidr, host_length })
}

/// At most one network of each family.
pub(super) fn one_of_each_family(text: &str) -> Result<Vec<IpNet>, String> {
    let networks =
        text.split(',').map(|entry| cidr(entry.trim())).collect::<Result<Vec<_>, _>>()?;
    let of_v4 = networks.iter().filter(|network| network.addr().is_ipv4()).count();
    if of_v4 > 1 || networks.len() - of_v4 > 1 {
        return Err(format!(
            "{:?} has several networks of one family: give one of each",
            shown(text)
        ));
    }
    Ok(networks)
}

pub(super) fn v4(text: &str) -> Result<Ipv4Net, String> {
    match cidr(text)? {
        IpNet::V4(network) => Ok(network),
        IpNet::V6(_) => Err(format!("{:?} is no IPv4 network", shown(text))),
    }
}

pub(super) fn v6(text: &str) -> Result<Ipv6Net, String> {
    match cidr(text)? {
        IpNet::V6(network) => Ok(network),
        IpNet::V4(_) => Err(format!("{:?} is no IPv6 network", shown(text))),
    }
}

/// A network. Bits behind the prefix are ignored, as by Go's `net.ParseCIDR`.
fn cidr(text: &str) -> Result<IpNet, String> {
    let network: IpNet = text.parse().map_err(|_| {
        format!("{:?} is no network such as 10.128.0.0/14 or fd01::/48", shown(text))
    })?;
    Ok(network.trunc())
}

pub(super) fn selector(text: &str) -> Result<Selector, String> {
    kubeapi::selector::parse(text).map_err(|error| error.to_string())
}

/// A zone has the name of a node, or `global`.
pub(super) fn zone(text: &str) -> Result<Zone, String> {
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
    if (1..=253).contains(&text.len()) && text.bytes().all(good) {
        return Ok(Zone(text.to_owned()));
    }
    Err(format!("{:?} is no zone's name: lower-case letters, digits, '-' and '.'", shown(text)))
}
