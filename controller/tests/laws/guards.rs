//! Laws 7 and 8, at every commit and not only at rest: a monitor of its own sees each transaction's
//! effects, and guards judge them.
//!
//! Law 7: no pod is open at a commit. Its port never shows without its addresses, its port security
//! and the port groups that isolate it. Law 8: no address of a pod that is gone. An address is in
//! no set that allows a pod of another namespace, and two pods' ports never have it together.
//!
//! A new kind of isolation adds its groups to [`Closed`], a new kind of set is found by its owner.

use std::collections::{BTreeMap, BTreeSet};

use acl::{Acl, Expression};
use ovsdb::{Client, Endpoint, Event, Monitor, Options, Replica, Uuid, Where};
use tokio::{sync::watch, task::JoinHandle, time::timeout};

use crate::running::deadline;

ovsdb::table! {
    pub(crate) struct PortRow in "Logical_Switch_Port" {
        name: String,
        addresses: BTreeSet<String>,
        port_security: BTreeSet<String>,
        external_ids: BTreeMap<String, String>,
    }
}

ovsdb::table! {
    pub(crate) struct SwitchRow in "Logical_Switch" {
        name: String,
        ports: Vec<Uuid>,
    }
}

ovsdb::table! {
    pub(crate) struct GroupRow in "Port_Group" {
        name: String,
        ports: Vec<Uuid>,
        acls: Vec<Uuid>,
    }
}

ovsdb::table! {
    pub(crate) struct AclRow in "ACL" {
        direction: String,
        tier: i64,
        priority: i64,
        action: String,
        matching: String = "match",
        options: BTreeMap<String, String>,
    }
}

ovsdb::table! {
    pub(crate) struct SetRow in "Address_Set" {
        name: String,
        addresses: BTreeSet<String>,
        external_ids: BTreeMap<String, String>,
    }
}

/// What a commit shows of ports and sets, by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Commit {
    pub(crate) ports: BTreeMap<String, Port>,
    /// Address sets of a controller.
    pub(crate) sets: BTreeMap<String, Set>,
    switches: BTreeSet<String>,
    /// The ACLs of each port group.
    pub(crate) acls: BTreeMap<String, Vec<Acl>>,
}

