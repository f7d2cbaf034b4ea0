//! Another writer of the same database. It changes rows of the controller, and has rows of its own,
//! which must stay as they are.

use std::collections::{BTreeMap, BTreeSet};

use ovsdb::{Condition, Connection, Datum, Mutation, Row, Transaction, Uuid, Where};

use crate::{
    cluster::{node_name, pod_key},
    database::{Contents, contents},
    history::{Drift, Foreign},
    services::service_key,
};

/// Its own rows, by table and name.
#[derive(Debug, Default)]
pub(crate) struct SecondWriter {
    own: BTreeMap<(&'static str, String), Own>,
    count: u32,
    /// Harm to rows that it has deleted since.
    harmed_before: Vec<String>,
}

#[derive(Debug)]
struct Own {
    uuid: Uuid,
    columns: BTreeMap<&'static str, String>,
    /// The row that holds it, if it needs one.
    holder: Option<Uuid>,
}

const OWNER: &str = "owner=somebody else";

/// The name of a pod's port.
pub(crate) fn port(pod: u32) -> String {
    let key = pod_key(pod);
    format!("{}_{}", key.namespace(), key.name())
}

fn named(name: impl Into<String>) -> Condition {
    Condition::equal("name", name.into())
}

fn somebody_else() -> Datum {
    Datum::map([("owner", "somebody else")])
}

/// The UUID of a row with this name.
fn find(contents: &Contents, table: &str, name: &str) -> Option<Uuid> {
    contents.0.keys().find(|(of, named, _)| of == table && named == name).map(|(_, _, uuid)| *uuid)
}

/// A Service's load balancers.
fn balancers(contents: &Contents, service: u32) -> impl Iterator<Item = Uuid> {
    let begins = format!("Service_{}_", service_key(service));
    let of_service =
        move |table: &str, name: &str| table == "Load_Balancer" && name.starts_with(&begins);
    contents
        .0
        .keys()
        .filter(move |(table, name, _)| of_service(table, name))
        .map(|(_, _, uuid)| *uuid)
}

impl SecondWriter {
    pub(crate) async fn drift(&mut self, connection: &Connection, drift: Drift) {
        let now = contents(connection).await;
        let mut transaction = Transaction::new();
        let node_acl = |node: u32| {
            let begins = format!("default-network-controller:NetpolNode:{}:", node_name(node));
            now.0
                .keys()
                .find(|(table, name, _)| table == "ACL" && name.starts_with(&begins))
                .map(|(_, _, uuid)| *uuid)
        };
        let take = |transaction: &mut Transaction,
                    table: &str,
                    column: &str,
                    element: Option<Uuid>| {
            if let Some(element) = element {
                transaction.mutate(table, Where::all(), vec![Mutation::delete(column, element)]);
            }
        };
        // A row of its own may have the name that the controller's row should have; it is left
        // alone.
        let is_own = |row: &Uuid| self.own.values().any(|own| own.uuid == *row);
        let find = |table: &str, name: String| find(&now, table, &name).filter(|row| !is_own(row));
        let update_port = |transaction: &mut Transaction, pod: u32, columns: Row| {
            if let Some(found) = find("Logical_Switch_Port", port(pod)) {
                transaction.update("Logical_Switch_Port", found, columns);
            }
        };
        match drift {
            Drift::PortLosesAddresses(pod) => {
                update_port(&mut transaction, pod, Row::new().with("addresses", Datum::Set(vec![])))
            }
            Drift::PortLosesIds(pod) => update_port(
                &mut transaction,
                pod,
                Row::new().with("external_ids", Datum::Map(vec![])),
            ),
            Drift::PortGetsOption(pod) => {
                let options = Datum::map([("requested-chassis", "elsewhere"), ("theirs", "kept")]);
                update_port(&mut transaction, pod, Row::new().with("options", options));
            }
            Drift::PortLeavesSwitch(pod) => {
                take(
                    &mut transaction,
                    "Logical_Switch",
                    "ports",
                    find("Logical_Switch_Port", port(pod)),
                );
            }
            Drift::PortEntersSwitch { pod, node } => {
                if let Some(element) = find("Logical_Switch_Port", port(pod)) {
                    let name = node_name(node).to_string();
                    transaction.mutate(
                        "Logical_Switch",
                        named(name),
                        vec![Mutation::insert("ports", element)],
                    );
                }
            }
            Drift::StalePort { pod, node } => {
                let ids = Datum::map([("namespace", pod_key(pod).namespace()), ("pod", "true")]);
                let row = Row::new()
                    .with("name", port(pod))
                    .with("addresses", "0a:58:0a:09:09:09 10.9.9.9")
                    .with("external_ids", ids);
                let inserted = transaction.insert("Logical_Switch_Port", row);
                transaction.mutate(
                    "Logical_Switch",
                    named(node_name(node).to_string()),
                    vec![Mutation::insert("ports", &inserted)],
                );
            }
            Drift::PortLeavesGroups(pod) => {
                take(
                    &mut transaction,
                    "Port_Group",
                    "ports",
                    find("Logical_Switch_Port", port(pod)),
                );
            }
            Drift::PortEntersGroups(pod) => {
                if let Some(element) = find("Logical_Switch_Port", port(pod)) {
                    for group in of_policies(&now, "Port_Group") {
                        let insert = vec![Mutation::insert("ports", element)];
                        transaction.mutate("Port_Group", group, insert);
                    }
                }
            }
            Drift::PolicyGroupsGone => {
                for group in of_policies(&now, "Port_Group") {
                    transaction.delete("Port_Group", group);
                }
            }
            Drift::PolicyAclsChanged => {
                for acl in of_policies(&now, "ACL") {
                    transaction.update(
                        "ACL",
                        acl,
                        Row::new().with("match", "ip4").with("action", "allow"),
                    );
                }
            }
            Drift::SetsGone => {
                for set in of_policies(&now, "Address_Set") {
                    transaction.delete("Address_Set", set);
                }
            }
            Drift::SetsChanged => {
                for set in of_policies(&now, "Address_Set") {
                    transaction.update(
                        "Address_Set",
                        set,
                        Row::new().with("addresses", "10.9.9.9"),
                    );
                }
            }
            // With a switch, all of its rows are deleted: not one that holds rows of its own.
            Drift::SwitchGone(node) => {
                let switch = find("Logical_Switch", node_name(node).to_string());
                if let Some(switch) = switch
                    .filter(|switch| !self.own.values().any(|own| own.holder == Some(*switch)))
                {
                    transaction.delete("Logical_Switch", switch);
                }
            }
            Drift::SwitchRenamed(node) => {
                let name = node_name(node).to_string();
                transaction.update(
                    "Logical_Switch",
                    named(name.as_str()),
                    Row::new().with("name", format!("renamed-{name}")),
                );
            }
            Drift::SwitchLosesConfig(node) => {
                let name = node_name(node).to_string();
                let row = Row::new()
                    .with("other_config", Datum::map([("exclude_ips", "10.0.0.7")]))
                    .with("load_balancer_group", Datum::Set(vec![]));
                transaction.update("Logical_Switch", named(name), row);
            }
            Drift::LinkGone(node) => {
                take(
                    &mut transaction,
                    "Logical_Switch",
                    "ports",
                    find("Logical_Switch_Port", format!("stor-{}", node_name(node))),
                );
            }
            Drift::ManagementPortGone(node) => {
                take(
                    &mut transaction,
                    "Logical_Switch",
                    "ports",
                    find("Logical_Switch_Port", format!("k8s-{}", node_name(node))),
                );
            }
            Drift::RouterPortGone(node) => {
                take(
                    &mut transaction,
                    "Logical_Router",
                    "ports",
                    find("Logical_Router_Port", format!("rtos-{}", node_name(node))),
                );
            }
            Drift::RouteGone(node) => {
                let subnet = format!("10.{}.{}.0/24", node / 256, node % 256);
                let route = now.0.iter().find(|((table, ..), row)| {
                    table == "Logical_Router_Static_Route" && row.get("ip_prefix") == Some(&subnet)
                });
                let route = route.map(|((_, _, uuid), _)| *uuid).filter(|route| !is_own(route));
                take(&mut transaction, "Logical_Router", "static_routes", route);
            }
            Drift::ChassisGone(node) => {
                let of_port = named(format!("rtos-{}", node_name(node)));
                transaction.update(
                    "Logical_Router_Port",
                    of_port,
                    Row::new().with("gateway_chassis", Datum::Set(vec![])),
                );
            }
            Drift::AclGone(node) => {
                take(&mut transaction, "Logical_Switch", "acls", node_acl(node))
            }
            Drift::AclTwice(node) => {
                let Some(acl) = node_acl(node) else { return };
                let id = now
                    .0
                    .keys()
                    .find(|(_, _, uuid)| *uuid == acl)
                    .map(|(_, name, _)| name.clone())
                    .unwrap();
                let row = Row::new()
                    .with("direction", "to-lport")
                    .with("action", "drop")
                    .with("match", "1");
                let twin = transaction.insert(
                    "ACL",
                    row.with("priority", 1)
                        .with("external_ids", Datum::map([("k8s.ovn.org/id", id)])),
                );
                transaction.mutate(
                    "Logical_Switch",
                    named(node_name(node).to_string()),
                    vec![Mutation::insert("acls", &twin)],
                );
            }
            Drift::GroupsGone => {
                transaction
                    .delete("Port_Group", Condition::excludes("external_ids", somebody_else()));
            }
            Drift::GroupsEmptied => {
                let others = Condition::excludes("external_ids", somebody_else());
                transaction.update(
                    "Port_Group",
                    others,
                    Row::new().with("ports", Datum::Set(vec![])),
                );
            }
            // The ports of all nodes go with the router.
            Drift::RouterGone => {
                transaction.delete("Logical_Router", named("ovn_cluster_router"));
            }
            Drift::RateChanged => {
                transaction.update("Meter_Band", Where::all(), Row::new().with("rate", 7));
            }
            Drift::MetersGone => {
                transaction.delete("Meter", Where::all());
            }
            Drift::BackendsChanged(service) => {
                for balancer in balancers(&now, service) {
                    let vips = Datum::map([("172.16.0.1:80", "10.0.9.9:80"), ("172.16.9.9:9", "")]);
                    transaction.update("Load_Balancer", balancer, Row::new().with("vips", vips));
                }
            }
            Drift::BalancersGone(service) => {
                for balancer in balancers(&now, service) {
                    transaction.delete("Load_Balancer", balancer);
                }
            }
            Drift::BalancersTwice(service) => {
                for (_, name, uuid) in now.0.keys() {
                    if balancers(&now, service).any(|balancer| balancer == *uuid) {
                        let owner = service_key(service).to_string();
                        let ids = [("k8s.ovn.org/kind", "Service"), ("k8s.ovn.org/owner", &*owner)];
                        let row = Row::new()
                            .with("name", name.as_str())
                            .with("external_ids", Datum::map(ids));
                        transaction.insert("Load_Balancer", row);
                    }
                }
            }
            Drift::BalancersDetached(service) => {
                for balancer in balancers(&now, service) {
                    for table in ["Logical_Switch", "Load_Balancer_Group"] {
                        take(&mut transaction, table, "load_balancer", Some(balancer));
                    }
                }
            }
            Drift::BalancersLoseOptions(service) => {
                for balancer in balancers(&now, service) {
                    let options = Datum::map([("reject", "false"), ("affinity_timeout", "7")]);
                    let row = Row::new().with("options", options).with("protocol", "sctp");
                    transaction.update("Load_Balancer", balancer, row);
                }
            }
        }
        if !transaction.is_empty() {
            // The database may have changed since it was read: then this writer loses.
            let _ = connection.transact(transaction).await;
        }
    }

