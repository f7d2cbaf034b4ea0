//! The match of an ACL, asked about one packet. Knows the part of OVN's expression language
//! (ovn-sb(5), `Logical_Flow`, `match`) that matches of policies are written in; what else a match
//! has is "not known".

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv6Addr},
};

use ipnet::IpNet;

mod parser;

/// A parsed match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expression {
    Any(Vec<Expression>),
    All(Vec<Expression>),
    Not(Box<Expression>),
    /// A predicate, such as `ip4`.
    Is(String),
    Compare {
        field: String,
        relation: Relation,
        constants: Vec<String>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// The first packet of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    pub source: IpAddr,
    pub destination: IpAddr,
    /// `tcp`, `udp` or `sctp`.
    pub protocol: &'a str,
    pub port: u16,
    /// None: not known in this stage.
    pub inport: Option<&'a Port>,
    pub outport: Option<&'a Port>,
}

/// A logical port, and the port groups that it is in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Port {
    pub name: String,
    pub groups: BTreeSet<String>,
}

/// Elements of address sets, by the sets' names.
pub type Sets = BTreeMap<String, Vec<String>>;

/// Predicates of which none is true of the first packet of a connection between pods.
const OTHER_PACKETS: [&str; 15] = [
    "arp",
    "nd",
    "nd_ns",
    "nd_na",
    "nd_rs",
    "nd_ra",
    "rarp",
    "icmp",
    "icmp4",
    "icmp6",
    "igmp",
    "mldv1",
    "mldv2",
    "eth.mcast",
    "ip4.mcast",
];

/// Predicates that are about every IP packet.
const TURNED: [&str; 7] = ["ip", "ip4", "ip6", "arp", "tcp", "udp", "sctp"];

impl Expression {
    /// None if it cannot be read.
    pub fn parse(text: &str) -> Option<Self> {
        parser::parse(text)
    }

    /// The names of the address sets in it.
    pub fn sets(&self) -> BTreeSet<&str> {
        match self {
            Self::Any(all) | Self::All(all) => all.iter().flat_map(Self::sets).collect(),
            Self::Not(inner) => inner.sets(),
            Self::Is(_) => BTreeSet::new(),
            Self::Compare { constants, .. } => {
                constants.iter().filter_map(|constant| constant.strip_prefix('$')).collect()
            }
        }
    }

    /// Whether the packet matches; none if that is not known.
    pub fn matches(&self, packet: &Packet<'_>, sets: &Sets) -> Option<bool> {
        match self {
            Self::Any(all) => one_is(true, all, packet, sets),
            Self::All(all) => one_is(false, all, packet, sets).map(|one_is_false| !one_is_false),
            // What a field needs, its negation needs, too (ovn-sb(5), "Prerequisites"): `!nd` is
            // true of ICMPv6 only. Only predicates that an IP packet always has an answer to are
            // simply turned round.
            Self::Not(inner) => match &**inner {
                Self::Is(predicate) if TURNED.contains(&predicate.as_str()) => {
                    is(predicate, packet).map(|is_it| !is_it)
                }
                Self::Any(_) | Self::All(_) | Self::Not(_) | Self::Is(_) | Self::Compare { .. } => {
                    None
                }
            },
            Self::Is(predicate) => is(predicate, packet),
            Self::Compare { field, relation, constants } => {
                compare(field, *relation, constants, packet, sets)
            }
        }
    }
}

/// Whether one of the expressions has this answer. One that is not known matters only if no other
/// has it.
fn one_is(answer: bool, all: &[Expression], packet: &Packet<'_>, sets: &Sets) -> Option<bool> {
    let answers: Vec<_> = all.iter().map(|expression| expression.matches(packet, sets)).collect();
    match (answers.contains(&Some(answer)), answers.contains(&None)) {
        (true, _) => Some(true),
        (false, true) => None,
        (false, false) => Some(false),
    }
}

fn is(predicate: &str, packet: &Packet<'_>) -> Option<bool> {
    match predicate {
        "ip" | "1" => Some(true),
        "0" => Some(false),
        "ip4" => Some(packet.source.is_ipv4()),
        "ip6" => Some(packet.source.is_ipv6()),
        "tcp" | "udp" | "sctp" => Some(predicate == packet.protocol),
        other => OTHER_PACKETS.contains(&other).then_some(false),
    }
}

