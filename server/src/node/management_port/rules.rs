//! nftables rules for the packets between this host, its pods and the rest of the network. All
//! chains are in one table, which goes with the node's server; those of Services are in
//! `service_rules`.
//!
//! ```text
//! table inet ovn-kubernetes {
//!     chain mgmtport-forwarded-snat {           what this host forwards to pods
//!         type nat hook postrouting priority srcnat - 4
//!         oifname "ovn-k8s-mp0" fib saddr type != local snat ip to 100.64.255.253
//!         oifname "ovn-k8s-mp0" fib saddr type != local snat ip6 to fd98::ffff:ffff:ffff:fffd
//!     }
//!     chain mgmtport-snat {                     what this host sends to pods
//!         type nat hook postrouting priority srcnat
//!         oifname "ovn-k8s-mp0" ip saddr != 10.244.1.2 snat ip to 10.244.1.2
//!         oifname "ovn-k8s-mp0" ip6 saddr != fd00:10:244:1::2 snat ip6 to fd00:10:244:1::2
//!     }
//!     chain pods-masquerade {                   what pods send to other hosts
//!         type nat hook postrouting priority srcnat
//!         oifname != "ovn-k8s-mp0" oifname != "lo" ip saddr 10.244.1.0/24 masquerade
//!         oifname != "ovn-k8s-mp0" oifname != "lo" ip6 saddr fd00:10:244:1::/64 masquerade
//!     }
//!     chain mgmtport-no-return {                what the overlay has no place for
//!         type filter hook forward priority filter
//!         iifname "ovn-k8s-mp0" udp dport 6081 drop
//!         iifname "ovn-k8s-mp0" udp sport 6081 drop
//!         udp dport 6081 ct status & dnat != 0 drop
//!         iifname "ovn-k8s-mp0" oifname "ovn-k8s-mp0" reject with icmpx host-unreachable
//!         oifname "ovn-k8s-mp0" fib saddr type local drop
//!         oifname "ovn-k8s-mp0" ct state & (established | related) == 0 ct status & dnat == 0 drop
//!     }
//!     chain mgmtport-no-router {                no pod is a router of this host, or a node
//!         type filter hook input priority filter
//!         iifname "ovn-k8s-mp0" udp dport 6081 drop
//!         udp dport 6081 ct status & dnat != 0 drop
//!         iifname "ovn-k8s-mp0" icmpv6 type nd-router-advert drop
//!     }
//! }
//! ```
//!
//! - OVN knows the way back to the port's own address only, so other addresses of this host are
//!   translated. What it forwards has another source, where OVN knows the way back to that
//!   (`forwarded`): policies let the port's own address in, for the kubelet's probes. That comes
//!   before other programs' masquerading.
//! - Other hosts have no route to pods: these leave under the address of the interface.
//! - Nodes believe a tunnel's packet by its source, which is this node's for all that pods send
//!   elsewhere. So pods send none, nor does a Service lead there; what would have its answer sent
//!   there neither.
//! - A packet that comes from the overlay and belongs into it again is for an address that no pod
//!   and no Service has. OVN would send it back here, until its hop limit is used up.
//! - Whoever has a route to pods over this node gets no further, unless
//!   `--disable-forwarding=false`: what is forwarded to pods are connections of Services, whose
//!   destination was translated, and answers. A source of this host's own that comes from elsewhere
//!   is forged; the kernel itself sees to that for IPv4 alone.
//! - A pod that announces itself as a router would get what this host sends elsewhere. The
//!   interface's own setting for it is in `/proc/sys`, which a container cannot write.

use std::{io, net::IpAddr};

use ipnet::IpNet;
use netlink_packet_core::DefaultNla;
use netlink_packet_netfilter::nftables::{
    Bitwise, Cmp, DataAttribute, Expressions, Immediate, Meta, MetaKey, Operator, Payload,
    Register, Verdict, VerdictAttribute,
};
use podnet::nftables::{Chain, Found, Rule, Task, commit, has_no_nftables};

use super::{
    plan::{Desired, Forwarding, INTERFACE},
    service_rules,
};

/// Upstream's names of the table and the first chain, so that a node that changes from upstream to
/// this program keeps its rules.
pub(super) const TABLE: &str = "ovn-kubernetes";
const SOURCE_NAT: Chain = Chain { table: TABLE, name: "mgmtport-snat", task: Task::SourceNat };
const FORWARDED: Chain =
    Chain { table: TABLE, name: "mgmtport-forwarded-snat", task: Task::ForwardedSourceNat };
