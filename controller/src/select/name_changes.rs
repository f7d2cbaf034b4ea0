//! What an answer of the DNS changes.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    net::IpAddr,
    sync::Arc,
};

use contract::{
    definition::CustomKind,
    names::{ClusterPolicyKey, ServiceKey},
};

use crate::{
    custom::CustomProblem,
    key::{AnyPolicy, Dirty, Key, Scope, SetId},
    kinds::cluster_policy::problem::ClusterPolicyProblem,
    select::names::{Answer, DnsName, NameUse},
    world::Store,
};

/// What was wrong with the users of a name before an answer.
#[derive(Debug, Default)]
struct Troubles {
    custom: Vec<(CustomKind, Arc<str>, Option<CustomProblem>)>,
    policies: Vec<(ClusterPolicyKey, Option<ClusterPolicyProblem>)>,
}

impl Store {
    /// All names to ask for, if they or their users are others than the last time.
    pub fn take_names(&mut self) -> Option<BTreeMap<DnsName, NameUse>> {
        if !std::mem::take(&mut self.names.is_changed) {
            return None;
        }
        self.names.unanswered =
            self.names.iter().filter(|name| self.names.is_unanswered(name)).count();
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
            SetId::Namespace(_)
            | SetId::Pods(_)
            | SetId::Port(..)
            | SetId::PortIn(..)
            | SetId::Nodes(_) => true,
            SetId::Name(name) => {
                self.names.all.get(name).is_some_and(|known| known.addresses.is_some())
            }
        }
    }

    /// The addresses of the name outside of the cluster: what pods reach of each other, rules about
    /// pods decide, and what is the cluster's own, no answer of the DNS.
    pub(crate) fn addresses_of_name(&self, name: &str) -> impl Iterator<Item = IpAddr> + use<'_> {
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

    /// Whether the address belongs to the cluster itself: to OVN, to a node, to the API server, or
    /// to each host.
    fn is_own(&self, address: IpAddr, hosts: &HashSet<IpAddr>) -> bool {
        let is_api_server =
            |key: &ServiceKey| key.namespace() == "default" && key.name() == "kubernetes";
        self.config.is_infrastructure(address)
            || hosts.contains(&address)
            || self.services.with_endpoint(&address).any(is_api_server)
    }

    /// The DNS has been asked for the name. Without an answer the last one stays.
    pub(crate) fn resolved(&mut self, name: &DnsName, answer: Answer, dirty: &mut Dirty<'_>) {
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
                            known.users.iter().filter(|user| matches!(user, AnyPolicy::Custom(..)));
                        rules.for_each(|user| dirty(user.clone().into(), Scope::Whole));
                    }
                    (known.addresses, known.left_out) = (Some(addresses), left_out);
                    dirty(Key::Set(SetId::Name(Arc::clone(name))), Scope::Whole);
                }
            }
            Err(why) => known.error = Some(why),
        }
        let is_unanswered = self.names.is_unanswered(name);
        self.names.unanswered = (self.names.unanswered + usize::from(is_unanswered))
            .saturating_sub(usize::from(was_unanswered));
        for (kind, namespace, problem) in before.custom {
            if self.custom_problem(kind, &namespace) != problem {
                self.tell_custom(kind, &namespace, problem.as_ref());
                self.write_status(kind, &namespace);
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
                AnyPolicy::Custom(kind, namespace) => {
                    let problem = self.custom_problem(*kind, namespace);
                    troubles.custom.push((*kind, Arc::clone(namespace), problem));
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