fn compare(
    field: &str,
    relation: Relation,
    constants: &[String],
    packet: &Packet<'_>,
    sets: &Sets,
) -> Option<bool> {
    let address = |address: IpAddr, is_ipv4: bool| {
        // A comparison of a field that the packet does not have is false, whatever its relation.
        if address.is_ipv4() != is_ipv4 {
            Some(false)
        } else {
            of_address(address, relation, constants, sets)
        }
    };
    if let Some(bits) = field.strip_prefix("ip6.dst[").and_then(|rest| rest.strip_suffix(']')) {
        return match packet.destination {
            IpAddr::V4(_) => Some(false),
            IpAddr::V6(destination) => of_bits(destination, bits, relation, constants),
        };
    }
    match field {
        "ip4.src" => address(packet.source, true),
        "ip4.dst" => address(packet.destination, true),
        "ip6.src" => address(packet.source, false),
        "ip6.dst" => address(packet.destination, false),
        "inport" => of_port(packet.inport?, relation, constants),
        "outport" => of_port(packet.outport?, relation, constants),
        _ => match field.split_once('.') {
            Some((protocol @ ("tcp" | "udp" | "sctp"), _)) if protocol != packet.protocol => {
                Some(false)
            }
            Some(("tcp" | "udp" | "sctp", "dst")) => of_number(packet.port, relation, constants),
            // A source port, a state of connection tracking, a register.
            Some(_) | None => None,
        },
    }
}

/// Of several constants one has to be equal, or none of them.
fn one_of(is_one: Option<bool>, relation: Relation) -> Option<bool> {
    match relation {
        Relation::Equal => is_one,
        Relation::NotEqual => is_one.map(|is_one| !is_one),
        Relation::Less | Relation::LessOrEqual | Relation::Greater | Relation::GreaterOrEqual => {
            None
        }
    }
}

fn of_address(
    address: IpAddr,
    relation: Relation,
    constants: &[String],
    sets: &Sets,
) -> Option<bool> {
    let mut is_one = false;
    for constant in constants {
        let texts = match constant.strip_prefix('$') {
            Some(set) => sets.get(set)?.as_slice(),
            None => std::slice::from_ref(constant),
        };
        for text in texts {
            is_one |=
                match text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)) {
                    Ok(net) => net.contains(&address),
                    Err(_) => is_masked(address, text)?,
                };
        }
    }
    one_of(Some(is_one), relation)
}

/// Whether the address is the other one in the bits of a mask: `10.244.0.2/255.255.0.255`.
fn is_masked(address: IpAddr, text: &str) -> Option<bool> {
    let (value, mask) = text.split_once('/')?;
    match (address, value.parse().ok()?, mask.parse().ok()?) {
        (IpAddr::V4(address), IpAddr::V4(value), IpAddr::V4(mask)) => {
            Some(address & mask == value & mask)
        }
        (IpAddr::V6(address), IpAddr::V6(value), IpAddr::V6(mask)) => {
            Some(address & mask == value & mask)
        }
        // Of another family.
        (_, IpAddr::V4(_), IpAddr::V4(_)) | (_, IpAddr::V6(_), IpAddr::V6(_)) => Some(false),
        _ => None,
    }
}

