//! The drop at the ingress of a device that is a port of a bridge in user space: a NIC, or the
//! host's end of a pod's veth.
//!
//! Such a bridge reads the device with a packet socket, and the kernel hands each frame to its own
//! stack, too: the host answers ARP requests for each of its addresses, takes packets to them past
//! OVN's policies, forwards what is sent to the device's MAC address, and refuses (RST) connections
//! of pods whose source is translated to its own address. Packet sockets are served before the
//! ingress hook, so the bridge loses nothing. A port of the kernel's datapath must never get this:
//! there the hook comes before the bridge.
//!
//! Each device has a chain of its own, so that programs which add and remove devices at the same
//! time need not know of each other. Before Linux 6.16 the kernel removes a chain with its device;
//! since then a chain waits for the next device of the name, and the server removes it.

use std::{io, slice};

use contract::names::IfName;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_REQUEST, NlasIterator};
use netlink_packet_netfilter::{
    NetfilterProtoFamily,
    nftables::{
        ChainAttribute, ChainMessage, DevHookNumber, Hook, HookNumber, NfTablesMessage,
        TableAttribute, TableMessage,
    },
};
use nix::libc;

use super::{Change, commit_of, exchange, has_no_nftables, message_of};

/// The name of the table, of family `netdev`: that of the table of family `inet`.
pub const TABLE: &str = "ovn-kubernetes";
/// `NF_DROP`
const DROP: u32 = 0;
const FAMILY: NetfilterProtoFamily = NetfilterProtoFamily::NetDev;
/// Of a deletion: only if nothing else uses the object (`linux/netlink.h`, `NLM_F_NONREC`).
const UNLESS_USED: u16 = 0x100;
/// Chains in one transaction: 40 KB. A socket takes some 150.
const BATCH: usize = 250;

/// Devices that the kernel's own stack ignores, by what they are to the bridge. Whoever cares for
/// one kind leaves the chains of the other alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Devices {
    /// NICs.
    Uplinks,
    /// Ports of the integration bridge: the host's ends of pods' veths, and other devices of the
    /// kernel.
    Ports,
}

impl Devices {
    pub const ALL: [Self; 2] = [Self::Uplinks, Self::Ports];

    /// Has the kernel's own stack ignore what arrives at these devices, in one transaction for 250
    /// of them. It is no error if it does already. Needs a tokio runtime.
    ///
    /// # Errors
    /// The kernel refuses, or has no nftables. Before 6.16 it refuses a device that does not exist,
    /// and then all those of the transaction.
    pub async fn ignore(self, devices: &[IfName]) -> io::Result<()> {
        for batch in devices.chunks(BATCH) {
            let attributes = vec![TableAttribute::Name(TABLE.to_owned())];
            let table =
                Change(NfTablesMessage::NewTable(TableMessage { attributes }), NLM_F_CREATE);
            let chains = batch.iter().map(|device| {
                let attributes = [self.names(device), base(device)].concat();
                Change(NfTablesMessage::NewChain(ChainMessage { attributes }), NLM_F_CREATE)
            });
            commit_of(FAMILY, [table].into_iter().chain(chains).collect()).await?;
        }
        Ok(())
    }

    /// Ends that for these devices, whether they still exist or not, and removes the table with the
    /// last chain. It is no error if the stack does not ignore one. Needs a tokio runtime.
    ///
    /// # Errors
    /// The kernel refuses.
    pub async fn heed(self, devices: &[IfName]) -> io::Result<()> {
        let there = match devices {
            [] => return Ok(()),
            // The list costs more than a deletion in vain.
            [device] => vec![device.clone()],
            _ => self
                .ignored()
                .await?
                .into_iter()
                .filter(|device| devices.contains(device))
                .collect(),
        };
        for batch in there.chunks(BATCH) {
            let delete = |device| {
                NfTablesMessage::DeleteChain(ChainMessage { attributes: self.names(device) })
            };
            commit_of(FAMILY, batch.iter().map(|device| Change(delete(device), 0)).collect())
                .await
                .or_else(unless_nothing_is_there)?;
        }
        let attributes = vec![TableAttribute::Name(TABLE.to_owned())];
        // Without the flag the kernel would remove the chains of other devices with the table.
        let table = Change(NfTablesMessage::DeleteTable(TableMessage { attributes }), UNLESS_USED);
        match commit_of(FAMILY, vec![table]).await {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(()),
            outcome => outcome.or_else(unless_nothing_is_there),
        }
    }

