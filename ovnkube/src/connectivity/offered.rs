//! What not every cluster has: load balancers, addresses of one's own choice, and policies of the
//! whole cluster. Each is made if the cluster takes it, and else the reason is said.

use std::{net::IpAddr, time::Duration};

use contract::definition::{ADMIN_NETWORK_POLICY, CLUSTER_NETWORK_POLICY, Definition};
use kubeapi::{Trouble, discovery::Served};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{
    Names,
    cluster::{Cluster, PAUSE},
    manifests::{self, services_of},
    progress,
    site::Service,
};

/// How long a load balancer may take. Those of clusters on machines of their own take a second; a
/// cloud's that takes minutes is not waited for.
const BALANCED: Duration = Duration::from_secs(20);

/// Something that was made, or the reason why it was not.
pub(super) type Offered<T> = Result<T, String>;

/// A kind of policy of the whole cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClusterPolicy {
    ClusterNetworkPolicy,
    AdminNetworkPolicy,
}

impl ClusterPolicy {
    pub(super) const ALL: [Self; 2] = [Self::ClusterNetworkPolicy, Self::AdminNetworkPolicy];

    /// As the API names the kind.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ClusterNetworkPolicy => "ClusterNetworkPolicy",
            Self::AdminNetworkPolicy => "AdminNetworkPolicy",
        }
    }

    /// The label `app` of the servers that it guards.
    pub(super) fn app(self) -> &'static str {
        match self {
            Self::ClusterNetworkPolicy => "cnp",
            Self::AdminNetworkPolicy => "anp",
        }
    }

    pub(super) fn definition(self) -> &'static Definition {
        match self {
            Self::ClusterNetworkPolicy => &CLUSTER_NETWORK_POLICY,
            Self::AdminNetworkPolicy => &ADMIN_NETWORK_POLICY,
        }
    }
}

/// The addresses of Services that need a cluster's consent, and why there are none.
#[derive(Debug, Clone)]
pub(super) struct OuterAddresses {
    pub(super) external: Offered<Vec<IpAddr>>,
    pub(super) balanced: Offered<Vec<IpAddr>>,
}

impl Default for OuterAddresses {
    fn default() -> Self {
        let not_asked = || Err("not asked for".to_owned());
        Self { external: not_asked(), balanced: not_asked() }
    }
}

/// The Services with such addresses, as they were made.
#[derive(Debug)]
pub(super) struct OuterServices {
    external: Offered<Vec<IpAddr>>,
    balanced: Offered<Value>,
    made: Instant,
}

impl OuterServices {
    /// One with addresses of this run's choice in the families of `like`, and one with a load
    /// balancer, whose addresses come later.
    ///
    /// # Errors
    ///
    /// The API server does not answer.
    pub(super) async fn make(
        cluster: &Cluster,
        names: &Names,
        like: &[IpAddr],
    ) -> Result<Self, String> {
        let addresses: Vec<IpAddr> =
            like.iter().map(|address| names.outer_address(address.is_ipv6())).collect();
        let services = services_of(&names.namespace);
        let external = manifests::external_service(names, &addresses);
        let external = cluster.offer(&services, &external).await?.map(|_| addresses);
        let balanced = cluster.offer(&services, &manifests::balanced_service(names)).await?;
        Ok(Self { external, balanced, made: Instant::now() })
    }

    /// The addresses, once they are there.
    ///
    /// # Errors
    ///
    /// The API server does not answer.
    pub(super) async fn addresses(
        self,
        cluster: &Cluster,
        names: &Names,
    ) -> Result<OuterAddresses, String> {
        let Self { external, balanced, made } = self;
        let mut service = match balanced {
            Ok(service) => service,
            Err(why) => return Ok(OuterAddresses { external, balanced: Err(why) }),
        };
        loop {
            let addresses = Service::ingress(&service);
            if !addresses.is_empty() {
                return Ok(OuterAddresses { external, balanced: Ok(addresses) });
            }
            if made.elapsed() > BALANCED {
                let why = without_address(&service);
                return Ok(OuterAddresses { external, balanced: Err(why) });
            }
            progress("waiting for a load balancer");
            sleep(PAUSE).await;
            let name = manifests::BALANCED;
            let found = cluster.get(&services_of(&names.namespace), name).await?;
            service = found.ok_or_else(|| format!("Service {name} is gone"))?;
        }
    }
}

fn without_address(service: &Value) -> String {
    let first = &service["status"]["loadBalancer"]["ingress"][0]["hostname"];
    match first.as_str() {
        Some(name) => format!("the load balancer has the name {name} and no address"),
        None => format!(
            "no load balancer has given the Service an address within {} s",
            BALANCED.as_secs()
        ),
    }
}

/// Makes the policy; the reason if the cluster does not take it.
pub(super) async fn cluster_policy(
    cluster: &Cluster,
    names: &Names,
    kind: ClusterPolicy,
) -> Result<Offered<()>, String> {
    let (definition, name) = (kind.definition(), kind.name());
    let version = match cluster.served(definition).await {
        Ok(Served::In(version)) => version,
        Ok(Served::Nowhere) => return Ok(Err(format!("this cluster has no {name}"))),
        Ok(Served::Otherwise(versions)) => {
            let versions = versions.join(", ");
            return Ok(Err(format!("this cluster has {name} in other versions alone: {versions}")));
        }
        Err(trouble) => return Err(format!("{name}: {trouble}")),
    };
    let policy = manifests::cluster_policy(names, kind, &definition.api_version(version));
    let made = cluster.offer(&definition.path(version), &policy).await?;
    Ok(made.map(drop))
}

/// Whether the answer is a refusal that stands in the cluster's rules: of its rights, or of
/// admission.
pub(super) fn refusal(trouble: &Trouble) -> Option<String> {
    match trouble.code {
        Some(403 | 422) => Some(format!("this cluster does not take it: {trouble}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_load_balancer_without_an_address_is_said_with_what_it_has() {
        let named =
            json!({"status": {"loadBalancer": {"ingress": [{"hostname": "lb.example.org"}]}}});
        assert!(without_address(&named).contains("lb.example.org"));
        assert!(without_address(&json!({})).contains("within 20 s"));
    }

    #[test]
    fn a_policy_of_each_kind_allows_one_client_and_denies_the_others_of_this_run_alone() {
        let names = Names { namespace: "run".to_owned(), other: "run-other".to_owned() };
        for kind in ClusterPolicy::ALL {
            let version = kind.definition().api_version(kind.definition().newest());
            let policy = manifests::cluster_policy(&names, kind, &version);
            assert_eq!(policy["kind"], kind.name());
            assert_eq!(policy["apiVersion"], version.as_str());
            let rules = policy["spec"]["ingress"].as_array().unwrap();
            assert_eq!(rules.len(), 3);
            let subject = policy["spec"]["subject"]["pods"].to_string();
            assert!(subject.contains("\"run\"") && subject.contains(kind.app()), "{subject}");
            // No rule is about a namespace that is not of this run.
            for rule in rules {
                let peers = rule["from"].to_string();
                assert!(peers.contains("\"run\"") || peers.contains("\"run-other\""), "{peers}");
            }
        }
    }
}
