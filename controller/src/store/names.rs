//! The names of the DNS that rules have, and what the DNS says of them. Asks nobody.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    net::IpAddr,
    sync::Arc,
};

use contract::names::{ClusterPolicyKey, ServiceKey};

use super::{ClusterPolicyTrouble, EgressFirewallTrouble, Store};
use crate::key::{AnyPolicy, Dirty, Key, Scope, SetId};

/// A name of the DNS, in its canonical form: in lower case, and without the final dot. Objects may spell it
/// in other ways.
pub type DnsName = Arc<str>;

/// The addresses of a name, or why there is no answer.
pub type Answer = Result<BTreeSet<IpAddr>, Box<str>>;

/// Whose rules have a name, and its addresses in the database at the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameUse {
    pub users: BTreeSet<AnyPolicy>,
    pub found: BTreeSet<IpAddr>,
}

/// Why a text is no name to ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoName {
    /// It stands for names that nobody can list.
    Wildcard,
    NoName,
}

/// A name as the DNS has it (RFC 1035 §2.3), with or without the final dot. Underscores are usual (RFC 8552).
pub(super) fn dns_name(text: &str) -> Result<DnsName, NoName> {
    if text.contains('*') {
        return Err(NoName::Wildcard);
    }
    let labels = text.strip_suffix('.').unwrap_or(text);
    let is_label = |label: &str| {
        let is_plain = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        is_plain && (1..=63).contains(&label.len())
    };
    let is_name = labels.len() <= 253 && labels.split('.').all(is_label);
    if is_name { Ok(labels.to_ascii_lowercase().into()) } else { Err(NoName::NoName) }
}

/// The known names.
#[derive(Debug, Default)]
pub(super) struct Names {
    all: BTreeMap<DnsName, Known>,
    /// Whether there may be other names or users than those that were handed out.
    is_changed: bool,
    /// How many names in rules have no addresses, because there was no answer.
    unanswered: usize,
    /// What was handed out.
    taken: BTreeMap<DnsName, NameUse>,
    /// The addresses of sets in the database at the start.
    found: BTreeMap<DnsName, BTreeSet<IpAddr>>,
}

#[derive(Debug, Default)]
struct Known {
    /// Whose rules have it. Without any, its set is still there for rules in the database.
    users: BTreeSet<AnyPolicy>,
    /// The last answer; none: there was none yet.
    addresses: Option<BTreeSet<IpAddr>>,
    /// Those of them that no rule about names opens: whoever runs the name's zone may answer with any.
    left_out: BTreeSet<IpAddr>,
    /// Why there was no answer the last time.
    error: Option<Box<str>>,
}

impl Names {
    /// Whether a rule has the name.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.all.get(name).is_some_and(|known| !known.users.is_empty())
    }

    /// The names that rules have, in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &DnsName> {
        self.all.iter().filter(|(_, known)| !known.users.is_empty()).map(|(name, _)| name)
    }

    /// The set of a name has these addresses in the database.
    pub(super) fn found(&mut self, name: DnsName, addresses: impl IntoIterator<Item = IpAddr>) {
        self.found.entry(name).or_default().extend(addresses);
    }

    pub(super) fn join(&mut self, name: &DnsName, user: &AnyPolicy) {
        self.is_changed = true;
        self.all.entry(Arc::clone(name)).or_default().users.insert(user.clone());
    }

    pub(super) fn leave(&mut self, name: &DnsName, user: &AnyPolicy) {
        let Some(known) = self.all.get_mut(name) else { return };
        known.users.remove(user);
        self.is_changed = true;
    }

    /// No rule in the database has the name.
    pub(super) fn forget(&mut self, name: &str) {
        if !self.contains(name) {
            self.found.remove(name);
            self.all.remove(name);
        }
    }

    /// Why the name has no addresses, if it was asked for.
    pub(super) fn unanswered(&self, name: &str) -> Option<&str> {
        let has_none = |known: &&Known| known.addresses.as_ref().is_none_or(BTreeSet::is_empty);
        self.all.get(name).filter(has_none)?.error.as_deref()
    }

    fn is_unanswered(&self, name: &str) -> bool {
        self.contains(name) && self.unanswered(name).is_some()
    }

    /// The first of the name's addresses that is left out.
    pub(super) fn left_out(&self, name: &str) -> Option<IpAddr> {
        self.all.get(name)?.left_out.first().copied()
    }

    fn users(&self, name: &str) -> impl Iterator<Item = &AnyPolicy> {
        self.all.get(name).into_iter().flat_map(|known| &known.users)
    }
}

/// What was wrong with the users of a name before an answer.
#[derive(Debug, Default)]
struct Troubles {
    firewalls: Vec<(Arc<str>, Option<EgressFirewallTrouble>)>,
    policies: Vec<(ClusterPolicyKey, Option<ClusterPolicyTrouble>)>,
}

