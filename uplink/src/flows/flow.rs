//! A flow as values, spelled as ovs-ofctl(8) spells it. Must not know what flows are for.

use std::{
    collections::BTreeMap,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use contract::mac::Mac;
use ipnet::IpNet;

use super::config::Vlan;

/// The number of a port, as OpenFlow 1.1 and later have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OfPort(pub u32);

impl OfPort {
    /// The bridge's own port.
    pub const LOCAL: Self = Self(0xffff_fffe);
    /// Forwarding as a switch without flows.
    pub const NORMAL: Self = Self(0xffff_fffa);
    /// All ports but that of arrival.
    pub const FLOOD: Self = Self(0xffff_fffb);
}

impl fmt::Display for OfPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::LOCAL => f.write_str("LOCAL"),
            Self::NORMAL => f.write_str("NORMAL"),
            Self::FLOOD => f.write_str("FLOOD"),
            Self(number) => write!(f, "{number}"),
        }
    }
}

/// A version of IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    /// The family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

/// A protocol with ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Tcp, Self::Udp, Self::Sctp];
}

/// What a packet is: its Ethernet type and, where the match goes on, its IP protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Packet {
    Arp,
    Ip(Family),
    Transport(Family, Protocol),
    Icmp(Family),
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Arp => "arp",
            Self::Ip(Family::V4) => "ip",
            Self::Ip(Family::V6) => "ipv6",
            Self::Transport(Family::V4, Protocol::Tcp) => "tcp",
            Self::Transport(Family::V6, Protocol::Tcp) => "tcp6",
            Self::Transport(Family::V4, Protocol::Udp) => "udp",
            Self::Transport(Family::V6, Protocol::Udp) => "udp6",
            Self::Transport(Family::V4, Protocol::Sctp) => "sctp",
            Self::Transport(Family::V6, Protocol::Sctp) => "sctp6",
            Self::Icmp(Family::V4) => "icmp",
            Self::Icmp(Family::V6) => "icmp6",
        })
    }
}

/// An ICMP message, of the family of the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Icmp {
    pub kind: u8,
    pub code: Option<u8>,
}

/// What conntrack says of a packet (`ct_state`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConnectionState {
    /// `+est+trk`
    Established,
    /// `+rel+trk`
    Related,
}

/// Which packets a flow is for. Each `None` matches all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Match {
    pub reg0: Option<u32>,
    pub state: Option<ConnectionState>,
    pub ct_mark: Option<u32>,
    pub packet: Option<Packet>,
    pub in_port: Option<OfPort>,
    pub vlan: Option<Vlan>,
    pub mac_source: Option<Mac>,
    pub mac_destination: Option<Mac>,
    pub source: Option<IpNet>,
    pub destination: Option<IpNet>,
    /// Only fragments (`nw_frag=yes`). They match no flow with a port, the first one neither.
    pub fragment: bool,
    pub source_port: Option<u16>,
    pub destination_port: Option<u16>,
    pub icmp: Option<Icmp>,
    /// The address that an ARP request asks for.
    pub arp_request: Option<Ipv4Addr>,
    pub nd_target: Option<Ipv6Addr>,
}

impl Match {
    /// Packets that arrive at the port.
    pub fn from_port(port: OfPort) -> Self {
        Self { in_port: Some(port), ..Self::default() }
    }

    #[must_use]
    pub fn vlan(self, vlan: Option<Vlan>) -> Self {
        Self { vlan, ..self }
    }

    #[must_use]
    pub fn mac_source(self, mac: Mac) -> Self {
        Self { mac_source: Some(mac), ..self }
    }

    #[must_use]
    pub fn mac_destination(self, mac: Mac) -> Self {
        Self { mac_destination: Some(mac), ..self }
    }

    #[must_use]
    pub fn packet(self, packet: Packet) -> Self {
        Self { packet: Some(packet), ..self }
    }

    #[must_use]
    pub fn ip(self, family: Family) -> Self {
        self.packet(Packet::Ip(family))
    }

    /// IP packets of the family of the network.
    #[must_use]
    pub fn source(self, source: impl Into<IpNet>) -> Self {
        let source = source.into().trunc();
        let packet = self.packet.or(Some(Packet::Ip(Family::of(source.addr()))));
        Self { source: Some(source), packet, ..self }
    }

    /// IP packets of the family of the network.
    #[must_use]
    pub fn destination(self, destination: impl Into<IpNet>) -> Self {
        let destination = destination.into().trunc();
        let packet = self.packet.or(Some(Packet::Ip(Family::of(destination.addr()))));
        Self { destination: Some(destination), packet, ..self }
    }

    #[must_use]
    pub fn source_port(self, port: u16) -> Self {
        Self { source_port: Some(port), ..self }
    }

