//! The objects of the API server that a question is about. Reads only.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use contract::{
    definition::{CUSTOM_NAME, EGRESS_FIREWALL},
    names::{ClusterPolicyKey, ClusterPolicyKind, PolicyKey},
    policy_annotation::Enforcement,
};
use controller::{
    kinds::{
        cluster_policy::{
            object::{ClusterPeer, ClusterPolicy},
            wire::{ClusterPolicyObject, OfAdmin, OfBaseline, OfCluster},
        },
        egress_firewall::object::{Destination, EgressFirewall, EgressFirewallObject},
        namespace::wire::NamespaceObject,
        network_policy::{object::Policy, wire::PolicyObject},
        node::object::Node,
    },
    select::peer::Direction,
};
use kubeapi::Connection;
use verdict::{
    cluster_policy as of_cluster, egress_firewall as firewall, network_policy as network,
};

use super::{
    Question,
    api::{Unanswered, collection, get, list},
    ends::{Finder, Party, PodFacts, Role, node_of},
    model,
    targets::Targets,
};

/// Everything that decides.
#[derive(Debug)]
pub(super) struct Objects {
    pub(super) client: Party,
    pub(super) targets: Targets,
    /// None if both ends were asked for as pods, and are such in the cluster's network.
    pub(super) nodes: Vec<Node>,
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
    pub(super) policies: Vec<(PolicyKey, Policy)>,
    pub(super) cluster_policies: Vec<(ClusterPolicyKey, ClusterPolicy)>,
    /// That of the client's namespace, for a connection that leads out of the cluster.
    pub(super) firewall: Option<EgressFirewall>,
    /// Kinds of policies that could not be read, and why.
    pub(super) unread: Vec<String>,
}

impl Objects {
    /// # Errors
    ///
    /// An object that the question is about cannot be read, or is not there.
    pub(super) async fn read(api: &Connection, question: &Question) -> Result<Self, Unanswered> {
        let mut finder = Finder::new(api);
        let client = finder.find(&question.client, Role::Client).await?;
        let mut targets = Targets::find(api, &mut finder, &client, question).await?;
        let servers = || targets.all.iter().map(|target| &target.party);
        let is_any_pod = client.pod().is_some() || servers().any(|server| server.pod().is_some());
        if !is_any_pod && !targets.all.is_empty() {
            return Err(Unanswered::NeitherIsPod);
        }
        let mut namespaces = BTreeMap::new();
        let mut policies = Vec::new();
        for pod in [&client].into_iter().chain(servers()).filter_map(Party::pod) {
            let namespace = pod.key.namespace();
            if namespaces.contains_key(namespace) {
                continue;
            }
            let object: NamespaceObject = get(api, "/api/v1/namespaces", namespace).await?;
            namespaces.insert(namespace.to_owned(), object.into_namespace().1.labels);
            let collection =
                format!("/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies");
            let found: Vec<PolicyObject> = list(api, &collection).await?;
            // A name that no API server accepts is none of its objects'.
            policies.extend(found.into_iter().filter_map(|object| object.into_policy().ok()));
        }
        let (mut cluster_policies, mut unread) = (Vec::new(), Vec::new());
        for kind in ClusterPolicyKind::ALL {
            match of_kind(api, kind).await {
                Ok(found) => cluster_policies.extend(found),
                Err(error) => unread.push(error.to_string()),
            }
        }
        let mut firewall = None;
        let leaves = servers().any(|server| server.pod().is_none());
        if let Some(pod) = client.pod().filter(|_| leaves) {
            match firewall_of(api, pod.key.namespace()).await {
                Ok(found) => firewall = found,
                Err(error) => unread.push(error.to_string()),
            }
        }
        unread.append(&mut targets.unread);
        let nodes = finder.into_nodes();
        Ok(Self {
            client,
            targets,
            nodes,
            namespaces,
            policies,
            cluster_policies,
            firewall,
            unread,
        })
    }

