//! The objects of the API server that a question is about, and the same for the model of policies. Reads
//! only.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use contract::{
    names::{ClusterPolicyKey, ClusterPolicyKind, PodKey, PolicyKey},
    policy_annotation::Enforcement,
};
use controller::store::{
    Annotated, ClusterPolicy, Phase, Policy,
    cluster_policy::{ClusterPeer, ClusterRule, PolicyTier, RuleAction},
    policy::{Block, Direction, Number, Peer, Port, Rule},
    selector::{Requirement, Selector},
    wire::{ClusterPolicyObject, NamespaceObject, OfAdmin, OfBaseline, OfCluster, PodObject, PolicyObject},
};
use kube::{
    api::{GetParams, ListParams},
    core::request::Request,
};
use kubeapi::{Connection, Trouble};
use serde::{Deserialize, de::DeserializeOwned};
use verdict::{cluster_policy as of_cluster, network_policy as network, selector};

/// Limit for one request: an API server that is up answers within a few seconds, also when it is busy.
const PATIENCE: Duration = Duration::from_secs(15);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unanswered {
    #[error("read {what}: {trouble}")]
    ApiServer { what: String, trouble: Trouble },
    #[error("pod {0} is in its node's network, and no policy is about such pods")]
    HostNetwork(PodKey),
    #[error("pod {0} has ended, so that it has no address")]
    Ended(PodKey),
    #[error("pod {0} has no address yet: its annotation k8s.ovn.org/pod-networks is not there, or unusable")]
    NoAddress(PodKey),
    #[error("the two pods have no address of a family in common")]
    NoFamily,
}

/// A pod, as far as policies can tell.
#[derive(Debug)]
pub(super) struct PodFacts {
    pub(super) key: PodKey,
    pub(super) addresses: Vec<IpAddr>,
    labels: BTreeMap<String, String>,
    ports: Vec<(String, verdict::Protocol, u16)>,
}

/// Everything that decides.
#[derive(Debug)]
pub(super) struct Objects {
    pub(super) client: PodFacts,
    pub(super) server: PodFacts,
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
    pub(super) policies: Vec<(PolicyKey, Policy)>,
    pub(super) cluster_policies: Vec<(ClusterPolicyKey, ClusterPolicy)>,
    /// Kinds of policies that could not be read, and why.
    pub(super) unread: Vec<String>,
}

/// A list of the API server.
#[derive(Deserialize)]
struct List<T> {
    items: Vec<T>,
}

impl Objects {
    /// # Errors
    ///
    /// An object that the question is about cannot be read, or is not there.
    pub(super) async fn read(api: &Connection, client: &PodKey, server: &PodKey) -> Result<Self, Unanswered> {
        let mut namespaces = BTreeMap::new();
        let mut policies = Vec::new();
        for namespace in [client.namespace(), server.namespace()] {
            if namespaces.contains_key(namespace) {
                continue;
            }
            let object: NamespaceObject = get(api, "/api/v1/namespaces", namespace).await?;
            namespaces.insert(namespace.to_owned(), object.into_namespace().1.labels);
            let collection = format!("/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies");
            let found: Vec<PolicyObject> = list(api, &collection).await?;
            // A name that no API server accepts is none of its objects'.
            policies.extend(found.into_iter().filter_map(|object| object.into_policy().ok()));
        }
        let (mut cluster_policies, mut unread) = (Vec::new(), Vec::new());
        for kind in ClusterPolicyKind::ALL {
            match of_kind(api, kind).await {
                Ok(found) => cluster_policies.extend(found),
                // Without their definition there are none.
                Err(Unanswered::ApiServer { trouble, .. }) if trouble.code == Some(404) => {}
                Err(error @ Unanswered::ApiServer { .. }) => unread.push(error.to_string()),
                Err(error) => return Err(error),
            }
        }
        Ok(Self {
            client: PodFacts::read(api, client).await?,
            server: PodFacts::read(api, server).await?,
            namespaces,
            policies,
            cluster_policies,
            unread,
        })
    }

