//! The move of a NIC to a bridge by the server itself, with nobody who reads its output: whether it
//! may be done, and that it is taken back if the node cannot be reached afterwards.

use std::{collections::VecDeque, time::Duration};

use contract::error::chain;
use tokio::time::Instant;

use super::{
    GatewayReconciler, Waiting,
    bridge::{self, Note, Seen, SeenBridge},
    cleanup,
    config::ManagedNic,
    host::Host,
    lease::BridgeLeases,
    moves::FailedMoves,
    trial::Trial,
};

/// So many times within this time an address that comes back to the NIC is moved again. A DHCP
/// client renews a lease every minute at most; one that puts its address back at once would move it
/// for ever.
const RETURNS: usize = 5;
const WITHIN: Duration = Duration::from_secs(60);
/// Where a person reads what to do.
const HOW_TO: &str = "docs/running.md, \"A NIC that another program configures\"";

/// What is known of moves.
#[derive(Debug, Default)]
pub(super) struct UplinkMoves {
    /// A NIC that is not tried again: its index, and why. Another NIC of the name, or a restart,
    /// ends that.
    halted: Option<(u32, String)>,
    /// When addresses had come back to the NIC.
    returns: VecDeque<Instant>,
    /// What the node's event said last.
    said: String,
}

impl UplinkMoves {
    /// Notes that an address has come back. Returns whether it may be moved.
    fn comes_back(&mut self, now: Instant) -> bool {
        self.returns.retain(|then| now.duration_since(*then) < WITHIN);
        let may = self.returns.len() < RETURNS;
        if may {
            self.returns.push_back(now);
        }
        may
    }
}