impl Store {
    /// All names to ask for, if they or their users are others than the last time.
    pub fn take_names(&mut self) -> Option<BTreeMap<DnsName, NameUse>> {
        if !std::mem::take(&mut self.names.is_changed) {
            return None;
        }
        self.names.unanswered = self.names.iter().filter(|name| self.names.is_unanswered(name)).count();
        let names = &self.names;
        let known = names.all.iter().filter(|(_, known)| !known.users.is_empty());
        let now: BTreeMap<DnsName, NameUse> = known
            .map(|(name, known)| {
                let found = names.found.get(name).cloned().unwrap_or_default();
                (Arc::clone(name), NameUse { users: known.users.clone(), found })
            })
            .collect();
        let is_same = self.names.taken == now;
        self.names.taken.clone_from(&now);
        (!is_same).then_some(now)
    }

    /// How many names in rules have no addresses, because the DNS has not answered.
    pub fn unanswered_names(&self) -> usize {
        self.names.unanswered
    }

    /// Whether the addresses of the set are known. Those of a name are not before its first answer.
    pub fn knows_addresses(&self, set: &SetId) -> bool {
        match set {
            SetId::Namespace(_) | SetId::Pods(_) | SetId::Port(..) | SetId::PortIn(..) | SetId::Nodes(_) => {
                true
            }
            SetId::Name(name) => self.names.all.get(name).is_some_and(|known| known.addresses.is_some()),
        }
    }

    /// The addresses of the name outside of the cluster: what pods reach of each other, rules about pods
    /// decide, and what is the cluster's own, no answer of the DNS.
    pub(super) fn addresses_of_name(&self, name: &str) -> impl Iterator<Item = IpAddr> + use<'_> {
        let known = self.names.all.get(name);
        let all = known.into_iter().flat_map(|known| {
            let all = known.addresses.iter().flatten();
            all.filter(|address| !known.left_out.contains(address))
        });
        all.copied().filter(|address| !self.config.is_of_pods(*address))
    }

    /// The addresses of the name that are left out of its set.
    pub fn own_addresses_of_name(&self, name: &str) -> impl Iterator<Item = IpAddr> {
        self.names.all.get(name).into_iter().flat_map(|known| &known.left_out).copied()
    }

    /// Whether the address belongs to the cluster itself: to OVN, to a node, to the API server, or to each
    /// host.
    fn is_own(&self, address: IpAddr, hosts: &HashSet<IpAddr>) -> bool {
        let is_api_server = |key: &ServiceKey| key.namespace() == "default" && key.name() == "kubernetes";
        self.config.is_infrastructure(address)
            || hosts.contains(&address)
            || self.services.with_endpoint(&address).any(is_api_server)
    }

    /// The DNS has been asked for the name. Without an answer the last one stays.
    pub(super) fn resolved(&mut self, name: &DnsName, answer: Answer, dirty: &mut Dirty<'_>) {
        let before = self.troubles_of_users(name);
        let hosts: HashSet<IpAddr> =
            self.nodes.iter().flat_map(|node| node.host_addresses.iter().copied()).collect();
        let own = |address: &&IpAddr| self.is_own(**address, &hosts);
        let left_out: BTreeSet<IpAddr> = answer.iter().flatten().filter(own).copied().collect();
        let was_unanswered = self.names.is_unanswered(name);
        let Some(known) = self.names.all.get_mut(name) else { return };
        match answer {
            Ok(addresses) => {
                known.error = None;
                if known.addresses.as_ref() != Some(&addresses) || known.left_out != left_out {
                    if known.left_out != left_out {
                        let rules =
                            known.users.iter().filter(|user| matches!(user, AnyPolicy::EgressFirewall(_)));
                        rules.for_each(|user| dirty(user.clone().into(), Scope::Whole));
                    }
                    (known.addresses, known.left_out) = (Some(addresses), left_out);
                    dirty(Key::Set(SetId::Name(Arc::clone(name))), Scope::Whole);
                }
            }
            Err(why) => known.error = Some(why),
        }
        let is_unanswered = self.names.is_unanswered(name);
        self.names.unanswered =
            (self.names.unanswered + usize::from(is_unanswered)).saturating_sub(usize::from(was_unanswered));
        for (namespace, trouble) in before.firewalls {
            if self.egress_firewall_trouble(&namespace) != trouble {
                self.tell_egress_firewall(&namespace, trouble.as_ref());
                self.write_status(&namespace);
            }
        }
        for (policy, trouble) in before.policies {
            if self.cluster_policy_trouble(&policy) != trouble {
                self.tell_cluster_policy(&policy, trouble);
                self.say_condition(&policy);
            }
        }
    }

    fn troubles_of_users(&self, name: &str) -> Troubles {
        let mut troubles = Troubles::default();
        for user in self.names.users(name) {
            match user {
                AnyPolicy::EgressFirewall(namespace) => {
                    let trouble = self.egress_firewall_trouble(namespace);
                    troubles.firewalls.push((Arc::clone(namespace), trouble));
                }
                AnyPolicy::Cluster(policy) => {
                    troubles.policies.push((policy.clone(), self.cluster_policy_trouble(policy)));
                }
                // They have no names.
                AnyPolicy::Namespaced(_) | AnyPolicy::Multicast(_) => {}
            }
        }
        troubles
    }
}
