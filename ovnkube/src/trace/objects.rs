//! The objects of Kubernetes behind logical flows: the northbound row of an ACL or a load balancer
//! has its object's id. Reads only.

use std::{collections::BTreeMap, ops::RangeInclusive};

use contract::ovn::{
    EGRESS_FIREWALL, ID, KIND, MULTICAST_CLUSTER, MULTICAST_NAMESPACE, NAME, NETPOL_NAMESPACE,
    NETWORK_POLICY, OWNER, OWNER_TYPE, RULE_INDEX, SOURCE_RANGES,
};
use ovsdb::{Condition, Connection, SelectedRow, Transaction, Where};

use super::steps::{LogicalFlow, Step, backends};
use crate::{
    chain,
    status::{answer, databases::rows},
};

/// northd adds it to an ACL's priority (`OVN_ACL_PRI_OFFSET`).
const ACL_OFFSET: i64 = 1000;
/// Those that an ACL may have (ovn-nb(5)).
const ACL_PRIORITIES: RangeInclusive<i64> = 0..=32_767;

/// The northbound row of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Object {
    /// `NetworkPolicy shop/db, Ingress rule 0`
    pub(super) name: String,
    /// An ACL's; `balance` for a load balancer.
    pub(super) action: String,
    /// The pods of this namespace are isolated by NetworkPolicies that select them.
    pub(super) isolates: bool,
}

/// The objects by the index of their steps.
pub(super) async fn of(
    steps: &[Step],
    north: &Connection,
) -> Result<BTreeMap<usize, Object>, String> {
    let mut found = acls(steps, north).await?;
    let balanced: Vec<(usize, String)> = steps
        .iter()
        .enumerate()
        .filter_map(|(index, step)| Some((index, frontend(step)?)))
        .collect();
    if balanced.is_empty() {
        return Ok(found);
    }
    let columns = ["name", "vips", "external_ids"];
    let balancers = rows(north, "Load_Balancer", Where::all(), &columns).await?;
    for (index, frontend) in balanced {
        let serves = |row: &&SelectedRow| row.map("vips").contains_key(&frontend);
        // The address of a node port is a variable: `^NODEIP:30080`.
        let port = frontend.rsplit_once(':').map(|(_, port)| format!(":{port}"));
        let is_template = |row: &&SelectedRow| {
            let ends = |vip: &String| port.as_ref().is_some_and(|port| vip.ends_with(port));
            row.map("vips").keys().any(|vip| vip.starts_with('^') && ends(vip))
        };
        let row = balancers.iter().find(serves).or_else(|| balancers.iter().find(is_template));
        if let Some(row) = row {
            let ids = row.map("external_ids");
            let owner = ids.get(KIND).zip(ids.get(OWNER));
            let name = match owner {
                Some((kind, owner)) => format!("{kind} {owner}"),
                None => format!("load balancer {}", row.string("name").unwrap_or("?")),
            };
            found.insert(index, Object { name, action: "balance".to_owned(), isolates: false });
        }
    }
    Ok(found)
}

async fn acls(steps: &[Step], north: &Connection) -> Result<BTreeMap<usize, Object>, String> {
    let mut query = Transaction::new();
    let mut asked = Vec::new();
    for (index, step) in steps.iter().enumerate().filter(|(_, step)| step.is_acl()) {
        let Some(LogicalFlow { matching, priority, .. }) = &step.flow else { continue };
        let priority = priority - ACL_OFFSET;
        // The others are northd's own flows.
        if !ACL_PRIORITIES.contains(&priority) {
            continue;
        }
        let direction = if step.stage.starts_with("ls_in") { "from-lport" } else { "to-lport" };
        for text in texts(matching) {
            let conditions = [
                Condition::equal("match", text),
                Condition::equal("priority", priority),
                Condition::equal("direction", direction),
            ];
            asked.push((index, query.select("ACL", conditions, &["external_ids", "action"])));
        }
    }
    if asked.is_empty() {
        return Ok(BTreeMap::new());
    }
    let outcome = answer(north.transact(query)).await;
    let outcome = outcome.map_err(|why| format!("ACL cannot be read: {why}"))?;
    let mut found = BTreeMap::new();
    for (index, selection) in asked {
        if let Some(row) = outcome.rows(selection).first() {
            found.insert(index, acl(row));
        }
    }
    Ok(found)
}

