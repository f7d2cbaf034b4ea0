//! Secondary indexes of the replica: by name, by holder, by owner. Updated with each change, so
//! that no lookup scans.
//!
//! An update costs as much as the changed row is large; for a set of references, only what was
//! added and removed.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
};

use contract::ovn;
use ipnet::IpNet;
use ovsdb::{Atom, Change, ChangeKind, Changes, Field, Replica, Uuid};

use crate::{
    engine::northbound::{
        by_address::ByAddress,
        elements,
        foreign::{ForeignPort, ForeignPorts},
        owner::{Claim, Owners, is_of_node, of_node_acl, on_join_switch},
        touched::{Touched, moved_addresses},
    },
    few::{Few, leave},
    key::{Key, Scope},
    rows::{
        Table, path,
        table::{Life, LogicalRouterPort, Set, StaticRoute},
    },
};

/// Tables whose rows may belong to another key because of an address of a node or of a gateway
/// router.
const BY_NETWORKS: [Table; 2] = [Table::StaticRoute, Table::Nat];
/// Tables whose rows say which addresses these are, and the tables before.
const DECIDE_NETWORKS: [Table; 5] =
    [Table::StaticRoute, Table::Nat, Table::Acl, Table::LogicalRouter, Table::LogicalRouterPort];

/// Names, holders and owners of all rows in the replica.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// Boxed, because a hash table has up to twice as many places as entries, and three times while
    /// it grows.
    rows: HashMap<Uuid, Box<Entry>>,
    /// Each list is sorted.
    names: HashMap<Table, HashMap<Arc<str>, Few<Uuid>>>,
    /// Each list is sorted.
    owned: HashMap<Key, Few<Uuid>>,
    foreign: ForeignPorts,
    /// By switch: the ports whose names make it a node's switch, sorted. A node's switch has two of
    /// them, and may have thousands of other ports.
    node_ports: HashMap<Uuid, Few<Uuid>>,
    /// By a node's own address on its switch: the ACLs with that address in their ids.
    node_acls: ByAddress,
    /// By an address on the join switch: the ports of gateway routers that have it.
    join_ports: ByAddress,
    /// By next hop: the routes to it.
    routes: ByAddress,
}

/// What is known of a row. One without either part has no entry.
#[derive(Debug, Default)]
struct Entry {
    /// None as long as other rows refer to the row, and the replica does not have it.
    row: Option<IndexedRow>,
    /// The rows that hold it.
    parents: Few<Parent>,
}

#[derive(Debug)]
struct IndexedRow {
    table: Table,
    name: Arc<str>,
    claim: Claim,
}

/// A row that holds another in a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parent {
    pub(crate) row: Uuid,
    pub(crate) set: &'static Set,
}

/// The processing of one set of changes. The replica shows them already.
struct Pass<'a> {
    index: &'a mut Index,
    replica: &'a Replica,
    /// Rows whose owner may have changed.
    doubtful: BTreeMap<Uuid, Table>,
    /// Rows whose identity includes their holder, and whose holder, or its name, may have changed.
    moved: BTreeMap<Uuid, Table>,
    /// Port groups whose ACLs are others now, on which the owner of some depends.
    groups: BTreeSet<Uuid>,
    /// Addresses of nodes on their switches, and of gateway routers on the join switch, that came
    /// or went: the owner of a route depends on whose address its next hop is.
    hops: BTreeSet<IpAddr>,
    /// Nodes whose gateway router has another port on the join switch now: the owners of what the
    /// router holds depend on its networks.
    gateways: BTreeSet<Arc<str>>,
    touched: Touched,
}

impl Index {
    fn row(&self, row: Uuid) -> Option<&IndexedRow> {
        self.rows.get(&row)?.row.as_ref()
    }

    pub(crate) fn name(&self, row: Uuid) -> Option<&Arc<str>> {
        self.row(row).map(|row| &row.name)
    }

    pub(crate) fn table(&self, row: Uuid) -> Option<Table> {
        self.row(row).map(|row| row.table)
    }

    pub(crate) fn claim(&self, row: Uuid) -> &Claim {
        self.row(row).map_or(&Claim::Foreign, |row| &row.claim)
    }

    /// All rows with this name, sorted. In most tables there is at most one.
    pub(crate) fn named(&self, table: Table, name: &str) -> &[Uuid] {
        self.names.get(&table).and_then(|names| names.get(name)).map_or(&[], |rows| rows)
    }