    pub(crate) async fn foreign(&mut self, connection: &Connection, foreign: Foreign) {
        self.count += 1;
        let count = self.count;
        let now = contents(connection).await;
        let switch = |node: u32| find(&now, "Logical_Switch", &node_name(node));
        let id = |kind: &str| format!("foreign-{kind}-{count}");
        match foreign {
            Foreign::Switch(_) => {
                self.insert(connection, "Logical_Switch", &id("switch"), Row::new(), None).await
            }
            Foreign::LookAlike => {
                let of = self.insert_holder(connection, &id("lookalike")).await;
                for name in [
                    format!("stor-age{count}"),
                    format!("k8s-log{count}"),
                    format!("rtos-{count}_x"),
                ] {
                    self.insert(
                        connection,
                        "Logical_Switch_Port",
                        &name,
                        Row::new().with("type", "localnet"),
                        Some((of, "ports")),
                    )
                    .await;
                }
            }
            Foreign::PortOnSwitch(node) => {
                if let Some(of) = switch(node) {
                    self.insert(
                        connection,
                        "Logical_Switch_Port",
                        &id("port"),
                        Row::new(),
                        Some((of, "ports")),
                    )
                    .await;
                }
            }
            Foreign::AclOnSwitch(node) => {
                if let Some(of) = switch(node) {
                    let row = Row::new()
                        .with("direction", "to-lport")
                        .with("action", "drop")
                        .with("match", "0")
                        .with("priority", 5);
                    self.insert(connection, "ACL", &id("acl"), row, Some((of, "acls"))).await;
                }
            }
            Foreign::QosOnSwitch(node) => {
                if let Some(of) = switch(node) {
                    let row = Row::new()
                        .with("direction", "to-lport")
                        .with("match", "0")
                        .with("priority", 5);
                    self.insert(connection, "QoS", &id("qos"), row, Some((of, "qos_rules"))).await;
                }
            }
            Foreign::Group => {
                let ports: Vec<Uuid> = now
                    .0
                    .keys()
                    .filter(|(table, _, _)| table == "Logical_Switch_Port")
                    .map(|(_, _, uuid)| *uuid)
                    .collect();
                self.insert(
                    connection,
                    "Port_Group",
                    &id("group"),
                    Row::new().with("ports", ports),
                    None,
                )
                .await;
            }
            Foreign::TakesName(pod) => {
                let of = self.insert_holder(connection, &id("thief")).await;
                self.insert(
                    connection,
                    "Logical_Switch_Port",
                    &port(pod),
                    Row::new(),
                    Some((of, "ports")),
                )
                .await;
            }
            Foreign::TakesLink(node) => {
                let of = self.insert_holder(connection, &id("thief")).await;
                let name = format!("stor-{}", node_name(node));
                self.insert(
                    connection,
                    "Logical_Switch_Port",
                    &name,
                    Row::new(),
                    Some((of, "ports")),
                )
                .await;
            }
            Foreign::ReleasesNames => self.release(connection).await,
        }
    }