    pub(super) fn namespaces(&self) -> Vec<verdict::Namespace<'_>> {
        let namespaces = self.namespaces.iter();
        namespaces.map(|(name, labels)| verdict::Namespace { name, labels: pairs(labels) }).collect()
    }

    /// The NetworkPolicies as the model has them: those that are enforced, or also dry runs.
    pub(super) fn network_policies(&self, with: &[Enforcement]) -> Vec<network::NetworkPolicy<'_>> {
        let counts = |policy: &Policy| with.contains(&policy.enforcement);
        let policies = self.policies.iter().filter(|(_, policy)| counts(policy));
        policies.map(|(key, policy)| network_policy(key, policy)).collect()
    }

    pub(super) fn is_dry_run(&self, policy: &network::NetworkPolicy<'_>) -> bool {
        let is_it =
            |key: &PolicyKey| (key.namespace(), key.name()) == (policy.namespace, policy.name.as_str());
        let mut known = self.policies.iter().filter(|(key, _)| is_it(key));
        known.any(|(_, known)| known.enforcement == Enforcement::DryRun)
    }

    /// The policies of the cluster that have an effect, as the model has them.
    pub(super) fn policies_of_cluster(&self) -> Vec<of_cluster::ClusterPolicy<'_>> {
        self.cluster_policies.iter().filter_map(|(key, policy)| cluster_policy(key, policy)).collect()
    }
}

impl PodFacts {
    async fn read(api: &Connection, key: &PodKey) -> Result<Self, Unanswered> {
        let object: PodObject =
            get(api, &format!("/api/v1/namespaces/{}/pods", key.namespace()), key.name()).await?;
        let (_, pod) = object.into_pod().map_err(|_| Unanswered::NoAddress(key.clone()))?;
        match (&pod.annotated, pod.host_network, pod.phase) {
            (_, true, _) => Err(Unanswered::HostNetwork(key.clone())),
            (_, false, Phase::Ended) => Err(Unanswered::Ended(key.clone())),
            (Annotated::Network { network, .. }, false, Phase::Active) => Ok(Self {
                key: key.clone(),
                addresses: network.addresses.iter().map(ipnet::IpNet::addr).collect(),
                labels: pod.labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
                ports: pod
                    .ports
                    .iter()
                    .map(|port| (port.name.to_string(), protocol(port.protocol), port.number))
                    .collect(),
            }),
            (Annotated::Nothing | Annotated::Unusable(_), false, Phase::Active) => {
                Err(Unanswered::NoAddress(key.clone()))
            }
        }
    }

    /// The pod as an end of a connection, by one of its addresses.
    pub(super) fn end<'a>(
        &'a self,
        labels: &'a verdict::Labels<'a>,
        ports: &'a [verdict::ContainerPort<'a>],
        address: IpAddr,
    ) -> verdict::End<'a> {
        verdict::End { pod: Some(verdict::Pod { namespace: self.key.namespace(), labels, ports }), address }
    }

    pub(super) fn labels(&self) -> verdict::Labels<'_> {
        pairs(&self.labels)
    }

    pub(super) fn ports(&self) -> Vec<verdict::ContainerPort<'_>> {
        let ports = self.ports.iter();
        ports
            .map(|(name, protocol, number)| verdict::ContainerPort {
                name,
                protocol: *protocol,
                number: *number,
            })
            .collect()
    }
}

async fn of_kind(
    api: &Connection,
    kind: ClusterPolicyKind,
) -> Result<Vec<(ClusterPolicyKey, ClusterPolicy)>, Unanswered> {
    fn read<K: controller::store::wire::OfKind>(
        found: Vec<ClusterPolicyObject<K>>,
    ) -> Vec<(ClusterPolicyKey, ClusterPolicy)> {
        found.into_iter().filter_map(|object| object.into_policy().ok()).collect()
    }
    match kind {
        ClusterPolicyKind::ClusterNetworkPolicy => {
            list::<ClusterPolicyObject<OfCluster>>(api, kind.path()).await.map(read)
        }
        ClusterPolicyKind::AdminNetworkPolicy => {
            list::<ClusterPolicyObject<OfAdmin>>(api, kind.path()).await.map(read)
        }
        ClusterPolicyKind::BaselineAdminNetworkPolicy => {
            list::<ClusterPolicyObject<OfBaseline>>(api, kind.path()).await.map(read)
        }
    }
}

