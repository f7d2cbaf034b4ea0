//! The two ends of a question: the logical port where the packet starts, and the addresses to which
//! it goes. The API server says what the objects are, the southbound database where they are.

use std::{cell::OnceCell, collections::BTreeMap, net::IpAddr};

use contract::{
    annotation::PodNetwork,
    names::{IfaceId, Network, PodKey, ServiceKey},
    ovn::{KIND, OWNER, SERVICE, management_port},
    wire::TraceProtocol,
};
use kubeapi::Connection;
use ovsdb::{Condition, Datum};
use serde_json::Value;

use super::topology::{Binding, Topology};
use crate::{
    api_query::{get, name},
    explain::Asked,
    status::databases::rows,
};

/// Why a question has no packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoEnd {
    /// There is no such thing: nothing can be delivered.
    Absent(String),
    /// It could not be found out.
    Unknown(String),
}

/// Where a packet may be sent.
#[derive(Debug, Default)]
pub(super) struct Destination {
    /// At most one of each family is followed.
    pub(super) addresses: Vec<IpAddr>,
    /// The logical port that is to take it; `None` for a Service, and outside of OVN.
    pub(super) port: Option<String>,
}

/// Where a packet starts.
#[derive(Debug)]
pub(super) struct PacketStart<'a> {
    /// Of a pod in another zone: the port by which its packets come.
    pub(super) port: &'a Binding,
    pub(super) addresses: Vec<IpAddr>,
}

impl<'a> From<&'a Binding> for PacketStart<'a> {
    fn from(port: &'a Binding) -> Self {
        Self { port, addresses: port.networks.iter().map(|net| net.addr()).collect() }
    }
}

/// Who is asked about ends.
pub(super) struct EndFinder<'a> {
    /// `None`: it is not known, or does not answer.
    pub(super) api: Option<&'a Connection>,
    /// The northbound database, for Services without an API server.
    pub(super) north: Option<&'a ovsdb::Connection>,
    pub(super) topology: &'a Topology,
    /// Why the API server did not say what it was asked.
    pub(super) untold: OnceCell<String>,
}