impl AclRow {
    fn acl(&self) -> Acl {
        let Self { direction, tier, priority, action, matching, options } = self;
        Acl {
            direction: direction.clone(),
            after_load_balancers: options.get("apply-after-lb").is_some_and(|text| text == "true"),
            tier: *tier,
            priority: *priority,
            action: action.clone(),
            matching: Expression::parse(matching),
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Set {
    pub(crate) addresses: BTreeSet<String>,
    /// What the names of its pods' ports begin with: nothing, if they may be of any namespace.
    ports: String,
}

impl From<&SetRow> for Set {
    fn from(SetRow { addresses, external_ids, name: _ }: &SetRow) -> Self {
        let id = |key: &str| external_ids.get(key).map_or("", String::as_str);
        let name = id("k8s.ovn.org/name");
        let ports = match id("k8s.ovn.org/owner-type") {
            "Namespace" => format!("{name}_"),
            "PodSelector" if !name.starts_with("LS{") => name
                .split_once('_')
                .map_or_else(String::new, |(namespace, _)| format!("{namespace}_")),
            _ => String::new(),
        };
        Self { addresses: addresses.clone(), ports }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Port {
    is_pods: bool,
    pub(crate) addresses: BTreeSet<String>,
    port_security: BTreeSet<String>,
    switches: BTreeSet<String>,
    pub(crate) groups: BTreeSet<String>,
}

/// A rule that holds at every commit.
pub(crate) trait Guard: Send {
    /// What is wrong; empty if nothing is.
    fn broken(&self, commit: &Commit) -> Vec<String>;
}

/// Law 7. `groups`: the port groups that a port with this name has to be in.
pub(crate) struct Closed<F> {
    pub(crate) groups: F,
}

/// Law 8.
pub(crate) struct NoStaleAddress;

impl<F: Fn(&str) -> Vec<String> + Send> Guard for Closed<F> {
    fn broken(&self, commit: &Commit) -> Vec<String> {
        let mut broken = Vec::new();
        for (name, port) in &commit.ports {
            if port.is_pods && (port.addresses.is_empty() || port.addresses != port.port_security) {
                broken.push(format!("{name} may send with any address: {port:?}"));
            }
            if port.is_pods && port.switches.len() != 1 {
                broken.push(format!("{name} is in {} switches", port.switches.len()));
            }
            let missing =
                (self.groups)(name).into_iter().filter(|group| !port.groups.contains(group));
            broken.extend(
                missing.map(|group| format!("{name} is open: it is not in the group {group}")),
            );
        }
        broken
    }
}

impl Guard for NoStaleAddress {
    fn broken(&self, commit: &Commit) -> Vec<String> {
        let mut broken = Vec::new();
        let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
        for (name, port) in commit.ports.iter().filter(|(_, port)| port.is_pods) {
            // Each element is `MAC IP [IP]`.
            for address in port.addresses.iter().flat_map(|text| text.split_whitespace().skip(1)) {
                if let Some(other) = owners.insert(address, name) {
                    broken.push(format!("{other} and {name} have the address {address}"));
                }
            }
        }
        for (name, set) in &commit.sets {
            let addresses = &set.addresses;
            // An address may be in a set before its pod's port is there. What no port has allows
            // nobody.
            let owners = addresses
                .iter()
                .filter_map(|address| Some((address, owners.get(address.as_str())?)));
            let strangers = owners.filter(|(_, port)| !port.starts_with(&set.ports));
            let text =
                |(address, port)| format!("the set {name} has {address}, the address of {port}");
            broken.extend(strangers.map(text));
        }
        broken
    }
}

impl Commit {
    fn of(replica: &Replica) -> Self {
        let mut commit = Self::default();
        let mut names = BTreeMap::new();
        for (uuid, row) in replica.rows::<PortRow>() {
            let PortRow { name, addresses, port_security, external_ids } = row;
            let is_pods = external_ids.get("pod").is_some_and(|pod| pod == "true");
            let port = Port {
                is_pods,
                addresses: addresses.clone(),
                port_security: port_security.clone(),
                ..Port::default()
            };
            names.insert(uuid, name.clone());
            commit.ports.insert(name.clone(), port);
        }
        let mut hold = |ports: &[Uuid], note: &dyn Fn(&mut Port)| {
            for name in ports.iter().filter_map(|port| names.get(port)) {
                commit.ports.entry(name.clone()).and_modify(|port| note(port));
            }
        };
        for (_, SwitchRow { name, ports }) in replica.rows() {
            hold(ports, &|port| port.switches.extend([name.clone()]));
        }
        for (_, GroupRow { name, ports, .. }) in replica.rows() {
            hold(ports, &|port| port.groups.extend([name.clone()]));
        }
        for (_, GroupRow { name, acls, .. }) in replica.rows() {
            let rows = acls.iter().filter_map(|acl| replica.row::<AclRow>(*acl));
            commit.acls.insert(name.clone(), rows.map(AclRow::acl).collect());
        }
        commit.switches = replica.rows::<SwitchRow>().map(|(_, row)| row.name.clone()).collect();
        let sets = replica.rows::<SetRow>().map(|(_, row)| row);
        let owned =
            sets.filter(|row| row.external_ids.contains_key("k8s.ovn.org/owner-controller"));
        commit.sets = owned.map(|row| (row.name.clone(), row.into())).collect();
        commit
    }
}

/// What the guards have seen.
#[derive(Debug, Clone, Default)]
struct Seen {
    commits: usize,
    switches: BTreeSet<String>,
    broken: Vec<String>,
}

/// Watches all commits from its start on.
pub(crate) struct Watcher {
    seen: watch::Receiver<Seen>,
    task: JoinHandle<()>,
}

impl Watcher {
    pub(crate) fn start(endpoint: Endpoint, options: Options, guards: Vec<Box<dyn Guard>>) -> Self {
        let monitor = Monitor::new()
            .table::<PortRow>(Where::all())
            .table::<SwitchRow>(Where::all())
            .table::<GroupRow>(Where::all())
            .table::<AclRow>(Where::all())
            .table::<SetRow>(Where::all());
        let (tell, seen) = watch::channel(Seen::default());
        let task = tokio::spawn(async move {
            let (_client, mut updates) =
                Client::start(endpoint.into(), "OVN_Northbound", monitor, options);
            loop {
                if let Event::Changed(_) = updates.next().await {
                    let commit = Commit::of(updates.replica());
                    let broken: Vec<String> =
                        guards.iter().flat_map(|guard| guard.broken(&commit)).collect();
                    tell.send_modify(|seen| {
                        seen.commits += 1;
                        let place = seen.commits;
                        seen.switches = commit.switches;
                        seen.broken
                            .extend(broken.into_iter().map(|why| format!("commit {place}: {why}")));
                    });
                }
            }
        });
        Self { seen, task }
    }

    /// Waits until the guards have judged the commit that brought this switch, and fails if they
    /// have found anything wrong. Returns the number of commits.
    pub(crate) async fn kept_until(&mut self, switch: &str) -> usize {
        let Seen { commits, broken, .. } = self.seen_until(switch).await;
        assert!(broken.is_empty(), "{broken:#?}");
        commits
    }

    /// What the guards have found wrong until the commit that brought this switch.
    pub(crate) async fn broken_until(&mut self, switch: &str) -> Vec<String> {
        self.seen_until(switch).await.broken
    }

    async fn seen_until(&mut self, switch: &str) -> Seen {
        let seen =
            timeout(deadline(), self.seen.wait_for(|seen| seen.switches.contains(switch))).await;
        seen.expect("the guards fall behind").unwrap().clone()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests;
