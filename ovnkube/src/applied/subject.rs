//! The object that is asked about, and its rows in the northbound database.

use std::fmt;

use contract::{
    definition::CustomKind,
    names::{ClusterPolicyKind, IfaceId, Network, PodKey, PolicyKey, ServiceKey},
    ovn::{KIND, NAME, NAMESPACE_SET, NETWORK_POLICY, OWNER, OWNER_TYPE, SERVICE},
};
use ovsdb::{Condition, Connection, Datum, Where};

use crate::ovn_query::rows;

/// An object whose rows the control plane writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppliedSubject {
    Pod(PodKey),
    Service(ServiceKey),
    NetworkPolicy(PolicyKey),
    ClusterPolicy(ClusterPolicyKind, String),
    /// Of this namespace.
    Custom(CustomKind, String),
    Namespace(String),
    Node(String),
}

/// Spellings of kubectl, for the message about one that is none.
const KINDS: &str = "pod, service, networkpolicy, clusternetworkpolicy, adminnetworkpolicy, \
                     baselineadminnetworkpolicy, egressfirewall, egressqos, namespace, node";

impl AppliedSubject {
    /// Reads the words of the command line.
    ///
    /// # Errors
    ///
    /// There is no such kind, or no object of it can have that name.
    pub fn read(kind: &str, namespace: &str, name: &str) -> Result<Self, String> {
        let text = |error: contract::names::BadName| error.to_string();
        let kind = kind.to_lowercase();
        let of_cluster = |kind| Ok(Self::ClusterPolicy(kind, name.to_owned()));
        let custom = |kind| Ok(Self::Custom(kind, namespace.to_owned()));
        match kind.as_str() {
            "pod" | "pods" | "po" => PodKey::new(namespace, name).map(Self::Pod).map_err(text),
            "service" | "services" | "svc" => {
                ServiceKey::new(namespace, name).map(Self::Service).map_err(text)
            }
            "networkpolicy" | "networkpolicies" | "netpol" => {
                PolicyKey::new(namespace, name).map(Self::NetworkPolicy).map_err(text)
            }
            "clusternetworkpolicy" | "clusternetworkpolicies" | "cnp" => {
                of_cluster(ClusterPolicyKind::ClusterNetworkPolicy)
            }
            "adminnetworkpolicy" | "adminnetworkpolicies" | "anp" => {
                of_cluster(ClusterPolicyKind::AdminNetworkPolicy)
            }
            "baselineadminnetworkpolicy" | "baselineadminnetworkpolicies" | "banp" => {
                of_cluster(ClusterPolicyKind::BaselineAdminNetworkPolicy)
            }
            "egressfirewall" | "egressfirewalls" => custom(CustomKind::EgressFirewall),
            "egressqos" | "egressqoses" => custom(CustomKind::EgressQos),
            "namespace" | "namespaces" | "ns" => Ok(Self::Namespace(name.to_owned())),
            "node" | "nodes" | "no" => Ok(Self::Node(name.to_owned())),
            _ => Err(format!("{kind:?} is no kind with rows in OVN; there are {KINDS}")),
        }
    }

    /// How many rows of it the database has.
    pub(super) async fn rows(&self, north: &Connection) -> Result<usize, String> {
        let mut count = 0;
        for (table, which) in self.places() {
            // An older database may lack a table.
            if north.schema().table(table).is_some() {
                count += rows(north, table, which, &["_uuid"]).await?.len();
            }
        }
        Ok(count)
    }

    /// Tables and conditions of its rows.
    fn places(&self) -> Vec<(&'static str, Where)> {
        let ids = |pairs: [(&str, &str); 2]| -> Where {
            Condition::includes("external_ids", Datum::map(pairs)).into()
        };
        let of_type = |tables: &[&'static str], kind: &str, name: &str| {
            let own = |table: &&'static str| (*table, ids([(OWNER_TYPE, kind), (NAME, name)]));
            tables.iter().map(own).collect()
        };
        match self {
            Self::Pod(pod) => {
                let port = IfaceId::new(pod, &Network::Default).to_string();
                vec![("Logical_Switch_Port", Condition::equal("name", port).into())]
            }
            Self::Service(service) => {
                let owner = service.to_string();
                vec![("Load_Balancer", ids([(KIND, SERVICE), (OWNER, &owner)]))]
            }
            Self::NetworkPolicy(policy) => {
                let name = format!("{}:{}", policy.namespace(), policy.name());
                of_type(&["Port_Group", "ACL"], NETWORK_POLICY, &name)
            }
            Self::ClusterPolicy(kind, name) => of_type(&["Port_Group", "ACL"], kind.as_str(), name),
            Self::Custom(kind, namespace) => of_type(&["ACL", "QoS"], kind.as_str(), namespace),
            Self::Namespace(name) => of_type(&["Address_Set", "Port_Group"], NAMESPACE_SET, name),
            Self::Node(name) => {
                vec![("Logical_Switch", Condition::equal("name", name.as_str()).into())]
            }
        }
    }

    /// The command that shows the object.
    pub(super) fn describe(&self) -> String {
        let text = self.to_string();
        match text.split_once(' ') {
            Some((kind, name)) => match name.split_once('/') {
                Some((namespace, name)) => {
                    format!("kubectl -n {namespace} describe {} {name}", kind.to_lowercase())
                }
                None => format!("kubectl describe {} {name}", kind.to_lowercase()),
            },
            None => text,
        }
    }
}

/// `NetworkPolicy shop/db`
impl fmt::Display for AppliedSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(pod) => write!(f, "Pod {pod}"),
            Self::Service(service) => write!(f, "Service {service}"),
            Self::NetworkPolicy(policy) => {
                write!(f, "NetworkPolicy {}/{}", policy.namespace(), policy.name())
            }
            Self::ClusterPolicy(kind, name) => write!(f, "{} {name}", kind.as_str()),
            Self::Custom(kind, namespace) => {
                write!(f, "{} {namespace}/{}", kind.as_str(), contract::definition::CUSTOM_NAME)
            }
            Self::Namespace(name) => write!(f, "Namespace {name}"),
            Self::Node(name) => write!(f, "Node {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_the_spellings_of_kubectl_and_others_are_named() {
        for (kind, shown) in [
            ("netpol", "NetworkPolicy shop/db"),
            ("NetworkPolicy", "NetworkPolicy shop/db"),
            ("svc", "Service shop/db"),
            ("po", "Pod shop/db"),
            ("cnp", "ClusterNetworkPolicy db"),
            ("egressqos", "EgressQoS shop/default"),
            ("node", "Node db"),
        ] {
            let subject = AppliedSubject::read(kind, "shop", "db").unwrap();
            assert_eq!(subject.to_string(), shown);
            assert!(!subject.places().is_empty());
        }
        let policy = AppliedSubject::read("netpol", "shop", "db").unwrap();
        assert_eq!(policy.describe(), "kubectl -n shop describe networkpolicy db");
        let error = AppliedSubject::read("ingress", "shop", "db").unwrap_err();
        assert!(error.contains("networkpolicy"), "{error}");
        assert!(AppliedSubject::read("pod", "shop", "No_Pod").is_err());
    }
}