const MASQUERADE: Chain = Chain { table: TABLE, name: "pods-masquerade", task: Task::SourceNat };
const NO_RETURN: Chain = Chain { table: TABLE, name: "mgmtport-no-return", task: Task::Forward };
const NO_ROUTER: Chain = Chain { table: TABLE, name: "mgmtport-no-router", task: Task::Input };

/// Bytes of an interface's name in a register.
const IFNAMSIZ: usize = 16;
/// `NFT_PAYLOAD_NETWORK_HEADER`
pub(super) const NETWORK_HEADER: u32 = 1;
/// `NFT_PAYLOAD_TRANSPORT_HEADER`
pub(super) const TRANSPORT_HEADER: u32 = 2;

/// One chain, with the rules that it should have.
#[derive(Debug)]
pub(super) struct ChainRules {
    chain: Chain,
    /// `None` while that is not known: then the chain stays as it is.
    wanted: fn(&Desired) -> Option<Vec<Rule>>,
    /// What is lost without the chain.
    pub(super) without: &'static str,
    /// For the log.
    pub(super) what: &'static str,
    worded: Worded,
}

/// The rules of a chain that were written last, and what the kernel shows of them: it may show a
/// rule in another form.
#[derive(Debug, Default)]
pub(super) struct Worded(Option<(Vec<Rule>, Vec<Rule>)>);

impl Worded {
    /// Whether the chain that was found has these rules.
    pub(super) fn is(&self, found: &Found, wanted: &[Rule]) -> bool {
        let as_worded =
            self.0.as_ref().filter(|(written, _)| written == wanted).map(|(_, worded)| worded);
        matches!(found, Found::Rules(rules) if rules == wanted || Some(rules) == as_worded)
    }

    /// Learns how the kernel shows rules that were just written. Without this, a kernel that shows
    /// them in another form would have them written at every comparison.
    pub(super) async fn learn(&mut self, chain: Chain, written: Vec<Rule>) -> io::Result<()> {
        if let Found::Rules(worded) = chain.look().await? {
            self.0 = Some((written, worded));
        }
        Ok(())
    }
}

/// All chains.
pub(super) fn chains() -> [ChainRules; 5] {
    [
        ChainRules {
            chain: FORWARDED,
            wanted: |desired| {
                let sources = desired.forwarded_sources.as_ref()?;
                Some(sources.iter().map(|source| forwarded_source(*source)).collect())
            },
            without: "node ports reach pods from the management port's address, which network policies let in",
            what: "source NAT of what is forwarded",
            worded: Worded::default(),
        },
        ChainRules {
            chain: SOURCE_NAT,
            wanted: |desired| {
                Some(desired.addresses.iter().map(|address| source_nat(address.addr())).collect())
            },
            without: "what this host sends to pods from its other addresses may get no answer",
            what: "source NAT",
            worded: Worded::default(),
        },
        ChainRules {
            chain: MASQUERADE,
            wanted: |desired| {
                Some(desired.addresses.iter().map(|address| masquerade(address.trunc())).collect())
            },
            without: "pods reach no other host, the API server on another one included",
            what: "masquerading of pods",
            worded: Worded::default(),
        },
        ChainRules {
            chain: NO_RETURN,
            wanted: |desired| {
                let routed = match desired.forwarding {
                    Forwarding::OfServices => Some(not_routed()),
                    Forwarding::OfAll => None,
                };
                let tunnels = desired.tunnel_ports.iter().flat_map(|port| {
                    [Port::Destination, Port::Source]
                        .map(|end| no_tunnel_of_a_pod(end, *port))
                        .into_iter()
                        .chain([no_tunnel_of_a_service(*port)])
                });
                Some(tunnels.chain([no_return(), not_forged()]).chain(routed).collect())
            },
            without: "a pod can send packets that other nodes take for those of this node's tunnels, other machines reach pods by routes over this node, and a packet of a pod for an address \
                      that nothing has is forwarded until its hop limit is used up",
            what: "the end of what has no place in the overlay",
            worded: Worded::default(),
        },
        ChainRules {
            chain: NO_ROUTER,
            wanted: |desired| {
                let tunnels = desired.tunnel_ports.iter().flat_map(|port| {
                    [no_tunnel_of_a_pod(Port::Destination, *port), no_tunnel_of_a_service(*port)]
                });
                Some(tunnels.chain([no_router()]).collect())
            },
            without: "a Service can lead packets of other nodes' pods into this node's tunnels, a pod can announce itself to this host as an IPv6 router, unless \
                      net.ipv6.conf.ovn-k8s-mp0.accept_ra is 0",
            what: "the drop of router advertisements and of tunnels' packets of pods",
            worded: Worded::default(),
        },
    ]
}

