//! Which Service serves an address and port that several of them want.
//!
//! | precedence | the address is one of |
//! |---|---|
//! | 1 | `clusterIPs`: the API server gives each to one Service |
//! | 2 | `status.loadBalancer.ingress`: a controller of load balancers wrote it |
//! | 3 | `externalIPs`: a user of a namespace wrote it |
//!
//! Of two Services with the same precedence the older one serves (`creationTimestamp`, then UID).
//! The other one has an event, and takes over when the first goes.
//!
//! An address of `externalIPs` has no effect at all if it is the cluster's own: in a range of pods,
//! of Services, or of OVN, or that of a node or of an API server. Without this rule, a user who may
//! create a Service takes connections of the whole cluster (CVE-2020-8554).
//!
//! The controller, the node's kernel and the flows of its bridge all ask here, so they agree. A
//! change costs as many steps as the Service has addresses and ports.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, hash_map::Entry},
    net::IpAddr,
    sync::Arc,
};

use contract::names::ServiceKey;
use ipnet::IpNet;

use super::{Protocol, Service, ServicePort, cost::claimed_ports};

/// An address, protocol and port where connections arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Claim {
    pub address: IpAddr,
    pub protocol: Protocol,
    pub port: u16,
}

/// The field that an address of a Service is from, in the order of precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AddressField {
    ClusterIps,
    LoadBalancer,
    ExternalIps,
}

/// A Service, the oldest first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claimant {
    created: i64,
    uid: Arc<str>,
    pub(super) service: ServiceKey,
}

/// A Service at one of its claims, the first of which serves it.
type Rank = (AddressField, Arc<Claimant>);

/// The Services that want the same.
#[derive(Debug)]
struct Claimants {
    first: Rank,
    /// Hardly ever any.
    others: BTreeSet<Rank>,
}

/// Why a Service does not serve one of its claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Another Service comes first.
    Taken { claim: Claim, by: ServiceKey },
    /// An address of `externalIPs` that is the cluster's own.
    Reserved { address: IpAddr },
}

/// What all Services claim.
#[derive(Debug, Default)]
pub struct Claims {
    claimants: HashMap<Claim, Claimants>,
    /// The Services with these addresses in `externalIPs`.
    external: BTreeMap<IpAddr, BTreeSet<ServiceKey>>,
    /// The cluster's own ranges that never change, and those of Services.
    fixed: Vec<IpNet>,
    ranges: Vec<IpNet>,
    /// The cluster's own addresses, with the number of objects that have each.
    own: HashMap<IpAddr, usize>,
}

impl Claim {
    pub fn new(address: IpAddr, port: &ServicePort) -> Self {
        Self { address, protocol: port.protocol, port: port.port }
    }
}

impl Claimant {
    pub(super) fn new(key: &ServiceKey, service: &Service) -> Self {
        Self { created: service.created, uid: Arc::clone(&service.uid), service: key.clone() }
    }

    fn is(&self, key: &ServiceKey, service: &Service) -> bool {
        (self.created, &self.uid, &self.service) == (service.created, &service.uid, key)
    }
}

impl Claimants {
    fn add(&mut self, rank: Rank) {
        let later = if rank < self.first { std::mem::replace(&mut self.first, rank) } else { rank };
        if later != self.first {
            self.others.insert(later);
        }
    }

    /// Removes one; returns whether another one is left.
    fn remove(&mut self, rank: &Rank) -> bool {
        if self.first != *rank {
            self.others.remove(rank);
            return true;
        }
        let Some(next) = self.others.pop_first() else { return false };
        self.first = next;
        true
    }
}

impl Claims {
    /// `fixed`: the ranges of pods and of OVN.
    pub fn new(fixed: Vec<IpNet>) -> Self {
        Self { fixed, ..Self::default() }
    }

    /// A Service has changed, came or went. Returns the others that serve more or less from now on.
    pub fn change(
        &mut self,
        key: &ServiceKey,
        before: Option<&Service>,
        after: Option<&Service>,
    ) -> BTreeSet<ServiceKey> {
        let mut others = BTreeSet::new();
        let is_same = |(before, after): (&Service, &Service)| {
            (before.created, &before.uid) == (after.created, &after.uid)
                && before.addresses().eq(after.addresses())
                && before.ports == after.ports
        };
        if before.zip(after).is_some_and(is_same) {
            return others;
        }
        let former = before.map(|before| (before, self.claimant(key, before)));
        if let Some((before, claimant)) = &former {
            for (field, claim) in claims(before) {
                self.release(claim, &(field, Arc::clone(claimant)), &mut others);
            }
            for address in &before.external_ips {
                if let Some(services) = self.external.get_mut(address) {
                    services.remove(key);
                    if services.is_empty() {
                        self.external.remove(address);
                    }
                }
            }
        }
        if let Some(after) = after {
            let same =
                former.map(|(_, claimant)| claimant).filter(|claimant| claimant.is(key, after));
            let claimant = same.unwrap_or_else(|| self.claimant(key, after));
            for (field, claim) in claims(after) {
                self.claim(claim, (field, Arc::clone(&claimant)), &mut others);
            }
            for address in &after.external_ips {
                self.external.entry(*address).or_default().insert(key.clone());
            }
        }
        others.remove(key);
        others
    }

