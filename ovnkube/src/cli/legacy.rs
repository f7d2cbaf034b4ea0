//! `master-init`, `minion-init` and `gateway-init`, with the arguments of 2016 to 2018.

use std::{
    ffi::OsString,
    net::{IpAddr, Ipv4Addr},
};

use clap::{Arg, ArgAction, ArgMatches};
use controller::legacy::LoadBalancers;
use ipnet::{IpNet, Ipv4Net};

use super::Command;
use crate::{
    legacy::{Gateway, Init, NodeNetwork, Uplink},
    options::Options,
};

const CLUSTER: &str = "cluster-ip-subnet";
const MASTER_SUBNET: &str = "master-switch-subnet";
const MINION_SUBNET: &str = "minion-switch-subnet";
const NODE: &str = "node-name";
const BRIDGE: &str = "bridge-interface";
const NIC: &str = "physical-interface";
const ADDRESS: &str = "physical-ip";
const NEXT_HOP: &str = "default-gw";
const SOURCES: &str = "rampout-ip-subnets";
const LOAD_BALANCERS: &str = "enable-load-balancers";
const DB: &str = "db";
/// Arguments that are options of `ovnkube` under other names.
const TLS: [(&str, &str, &str); 3] = [
    (
        "nb-privkey",
        "nb-client-privkey",
        "Private key for the northbound database, of ssl: addresses",
    ),
    ("nb-cert", "nb-client-cert", "Certificate for it"),
    ("nb-cacert", "nb-client-cacert", "Certificates of its authorities"),
];

const AFTER: &str = "\
The northbound database is where external_ids:ovn-nb of the local Open vSwitch says. All rows are \
written in one transaction; a second run changes nothing.

Exit status: 0: done. 1: nothing was written, or a later step failed; a second run completes it. \
2: the command line cannot be used.";

fn value(name: &'static str, what: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(what).help(help)
}

fn definition(name: &'static str) -> clap::Command {
    let tls = TLS.map(|(name, _, help)| value(name, "FILE", help));
    clap::Command::new(name)
        .after_help(AFTER)
        .arg(value(CLUSTER, "CIDR", "All pods of the cluster").required(true))
        .arg(value(NODE, "NAME", "This node; capital letters become small ones").required(true))
        .args(tls)
        .arg(value(DB, "ENDPOINT", "Open vSwitch's database, instead of the usual socket"))
}

pub(super) fn master_init() -> clap::Command {
    definition("master-init")
        .about("Make the cluster's router, load balancers and join switch, and this node's switch")
        .arg(value(MASTER_SUBNET, "CIDR", "The pods of this node").required(true))
}

pub(super) fn minion_init() -> clap::Command {
    definition("minion-init")
        .about("Make this node's switch, its own port on it, and the CNI configuration")
        .arg(value(MINION_SUBNET, "CIDR", "The pods of this node").required(true))
}

pub(super) fn gateway_init() -> clap::Command {
    definition("gateway-init")
        .about("Make this node's gateway router, with a bridge or a NIC of the node behind it")
        .arg(value(BRIDGE, "BRIDGE", "The bridge that node and pods share"))
        .arg(value(NIC, "INTERFACE", "The NIC that is for pods alone"))
        .arg(value(ADDRESS, "CIDR", "The gateway's address on the physical network").required(true))
        .arg(value(NEXT_HOP, "IP", "The next hop of pods that leave"))
        .arg(value(
            SOURCES,
            "CIDRS",
            "Pods that leave through this gateway; others leave through the first one",
        ))
}

/// The same of `ovn-kube-util`, which asks for load balancers.
pub(super) fn util_gateway_init() -> clap::Command {
    let load_balancers = Arg::new(LOAD_BALANCERS).long(LOAD_BALANCERS).action(ArgAction::SetTrue);
    gateway_init().arg(load_balancers.help("Make load balancers for node ports, too"))
}

/// A required argument that has a value.
fn given<'a>(matches: &'a ArgMatches, name: &str) -> Result<&'a str, String> {
    let text = matches.get_one::<String>(name).map(|text| text.trim()).unwrap_or_default();
    if text.is_empty() { Err(format!("--{name} has no value")) } else { Ok(text) }
}