impl ChainRules {
    /// Replaces the rules if they differ. Returns whether they did.
    pub(super) async fn correct(&mut self, desired: &Desired) -> io::Result<bool> {
        let Some(wanted) = (self.wanted)(desired) else { return Ok(false) };
        let found = self.chain.look().await?;
        if self.worded.is(&found, &wanted) {
            return Ok(false);
        }
        // One transaction: packets see the old rules or the new ones.
        self.chain.replace(&found, &wanted).await?;
        self.worded.learn(self.chain, wanted).await?;
        Ok(true)
    }
}

/// Removes the table. Returns its name, if there was one. A kernel without nftables has none.
pub(super) async fn remove() -> io::Result<Option<&'static str>> {
    match SOURCE_NAT.remove_table().await {
        Ok(was_there) => Ok(was_there.then_some(TABLE)),
        Err(error) if has_no_nftables(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes the chains that upstream's server does not have. Returns the names of those that there
/// were.
pub(super) async fn remove_own() -> io::Result<Vec<&'static str>> {
    match remove_all_own().await {
        Err(error) if has_no_nftables(&error) => Ok(Vec::new()),
        outcome => outcome,
    }
}

/// The chains that upstream's server does not have, but those of Services.
const OWN: [Chain; 4] = [FORWARDED, MASQUERADE, NO_RETURN, NO_ROUTER];

/// Whether there is a chain that upstream's server does not have.
pub(super) async fn has_own() -> io::Result<bool> {
    for chain in OWN {
        if chain.look().await? != Found::Nothing {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn remove_all_own() -> io::Result<Vec<&'static str>> {
    let mut names = service_rules::remove().await?;
    for chain in OWN {
        let removal = chain.removal(&chain.look().await?);
        if !removal.is_empty() {
            commit(removal).await?;
            names.push(chain.name);
        }
    }
    Ok(names)
}

/// The family and an address of a packet, as the rules compare them.
pub(super) struct Address {
    /// `NFPROTO_IPV4` or `NFPROTO_IPV6`
    pub(super) family: u8,
    /// Place in the header (RFC 791, RFC 8200).
    pub(super) offset: u32,
    pub(super) octets: Vec<u8>,
}

impl Address {
    fn source(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => Self { family: 2, offset: 12, octets: v4.octets().to_vec() },
            IpAddr::V6(v6) => Self { family: 10, offset: 8, octets: v6.octets().to_vec() },
        }
    }

    fn length(&self) -> u32 {
        u32::try_from(self.octets.len()).unwrap_or_default()
    }

    /// Whether the packet is of the address' family. A table of family `inet` sees both: without
    /// this first, the offset would mean another field.
    fn is_of_family(&self) -> [Expressions; 2] {
        is_of_family(self.family)
    }

    fn load(&self) -> Expressions {
        Expressions::Payload(vec![
            Payload::DestinationRegister(Register::Reg1),
            Payload::Base(NETWORK_HEADER),
            Payload::Offset(self.offset),
            Payload::Len(self.length()),
        ])
    }
}

/// Whether the packet is of this family.
pub(super) fn is_of_family(family: u8) -> [Expressions; 2] {
    [meta(MetaKey::Nfproto), compare(Operator::Equal, vec![family])]
}

// The attributes of all expressions are in the order in which the kernel shows them, because they
// are compared.

pub(super) fn meta(key: MetaKey) -> Expressions {
    Expressions::Meta(vec![Meta::Key(key), Meta::DestinationRegister(Register::Reg1)])
}

pub(super) fn compare(operator: Operator, value: Vec<u8>) -> Expressions {
    Expressions::Cmp(vec![
        Cmp::SourceRegister(Register::Reg1),
        Cmp::Op(operator),
        Cmp::Data(DataAttribute::Value(value)),
    ])
}

/// Whether the interface of this key has this name, or has not.
pub(super) fn interface(key: MetaKey, operator: Operator, name: &str) -> [Expressions; 2] {
    let mut name = name.as_bytes().to_vec();
    // nftables compares the whole register, so the name is padded.
    name.resize(IFNAMSIZ, 0);
    [meta(key), compare(operator, name)]
}

pub(super) fn rule(expressions: impl IntoIterator<Item = Expressions>) -> Rule {
    expressions.into_iter().map(Into::into).collect()
}

pub(super) fn other(name: &str, attributes: Vec<DefaultNla>) -> Expressions {
    Expressions::Other { expression_type: name.to_owned(), attributes }
}

/// Whether the source is an address of this host, or is not.
fn is_from_host(operator: Operator) -> [Expressions; 2] {
    // `NFTA_FIB_DREG`, `_RESULT` (`NFT_FIB_RESULT_ADDRTYPE`), `_FLAGS` (`NFTA_FIB_F_SADDR`).
    let fib = [(1, u32::from(Register::Reg1)), (2, 3), (3, 1)];
    let fib = fib.map(|(kind, value)| DefaultNla::new(kind, value.to_be_bytes().to_vec())).to_vec();
    // `RTN_LOCAL`
    [other("fib", fib), compare(operator, 2_u32.to_ne_bytes().to_vec())]
}

/// Whether the connection has some of the bits, or none of them. `key`: `NFT_CT_*`.
pub(super) fn connection(key: u32, bits: u32, operator: Operator) -> [Expressions; 3] {
    // `NFTA_CT_DREG`, `NFTA_CT_KEY`.
    let load = [(1, u32::from(Register::Reg1)), (2, key)];
    let load =
        load.map(|(kind, value)| DefaultNla::new(kind, value.to_be_bytes().to_vec())).to_vec();
    let masked = Expressions::Bitwise(vec![
        Bitwise::SourceRegister(Register::Reg1),
        Bitwise::DestinationRegister(Register::Reg1),
        Bitwise::Length(4),
        // `NFT_BITWISE_MASK_XOR`, which a kernel since 5.6 shows.
        Bitwise::Op(0),
        Bitwise::Mask(DataAttribute::Value(bits.to_ne_bytes().to_vec())),
        Bitwise::Xor(DataAttribute::Value(vec![0; 4])),
    ]);
    [other("ct", load), masked, compare(operator, vec![0; 4])]
}

/// `NFT_CT_STATE`, and the bits of established and related connections (`NF_CT_STATE_BIT`).
const STATE: u32 = 0;
const ESTABLISHED_OR_RELATED: u32 = 2 | 4;
/// `NFT_CT_STATUS`, and the bit of a translated destination (`IPS_DST_NAT`).
pub(super) const STATUS: u32 = 2;
pub(super) const TRANSLATED: u32 = 32;

/// Packets of the address' family that are forwarded through the port get this one as source.
fn forwarded_source(address: IpAddr) -> Rule {
    let source = Address::source(address);
    let matches = source.is_of_family().into_iter().chain(interface(
        MetaKey::Oifname,
        Operator::Equal,
        INTERFACE,
    ));
    rule(matches.chain(is_from_host(Operator::NotEqual)).chain(become_source(&source)))
}

/// Packets of the address' family that leave through the port from another address get this one as
/// source.
fn source_nat(address: IpAddr) -> Rule {
    let source = Address::source(address);
    let is_other = [source.load(), compare(Operator::NotEqual, source.octets.clone())];
    let matches = source.is_of_family().into_iter().chain(interface(
        MetaKey::Oifname,
        Operator::Equal,
        INTERFACE,
    ));
    rule(matches.chain(is_other).chain(become_source(&source)))
}

/// The source becomes this address.
fn become_source(source: &Address) -> [Expressions; 2] {
    let load = Expressions::Immediate(vec![
        Immediate::DestinationRegister(Register::Reg1),
        Immediate::Data(DataAttribute::Value(source.octets.clone())),
    ]);
    // `NFTA_NAT_TYPE` (source), `_FAMILY`, `_REG_ADDR_MIN`, `_REG_ADDR_MAX`, `_FLAGS`
    // (`NF_NAT_RANGE_MAP_IPS`), in network byte order. A kernel since 5.8 adds that flag by itself,
    // so the rule is written with it.
    let register = u32::from(Register::Reg1);
    let attributes = [(1, 0), (2, u32::from(source.family)), (3, register), (4, register), (7, 1)];
    let attributes = attributes
        .map(|(kind, value)| DefaultNla::new(kind, value.to_be_bytes().to_vec()))
        .to_vec();
    [load, other("nat", attributes)]
}

/// Packets with a source in the subnet that leave through any other interface get the address of
/// that one.
fn masquerade(subnet: IpNet) -> Rule {
    let (source, mask) = (Address::source(subnet.network()), Address::source(subnet.netmask()));
    let masked = Expressions::Bitwise(vec![
        Bitwise::SourceRegister(Register::Reg1),
        Bitwise::DestinationRegister(Register::Reg1),
        Bitwise::Length(source.length()),
        // `NFT_BITWISE_MASK_XOR`, which a kernel since 5.6 shows.
        Bitwise::Op(0),
        Bitwise::Mask(DataAttribute::Value(mask.octets)),
        Bitwise::Xor(DataAttribute::Value(vec![0; source.octets.len()])),
    ]);
    let is_in_subnet = [source.load(), masked, compare(Operator::Equal, source.octets.clone())];
    // The port's own address is in the subnet, too; within the host it needs no other one.
    let elsewhere =
        [INTERFACE, "lo"].map(|name| interface(MetaKey::Oifname, Operator::NotEqual, name));
    let matches = source.is_of_family().into_iter().chain(elsewhere.into_iter().flatten());
    rule(matches.chain(is_in_subnet).chain([other("masq", Vec::new())]))
}

/// Packets that came in through the port and would leave through it again.
fn no_return() -> Rule {
    // `NFTA_REJECT_TYPE` (`NFT_REJECT_ICMPX_UNREACH`), `NFTA_REJECT_ICMP_CODE`
    // (`NFT_REJECT_ICMPX_HOST_UNREACH`).
    let attributes =
        vec![DefaultNla::new(1, 2_u32.to_be_bytes().to_vec()), DefaultNla::new(2, vec![2])];
    let ways = interface(MetaKey::Iifname, Operator::Equal, INTERFACE)
        .into_iter()
        .chain(interface(MetaKey::Oifname, Operator::Equal, INTERFACE));
    rule(ways.chain([other("reject", attributes)]))
}

/// Packets that would leave through the port with an address of this host, and did not begin here.
fn not_forged() -> Rule {
    let way = interface(MetaKey::Oifname, Operator::Equal, INTERFACE);
    // `NF_DROP`
    rule(way.into_iter().chain(is_from_host(Operator::Equal)).chain([verdict(0)]))
}

/// Packets that would leave through the port, and are neither for a Service nor an answer.
fn not_routed() -> Rule {
    let way = interface(MetaKey::Oifname, Operator::Equal, INTERFACE);
    let is_new = connection(STATE, ESTABLISHED_OR_RELATED, Operator::Equal);
    let is_not_of_service = connection(STATUS, TRANSLATED, Operator::Equal);
    // `NF_DROP`
    rule(way.into_iter().chain(is_new).chain(is_not_of_service).chain([verdict(0)]))
}

/// Router advertisements that came in through the port.
fn no_router() -> Rule {
    // `IPPROTO_ICMPV6` (58), and the type of a router advertisement (RFC 4861, 4.2).
    let protocol = [meta(MetaKey::L4Proto), compare(Operator::Equal, vec![58])];
    let kind = Expressions::Payload(vec![
        Payload::DestinationRegister(Register::Reg1),
        Payload::Base(TRANSPORT_HEADER),
        Payload::Offset(0),
        Payload::Len(1),
    ]);
    let matches =
        interface(MetaKey::Iifname, Operator::Equal, INTERFACE).into_iter().chain(is_of_family(10));
    // `NF_DROP`
    rule(matches.chain(protocol).chain([kind, compare(Operator::Equal, vec![134]), verdict(0)]))
}

/// One of a datagram's two ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Port {
    Source,
    Destination,
}

/// Whether the packet is a datagram with this port there.
pub(super) fn is_of_port(end: Port, port: u16) -> [Expressions; 4] {
    // Places in the header (RFC 768).
    let offset = match end {
        Port::Source => 0,
        Port::Destination => 2,
    };
    let load = Expressions::Payload(vec![
        Payload::DestinationRegister(Register::Reg1),
        Payload::Base(TRANSPORT_HEADER),
        Payload::Offset(offset),
        Payload::Len(2),
    ]);
    // `IPPROTO_UDP`
    [
        meta(MetaKey::L4Proto),
        compare(Operator::Equal, vec![17]),
        load,
        compare(Operator::Equal, port.to_be_bytes().to_vec()),
    ]
}

/// Datagrams of pods to or from a tunnel's port.
fn no_tunnel_of_a_pod(end: Port, port: u16) -> Rule {
    let way = interface(MetaKey::Iifname, Operator::Equal, INTERFACE);
    // `NF_DROP`
    rule(way.into_iter().chain(is_of_port(end, port)).chain([verdict(0)]))
}

/// Datagrams to a tunnel's port whose destination was another one.
fn no_tunnel_of_a_service(port: u16) -> Rule {
    let is_of_service = connection(STATUS, TRANSLATED, Operator::NotEqual);
    // `NF_DROP`
    rule(is_of_port(Port::Destination, port).into_iter().chain(is_of_service).chain([verdict(0)]))
}

/// What becomes of the packet (`NF_*` of `linux/netfilter.h`).
pub(super) fn verdict(code: u32) -> Expressions {
    let verdict = vec![VerdictAttribute::Code(Verdict::Other(code))];
    Expressions::Immediate(vec![
        Immediate::DestinationRegister(Register::Verdict),
        Immediate::Data(DataAttribute::Verdict(verdict)),
    ])
}

#[cfg(test)]
mod tests {
    use std::{
        net::{Ipv6Addr, SocketAddrV6},
        process::Command,
        time::Duration,
    };

    use nix::net::if_::if_nametoindex;
    use socket2::{Domain, Protocol, Socket, Type};

    use super::*;
    use crate::node::management_port::plan::{AssignedSubnets, ManagementPort};

    /// In a network namespace of its own.
    #[test]
    fn the_kernel_shows_rules_as_they_were_written() {
        let port = ManagementPort {
            subnets: Vec::new(),
            cluster: Vec::new(),
            cluster_is_given: true,
            services: Vec::new(),
            masquerade: ["169.254.169.0/29", "fd69::/125"].map(|net| net.parse().unwrap()),
            reserved: Vec::new(),
            local_traffic: ["169.254.169.3", "fd69::3"].map(|text| text.parse().unwrap()),
            to_gateway: ["169.254.169.4", "fd69::4"].map(|text| text.parse().unwrap()),
            forwarding: Forwarding::OfServices,
            tunnel_ports: [6081].into(),
            mtu: contract::mtu::Mtu::DEFAULT,
            routable_mtu: None,
        };
        let subnets =
            ["10.244.1.0/24", "fd00:10:244:1::/64"].map(|net| net.parse().unwrap()).to_vec();
        let mut desired =
            port.desired("n1", &AssignedSubnets { subnets, ..Default::default() }, &[]).unwrap();
        let shown = std::thread::spawn(move || {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)
                .expect("a network namespace: this test runs as root");
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let [mut forwarded, ..] = chains();
                assert!(!forwarded.correct(&desired).await.unwrap(), "the sources are not known");
                let sources = ["100.64.255.253", "fd98::fffd"].map(|text| text.parse().unwrap());
                desired.forwarded_sources = Some(sources.into());
                for mut rules in chains() {
                    let wanted = (rules.wanted)(&desired).unwrap();
                    assert_eq!(rules.chain.look().await.unwrap(), Found::Nothing);
                    assert!(rules.correct(&desired).await.unwrap());
                    assert_eq!(rules.chain.look().await.unwrap(), Found::Rules(wanted));
                    assert!(!rules.correct(&desired).await.unwrap());
                }
                assert_eq!(
                    remove_own().await.unwrap(),
                    [FORWARDED, MASQUERADE, NO_RETURN, NO_ROUTER].map(|chain| chain.name)
                );
                assert_eq!(remove_own().await.unwrap(), [""; 0]);
                assert_ne!(
                    SOURCE_NAT.look().await.unwrap(),
                    Found::Nothing,
                    "it is upstream's, too"
                );
                assert_eq!(remove().await.unwrap(), Some(TABLE));
                assert_eq!(remove().await.unwrap(), None);
            });
        });
        shown.join().unwrap();
    }

    /// A node of another zone, too, takes them for this node's by their source.
    #[test]
    fn what_pods_send_to_or_from_a_tunnels_port_is_dropped_whatever_port_the_option_names() {
        let tried = std::thread::spawn(|| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)
                .expect("a network namespace: this test runs as root");
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let rules = |chain: Chain, rules: Vec<Rule>| {
                runtime.block_on(async {
                    chain.replace(&chain.look().await.unwrap(), &rules).await.unwrap();
                });
            };
            let all = |port| {
                [Port::Destination, Port::Source]
                    .map(|end| no_tunnel_of_a_pod(end, port))
                    .into_iter()
                    .chain([no_tunnel_of_a_service(port)])
                    .collect::<Vec<Rule>>()
            };
            rules(NO_RETURN, all(6082));
            let shown =
                Command::new("nft").args(["list", "chain", "inet", TABLE, NO_RETURN.name]).output();
            let shown = String::from_utf8(shown.expect("nft can be started").stdout).unwrap();
            for line in [
                "iifname \"ovn-k8s-mp0\" udp dport 6082 drop",
                "iifname \"ovn-k8s-mp0\" udp sport 6082 drop",
                "udp dport 6082 ct status dnat drop",
            ] {
                assert!(shown.contains(line), "no {line:?} in\n{shown}");
            }
        });
        tried.join().unwrap();
    }

    fn ip(arguments: &str) -> String {
        let output =
            Command::new("ip").args(arguments.split(' ')).output().expect("ip can be started");
        assert!(output.status.success(), "ip {arguments}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// A router advertisement with this prefix of 64 bits (RFC 4861, 4.2 and 4.6.2); the kernel
    /// fills in the checksum.
    fn advertisement(prefix: Ipv6Addr) -> Vec<u8> {
        let mut message = vec![134, 0, 0, 0, 64, 0, 0x07, 0x08, 0, 0, 0, 0, 0, 0, 0, 0];
        // The prefix is on the link, and addresses may be made from it.
        message.extend([3, 4, 64, 0xc0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        message.extend(prefix.octets());
        message
    }

    /// In a container, whose `/proc/sys` is mounted read-only, the interface accepts router
    /// advertisements.
    #[test]
    fn a_pod_became_the_hosts_router_by_an_advertisement_where_proc_sys_cannot_be_written() {
        let tried = std::thread::spawn(|| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)
                .expect("a network namespace: this test runs as root");
            ip("link add ovn-k8s-mp0 type veth peer name pod");
            for (name, address) in [(INTERFACE, "fe80::1/64"), ("pod", "fe80::2/64")] {
                ip(&format!("link set {name} addrgenmode none"));
                ip(&format!("link set {name} up"));
                ip(&format!("addr add {address} dev {name} nodad"));
            }
            let link = if_nametoindex("pod").unwrap();
            let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6)).unwrap();
            // Others come from outside of the link, and are not believed.
            socket.set_multicast_hops_v6(255).unwrap();
            socket.set_multicast_if_v6(link).unwrap();
            socket.bind(&SocketAddrV6::new("fe80::2".parse().unwrap(), 0, 0, link).into()).unwrap();
            let announce = |prefix: &str| {
                let all_nodes = SocketAddrV6::new("ff02::1".parse().unwrap(), 0, 0, link);
                socket.send_to(&advertisement(prefix.parse().unwrap()), &all_nodes.into()).unwrap();
            };

            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                NO_ROUTER.replace(&NO_ROUTER.look().await.unwrap(), &[no_router()]).await.unwrap();
            });
            announce("2001:db8:1::");
            let believed =
                || ip("-6 addr show dev ovn-k8s-mp0") + &ip("-6 route show dev ovn-k8s-mp0");
            // Without the rule, the next one is believed: the first one would have been.
            runtime.block_on(remove()).unwrap();
            announce("2001:db8:2::");
            testkit::eventually("an advertisement is believed", Duration::from_secs(20), || {
                let now = believed();
                if now.contains("2001:db8:2:") && now.contains("default via fe80::2") {
                    Ok(())
                } else {
                    Err(now)
                }
            });
            let now = believed();
            assert!(!now.contains("2001:db8:1:"), "{now}");
        });
        tried.join().unwrap();
    }
}
