//! A load balancer. Columns follow ovn-nb(5), "Load_Balancer TABLE".

use std::{collections::BTreeMap, net::IpAddr};

use contract::{fnv1a::fnv1a, names::ServiceKey, ovn};
use kubeapi::services::{Family, Service, affinity_lots};
use ovsdb::Datum;

use crate::rows::{DesiredRow, Membership, Pairs, RowName, Table, Value};

pub use kubeapi::services::Protocol;

/// Backends for addresses and ports, of one protocol.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadBalancer {
    pub service: ServiceKey,
    pub protocol: Protocol,
    /// What tells the load balancers of one Service and protocol apart, as [`ovn::load_balancer`]
    /// has it.
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
    /// Seconds for which a client is to get the same backend; it gets it for as long as there is
    /// that backend.
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

/// The API's longest timeout (one day): upstream spreads by a hash of the addresses there, and has
/// a learned flow for each client otherwise.
const BY_HASH: u32 = 86_400;

/// Whether a load balancer with variables can have the affinity: upstream gives it none that OVN
/// would have to learn.
pub(crate) fn template_affinity(service: &Service) -> bool {
    service.affinity.is_none_or(|timeout| timeout == BY_HASH)
}

/// The backends as lots, so that a client keeps its backend while others come and go: OVN draws a
/// number by the client's address, and a change of one backend changes the lots of that one alone
/// (docs/decisions/affinity-by-hash.md).
fn in_lots(backends: &str) -> String {
    let all: Vec<&str> = backends.split(',').collect();
    let lots = affinity_lots(all.len());
    // A variable stands for a list that is not known here.
    if lots == all.len() || backends.starts_with('^') {
        return backends.to_owned();
    }
    let all: Vec<(u64, &str)> =
        all.into_iter().map(|backend| (fnv1a(backend.bytes()), backend)).collect();
    let drawn =
        (0..).take(lots).filter_map(|lot| all.iter().max_by_key(|(hash, _)| chance(*hash, lot)));
    drawn.map(|(_, backend)| *backend).collect::<Vec<_>>().join(",")
}

/// How likely the backend with this hash has the lot: the largest one does. (The finalizer of
/// SplitMix64.)
fn chance(hash: u64, lot: u64) -> u64 {
    let mut mixed = hash ^ lot.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
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
        let by_address = Value::Datum(Datum::set(["ip_src", "ip_dst"]));
        let by_connection = Value::Datum(Datum::set::<&str>([]));
        let has_affinity = options.affinity.is_some();
        let mut or_columns = Vec::new();
        if let Some(timeout) = options.affinity {
            // As upstream has it.
            let learned = timeout != BY_HASH;
            let fields = if learned { by_connection.clone() } else { by_address.clone() };
            or_columns.extend([
                ("vips", Value::Lists(vips.clone())),
                ("selection_fields", fields),
                ("options", Value::pairs(options.pairs(learned.then_some(timeout)))),
            ]);
        }
        let (vips, fields) = if has_affinity {
            let vips = vips.into_iter().map(|(vip, backends)| (vip, in_lots(&backends)));
            (Value::Entries(vips.collect()), by_address)
        } else {
            (Value::Lists(vips), by_connection)
        };
        let ids = [(ovn::KIND, ovn::SERVICE.to_owned()), (ovn::OWNER, service.as_str().to_owned())];
        let members = |rows: Vec<RowName>| {
            rows.into_iter().map(|of| Membership::of(of, "load_balancer")).collect()
        };
        Self {
            id: Table::LoadBalancer.row(ovn::load_balancer(&service, protocol.as_str(), &part)),
            columns: vec![
                ("protocol", Value::Datum(Datum::set([lower(protocol)]))),
                ("vips", vips),
                ("selection_fields", fields),
                ("options", Value::pairs(options.pairs(None))),
                ("external_ids", Value::pairs(ids)),
            ],
            member_of: members(on),
            or_member_of: members(or_on),
            or_columns,
            needs: Vec::new(),
        }
    }
}

impl Options {
    /// `learned`: the timeout of an affinity that OVN learns.
    fn pairs(&self, learned: Option<u32>) -> Pairs {
        let Self { without_backend, skip_snat, affinity: _, template, hairpin: [v4, v6] } = self;
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
        with.extend(learned.map(|seconds| ("affinity_timeout", seconds.to_string())));
        if let Some(family) = template {
            let family = match family {
                Family::V4 => "ipv4",
                Family::V6 => "ipv6",
            };
            with.extend([("template", "true".to_owned()), ("address-family", family.to_owned())]);
        }
        // Of an earlier state, and of upstream.
        Pairs { without: &["affinity_timeout", "template", "address-family"], ..with.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backends(count: usize) -> Vec<String> {
        (1..=count).map(|host| format!("10.244.1.{host}:8080")).collect()
    }

    fn lots(backends: &[String]) -> Vec<String> {
        in_lots(&backends.join(",")).split(',').map(str::to_owned).collect()
    }

    /// Those behind a backend that left had its place, and its clients.
    #[test]
    fn a_backend_that_leaves_takes_nobody_elses_client_with_it() {
        for count in 2..=24 {
            let all = backends(count);
            let before = lots(&all);
            assert_eq!(before.len(), 256);
            for gone in 0..count {
                let mut rest = all.clone();
                let gone = rest.remove(gone);
                if rest.len() < 2 {
                    continue;
                }
                let after = lots(&rest);
                let moved = before.iter().zip(&after).filter(|(before, after)| before != after);
                assert!(moved.clone().all(|(before, _)| *before == gone), "{gone} of {count}");
                assert!(moved.count() > 0, "{gone} of {count} had no lot");
            }
        }
    }

    #[test]
    fn lots_are_shared_evenly() {
        for count in [2, 3, 5, 10] {
            let all = backends(count);
            let lots = lots(&all);
            for one in &all {
                let share = lots.iter().filter(|lot| *lot == one).count() * count;
                assert!((128..=400).contains(&share), "{one} of {count}: {share}");
            }
        }
    }

    #[test]
    fn one_backend_none_and_many_are_a_plain_list() {
        for text in ["", "10.244.1.4:8080", "^NODE_BACKENDS", &backends(25).join(",")] {
            assert_eq!(in_lots(text), text);
        }
    }
}
