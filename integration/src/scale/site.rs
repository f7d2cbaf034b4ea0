//! The programs of a run: a real API server with etcd, a real northbound database, and the control
//! plane under test.

use std::{future::Future, process::Command, time::Duration};

use anyhow::{Context as _, Result, bail};
use integration::{
    Daemon, Families,
    central::Central,
    cluster::{
        Api, ControlPlane, Credentials, access,
        control_plane::services,
        master::{self, Network},
        programs,
    },
    command, eventually, fabric,
};
use kube::Client;

/// Port of the control plane's `/readyz`; the namespaces are private, so it is always free.
const PORT: u16 = 9410;
/// Room for 32,768 nodes with 250 pods each, or half as many with twice as many, and so on.
const CLUSTER_SUBNET: &str = "10.128.0.0/9";
/// Addresses of a node's subnet that no pod gets: network, gateway, management port, broadcast; and
/// recently used addresses, which are not assigned again at once.
const SPARE: usize = 16;

/// The running programs, all in namespaces of their own.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) api: Api,
    pub(crate) kubernetes: ControlPlane,
    pub(crate) central: Central,
    pub(crate) controller: Daemon,
}

/// Whether ovn-northd runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Northd {
    Off,
    On,
}

impl From<bool> for Northd {
    fn from(runs: bool) -> Self {
        if runs { Self::On } else { Self::Off }
    }
}

impl Site {
    /// Starts everything except the control plane, which has these further options. Each node's
    /// subnet has room for `pods_per_node` pods.
    pub(crate) fn start(pods_per_node: usize, northd: Northd, options: &[&str]) -> Result<Self> {
        programs::verify()?;
        fabric::create(&[], fabric::MTU)?;
        let credentials = Credentials::create(&[])?;
        let api = Api::new(&credentials)?;
        let kubernetes = ControlPlane::without_service_accounts(&credentials, &api, Families::V4)?;
        let central = Central::create()?;
        central.start_northbound()?;
        if northd == Northd::On {
            central.start_southbound()?;
            central.northd.spawn()?;
        }
        access::grant(&api, &credentials)?;
        let cluster_subnets = format!("{CLUSTER_SUBNET}/{}", host_prefix(pods_per_node + SPARE)?);
        let controller = master::instance(
            master::BOTH,
            "scale",
            PORT,
            &credentials,
            &Network {
                cluster_subnets,
                service_cidrs: services(Families::V4),
                options: options.iter().map(|option| (*option).to_owned()).collect(),
            },
        );
        Ok(Self { api, kubernetes, central, controller })
    }

    pub(crate) fn client(&self) -> &Client {
        &self.api.client
    }

    /// Waits until the control plane's `/readyz` succeeds.
    pub(crate) fn until_ready(&self, patience: Duration) -> Result<()> {
        eventually("the control plane is ready", patience, || {
            self.must_run()?;
            master::ready(PORT)
        })
    }

    /// Waits for `seen`; fails early if the control plane ends meanwhile.
    pub(crate) async fn while_running<T>(
        &self,
        seen: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let mut look = tokio::time::interval(Duration::from_millis(500));
        let mut seen = std::pin::pin!(seen);
        loop {
            tokio::select! {
                seen = &mut seen => return seen,
                _ = look.tick() => self.must_run()?,
            }
        }
    }

    fn must_run(&self) -> Result<()> {
        if self.controller.is_running() {
            return Ok(());
        }
        let log = self.controller.log();
        let end = command::output(Command::new("tail").arg("-n20").arg(log))
            .context("the control plane has ended")?;
        bail!("the control plane has ended; {}:\n{end}", log.display())
    }
}

/// The prefix length of the smallest subnet with `addresses` addresses; never longer than the usual
/// /24.
fn host_prefix(addresses: usize) -> Result<u32> {
    let bits = addresses.next_power_of_two().trailing_zeros().max(8);
    u32::checked_sub(32, bits)
        .filter(|prefix| *prefix > 9)
        .context("a node cannot have that many pods")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_room_for_its_pods() {
        assert_eq!(
            [20, 256, 257, 512, 1000].map(|addresses| host_prefix(addresses).unwrap()),
            [24, 24, 23, 23, 22]
        );
        assert!(host_prefix(1 << 23).is_err());
    }
}
