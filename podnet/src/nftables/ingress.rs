//! The drop at the ingress of a NIC that is a port of a bridge in user space.
//!
//! Such a bridge reads the NIC with a packet socket, and the kernel hands each frame to its own stack, too:
//! the host answers what the bridge has forwarded already, and refuses (RST) connections of pods whose source
//! is translated to the host's address. Packet sockets are served before the ingress hook, so the bridge
//! loses nothing. A port of the kernel's datapath must never get this: there the hook comes before the
//! bridge.

use std::io;

use contract::names::IfName;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_REQUEST};
use netlink_packet_netfilter::{
    NetfilterProtoFamily,
    nftables::{
        ChainAttribute, ChainMessage, DevHookNumber, Hook, HookNumber, NfTablesMessage, TableAttribute,
        TableMessage,
    },
};
use nix::libc;

use super::{Change, commit_of, exchange, has_no_nftables, message_of};

/// The name of the table, of family `netdev`: that of the table of family `inet`.
pub const TABLE: &str = "ovn-kubernetes";
/// Before the name of the NIC in the name of its chain.
const PREFIX: &str = "uplink-";
/// `NF_DROP`
const DROP: u32 = 0;
const FAMILY: NetfilterProtoFamily = NetfilterProtoFamily::NetDev;

/// Has the kernel's own stack ignore what arrives at the NIC. Returns false if it did so before.
///
/// # Errors
/// The kernel refuses, or has no nftables. Before 6.16 it refuses a NIC that does not exist.
pub async fn ignore(nic: &IfName) -> io::Result<bool> {
    if ignored().await?.contains(nic) {
        return Ok(false);
    }
    let table =
        NfTablesMessage::NewTable(TableMessage { attributes: vec![TableAttribute::Name(TABLE.to_owned())] });
    let hook = vec![
        Hook::Number(HookNumber::Dev(DevHookNumber::Ingress)),
        Hook::Priority(0),
        Hook::NetDeviceName(nic.as_str().to_owned()),
    ];
    let base = vec![
        ChainAttribute::Hook(hook),
        ChainAttribute::Policy(DROP),
        ChainAttribute::Type("filter".to_owned()),
    ];
    let attributes = [names(nic), base].concat();
    let chain = NfTablesMessage::NewChain(ChainMessage { attributes });
    commit_of(FAMILY, vec![Change(table, NLM_F_CREATE), Change(chain, NLM_F_CREATE)]).await?;
    Ok(true)
}

/// Ends that for the NIC, and removes the table with the last one. Returns whether there was anything to end.
///
/// # Errors
/// The kernel refuses.
pub async fn heed(nic: &IfName) -> io::Result<bool> {
    let all = ignored().await?;
    if !all.contains(nic) {
        return Ok(false);
    }
    let mut changes = vec![Change(NfTablesMessage::DeleteChain(ChainMessage { attributes: names(nic) }), 0)];
    if all.len() == 1 {
        let attributes = vec![TableAttribute::Name(TABLE.to_owned())];
        changes.push(Change(NfTablesMessage::DeleteTable(TableMessage { attributes }), 0));
    }
    commit_of(FAMILY, changes).await?;
    Ok(true)
}

/// The NICs that the kernel's own stack ignores. A kernel without nftables ignores none.
///
/// # Errors
/// The kernel refuses.
pub async fn ignored() -> io::Result<Vec<IfName>> {
    let list = NfTablesMessage::GetChain(ChainMessage { attributes: Vec::new() });
    let answers = match exchange(vec![message_of(FAMILY, list, NLM_F_REQUEST | NLM_F_DUMP)]).await {
        Ok(answers) => answers,
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) || has_no_nftables(&error) => Vec::new(),
        Err(error) => return Err(error),
    };
    let chains = answers.into_iter().filter_map(|answer| match answer {
        NfTablesMessage::NewChain(chain) => Some(chain.attributes),
        _ => None,
    });
    Ok(chains.filter_map(|attributes| nic_of(&attributes)).collect())
}

fn names(nic: &IfName) -> Vec<ChainAttribute> {
    vec![ChainAttribute::Table(TABLE.to_owned()), ChainAttribute::Name(format!("{PREFIX}{nic}"))]
}

/// The NIC of a chain, if the chain is one of these.
fn nic_of(attributes: &[ChainAttribute]) -> Option<IfName> {
    let is_ours = attributes.contains(&ChainAttribute::Table(TABLE.to_owned()))
        && attributes.contains(&ChainAttribute::Policy(DROP));
    let name = attributes.iter().find_map(|attribute| match attribute {
        ChainAttribute::Name(name) => name.strip_prefix(PREFIX),
        _ => None,
    });
    name.filter(|_| is_ours)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a network namespace of its own.
    #[test]
    fn the_kernels_stack_ignores_a_nic_until_it_is_told_otherwise() {
        let tried = std::thread::spawn(|| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)
                .expect("a network namespace: this test runs as root");
            let made = std::process::Command::new("ip")
                .args(["link", "add", "eth7", "type", "veth", "peer", "name", "eth8"])
                .status();
            assert!(made.expect("ip(8)").success());
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let nic: IfName = "eth7".parse().unwrap();
                assert_eq!(ignored().await.unwrap(), []);
                assert!(ignore(&nic).await.unwrap());
                assert!(!ignore(&nic).await.unwrap(), "a second time there is nothing to do");
                assert_eq!(ignored().await.unwrap(), std::slice::from_ref(&nic));
                assert!(heed(&nic).await.unwrap());
                assert!(!heed(&nic).await.unwrap());
                assert_eq!(ignored().await.unwrap(), []);
            });
        });
        tried.join().unwrap();
    }
}
