//! The way of one packet of a question, and the verdict: through OVN, to each endpoint of a
//! Service, through the switches, and at another node if it leaves for one.

use std::net::IpAddr;

use contract::{mac::Mac, ovn::management_port, wire::TraceProtocol};

use super::{
    TracePlaces, VERDICT,
    ends::Destination,
    objects,
    program::Packet,
    question::TraceQuestion,
    steps::{self, WayEnd},
    topology::{Binding, NoNeighbour},
    way::{self, Verdict, Way},
    ways::is_of,
};
use crate::findings::{Finding, State};

const LOGICAL: &str = "logical path";

/// What became of a packet, and of each copy of it that a load balancer might have sent elsewhere.
#[derive(Debug, Default)]
pub(super) struct Passage {
    pub(super) findings: Vec<Finding>,
    /// With the endpoint, if a load balancer chooses one.
    pub(super) verdicts: Vec<(Option<String>, Verdict)>,
    /// Endpoints that are not followed.
    pub(super) left_out: usize,
    /// Why a switch does not deliver what OVN does.
    pub(super) dropped: Option<String>,
    /// It leaves OVN: for the physical network, or for the host of its own node.
    pub(super) leaves: bool,
}

impl Passage {
    pub(super) fn of(verdict: Verdict) -> Self {
        Self { verdicts: vec![(None, verdict)], ..Self::default() }
    }

    /// The half of a way that begins in the zone of this node: what is delivered here may be
    /// stopped there.
    fn half(mut self, node: &str) -> Self {
        for (_, verdict) in &mut self.verdicts {
            if let Verdict::Delivered(said) = verdict {
                *verdict = Verdict::Unclear(format!(
                    "in this zone, what comes from node {node} is {said}; whether the zone of \
                     that node sends it, its databases say: ask there"
                ));
            }
        }
        self
    }

    /// Adds that of the packet to one endpoint.
    pub(super) fn add(&mut self, other: Self, endpoint: Option<String>) {
        let Self { findings, verdicts, left_out, dropped, leaves } = other;
        self.findings.extend(findings);
        let verdicts =
            verdicts.into_iter().map(|(own, verdict)| (own.or(endpoint.clone()), verdict));
        self.verdicts.extend(verdicts);
        self.left_out += left_out;
        self.dropped = self.dropped.take().or(dropped);
        self.leaves |= leaves;
    }
}