impl<'a> EndFinder<'a> {
    /// The port where packets of this end start.
    pub(super) async fn start(&self, from: &Asked) -> Result<PacketStart<'a>, NoEnd> {
        let absent = |why: String| Err(NoEnd::Absent(why));
        match from {
            Asked::Pod(key) => match self.place_of_pod(key).await? {
                PodPlace::OfNode(node) => self.management(&node).map(Into::into),
                PodPlace::OtherZone(port, addresses) => Ok(PacketStart { port, addresses }),
                PodPlace::Here => self.pod(key).map(Into::into),
            },
            Asked::Node(node) => self.management(node).map(Into::into),
            Asked::Address(address) => match self.topology.holder(*address) {
                Some(binding) => Ok(binding.into()),
                None => absent(format!("no logical port has the address {address}")),
            },
            Asked::Service(key) => {
                absent(format!("Service {key} sends nothing: ask about one of its pods"))
            }
        }
    }

    /// Where packets for this end go.
    pub(super) async fn destination(
        &self,
        to: &Asked,
        protocol: TraceProtocol,
    ) -> Result<Destination, NoEnd> {
        match to {
            Asked::Pod(key) => match self.place_of_pod(key).await? {
                PodPlace::OfNode(node) => self.node(&node).await,
                PodPlace::OtherZone(_, addresses) => Ok(Destination { addresses, port: None }),
                PodPlace::Here => {
                    let binding = self.pod(key)?;
                    let addresses = binding.networks.iter().map(|net| net.addr()).collect();
                    let port = Some(binding.port.clone());
                    Ok(Destination { addresses, port })
                }
            },
            Asked::Node(node) => self.node(node).await,
            Asked::Service(key) => self.service(key, protocol).await,
            Asked::Address(address) => {
                let port = self.topology.holder(*address).map(|binding| binding.port.clone());
                Ok(Destination { addresses: vec![*address], port })
            }
        }
    }

    /// Where the pod is. One that the API server does not tell of may be here.
    async fn place_of_pod(&self, key: &PodKey) -> Result<PodPlace<'a>, NoEnd> {
        let Some(api) = self.api else { return Ok(PodPlace::Here) };
        let collection = format!("/api/v1/namespaces/{}/pods", key.namespace());
        let pod = match get(api, &collection, key.name()).await {
            Ok(Some(pod)) => pod,
            Ok(None) => return Err(NoEnd::Absent(format!("there is no pod {key}"))),
            // The databases know it as well.
            Err(trouble) => {
                let _ = self.untold.set(format!("pod {key}: {trouble}"));
                return Ok(PodPlace::Here);
            }
        };
        let (spec, phase) = (&pod["spec"], pod["status"]["phase"].as_str().unwrap_or_default());
        if ["Succeeded", "Failed"].contains(&phase) {
            return Err(NoEnd::Absent(format!("pod {key} has ended, so that it has no address")));
        }
        match (spec["hostNetwork"].as_bool(), spec["nodeName"].as_str()) {
            (Some(true), Some(node)) => Ok(PodPlace::OfNode(node.to_owned())),
            (_, None) => Err(NoEnd::Absent(format!("pod {key} is on no node yet"))),
            (_, Some(node)) => match self.topology.way_to_zone(node) {
                Some(port) => Ok(PodPlace::OtherZone(port, addresses(&pod))),
                None => Ok(PodPlace::Here),
            },
        }
    }

    fn pod(&self, key: &PodKey) -> Result<&'a Binding, NoEnd> {
        let port = IfaceId::new(key, &Network::Default).to_string();
        let found = self.topology.port(&port).filter(|binding| binding.mac.is_some());
        found.ok_or_else(|| {
            let why = format!("the southbound database has no logical port {port} of pod {key}");
            match self.api {
                Some(_) => NoEnd::Absent(why),
                None => NoEnd::Absent(format!("{why}, and no API server says whether it exists")),
            }
        })
    }

    fn management(&self, node: &str) -> Result<&'a Binding, NoEnd> {
        let port = management_port(node);
        let found = self.topology.port(&port).filter(|binding| binding.mac.is_some());
        found.ok_or_else(|| match self.topology.way_to_zone(node) {
            Some(_) => NoEnd::Unknown(format!(
                "node {node} is in another zone: ask there, with the databases of its zone"
            )),
            None => NoEnd::Absent(format!(
                "the southbound database has no management port {port} of node {node}"
            )),
        })
    }

    /// The addresses at which other machines know the node.
    async fn node(&self, node: &str) -> Result<Destination, NoEnd> {
        let mut addresses = Vec::new();
        if let Some(api) = self.api
            && let Ok(found) = get(api, "/api/v1/nodes", node).await
        {
            let Some(object) = found else {
                return Err(NoEnd::Absent(format!("there is no node {node}")));
            };
            let all = object["status"]["addresses"].as_array().cloned().unwrap_or_default();
            let internal = all.iter().filter(|address| address["type"] == "InternalIP");
            addresses.extend(internal.filter_map(|address| parsed(&address["address"])));
        }
        if addresses.is_empty() {
            let management = self.management(node)?;
            addresses.extend(self.topology.tunnel_endpoints(management));
        }
        match addresses.is_empty() {
            true => Err(NoEnd::Unknown(format!(
                "node {node} has no known address: neither the API server nor its chassis says one"
            ))),
            false => Ok(Destination { addresses, port: None }),
        }
    }

    async fn service(
        &self,
        key: &ServiceKey,
        protocol: TraceProtocol,
    ) -> Result<Destination, NoEnd> {
        let (asked, asked_port) = match protocol {
            TraceProtocol::Tcp(port) => ("TCP", port),
            TraceProtocol::Udp(port) => ("UDP", port),
            TraceProtocol::Icmp => {
                return Err(NoEnd::Absent(format!(
                    "Service {key} does not answer echo requests: ask with --tcp or --udp"
                )));
            }
        };
        let frontends = match self.api {
            Some(api) => match self.frontends(api, key).await? {
                Some(frontends) => frontends,
                None => self.balanced(key).await?,
            },
            None => self.balanced(key).await?,
        };
        let ServiceAddresses { addresses, ports } = frontends;
        if addresses.is_empty() {
            return Err(NoEnd::Absent(format!(
                "Service {key} has no address in the cluster: ask about its pods"
            )));
        }
        if !ports.iter().any(|(name, port)| name == asked && *port == asked_port) {
            let ports: Vec<String> =
                ports.iter().map(|(name, port)| format!("{port}/{name}")).collect();
            return Err(NoEnd::Absent(format!(
                "Service {key} has no {asked} port {asked_port}; it has {}",
                ports.join(", ")
            )));
        }
        Ok(Destination { addresses, port: None })
    }

    /// As the API server has them; `None` if it does not answer.
    async fn frontends(
        &self,
        api: &Connection,
        key: &ServiceKey,
    ) -> Result<Option<ServiceAddresses>, NoEnd> {
        let collection = format!("/api/v1/namespaces/{}/services", key.namespace());
        let service = match get(api, &collection, key.name()).await {
            Ok(Some(service)) => service,
            Ok(None) => return Err(NoEnd::Absent(format!("there is no Service {key}"))),
            Err(trouble) => {
                let _ = self.untold.set(format!("Service {key}: {trouble}"));
                return Ok(None);
            }
        };
        if service["spec"]["type"] == "ExternalName" {
            let why = format!("Service {} is a name of the DNS and has no address", name(&service));
            return Err(NoEnd::Absent(why));
        }
        let list = |field: &str| service["spec"][field].as_array().cloned().unwrap_or_default();
        let mut addresses: Vec<IpAddr> = list("clusterIPs").iter().filter_map(parsed).collect();
        if addresses.is_empty() {
            addresses.extend(parsed(&service["spec"]["clusterIP"]));
        }
        let port = |port: &Value| {
            let number = port["port"].as_u64().and_then(|number| u16::try_from(number).ok())?;
            Some((port["protocol"].as_str().unwrap_or("TCP").to_owned(), number))
        };
        Ok(Some(ServiceAddresses {
            addresses,
            ports: list("ports").iter().filter_map(port).collect(),
        }))
    }

    /// As the load balancers of the northbound database have them.
    async fn balanced(&self, key: &ServiceKey) -> Result<ServiceAddresses, NoEnd> {
        let Some(north) = self.north else {
            return Err(NoEnd::Unknown(format!(
                "neither the API server nor the northbound database says what Service {key} is"
            )));
        };
        let owner = Datum::map([(KIND, SERVICE), (OWNER, &key.to_string())]);
        let own = Condition::includes("external_ids", owner).into();
        let found = rows(north, "Load_Balancer", own, &["name", "vips", "protocol"]).await;
        let found = found.map_err(NoEnd::Unknown)?;
        let mut frontends = ServiceAddresses::default();
        // Others are of node ports, which are addresses of nodes.
        for row in found
            .iter()
            .filter(|row| row.string("name").is_some_and(|name| name.ends_with("_cluster")))
        {
            let protocol = row.string("protocol").unwrap_or("tcp").to_uppercase();
            for vip in row.map("vips").keys() {
                let Ok(vip) = vip.parse::<std::net::SocketAddr>() else { continue };
                if !frontends.addresses.contains(&vip.ip()) {
                    frontends.addresses.push(vip.ip());
                }
                frontends.ports.push((protocol.clone(), vip.port()));
            }
        }
        match found.is_empty() {
            true => Err(NoEnd::Absent(format!("the northbound database has no Service {key}"))),
            false => Ok(frontends),
        }
    }
}

