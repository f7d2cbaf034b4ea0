//! The names of the DNS that EgressFirewalls have, and what the DNS says of them. Asks nobody.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use super::{EgressFirewallTrouble, Store};
use crate::key::{Dirty, Key, Scope, SetId};

/// A name of the DNS, as the object spells it.
pub type DnsName = Arc<str>;

/// The addresses of a name, or why there is no answer.
pub type Answer = Result<BTreeSet<IpAddr>, Box<str>>;

/// The known names.
#[derive(Debug, Default)]
pub(super) struct Names {
    all: BTreeMap<DnsName, Known>,
    /// Whether there are other names than those that were handed out.
    is_changed: bool,
}

#[derive(Debug, Default)]
struct Known {
    /// The namespaces whose EgressFirewalls have it. Without any, its set is still there for rules in the
    /// database.
    users: BTreeSet<Arc<str>>,
    /// The last answer; none: there was none yet.
    addresses: Option<BTreeSet<IpAddr>>,
    /// Why there was no answer the last time.
    error: Option<Box<str>>,
}

impl Names {
    /// Whether an EgressFirewall has the name.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.all.get(name).is_some_and(|known| !known.users.is_empty())
    }

    /// The names that EgressFirewalls have, in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &DnsName> {
        self.all.iter().filter(|(_, known)| !known.users.is_empty()).map(|(name, _)| name)
    }

    pub(super) fn join(&mut self, name: &DnsName, user: &Arc<str>) {
        self.is_changed |= !self.contains(name);
        self.all.entry(Arc::clone(name)).or_default().users.insert(Arc::clone(user));
    }

    pub(super) fn leave(&mut self, name: &DnsName, user: &Arc<str>) {
        let Some(known) = self.all.get_mut(name) else { return };
        known.users.remove(user);
        self.is_changed |= known.users.is_empty();
    }

    /// No rule in the database has the name.
    pub(super) fn forget(&mut self, name: &str) {
        if !self.contains(name) {
            self.all.remove(name);
        }
    }

    /// Why the name has no addresses, if it was asked for and there was no answer yet.
    pub(super) fn unanswered(&self, name: &str) -> Option<&str> {
        let known = self.all.get(name).filter(|known| known.addresses.is_none())?;
        known.error.as_deref()
    }
}

impl Store {
    /// All names to ask for, if they are others than the last time.
    pub fn take_names(&mut self) -> Option<BTreeSet<DnsName>> {
        std::mem::take(&mut self.names.is_changed).then(|| self.names.iter().cloned().collect())
    }

    /// Whether the addresses of the set are known. Those of a name are not before its first answer.
    pub fn knows_addresses(&self, set: &SetId) -> bool {
        match set {
            SetId::Namespace(_) | SetId::Pods(_) | SetId::Port(..) => true,
            SetId::Name(name) => self.names.all.get(name).is_some_and(|known| known.addresses.is_some()),
        }
    }

    /// The addresses of the name outside of the cluster: what pods reach of each other, NetworkPolicies decide.
    pub(super) fn addresses_of_name(&self, name: &str) -> impl Iterator<Item = IpAddr> + use<'_> {
        let known = self.names.all.get(name).and_then(|known| known.addresses.as_ref());
        known.into_iter().flatten().copied().filter(|address| !self.config.is_of_pods(*address))
    }

    /// The DNS has been asked for the name. Without an answer the last one stays.
    pub(super) fn resolved(&mut self, name: &DnsName, answer: Answer, dirty: &mut Dirty<'_>) {
        let Some(known) = self.names.all.get(name) else { return };
        let users: Vec<(Arc<str>, Option<EgressFirewallTrouble>)> = known
            .users
            .iter()
            .map(|namespace| (Arc::clone(namespace), self.egress_firewall_trouble(namespace)))
            .collect();
        let Some(known) = self.names.all.get_mut(name) else { return };
        match answer {
            Ok(addresses) => {
                known.error = None;
                if known.addresses.as_ref() != Some(&addresses) {
                    known.addresses = Some(addresses);
                    dirty(Key::Set(SetId::Name(Arc::clone(name))), Scope::Whole);
                }
            }
            Err(why) => known.error = Some(why),
        }
        for (namespace, trouble) in users {
            if self.egress_firewall_trouble(&namespace) != trouble {
                self.tell_egress_firewall(&namespace, trouble.as_ref());
                self.write_status(&namespace);
            }
        }
    }
}