impl TracePlaces<'_> {
    /// The findings about a packet, and the verdict.
    pub(super) async fn follow(
        &self,
        start: &Binding,
        (from, to): (IpAddr, IpAddr),
        destination: &Destination,
    ) -> (Vec<Finding>, Finding) {
        let name = format!("{from} to {to}");
        let sent = match self.unclaimed(&start.port) {
            Some(why) => Err(why),
            None => self.packet(start, from, to, self.question.protocol),
        };
        let passage = match sent {
            Err(why) if start.is_remote() => Passage::of(Verdict::Unclear(why)),
            Err(why) => Passage::of(Verdict::Stopped(why)),
            Ok(packet) => match self.passes(start, &packet, destination.port.as_deref()).await {
                Err(why) => Passage::of(Verdict::Unclear(why)),
                Ok(passage) => match start.node_elsewhere() {
                    Some(node) => passage.half(node),
                    None => self.and_on(start, to, passage).await,
                },
            },
        };
        concluded(&name, passage, self.question)
    }

    /// With what becomes of the packet at another node, if it leaves for one.
    async fn and_on(&self, start: &Binding, to: IpAddr, passage: Passage) -> Passage {
        if !passage.leaves || self.question.protocol == TraceProtocol::Icmp {
            return passage;
        }
        let own = self.topology.datapath(start).name;
        let Some(mut there) = self.at_other_node(&own, to).await else { return passage };
        there.findings.splice(0..0, passage.findings);
        there.dropped = passage.dropped.or(there.dropped);
        there
    }

    /// What becomes of a packet that is sent at this port.
    ///
    /// # Errors
    ///
    /// ovn-trace fails, or a database does not answer.
    pub(super) async fn passes(
        &self,
        start: &Binding,
        packet: &Packet,
        expected: Option<&str>,
    ) -> Result<Passage, String> {
        let name = format!("{} to {}", packet.source, packet.destination);
        let ways = self.ways(start, packet).await?;
        let mut passage = Passage { left_out: ways.left_out, ..Passage::default() };
        for (endpoint, way) in &ways.all {
            if let Some(endpoint) = endpoint {
                let said = format!("to the endpoint {endpoint}");
                passage.findings.push(Finding::new(LOGICAL, &name, State::Ok, &said));
            }
            passage.findings.extend(way.findings(LOGICAL));
            let verdict = self.verdict(packet, endpoint.as_deref(), way, expected).await;
            let own_host = management_port(&self.topology.datapath(start).name);
            passage.leaves |= matches!(verdict, Verdict::Delivered(_))
                && endpoint.is_none()
                && match &way.end {
                    WayEnd::Network(_) | WayEnd::Neighbour(_) => true,
                    WayEnd::Port(port) => *port == own_host,
                    WayEnd::Dropped(_) | WayEnd::Refused(_) | WayEnd::Unknown => false,
                };
            passage.verdicts.push((endpoint.clone(), verdict));
        }
        let (passed, dropped) = self.physical(start, packet, &ways).await;
        passage.findings.extend(passed);
        passage.dropped = dropped;
        Ok(passage)
    }

    async fn verdict(
        &self,
        packet: &Packet,
        endpoint: Option<&str>,
        way: &Way,
        expected: Option<&str>,
    ) -> Verdict {
        let verdict = way.verdict(expected);
        if let WayEnd::Port(port) = &way.end
            && let Some(node) = self.topology.port(port).and_then(Binding::node_elsewhere)
        {
            return Verdict::Unclear(format!(
                "this zone sends it to node {node}; what the zone of that node does, its \
                 databases say: ask there"
            ));
        }
        // OVN translates the source of a packet that comes back to its sender, and lets it in;
        // ovn-trace does not always translate.
        if endpoint.is_some_and(|own| is_of(own, packet.source)) && way.is_kept_out() {
            let sender = way::of_port(&packet.inport);
            return Verdict::Delivered(format!("delivered to {sender}, which asks itself"));
        }
        if let (Verdict::Delivered(_), WayEnd::Port(port)) = (&verdict, &way.end)
            && let Some(why) = self.unclaimed(port)
        {
            return Verdict::Stopped(why);
        }
        if let (Verdict::Stopped(why), Some((step, object))) = (&verdict, self.isolation(way)) {
            let port = if step.stage.starts_with("ls_in") { &step.inport } else { &step.outport };
            if object.isolates
                && let Some(north) = &self.north
                && let Ok(policies) = objects::selecting(north, port).await
            {
                let policies = policies.join(", ");
                return Verdict::Stopped(format!(
                    "{why}: {} is selected by {policies}, and no rule allows this",
                    way::of_port(port)
                ));
            }
        }
        verdict
    }

    /// Why the port sends and takes nothing, if no chassis has it.
    pub(super) fn unclaimed(&self, port: &str) -> Option<String> {
        let is_claimed = self.topology.port(port).is_some_and(|binding| binding.chassis.is_some());
        let of_port = way::of_port(port);
        (!is_claimed).then(|| {
            format!("no chassis has claimed the port {port}: {of_port} is attached to no node")
        })
    }

    /// The ACL that decides about a packet that does not arrive.
    fn isolation<'w>(&self, way: &'w Way) -> Option<(&'w steps::Step, &'w objects::Object)> {
        match way.end {
            WayEnd::Dropped(index) | WayEnd::Refused(index) => way.deciding(index),
            _ => None,
        }
    }

    /// The packet, as the owner of the port sends it.
    pub(super) fn packet(
        &self,
        start: &Binding,
        from: IpAddr,
        to: IpAddr,
        protocol: TraceProtocol,
    ) -> Result<Packet, String> {
        let mac = start.mac.ok_or_else(|| format!("the port {} has no MAC address", start.port))?;
        let switch = self.topology.datapath(start).name;
        let from_zone = start.is_remote().then(|| self.topology.way_from_zones(to));
        let destination_mac = match from_zone {
            Some(router) => router.and_then(|router| router.mac).ok_or_else(|| {
                format!("no pod or node of this zone has the address {to}: ask in its zone")
            })?,
            None => self.neighbour(start, &switch, to)?,
        };
        Ok(Packet {
            datapath: switch,
            inport: start.port.clone(),
            source_mac: mac,
            destination_mac,
            source: from,
            destination: to,
            protocol,
        })
    }

    fn neighbour(&self, start: &Binding, switch: &str, to: IpAddr) -> Result<Mac, String> {
        self.topology.next_mac(start, to).map_err(|why| match why {
            NoNeighbour::Nobody => {
                format!("{to} is in the subnet of {switch}, and no port has it: nobody answers")
            }
            NoNeighbour::NoRouter => format!("the switch {switch} has no router"),
        })
    }
}