async fn get<T: DeserializeOwned>(api: &Connection, collection: &str, name: &str) -> Result<T, Unanswered> {
    let what = format!("{collection}/{name}");
    let request = Request::new(collection).get(name, &GetParams::default());
    ask(api, what, request).await
}

async fn list<T: DeserializeOwned>(api: &Connection, collection: &str) -> Result<Vec<T>, Unanswered> {
    let request = Request::new(collection).list(&ListParams::default());
    ask::<List<T>>(api, collection.to_owned(), request).await.map(|list| list.items)
}

async fn ask<T: DeserializeOwned>(
    api: &Connection,
    what: String,
    request: Result<hyper::Request<Vec<u8>>, kube::core::request::Error>,
) -> Result<T, Unanswered> {
    let answer = match request {
        Ok(request) => api.ask(PATIENCE, api.client().request::<T>(request)).await,
        Err(error) => Err(api.trouble(&kube::Error::BuildRequest(error))),
    };
    answer.map_err(|trouble| Unanswered::ApiServer { what, trouble })
}

fn pairs(labels: &BTreeMap<String, String>) -> verdict::Labels<'_> {
    labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

fn protocol(protocol: kubeapi::services::Protocol) -> verdict::Protocol {
    match protocol {
        kubeapi::services::Protocol::Tcp => verdict::Protocol::Tcp,
        kubeapi::services::Protocol::Udp => verdict::Protocol::Udp,
        kubeapi::services::Protocol::Sctp => verdict::Protocol::Sctp,
    }
}

fn network_policy<'a>(key: &'a PolicyKey, policy: &'a Policy) -> network::NetworkPolicy<'a> {
    let types =
        [(Direction::Ingress, verdict::Direction::Ingress), (Direction::Egress, verdict::Direction::Egress)];
    let rules = |direction| policy.rules(direction).into_iter().flatten().map(rule).collect();
    network::NetworkPolicy {
        namespace: key.namespace(),
        name: key.name().to_owned(),
        pod_selector: selector(&policy.pods),
        policy_types: types
            .into_iter()
            .filter(|(direction, _)| policy.rules(*direction).is_some())
            .map(|(_, of_model)| of_model)
            .collect(),
        ingress: rules(Direction::Ingress),
        egress: rules(Direction::Egress),
    }
}

/// Of a list whose elements cannot be used, nothing is left, and it allows nothing; to the model an empty
/// list is as none.
fn rule(Rule { peers, ports }: &Rule) -> network::Rule<'_> {
    const NOTHING: verdict::Cidr = verdict::Cidr(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    let nobody = || network::Peer::Block { cidr: NOTHING, except: vec![NOTHING] };
    let nowhere = || network::Port { protocol: None, number: Some(network::Number::Range(1, 0)) };
    network::Rule {
        peers: match peers.as_deref() {
            None => Vec::new(),
            Some([]) => vec![nobody()],
            Some(peers) => peers.iter().map(peer).collect(),
        },
        ports: match ports {
            None => Vec::new(),
            Some(ports) if ports.is_empty() => vec![nowhere()],
            Some(ports) => ports.iter().map(port).collect(),
        },
    }
}

fn peer(peer: &Peer) -> network::Peer<'_> {
    match peer {
        Peer::Block(Block { net, except }) => {
            network::Peer::Block { cidr: cidr(net), except: except.iter().map(cidr).collect() }
        }
        Peer::Namespaces(namespaces) => {
            network::Peer::Selectors { namespaces: Some(selector(namespaces)), pods: None }
        }
        Peer::Pods(peer) => network::Peer::Selectors {
            namespaces: peer.namespaces.as_ref().map(selector),
            pods: Some(selector(&peer.pods)),
        },
    }
}

fn port(Port { protocol: of, number }: &Port) -> network::Port<'_> {
    let number = match number {
        Number::All => None,
        Number::Range(first, last) => Some(network::Number::Range(*first, *last)),
        Number::Named(name) => Some(network::Number::Named(name)),
    };
    network::Port { protocol: Some(protocol(*of)), number }
}

