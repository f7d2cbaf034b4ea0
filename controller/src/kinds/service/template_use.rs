//! Whether NodePorts are load balancers with variables, and which chassis have these.

use crate::{
    key::{Dirty, Key, Scope},
    world::Store,
};

/// Whether NodePorts are load balancers with variables, and when each chassis gets its variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TemplateUse {
    Never,
    /// Once there is a NodePort.
    WithNodePorts,
    /// Without NodePorts, too.
    FromTheStart,
}

impl Store {
    /// Whether NodePorts are load balancers with variables.
    pub fn uses_templates(&self) -> bool {
        self.templates
    }

    /// Whether chassis have variables.
    pub fn uses_variables(&self) -> bool {
        self.templates && self.variables
    }

    /// Decides on templates. To be called only while all keys are about to be compared.
    pub fn use_templates(&mut self, used: TemplateUse) {
        self.templates = used != TemplateUse::Never;
        self.variables |=
            used == TemplateUse::FromTheStart || self.services.templates().next().is_some();
    }

    /// There may be a NodePort from now on. Variables stay until the next start.
    pub(crate) fn may_need_variables(&mut self, dirty: &mut Dirty<'_>) {
        if self.templates && !self.variables && self.services.templates().next().is_some() {
            self.variables = true;
            self.follow_variables(true, dirty);
        }
    }

    /// Variables of all chassis may have other values, if they stand for backends that have
    /// changed.
    pub(crate) fn follow_variables(&self, are_concerned: bool, dirty: &mut Dirty<'_>) {
        if are_concerned && self.uses_variables() {
            let chassis = self.local_nodes().filter_map(|node| node.chassis.as_deref());
            chassis.for_each(|name| dirty(Key::Chassis(name.into()), Scope::Whole));
        }
    }

    /// How many addresses of each family the NodePorts of a node have at most.
    pub fn template_addresses(&self) -> [usize; 2] {
        if self.templates { self.node_port_addresses.most() } else { [0; 2] }
    }
}