/// The findings, and the verdict about all copies together.
pub(super) fn concluded(
    name: &str,
    passage: Passage,
    question: &TraceQuestion,
) -> (Vec<Finding>, Finding) {
    let Passage { mut findings, verdicts, left_out, dropped, leaves: _ } = passage;
    let mut verdict = summary(name, &verdicts, left_out);
    match dropped {
        Some(why) if verdict.state == State::Ok || verdict.state == State::Warning => {
            let why = format!("not delivered: {why}");
            verdict = Finding::new(VERDICT, name, State::Failed, &why).next("ovnkube status");
        }
        _ => {}
    }
    if verdict.state != State::Failed {
        // One way of several that is stopped.
        let stopped = findings.iter_mut().filter(|finding| finding.state == State::Failed);
        stopped.for_each(|finding| finding.state = State::Warning);
    }
    if verdict.state == State::Failed
        && let Some(port) = question.port()
    {
        let (client, server) = (&question.from, &question.to);
        verdict = verdict.next(&format!("ovnkube policy explain {client} {server} {port}"));
    }
    (findings, verdict)
}

/// The verdicts about all endpoints together.
pub(super) fn summary(
    name: &str,
    verdicts: &[(Option<String>, Verdict)],
    left_out: usize,
) -> Finding {
    let found = |state, said: &str| Finding::new(VERDICT, name, state, said);
    if let [(None, only)] = verdicts {
        return match only {
            Verdict::Delivered(said) => found(State::Ok, said),
            Verdict::Stopped(why) => found(State::Failed, &format!("not delivered: {why}")),
            Verdict::Unclear(why) => found(State::Unknown, why),
        };
    }
    let all = verdicts.len();
    let passed = verdicts.iter().filter(|(_, it)| matches!(it, Verdict::Delivered(_))).count();
    let reasons = verdicts.iter().filter_map(|(endpoint, verdict)| {
        let endpoint = endpoint.as_deref().unwrap_or_default();
        match verdict {
            Verdict::Delivered(said) if passed == all => Some(format!("{endpoint}: {said}")),
            Verdict::Delivered(_) => None,
            Verdict::Stopped(why) | Verdict::Unclear(why) => Some(format!("{endpoint}: {why}")),
        }
    });
    let reasons = reasons.collect::<Vec<_>>().join("; ");
    let more = match left_out {
        0 => String::new(),
        more => format!("; {more} more endpoints are not followed"),
    };
    let is_any_unclear = verdicts.iter().any(|(_, it)| matches!(it, Verdict::Unclear(_)));
    match passed {
        0 if is_any_unclear => found(State::Unknown, &format!("{reasons}{more}")),
        0 => found(
            State::Failed,
            &format!("not delivered to any of {all} endpoints: {reasons}{more}"),
        ),
        _ if passed == all => {
            found(State::Ok, &format!("delivered to each endpoint: {reasons}{more}"))
        }
        _ => {
            let said = format!("delivered to {passed} of {all} endpoints: {reasons}{more}");
            found(State::Warning, &said)
        }
    }
    .with("endpoints", all)
    .with("delivered", passed)
}
