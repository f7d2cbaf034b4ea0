//! The rules in the words of the kernel: nftables expressions. Pure.

use netlink_packet_core::DefaultNla;
use netlink_packet_netfilter::nftables::{
    Bitwise, DataAttribute, Expressions, Immediate, Lookup, Meta, MetaKey, Operator, Payload,
    Register,
};
use podnet::nftables::{Rule, Set};

use super::{
    super::{
        plan::INTERFACE,
        rules::{
            NETWORK_HEADER, Port, STATUS, TRANSLATED, TRANSPORT_HEADER, compare, connection,
            interface, is_of_family, is_of_port, other, rule, verdict,
        },
    },
    Family, To, Use, octets,
};

/// The register of the 32-bit word with this number, as the kernel names it: by its old name, of
/// four words, where it has one.
fn register(word: u32) -> Register {
    Register::from(if word.is_multiple_of(4) { 1 + word / 4 } else { 8 + word })
}

fn load(word: u32, value: Vec<u8>) -> Expressions {
    Expressions::Immediate(vec![
        Immediate::DestinationRegister(register(word)),
        Immediate::Data(DataAttribute::Value(value)),
    ])
}

fn payload(word: u32, base: u32, offset: u32, length: u32) -> Expressions {
    Expressions::Payload(vec![
        Payload::DestinationRegister(register(word)),
        Payload::Base(base),
        Payload::Offset(offset),
        Payload::Len(length),
    ])
}

fn source(family: Family) -> Expressions {
    payload(0, NETWORK_HEADER, family.offsets()[0], family.words() * 4)
}

fn destination(family: Family) -> Expressions {
    payload(0, NETWORK_HEADER, family.offsets()[1], family.words() * 4)
}

/// Protocol and port of the destination, which is in the same place in all three protocols.
fn load_end(word: u32) -> [Expressions; 2] {
    let protocol = Expressions::Meta(vec![
        Meta::Key(MetaKey::L4Proto),
        Meta::DestinationRegister(register(word)),
    ]);
    [protocol, payload(word + 1, TRANSPORT_HEADER, 2, 2)]
}

fn attribute(kind: u16, value: u32) -> DefaultNla {
    DefaultNla::new(kind, value.to_be_bytes().to_vec())
}

/// What is limited to some clients is dropped from any other one.
pub(super) fn limit(family: Family) -> Rule {
    let mut all = is_of_family(family.number()).to_vec();
    all.extend(is_in(Use::Limited, family));
    // The words before it have the first part of the key.
    all.push(payload(family.words() + 2, NETWORK_HEADER, family.offsets()[0], family.words() * 4));
    // `NFT_LOOKUP_F_INV`
    let set = [
        Lookup::Set(Use::Clients.set(family).name.to_owned()),
        Lookup::SourceRegister(register(0)),
    ];
    all.push(Expressions::Lookup(set.into_iter().chain([Lookup::Flags(1)]).collect()));
    // `NF_DROP`
    all.push(verdict(0));
    rule(all)
}

/// Looks up the key at word 0. `into`: the word of a map's value.
fn look_up(set: Set, into: Option<u32>) -> Expressions {
    let set = [Lookup::Set(set.name.to_owned()), Lookup::SourceRegister(register(0))];
    let into = into.map(|word| Lookup::DestinationRegister(register(word)));
    Expressions::Lookup(set.into_iter().chain(into).chain([Lookup::Flags(0)]).collect())
}

/// Whether address, protocol and port of the destination are in the set.
fn is_in(set: Use, family: Family) -> Vec<Expressions> {
    let mut matches = vec![destination(family)];
    matches.extend(load_end(family.words()));
    matches.push(look_up(set.set(family), None));
    matches
}

/// A packet of a tunnel has the destination that its sender means.
pub(super) fn leave_tunnel(port: u16) -> Rule {
    // `NF_ACCEPT`
    rule(is_of_port(Port::Destination, port).into_iter().chain([verdict(1)]))
}

/// Packets of pods are for the host, whatever their destination.
pub(super) fn leave_to_host() -> Rule {
    // `NF_ACCEPT`
    rule(interface(MetaKey::Iifname, Operator::Equal, INTERFACE).into_iter().chain([verdict(1)]))
}

pub(super) fn refuse(family: Family) -> Rule {
    // `NFTA_REJECT_TYPE` (`NFT_REJECT_ICMPX_UNREACH`), `NFTA_REJECT_ICMP_CODE`
    // (`NFT_REJECT_ICMPX_PORT_UNREACH`).
    let attributes = vec![attribute(1, 2), DefaultNla::new(2, vec![1])];
    let matches = is_of_family(family.number()).into_iter().chain(is_in(Use::Refused, family));
    rule(matches.chain([other("reject", attributes)]))
}

