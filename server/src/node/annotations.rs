//! The annotations that this node writes on its own object: written when they differ, as merge
//! patches, so that those of others stay.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use contract::backoff::Backoff;
use contract::node_annotation::{
    CHASSIS_ID, ENCAP_IPS, FORWARDED_SOURCE, GATEWAY_CONFIG, HOST_CIDRS, NEXT_ZONE, OF_JOIN_SUBNET,
    PRIMARY_ADDRESSES, ZONE, ZONE_CHOICES, encap_ips_text, host_cidrs_text,
    interface_addresses_text,
};
use ipnet::IpNet;
use kubeapi::{
    Allowance, Connection,
    patch::{self, Patch},
    watch::{Selection, list},
};
use serde_json::json;
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};

use super::{
    gateway::{self, Published},
    host_addresses::{self, HostAddress},
    management_port::Wish,
    object::{NodeFacts, NodeView, OwnNodeObject},
    open_vswitch::Identity,
    own_node,
};
use crate::services::Facts;

/// The path of the collection of nodes.
const NODES: &str = "/api/v1/nodes";
/// The timeout of one patch. A busy API server answers a patch within seconds; a request that hangs
/// must not hold back the next one for long.
const DEADLINE: Duration = Duration::from_secs(10);
/// The annotations are compared after this long without an event, in case one was lost. A
/// comparison reads the host's addresses and, as a rule, sends nothing.
const RESYNC: Duration = Duration::from_secs(300);
/// The first changes of the host's addresses are written at once: an address that moves from host
/// to host (keepalived) has node ports, and OVN serves those at addresses that it has heard of.
const FIRST_CHANGES: u32 = 5;
/// Each of them may be repeated after this long, and further ones are written together: whatever
/// happens on one host, the API server gets at most one patch a minute for it in the long run.
const REFILL: Duration = Duration::from_secs(60);
/// The addresses are read at most this often: kube-proxy in IPVS mode adds one for each Service on
/// every node at the same moment.
const SETTLE: Duration = Duration::from_secs(1);
/// The annotations that this program writes.
pub(super) const OWN: [&str; 8] = [
    CHASSIS_ID,
    ENCAP_IPS,
    FORWARDED_SOURCE,
    HOST_CIDRS,
    NEXT_ZONE,
    PRIMARY_ADDRESSES,
    ZONE,
    ZONE_CHOICES,
];

/// What the node says of its zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ZoneNames {
    pub(super) name: String,
    /// The zone that it is about to move to.
    pub(super) next: Option<String>,
    /// The zones that it may move to, with what each lacks. None if there is no choice.
    pub(super) choices: Option<BTreeMap<String, String>>,
}

/// The reconciler of the annotations.
pub(super) struct Annotator {
    pub(super) connection: Connection,
    pub(super) node: String,
    /// Nothing while it is not known whether the node moves.
    pub(super) zone: watch::Receiver<Option<ZoneNames>>,
    pub(super) view: watch::Receiver<NodeView>,
    /// Chassis name and tunnel address as of Open vSwitch's database.
    pub(super) identity: watch::Receiver<Identity>,
    /// Changes with each event of the host's addresses.
    pub(super) addresses_changed: watch::Receiver<u64>,
    /// The masquerade subnets, IPv4 and IPv6.
    pub(super) masquerade: [IpNet; 2],
    /// What the node asks for what its host forwards.
    pub(super) wish: Wish,
    /// The Services, whose addresses are no host's.
    pub(super) services: watch::Receiver<Facts>,
    /// The node's gateway.
    pub(super) gateway: watch::Receiver<Published>,
    /// The host's addresses, and the links that lead to no other machine, as last read. They are
    /// not read again without an event: each patch changes the object, and with it starts a
    /// comparison.
    pub(super) host: Option<(Vec<HostAddress>, BTreeSet<u32>)>,
}

