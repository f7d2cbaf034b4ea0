//! The plan of one interface of one pod: names, addresses, routes, and the record in Open vSwitch.
//!
//! Pure: no I/O. The server's answer and the runtime's request go in, an [`Attachment`] comes out,
//! and everything after it only carries it out.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use contract::{
    bandwidth::Bandwidth,
    external_ids,
    fnv1a::fnv1a,
    mac::Mac,
    mtu::Mtu,
    names::{IfName, IfaceId, Network, PodKey, SandboxId},
    wire::{PodInterface, PortRequest},
};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Limit of an alias in bytes. The kernel has room for 256 (`IFALIASZ`), and counts the final zero
/// twice: its own, and that of the netlink message.
pub(crate) const LONGEST_ALIAS: usize = 254;

/// The identity of an interface: sandbox, name in the pod, and network. Known before the server is
/// asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    pub sandbox: SandboxId,
    pub if_name: IfName,
    pub network: Network,
}

/// The plan of one interface of one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    pub identity: Identity,
    pub pod: PodKey,
    /// The network as the server knows it. A pod that has one network twice has two keys for it.
    pub network: Network,
    pub iface_id: IfaceId,
    /// Empty if neither the server nor the runtime knows it.
    pub pod_uid: String,
    pub mac: Mac,
    pub mtu: Mtu,
    pub addresses: Vec<IpNet>,
    pub routes: Vec<Route>,
    /// Addresses and routes are the pod's, but are configured elsewhere: by the guest of a virtual
    /// machine that migrates.
    pub skip_ip_config: bool,
    pub bandwidth: Bandwidth,
}

/// A route inside the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    pub destination: IpNet,
    pub next_hop: Option<IpAddr>,
    /// `None` if it is the link's.
    pub mtu: Option<Mtu>,
}

/// As ip(8) has it: `10.128.0.0/14 via 10.128.1.1 mtu 1400`.
impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { destination, next_hop, mtu } = self;
        write!(f, "{destination}")?;
        if let Some(next_hop) = next_hop {
            write!(f, " via {next_hop}")?;
        }
        mtu.map_or(Ok(()), |mtu| write!(f, " mtu {mtu}"))
    }
}

/// The pod's interface, in rows of upstream before 2026, which do not name it.
const USUAL_NAME: &str = "eth0";

impl Identity {
    /// Whose an Interface row with these `external_ids` is; none if it is no pod's.
    pub fn of(external_ids: &BTreeMap<String, String>) -> Option<Self> {
        let id = |key: &str| external_ids.get(key).map(String::as_str);
        let network = id(external_ids::NAD).map_or(Network::Default, |nad| Network::Attachment {
            name: id(external_ids::NETWORK).unwrap_or_default().to_owned(),
            nad: nad.to_owned(),
        });
        Some(Self {
            sandbox: id(external_ids::SANDBOX)?.parse().ok()?,
            if_name: id(external_ids::POD_IF_NAME).unwrap_or(USUAL_NAME).parse().ok()?,
            network,
        })
    }

    /// The alias of the host's link: its owner, for DEL and GC to read if no row in Open vSwitch
    /// names one. At most 254 bytes, so that the end of a very long container id may be missing.
    pub fn alias(&self) -> String {
        let Self { sandbox, if_name, network } = self;
        let mut alias = format!("{}{if_name}:{sandbox}", Self::alias_prefix(network));
        // Names of definitions and interfaces may have characters of several bytes.
        alias.truncate(alias.floor_char_boundary(LONGEST_ALIAS));
        alias
    }

    /// Whether a link with this alias belongs to this interface. Other parts of the
    /// [`OwnershipTag`](crate::ownership_tag::OwnershipTag) do not matter.
    pub fn owns(&self, alias: &str) -> bool {
        alias
            .strip_prefix(&self.alias())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
    }

    /// Name of the host's end on another network until the index of the pod's end is known. The
    /// same in each attempt, so that DEL finds it.
    pub fn temporary_host_name(&self) -> IfName {
        format!("v{:014x}", self.key() >> 8)
            .parse()
            .expect("15 hexadecimal digits are an interface name")
    }

    /// Sandbox and interface in 64 bits. FNV-1a, because the plugin that carries out DEL may be of
    /// another version, and built with another toolchain, than the one that carried out ADD.
    pub fn key(&self) -> u64 {
        // No name contains the byte 0xff: two different pairs never make the same bytes.
        fnv1a(self.sandbox.as_str().bytes().chain([0xff]).chain(self.if_name.as_str().bytes()))
    }