fn cluster_policy<'a>(
    key: &'a ClusterPolicyKey,
    policy: &'a ClusterPolicy,
) -> Option<of_cluster::ClusterPolicy<'a>> {
    let effect = policy.effect.as_deref()?;
    let tier = match effect.tier {
        PolicyTier::Admin => of_cluster::Tier::Admin,
        PolicyTier::Baseline => of_cluster::Tier::Baseline,
    };
    let namespaces = effect.subject.namespaces.as_ref().map_or_else(everything, selector);
    let rules = |direction| effect.rules(direction).iter().map(cluster_rule).collect();
    Some(of_cluster::ClusterPolicy {
        kind: match key.kind {
            ClusterPolicyKind::ClusterNetworkPolicy => {
                of_cluster::Kind::ClusterNetworkPolicy(tier, effect.priority)
            }
            ClusterPolicyKind::AdminNetworkPolicy => of_cluster::Kind::AdminNetworkPolicy(effect.priority),
            ClusterPolicyKind::BaselineAdminNetworkPolicy => of_cluster::Kind::BaselineAdminNetworkPolicy,
        },
        name: key.name().to_owned(),
        subject: (namespaces, Some(selector(&effect.subject.pods))),
        ingress: rules(Direction::Ingress),
        egress: rules(Direction::Egress),
    })
}

fn cluster_rule(rule: &ClusterRule) -> of_cluster::ClusterRule<'_> {
    let peers = rule.peers.as_deref().map(|peers| peers.iter().map(cluster_peer).collect());
    let all = |address| verdict::Cidr(address, 0);
    let everyone = || {
        let [v4, v6] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        vec![of_cluster::ClusterPeer::Networks(vec![all(v4), all(v6)])]
    };
    let ports = rule.ports.iter().flatten();
    of_cluster::ClusterRule {
        action: match rule.action {
            RuleAction::Accept => of_cluster::Action::Accept,
            RuleAction::Deny => of_cluster::Action::Deny,
            RuleAction::Pass => of_cluster::Action::Pass,
        },
        peers: peers.unwrap_or_else(everyone),
        ports: ports
            .map(|Port { protocol: of, number }| match number {
                Number::All => of_cluster::ClusterPort::Range(protocol(*of), 0, u16::MAX),
                Number::Range(first, last) => of_cluster::ClusterPort::Range(protocol(*of), *first, *last),
                Number::Named(name) => of_cluster::ClusterPort::Named(name),
            })
            .collect(),
    }
}

fn cluster_peer(peer: &ClusterPeer) -> of_cluster::ClusterPeer<'_> {
    match peer {
        ClusterPeer::Network(net) => of_cluster::ClusterPeer::Networks(vec![cidr(net)]),
        ClusterPeer::Nodes(peer) => of_cluster::ClusterPeer::Nodes(selector(&peer.nodes)),
        ClusterPeer::Name(name) => of_cluster::ClusterPeer::DomainNames(vec![name]),
        ClusterPeer::Pods(peer) => of_cluster::ClusterPeer::Pods(
            peer.namespaces.as_ref().map_or_else(everything, selector),
            selector(&peer.pods),
        ),
    }
}

fn everything<'a>() -> selector::Selector<'a> {
    selector::Selector { match_labels: Vec::new(), match_expressions: Vec::new() }
}

fn selector(selector: &Selector) -> verdict::Selector<'_> {
    let match_expressions = selector.requirements().map(expression).collect();
    verdict::Selector { match_labels: Vec::new(), match_expressions }
}

fn expression(requirement: &Requirement) -> selector::Expression<'_> {
    let (key, operator, values) = match requirement {
        Requirement::In(key, of) => (key, selector::Operator::In, texts(of)),
        Requirement::NotIn(key, of) => (key, selector::Operator::NotIn, texts(of)),
        Requirement::Exists(key) => (key, selector::Operator::Exists, Vec::new()),
        Requirement::DoesNotExist(key) => (key, selector::Operator::DoesNotExist, Vec::new()),
    };
    selector::Expression { key, operator, values }
}

fn texts(values: &BTreeSet<Box<str>>) -> Vec<&str> {
    values.iter().map(|value| &**value).collect()
}

fn cidr(net: &ipnet::IpNet) -> verdict::Cidr {
    verdict::Cidr(net.addr(), net.prefix_len())
}