    /// The Service as [`Quotas`](super::Quotas) know it: the same allocation as here, where there
    /// is one.
    pub fn claimant(&self, key: &ServiceKey, service: &Service) -> Arc<Claimant> {
        let first = claims(service).next().and_then(|(_, claim)| self.claimants.get(&claim));
        let known =
            first.map(|claimants| &claimants.first.1).filter(|first| first.is(key, service));
        known.map_or_else(|| Arc::new(Claimant::new(key, service)), Arc::clone)
    }

    fn claim(&mut self, claim: Claim, rank: Rank, others: &mut BTreeSet<ServiceKey>) {
        match self.claimants.entry(claim) {
            Entry::Vacant(entry) => {
                entry.insert(Claimants { first: rank, others: BTreeSet::new() });
            }
            Entry::Occupied(mut entry) => {
                let claimants = entry.get_mut();
                others.insert(claimants.first.1.service.clone());
                claimants.add(rank);
            }
        }
    }

    fn release(&mut self, claim: Claim, rank: &Rank, others: &mut BTreeSet<ServiceKey>) {
        let Entry::Occupied(mut entry) = self.claimants.entry(claim) else { return };
        if entry.get_mut().remove(rank) {
            others.insert(entry.get().first.1.service.clone());
        } else {
            entry.remove();
        }
    }

    /// The ranges of Services have changed. Returns the Services that serve more or less from now
    /// on.
    pub fn set_ranges(&mut self, ranges: Vec<IpNet>) -> BTreeSet<ServiceKey> {
        let before = std::mem::replace(&mut self.ranges, ranges);
        let gone = before.iter().filter(|range| !self.ranges.contains(range));
        let came = self.ranges.iter().filter(|range| !before.contains(range));
        let within = |range: &IpNet| self.external.range(range.network()..=range.broadcast());
        gone.chain(came).flat_map(within).flat_map(|(_, services)| services).cloned().collect()
    }

    /// An object of the cluster, such as a node, has other addresses. Returns the Services that
    /// serve more or less from now on.
    pub fn change_own(&mut self, before: &[IpAddr], after: &[IpAddr]) -> BTreeSet<ServiceKey> {
        let mut concerned = BTreeSet::new();
        let mut note = |external: &BTreeMap<IpAddr, BTreeSet<ServiceKey>>, address| {
            concerned.extend(external.get(address).into_iter().flatten().cloned());
        };
        for address in after {
            let count = self.own.entry(*address).or_default();
            *count += 1;
            if *count == 1 {
                note(&self.external, address);
            }
        }
        for address in before {
            let Entry::Occupied(mut count) = self.own.entry(*address) else { continue };
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
                note(&self.external, address);
            }
        }
        concerned
    }

    /// Whether any Service has `externalIPs`.
    pub fn has_external_ips(&self) -> bool {
        !self.external.is_empty()
    }

    /// Whether the Service serves the claim, which is one of its own.
    pub fn serves(&self, service: &ServiceKey, claim: &Claim) -> bool {
        self.claimants.get(claim).is_some_and(|Claimants { first: (field, first), .. }| {
            first.service == *service && !self.is_refused(*field, claim.address)
        })
    }

    /// The first of the Service's claims that it does not serve, and why.
    pub fn refusal(&self, key: &ServiceKey, service: &Service) -> Option<Refusal> {
        claims(service).find_map(|(field, claim)| {
            if self.is_refused(field, claim.address) {
                return Some(Refusal::Reserved { address: claim.address });
            }
            let (_, first) = &self.claimants.get(&claim)?.first;
            (first.service != *key).then(|| Refusal::Taken { claim, by: first.service.clone() })
        })
    }

    fn is_refused(&self, field: AddressField, address: IpAddr) -> bool {
        let is_of_range =
            || self.fixed.iter().chain(&self.ranges).any(|range| range.contains(&address));
        field == AddressField::ExternalIps
            && (is_never_external(&address) || self.own.contains_key(&address) || is_of_range())
    }
}

/// Addresses that no program of a host may lose to a Service.
fn is_never_external(address: &IpAddr) -> bool {
    address.is_loopback() || address.is_unspecified() || address.is_multicast()
}

/// What a Service claims. A Service without an address in the cluster claims nothing.
fn claims(service: &Service) -> impl Iterator<Item = (AddressField, Claim)> {
    let ports = &service.ports[..claimed_ports(service)];
    ports.iter().flat_map(move |port| {
        service.addresses().map(move |(field, address)| (field, Claim::new(address, port)))
    })
}

#[cfg(test)]
mod tests;