/// A connection goes to one of so many targets that the map has for its destination.
pub(super) fn draw(map: Use, family: Family, to: To, number: u32) -> Rule {
    let mut all = is_of_family(family.number()).to_vec();
    match to {
        To::Service => all.push(destination(family)),
        To::Host => {
            all.extend(is_address_of_host(family));
            all.push(load(0, octets(family.unspecified())));
        }
    }
    let after = family.words();
    let in_order = |word| u32::from(register(word));
    all.push(load(after, number.to_ne_bytes().to_vec()));
    // `NFTA_NG_DREG`, `_MODULUS`, `_TYPE` (`NFT_NG_RANDOM`), `_OFFSET`.
    let draw = [(1, in_order(after + 1)), (2, number), (3, 1), (4, 0)];
    all.push(other("numgen", draw.map(|(kind, value)| attribute(kind, value)).to_vec()));
    all.extend(load_end(after + 2));
    let target = after + 4;
    all.push(look_up(map.set(family), Some(target)));
    // `NFTA_NAT_TYPE` (destination), `_FAMILY`, `_REG_ADDR_MIN`, `_REG_ADDR_MAX`, `_REG_PROTO_MIN`,
    // `_REG_PROTO_MAX`, `_FLAGS` (`NF_NAT_RANGE_MAP_IPS`, `NF_NAT_RANGE_PROTO_SPECIFIED`).
    let (address, port) = (in_order(target), in_order(target + family.words()));
    let nat = [
        (1, 1),
        (2, u32::from(family.number())),
        (3, address),
        (4, address),
        (5, port),
        (6, port),
        (7, 3),
    ];
    all.push(other("nat", nat.map(|(kind, value)| attribute(kind, value)).to_vec()));
    rule(all)
}

/// Whether the destination is an address of the host, and not one of the loopback interface.
fn is_address_of_host(family: Family) -> Vec<Expressions> {
    // `NFTA_FIB_DREG`, `_RESULT` (`NFT_FIB_RESULT_ADDRTYPE`), `_FLAGS` (`NFTA_FIB_F_DADDR`).
    let fib = [(1, u32::from(register(0))), (2, 3), (3, 2)];
    let mut all = vec![other("fib", fib.map(|(kind, value)| attribute(kind, value)).to_vec())];
    // `RTN_LOCAL`
    all.push(compare(Operator::Equal, 2_u32.to_ne_bytes().to_vec()));
    all.push(destination(family));
    match family {
        Family::V4 => {
            all.push(mask(vec![255, 0, 0, 0]));
            all.push(compare(Operator::NotEqual, vec![127, 0, 0, 0]));
        }
        Family::V6 => {
            all.push(compare(Operator::NotEqual, std::net::Ipv6Addr::LOCALHOST.octets().to_vec()));
        }
    }
    all
}

/// The first word, masked.
fn mask(mask: Vec<u8>) -> Expressions {
    Expressions::Bitwise(vec![
        Bitwise::SourceRegister(register(0)),
        Bitwise::DestinationRegister(register(0)),
        Bitwise::Length(4),
        // `NFT_BITWISE_MASK_XOR`, which a kernel since 5.6 shows.
        Bitwise::Op(0),
        Bitwise::Mask(DataAttribute::Value(mask)),
        Bitwise::Xor(DataAttribute::Value(vec![0; 4])),
    ])
}

/// Whether the destination of the connection was translated.
fn is_translated() -> Vec<Expressions> {
    connection(STATUS, TRANSLATED, Operator::NotEqual).into()
}

/// A connection to a local endpoint is translated to its own source: no later rule translates it
/// then.
pub(super) fn keep_source(family: Family) -> Rule {
    let way = interface(MetaKey::Oifname, Operator::Equal, INTERFACE);
    let matches = way.into_iter().chain(is_of_family(family.number()));
    let matches = matches.chain(is_translated()).chain(is_in(Use::SourceKept, family));
    // `NFTA_NAT_TYPE` (source), `_FAMILY`, `_REG_ADDR_MIN`, `_REG_ADDR_MAX`, `_FLAGS`
    // (`NF_NAT_RANGE_MAP_IPS`).
    let address = u32::from(register(0));
    let nat = [(1, 0), (2, u32::from(family.number())), (3, address), (4, address), (7, 1)];
    let nat = nat.map(|(kind, value)| attribute(kind, value)).to_vec();
    rule(matches.chain([source(family), other("nat", nat)]))
}

pub(super) fn masquerade(family: Family) -> Rule {
    let elsewhere =
        [INTERFACE, "lo"].map(|name| interface(MetaKey::Oifname, Operator::NotEqual, name));
    let matches = elsewhere.into_iter().flatten().chain(is_of_family(family.number()));
    let matches = matches.chain(is_translated()).chain(is_in(Use::Masqueraded, family));
    rule(matches.chain([other("masq", Vec::new())]))
}
