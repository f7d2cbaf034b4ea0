//! nftables rules for the packets between this host, its pods and the rest of the network. All chains are in
//! one table, which goes with the node's server; those of Services are in `service_rules`.
//!
//! ```text
//! table inet ovn-kubernetes {
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
//!         iifname "ovn-k8s-mp0" oifname "ovn-k8s-mp0" reject with icmpx host-unreachable
//!     }
//! }
//! ```
//!
//! - OVN knows the way back to the port's own address only, so other addresses of this host are translated.
//! - Other hosts have no route to pods: these leave under the address of the interface.
//! - A packet that comes from the overlay and belongs into it again is for an address that no pod and no
//!   Service has. OVN would send it back here, until its hop limit is used up.

use std::{io, net::IpAddr};

use ipnet::IpNet;
use netlink_packet_core::DefaultNla;
use netlink_packet_netfilter::nftables::{
    Bitwise, Cmp, DataAttribute, Expressions, Immediate, Meta, MetaKey, Operator, Payload, Register,
};
use nix::libc;
use podnet::nftables::{Chain, Found, Rule, Task};

use super::plan::{Desired, INTERFACE};
/// Upstream's names of the table and the first chain, so that a node that changes from upstream to this
/// program keeps its rules.
pub(super) const TABLE: &str = "ovn-kubernetes";
const SOURCE_NAT: Chain = Chain { table: TABLE, name: "mgmtport-snat", task: Task::SourceNat };
const MASQUERADE: Chain = Chain { table: TABLE, name: "pods-masquerade", task: Task::SourceNat };
const NO_RETURN: Chain = Chain { table: TABLE, name: "mgmtport-no-return", task: Task::Forward };

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
    wanted: fn(&Desired) -> Vec<Rule>,
    /// What is lost without the chain.
    pub(super) without: &'static str,
    /// For the log.
    pub(super) what: &'static str,
    worded: Worded,
}

/// The rules of a chain that were written last, and what the kernel shows of them: it may show a rule in
/// another form.
#[derive(Debug, Default)]
pub(super) struct Worded(Option<(Vec<Rule>, Vec<Rule>)>);

impl Worded {
    /// Whether the chain that was found has these rules.
    pub(super) fn is(&self, found: &Found, wanted: &[Rule]) -> bool {
        let as_worded = self.0.as_ref().filter(|(written, _)| written == wanted).map(|(_, worded)| worded);
        matches!(found, Found::Rules(rules) if rules == wanted || Some(rules) == as_worded)
    }

    /// Learns how the kernel shows rules that were just written. Without this, a kernel that shows them in
    /// another form would have them written at every comparison.
    pub(super) async fn learn(&mut self, chain: Chain, written: Vec<Rule>) -> io::Result<()> {
        if let Found::Rules(worded) = chain.look().await? {
            self.0 = Some((written, worded));
        }
        Ok(())
    }
}

/// All chains.
pub(super) fn chains() -> [ChainRules; 3] {
    [
        ChainRules {
            chain: SOURCE_NAT,
            wanted: |desired| desired.addresses.iter().map(|address| source_nat(address.addr())).collect(),
            without: "what this host sends to pods from its other addresses may get no answer",
            what: "source NAT",
            worded: Worded::default(),
        },
        ChainRules {
            chain: MASQUERADE,
            wanted: |desired| desired.addresses.iter().map(|address| masquerade(address.trunc())).collect(),
            without: "pods reach no other host, the API server on another one included",
            what: "masquerading of pods",
            worded: Worded::default(),
        },
        ChainRules {
            chain: NO_RETURN,
            wanted: |_| vec![no_return()],
            without: "a packet of a pod for an address that nothing has is forwarded until its hop limit is \
                      used up",
            what: "the end of what the overlay sends back",
            worded: Worded::default(),
        },
    ]
}

