//! The devices of `br-int` that the host's own stack ignores: all that ovs-vswitchd reads with a
//! packet socket, which is what it does on the userspace datapath (`podnet::nftables::ingress`).
//!
//! New pods' devices are ignored before their ports are written. This is for all others: those of
//! upstream's plugin, those that were there before this server, and those whose chains another
//! program has removed. It also removes the chains of links that are gone, for many at once: a DEL
//! would wait for the kernel to free its own.

use std::{collections::HashSet, io};

use contract::names::IfName;
use netlink_sys::protocols::NETLINK_NETFILTER;
use nix::{libc, net::if_::if_nametoindex};
use podnet::{
    bridge::Datapath,
    netlink::listen::{Heard, Listener, bodies},
    nftables::ingress::{Devices, tells_of_lost_port},
};

use super::{Repaired, links::KnownLinks};

/// What the rows and the links of a moment call for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct IgnoredDevices {
    wanted: HashSet<IfName>,
    /// Links other than veths.
    others: HashSet<IfName>,
    datapath: Option<Datapath>,
}

impl IgnoredDevices {
    /// Of the links that are `named` as ports of the bridge. Nothing on the kernel's datapath,
    /// which takes the frames away itself, and would lose them.
    pub(super) fn of(
        datapath: Option<Datapath>,
        named: &HashSet<&str>,
        links: &KnownLinks,
    ) -> Self {
        let parsed = |name: &str| name.parse::<IfName>().ok();
        let wanted = match datapath {
            Some(Datapath::Userspace) => {
                links.names().filter(|name| named.contains(name)).filter_map(parsed).collect()
            }
            Some(Datapath::Kernel) | None => HashSet::new(),
        };
        Self {
            wanted,
            others: links.other_names().into_iter().filter_map(parsed).collect(),
            datapath,
        }
    }

    /// Has the host's stack ignore what is wanted, in one transaction, and heed what is not.
    pub(super) async fn keep(self) -> Repaired {
        match self.repair().await {
            Ok(()) => Repaired::All,
            Err(error) => {
                tracing::warn!(
                    %error,
                    hint = "`nft list tables`: the kernel needs nftables of family netdev",
                    "what the host's own stack receives from ports of br-int cannot be set"
                );
                Repaired::NotAll
            }
        }
    }

    async fn repair(&self) -> io::Result<()> {
        let there: HashSet<IfName> = Devices::Ports.ignored().await?.into_iter().collect();
        let missing: Vec<IfName> = self.wanted.difference(&there).cloned().collect();
        if !missing.is_empty() {
            Devices::Ports.ignore(&missing).await?;
            tracing::info!(
                ports = missing.len(),
                "the host's own stack ignores what ports of br-int receive"
            );
        }
        let exists = |name: &IfName| if_nametoindex(name.as_str()).is_ok();
        let obsolete: Vec<IfName> =
            there.into_iter().filter(|name| self.is_obsolete(name, exists(name))).collect();
        if !obsolete.is_empty() {
            Devices::Ports.heed(&obsolete).await?;
            tracing::info!(
                ports = obsolete.len(),
                "the host's own stack heeds again what devices receive"
            );
        }
        Ok(())
    }

    /// Whether a device that is ignored need not be. A veth is ignored for as long as it exists: an
    /// ADD that has made it may not have written its port yet, and a port that has vanished is
    /// restored.
    fn is_obsolete(&self, device: &IfName, exists: bool) -> bool {
        match self.datapath {
            Some(Datapath::Userspace) => {
                !self.wanted.contains(device) && (!exists || self.others.contains(device))
            }
            Some(Datapath::Kernel) => true,
            // Without a bridge nobody knows of which kind it will be.
            None => false,
        }
    }
}

/// Listens to nftables from now on. Needs a tokio runtime.
pub(super) fn listen() -> Option<Listener> {
    let group = u32::try_from(libc::NFNLGRP_NFTABLES).map_err(io::Error::other);
    group
        .and_then(|group| Listener::open(NETLINK_NETFILTER, &[group]))
        // A kernel without nftables has no chains to lose.
        .inspect_err(
            |error| tracing::info!(%error, "no nftables notifications: lost chains are noticed later"),
        )
        .ok()
}

/// Waits until another program has removed chains of ports, or may have. Cancellation-safe.
pub(super) async fn chain_is_lost(rules: &Option<Listener>) {
    let Some(rules) = rules else { return std::future::pending().await };
    loop {
        match rules.next().await {
            Ok(Heard::Datagram(datagram)) => {
                if bodies(&datagram).iter().any(|(kind, body)| tells_of_lost_port(*kind, body)) {
                    return;
                }
            }
            Ok(Heard::Overflow) => return,
            Err(error) => {
                tracing::error!(%error, "nftables notifications have ended: lost chains are noticed later");
                return std::future::pending().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use podnet::link::Link;

    use super::*;

    fn links() -> KnownLinks {
        let link = |index, name: &str, is_veth| Link {
            index,
            name: name.to_owned(),
            is_veth,
            ..Link::default()
        };
        KnownLinks::of([
            link(1, "pod1", true),
            link(2, "pod2", true),
            link(3, "tap0", false),
            link(4, "eth0", false),
        ])
    }

    fn name(name: &str) -> IfName {
        name.parse().unwrap()
    }

    #[test]
    fn what_exists_of_the_ports_is_ignored_in_user_space_and_nothing_on_the_kernels_datapath() {
        let named = HashSet::from(["pod1", "tap0", "gone"]);
        let wanted = |datapath| IgnoredDevices::of(Some(datapath), &named, &links()).wanted;
        assert_eq!(wanted(Datapath::Userspace), HashSet::from([name("pod1"), name("tap0")]));
        assert_eq!(wanted(Datapath::Kernel), HashSet::new());
    }

    #[test]
    fn a_veth_is_ignored_while_it_exists_and_another_device_while_it_is_a_port() {
        let of = |datapath| IgnoredDevices::of(datapath, &HashSet::from(["pod1"]), &links());
        let userspace = of(Some(Datapath::Userspace));
        for (device, exists, is_obsolete) in [
            ("pod1", true, false),
            // Its port may be on its way.
            ("pod2", true, false),
            ("new", true, false),
            ("gone", false, true),
            ("tap0", true, true),
        ] {
            assert_eq!(userspace.is_obsolete(&name(device), exists), is_obsolete, "{device}");
        }
        assert!(of(Some(Datapath::Kernel)).is_obsolete(&name("pod1"), true));
        assert!(!of(None).is_obsolete(&name("pod1"), true), "the bridge may come back");
    }
}
