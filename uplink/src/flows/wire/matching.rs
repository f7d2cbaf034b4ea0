//! A match as a list of fields (OXM, and NXM for those of Open vSwitch). Knows nothing of messages.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use contract::mac::Mac;
use ipnet::IpNet;

use super::Reader;
use crate::flows::{ConnectionState, Family, Icmp, Match, OfPort, Packet, Protocol, config::Vlan};

/// The fields of OpenFlow, and those of Open vSwitch.
const BASIC: u16 = 0x8000;
const NXM: u16 = 1;

/// Class and number of a field. Those of OpenFlow: table "Explanation of fields" of section
/// 7.2.3.8; those of Open vSwitch: ovs-fields(7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Field(u16, u8);

pub(super) const IN_PORT: Field = Field(BASIC, 0);
pub(super) const ETH_DST: Field = Field(BASIC, 3);
pub(super) const ETH_SRC: Field = Field(BASIC, 4);
const ETH_TYPE: Field = Field(BASIC, 5);
pub(super) const VLAN_VID: Field = Field(BASIC, 6);
const IP_PROTO: Field = Field(BASIC, 10);
const IPV4_SRC: Field = Field(BASIC, 11);
const IPV4_DST: Field = Field(BASIC, 12);
const ICMPV4: [Field; 2] = [Field(BASIC, 19), Field(BASIC, 20)];
const ARP_OP: Field = Field(BASIC, 21);
const ARP_TPA: Field = Field(BASIC, 23);
const IPV6_SRC: Field = Field(BASIC, 26);
const IPV6_DST: Field = Field(BASIC, 27);
const ICMPV6: [Field; 2] = [Field(BASIC, 29), Field(BASIC, 30)];
const ND_TARGET: Field = Field(BASIC, 31);
pub(super) const REG0: Field = Field(NXM, 0);
const IP_FRAG: Field = Field(NXM, 26);
const CT_STATE: Field = Field(NXM, 105);
pub(super) const CT_MARK: Field = Field(NXM, 107);

/// The source port of the protocol; that of the destination is the next field.
fn source_port(protocol: Protocol) -> Field {
    Field(
        BASIC,
        match protocol {
            Protocol::Tcp => 13,
            Protocol::Udp => 15,
            Protocol::Sctp => 17,
        },
    )
}

impl Field {
    fn following(self) -> Self {
        Self(self.0, self.1 + 1)
    }

    /// The header of the field with a value of so many bytes and no mask.
    pub(super) fn header(self, bytes: u8) -> [u8; 4] {
        let [high, low] = self.0.to_be_bytes();
        // The lowest bit of the number says whether a mask follows.
        [high, low, self.1 << 1, bytes]
    }

    /// The field with a value of at most 16 bytes.
    pub(super) fn with(self, value: &[u8]) -> Vec<u8> {
        let bytes = u8::try_from(value.len()).unwrap_or_default();
        [&self.header(bytes), value].concat()
    }

    fn with_mask(self, value: &[u8], mask: &[u8]) -> Vec<u8> {
        let bytes = u8::try_from(value.len() + mask.len()).unwrap_or_default();
        let [class0, class1, number, length] = self.header(bytes);
        [&[class0, class1, number | 1, length], value, mask].concat()
    }
}

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const ARP: u16 = 0x0806;
const ICMP: u8 = 1;
const ICMP6: u8 = 58;
/// `ARPOP_REQUEST`
const REQUEST: u16 = 1;
/// `OFPVID_PRESENT`
pub(super) const PRESENT: u16 = 0x1000;
/// `CS_ESTABLISHED`, `CS_RELATED`, `CS_TRACKED`
const EST: u32 = 0x02;
const REL: u32 = 0x04;
const TRK: u32 = 0x20;
/// `NX_IP_FRAG_ANY`
const FRAG_ANY: u8 = 1;

