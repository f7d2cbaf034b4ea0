//! Takes over a northbound database of the programs of 2016 to 2018, before the controller reads
//! it.
//!
//! ```text
//! rows of 2018 ─▶ Adoption ─┬─ annotations of nodes: what only rows said ─▶ API server
//!                           └─ one transaction: names and addresses ──────▶ database
//! ```
//!
//! Rows keep their identity, and so do addresses that pods know: ovn-northd sees the same datapaths
//! and ports. What is missing then, the controller adds as in any database.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use contract::{
    names::PodKey,
    node_annotation::{
        DEFAULT_NETWORK, LEGACY_SUBNET, MANAGEMENT_MAC, NODE_ID, NODE_SUBNETS, NodeAnnotations,
        PerNetwork, ROUTER_MAC,
    },
    ovn,
};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{ListParams, ObjectMeta},
    core::PartialObjectMeta,
};
use kubeapi::{
    Connection, Trouble,
    patch::{self, Patch},
    watch::{Selection, list},
};
use ovsdb::{Client, Condition, Datum, Row, SelectedRow, TransactError, Transaction};
use serde_json::json;

mod rows;

use self::rows::{Rows, former_router, mac, name, network, of_pod, words};
use crate::{
    cluster_id,
    config::ClusterConfig,
    engine::northbound::CLUSTER_ID,
    kinds::pod::{
        object::{Annotated, Pod, Reported},
        wire::PodObject,
    },
    legacy::{CLUSTER_ROUTER, JOIN},
};

/// Deadline of one request to the API server, as that of other roles.
const PATIENCE: Duration = Duration::from_secs(10);

const ROUTER: &str = "Logical_Router";
const ROUTER_PORT: &str = "Logical_Router_Port";
const SWITCH: &str = "Logical_Switch";
const SWITCH_PORT: &str = "Logical_Switch_Port";
/// Marks of the cluster's load balancers.
const LOAD_BALANCERS: [&str; 2] = ["k8s-cluster-lb-tcp", "k8s-cluster-lb-udp"];

/// Why a database is not taken over. Nothing was written to it.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    #[error("the northbound database does not answer")]
    Database(#[from] TransactError),
    #[error("the API server does not answer: {}", .0.text)]
    Api(Trouble),
    #[error(
        "the northbound database has the cluster router of 2018, {0}, and ovn_cluster_router \
         beside it: delete the one that leads to no node (ovn-nbctl lr-del)"
    )]
    TwoRouters(String),
    #[error(
        "these logical switches of 2018 belong to no node of Kubernetes: {0}; register the nodes \
         (their kubelets do), or remove what is left of them (ovnkube --remove-node NODE)"
    )]
    NoNodes(String),
    #[error(
        "K8S_CLUSTER_ROUTER not set: no logical router has external_ids:k8s-cluster-router=yes; \
         run ovn-k8s-overlay master-init first"
    )]
    NoRouter,
    #[error("no logical switch is a node's: run ovn-k8s-overlay minion-init first")]
    NoNode,
    #[error(
        "no pod of Kubernetes has the address of its logical port: is this the API server of the \
         cluster?"
    )]
    NoPods,
    #[error(
        "node {node}: the annotations have the subnet {annotated}, and its logical switch has \
         {subnet}"
    )]
    OtherSubnet { node: String, annotated: IpNet, subnet: IpNet },
    #[error(
        "logical router port {port} has {now}, which is not in the join subnet: start with \
         --gateway-v4-join-subnet={now}"
    )]
    OtherJoin { port: String, now: IpNet },
}