/// The texts that the ACL's match may have: northd puts conditions before it.
fn texts(matching: &str) -> Vec<&str> {
    let inner = matching.split_once("&& (").and_then(|(_, rest)| rest.strip_suffix(')'));
    let inner = inner.filter(|_| matching.starts_with("reg"));
    inner.into_iter().chain([matching]).collect()
}

fn acl(row: &SelectedRow) -> Object {
    let ids = row.map("external_ids");
    let action = row.string("action").unwrap_or_default().to_owned();
    let isolates = ids.get(OWNER_TYPE).is_some_and(|kind| kind == NETPOL_NAMESPACE);
    Object { name: name(&ids), action, isolates }
}

/// What the ids of a row say for people.
pub(super) fn name(ids: &BTreeMap<String, String>) -> String {
    let text = |key: &str| ids.get(key).map(String::as_str).unwrap_or_default();
    let slashed = text(NAME).replace(':', "/");
    let direction = text("direction");
    match text(OWNER_TYPE) {
        NETWORK_POLICY => {
            let rule = match text("gress-index") {
                "" => text("type").to_owned(),
                index => format!("rule {index}"),
            };
            format!("NetworkPolicy {slashed}, {direction} {rule}")
        }
        NETPOL_NAMESPACE => format!("NetworkPolicies of namespace {slashed}, {direction}"),
        EGRESS_FIREWALL => {
            format!("EgressFirewall of namespace {slashed}, rule {}", text(RULE_INDEX))
        }
        SOURCE_RANGES => format!("Service {slashed}, loadBalancerSourceRanges"),
        "NetpolNode" => format!("node {} reaches its own pods", text(NAME)),
        MULTICAST_CLUSTER | MULTICAST_NAMESPACE => format!("multicast {slashed} {direction}"),
        "NextTier" => "no rule of a tier".to_owned(),
        "" => match text(ID) {
            "" => "an ACL that is not this program's".to_owned(),
            id => id.to_owned(),
        },
        kind => match text("gress-index") {
            "" => format!("{kind} {slashed}"),
            index => format!("{kind} {slashed}, {direction} rule {index}"),
        },
    }
}

/// The address and port that a step's load balancer serves, as the northbound database has it:
/// `10.96.0.10:80`, `[fd00::1]:80`.
fn frontend(step: &Step) -> Option<String> {
    let is_refusal = step.actions.iter().any(|action| action.starts_with("reject {"));
    let is_balancer = step.stage.starts_with("ls_in_lb") || step.stage.starts_with("lr_in_dnat");
    if !is_balancer || !(backends(step).is_some() || is_refusal) {
        return None;
    }
    served(&step.flow.as_ref()?.matching)
}

/// The destination that a match names.
fn served(matching: &str) -> Option<String> {
    let value = |names: &[&str]| {
        let mut parts = matching.split("&&").filter_map(|part| part.split_once("=="));
        let found = parts.find(|(name, _)| names.contains(&name.trim()));
        found.map(|(_, value)| value.trim().to_owned())
    };
    // Registers have them behind the connection tracker, in some releases.
    let port = value(&["tcp.dst", "udp.dst", "sctp.dst", "reg2[0..15]", "reg9[16..31]"]);
    let v4 = value(&["ip4.dst", "reg1", "reg0"]).filter(|text| text.contains('.'));
    let v6 = || value(&["ip6.dst", "xxreg1", "xxreg0"]).map(|text| format!("[{text}]"));
    let address = v4.or_else(v6)?;
    Some(match port {
        Some(port) => format!("{address}:{port}"),
        None => address.trim_matches(['[', ']']).to_owned(),
    })
}

/// The NetworkPolicies that select the pod of the logical port.
pub(super) async fn selecting(north: &Connection, port: &str) -> Result<Vec<String>, String> {
    let columns = ["name"];
    let ports =
        rows(north, "Logical_Switch_Port", Condition::equal("name", port).into(), &columns).await?;
    let Some(port) = ports.first() else { return Ok(Vec::new()) };
    let mut query = Transaction::new();
    let has = Condition::includes("ports", port.uuid());
    let groups = query.select("Port_Group", has, &["external_ids"]);
    let outcome = north.transact(query).await.map_err(|error| chain(&error))?;
    let ids = outcome.rows(groups).iter().map(|row| row.map("external_ids"));
    let policies = ids.filter(|ids| ids.get(OWNER_TYPE).is_some_and(|kind| kind == NETWORK_POLICY));
    Ok(policies.filter_map(|ids| ids.get(NAME).map(|name| name.replace(':', "/"))).collect())
}