fn network(matches: &ArgMatches, name: &str) -> Result<Ipv4Net, String> {
    let text = given(matches, name)?;
    match text.parse() {
        Ok(IpNet::V4(v4)) => Ok(v4),
        Ok(IpNet::V6(_)) => Err(format!("--{name} {text:?}: these commands know IPv4 only")),
        Err(_) => Err(format!("--{name} {text:?} is no IPv4 network, such as 192.168.0.0/16")),
    }
}

fn node(matches: &ArgMatches) -> Result<String, String> {
    let text = given(matches, NODE)?.to_lowercase();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    if text.chars().all(is_plain) && text.len() <= 253 {
        Ok(text)
    } else {
        Err(format!(
            "--{NODE} {text:?} is no name of a node: letters, digits, - and ., at most 253"
        ))
    }
}

/// The sources of options that these commands share with `ovnkube`.
fn options(matches: &ArgMatches) -> Options {
    let text = |name: &str| matches.get_one::<String>(name);
    let mut line: Vec<OsString> = vec!["ovnkube".into()];
    let tls = TLS.iter().map(|(name, option, _)| (*name, *option));
    for (name, option) in tls.chain([(DB, "ovsdb-endpoint")]) {
        line.extend(text(name).map(|value| format!("--{option}={value}").into()));
    }
    Options::read(line)
}

fn read(matches: &ArgMatches, init: Init) -> Result<Command, String> {
    Ok(Command::Init { init, options: options(matches) })
}

fn node_network(matches: &ArgMatches, subnet: &str) -> Result<NodeNetwork, String> {
    let (cluster, subnet) = (network(matches, CLUSTER)?, network(matches, subnet)?);
    Ok(NodeNetwork { cluster: cluster.trunc(), subnet: subnet.trunc(), node: node(matches)? })
}

pub(super) fn read_master(_: &str, matches: &ArgMatches) -> Result<Command, String> {
    read(matches, Init::Master(node_network(matches, MASTER_SUBNET)?))
}

pub(super) fn read_minion(_: &str, matches: &ArgMatches) -> Result<Command, String> {
    read(matches, Init::Minion(node_network(matches, MINION_SUBNET)?))
}

pub(super) fn read_gateway(_: &str, matches: &ArgMatches) -> Result<Command, String> {
    gateway(matches, LoadBalancers::With)
}

pub(super) fn read_util_gateway(_: &str, matches: &ArgMatches) -> Result<Command, String> {
    let asked = matches.get_flag(LOAD_BALANCERS);
    gateway(matches, if asked { LoadBalancers::With } else { LoadBalancers::Without })
}

fn gateway(matches: &ArgMatches, load_balancers: LoadBalancers) -> Result<Command, String> {
    let name =
        |name: &str| matches.get_one::<String>(name).filter(|name| !name.is_empty()).cloned();
    let uplink = match (name(BRIDGE), name(NIC)) {
        (Some(bridge), None) => Some(Uplink::Bridge(bridge)),
        (None, Some(nic)) => Some(Uplink::Nic(nic)),
        (Some(_), Some(_)) | (None, None) => None,
    };
    let address = network(matches, ADDRESS)?;
    if address.addr() == address.network() && address.prefix_len() < 31 {
        return Err(format!("--{ADDRESS} {address} is a network, not the address of a host in it"));
    }
    let next_hop = match name(NEXT_HOP).map(|text| (text.parse::<IpAddr>(), text)) {
        None => None,
        Some((Ok(IpAddr::V4(v4)), _)) => Some::<Ipv4Addr>(v4),
        Some((_, text)) => return Err(format!("--{NEXT_HOP} {text:?} is no IPv4 address")),
    };
    let sources = name(SOURCES).unwrap_or_default();
    let sources = sources.split(',').map(str::trim).filter(|text| !text.is_empty());
    let (mut networks, mut no_networks) = (Vec::new(), Vec::new());
    for text in sources {
        match text.parse::<Ipv4Net>() {
            Ok(network) => networks.push(network),
            Err(_) => no_networks.push(text.to_owned()),
        }
    }
    read(
        matches,
        Init::Gateway(Gateway {
            cluster: network(matches, CLUSTER)?.trunc(),
            uplink,
            address,
            next_hop,
            node: node(matches)?,
            sources: networks,
            no_networks,
            load_balancers,
        }),
    )
}