    pub(super) fn namespaces(&self) -> Vec<verdict::Namespace<'_>> {
        let namespaces = self.namespaces.iter();
        namespaces
            .map(|(name, labels)| verdict::Namespace { name, labels: model::pairs(labels) })
            .collect()
    }

    pub(super) fn nodes(&self) -> Vec<verdict::Node<'_>> {
        self.nodes.iter().map(model::node).collect()
    }

    /// The NetworkPolicies as the model has them: those that are enforced, or also dry runs.
    pub(super) fn network_policies(&self, with: &[Enforcement]) -> Vec<network::NetworkPolicy<'_>> {
        let counts = |policy: &Policy| with.contains(&policy.enforcement);
        let policies = self.policies.iter().filter(|(_, policy)| counts(policy));
        policies.map(|(key, policy)| model::network_policy(key, policy)).collect()
    }

    pub(super) fn is_dry_run(&self, policy: &network::NetworkPolicy<'_>) -> bool {
        let is_it = |key: &PolicyKey| {
            (key.namespace(), key.name()) == (policy.namespace, policy.name.as_str())
        };
        let mut known = self.policies.iter().filter(|(key, _)| is_it(key));
        known.any(|(_, known)| known.enforcement == Enforcement::DryRun)
    }

    /// The policies of the cluster that have an effect, as the model has them.
    pub(super) fn policies_of_cluster(&self) -> Vec<of_cluster::ClusterPolicy<'_>> {
        self.cluster_policies
            .iter()
            .filter_map(|(key, policy)| model::cluster_policy(key, policy))
            .collect()
    }

    /// The client, if the connection leads out of the cluster, so that its namespace's
    /// EgressFirewall is asked.
    pub(super) fn leaving(&self, server: &Party, to: IpAddr) -> Option<&PodFacts> {
        let is_outside = server.pod().is_none() && node_of(&self.nodes, to).is_none();
        self.client.pod().filter(|_| is_outside)
    }

    /// The rules of the EgressFirewall as the model has them; without one, none.
    pub(super) fn firewall(&self) -> firewall::EgressFirewall<'_> {
        let none = || firewall::EgressFirewall { rules: Vec::new() };
        self.firewall.as_ref().map_or_else(none, model::egress_firewall)
    }

    /// The names of the DNS in rules.
    pub(super) fn names(&self) -> BTreeSet<&str> {
        let effects =
            self.cluster_policies.iter().filter_map(|(_, policy)| policy.effect.as_deref());
        let rules = effects.flat_map(|effect| effect.rules(Direction::Egress));
        let peers = rules.filter_map(|rule| rule.peers.as_deref()).flatten();
        let of_policies = peers.filter_map(|peer| match peer {
            ClusterPeer::Name(name) => Some(&**name),
            ClusterPeer::Network(_) | ClusterPeer::Nodes(_) | ClusterPeer::Pods(_) => None,
        });
        let rules = self.firewall.iter().flat_map(|firewall| &firewall.rules);
        let of_firewall = rules.filter_map(|rule| match &rule.to {
            Destination::Name(name) => Some(&**name),
            Destination::Anywhere | Destination::Net(_) | Destination::Nodes(_) => None,
        });
        of_policies.chain(of_firewall).collect()
    }
}

/// The policies of the kind; none without its definition in the cluster.
async fn of_kind(
    api: &Connection,
    kind: ClusterPolicyKind,
) -> Result<Vec<(ClusterPolicyKey, ClusterPolicy)>, Unanswered> {
    fn read<K: controller::kinds::cluster_policy::wire::OfKind>(
        found: Vec<ClusterPolicyObject<K>>,
    ) -> Vec<(ClusterPolicyKey, ClusterPolicy)> {
        found.into_iter().filter_map(|object| object.into_policy().ok()).collect()
    }
    let Some(path) = collection(api, kind.definition()).await? else { return Ok(Vec::new()) };
    match kind {
        ClusterPolicyKind::ClusterNetworkPolicy => {
            list::<ClusterPolicyObject<OfCluster>>(api, &path).await.map(read)
        }
        ClusterPolicyKind::AdminNetworkPolicy => {
            list::<ClusterPolicyObject<OfAdmin>>(api, &path).await.map(read)
        }
        ClusterPolicyKind::BaselineAdminNetworkPolicy => {
            list::<ClusterPolicyObject<OfBaseline>>(api, &path).await.map(read)
        }
    }
}

/// The EgressFirewall of the namespace; none without its definition in the cluster, too.
async fn firewall_of(
    api: &Connection,
    namespace: &str,
) -> Result<Option<EgressFirewall>, Unanswered> {
    let collection = EGRESS_FIREWALL.path_in(api.version_of(&EGRESS_FIREWALL), namespace);
    match get::<EgressFirewallObject>(api, &collection, CUSTOM_NAME).await {
        Ok(object) => Ok(object.into_object().ok().map(|(_, firewall)| firewall)),
        Err(error) if error.is_absent() => Ok(None),
        Err(error) => Err(error),
    }
}