/// The fields, each after those that it requires.
pub(super) fn encode(matching: &Match) -> Vec<u8> {
    let Match {
        reg0,
        state,
        ct_mark,
        packet,
        in_port,
        vlan,
        mac_source,
        mac_destination,
        source,
        destination,
        fragment,
        source_port: from,
        destination_port: to,
        icmp,
        arp_request,
        nd_target,
    } = matching;
    let mut bytes = Vec::new();
    let mut put = |field: Option<Vec<u8>>| bytes.extend(field.into_iter().flatten());
    put(in_port.map(|port| IN_PORT.with(&port.0.to_be_bytes())));
    put(mac_destination.map(|mac| ETH_DST.with(&mac.octets())));
    put(mac_source.map(|mac| ETH_SRC.with(&mac.octets())));
    put(vlan.map(|vlan| VLAN_VID.with(&(vlan.number() | PRESENT).to_be_bytes())));
    let (kind, protocol) = packet.map(numbers).unwrap_or_default();
    put(kind.map(|kind| ETH_TYPE.with(&kind.to_be_bytes())));
    put(fragment.then(|| IP_FRAG.with_mask(&[FRAG_ANY], &[FRAG_ANY])));
    put(protocol.map(|protocol| IP_PROTO.with(&[protocol])));
    put(source.map(|net| network(net, IPV4_SRC, IPV6_SRC)));
    put(destination.map(|net| network(net, IPV4_DST, IPV6_DST)));
    if let Some(Packet::Transport(_, protocol)) = *packet {
        let field = source_port(protocol);
        put(from.map(|port| field.with(&port.to_be_bytes())));
        put(to.map(|port| field.following().with(&port.to_be_bytes())));
    }
    if let Some(Packet::Icmp(family)) = *packet {
        let [kind, code] = match family {
            Family::V4 => ICMPV4,
            Family::V6 => ICMPV6,
        };
        put(icmp.map(|icmp| kind.with(&[icmp.kind])));
        put(icmp.and_then(|icmp| icmp.code).map(|number| code.with(&[number])));
    }
    put(arp_request.map(|_| ARP_OP.with(&REQUEST.to_be_bytes())));
    put(arp_request.map(|address| ARP_TPA.with(&address.octets())));
    put(nd_target.map(|address| ND_TARGET.with(&address.octets())));
    put(reg0.map(|value| REG0.with(&value.to_be_bytes())));
    put(state.map(|state| {
        let (value, mask) = match state {
            ConnectionState::Established => (EST | TRK, EST | TRK),
            ConnectionState::Related => (REL | TRK, REL | TRK),
        };
        CT_STATE.with_mask(&u32::to_be_bytes(value), &u32::to_be_bytes(mask))
    }));
    put(ct_mark.map(|mark| CT_MARK.with(&mark.to_be_bytes())));
    bytes
}

/// Ethernet type and IP protocol.
fn numbers(packet: Packet) -> (Option<u16>, Option<u8>) {
    let kind = |family| match family {
        Family::V4 => IPV4,
        Family::V6 => IPV6,
    };
    match packet {
        Packet::Arp => (Some(ARP), None),
        Packet::Ip(family) => (Some(kind(family)), None),
        Packet::Transport(family, protocol) => (Some(kind(family)), Some(protocol.number())),
        Packet::Icmp(Family::V4) => (Some(IPV4), Some(ICMP)),
        Packet::Icmp(Family::V6) => (Some(IPV6), Some(ICMP6)),
    }
}

/// Without a mask for a single address: so the bridge spells it.
fn network(net: IpNet, v4: Field, v6: Field) -> Vec<u8> {
    let is_single = net.prefix_len() == net.max_prefix_len();
    match net {
        IpNet::V4(net) if is_single => v4.with(&net.addr().octets()),
        IpNet::V6(net) if is_single => v6.with(&net.addr().octets()),
        IpNet::V4(net) => v4.with_mask(&net.network().octets(), &net.netmask().octets()),
        IpNet::V6(net) => v6.with_mask(&net.network().octets(), &net.netmask().octets()),
    }
}

/// A field with its value, and its mask if it has one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Value<'a> {
    pub(super) field: Field,
    pub(super) value: &'a [u8],
    pub(super) mask: Option<&'a [u8]>,
}

/// The next field of a list.
pub(super) fn next<'a>(reader: &mut Reader<'a>) -> Option<Value<'a>> {
    let (class, number, length) = (reader.u16()?, reader.u8()?, reader.u8()?);
    let length = usize::from(length);
    let has_mask = number & 1 == 1;
    let value = reader.take(if has_mask { length / 2 } else { length })?;
    let mask = if has_mask { Some(reader.take(length / 2)?) } else { None };
    Some(Value { field: Field(class, number >> 1), value, mask })
}

/// The numbers that become a [`Packet`] and what belongs to it, once all fields are read.
#[derive(Debug, Default)]
struct Numbers {
    kind: Option<u16>,
    protocol: Option<u8>,
    icmp_kind: Option<u8>,
    icmp_code: Option<u8>,
    arp_op: Option<u16>,
    arp_target: Option<Ipv4Addr>,
}

/// The match of these fields; `None` if one of them is of no [`Match`].
pub(super) fn decode(fields: &[u8]) -> Option<Match> {
    let mut reader = Reader(fields);
    let (mut matching, mut numbers) = (Match::default(), Numbers::default());
    while !reader.0.is_empty() {
        put(&mut matching, &mut numbers, next(&mut reader)?)?;
    }
    let Numbers { kind, protocol, icmp_kind, icmp_code, arp_op, arp_target } = numbers;
    matching.packet = packet(kind, protocol)?;
    matching.icmp = match (icmp_kind, icmp_code) {
        (Some(kind), code) => Some(Icmp { kind, code }),
        (None, None) => None,
        (None, Some(_)) => return None,
    };
    matching.arp_request = match (arp_op, arp_target) {
        (Some(REQUEST), Some(target)) => Some(target),
        (None, None) => None,
        _ => return None,
    };
    // The same value in other words would not be written by us.
    (decoded_length(&encode(&matching)) == decoded_length(fields)).then_some(matching)
}

