//! What comes before the first write: the store learns what the database has, and all keys are
//! marked.

use std::sync::Arc;

use contract::names::ServiceKey;
use futures_util::FutureExt;
use tokio::{task::coop::unconstrained, time::Instant};

use crate::{
    config::Templates,
    engine::{
        commit::work_queue::{Cause, Item},
        reconcile::{Reconciler, cluster_check, database_lock::Right},
    },
    kinds::service::template_use::TemplateUse,
    rows::Table,
};

impl Reconciler {
    /// When this process may write for the first time: tells the store which addresses are in use
    /// in the database, before it assigns any, and then the early observations.
    ///
    /// Not before this process holds the lock. Until then the former leader writes ports, and may
    /// end before it annotates their pods. The server sends these ports before it grants the lock.
    pub(crate) fn begin(&mut self) {
        if self.early.is_none() || self.database_lock.right() != Right::Held {
            return;
        }
        while let Some(event) = unconstrained(self.northbound.next()).now_or_never() {
            self.changed(event);
        }
        // What came before the lock may have been the end of the connection, or another name of the
        // database.
        if !self.loaded || self.northbound.zone() != self.store.config.zone {
            return;
        }
        let Some(early) = self.early.take() else { return };
        // Ports before observations: the first complete list makes the store assign addresses.
        for (pod, port) in self.northbound.pod_ports() {
            self.store.found_port(pod, port);
        }
        if let Some(id) = cluster_check::recorded(&self.northbound) {
            self.store.found_cluster(id);
        }
        for node in self.northbound.nodes() {
            self.store.found_node(node.clone());
        }
        for (node, chassis) in self.northbound.chassis_of_nodes() {
            self.store.found_chassis_of(node.clone(), chassis.to_owned());
        }
        for (node, network) in self.northbound.networks_of_nodes() {
            self.store.found_network_of(node, network);
        }
        for service in self.northbound.services() {
            self.store.found_service(service.clone());
        }
        for policy in self.northbound.policies() {
            self.store.found_policy(policy.clone());
        }
        for service in self.northbound.services_with_backends() {
            self.store.found_backends(service.clone());
        }
        for policy in self.northbound.cluster_policies() {
            self.store.found_cluster_policy(policy.clone());
        }
        for (kind, namespace) in self.northbound.custom_objects() {
            self.store.found_custom(kind, Arc::clone(namespace));
        }
        self.store.found_sets(self.northbound.sets());
        for (rule, addresses) in self.northbound.lists_of_nodes() {
            self.store.found_list(rule, addresses);
        }
        for chassis in self.northbound.chassis() {
            self.store.found_chassis(Arc::clone(chassis));
        }
        early.into_iter().for_each(|observation| self.observed(observation));
        self.set_deadlines();
    }

    /// Marks all keys once everything that could justify a row has been read, and again after each
    /// reconnection.
    pub(crate) fn prime(&mut self) {
        if !self.loaded || self.primed || !self.store.is_complete() {
            return;
        }
        self.decide_on_templates();
        self.store.use_tiers(self.northbound.tiers());
        self.store.decide_on_selectors_of_namespaces();
        self.store.decide_on_lists_of_nodes();
        let now = Instant::now();
        let Self { store, northbound, work_queue, .. } = self;
        // Owners of rows, too: a row whose object is gone has no other key that would remove it.
        for key in store.keys().chain(northbound.index.owners().cloned()) {
            work_queue.mark(Item::whole(key, Cause::Everything), now);
        }
        self.primed = true;
        self.cluster.compare_rows(&self.northbound, &self.store);
        // At once: the first transaction would follow.
        if let Some(other) = self.another_cluster() {
            self.block(Some(other));
        }
    }

    /// Decides whether NodePorts are templates. All keys are compared after this.
    fn decide_on_templates(&mut self) {
        let Self { store, northbound, found_templates, .. } = self;
        let has_variables = northbound.has_variables();
        let has_table = northbound.has_column(Table::ChassisTemplateVar, "variables");
        let is_by_node = |key: &ServiceKey| {
            let ports = store.service(key).into_iter().flat_map(|(service, _)| &service.ports);
            let node_ports: Vec<u16> = ports.filter_map(|port| port.node_port).collect();
            northbound.has_node_ports(key, &node_ports)
        };
        let templates = has_table
            && match store.config.templates {
                Templates::Always => true,
                Templates::Never => false,
                // Once: what is found later is this controller's own.
                Templates::AsFound => *found_templates.get_or_insert_with(|| {
                    has_variables || !store.template_services().any(is_by_node)
                }),
            };
        store.use_templates(if !templates {
            TemplateUse::Never
        } else if has_variables || store.config.templates == Templates::Always {
            TemplateUse::FromTheStart
        } else {
            TemplateUse::WithNodePorts
        });
    }
}