/// `bits`: `120..127`, or the number of one.
fn of_bits(
    address: Ipv6Addr,
    bits: &str,
    relation: Relation,
    constants: &[String],
) -> Option<bool> {
    let (low, high) = bits.split_once("..").unwrap_or((bits, bits));
    let (low, high): (u32, u32) = (low.parse().ok()?, high.parse().ok()?);
    let width = high.checked_sub(low).filter(|_| high < u128::BITS)? + 1;
    let value = u128::from(address) >> low & u128::MAX >> (u128::BITS - width);
    let number = |text: &String| match text.strip_prefix("0x") {
        Some(digits) => u128::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let numbers: Vec<u128> = constants.iter().map(number).collect::<Option<_>>()?;
    one_of(Some(numbers.contains(&value)), relation)
}

fn of_port(port: &Port, relation: Relation, constants: &[String]) -> Option<bool> {
    let is_one = constants.iter().any(|constant| match constant.strip_prefix('@') {
        Some(group) => port.groups.contains(group),
        None => *constant == port.name,
    });
    one_of(Some(is_one), relation)
}

fn of_number(number: u16, relation: Relation, constants: &[String]) -> Option<bool> {
    let numbers: Vec<u16> =
        constants.iter().map(|constant| constant.parse().ok()).collect::<Option<_>>()?;
    match (relation, &numbers[..]) {
        (Relation::Less, [than]) => Some(number < *than),
        (Relation::LessOrEqual, [than]) => Some(number <= *than),
        (Relation::Greater, [than]) => Some(number > *than),
        (Relation::GreaterOrEqual, [than]) => Some(number >= *than),
        _ => one_of(Some(numbers.contains(&number)), relation),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str) -> Option<bool> {
        let port = |name: &str, group: &str| Port {
            name: name.to_owned(),
            groups: [group.to_owned()].into(),
        };
        let outport = port("shop_db", "a77");
        let packet = Packet {
            source: "10.0.0.1".parse().unwrap(),
            destination: "10.0.0.2".parse().unwrap(),
            protocol: "tcp",
            port: 80,
            inport: None,
            outport: Some(&outport),
        };
        let sets = Sets::from([
            ("a1".to_owned(), vec!["10.0.0.1".to_owned(), "10.9.0.0/16".to_owned()]),
            ("a2".to_owned(), Vec::new()),
        ]);
        Expression::parse(text).expect(text).matches(&packet, &sets)
    }

    #[test]
    fn matches_of_policies_are_true_of_what_they_are_about() {
        for text in [
            "outport == @a77",
            "outport == \"shop_db\"",
            "ip4.src == {$a1, $a2} && tcp && tcp.dst=={80,8080} && outport == @a77",
            "(ip4.src == 10.0.0.0/8 && ip4.src != {10.0.0.2/32, 10.1.0.0/16}) && outport == @a77",
            "tcp && 79<=tcp.dst<=81 && outport == @a77",
            "tcp && (79<tcp.dst<81 || tcp.dst<80)",
            "(ip4.src == {$a1} && tcp && outport == @a77) || (ip6.src == {$a1} && tcp && outport == @a77)",
            "tcp && (tcp.dst==443 || (tcp.dst==80 && (ip4.dst == 10.0.0.2 || ip6.dst == fd00::2)))",
            "(ip4 || ip6) && outport == @a77",
            "!arp && ip && 1",
            "ip4.src == 10.7.0.1/255.0.0.255",
        ] {
            assert_eq!(asked(text), Some(true), "{text}");
        }
    }

    #[test]
    fn matches_of_policies_are_false_of_what_they_are_not_about() {
        for text in [
            "outport == @a78",
            "ip4.src == $a2",
            "ip4.src == $a1 && udp && udp.dst == 80",
            "ip4.src == 10.0.0.0/8 && ip4.src != {10.0.0.0/24}",
            // A packet of IPv4 has no address of IPv6, be it equal or not.
            "ip6.src != fd00::1",
            "tcp.dst > 80 || tcp.dst < 80",
            "81<=tcp.dst<=90",
            "80<tcp.dst<91",
            "tcp.dst<80",
            "ip4.src != 10.7.0.1/255.0.0.255",
            "outport == @a77 && (arp || nd)",
        ] {
            assert_eq!(asked(text), Some(false), "{text}");
        }
    }

    /// The rule that drops multicast is asked about every connection. One that cannot be evaluated
    /// would leave each verdict unknown.
    #[test]
    fn the_rules_about_multicast_are_about_no_connection_between_pods() {
        let transient = "(ip6.dst[120..127] == 0xff && ip6.dst[116] == 1)";
        let all = format!("(ip4.mcast || mldv1 || mldv2 || {transient})");
        for text in [
            all.clone(),
            format!("outport == @a77 && {all}"),
            "outport == @a77 && (igmp || (ip4.src == $a1 && ip4.mcast))".to_owned(),
        ] {
            assert_eq!(asked(&text), Some(false), "{text}");
        }
        for (destination, expected) in
            [("ff1e::1:3", Some(true)), ("ff02::1", Some(false)), ("fd00:10:244:1::5", Some(false))]
        {
            let packet = Packet {
                source: "fd00:10:244:1::3".parse().unwrap(),
                destination: destination.parse().unwrap(),
                protocol: "udp",
                port: 5000,
                inport: None,
                outport: None,
            };
            let read = Expression::parse(&all).unwrap();
            assert_eq!(read.matches(&packet, &Sets::new()), expected, "{destination}");
        }
        for bits in ["120..200", "127..120", "128", "x", ""] {
            assert_eq!(
                of_bits(Ipv6Addr::LOCALHOST, bits, Relation::Equal, &["1".to_owned()]),
                None,
                "{bits}"
            );
        }
    }

    /// A match of an administrator's own ACL must not be taken for one that does not match.
    #[test]
    fn what_is_not_known_of_the_packet_is_not_known_of_the_match() {
        for text in [
            "ct.est",
            "!nd",
            "!(ip4 && tcp)",
            "tcp.src == 5",
            "inport == @a77",
            "ip4.src == $a3",
            "reg0[7] == 1 && ip",
        ] {
            let read = Expression::parse(text);
            assert!(read.is_none_or(|_| asked(text).is_none()), "{text}");
        }
        assert_eq!(asked("ct.est && udp"), Some(false));
        assert_eq!(asked("ct.est || tcp"), Some(true));
        for text in
            ["", "ip4 &&", "(ip4", "ip4.src == ", "\"open", "ip4 ip6", "ip4.src == {a", "= 5"]
        {
            assert_eq!(Expression::parse(text), None, "{text}");
        }
        assert_eq!(Expression::parse(&"(".repeat(100_000)), None);
        assert_eq!(Expression::parse(&"!".repeat(100_000)), None);
    }
}