impl Annotator {
    /// Reconciles the annotations for as long as the server lives.
    pub(super) async fn run(mut self) {
        let (mut backoff, mut complained) = (Backoff::default(), None);
        let (mut next_look, mut allowance) = (Instant::now(), allowance());
        loop {
            let wait = match self.write().await {
                Ok(done @ (Done::Complete | Done::Addresses)) => {
                    if done == Done::Addresses {
                        allowance.spend(Instant::now());
                    }
                    backoff.reset();
                    if complained.take().is_some() {
                        tracing::info!(
                            node = self.node,
                            "the node's annotations are written again"
                        );
                    }
                    RESYNC
                }
                Ok(Done::NoObject) => RESYNC,
                Err(problem) => {
                    // Logged once for each problem, however often it is tried again.
                    if complained.as_ref() != Some(&problem) {
                        tracing::warn!(
                            node = self.node,
                            problem,
                            "the node's annotations could not be written"
                        );
                    }
                    complained = Some(problem);
                    backoff.next(None)
                }
            };
            tokio::select! {
                () = super::changed(&mut self.view) => {}
                () = super::changed(&mut self.identity) => {}
                () = super::changed(&mut self.zone) => {}
                () = super::changed(&mut self.gateway) => {}
                () = later_change(&mut self.addresses_changed, next_look.max(allowance.next(Instant::now()))) => {
                    next_look = Instant::now() + SETTLE;
                    self.host = None;
                }
                () = later_change(&mut self.services, next_look) => next_look = Instant::now() + SETTLE,
                () = sleep(wait) => self.host = None,
            }
        }
    }

    /// Writes the annotations that differ.
    async fn write(&mut self) -> Result<Done, String> {
        // Cloned, because a borrowed watch channel is locked.
        let NodeView::There(seen) = self.view.borrow_and_update().clone() else {
            return Ok(Done::NoObject);
        };
        let (hosts, internal) = match &self.host {
            Some(host) => host,
            None => {
                // Before the addresses are read: a change during the reading is an event.
                self.addresses_changed.mark_unchanged();
                let hosts = host_addresses::read(self.masquerade)
                    .await
                    .map_err(|error| format!("addresses of this host: {error}"))?;
                let internal = host_addresses::internal_links()
                    .await
                    .map_err(|error| format!("links of this host: {error}"))?;
                self.host.insert((hosts, internal))
            }
        };
        let identity = self.identity.borrow_and_update().clone();
        // Published whatever their link: other nodes use the kubelet's addresses and the tunnel
        // address.
        let known: Vec<IpAddr> = seen.addresses.iter().copied().chain(identity.encap_ip).collect();
        let destinations = self.services.borrow_and_update().destinations.clone();
        let is_of_service = |address: IpAddr| {
            destinations
                .iter()
                .flat_map(|all| all.iter())
                .any(|served| served.address == Some(address))
        };
        let published = host_addresses::published(hosts, internal, &known, is_of_service);
        let zone = self.zone.borrow_and_update().clone();
        let mut wanted = wanted(&seen, hosts, &published, &identity, zone.as_ref());
        if destinations.is_none() && seen.annotations.contains_key(HOST_CIDRS) {
            // Whether one of them is a Service's is not known yet.
            wanted.remove(HOST_CIDRS);
        }
        if self.wish == Wish::Routes {
            wanted.insert(FORWARDED_SOURCE, OF_JOIN_SUBNET.to_owned());
        }
        let mut change = differing(&wanted, &seen);
        if zone.is_some() {
            let gone =
                |key: &&str| !wanted.contains_key(*key) && seen.annotations.contains_key(*key);
            change
                .extend([NEXT_ZONE, ZONE_CHOICES].into_iter().filter(gone).map(|key| (key, None)));
        }
        let of_gateway = match &*self.gateway.borrow_and_update() {
            Published::Unchanged => None,
            Published::Entry(entry) => {
                let before = seen.annotations.get(GATEWAY_CONFIG).map(String::as_str);
                let text = gateway::annotation(before, entry);
                (before != Some(&text)).then_some(Some(text))
            }
            Published::Disabled => gateway::annotation_disabled(&seen.annotations).map(Some),
            Published::Gone => gateway::annotation_without(&seen.annotations),
        };
        change.extend(of_gateway.map(|text| (GATEWAY_CONFIG, text)));
        if change.is_empty() {
            return Ok(Done::Complete);
        }
        let patch = Patch::Merge(json!({"metadata": {"annotations": change}}));
        patch::status(&self.connection, DEADLINE, NODES, &self.node, patch)
            .await
            .map_err(|trouble| trouble.text)?;
        let text = |(key, value): (&&str, &Option<String>)| match value {
            Some(value) => format!("{key}={value}"),
            None => format!("{key}-"),
        };
        let text = change.iter().map(text).collect::<Vec<_>>().join(" ");
        tracing::info!(node = self.node, annotations = text, "wrote the node's annotations");
        let is_of_addresses =
            [HOST_CIDRS, PRIMARY_ADDRESSES].iter().any(|key| change.contains_key(key));
        Ok(if is_of_addresses { Done::Addresses } else { Done::Complete })
    }
}

