//! With which source this host forwards connections to pods. Its own address (`.2`) would pass
//! every network policy, because policies must not block a kubelet's probes.
//!
//! The source is an address of the join subnet (`contract::ovn::forwarded_source`). OVN has a route
//! back for it once the control plane has seen this node's annotation. A control plane of
//! upstream's makes none: then the management port's address remains.

use std::{io, net::IpAddr, path::PathBuf, time::Duration};

use contract::ovn::forwarded_sources;
use podnet::openflow::has_flow_to;

use super::{
    kernel::Kernel,
    plan::{AssignedSubnets, Desired},
    port::BRIDGE,
    rules,
};
use crate::kernel_thread;

/// How long ovs-vswitchd may take to answer. It takes milliseconds; there is another attempt.
const PATIENCE: Duration = Duration::from_secs(2);

/// What this server asks of the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::node) enum Wish {
    /// Routes back for sources of the join subnet.
    Routes,
    /// Nothing: the node was upstream's a moment ago, and may be handed back. A route would be a
    /// new row. The next start asks for it.
    Nothing,
}

impl Wish {
    /// As of the host, before this server changes anything: upstream's server leaves a port with
    /// addresses, and none of the rules that only this one has.
    pub(in crate::node) async fn at_start() -> Self {
        let taken_over = async {
            let port = kernel_thread::ask(async { Kernel::open()?.look() }).await??;
            let has_addresses = port.is_some_and(|port| !port.addresses.is_empty());
            Ok::<_, io::Error>(has_addresses && !rules::has_own().await?)
        };
        if taken_over.await.unwrap_or_default() { Self::Nothing } else { Self::Routes }
    }
}

/// The sources of the node, as far as OVN has routes back.
#[derive(Debug, Default)]
pub(super) struct ForwardedSources {
    /// The directory with the socket of the bridge; none without an API server.
    ovs_run_dir: Option<PathBuf>,
    /// Those to which OVN had a route. It keeps them: OVN may be starting again at any moment.
    routed: Vec<IpAddr>,
}

/// A family that has to do with the management port's address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unrouted {
    #[error(
        "node ports reach pods from the management port's address, which network policies let in: OVN has no \
         route to {0} yet, which the control plane makes"
    )]
    NoRoute(IpAddr),
    #[error(
        "node ports reach pods from the management port's address, which network policies let in: the node \
         has no address in the join subnet, or that subnet is too small"
    )]
    NoAddress,
    #[error("ovs-vswitchd cannot tell whether OVN has a route to {0}: {1}")]
    Unknown(IpAddr, String),
}

impl ForwardedSources {
    pub(super) fn new(ovs_run_dir: Option<PathBuf>) -> Self {
        Self { ovs_run_dir, routed: Vec::new() }
    }

    /// Sets the sources in `desired`. Returns why there is none, for each family without.
    pub(super) async fn decide(
        &mut self,
        assigned: &AssignedSubnets,
        desired: &mut Desired,
    ) -> Vec<Unrouted> {
        let Some(ovs_run_dir) = &self.ovs_run_dir else {
            desired.forwarded_sources = Some(Vec::new());
            return Vec::new();
        };
        let candidates = forwarded_sources(&assigned.join);
        self.routed.retain(|address| candidates.contains(address));
        let mut unrouted = Vec::new();
        for own in desired.addresses.iter().map(|net| net.addr()) {
            let Some(address) = candidates.iter().copied().find(|it| it.is_ipv4() == own.is_ipv4())
            else {
                unrouted.push(Unrouted::NoAddress);
                continue;
            };
            if self.routed.contains(&address) {
                continue;
            }
            match has_flow_to(ovs_run_dir, BRIDGE, address, PATIENCE).await {
                Ok(true) => self.routed.push(address),
                Ok(false) => unrouted.push(Unrouted::NoRoute(address)),
                Err(error) => unrouted.push(Unrouted::Unknown(address, error.to_string())),
            }
        }
        // What an earlier start of the server wrote stays until the switch can tell.
        let is_known = !unrouted.iter().any(|why| matches!(why, Unrouted::Unknown(..)));
        desired.forwarded_sources = is_known.then(|| self.routed.clone());
        unrouted
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn run(program: &str, arguments: &str) {
        let status =
            Command::new(program).args(arguments.split(' ')).status().expect("it can be started");
        assert!(status.success(), "{program} {arguments}");
    }

    #[test]
    fn a_node_that_is_taken_over_asks_for_no_row_until_its_next_start() {
        // The kernel thread belongs to the process, so the process has to be in the namespace.
        let output = Command::new("unshare")
            .args(["--user", "--map-root-user", "--net"])
            .arg(std::env::current_exe().unwrap())
            .args([
                "--ignored",
                "--exact",
                "node::management_port::forwarded::tests::of_each_start",
                "--nocapture",
            ])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }

    #[test]
    #[ignore = "the test above runs it, in a network namespace of its own"]
    fn of_each_start() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let wish = || runtime.block_on(Wish::at_start());
        assert_eq!(wish(), Wish::Routes, "a new node");
        // Not every kernel has dummies.
        run("ip", "link add ovn-k8s-mp0 type bridge");
        assert_eq!(wish(), Wish::Routes, "after a reboot, Open vSwitch makes the port anew");
        run("ip", "addr add 10.244.1.2/24 dev ovn-k8s-mp0");
        run("nft", "add table inet ovn-kubernetes");
        run(
            "nft",
            "add chain inet ovn-kubernetes mgmtport-snat { type nat hook postrouting priority 100 ; }",
        );
        assert_eq!(wish(), Wish::Nothing, "upstream's server was here");
        run(
            "nft",
            "add chain inet ovn-kubernetes pods-masquerade { type nat hook postrouting priority 100 ; }",
        );
        assert_eq!(wish(), Wish::Routes, "this server was here");
    }
}