    /// Puts a port with these columns on a switch.
    pub(crate) async fn port(
        &mut self,
        connection: &Connection,
        switch: &str,
        name: &str,
        columns: Row,
    ) {
        let mut transaction = Transaction::new();
        let row = columns.with("name", name).with("external_ids", somebody_else());
        let inserted = transaction.insert("Logical_Switch_Port", row);
        transaction.mutate(
            "Logical_Switch",
            named(switch),
            vec![Mutation::insert("ports", &inserted)],
        );
        self.with_stale_port(connection, transaction).await;
    }

    pub(crate) async fn no_ports(&mut self, connection: &Connection) {
        let mut transaction = Transaction::new();
        let contents = contents(connection).await;
        let is_own =
            |row: &crate::database::Row| row.get("external_ids").is_some_and(|ids| ids == OWNER);
        let ports = contents
            .0
            .iter()
            .filter(|((table, ..), row)| table == "Logical_Switch_Port" && is_own(row));
        for ((_, _, port), _) in ports {
            transaction.mutate(
                "Logical_Switch",
                Where::all(),
                vec![Mutation::delete("ports", *port)],
            );
        }
        self.with_stale_port(connection, transaction).await;
    }

    pub(crate) async fn switch(&mut self, connection: &Connection, name: &str) {
        let mut transaction = Transaction::new();
        transaction.insert(
            "Logical_Switch",
            Row::new().with("name", name).with("external_ids", somebody_else()),
        );
        connection.transact(transaction).await.unwrap();
    }

