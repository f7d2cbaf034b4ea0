//! Reads the data for the picture from a node's Open vSwitch and from the pods' namespaces.

use anyhow::{Context as _, Result};
use integration::{Node, Pod};
use serde::Deserialize;

use super::{
    picture::{NodeView, PodPort, Tunnel},
    rows::{Row, Table},
};

/// The current view of `node`; `pods` are all pods of the demo.
pub(crate) fn view(node: &Node, pods: &[Pod]) -> Result<NodeView> {
    const QUESTIONS: &str = "--format=json --columns=external_ids list Open_vSwitch \
                             -- --columns=name,datapath_type,ports list Bridge br-int \
                             -- --columns=_uuid,interfaces list Port \
                             -- --columns=_uuid,name,type,ofport,external_ids,options list Interface";
    let [switch, bridge, ports, interfaces] = Table::parse(&node.vsctl(QUESTIONS.split_whitespace())?)?;
    let bridge = bridge.rows()?.into_iter().next().context("br-int")?;
    let of_bridge = bridge.texts("ports")?;
    let mut members = Vec::new();
    for port in ports.rows()? {
        if of_bridge.contains(&port.text("_uuid")?) {
            members.extend(port.texts("interfaces")?);
        }
    }

    let mut view = NodeView {
        name: node.name.clone(),
        tunnel_address: switch
            .rows()?
            .first()
            .context("Open_vSwitch")?
            .value_of("external_ids", "ovn-encap-ip")?,
        datapath: bridge.text("datapath_type")?,
        pods: Vec::new(),
        tunnels: Vec::new(),
    };
    for row in interfaces.rows()? {
        if members.contains(&row.text("_uuid")?) {
            sort_in(node, pods, &row, &mut view)?;
        }
    }
    view.pods.sort_by_key(|port| port.ofport.parse::<u32>().ok());
    Ok(view)
}

/// Adds an interface of br-int to the view as a pod's port or as a tunnel; br-int's own interface is neither.
fn sort_in(node: &Node, pods: &[Pod], row: &Row<'_>, view: &mut NodeView) -> Result<()> {
    let (name, ofport) = (row.text("name")?, row.text("ofport")?);
    let remote = row.value_of("options", "remote_ip")?;
    if !remote.is_empty() {
        view.tunnels.push(Tunnel { name, kind: row.text("type")?, remote, ofport });
        return Ok(());
    }
    let iface_id = row.value_of("external_ids", "iface-id")?;
    if let Some(pod) = pods.iter().find(|pod| pod.port() == iface_id) {
        let ifname = row.value_of("external_ids", "pod-if-name")?;
        let addresses = addresses(node, pod, &ifname)?;
        view.pods.push(PodPort {
            pod: format!("{}/{}", pod.namespace, pod.name),
            addresses,
            ifname,
            host_ifname: name,
            ofport,
        });
    }
    Ok(())
}

/// The addresses that `ip` shows in the pod.
fn addresses(node: &Node, pod: &Pod, ifname: &str) -> Result<Vec<String>> {
    #[derive(Deserialize)]
    struct Link {
        addr_info: Vec<Address>,
    }
    #[derive(Deserialize)]
    struct Address {
        local: String,
        scope: String,
    }

    let output = node.run_in_pod(pod, ["ip", "-json", "address", "show", "dev", ifname])?;
    let links: Vec<Link> = serde_json::from_str(&output).context("output of `ip -json`")?;
    let addresses =
        links.into_iter().flat_map(|link| link.addr_info).filter(|address| address.scope == "global");
    Ok(addresses.map(|address| address.local).collect())
}