/// What has to be written.
#[derive(Debug)]
pub struct Adoption {
    /// By node: its UID, and the annotations that it lacks.
    nodes: BTreeMap<String, (String, BTreeMap<&'static str, String>)>,
    rows: Transaction,
    lines: Vec<String>,
}

impl Adoption {
    /// Compares; none if there is no cluster router of 2018. Writes nothing.
    ///
    /// # Errors
    /// The database is not this cluster's, or does not fit; or one of the servers does not answer.
    pub async fn prepare(
        client: &Client,
        api: &Connection,
        config: &ClusterConfig,
    ) -> Result<Option<Self>, AdoptError> {
        let Some(router) = former_router(client).await? else { return Ok(None) };
        let rows = Rows::read(client).await?;
        let nodes = nodes(api).await.map_err(AdoptError::Api)?;
        let mut adoption =
            Self { nodes: BTreeMap::new(), rows: Transaction::new(), lines: Vec::new() };
        let id = cluster_id::ask(api).await.map_err(AdoptError::Api)?;
        adoption.router(&router, &rows, config, id.as_deref())?;
        let switches = rows.node_switches();
        let unknown: Vec<&str> =
            switches.keys().copied().filter(|name| !nodes.contains_key(*name)).collect();
        if !unknown.is_empty() {
            return Err(AdoptError::NoNodes(unknown.join(", ")));
        }
        for (name, subnet) in switches {
            adoption.node(name, subnet, &nodes[name], &rows, config)?;
        }
        let ports: BTreeMap<&str, &str> = rows.switch_ports.values().filter_map(of_pod).collect();
        if !ports.is_empty() && !knows_one(api, &ports).await.map_err(AdoptError::Api)? {
            return Err(AdoptError::NoPods);
        }
        adoption.pods(&rows);
        Ok(Some(adoption))
    }

    /// What changes, a line for each row and node.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// Writes it: the annotations first, so that a second attempt finds the rows unchanged.
    ///
    /// # Errors
    /// One of the servers does not answer.
    pub async fn apply(self, client: &Client, api: &Connection) -> Result<(), AdoptError> {
        for (name, (uid, annotations)) in &self.nodes {
            let patch = Patch::Merge(json!({"metadata": {"uid": uid, "annotations": annotations}}));
            let patched = patch::status(api, PATIENCE, "/api/v1/nodes", name, patch).await;
            patched.map_err(AdoptError::Api)?;
        }
        client.transact(self.rows).await?;
        Ok(())
    }