impl ChainRules {
    /// Replaces the rules if they differ. Returns whether they did.
    pub(super) async fn correct(&mut self, desired: &Desired) -> io::Result<bool> {
        let wanted = (self.wanted)(desired);
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
    let absent = [libc::EPROTONOSUPPORT, libc::EOPNOTSUPP, libc::EAFNOSUPPORT];
    match SOURCE_NAT.remove_table().await {
        Ok(was_there) => Ok(was_there.then_some(TABLE)),
        Err(error) if error.raw_os_error().is_some_and(|number| absent.contains(&number)) => Ok(None),
        Err(error) => Err(error),
    }
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

    /// Whether the packet is of the address' family. A table of family `inet` sees both: without this first,
    /// the offset would mean another field.
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

// The attributes of all expressions are in the order in which the kernel shows them, because they are
// compared.

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

/// Packets of the address' family that leave through the port from another address get this one as source.
fn source_nat(address: IpAddr) -> Rule {
    let source = Address::source(address);
    let load = Expressions::Immediate(vec![
        Immediate::DestinationRegister(Register::Reg1),
        Immediate::Data(DataAttribute::Value(source.octets.clone())),
    ]);
    // `NFTA_NAT_TYPE` (source), `_FAMILY`, `_REG_ADDR_MIN`, `_REG_ADDR_MAX`, `_FLAGS`
    // (`NF_NAT_RANGE_MAP_IPS`), in network byte order. A kernel since 5.8 adds that flag by itself, so the
    // rule is written with it.
    let register = u32::from(Register::Reg1);
    let attributes = [(1, 0), (2, u32::from(source.family)), (3, register), (4, register), (7, 1)];
    let attributes =
        attributes.map(|(kind, value)| DefaultNla::new(kind, value.to_be_bytes().to_vec())).to_vec();
    let is_other = [source.load(), compare(Operator::NotEqual, source.octets.clone())];
    let matches =
        source.is_of_family().into_iter().chain(interface(MetaKey::Oifname, Operator::Equal, INTERFACE));
    rule(matches.chain(is_other).chain([load, other("nat", attributes)]))
}

/// Packets with a source in the subnet that leave through any other interface get the address of that one.
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
    let elsewhere = [INTERFACE, "lo"].map(|name| interface(MetaKey::Oifname, Operator::NotEqual, name));
    let matches = source.is_of_family().into_iter().chain(elsewhere.into_iter().flatten());
    rule(matches.chain(is_in_subnet).chain([other("masq", Vec::new())]))
}

/// Packets that came in through the port and would leave through it again.
fn no_return() -> Rule {
    // `NFTA_REJECT_TYPE` (`NFT_REJECT_ICMPX_UNREACH`), `NFTA_REJECT_ICMP_CODE`
    // (`NFT_REJECT_ICMPX_HOST_UNREACH`).
    let attributes = vec![DefaultNla::new(1, 2_u32.to_be_bytes().to_vec()), DefaultNla::new(2, vec![2])];
    let ways = interface(MetaKey::Iifname, Operator::Equal, INTERFACE).into_iter().chain(interface(
        MetaKey::Oifname,
        Operator::Equal,
        INTERFACE,
    ));
    rule(ways.chain([other("reject", attributes)]))
}

#[cfg(test)]
mod tests {
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
            local_traffic: ["169.254.169.3", "fd69::3"].map(|text| text.parse().unwrap()),
            mtu: contract::mtu::Mtu::DEFAULT,
            routable_mtu: None,
        };
        let subnets = ["10.244.1.0/24", "fd00:10:244:1::/64"].map(|net| net.parse().unwrap()).to_vec();
        let desired = port.desired("n1", &AssignedSubnets { subnets, mac: None }, &[]).unwrap();
        let shown = std::thread::spawn(move || {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)
                .expect("a network namespace: this test runs as root");
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                for mut rules in chains() {
                    let wanted = (rules.wanted)(&desired);
                    assert_eq!(rules.chain.look().await.unwrap(), Found::Nothing);
                    assert!(rules.correct(&desired).await.unwrap());
                    assert_eq!(rules.chain.look().await.unwrap(), Found::Rules(wanted));
                    assert!(!rules.correct(&desired).await.unwrap());
                }
                assert_eq!(remove().await.unwrap(), Some(TABLE));
                assert_eq!(remove().await.unwrap(), None);
            });
        });
        shown.join().unwrap();
    }
}