    /// All names in a table.
    pub(crate) fn names(&self, table: Table) -> impl Iterator<Item = &Arc<str>> {
        self.names.get(&table).into_iter().flat_map(HashMap::keys)
    }

    /// The rows that hold this one.
    pub(crate) fn parents(&self, row: Uuid) -> &[Parent] {
        self.rows.get(&row).map_or(&[], |entry| &entry.parents)
    }

    /// The ports of a switch whose names make it a node's.
    pub(crate) fn node_ports(&self, switch: Uuid) -> impl Iterator<Item = Uuid> + use<'_> {
        self.node_ports.get(&switch).into_iter().flat_map(|ports| ports.iter()).copied()
    }

    /// The node that has this address on its switch, as the ids of ACLs say.
    pub(crate) fn node_at(&self, address: IpAddr) -> Option<&str> {
        let acl = self.node_acls.rows(address).first()?;
        self.name(*acl).and_then(|id| of_node_acl(id)).map(|(node, _)| node)
    }

    /// The node whose gateway router has this address on the join switch.
    pub(crate) fn gateway_at(&self, address: IpAddr) -> Option<&str> {
        let port = self.join_ports.rows(address).first()?;
        self.name(*port).and_then(|name| on_join_switch(name))
    }

    /// The rows that the key owns.
    pub(crate) fn owned(&self, key: &Key) -> impl Iterator<Item = Uuid> + use<'_> {
        self.owned.get(key).into_iter().flat_map(|rows| rows.iter()).copied()
    }

    /// Every key that owns a row.
    pub(crate) fn owners(&self) -> impl Iterator<Item = &Key> {
        self.owned.keys()
    }

    /// Updates the indexes by changes that the replica shows already.
    pub(crate) fn apply(
        &mut self,
        replica: &Replica,
        owners: &Owners,
        changes: &Changes,
    ) -> Touched {
        let mut pass = Pass {
            index: self,
            replica,
            doubtful: BTreeMap::new(),
            moved: BTreeMap::new(),
            groups: BTreeSet::new(),
            hops: BTreeSet::new(),
            gateways: BTreeSet::new(),
            touched: Touched::default(),
        };
        // Names and sets first: owners depend on them, and changes come in no particular order.
        for change in changes {
            if let Some(table) = Table::of_name(change.table) {
                pass.take(table, change);
            }
        }
        // After all sets, which tell the holders of rows; before the owners, which depend on the
        // names.
        for (row, table) in std::mem::take(&mut pass.moved) {
            pass.rename(table, row);
        }
        let mut doubtful: Vec<(Uuid, Table)> =
            std::mem::take(&mut pass.doubtful).into_iter().collect();
        // Holders before their elements: the owner of a part depends on its holder's. Tables of
        // holders come later in the order of tables.
        doubtful.sort_by_key(|(_, table)| Reverse(*table));
        for (row, table) in doubtful {
            let claim = owners.claim(replica, pass.index, table, row);
            pass.set_claim(row, claim);
        }
        let groups = std::mem::take(&mut pass.groups);
        pass.claim_again(owners, Table::PortGroup, groups);
        let hops = std::mem::take(&mut pass.hops);
        let routes: Vec<Uuid> =
            hops.iter().flat_map(|hop| pass.index.routes.rows(*hop)).copied().collect();
        pass.claim_again(owners, Table::StaticRoute, routes);
        for gateway in std::mem::take(&mut pass.gateways) {
            pass.claim_parts_again(owners, &ovn::gateway_router(&gateway));
        }
        let tables = || changes.into_iter().filter_map(|change| Table::of_name(change.table));
        if cfg!(debug_assertions) && tables().any(|table| DECIDE_NETWORKS.contains(&table)) {
            assert_eq!(
                pass.stale(owners),
                None,
                "the claim on a row depends on what was not followed"
            );
        }
        // Last: whether a port is foreign depends on its owner and on that of its switch.
        for port in pass.index.foreign.take_doubtful() {
            let now = ForeignPort::of(replica, pass.index, port);
            pass.index.foreign.put(port, now, &mut pass.touched.addresses);
        }
        pass.touched
    }

    /// The port makes the switch a node's.
    fn add_node_port(&mut self, switch: Uuid, port: Uuid) {
        self.node_ports.entry(switch).or_default().insert(port);
    }

    /// The port does not make the switch a node's any more. Returns whether it did.
    fn remove_node_port(&mut self, switch: Uuid, port: Uuid) -> bool {
        let was_node_port = self.node_ports.get(&switch).is_some_and(|ports| ports.contains(&port));
        leave(&mut self.node_ports, &switch, &port);
        was_node_port
    }

    /// Removes the entry of a row of which nothing is known any more.
    fn drop_empty(&mut self, row: Uuid) {
        if self.rows.get(&row).is_some_and(|entry| entry.row.is_none() && entry.parents.is_empty())
        {
            self.rows.remove(&row);
        }
    }

    fn disown(&mut self, row: Uuid, claim: &Claim) {
        if let Some(owner) = claim.owner() {
            leave(&mut self.owned, owner, &row);
        }
    }
}