    #[must_use]
    pub fn destination_port(self, port: u16) -> Self {
        Self { destination_port: Some(port), ..self }
    }

    #[must_use]
    pub fn icmp(self, family: Family, kind: u8, code: Option<u8>) -> Self {
        Self { icmp: Some(Icmp { kind, code }), ..self.packet(Packet::Icmp(family)) }
    }

    #[must_use]
    pub fn fragment(self) -> Self {
        Self { fragment: true, ..self }
    }

    #[must_use]
    pub fn state(self, state: ConnectionState) -> Self {
        Self { state: Some(state), ..self }
    }

    #[must_use]
    pub fn ct_mark(self, mark: u32) -> Self {
        Self { ct_mark: Some(mark), ..self }
    }
}

/// What happens to a packet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    Output(OfPort),
    PopVlan,
    /// Adds a tag, which [`Self::SetVlan`] has to fill.
    PushVlan,
    SetVlan(Vlan),
    SetMacDestination(Mac),
    /// The source becomes what the destination is.
    CopyMacDestinationToSource,
    Ct(Ct),
    /// Goes on in the table, as if it had arrived there.
    Resubmit(u8),
    /// Bit 0 of register 0 becomes 1 if the frame is longer.
    CheckLarger(u16),
}

/// Conntrack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ct {
    pub zone: u16,
    pub commit: Option<Commit>,
    pub nat: Option<Nat>,
    /// The packet goes on there, with what conntrack knows of it.
    pub table: Option<u8>,
}

/// A connection is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Commit {
    pub mark: Option<u32>,
}

/// Translation of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Nat {
    /// As the connection was translated when it was committed.
    AsBefore,
    Source(IpAddr),
    Destination(IpAddr, Option<u16>),
}

impl Ct {
    /// Looks the packet up in the zone.
    pub fn of(zone: u16) -> Self {
        Self { zone, commit: None, nat: None, table: None }
    }

    #[must_use]
    pub fn commit(self) -> Self {
        Self { commit: Some(Commit { mark: None }), ..self }
    }

    #[must_use]
    pub fn commit_with(self, mark: u32) -> Self {
        Self { commit: Some(Commit { mark: Some(mark) }), ..self }
    }

    #[must_use]
    pub fn nat(self, nat: Nat) -> Self {
        Self { nat: Some(nat), ..self }
    }

    #[must_use]
    pub fn table(self, table: u8) -> Self {
        Self { table: Some(table), ..self }
    }
}

/// What tells flows of a bridge apart: there is one for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    pub table: u8,
    pub priority: u16,
    pub matching: Match,
}

/// The table and the priority of the flows for ports of Services. Upstream's programs write those
/// with a cookie for each Service, so there every flow counts as one of ours.
pub(super) const OF_SERVICES: (u8, u16) = (0, 110);

impl Slot {
    pub(super) fn is_of_service(&self) -> bool {
        (self.table, self.priority) == OF_SERVICES
    }
}

/// A flow. No actions: packets are dropped.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    pub slot: Slot,
    pub actions: Vec<Action>,
}

/// Flows by their slots.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flows {
    flows: BTreeMap<Slot, Vec<Action>>,
    keep_services: bool,
}

impl Flows {
    /// Adds a flow. The first of a slot stays.
    pub fn add(
        &mut self,
        table: u8,
        priority: u16,
        matching: Match,
        actions: impl Into<Vec<Action>>,
    ) {
        self.flows.entry(Slot { table, priority, matching }).or_insert_with(|| actions.into());
    }

    /// The same while the Services are not known: the flows that a bridge has for them stay.
    #[must_use]
    pub fn without_knowing_services(self) -> Self {
        Self { keep_services: true, ..self }
    }

    /// Whether a bridge keeps what it has in the slot, although no flow here is for it.
    pub(super) fn keeps(&self, slot: &Slot) -> bool {
        self.keep_services && slot.is_of_service()
    }

    /// The actions of the flow in the slot.
    pub fn actions(&self, slot: &Slot) -> Option<&[Action]> {
        self.flows.get(slot).map(Vec::as_slice)
    }

    /// All flows.
    pub fn iter(&self) -> impl Iterator<Item = (&Slot, &[Action])> {
        self.flows.iter().map(|(slot, actions)| (slot, actions.as_slice()))
    }

    pub fn len(&self) -> usize {
        self.flows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }
}

/// One line for each flow: by table, then by falling priority.
impl fmt::Display for Flows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut flows: Vec<_> = self.iter().collect();
        flows.sort_by_key(|(slot, _)| (slot.table, std::cmp::Reverse(slot.priority)));
        flows.into_iter().try_for_each(|(slot, actions)| {
            writeln!(f, "{}", Flow { slot: *slot, actions: actions.to_vec() })
        })
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { slot: Slot { table, priority, matching }, actions } = self;
        write!(f, "table={table}, priority={priority}{matching} actions=")?;
        if actions.is_empty() {
            return f.write_str("drop");
        }
        for (index, action) in actions.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{action}")?;
        }
        Ok(())
    }
}

