//! What an event of a pod changes.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use contract::names::PodKey;

use crate::{
    key::{Dirty, NodeName, SetId},
    kinds::pod::{
        fanout,
        object::{NamedPort, Phase, Pod, PodLabels, Texts},
        state::{Announced, Known},
    },
    select::selectors::{Moved, SelectorId},
    world::Store,
};

/// What depends on a pod.
#[derive(Debug, Default)]
pub(crate) struct Before {
    port: Option<fanout::PodFacts>,
    addresses: Box<[IpAddr]>,
    /// What the sets by labels follow from, that it is in.
    selectors: Box<[SelectorId]>,
    other_sets: BTreeSet<SetId>,
    /// Those that are translated for themselves, with the node.
    translated: BTreeSet<(NodeName, IpAddr)>,
    named_ports: Box<[NamedPort]>,
}

impl Store {
    /// Removes pods first, and then adds the others in the order of creation: the older of two pods
    /// gets an address that both claim.
    pub(crate) fn replace_pods(&mut self, mut pods: Vec<(PodKey, Pod)>, dirty: &mut Dirty<'_>) {
        let there: BTreeSet<&PodKey> = pods.iter().map(|(key, _)| key).collect();
        let gone: Vec<PodKey> =
            self.pods.all.keys().filter(|key| !there.contains(key)).cloned().collect();
        gone.iter().for_each(|key| self.remove_pod(key, dirty));
        // No key comes twice, and a stable sort would copy the whole list.
        pods.sort_unstable_by(|(a_key, a), (b_key, b)| (a.created, a_key).cmp(&(b.created, b_key)));
        let is_sent = |(key, known): (&PodKey, &Known)| {
            (known.announced == Announced::Sent).then(|| key.clone())
        };
        let sent: Vec<PodKey> = self.pods.iter().filter_map(is_sent).collect();
        pods.into_iter().for_each(|(key, pod)| self.put_pod(key, pod, dirty));
        // What was sent and has not arrived may be lost: another API server does not know the pod.
        // A patch that comes twice finds other texts than it tests for.
        for key in sent {
            let before = self.before(&key);
            if let Some(known) = self.pods.get_mut(&key)
                && known.announced == Announced::Sent
            {
                known.announced = Announced::No;
                self.announce(&key);
                self.follow_pod(&key, before, dirty);
            }
        }
    }

    pub(crate) fn put_pod(&mut self, key: PodKey, mut pod: Pod, dirty: &mut Dirty<'_>) {
        // Before the comparisons below: the stored networks are in the compact form, too.
        pod.shorten(&self.config);
        let before = self.before(&key);
        let has_moved = self.label_pod(&key, &std::mem::take(&mut pod.labels));
        match self.pods.get_mut(&key) {
            Some(known) if known.pod.is_same(&pod) => {
                if pod.has_networks_of(&known.pod) && known.pod.texts == Texts::Right {
                    pod.texts = Texts::Right;
                }
                // From now on the store's own record counts, and a report is no change.
                if known.network.is_some() {
                    pod.reported.clone_from(&known.pod.reported);
                }
                let is_equal = known.pod == pod;
                if !is_equal {
                    known.update(pod);
                }
                self.pods.absent.remove(&key);
                if is_equal && !has_moved {
                    return;
                }
            }
            // A new pod, or another one of the same name, which must not inherit the network.
            _ => {
                self.retire(&key);
                self.pods.remove(&key);
                // Equal names share one allocation.
                pod.ports.iter_mut().for_each(|port| self.policies.sets.share_name(port));
                pod.node = pod.node.map(|node| self.nodes.name(&node).cloned().unwrap_or(node));
                self.pods.insert(key.clone(), pod);
            }
        }
        self.assign(&key);
        self.follow_pod(&key, before, dirty);
    }