    /// A router with one port.
    pub(crate) async fn router(
        &mut self,
        connection: &Connection,
        port: &str,
        mac: &str,
        network: &str,
    ) {
        let mut transaction = Transaction::new();
        let row = Row::new().with("name", port).with("mac", mac).with("networks", network);
        let inserted = transaction.insert("Logical_Router_Port", row);
        transaction.insert(
            "Logical_Router",
            Row::new().with("name", format!("router-of-{port}")).with("ports", &inserted),
        );
        self.with_stale_port(connection, transaction).await;
    }

    /// Adds a port of no pod to the same transaction: the controller has seen all of it once that
    /// port is gone.
    async fn with_stale_port(&mut self, connection: &Connection, mut transaction: Transaction) {
        self.count += 1;
        let ids = Datum::map([("namespace", "stale"), ("pod", "true")]);
        let row =
            Row::new().with("name", format!("stale_p{}", self.count)).with("external_ids", ids);
        let inserted = transaction.insert("Logical_Switch_Port", row);
        transaction.mutate(
            "Logical_Switch",
            named("n1"),
            vec![Mutation::insert("ports", &inserted)],
        );
        connection.transact(transaction).await.unwrap();
    }

    /// Deletes the switches with ports whose names the controller needs.
    pub(crate) async fn release(&mut self, connection: &Connection) {
        let thieves: BTreeSet<Uuid> = self
            .own
            .iter()
            .filter(|((_, name), _)| name.starts_with("foreign-thief"))
            .map(|(_, own)| own.uuid)
            .collect();
        let harmed = self.harmed(&contents(connection).await);
        self.harmed_before.extend(harmed);
        let mut transaction = Transaction::new();
        for thief in &thieves {
            transaction.delete("Logical_Switch", *thief);
        }
        connection.transact(transaction).await.unwrap();
        self.own.retain(|_, own| {
            !thieves.contains(&own.uuid)
                && !own.holder.is_some_and(|holder| thieves.contains(&holder))
        });
    }

