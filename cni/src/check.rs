//! CHECK: verifies that everything is as ADD left it. Compares the pod's end, the host's end and
//! the port with the result that the runtime stored and with what the server says now, and names
//! the first difference. Additions by chained plugins are ignored.

use std::{fmt::Display, net::IpAddr, time::Duration};

use contract::{
    bandwidth::Bandwidth,
    external_ids,
    names::{IfaceId, Network},
    net_conf::NetConf,
    wire::{PodInterface, Request},
};
use ipnet::IpNet;
use podnet::{
    bridge::{Bridge, BridgeError},
    link::{self, Link, LinkError},
    netlink::Netlink,
    netns::{Netns, NetnsError},
    plan::{Identity, default_of},
    pod_look,
    rows::InterfaceRow,
    settings::{SHORT_TIMEOUT, Settings},
};

use crate::{
    ask::{Answer, AskError, Server},
    invocation::Subject,
    result::{PrevInterface, PrevResult},
};

/// How long the server may take. It answers from memory. A runtime checks one pod after the other,
/// so the waits for a server that hangs add up.
const SERVER_PATIENCE: Duration = Duration::from_secs(3);

/// Why CHECK does not pass.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    #[error("the configuration has no prevResult, which CHECK compares with")]
    NoPrevResult,
    #[error("prevResult")]
    PrevResult(#[source] serde_json::Error),
    #[error("prevResult has no interface {0} inside a sandbox")]
    NotInResult(String),
    #[error("the call names no namespace or no pod")]
    NoSubject,
    #[error(transparent)]
    Netns(#[from] NetnsError),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("netlink: {what}")]
    Netlink { what: &'static str, source: std::io::Error },
    #[error(transparent)]
    Server(#[from] AskError),
    #[error("the node-local server's answer has neither a result nor an interface")]
    UnknownAnswer,
    #[error(transparent)]
    Bridge(#[from] BridgeError),
    /// The first difference.
    #[error("{what}: {found}, expected {expected}")]
    Mismatch { what: String, expected: String, found: String },
}

/// Looks for the first difference.
///
/// # Errors
/// [`CheckError::Mismatch`] for a difference; the other errors if something that is compared cannot
/// be read.
pub async fn check(
    subject: &Subject,
    conf: &NetConf,
    settings: &Settings,
    server: &Server,
    request: &Request,
) -> Result<(), CheckError> {
    let prev = conf.prev_result.clone().ok_or(CheckError::NoPrevResult)?;
    let prev: PrevResult = serde_json::from_value(prev).map_err(CheckError::PrevResult)?;
    let (Some(path), Some(pod)) = (&subject.netns, &subject.pod) else {
        return Err(CheckError::NoSubject);
    };
    let if_name = subject.if_name.as_str();
    let ours = prev
        .interfaces
        .iter()
        .find(|interface| interface.name == if_name && !interface.sandbox.is_empty());
    let ours = ours.ok_or_else(|| CheckError::NotInResult(if_name.to_owned()))?;
    let identity = Identity {
        sandbox: subject.sandbox.clone(),
        if_name: subject.if_name.clone(),
        network: conf.network.clone(),
    };
    let (now, bridge) =
        tokio::join!(ask_server(server, request), Bridge::connect(&settings.ovsdb, SHORT_TIMEOUT));
    let now = now?;
    // Read before the pod's end is compared, because the row says what ADD has configured there.
    let ports = match bridge {
        Ok(bridge) => rows_of(&bridge, &identity).await.map(|rows| (bridge, rows)),
        Err(error) => Err(error),
    };

    let netns = Netns::open(path)?;
    let owner =
        AddressOwner::of(now.as_ref(), ports.as_ref().ok().map(|(_, rows)| rows.as_slice()));
    let pod_mtu = check_pod_end(&netns.inside()?.netlink, ours, &prev, owner)?;

    let (bridge, rows) = ports?;
    let [row] = rows.as_slice() else {
        return differ(format!("ports of interface {if_name} in Open vSwitch"), 1, rows.len());
    };
    let host =
        Netlink::open().map_err(|source| CheckError::Netlink { what: "open a socket", source })?;
    let host_link = existing(&host, &row.name, "on the host")?;
    if !host_link.up {
        return differ(format!("link {} on the host", row.name), "up", "down");
    }
    // Results of older plugins have no MTU. ADD gave both ends the same one, while the server's MTU
    // may have changed since.
    if ours.mtu.is_none() && pod_mtu != host_link.mtu {
        return differ(format!("MTU of {if_name} in the pod"), host_link.mtu, pod_mtu);
    }
    check_row(
        row,
        &IfaceId::new(&pod.pod, &network_of(row, &identity.network)),
        pod.uid.as_deref(),
        ours,
        now.as_ref(),
    )?;
    check_port(&bridge, row, now.as_ref()).await
}

/// What the server would answer to an ADD now. `None` if it is down, refuses or does not know,
/// which is no difference. A server that hangs, or that answers with anything else, is an error.
async fn ask_server(
    server: &Server,
    request: &Request,
) -> Result<Option<PodInterface>, CheckError> {
    match server.ask_within(SERVER_PATIENCE, request).await {
        Ok(Answer::Interface(pod, _)) => Ok(Some(*pod)),
        Ok(Answer::Finished(_) | Answer::Nothing) => Ok(None),
        Ok(Answer::Unknown) => Err(CheckError::UnknownAnswer),
        Err(
            error @ (AskError::Silent(_)
            | AskError::Full { .. }
            | AskError::Broken(_)
            | AskError::Unexpected { .. }
            | AskError::Answer(_)),
        ) => Err(error.into()),
        Err(
            error @ (AskError::Absent { .. }
            | AskError::Refused(_)
            | AskError::Leaving(_)
            | AskError::PrimaryNetwork),
        ) => {
            tracing::debug!(%error, "CHECK goes on without the server");
            Ok(None)
        }
    }
}

/// The rows of the interface.
async fn rows_of(bridge: &Bridge, identity: &Identity) -> Result<Vec<InterfaceRow>, BridgeError> {
    let mut rows = bridge.of_sandbox(&identity.sandbox).await?;
    rows.retain(|row| row.belongs_to(identity));
    Ok(rows)
}

/// The system that has the pod's addresses and routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AddressOwner {
    /// The pod's end of the veth, where ADD has configured them.
    Interface,
    /// The guest of a virtual machine. ADD has left them to it, and so does CHECK.
    Guest,
    /// Neither server nor database can tell.
    Unknown,
}

impl AddressOwner {
    /// From the server's answer and the interface's rows, as far as they are known. The row tells
    /// what ADD did. Rows of older plugins do not, and an annotation may have come after ADD.
    fn of(now: Option<&PodInterface>, rows: Option<&[InterfaceRow]>) -> Self {
        let is_guests = |row: &InterfaceRow| row.id(external_ids::SKIP_IP_CONFIG) == Some("true");
        match (now, rows) {
            (Some(pod), _) if pod.skip_ip_config => Self::Guest,
            (_, Some(rows)) if rows.iter().any(is_guests) => Self::Guest,
            (None, None) => Self::Unknown,
            (Some(_), _) | (_, Some(_)) => Self::Interface,
        }
    }
}

/// Compares the pod's end of the veth, and returns its MTU.
fn check_pod_end(
    pod: &Netlink,
    ours: &PrevInterface,
    prev: &PrevResult,
    owner: AddressOwner,
) -> Result<u32, CheckError> {
    let if_name = &ours.name;
    let what = |property: &str| format!("{property} of {if_name} in the pod");
    let link = existing(pod, if_name, "in the pod")?;
    if !link.up {
        return differ(format!("link {if_name} in the pod"), "up", "down");
    }
    let mac = link.mac.map(|mac| mac.to_string()).unwrap_or_default();
    if !mac.eq_ignore_ascii_case(&ours.mac) {
        return differ(what("MAC address"), &ours.mac, mac);
    }
    if let Some(mtu) = ours.mtu.filter(|mtu| *mtu != link.mtu) {
        return differ(what("MTU"), mtu, link.mtu);
    }

    match owner {
        AddressOwner::Interface => {}
        AddressOwner::Guest | AddressOwner::Unknown => return Ok(link.mtu),
    }
    let addresses = addresses(pod, link.index)?;
    let expected: Vec<_> = prev.addresses_of(if_name).collect();
    if let Some(missing) = expected.iter().find(|ip| !addresses.contains(&ip.address)) {
        return differ(what("addresses"), missing.address, list(&addresses));
    }
    let routes = routes(pod, link.index)?;
    let defaults = expected.iter().filter_map(|ip| Some((default_of(ip.gateway?), ip.gateway)));
    // Routes in a result name no interface. Those whose gateway is on a subnet of this link are
    // ADD's; others belong to chained plugins.
    let on_this_link = |gateway: IpAddr| expected.iter().any(|ip| ip.address.contains(&gateway));
    let others = prev
        .routes
        .iter()
        .map(|route| (route.dst.trunc(), route.gw))
        .filter(|(_, gateway)| gateway.is_some_and(on_this_link));
    for (destination, gateway) in defaults.chain(others) {
        if !routes.contains(&(destination, gateway)) {
            let via = gateway.map(|gateway| format!(" via {gateway}")).unwrap_or_default();
            let found =
                list(&routes.iter().map(|(destination, _)| *destination).collect::<Vec<_>>());
            return differ(what("routes"), format!("{destination}{via}"), found);
        }
    }
    Ok(link.mtu)
}

/// Compares the `external_ids` that ADD wrote. What the server says now takes precedence over the
/// result and over `CNI_ARGS`.
fn check_row(
    row: &InterfaceRow,
    iface_id: &IfaceId,
    uid: Option<&str>,
    ours: &PrevInterface,
    now: Option<&PodInterface>,
) -> Result<(), CheckError> {
    let uid = now.map(|pod| pod.pod_uid.as_str()).filter(|uid| !uid.is_empty()).or(uid);
    let mac = now.map_or_else(|| ours.mac.to_lowercase(), |pod| pod.addressing.mac.to_string());
    let addresses =
        now.map(|pod| list_with(&pod.addressing.addresses, ",")).filter(|list| !list.is_empty());
    for (key, expected) in [
        (external_ids::IFACE_ID, Some(iface_id.to_string())),
        (external_ids::IFACE_ID_VER, uid.map(str::to_owned)),
        (external_ids::ATTACHED_MAC, Some(mac)),
        (external_ids::IP_ADDRESSES, addresses),
    ] {
        let found = row.id(key).unwrap_or_default();
        if let Some(expected) = expected.filter(|expected| expected != found) {
            return differ(format!("{key} of port {}", row.name), expected, format!("{found:?}"));
        }
    }
    Ok(())
}

/// The network as the server knew it at ADD. A pod that has one network twice has two keys for it,
/// `NAD` and `NAD/1`, and the configuration does not say which.
fn network_of(row: &InterfaceRow, asked: &Network) -> Network {
    let known = row.id(external_ids::NAD).zip(row.id(external_ids::NETWORK));
    match (asked, known) {
        (Network::Attachment { nad, .. }, Some((key, name)))
            if key.strip_prefix(nad).is_some_and(|rest| rest.starts_with('/')) =>
        {
            Network::Attachment { name: name.to_owned(), nad: key.to_owned() }
        }
        (asked, _) => asked.clone(),
    }
}

/// Compares the state of the port: its bridge, OpenFlow number, flows and rate limits.
async fn check_port(
    bridge: &Bridge,
    row: &InterfaceRow,
    now: Option<&PodInterface>,
) -> Result<(), CheckError> {
    let port = bridge.inspect(row.uuid).await?;
    let name = &row.name;
    if !port.on_bridge {
        return differ(format!("port {name}"), "on br-int", "not on it");
    }
    if let Some(error) = port.error {
        return differ(format!("port {name}"), "no error", error);
    }
    if port.ofport.is_none_or(|number| number <= 0) {
        return differ(
            format!("OpenFlow number of port {name}"),
            "a positive one",
            format!("{:?}", port.ofport),
        );
    }
    if row.id(external_ids::OVN_INSTALLED) != Some("true") {
        return differ(
            format!("ovn-installed of port {name}"),
            "true",
            format!("{:?}", row.id(external_ids::OVN_INSTALLED)),
        );
    }
    // A port without limits has no record of them, so it is compared only if the pod asks for none
    // now. An annotation that was added after ADD has no effect on the port, and is no difference.
    let asks_for_none = now.is_some_and(|pod| pod.bandwidth == Bandwidth::default());
    if let Some((ingress, egress)) = port.made_with.or(asks_for_none.then_some((None, None))) {
        if port.ingress_limit != ingress {
            return differ(
                format!("rate limit to the pod on port {name}"),
                rate(ingress),
                rate(port.ingress_limit),
            );
        }
        if port.egress_limit != egress {
            return differ(
                format!("rate limit (kbit/s) from the pod on port {name}"),
                rate(egress),
                rate(port.egress_limit),
            );
        }
    }
    Ok(())
}

fn existing(netlink: &Netlink, name: &str, place: &str) -> Result<Link, CheckError> {
    match link::find(netlink, name)? {
        Some(link) => Ok(link),
        None => differ(format!("link {name} {place}"), "there", "missing"),
    }
}

fn addresses(pod: &Netlink, index: u32) -> Result<Vec<IpNet>, CheckError> {
    pod_look::addresses(pod, index)
        .map_err(|source| CheckError::Netlink { what: "list addresses", source })
}

fn routes(pod: &Netlink, index: u32) -> Result<Vec<(IpNet, Option<IpAddr>)>, CheckError> {
    pod_look::routes(pod, index)
        .map_err(|source| CheckError::Netlink { what: "list routes", source })
}

fn differ<T>(what: String, expected: impl Display, found: impl Display) -> Result<T, CheckError> {
    Err(CheckError::Mismatch { what, expected: expected.to_string(), found: found.to_string() })
}

fn list(nets: &[IpNet]) -> String {
    if nets.is_empty() { "none".to_owned() } else { list_with(nets, ", ") }
}

fn list_with(nets: &[IpNet], separator: &str) -> String {
    nets.iter().map(IpNet::to_string).collect::<Vec<_>>().join(separator)
}

fn rate(limit: Option<impl Display>) -> String {
    limit.map_or_else(|| "none".to_owned(), |rate| rate.to_string())
}