/// Each field after a comma.
impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
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
            source_port,
            destination_port,
            icmp,
            arp_request,
            nd_target,
        } = self;
        let mut field = |name: &str, value: Option<String>| {
            value.map_or(Ok(()), |value| {
                write!(f, ",{name}{}{value}", if name.is_empty() { "" } else { "=" })
            })
        };
        let is_v6 = packet.is_some_and(|packet| {
            matches!(
                packet,
                Packet::Ip(Family::V6)
                    | Packet::Transport(Family::V6, _)
                    | Packet::Icmp(Family::V6)
            )
        });
        let names = |v4, v6| if is_v6 { v6 } else { v4 };
        field("reg0", reg0.map(|value| format!("{value:#x}")))?;
        field("ct_state", state.map(|state| state.to_string()))?;
        field("ct_mark", ct_mark.map(|mark| format!("{mark:#x}")))?;
        field("", packet.map(|packet| packet.to_string()))?;
        field("in_port", in_port.map(|port| port.to_string()))?;
        field("dl_vlan", vlan.map(|vlan| vlan.number().to_string()))?;
        field("dl_src", mac_source.map(|mac| mac.to_string()))?;
        field("dl_dst", mac_destination.map(|mac| mac.to_string()))?;
        field(names("nw_src", "ipv6_src"), source.map(spelled))?;
        field(names("nw_dst", "ipv6_dst"), destination.map(spelled))?;
        field("nw_frag", fragment.then(|| "yes".to_owned()))?;
        field("tp_src", source_port.map(|port| port.to_string()))?;
        field("tp_dst", destination_port.map(|port| port.to_string()))?;
        field("icmp_type", icmp.map(|icmp| icmp.kind.to_string()))?;
        field("icmp_code", icmp.and_then(|icmp| icmp.code).map(|code| code.to_string()))?;
        field("arp_op", arp_request.map(|_| "1".to_owned()))?;
        field("arp_tpa", arp_request.map(|address| address.to_string()))?;
        field("nd_target", nd_target.map(|address| address.to_string()))
    }
}

/// A single address has no length.
fn spelled(net: IpNet) -> String {
    if net.prefix_len() == net.max_prefix_len() { net.addr().to_string() } else { net.to_string() }
}

impl Protocol {
    /// As the header of IP has it.
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }
}

impl fmt::Display for ConnectionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Established => "+est+trk",
            Self::Related => "+rel+trk",
        })
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Output(OfPort::NORMAL) => f.write_str("NORMAL"),
            Self::Output(OfPort::FLOOD) => f.write_str("FLOOD"),
            Self::Output(port) => write!(f, "output:{port}"),
            Self::PopVlan => f.write_str("pop_vlan"),
            Self::PushVlan => f.write_str("push_vlan:0x8100"),
            // With `OFPVID_PRESENT`, as OpenFlow 1.2 and later have it.
            Self::SetVlan(vlan) => write!(f, "set_field:{}->vlan_vid", vlan.number() | 0x1000),
            Self::SetMacDestination(mac) => write!(f, "set_field:{mac}->eth_dst"),
            Self::CopyMacDestinationToSource => {
                f.write_str("move:NXM_OF_ETH_DST[]->NXM_OF_ETH_SRC[]")
            }
            Self::Ct(ct) => ct.fmt(f),
            Self::Resubmit(table) => write!(f, "resubmit(,{table})"),
            Self::CheckLarger(bytes) => write!(f, "check_pkt_larger({bytes})->reg0[0]"),
        }
    }
}

impl fmt::Display for Ct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { zone, commit, nat, table } = self;
        f.write_str(if commit.is_some() { "ct(commit," } else { "ct(" })?;
        if let Some(table) = table {
            write!(f, "table={table},")?;
        }
        write!(f, "zone={zone}")?;
        if let Some(nat) = nat {
            write!(f, ",{nat}")?;
        }
        if let Some(Commit { mark: Some(mark) }) = commit {
            write!(f, ",exec(set_field:{mark:#x}->ct_mark)")?;
        }
        f.write_str(")")
    }
}

impl fmt::Display for Nat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AsBefore => f.write_str("nat"),
            Self::Source(address) => write!(f, "nat(src={address})"),
            Self::Destination(address, None) => write!(f, "nat(dst={address})"),
            Self::Destination(IpAddr::V4(address), Some(port)) => {
                write!(f, "nat(dst={address}:{port})")
            }
            Self::Destination(IpAddr::V6(address), Some(port)) => {
                write!(f, "nat(dst=[{address}]:{port})")
            }
        }
    }
}
