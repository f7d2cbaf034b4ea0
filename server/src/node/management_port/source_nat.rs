//! Source NAT of packets that this host sends to pods from an address other than the management port's. OVN
//! knows the way back to the port's address only.
//!
//! ```text
//! table inet ovn-kubernetes {
//!     chain mgmtport-snat {
//!         type nat hook postrouting priority srcnat
//!         oifname "ovn-k8s-mp0" ip saddr != 10.244.1.2 snat ip to 10.244.1.2
//!         oifname "ovn-k8s-mp0" ip6 saddr != fd00:10:244:1::2 snat ip6 to fd00:10:244:1::2
//!     }
//! }
//! ```

use std::{io, net::IpAddr};

use netlink_packet_core::DefaultNla;
use netlink_packet_netfilter::nftables::{
    Cmp, DataAttribute, Expressions, Immediate, Meta, MetaKey, Operator, Payload, Register,
};
use nix::libc;
use podnet::nftables::{Chain, Found, Rule};

use super::plan::{Desired, INTERFACE};

/// Upstream's names, so that a node that changes from upstream to this program keeps its rules.
pub(super) const TABLE: &str = "ovn-kubernetes";
const CHAIN: Chain = Chain { table: TABLE, name: "mgmtport-snat" };

/// Bytes of an interface's name in a register.
const IFNAMSIZ: usize = 16;
/// `NFT_PAYLOAD_NETWORK_HEADER`
const NETWORK_HEADER: u32 = 1;

/// Reconciles the rules in the kernel.
#[derive(Debug, Default)]
pub(super) struct SourceNat {
    /// The rules that were written last, and what the kernel shows of them: it may show a rule in another
    /// form.
    worded: Option<(Vec<Rule>, Vec<Rule>)>,
}

impl SourceNat {
    /// Replaces the rules if they differ. Returns whether they did.
    pub(super) async fn correct(&mut self, desired: &Desired) -> io::Result<bool> {
        let wanted: Vec<Rule> = desired.addresses.iter().map(|address| rule(address.addr())).collect();
        let found = CHAIN.look().await?;
        let as_worded =
            self.worded.as_ref().filter(|(written, _)| *written == wanted).map(|(_, worded)| worded);
        if matches!(&found, Found::Rules(rules) if *rules == wanted || Some(rules) == as_worded) {
            return Ok(false);
        }
        // One transaction: packets see the old rules or the new ones.
        CHAIN.replace(&found, &wanted).await?;
        // Without this, a kernel that shows the rules in another form would have them written at every
        // comparison.
        if let Found::Rules(worded) = CHAIN.look().await? {
            self.worded = Some((wanted, worded));
        }
        Ok(true)
    }
}

/// Removes the table. Returns its name, if there was one. A kernel without nftables has none.
pub(super) async fn remove() -> io::Result<Option<&'static str>> {
    let absent = [libc::EPROTONOSUPPORT, libc::EOPNOTSUPP, libc::EAFNOSUPPORT];
    match CHAIN.remove_table().await {
        Ok(was_there) => Ok(was_there.then_some(TABLE)),
        Err(error) if error.raw_os_error().is_some_and(|number| absent.contains(&number)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The rule for one address: packets of its family that leave through the interface from another address get
/// this one as source. The attributes are in the order in which the kernel shows them, because they are
/// compared.
fn rule(address: IpAddr) -> Rule {
    // `NFPROTO_IPV4` and `NFPROTO_IPV6`, and where the header has the source address (RFC 791, RFC 8200).
    let (family, offset, octets) = match address {
        IpAddr::V4(v4) => (2_u8, 12, v4.octets().to_vec()),
        IpAddr::V6(v6) => (10, 8, v6.octets().to_vec()),
    };
    let length = u32::try_from(octets.len()).unwrap_or_default();
    let mut name = INTERFACE.as_bytes().to_vec();
    // nftables compares the whole register, so the name is padded.
    name.resize(IFNAMSIZ, 0);

    let meta = |key| Expressions::Meta(vec![Meta::Key(key), Meta::DestinationRegister(Register::Reg1)]);
    let compare = |operator, value| {
        Expressions::Cmp(vec![
            Cmp::SourceRegister(Register::Reg1),
            Cmp::Op(operator),
            Cmp::Data(DataAttribute::Value(value)),
        ])
    };
    let source = vec![
        Payload::DestinationRegister(Register::Reg1),
        Payload::Base(NETWORK_HEADER),
        Payload::Offset(offset),
        Payload::Len(length),
    ];
    let load = vec![
        Immediate::DestinationRegister(Register::Reg1),
        Immediate::Data(DataAttribute::Value(octets.clone())),
    ];
    // `NFTA_NAT_TYPE` (source), `_FAMILY`, `_REG_ADDR_MIN`, `_REG_ADDR_MAX`, `_FLAGS`
    // (`NF_NAT_RANGE_MAP_IPS`), in network byte order. A kernel since 5.8 adds that flag by itself, so the
    // rule is written with it.
    let register = u32::from(Register::Reg1);
    let attributes = [(1, 0), (2, u32::from(family)), (3, register), (4, register), (7, 1)];
    let attributes =
        attributes.map(|(kind, value)| DefaultNla::new(kind, value.to_be_bytes().to_vec())).to_vec();
    let expressions = [
        // A table of family `inet` sees both: the family first, or the offset would mean another field.
        meta(MetaKey::Nfproto),
        compare(Operator::Equal, vec![family]),
        meta(MetaKey::Oifname),
        compare(Operator::Equal, name),
        Expressions::Payload(source),
        compare(Operator::NotEqual, octets),
        Expressions::Immediate(load),
        Expressions::Other { expression_type: "nat".to_owned(), attributes },
    ];
    expressions.map(Into::into).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a network namespace of its own.
    #[test]
    fn the_kernel_shows_rules_as_they_were_written() {
        let shown = std::thread::spawn(|| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)
                .expect("a network namespace: this test runs as root");
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let rules =
                    ["10.244.1.2", "fd00:10:244:1::2"].map(|address| rule(address.parse().unwrap())).to_vec();
                assert_eq!(CHAIN.look().await.unwrap(), Found::Nothing);
                CHAIN.replace(&Found::Nothing, &rules).await.unwrap();
                let found = CHAIN.look().await.unwrap();
                assert_eq!(found, Found::Rules(rules));
                assert_eq!(remove().await.unwrap(), Some(TABLE));
                assert_eq!(remove().await.unwrap(), None);
            });
        });
        shown.join().unwrap();
    }
}