    fn update(
        &mut self,
        table: &'static str,
        row: &SelectedRow,
        columns: &[(&'static str, Datum)],
    ) {
        let mut now = Row::new();
        let mut texts = Vec::new();
        for (column, value) in columns {
            if row.datum(column) == Some(value) {
                continue;
            }
            texts.push(format!("{column}={}", words(value)));
            now.set(*column, value.clone());
        }
        if !texts.is_empty() {
            self.lines.push(format!("{table} {}: {}", name(row), texts.join(" ")));
            self.rows.update(table, row.uuid(), now);
        }
    }

    /// The cluster's router, and its link to the join switch.
    fn router(
        &mut self,
        router: &SelectedRow,
        rows: &Rows,
        config: &ClusterConfig,
        id: Option<&str>,
    ) -> Result<(), AdoptError> {
        let former = name(router);
        let (port, joined) = (ovn::router_to_join(ovn::CLUSTER_ROUTER), ovn::JOIN_SWITCH);
        if let Some(row) = rows.router_ports.get(&ovn::router_to_join(former)) {
            let mut networks = ovn::gateways(&config.join_subnets);
            if let Some(now) = network(row).filter(|now| !networks.contains(now)) {
                let is_in = |join: &IpNet| join.contains(&now);
                if now != IpNet::from(JOIN) || !config.join_subnets.iter().any(is_in) {
                    return Err(AdoptError::OtherJoin {
                        port: name(row).to_owned(),
                        now: now.trunc(),
                    });
                }
                // Former gateway routers have routes to it.
                networks.push(now);
            }
            let mac = ovn::port_mac(&networks).map(|mac| mac.to_string());
            let columns = [
                ("name", Datum::set([port.clone()])),
                ("mac", Datum::set(mac)),
                ("networks", Datum::set(networks.iter().map(IpNet::to_string))),
            ];
            self.update(ROUTER_PORT, row, &columns);
        }
        if let Some(row) = rows.switch_ports.get(&ovn::join_to_router(former)) {
            let mut options = row.map("options");
            options.insert("router-port".to_owned(), port);
            let columns = [
                ("name", Datum::set([ovn::join_to_router(ovn::CLUSTER_ROUTER)])),
                ("addresses", Datum::set(["router"])),
                ("options", Datum::map(options)),
            ];
            self.update(SWITCH_PORT, row, &columns);
        } else {
            tracing::warn!(switch = joined, "the join switch has no port to the cluster's router");
        }
        let mut ids = router.map("external_ids");
        if let Some(id) = id {
            ids.insert(CLUSTER_ID.to_owned(), id.to_owned());
        }
        let columns =
            [("name", Datum::set([ovn::CLUSTER_ROUTER])), ("external_ids", Datum::map(ids))];
        self.update(ROUTER, router, &columns);
        Ok(())
    }

    /// What the database alone knows of a node: its subnet, its number, and the MAC addresses that
    /// its pods have learned.
    fn node(
        &mut self,
        name: &str,
        subnet: IpNet,
        node: &ObjectMeta,
        rows: &Rows,
        config: &ClusterConfig,
    ) -> Result<(), AdoptError> {
        let now = node.annotations.clone().unwrap_or_default();
        let mut lacks = BTreeMap::new();
        match NodeAnnotations(&now).subnets().unwrap_or_default().first() {
            Some(annotated) if *annotated != subnet => {
                let (node, annotated) = (name.to_owned(), *annotated);
                return Err(AdoptError::OtherSubnet { node, annotated, subnet });
            }
            Some(_) => {}
            None if now.contains_key(NODE_SUBNETS) || now.contains_key(LEGACY_SUBNET) => {}
            None => {
                let mut entries = PerNetwork::default();
                entries.set_subnets(DEFAULT_NETWORK, &[subnet]);
                lacks.insert(NODE_SUBNETS, entries.to_string());
            }
        }
        let gateway = rows.router_ports.get(&ovn::router_to_switch(name));
        let learned = gateway.and_then(|port| mac(port.string("mac")?));
        lacks.extend(learned.map(|mac| (ROUTER_MAC, mac.to_string())));
        let own = rows.switch_ports.get(&ovn::management_port(name));
        let learned = own.and_then(|port| mac(port.strings("addresses").first()?));
        lacks.extend(learned.map(|mac| (MANAGEMENT_MAC, mac.to_string())));
        let joined = rows.router_ports.get(&ovn::router_to_join(&ovn::gateway_router(name)));
        if let Some(now) = joined.and_then(network) {
            let number = config.join_subnets.iter().find_map(|join| number_in(join, now.addr()));
            let port = || joined.map_or("", |row| self::name(row)).to_owned();
            let number =
                number.ok_or_else(|| AdoptError::OtherJoin { port: port(), now: now.trunc() })?;
            lacks.insert(NODE_ID, number.to_string());
        }
        lacks.retain(|annotation, _| !now.contains_key(*annotation));
        if !lacks.is_empty() {
            let texts: Vec<String> =
                lacks.iter().map(|(annotation, text)| format!("{annotation}={text}")).collect();
            self.lines.push(format!("Node {name}: {}", texts.join(" ")));
            let uid = node.uid.clone().unwrap_or_default();
            self.nodes.insert(name.to_owned(), (uid, lacks));
        }
        Ok(())
    }

    /// Addresses that OVN has chosen become fixed ones.
    fn pods(&mut self, rows: &Rows) {
        for row in rows.switch_ports.values() {
            let is_dynamic = row.strings("addresses").contains(&"dynamic");
            if let Some((_, addresses)) = of_pod(row).filter(|_| is_dynamic) {
                self.update(SWITCH_PORT, row, &[("addresses", Datum::set([addresses]))]);
            }
        }
    }
}

/// Deletes the cluster's load balancers of 2018, once all Services have today's. Returns how many
/// there were.
///
/// # Errors
/// The database does not answer.
pub async fn remove_load_balancers(client: &Client) -> Result<u64, TransactError> {
    let mut tx = Transaction::new();
    let of = |mark: &str| Condition::includes("external_ids", Datum::map([(mark, "yes")]));
    let found = LOAD_BALANCERS.map(|mark| tx.select("Load_Balancer", of(mark), &["_uuid"]));
    let outcome = client.transact(tx).await?;
    if found.iter().all(|found| outcome.rows(*found).is_empty()) {
        return Ok(0);
    }
    let mut tx = Transaction::new();
    let deleted = LOAD_BALANCERS.map(|mark| tx.delete("Load_Balancer", of(mark)));
    let outcome = client.transact(tx).await?;
    Ok(deleted.iter().map(|deleted| outcome.count(*deleted)).sum())
}

/// The prefix length of nodes' subnets, and the network that contains all of them: that which a
/// gateway router translates, or else the smallest one.
///
/// # Errors
/// The database does not answer, or has no cluster router or no node.
pub async fn cluster_subnet(client: &Client) -> Result<(u8, IpNet), AdoptError> {
    let mut tx = Transaction::new();
    let mark = Condition::includes("external_ids", Datum::map([(CLUSTER_ROUTER, "yes")]));
    let routers = tx.select(ROUTER, mark, &["_uuid"]);
    let translations = tx.select("NAT", Condition::equal("type", "snat"), &["logical_ip"]);
    let outcome = client.transact(tx).await?;
    if outcome.rows(routers).is_empty() {
        return Err(AdoptError::NoRouter);
    }
    let subnets: Vec<IpNet> = Rows::read(client).await?.node_switches().into_values().collect();
    let first = *subnets.first().ok_or(AdoptError::NoNode)?;
    let contains = |net: &IpNet| subnets.iter().all(|subnet| net.contains(subnet));
    let translated =
        outcome.rows(translations).iter().filter_map(|row| row.string("logical_ip")?.parse().ok());
    let translated = translated.collect::<Vec<IpNet>>().into_iter();
    let mut smallest = first;
    while let Some(larger) = smallest.supernet().filter(|_| !contains(&smallest)) {
        smallest = larger;
    }
    Ok((first.prefix_len(), translated.filter(contains).min().unwrap_or(smallest.trunc())))
}

/// The place of an address in a join subnet, which is the number of its node.
fn number_in(join: &IpNet, address: IpAddr) -> Option<u16> {
    let (IpNet::V4(join), IpAddr::V4(address)) = (join, address) else { return None };
    let number = u32::from(address).checked_sub(u32::from(join.network()))?;
    u16::try_from(number).ok().filter(|_| join.contains(&address))
}

async fn nodes(api: &Connection) -> Result<BTreeMap<String, ObjectMeta>, Trouble> {
    let all = Api::<Node>::all(api.client().clone());
    let nodes = api.ask(PATIENCE, all.list_metadata(&ListParams::default())).await?;
    let named = |node: PartialObjectMeta<Node>| Some((node.metadata.name.clone()?, node.metadata));
    Ok(nodes.items.into_iter().filter_map(named).collect())
}

/// Whether a pod has the address of its port.
async fn knows_one(api: &Connection, ports: &BTreeMap<&str, &str>) -> Result<bool, Trouble> {
    let selection = Selection { patience: PATIENCE, ..Selection::default() };
    let pods = list::<PodObject>(api, &selection, |_| {}).await?;
    Ok(pods.iter().any(|(key, pod)| is_at(key, pod, ports)))
}

fn is_at(key: &PodKey, pod: &Pod, ports: &BTreeMap<&str, &str>) -> bool {
    let Some(port) = ports.get(&*format!("{}_{}", key.namespace(), key.name())) else {
        return false;
    };
    let annotated = match &pod.annotated {
        Annotated::Network { network, .. } => &*network.addresses,
        Annotated::Nothing | Annotated::Unusable(_) => &[],
    };
    let reported: &[IpAddr] = match &pod.reported {
        Reported::Others(addresses) => addresses,
        Reported::Nothing | Reported::AsAnnotated => &[],
    };
    let mut addresses = annotated.iter().map(IpNet::addr).chain(reported.iter().copied());
    let own: BTreeSet<IpAddr> =
        port.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    addresses.any(|address| own.contains(&address))
}