impl Pass<'_> {
    fn take(&mut self, table: Table, change: &Change) {
        let row = change.uuid;
        if change.kind != ChangeKind::Delete {
            self.rename(table, row);
        }
        for set in table.sets() {
            self.relink(Parent { row, set }, change);
        }
        // Added and removed elements have marked their own keys above. The rest is about the row's
        // own columns.
        let is_set = |column: &&str| table.sets().iter().any(|set| set.column == *column);
        if change.kind == ChangeKind::Modify && change.columns().iter().all(is_set) {
            return;
        }
        // Nor does the owner of a row depend on the addresses in it.
        if let Some(parts) = moved_addresses(table, change) {
            self.touched.touch(self.index.claim(row).key(), parts);
            return;
        }
        self.touched.touch(self.index.claim(row).key(), Scope::Whole);
        self.doubtful.insert(row, table);
        if table.has_hashed_names() {
            // Its id may be another one now, and then it is another row.
            let name = self.index.name(row).map(Arc::clone);
            self.touched.renamed.extend(name.map(|name| (table, name)));
        }
        if table == Table::LogicalSwitchPort {
            self.index.foreign.doubt(row);
        }
        if let Some(name) =
            self.index.name(row).filter(|_| table == Table::LogicalRouterPort).cloned()
        {
            self.index.foreign.doubt_leading_to(&name);
            self.follow_join_port(row);
        }
        if table == Table::StaticRoute {
            self.follow_next_hop(row);
        }
        if table == Table::Acl {
            let groups =
                self.index.parents(row).iter().filter(|parent| parent.set.of == Table::PortGroup);
            self.groups.extend(groups.map(|parent| parent.row));
        }
        // The owner of a switch depends on these ports, so it is determined again when one of them
        // changes.
        if self
            .index
            .name(row)
            .is_some_and(|name| table == Table::LogicalSwitchPort && is_of_node(name))
        {
            self.doubtful
                .extend(self.index.parents(row).iter().map(|parent| (parent.row, parent.set.of)));
        }
        if change.kind == ChangeKind::Delete {
            self.forget(row);
            self.doubtful.remove(&row);
            self.moved.remove(&row);
        }
    }

    /// Follows the addresses of a router's port that may be that of a gateway router on the join
    /// switch.
    fn follow_join_port(&mut self, port: Uuid) {
        let row: Option<&LogicalRouterPort> = self.replica.row(port);
        let gateway = self.index.name(port).and_then(|name| on_join_switch(name)).map(Arc::from);
        let networks =
            row.filter(|_| gateway.is_some()).into_iter().flat_map(|row| row.networks.iter());
        let now: Vec<IpAddr> =
            networks.filter_map(|net| Some(net.parse::<IpNet>().ok()?.addr())).collect();
        // Also if they are the same: they may be another gateway router's now.
        self.hops.extend(&now);
        self.hops.extend(&*self.index.join_ports.set(port, now));
        self.gateways.extend(gateway);
    }

    /// Follows the next hop of a route.
    fn follow_next_hop(&mut self, route: Uuid) {
        let row: Option<&StaticRoute> = self.replica.row(route);
        self.index.routes.set(route, row.and_then(|row| row.nexthop.parse().ok()));
    }

    /// Follows the identity of a row, which may be new or unchanged.
    fn rename(&mut self, table: Table, row: Uuid) {
        let Some(name) =
            table.recognised(self.replica, row).map(|name| self.place(table, row, name))
        else {
            return;
        };
        let before = self.index.name(row).cloned();
        if before.as_ref() == Some(&name) {
            return;
        }
        self.touched.routers |= table == Table::LogicalRouter;
        let (was_node_port, is_node_port) =
            (before.as_deref().is_some_and(is_of_node), is_of_node(&name));
        if let Some(before) = before {
            self.unname(table, &before, row);
            if table == Table::LogicalRouterPort {
                self.index.foreign.doubt_leading_to(&before);
                self.gateways.extend(on_join_switch(&before).map(Arc::from));
            }
        }
        if let Some(address) = node_address(table, &name) {
            self.index.node_acls.set(row, [address]);
            self.hops.insert(address);
        }
        let known = &mut self.index.rows.entry(row).or_default().row;
        let claim = known.take().map_or(Claim::Foreign, |row| row.claim);
        *known = Some(IndexedRow { table, name: Arc::clone(&name), claim });
        if !name.is_empty() {
            let rows =
                self.index.names.entry(table).or_default().entry(Arc::clone(&name)).or_default();
            // Keys that wait for a row with this name can continue.
            if rows.is_empty() {
                self.touched.renamed.push((table, name));
            }
            rows.insert(row);
        }
        if table == Table::LogicalSwitchPort && was_node_port != is_node_port {
            for parent in self.index.parents(row).to_vec().iter().filter(|parent| is_switch(parent))
            {
                if is_node_port {
                    self.index.add_node_port(parent.row, row);
                } else {
                    self.index.remove_node_port(parent.row, row);
                }
                self.doubtful.insert(parent.row, parent.set.of);
            }
        }
        // The owners of parts follow from their holder, which has another name now.
        for set in table.sets().iter().filter(|set| set.holds.life() == Life::Part) {
            elements(self.replica, row, set)
                .iter()
                .for_each(|element| self.doubt(*element, set.holds));
        }
    }

    /// The holder of a part, or the holder's name, may have changed.
    fn doubt(&mut self, part: Uuid, table: Table) {
        self.doubtful.insert(part, table);
        if table.is_within() {
            self.moved.insert(part, table);
        }
    }

    /// The name, joined with the holder's name in tables where that is part of the identity.
    fn place(&self, table: Table, row: Uuid, name: Arc<str>) -> Arc<str> {
        if !table.is_within() {
            return name;
        }
        // A row that arrives before its holder has no name yet: the link to the holder marks it as
        // moved.
        let holder = self.index.parents(row).iter().find_map(|parent| self.index.name(parent.row));
        holder.map_or_else(Arc::default, |holder| path(holder, &name).into())
    }

    /// Follows the elements that were added to a set and removed from it.
    fn relink(&mut self, parent: Parent, change: &Change) {
        let now = elements(self.replica, parent.row, parent.set);
        match change.kind {
            ChangeKind::Insert => now.iter().for_each(|element| self.link(parent, *element)),
            ChangeKind::Modify => {
                // The difference of a set has the added and the removed elements; the replica shows
                // which is which.
                let moved = change
                    .difference(parent.set.column)
                    .map_or(&[][..], |difference| difference.atoms());
                for element in moved.iter().filter_map(Atom::as_uuid) {
                    match now.binary_search(&element) {
                        Ok(_) => self.link(parent, element),
                        Err(_) => self.unlink(parent, element),
                    }
                }
            }
            ChangeKind::Delete => {
                let before = change
                    .old_columns()
                    .and_then(|row| row.column(parent.set.column))
                    .map_or(&[][..], Field::references);
                before.iter().for_each(|element| self.unlink(parent, *element));
            }
        }
    }

    fn link(&mut self, parent: Parent, element: Uuid) {
        let parents = &mut self.index.rows.entry(element).or_default().parents;
        if !parents.contains(&parent) {
            parents.push(parent);
        }
        // If the port's name is not known yet, `rename` does this later.
        if is_switch(&parent) && self.index.name(element).is_some_and(|name| is_of_node(name)) {
            self.index.add_node_port(parent.row, element);
            self.doubtful.insert(parent.row, parent.set.of);
        }
        self.moved(parent, element);
    }

    fn unlink(&mut self, parent: Parent, element: Uuid) {
        if let Some(entry) = self.index.rows.get_mut(&element) {
            entry.parents.remove(&parent);
        }
        self.index.drop_empty(element);
        if is_switch(&parent) && self.index.remove_node_port(parent.row, element) {
            self.doubtful.insert(parent.row, parent.set.of);
        }
        self.moved(parent, element);
    }

    /// An element was added to a set or removed from it.
    fn moved(&mut self, parent: Parent, element: Uuid) {
        let Set { of, holds, .. } = *parent.set;
        self.touched.touch(self.index.claim(element).key(), Scope::Whole);
        if holds.life() == Life::Part {
            self.doubt(element, holds);
        }
        if of == Table::PortGroup && holds == Table::Acl {
            self.groups.insert(parent.row);
        }
        if of == Table::LogicalSwitch && holds == Table::LogicalSwitchPort {
            self.index.foreign.doubt(element);
            // The bridge of a node is known by its switch.
            if self
                .index
                .name(parent.row)
                .is_some_and(|name| name.starts_with(ovn::EXTERNAL_SWITCH_PREFIX))
            {
                self.doubtful.insert(element, holds);
            }
        }
    }

    fn set_claim(&mut self, row: Uuid, claim: Claim) {
        let entry = self.index.rows.get_mut(&row).and_then(|entry| entry.row.as_mut());
        let Some(entry) = entry else { return };
        self.touched.touch(claim.key(), Scope::Whole);
        if entry.claim == claim {
            return;
        }
        // Thousands of rows may belong to one policy: their claims share its name.
        let known = claim.owner().and_then(|owner| self.index.owned.get_key_value(owner));
        let claim = known.map_or(claim, |(owner, _)| Claim::Ours(owner.clone()));
        let before = std::mem::replace(&mut entry.claim, claim.clone());
        // A switch has another owner: its foreign ports may count for another node now, or for
        // none.
        for set in entry.table.sets().iter().filter(|set| is_switch(&Parent { row, set })) {
            elements(self.replica, row, set)
                .iter()
                .for_each(|port| self.index.foreign.doubt(*port));
        }
        // The former owner has to compare, too: it may have lost a row that it wants.
        self.touched.touch(before.key(), Scope::Whole);
        self.index.disown(row, &before);
        if let Some(owner) = claim.owner() {
            self.index.owned.entry(owner.clone()).or_default().insert(row);
        }
    }

    fn forget(&mut self, row: Uuid) {
        let entry = self.index.rows.get_mut(&row).and_then(|entry| entry.row.take());
        let Some(IndexedRow { table, name, claim }) = entry else { return };
        self.index.drop_empty(row);
        self.touched.touch(claim.key(), Scope::Whole);
        self.touched.routers |= table == Table::LogicalRouter;
        self.index.disown(row, &claim);
        self.unname(table, &name, row);
    }

    fn unname(&mut self, table: Table, name: &Arc<str>, row: Uuid) {
        if let Some(names) = self.index.names.get_mut(&table) {
            leave(names, &**name, &row);
        }
        self.touched.renamed.push((table, Arc::clone(name)));
        if table == Table::Acl {
            self.hops.extend(&*self.index.node_acls.set(row, []));
        }
    }

    /// Determines the owners of the routes and translations of this router again.
    fn claim_parts_again(&mut self, owners: &Owners, router: &str) {
        let routers = self.index.named(Table::LogicalRouter, router).to_vec();
        for set in Table::LogicalRouter.sets().iter().filter(|set| BY_NETWORKS.contains(&set.holds))
        {
            for router in &routers {
                self.claim_again(
                    owners,
                    set.holds,
                    elements(self.replica, *router, set).iter().copied(),
                );
            }
        }
    }

    /// A row of [`BY_NETWORKS`] with another claim than the index has.
    fn stale(&self, owners: &Owners) -> Option<(Table, Uuid, Claim)> {
        let rows = |table| self.index.names.get(&table).into_iter().flat_map(HashMap::values);
        let rows =
            BY_NETWORKS.into_iter().flat_map(|table| rows(table).map(move |rows| (table, rows)));
        let mut rows = rows.flat_map(|(table, rows)| rows.iter().map(move |row| (table, *row)));
        rows.find_map(|(table, row)| {
            let claim = owners.claim(self.replica, self.index, table, row);
            (claim != *self.index.claim(row)).then_some((table, row, claim))
        })
    }

    /// Determines the owners of these rows again. Only those that have changed concern their keys.
    fn claim_again(&mut self, owners: &Owners, table: Table, rows: impl IntoIterator<Item = Uuid>) {
        for row in rows {
            let claim = owners.claim(self.replica, self.index, table, row);
            if *self.index.claim(row) != claim {
                self.set_claim(row, claim);
            }
        }
    }
}

/// The address in the id of a node's ACL.
fn node_address(table: Table, name: &str) -> Option<IpAddr> {
    if table == Table::Acl { of_node_acl(name)?.1.parse().ok() } else { None }
}

/// Whether the set is the ports of a switch.
fn is_switch(parent: &Parent) -> bool {
    parent.set.of == Table::LogicalSwitch && parent.set.column == "ports"
}
