//! Where a connection may end: one server, or the backends of a Service. Reads only; knows nothing
//! of policies.

use std::net::IpAddr;

use contract::names::ServiceKey;
use kube::api::ListParams;
use kubeapi::services::Service;
use kubeapi::{
    Connection,
    services::{Endpoint, ServiceObject, ServicePort, Slice, SliceObject, chosen},
    watch::Watched as _,
};

use super::{
    Question,
    api::{Unanswered, get, list, list_where},
    ends::{Finder, Party, Role, Who},
    model::protocol,
    question::Asked,
};

/// Backends that are explained. More pages are not read.
const MOST: usize = 32;

/// A server, and its own port.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) party: Party,
    pub(super) port: u16,
}

/// All ends that a connection may have.
#[derive(Debug)]
pub(super) struct Targets {
    /// The Service that the question is about, if it is.
    pub(super) service: Option<ServiceFacts>,
    pub(super) all: Vec<Target>,
    /// What could not be read, and why.
    pub(super) unread: Vec<String>,
}

#[derive(Debug)]
pub(super) struct ServiceFacts {
    pub(super) key: ServiceKey,
    pub(super) addresses: Vec<IpAddr>,
    /// Backends without a page, and why.
    pub(super) left_out: Vec<String>,
}

impl Targets {
    /// # Errors
    ///
    /// The API server does not answer, there is no such server, or the Service has no such port.
    pub(super) async fn find(
        api: &Connection,
        finder: &mut Finder<'_>,
        client: &Party,
        question: &Question,
    ) -> Result<Self, Unanswered> {
        let mut unread = Vec::new();
        let found = match &question.server {
            Asked::Service(key) => {
                let collection = format!("/api/v1/namespaces/{}/services", key.namespace());
                let object: ServiceObject = get(api, &collection, key.name()).await?;
                Some(object.value().map_err(|_| Unanswered::NoService(key.clone()))?)
            }
            Asked::Address(address) => {
                let party = finder.find(&question.server, Role::Server).await?;
                let service = match party.who {
                    Who::Outside => service_at(api, *address).await.unwrap_or_else(|error| {
                        unread.push(error.to_string());
                        None
                    }),
                    Who::Pod(_) | Who::Node { .. } => None,
                };
                match service {
                    Some(service) => Some(service),
                    None => return Ok(Self::one(party, question.port, unread)),
                }
            }
            Asked::Pod(_) | Asked::Node(_) => {
                let party = finder.find(&question.server, Role::Server).await?;
                return Ok(Self::one(party, question.port, unread));
            }
        };
        let Some((key, service)) = found else {
            return Ok(Self { service: None, all: Vec::new(), unread });
        };
        Self::of_service(api, finder, client, question, (key, &service)).await
    }

    fn one(party: Party, port: u16, unread: Vec<String>) -> Self {
        Self { service: None, all: vec![Target { party, port }], unread }
    }

    async fn of_service(
        api: &Connection,
        finder: &mut Finder<'_>,
        client: &Party,
        question: &Question,
        (key, service): (ServiceKey, &Service),
    ) -> Result<Self, Unanswered> {
        let is_asked = |port: &&ServicePort| {
            (port.port, protocol(port.protocol)) == (question.port, question.protocol)
        };
        let port = service.ports.iter().find(is_asked).ok_or_else(|| no_port(&key, service))?;
        let collection =
            format!("/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices", key.namespace());
        let own =
            ListParams::default().labels(&format!("kubernetes.io/service-name={}", key.name()));
        let slices: Vec<SliceObject> = list_where(api, &collection, own).await?;
        let slices: Vec<Slice> = slices
            .into_iter()
            .filter_map(|object| object.value().ok())
            .map(|(_, slice)| slice)
            .collect();
        let asked = match question.server {
            Asked::Address(address) => Some(address),
            Asked::Service(_) | Asked::Pod(_) | Asked::Node(_) => None,
        };
        let mut backends = backends(&slices, &key, port);
        backends.retain(|(endpoint, _)| {
            let is_family = asked.is_none_or(|asked| asked.is_ipv4() == endpoint.address.is_ipv4());
            is_family
                && client
                    .node()
                    .is_none_or(|node| service.internal.admits(endpoint.node.as_deref(), node))
        });
        let (mut all, mut left_out) = (Vec::new(), Vec::new());
        for (endpoint, port) in backends {
            let address = endpoint.address;
            if all.len() == MOST {
                left_out.push(format!("{address}: only {MOST} backends are explained"));
                continue;
            }
            match finder.find(&Asked::Address(address), Role::Server).await {
                Ok(party) => all.push(Target { party, port }),
                // It has gone since the slice was written.
                Err(error @ (Unanswered::NobodyAt { .. } | Unanswered::NoEnd(_))) => {
                    left_out.push(error.to_string());
                }
                Err(error) => return Err(error),
            }
        }
        let addresses = service.cluster_ips.to_vec();
        Ok(Self {
            service: Some(ServiceFacts { key, addresses, left_out }),
            all,
            unread: Vec::new(),
        })
    }
}

/// The endpoints that take connections to the Service's port, each with its own port.
fn backends<'a>(
    slices: &'a [Slice],
    key: &ServiceKey,
    port: &ServicePort,
) -> Vec<(&'a Endpoint, u16)> {
    let own = slices.iter().filter(|slice| slice.service.as_ref() == Some(key));
    let all: Vec<(&Endpoint, u16)> = own
        .flat_map(|slice| {
            let targets: Vec<u16> = slice.targets(port).collect();
            slice.endpoints.iter().flat_map(move |endpoint| {
                targets.clone().into_iter().map(move |target| (endpoint, target))
            })
        })
        .collect();
    // Of each family by itself, as they are balanced.
    let of_family = |is_ipv4| {
        let own =
            all.iter().copied().filter(move |(endpoint, _)| endpoint.address.is_ipv4() == is_ipv4);
        chosen(own, |(endpoint, _)| endpoint.condition)
    };
    of_family(true).chain(of_family(false)).collect()
}

/// The Service that has the address in the cluster, or outside of it.
async fn service_at(
    api: &Connection,
    address: IpAddr,
) -> Result<Option<(ServiceKey, Service)>, Unanswered> {
    let found: Vec<ServiceObject> = list(api, "/api/v1/services").await?;
    let mut services = found.into_iter().filter_map(|object| object.value().ok());
    Ok(services.find(|(_, service)| service.addresses().any(|(_, own)| own == address)))
}

fn no_port(key: &ServiceKey, service: &Service) -> Unanswered {
    let ports = service.ports.iter().map(|port| format!("{}/{}", port.port, port.protocol));
    Unanswered::NoPort { service: key.clone(), ports: ports.collect::<Vec<_>>().join(", ") }
}