    /// The devices that the kernel's own stack ignores. A kernel without nftables ignores none.
    /// Needs a tokio runtime.
    ///
    /// # Errors
    /// The kernel refuses.
    pub async fn ignored(self) -> io::Result<Vec<IfName>> {
        let list = NfTablesMessage::GetChain(ChainMessage { attributes: Vec::new() });
        let answers =
            match exchange(vec![message_of(FAMILY, list, NLM_F_REQUEST | NLM_F_DUMP)]).await {
                Ok(answers) => answers,
                Err(error) => return unless_nothing_is_there(error).map(|()| Vec::new()),
            };
        let chains = answers.into_iter().filter_map(|answer| match answer {
            NfTablesMessage::NewChain(chain) => Some(chain.attributes),
            _ => None,
        });
        Ok(chains.filter_map(|attributes| self.device_of(&attributes)).collect())
    }

    /// Before the name of the device in the name of its chain.
    fn prefix(self) -> &'static str {
        match self {
            Self::Uplinks => "uplink-",
            Self::Ports => "port-",
        }
    }

    fn names(self, device: &IfName) -> Vec<ChainAttribute> {
        let name = format!("{}{device}", self.prefix());
        vec![ChainAttribute::Table(TABLE.to_owned()), ChainAttribute::Name(name)]
    }

    /// The device of a chain, if the chain is one of these.
    fn device_of(self, attributes: &[ChainAttribute]) -> Option<IfName> {
        let is_ours = attributes.contains(&ChainAttribute::Table(TABLE.to_owned()))
            && attributes.contains(&ChainAttribute::Policy(DROP));
        let name = attributes.iter().find_map(|attribute| match attribute {
            ChainAttribute::Name(name) => name.strip_prefix(self.prefix()),
            _ => None,
        });
        name.filter(|_| is_ours)?.parse().ok()
    }
}

/// Has the kernel's own stack ignore what arrives at the NIC. Returns false if it did so before.
///
/// # Errors
/// As [`Devices::ignore`].
pub async fn ignore(nic: &IfName) -> io::Result<bool> {
    if Devices::Uplinks.ignored().await?.contains(nic) {
        return Ok(false);
    }
    Devices::Uplinks.ignore(slice::from_ref(nic)).await?;
    Ok(true)
}

/// Ends that for the NIC. Returns whether there was anything to end.
///
/// # Errors
/// The kernel refuses.
pub async fn heed(nic: &IfName) -> io::Result<bool> {
    if !Devices::Uplinks.ignored().await?.contains(nic) {
        return Ok(false);
    }
    Devices::Uplinks.heed(slice::from_ref(nic)).await?;
    Ok(true)
}

/// Whether a notification of nftables, by its type and body, is about the chain of a port.
pub fn tells_of_port(kind: u16, body: &[u8]) -> bool {
    is_message(kind, libc::NFT_MSG_NEWCHAIN) && is_of_port(body) || tells_of_lost_port(kind, body)
}

/// Whether it says that the chain of a port is gone.
pub fn tells_of_lost_port(kind: u16, body: &[u8]) -> bool {
    is_message(kind, libc::NFT_MSG_DELCHAIN) && is_of_port(body)
}

fn is_message(kind: u16, number: i32) -> bool {
    i32::from(kind) == libc::NFNL_SUBSYS_NFTABLES << 8 | number
}

fn is_of_port(body: &[u8]) -> bool {
    // The first byte of `struct nfgenmsg`, which has 4, is the family; the attributes follow.
    if body.first() != Some(&u8::from(FAMILY)) {
        return false;
    }
    let has = |kind, begin: &str| {
        NlasIterator::new(body.get(4..).unwrap_or_default()).filter_map(Result::ok).any(
            |attribute| attribute.kind() == kind && attribute.value().starts_with(begin.as_bytes()),
        )
    };
    // `NFTA_CHAIN_TABLE` and `NFTA_CHAIN_NAME`.
    has(1, &format!("{TABLE}\0")) && has(3, Devices::Ports.prefix())
}

/// Hook, priority, type and policy.
fn base(device: &IfName) -> Vec<ChainAttribute> {
    let hook = vec![
        Hook::Number(HookNumber::Dev(DevHookNumber::Ingress)),
        Hook::Priority(0),
        Hook::NetDeviceName(device.as_str().to_owned()),
    ];
    vec![
        ChainAttribute::Hook(hook),
        ChainAttribute::Policy(DROP),
        ChainAttribute::Type("filter".to_owned()),
    ]
}

fn unless_nothing_is_there(error: io::Error) -> io::Result<()> {
    let is_nothing = error.raw_os_error() == Some(libc::ENOENT) || has_no_nftables(&error);
    if is_nothing { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests;
