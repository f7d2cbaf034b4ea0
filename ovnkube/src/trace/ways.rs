//! The ways of one packet through OVN: one, or one for each endpoint among which a load balancer
//! chooses. Runs ovn-trace.

use std::net::{IpAddr, SocketAddr};

use contract::ovn::GATEWAY_ROUTER_PREFIX;

use super::{
    TracePlaces,
    frontends::{Frontend, Frontends},
    objects::{self, Object},
    program::Packet,
    steps::{self, Step, backends},
    topology::Binding,
    way::Way,
};

/// The most endpoints of a Service that are followed.
const MOST_ENDPOINTS: usize = 8;
/// How often ovn-trace is run until it chooses the endpoint that is the sender: among 8, it chooses
/// that one in 9 of 10 cases.
const MOST_CHOICES: usize = 16;
/// The type of a port to the physical network (ovn-nb(5)).
pub(super) const LOCALNET: &str = "localnet";

impl TracePlaces<'_> {
    /// The ways of the packet: one, or one for each endpoint among which a load balancer chooses.
    pub(super) async fn ways(&self, start: &Binding, packet: &Packet) -> Result<Ways, String> {
        if let Some(frontend) = self.with_variable(start, packet).await? {
            return self.to_backends(packet, &frontend).await;
        }
        let steps = steps::read(&packet.trace(self.southbound, None).await?);
        // Behind the first switch, and the gateway router of a packet from outside, the choice is
        // ovn-trace's own.
        let is_outer = start.kind == LOCALNET;
        let is_first = |step: &Step| match is_outer {
            true => {
                step.stage.starts_with("lr_in_dnat")
                    && step.datapath.starts_with(GATEWAY_ROUTER_PREFIX)
            }
            false => step.stage.starts_with("ls_in_lb") && step.datapath == packet.datapath,
        };
        let balanced = steps.iter().position(is_first);
        let endpoints = balanced.and_then(|index| Some((index, backends(steps.get(index)?)?)));
        let Some((index, endpoints)) = endpoints else {
            let way = self.way(steps).await?;
            return Ok(Ways { all: vec![(None, way)], left_out: 0 });
        };
        let table = steps[index].table;
        if let [only] = &endpoints[..] {
            let way = self.way(steps).await?;
            return Ok(Ways { all: vec![(Some(only.clone()), way)], left_out: 0 });
        }
        let mut all = Vec::new();
        for endpoint in endpoints.iter().take(MOST_ENDPOINTS) {
            let steps = match self.to_itself(packet, endpoint).await? {
                Some(steps) => steps,
                None => {
                    // With a chosen endpoint, the packet is on its way there from the start.
                    let output = packet.trace(self.southbound, Some(endpoint)).await?;
                    if is_outer {
                        all.push((Some(endpoint.clone()), self.way(steps::read(&output)).await?));
                        continue;
                    }
                    let before = steps[..=index].iter().cloned();
                    let is_before =
                        |step: &Step| step.stage.starts_with("ls_in_") && step.table <= table;
                    let after = steps::read(&output).into_iter().skip_while(is_before);
                    before.chain(after).collect()
                }
            };
            all.push((Some(endpoint.clone()), self.way(steps).await?));
        }
        Ok(Ways { all, left_out: endpoints.len().saturating_sub(MOST_ENDPOINTS) })
    }

    /// The steps of a packet that comes back to its sender, which is the endpoint. OVN translates
    /// its source, and ovn-trace does so only where it has chosen the endpoint itself.
    async fn to_itself(
        &self,
        packet: &Packet,
        endpoint: &str,
    ) -> Result<Option<Vec<Step>>, String> {
        if !is_of(endpoint, packet.source) {
            return Ok(None);
        }
        for _ in 0..MOST_CHOICES {
            let steps = steps::read(&packet.trace(self.southbound, None).await?);
            let is_routed = steps.iter().any(|step| step.stage.starts_with("lr_"));
            if !is_routed {
                return Ok(Some(steps));
            }
        }
        Ok(None)
    }

    /// The load balancer that ovn-trace does not see.
    async fn with_variable(
        &self,
        start: &Binding,
        packet: &Packet,
    ) -> Result<Option<Frontend>, String> {
        let (Some(north), Some(port)) = (&self.north, packet.protocol.port()) else {
            return Ok(None);
        };
        // An address of OVN's, or the router of the packet balances.
        if self.topology.holder(packet.destination).is_some() || start.kind == LOCALNET {
            return Ok(None);
        }
        let chassis = self.topology.chassis_name(start);
        let frontends = Frontends::read(north, chassis).await?;
        Ok(frontends.with_variable(SocketAddr::new(packet.destination, port), packet.protocol))
    }

    /// The packet's ways to the backends: behind the load balancer it has another destination, and
    /// the same Ethernet address.
    async fn to_backends(&self, packet: &Packet, frontend: &Frontend) -> Result<Ways, String> {
        let first = frontend.step(&packet.datapath, &packet.inport);
        let object =
            Object { name: frontend.name.clone(), action: "balance".to_owned(), isolates: false };
        let with_first = |steps: Vec<Step>| std::iter::once(first.clone()).chain(steps).collect();
        let alike = |backend: &&SocketAddr| backend.is_ipv6() == packet.destination.is_ipv6();
        let backends: Vec<&SocketAddr> = frontend.backends.iter().filter(alike).collect();
        let mut all = Vec::new();
        if backends.is_empty() {
            all.push((None, self.way(with_first(Vec::new())).await?));
        }
        for backend in backends.iter().take(MOST_ENDPOINTS) {
            let protocol = packet.protocol.to_port(backend.port());
            if backend.ip() == packet.source {
                // The switch sends it back, before and after no policy.
                let steps = vec![hairpin(packet)];
                all.push((Some(backend.to_string()), self.way(with_first(steps)).await?));
                continue;
            }
            let behind = Packet { destination: backend.ip(), protocol, ..packet.clone() };
            let steps = steps::read(&behind.trace(self.southbound, None).await?);
            all.push((Some(backend.to_string()), self.way(with_first(steps)).await?));
        }
        for (_, way) in &mut all {
            way.objects.insert(0, object.clone());
        }
        Ok(Ways { all, left_out: backends.len().saturating_sub(MOST_ENDPOINTS) })
    }

    async fn way(&self, steps: Vec<Step>) -> Result<Way, String> {
        let objects = match &self.north {
            Some(north) => objects::of(&steps, north).await?,
            None => std::collections::BTreeMap::new(),
        };
        Ok(Way { end: steps::end(&steps), steps, objects })
    }
}

/// The ways of a packet, each to the endpoint that a load balancer chooses.
pub(super) struct Ways {
    pub(super) all: Vec<(Option<String>, Way)>,
    /// Endpoints that are not followed.
    pub(super) left_out: usize,
}

/// The step that sends a packet back to its sender.
fn hairpin(packet: &Packet) -> Step {
    Step {
        datapath: packet.datapath.clone(),
        inport: packet.inport.clone(),
        stage: "ls_in_hairpin".to_owned(),
        actions: vec![format!("/* output to \"{}\", type \"\" */", packet.inport)],
        ..Step::default()
    }
}

/// Whether the endpoint has this address.
pub(super) fn is_of(endpoint: &str, address: IpAddr) -> bool {
    endpoint.parse::<SocketAddr>().is_ok_and(|endpoint| endpoint.ip() == address)
}