    /// What depends on a pod, before it changes.
    pub(crate) fn before(&self, key: &PodKey) -> Before {
        let Some(known) = self.pods.get(key) else { return Before::default() };
        let addresses: Box<[IpAddr]> = self.addresses_of(key).collect();
        Before {
            port: Some(fanout::PodFacts::new(
                known,
                self.policies_of(key),
                self.cluster_policies_of(key),
            )),
            translated: match &known.pod.node {
                Some(node) if self.config.snat_per_pod => {
                    addresses.iter().map(|address| (Arc::clone(node), *address)).collect()
                }
                Some(_) | None => BTreeSet::new(),
            },
            // Without an address it is in none.
            other_sets: if addresses.is_empty() {
                BTreeSet::new()
            } else {
                self.other_sets_of_pod(key)
            },
            addresses,
            selectors: self.pods.selectors.matched_by(key).into(),
            named_ports: self.named_ports(key).into(),
        }
    }

    /// Follows a change of a pod.
    pub(crate) fn follow_pod(&mut self, key: &PodKey, before: Before, dirty: &mut Dirty<'_>) {
        self.follow_ports(key, &before.named_ports, dirty);
        let now = self.before(key);
        fanout::pod(key, before.port.as_ref(), now.port.as_ref(), dirty);
        fanout::translations(&before.translated, &now.translated, dirty);
        let [mut sets_before, mut sets_now] =
            [&before.other_sets, &now.other_sets].map(BTreeSet::clone);
        // Most events of a pod change neither, and the others are many.
        if before.addresses != now.addresses || before.selectors != now.selectors {
            for (sets, of) in [(&mut sets_before, &before), (&mut sets_now, &now)] {
                if !of.addresses.is_empty() {
                    sets.extend(self.sets_by_labels(key, &of.selectors));
                }
            }
        }
        let had = |set, address| sets_before.contains(set) && before.addresses.contains(address);
        let has = |set, address| sets_now.contains(set) && now.addresses.contains(address);
        let addresses: BTreeSet<&IpAddr> = before.addresses.iter().chain(&now.addresses).collect();
        for set in sets_before.union(&sets_now) {
            for address in &addresses {
                let moved = match (had(set, address), has(set, address)) {
                    (true, false) => Moved::Out,
                    (false, true) => Moved::In,
                    (true, true) | (false, false) => continue,
                };
                self.address_moved(set, key, **address, moved, dirty);
            }
        }
    }

    /// Takes the labels of a pod. Returns whether it has come to match a selector, or matches one
    /// no longer.
    fn label_pod(&mut self, key: &PodKey, labels: &PodLabels) -> bool {
        let mut has_moved = false;
        self.pods
            .selectors
            .put(key, Some(key.namespace()), labels.iter(), &mut |_, _| has_moved = true);
        has_moved
    }

    /// Removes a pod. A static pod keeps its network for now: its containers run on, and the
    /// kubelet may create its mirror again.
    pub(crate) fn remove_pod(&mut self, key: &PodKey, dirty: &mut Dirty<'_>) {
        match self.pods.get(key) {
            Some(Known {
                pod: Pod { config_hash: Some(_), phase: Phase::Active, .. },
                network: Some(_),
                ..
            }) => drop(self.pods.absent.insert(key.clone())),
            Some(_) | None => self.forget_pod(key, dirty),
        }
    }

    /// Static pods whose mirrors are missing. The caller passes each to [`is_gone`](Self::is_gone)
    /// after a grace period.
    pub fn absent(&self) -> &BTreeSet<PodKey> {
        &self.pods.absent
    }

    /// Removes a static pod whose mirror has not come back.
    pub fn is_gone(&mut self, key: &PodKey, dirty: &mut Dirty<'_>) {
        if self.pods.absent.contains(key) {
            self.forget_pod(key, dirty);
        }
    }

    /// Removes a pod from all indexes. Its addresses stay taken until its key is settled.
    fn forget_pod(&mut self, key: &PodKey, dirty: &mut Dirty<'_>) {
        let before = self.before(key);
        self.retire(key);
        self.pods.remove(key);
        self.pods.selectors.remove(key, &mut |_, _| ());
        self.follow_pod(key, before, dirty);
    }
}