impl GatewayReconciler {
    /// The NIC of a bridge that was made for it, if it has an address: a server has died in the
    /// middle of the move, or another program has given it its address again.
    pub(super) fn left_on_nic<'b>(
        &self,
        host: &Host,
        bridge: &'b SeenBridge,
        name: &str,
    ) -> Option<&'b str> {
        let is_ours = bridge.is_marked() || self.finished.is_none();
        let nic = bridge.uplink(name).filter(|nic| is_ours && name == format!("br{nic}"))?;
        (!host.addresses_on(nic, &[]).is_empty()).then_some(nic)
    }

    /// Makes the interface the uplink of a new bridge. The event of that starts the next
    /// comparison.
    pub(super) async fn make_bridge(
        &mut self,
        host: &Host,
        seen: &Seen,
        interface: &str,
    ) -> Waiting {
        if !host.has(interface) {
            return Waiting::event(format!("interface {interface} does not exist yet"));
        }
        let made = async {
            self.prepare_move(host, seen, interface).await?;
            self.move_nic(seen, interface).await?;
            self.echo(|now| now.bridge_of(interface).is_some()).await;
            Ok(())
        };
        match made.await {
            Ok(()) => Waiting::failed(format!(
                "interface {interface} has just become the uplink of a bridge"
            )),
            Err(waiting) => waiting,
        }
    }

    /// Refuses a NIC that must not be moved. Of another one, writes down what has to answer
    /// afterwards.
    pub(super) async fn prepare_move(
        &mut self,
        host: &Host,
        seen: &Seen,
        nic: &str,
    ) -> Result<(), Waiting> {
        self.refuse_halted(host, nic)?;
        self.refuse_managed(nic).await?;
        self.begin_trial(host, seen, nic).await
    }

    /// Moves what has come back to the NIC, or was left there. Returns the host as it is
    /// afterwards.
    pub(super) async fn move_rest(
        &mut self,
        host: &Host,
        seen: &Seen,
        nic: &str,
    ) -> Result<Host, Waiting> {
        self.refuse_halted(host, nic)?;
        if !self.moves.comes_back(Instant::now()) {
            let why = format!(
                "{nic} gets its address again and again from another program, beside its bridge; see {HOW_TO}"
            );
            self.tell_node(&why);
            return Err(Waiting::event(why));
        }
        self.move_nic(seen, nic).await?;
        self.host().await
    }

    /// Decides a trial that has not ended: the node is reachable over its bridge, or the NIC is
    /// given back.
    pub(super) async fn judge(
        &mut self,
        host: &Host,
        seen: &Seen,
        trial: &Trial,
    ) -> Result<(), Waiting> {
        let (nic, bridge) = (&trial.nic, format!("br{}", trial.nic));
        // The move is younger than what the monitor has reported.
        if host.has(&bridge) && !seen.bridges.contains_key(&bridge) {
            return Err(Waiting::failed(format!("bridge {bridge} has just been made")));
        }
        // A server that has died before the move has left a record without a bridge; a start of
        // Open vSwitch may have given the NIC back.
        if seen.bridges.get(&bridge).is_some_and(|seen| seen.port(nic).is_some()) {
            // A server has died in the middle of the move.
            if !host.addresses_on(nic, &[]).is_empty() {
                self.move_nic(seen, nic).await?;
            }
            if let Err(silent) = trial.end(&bridge, self.ties.api_server.as_ref()).await {
                let why = format!(
                    "{nic} was the uplink of {bridge} for a moment and is not any more: {silent} did not answer over it"
                );
                self.give_back(host, seen, nic, why).await?;
            } else {
                tracing::info!(
                    bridge,
                    "what answered before the NIC was moved answers over the bridge, too"
                );
            }
        }
        self.write_note(seen, Note::Trial, None).await?;
        match self.moves.halted {
            None => Ok(()),
            Some(_) => self.refuse_halted(host, &trial.nic),
        }
    }

    /// Gives the NIC its addresses and routes again, without a bridge, and leaves it alone from now
    /// on.
    pub(super) async fn give_back(
        &mut self,
        host: &Host,
        seen: &Seen,
        nic: &str,
        why: String,
    ) -> Result<(), Waiting> {
        let bridge = format!("br{nic}");
        tracing::warn!(nic, bridge, why, "the NIC is given back");
        if seen.bridges.get(&bridge).is_some_and(SeenBridge::is_marked) {
            self.close_gateway(seen, &bridge).await;
        }
        let report =
            uplink::bridge_to_nic(&self.ties.endpoint, &bridge).await.map_err(|error| {
                Waiting::failed(format!("{nic} cannot be given back: {}", chain(&error)))
            })?;
        for line in report {
            tracing::warn!(bridge, "{line}");
        }
        (self.finished, self.nic, self.leases) = (None, None, BridgeLeases::default());
        self.halt(host, nic, why);
        self.write_note(seen, Note::Lease, None).await
    }

    /// Takes the gateway from the bridge. A failure does not keep the NIC from its addresses.
    async fn close_gateway(&mut self, seen: &Seen, bridge: &str) {
        self.flows.leave();
        let patch_ports = bridge::patch_ports(&self.updates);
        let ports = (patch_ports.as_slice(), self.ties.ovs_run_dir.as_path());
        let bridges = [bridge.to_owned()];
        let mut removed = cleanup::Removed::default();
        let closed =
            cleanup::remove_from(&bridges, &self.ties.client, seen, ports, &mut removed).await;
        if let Err(error) = closed {
            tracing::warn!(
                bridge,
                error = chain(&error),
                "the gateway of a bridge that goes cannot be removed"
            );
        }
    }

    pub(super) fn refuse_halted(&self, host: &Host, nic: &str) -> Result<(), Waiting> {
        let index = host.nic(nic).map(|nic| nic.index);
        match &self.moves.halted {
            Some((halted, why)) if Some(*halted) == index => Err(Waiting::event(why.clone())),
            _ => Ok(()),
        }
    }

    /// Leaves a NIC alone whose address nobody would renew, and which would not be configured after
    /// a reboot.
    async fn refuse_managed(&mut self, nic: &str) -> Result<(), Waiting> {
        if self.config.managed_nic == ManagedNic::Move {
            return Ok(());
        }
        let claims = uplink::claims(nic)
            .await
            .map_err(|error| Waiting::failed(format!("{nic}: {}", chain(&error))))?;
        if claims.is_empty() {
            return Ok(());
        }
        let why = format!(
            "{nic} is not made the uplink of a bridge, because nobody would keep its addresses there: {}. \
             Configure br{nic} in its place, or set --gateway-move-managed-interface; see {HOW_TO}",
            claims.join("; ")
        );
        self.tell_node(&why);
        Err(Waiting::event(why))
    }

    async fn begin_trial(&mut self, host: &Host, seen: &Seen, nic: &str) -> Result<(), Waiting> {
        let routers: Vec<_> = host
            .routes
            .iter()
            .filter(|route| route.link == nic)
            .filter_map(|route| route.via)
            .collect();
        let trial = Trial::of(nic, &routers, self.ties.api_server.as_ref())
            .await
            .map_err(|error| Waiting::failed(format!("{nic}: {}", chain(&error))))?;
        if trial.is_empty() {
            tracing::info!(
                interface = nic,
                "nothing answers over the NIC: its move is not tried out"
            );
            return Ok(());
        }
        self.write_note(seen, Note::Trial, Some(&trial.to_string())).await
    }

    async fn move_nic(&mut self, seen: &Seen, nic: &str) -> Result<(), Waiting> {
        if let Some(why) = self.failed_moves.pause(nic) {
            return Err(Waiting::event(why));
        }
        let leases = uplink::leases(nic).await;
        let leases =
            leases.map_err(|error| Waiting::failed(format!("{nic}: {}", chain(&error))))?;
        if leases != uplink::Leases::default() {
            self.write_note(seen, Note::Lease, Some(nic)).await?;
        }
        match uplink::nic_to_bridge(&self.ties.endpoint, nic).await {
            Ok(report) => {
                self.failed_moves = FailedMoves::default();
                for line in report {
                    tracing::info!(interface = nic, "{line}");
                }
                Ok(())
            }
            Err(error) => {
                let why = chain(&error);
                self.failed_moves.add(&why);
                Err(Waiting::failed(format!("{nic} cannot be made the uplink of a bridge: {why}")))
            }
        }
    }

    async fn write_note(
        &mut self,
        seen: &Seen,
        note: Note,
        text: Option<&str>,
    ) -> Result<(), Waiting> {
        let Some(change) = seen.noting(note, text) else { return Ok(()) };
        let written = self.ties.client.transact(change).await;
        written.map_err(|error| {
            Waiting::failed(format!("Open vSwitch's database: {}", chain(&error)))
        })?;
        self.echo(|now| now.note(note) == text).await;
        Ok(())
    }

    /// Leaves the NIC alone from now on: one more attempt would end the node's connections once
    /// more.
    fn halt(&mut self, host: &Host, nic: &str, why: String) {
        let why = format!("{why}; it is not tried again before ovnkube is restarted");
        self.tell_node(&why);
        self.moves.halted = host.nic(nic).map(|nic| (nic.index, why));
    }

    /// Writes an event on the Node, and into the log, if it says something new.
    fn tell_node(&mut self, why: &str) {
        if self.moves.said != why {
            tracing::error!(why, "the node's gateway");
            self.ties.events.uplink_not_moved(&self.ties.node, why);
            why.clone_into(&mut self.moves.said);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_comes_back_all_the_time_is_not_moved_for_ever() {
        let (mut moves, start) = (UplinkMoves::default(), Instant::now());
        for seconds in 0..5 {
            assert!(moves.comes_back(start + Duration::from_secs(seconds)));
        }
        assert!(!moves.comes_back(start + Duration::from_secs(6)));
        assert!(
            moves.comes_back(start + Duration::from_secs(61)),
            "a lease of two minutes goes on"
        );
    }
}
