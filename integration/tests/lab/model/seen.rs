//! The state of the node in the reference's terms: links by their alias, ports by the
//! `external_ids` of their interface.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use integration::Node;
use serde_json::Value;

use crate::model::{
    state::{Key, State},
    step::Net,
};

/// Links and rows of `sandboxes`, which maps each ID to the pod's number and the sandbox's number.
pub(crate) fn on(node: &Node, sandboxes: &BTreeMap<&str, (usize, u32)>) -> Result<State> {
    let key = |id: &str, if_name: &str| -> Result<Key> {
        let (pod, sandbox) = *sandboxes
            .get(id)
            .with_context(|| format!("an interface of the unknown sandbox {id}"))?;
        let net = if if_name == "net1" { Net::Blue } else { Net::Own };
        Ok(Key { pod, sandbox, net })
    };
    let mut state = State::default();
    let links: Vec<Value> =
        serde_json::from_str(&node.run(["ip", "-json", "link", "show", "type", "veth"])?)?;
    for link in links {
        let Some(rest) = link["ifalias"].as_str().and_then(|alias| alias.strip_prefix("ovn-k8s:"))
        else {
            continue;
        };
        // `NETWORK:IFNAME:SANDBOX`, followed by the pod if the alias has room for it.
        let words: Vec<&str> = rest.split(':').collect();
        let [_, if_name, id, ..] = words.as_slice() else { continue };
        ensure!(state.links.insert(key(id, if_name)?), "two links of one interface: {rest}");
    }
    let rows: Value = serde_json::from_str(&node.vsctl([
        "--format=json",
        "--columns=name,external_ids",
        "list",
        "Interface",
    ])?)?;
    for row in rows["data"].as_array().into_iter().flatten() {
        let ids: BTreeMap<&str, &str> = row[1][1]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|pair| Some((pair[0].as_str()?, pair[1].as_str()?)))
            .collect();
        let Some(id) = ids.get("sandbox") else { continue };
        ensure!(
            state.rows.insert(key(id, ids.get("pod-if-name").copied().unwrap_or("eth0"))?),
            "two rows of one interface: {row}"
        );
    }
    Ok(state)
}