/// The patches for addresses that may still be written.
fn allowance() -> Allowance {
    Allowance::full(FIRST_CHANGES, REFILL, Instant::now())
}

/// The outcome of a comparison.
#[derive(Debug, PartialEq, Eq)]
enum Done {
    /// The object has all annotations.
    Complete,
    /// It has got addresses of the host.
    Addresses,
    /// The object is not known.
    NoObject,
}

/// Waits until `earliest`, and then for a change. Changes in the meantime count as the same one.
async fn later_change<T>(changes: &mut watch::Receiver<T>, earliest: Instant) {
    // In this order: a change that was marked as seen would be lost if this wait is cancelled after
    // it.
    sleep_until(earliest).await;
    super::changed(changes).await;
}

/// Removes this program's annotations from the object of `node`, if it is this host's. Returns
/// those that were there. `also`: one that may be another program's, unless the caller knows
/// better. `chassis`: this host's.
pub(super) async fn remove(
    connection: &Connection,
    node: &str,
    also: Option<&'static str>,
    chassis: Option<&str>,
) -> Result<Vec<&'static str>, String> {
    let selection = Selection { patience: DEADLINE, ..Selection::named(node) };
    let found = list::<OwnNodeObject>(connection, &selection, |_| {}).await;
    // A node that was deleted has no annotations to remove.
    let Some(seen) = found.map_err(|trouble| trouble.text)?.pop() else { return Ok(Vec::new()) };
    let own = OWN.into_iter().chain(also);
    let there: Vec<&'static str> = own.filter(|key| seen.annotations.contains_key(*key)).collect();
    if !there.is_empty() {
        own_node::confirm(node, seen, chassis).await?;
        // In a merge patch `null` removes a key (RFC 7386).
        let gone: BTreeMap<&str, Option<String>> = there.iter().map(|key| (*key, None)).collect();
        let patch = Patch::Merge(json!({"metadata": {"annotations": gone}}));
        patch::status(connection, DEADLINE, NODES, node, patch)
            .await
            .map_err(|trouble| trouble.text)?;
    }
    Ok(there)
}

/// The desired annotations. One whose value is not known yet is left out, and so stays as it is.
fn wanted(
    seen: &NodeFacts,
    hosts: &[HostAddress],
    published: &[IpNet],
    identity: &Identity,
    zone: Option<&ZoneNames>,
) -> BTreeMap<&'static str, String> {
    let known: Vec<IpAddr> = seen.addresses.iter().copied().chain(identity.encap_ip).collect();
    let primary = host_addresses::primary(hosts, &known);
    let mut wanted = BTreeMap::from([(HOST_CIDRS, host_cidrs_text(published))]);
    if let Some(ZoneNames { name, next, choices }) = zone {
        wanted.insert(ZONE, name.clone());
        wanted.extend(next.clone().map(|next| (NEXT_ZONE, next)));
        wanted.extend(choices.as_ref().map(|choices| (ZONE_CHOICES, json!(choices).to_string())));
    }
    wanted.extend(identity.system_id.clone().map(|id| (CHASSIS_ID, id)));
    if !identity.encap_ips.is_empty() {
        wanted.insert(ENCAP_IPS, encap_ips_text(&identity.encap_ips));
    }
    if !primary.is_empty() {
        wanted.insert(PRIMARY_ADDRESSES, interface_addresses_text(&primary));
    }
    wanted
}

/// Those of `wanted` that the object lacks or has with another value. In a merge patch `None`
/// removes a key (RFC 7386).
fn differing(
    wanted: &BTreeMap<&'static str, String>,
    seen: &NodeFacts,
) -> BTreeMap<&'static str, Option<String>> {
    let differs =
        |(key, value): &(&&'static str, &String)| seen.annotations.get(**key) != Some(*value);
    wanted.iter().filter(differs).map(|(key, value)| (*key, Some(value.clone()))).collect()
}

#[cfg(test)]
mod tests;