    async fn insert_holder(&mut self, connection: &Connection, name: &str) -> Uuid {
        self.insert(connection, "Logical_Switch", name, Row::new(), None).await;
        self.own[&("Logical_Switch", name.to_owned())].uuid
    }

    /// Inserts a row, and adds it to a set of `holder`; without effect if the holder is gone or the
    /// name is taken.
    async fn insert(
        &mut self,
        connection: &Connection,
        table: &'static str,
        name: &str,
        row: Row,
        holder: Option<(Uuid, &'static str)>,
    ) {
        let mut row = row.with("external_ids", somebody_else());
        if table == "ACL" || connection.schema().has_column(table, "name") {
            row.set("name", name);
        }
        let mut transaction = Transaction::new();
        let inserted = transaction.insert(table, row.clone());
        let put = holder.map(|(of, column)| {
            transaction.mutate("Logical_Switch", of, vec![Mutation::insert(column, &inserted)])
        });
        let Ok(outcome) = connection.transact(transaction).await else { return };
        if put.is_some_and(|put| outcome.count(put) == 0) {
            return;
        }
        let columns = BTreeMap::from([("external_ids", OWNER.to_owned())]);
        let own = Own { uuid: outcome.uuid(&inserted), columns, holder: holder.map(|(of, _)| of) };
        self.own.insert((table, name.to_owned()), own);
    }

    /// What other writers did to its rows.
    pub(crate) fn harmed(&self, contents: &Contents) -> Vec<String> {
        let mut harmed = self.harmed_before.clone();
        for ((table, name), own) in &self.own {
            let Some((_, row)) = contents.0.iter().find(|((_, _, uuid), _)| *uuid == own.uuid)
            else {
                harmed.push(format!("{table} {name} is gone"));
                continue;
            };
            let theirs = |column: &str| {
                matches!(
                    column,
                    "external_ids"
                        | "name"
                        | "type"
                        | "direction"
                        | "action"
                        | "match"
                        | "priority"
                )
            };
            let written = |(column, value): &(&String, &String)| {
                !theirs(column)
                    && !matches!(column.as_str(), "ports" | "acls" | "qos_rules")
                    && !is_default(value)
            };
            harmed.extend(
                row.iter()
                    .filter(written)
                    .map(|(column, value)| format!("{table} {name}: {column} is {value}")),
            );
            let differs = |(column, value): &(&&str, &String)| row.get(**column) != Some(value);
            harmed.extend(
                own.columns
                    .iter()
                    .filter(differs)
                    .map(|(column, value)| format!("{table} {name}: {column} is not {value}")),
            );
        }
        harmed
    }
}

fn is_default(value: &str) -> bool {
    matches!(value, "" | "Integer(0)" | "Boolean(false)")
}

/// The rows of the table that the controller has made for policies.
fn of_policies(now: &Contents, table: &str) -> Vec<Uuid> {
    let kinds = [
        "NetworkPolicy",
        "NetpolNamespace",
        "PodSelector",
        "NetpolNamedPort",
        "Namespace",
        "EgressFirewall",
        "EgressFirewallDNS",
        "MulticastNS",
        "MulticastCluster",
    ];
    let is_own = |row: &BTreeMap<String, String>| {
        let ids = row.get("external_ids").map_or("", String::as_str);
        ids.split(", ")
            .any(|id| kinds.iter().any(|kind| id == format!("k8s.ovn.org/owner-type={kind}")))
    };
    let rows = now.0.iter().filter(|((of, _, _), row)| of == table && is_own(row));
    rows.map(|((_, _, uuid), _)| *uuid).collect()
}