    /// Address of the host's end, which no traffic uses: locally administered (IEEE 802, second bit
    /// of the first octet), and the same in each attempt.
    pub fn host_mac(&self) -> Mac {
        const LOCAL: u8 = 0b10;
        const GROUP: u8 = 0b1;
        let [_, _, first, others @ ..] = self.key().to_be_bytes();
        let [b, c, d, e, f] = others;
        Mac::try_from([(first | LOCAL) & !GROUP, b, c, d, e, f])
            .expect("neither zero nor a group's")
    }

    /// The beginning of the aliases of one network's links.
    fn alias_prefix(network: &Network) -> String {
        format!("ovn-k8s:{}:", network.annotation_key())
    }
}

impl Attachment {
    /// Plans what to configure for `pod` in the sandbox that the runtime named.
    pub fn plan(
        identity: Identity,
        pod_key: &PodKey,
        runtime_uid: Option<&str>,
        pod: PodInterface,
    ) -> Self {
        let PodInterface {
            network,
            addressing,
            mtu,
            routable_mtu,
            bandwidth,
            pod_uid,
            skip_ip_config,
        } = pod;
        // Only the server knows which of several attachments to one network this is.
        let network = match (&identity.network, network) {
            (Network::Attachment { .. }, known @ Network::Attachment { .. }) => known,
            (asked, _) => asked.clone(),
        };
        let defaults = addressing.gateways.iter().map(|gateway| Route {
            destination: default_of(*gateway),
            next_hop: Some(*gateway),
            mtu: routable_mtu,
        });
        let others = addressing.routes.iter().map(|route| Route {
            destination: route.destination.trunc(),
            next_hop: route.next_hop,
            mtu: routable_mtu,
        });
        let routes = defaults.chain(others).collect();
        Self {
            iface_id: IfaceId::new(pod_key, &network),
            network,
            identity,
            pod: pod_key.clone(),
            pod_uid: if pod_uid.is_empty() {
                runtime_uid.unwrap_or_default().to_owned()
            } else {
                pod_uid
            },
            mac: addressing.mac,
            mtu,
            addresses: addressing.addresses,
            routes,
            skip_ip_config,
            bandwidth,
        }
    }

    /// The request to the server to write the port of this link. From the same annotations the
    /// server makes the same plan.
    pub fn port_request(&self, host_link: &IfName) -> PortRequest {
        let Identity { sandbox, if_name, network: _ } = &self.identity;
        PortRequest {
            pod: self.pod.clone(),
            uid: self.pod_uid.clone(),
            network: self.network.clone(),
            sandbox: sandbox.clone(),
            if_name: if_name.clone(),
            host_link: host_link.clone(),
            mac: self.mac,
            addresses: self.addresses.clone(),
        }
    }

    /// Whether an IPv6 address has to be configured inside the pod.
    pub fn configures_ipv6(&self) -> bool {
        !self.skip_ip_config && self.addresses.iter().any(|address| address.addr().is_ipv6())
    }

    /// `external_ids` of the Interface row: what OVN binds the port by, and the record that DEL
    /// reads.
    pub fn external_ids(&self) -> BTreeMap<String, String> {
        let Identity { sandbox, if_name, .. } = &self.identity;
        let addresses: Vec<String> = self.addresses.iter().map(IpNet::to_string).collect();
        let mut ids = BTreeMap::from([
            (external_ids::ATTACHED_MAC, self.mac.to_string()),
            (external_ids::IFACE_ID, self.iface_id.to_string()),
            (external_ids::SANDBOX, sandbox.to_string()),
            (external_ids::POD_IF_NAME, if_name.to_string()),
        ]);
        if !self.pod_uid.is_empty() {
            ids.insert(external_ids::IFACE_ID_VER, self.pod_uid.clone());
        }
        if let Some(first) = addresses.first() {
            ids.insert(external_ids::IP_ADDRESS, first.clone());
            ids.insert(external_ids::IP_ADDRESSES, addresses.join(","));
        }
        if self.skip_ip_config {
            ids.insert(external_ids::SKIP_IP_CONFIG, "true".to_owned());
        }
        if let Network::Attachment { name, nad } = &self.network {
            ids.insert(external_ids::NETWORK, name.clone());
            ids.insert(external_ids::NAD, nad.clone());
        }
        ids.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

/// The destination of the default route of a gateway's family.
pub fn default_of(gateway: IpAddr) -> IpNet {
    match gateway {
        IpAddr::V4(_) => IpNet::V4(Ipv4Net::default()),
        IpAddr::V6(_) => IpNet::V6(Ipv6Net::default()),
    }
}

#[cfg(test)]
mod tests;
