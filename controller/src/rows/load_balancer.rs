//! A load balancer. Columns follow ovn-nb(5), "Load_Balancer TABLE".

use std::{collections::BTreeMap, net::IpAddr};

use contract::{names::ServiceKey, ovn};
pub use kubeapi::services::Protocol;
use kubeapi::services::{Family, Service};
use ovsdb::Datum;

use super::{DesiredRow, Membership, Pairs, RowName, Table, Value};

/// Backends for addresses and ports, of one protocol.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadBalancer {
    pub service: ServiceKey,
    pub protocol: Protocol,
    /// What tells the load balancers of one Service and protocol apart, as [`ovn::load_balancer`] has it.
    pub part: String,
    /// By `address:port`: `address:port,…`, where an empty list refuses connections.
    pub vips: BTreeMap<Box<str>, String>,
    pub options: Options,
    /// The switches, routers and groups that have it.
    pub on: Vec<RowName>,
    /// Others that have the same effect.
    pub or_on: Vec<RowName>,
}

/// How connections are treated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// What happens where there is no backend.
    pub without_backend: WithoutBackend,
    /// Whether a gateway router leaves the source address as it is.
    pub skip_snat: bool,
    /// Seconds for which a client gets the same backend.
    pub affinity: Option<u32>,
    /// The family of the addresses that its variables stand for; none without variables.
    pub template: Option<Family>,
    /// The source of a connection that leads back to its own client, one of each family.
    pub hairpin: [IpAddr; 2],
}

/// What happens to a connection that no backend can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WithoutBackend {
    /// It is refused: TCP RST, ICMP port unreachable, SCTP ABORT.
    Reject,
    /// It is dropped, and the southbound database gets a `Controller_Event`.
    Event,
}

/// A client keeps its backend for as long as there are packets. The API's longest timeout (one day); upstream
/// spreads by a hash of the addresses there, and has no learned flow for each client.
const BY_HASH: u32 = 86_400;

/// Whether a load balancer with variables can have the affinity: upstream gives it none that OVN would have
/// to learn.
pub(crate) fn template_affinity(service: &Service) -> bool {
    service.affinity.is_none_or(|timeout| timeout == BY_HASH)
}

/// As OVN spells it.
fn lower(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => "sctp",
    }
}

impl From<LoadBalancer> for DesiredRow {
    fn from(load_balancer: LoadBalancer) -> Self {
        let LoadBalancer { service, protocol, part, vips, options, on, or_on } = load_balancer;
        let by_hash = options.affinity == Some(BY_HASH);
        let fields: &[&str] = if by_hash { &["ip_src", "ip_dst"] } else { &[] };
        let ids = [(ovn::KIND, ovn::SERVICE.to_owned()), (ovn::OWNER, service.as_str().to_owned())];
        let members =
            |rows: Vec<RowName>| rows.into_iter().map(|of| Membership::of(of, "load_balancer")).collect();
        Self {
            id: Table::LoadBalancer.row(ovn::load_balancer(&service, protocol.as_str(), &part)),
            columns: vec![
                ("protocol", Value::Datum(Datum::set([lower(protocol)]))),
                ("vips", Value::Lists(vips)),
                ("selection_fields", Value::Datum(Datum::set(fields.iter().copied()))),
                ("options", Value::Pairs(options.pairs())),
                ("external_ids", Value::Pairs(ids.into())),
            ],
            member_of: members(on),
            or_member_of: members(or_on),
            needs: Vec::new(),
        }
    }
}

impl Options {
    fn pairs(&self) -> Pairs {
        let Self { without_backend, skip_snat, affinity, template, hairpin: [v4, v6] } = self;
        let (reject, event) = match without_backend {
            WithoutBackend::Reject => ("true", "false"),
            WithoutBackend::Event => ("false", "true"),
        };
        let mut with = BTreeMap::from([
            ("reject", reject.to_owned()),
            ("event", event.to_owned()),
            ("skip_snat", skip_snat.to_string()),
            // A router would answer ARP requests for every address.
            ("neighbor_responder", "none".to_owned()),
            ("hairpin_snat_ip", format!("{v4} {v6}")),
        ]);
        with.extend(
            affinity.filter(|timeout| *timeout != BY_HASH).map(|s| ("affinity_timeout", s.to_string())),
        );
        if let Some(family) = template {
            let family = match family {
                Family::V4 => "ipv4",
                Family::V6 => "ipv6",
            };
            with.extend([("template", "true".to_owned()), ("address-family", family.to_owned())]);
        }
        // Of an earlier state.
        Pairs { without: &["affinity_timeout", "template", "address-family"], ..with.into() }
    }
}