/// Where a pod is.
enum PodPlace<'a> {
    /// In this zone's databases, if it has a network.
    Here,
    /// In the network of this node.
    OfNode(String),
    /// On a node of another zone, to which this port leads, with these addresses.
    OtherZone(&'a Binding, Vec<IpAddr>),
}

/// The addresses of a pod's annotation.
fn addresses(pod: &Value) -> Vec<IpAddr> {
    let annotations = pod["metadata"]["annotations"].clone();
    let annotations: BTreeMap<String, String> =
        serde_json::from_value(annotations).unwrap_or_default();
    let network = PodNetwork::from_annotations(&annotations, &Network::Default).ok().flatten();
    network.into_iter().flat_map(|network| network.addresses).map(|net| net.addr()).collect()
}

/// Addresses and ports of a Service.
#[derive(Debug, Default)]
struct ServiceAddresses {
    addresses: Vec<IpAddr>,
    ports: Vec<(String, u16)>,
}

fn parsed(value: &Value) -> Option<IpAddr> {
    value.as_str()?.parse().ok()
}

/// One address of each family that both ends have, with the source's first.
pub(super) fn families(
    start: &PacketStart<'_>,
    destination: &Destination,
) -> Vec<(IpAddr, IpAddr)> {
    let mut found = BTreeMap::new();
    for to in &destination.addresses {
        let mut own = start.addresses.iter();
        if let Some(from) = own.find(|from| from.is_ipv6() == to.is_ipv6()) {
            found.entry(to.is_ipv6()).or_insert((*from, *to));
        }
    }
    found.into_values().collect()
}