/// The number of fields of a list.
fn decoded_length(fields: &[u8]) -> usize {
    let mut reader = Reader(fields);
    std::iter::from_fn(|| next(&mut reader)).count()
}

fn packet(kind: Option<u16>, protocol: Option<u8>) -> Option<Option<Packet>> {
    let family = match (kind, protocol) {
        (None, None) => return Some(None),
        (Some(ARP), None) => return Some(Some(Packet::Arp)),
        (Some(IPV4), _) => Family::V4,
        (Some(IPV6), _) => Family::V6,
        _ => return None,
    };
    Some(Some(match (family, protocol) {
        (_, None) => Packet::Ip(family),
        (Family::V4, Some(ICMP)) | (Family::V6, Some(ICMP6)) => Packet::Icmp(family),
        (_, Some(number)) => Packet::Transport(family, transport(number)?),
    }))
}

fn transport(number: u8) -> Option<Protocol> {
    Protocol::ALL.into_iter().find(|protocol| protocol.number() == number)
}

fn put(
    matching: &mut Match,
    numbers: &mut Numbers,
    Value { field, value, mask }: Value<'_>,
) -> Option<()> {
    let exact = if mask.is_none() { Some(value) } else { None };
    let byte = exact.and_then(|value| value.try_into().ok()).map(u8::from_be_bytes);
    let short = exact.and_then(|value| value.try_into().ok()).map(u16::from_be_bytes);
    let long = exact.and_then(|value| value.try_into().ok()).map(u32::from_be_bytes);
    let mac = || Mac::try_from(<[u8; 6]>::try_from(exact?).ok()?).ok();
    let v6 = || Some(Ipv6Addr::from(<[u8; 16]>::try_from(exact?).ok()?));
    match field {
        IN_PORT => matching.in_port = Some(OfPort(long?)),
        ETH_DST => matching.mac_destination = Some(mac()?),
        ETH_SRC => matching.mac_source = Some(mac()?),
        ETH_TYPE => numbers.kind = Some(short?),
        VLAN_VID => {
            let number = short?;
            matching.vlan =
                Some(Vlan::try_from(number & !PRESENT).ok().filter(|_| number & PRESENT != 0)?);
        }
        IP_PROTO => numbers.protocol = Some(byte?),
        IPV4_SRC | IPV6_SRC => matching.source = Some(net(value, mask)?),
        IPV4_DST | IPV6_DST => matching.destination = Some(net(value, mask)?),
        ARP_OP => numbers.arp_op = Some(short?),
        ARP_TPA => numbers.arp_target = Some(Ipv4Addr::from(long?)),
        ND_TARGET => matching.nd_target = Some(v6()?),
        REG0 => matching.reg0 = Some(long?),
        CT_MARK => matching.ct_mark = Some(long?),
        IP_FRAG => {
            matching.fragment = (value, mask) == (&[FRAG_ANY], Some(&[FRAG_ANY]));
            if !matching.fragment {
                return None;
            }
        }
        CT_STATE => {
            let mask = u32::from_be_bytes(mask?.try_into().ok()?);
            let value = u32::from_be_bytes(value.try_into().ok()?);
            matching.state = Some(match (value, mask) {
                _ if (value, mask) == (EST | TRK, EST | TRK) => ConnectionState::Established,
                _ if (value, mask) == (REL | TRK, REL | TRK) => ConnectionState::Related,
                _ => return None,
            });
        }
        _ if ICMPV4[0] == field || ICMPV6[0] == field => numbers.icmp_kind = Some(byte?),
        _ if ICMPV4[1] == field || ICMPV6[1] == field => numbers.icmp_code = Some(byte?),
        _ => {
            let has_port = |protocol: &Protocol| {
                let source = source_port(*protocol);
                field == source || field == source.following()
            };
            let protocol = Protocol::ALL.into_iter().find(has_port)?;
            let port = if field == source_port(protocol) {
                &mut matching.source_port
            } else {
                &mut matching.destination_port
            };
            *port = Some(short?);
        }
    }
    Some(())
}

/// A network of either family, by the length of the value.
fn net(value: &[u8], mask: Option<&[u8]>) -> Option<IpNet> {
    let address = |bytes: &[u8]| -> Option<IpAddr> {
        match bytes.len() {
            4 => Some(<[u8; 4]>::try_from(bytes).ok()?.into()),
            16 => Some(<[u8; 16]>::try_from(bytes).ok()?.into()),
            _ => None,
        }
    };
    let net = match mask {
        None => IpNet::from(address(value)?),
        Some(mask) => IpNet::with_netmask(address(value)?, address(mask)?).ok()?,
    };
    (net.trunc() == net).then_some(net)
}
