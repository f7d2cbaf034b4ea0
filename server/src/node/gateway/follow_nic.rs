//! How the gateway's bridge follows its NIC.

use contract::error::chain;
use podnet::control_socket::{ControlSocket, VSWITCHD};

use super::{
    GatewayReconciler, Waiting,
    bridge::{Seen, SeenPort},
    host::Host,
    nic::{self, Nic},
};

impl GatewayReconciler {
    /// Has the events of the NIC, and of whatever gets its name, wake this task.
    pub(super) fn watch_nic(&self, nic: Option<&Nic>) -> bool {
        let configured = self.config.interface.as_ref().map(|name| name.as_str().to_owned());
        let names = configured.into_iter().chain(nic.map(|nic| nic.name.clone())).collect();
        let links = nic.iter().map(|nic| nic.index).collect();
        self.ties.watched.send_if_modified(|watched| {
            let names = std::mem::replace(&mut watched.gateway_interfaces, names);
            let links = std::mem::replace(&mut watched.gateway_links, links);
            names != watched.gateway_interfaces || links != watched.gateway_links
        })
    }

    /// Has the bridge follow its NIC: to another name, another MAC address and another MTU.
    pub(super) async fn follow_nic(
        &mut self,
        mut host: Host,
        seen: &Seen,
        name: &str,
    ) -> Result<Host, Waiting> {
        let bridge = &seen.bridges[name];
        // What Open vSwitch opens by itself (DPDK) is no link of the kernel.
        let is_link = |port: &&str| bridge.port(port).is_none_or(SeenPort::is_link);
        let Some(uplink) = bridge.uplink(name).filter(is_link) else { return Ok(host) };
        if let Some(nic) = host.nic(uplink)
            && self.watch_nic(Some(&nic))
        {
            // A change before this was no event.
            host = self.host().await?;
        }
        let Some(nic) = host.nic(uplink) else {
            let before = self.nic.as_ref().filter(|nic| nic.name == uplink);
            return Err(match before.and_then(|nic| host.name_of(nic.index)) {
                Some(now) if !seen.has_port(now) => self.replace_nic(name, uplink, now).await,
                _ => Waiting::event(format!("{uplink}, the NIC of bridge {name}, does not exist")),
            });
        };
        if !seen.has_port(uplink) && bridge.is_marked() {
            // Open vSwitch's start has given it back to the host, and the host has configured it.
            if !host.addresses_on(uplink, &[]).is_empty() {
                self.prepare_move(&host, seen, uplink).await?;
            }
            let restored = uplink::restore(&self.ties.endpoint, name, uplink).await;
            let why = restored
                .map_or_else(|error| chain(&error), |()| "it has just been added".to_owned());
            return Err(Waiting::failed(format!(
                "{uplink}, the NIC of bridge {name}, is none of its ports: {why}"
            )));
        }
        let before = self.nic.as_ref().filter(|before| before.name == uplink);
        let changes =
            before.map(|before| nic.changes(before, bridge.told(name))).unwrap_or_default();
        let is_another = before.is_some_and(|before| before.index != nic.index);
        self.follow(seen, name, &changes).await?;
        if is_another && bridge.in_user_space {
            return Err(self.replace_nic(name, uplink, uplink).await);
        }
        self.nic = Some(nic);
        Ok(host)
    }

    async fn follow(
        &self,
        seen: &Seen,
        bridge: &str,
        changes: &[nic::Change],
    ) -> Result<(), Waiting> {
        let Some(change) = seen.following(bridge, changes).filter(|_| !changes.is_empty()) else {
            return Ok(());
        };
        let done = self.ties.client.transact(change).await;
        done.map_err(|error| {
            Waiting::failed(format!("Open vSwitch's database: {}", chain(&error)))
        })?;
        for change in changes {
            tracing::info!(bridge, now = %change, "the gateway's bridge follows its NIC");
        }
        Ok(())
    }

    /// Puts the NIC into the bridge again, perhaps under a new name. The event of that starts the
    /// next comparison.
    async fn replace_nic(&mut self, bridge: &str, before: &str, now: &str) -> Waiting {
        let switch = ControlSocket::of(&self.ties.ovs_run_dir, VSWITCHD);
        match uplink::replace(&self.ties.endpoint, &switch, bridge, before, now).await {
            Ok(()) => {
                tracing::info!(
                    bridge,
                    before,
                    now,
                    "the NIC of the gateway's bridge is another one"
                );
                self.nic = None;
                // Until the rows are here, the bridge seems to lack the port.
                self.echo(|seen| seen.has_port(now)).await;
                Waiting::failed(format!(
                    "{before}, the NIC of bridge {bridge}, has just been replaced by {now}"
                ))
            }
            Err(error) => Waiting::failed(format!(
                "{before}, the NIC of bridge {bridge}, is {now} now, and cannot be made its uplink again: {}",
                chain(&error)
            )),
        }
    }
}
