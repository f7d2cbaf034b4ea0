//! The names of the DNS that rules have, and what the DNS says of them. Asks nobody.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use crate::key::AnyPolicy;

/// A name of the DNS, in its canonical form: in lower case, and without the final dot. Objects may
/// spell it in other ways.
pub type DnsName = Arc<str>;

/// The addresses of a name, or why there is no answer.
pub type Answer = Result<BTreeSet<IpAddr>, Box<str>>;

/// Whose rules have a name, and its addresses in the database at the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameUse {
    pub users: BTreeSet<AnyPolicy>,
    pub found: BTreeSet<IpAddr>,
}

/// Why a text is no name to ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoName {
    /// It stands for names that nobody can list.
    Wildcard,
    NoName,
}

/// A name as the DNS has it (RFC 1035 §2.3), with or without the final dot. Underscores are usual
/// (RFC 8552).
pub(crate) fn dns_name(text: &str) -> Result<DnsName, NoName> {
    if text.contains('*') {
        return Err(NoName::Wildcard);
    }
    let labels = text.strip_suffix('.').unwrap_or(text);
    let is_label = |label: &str| {
        let is_plain =
            label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        is_plain && (1..=63).contains(&label.len())
    };
    let is_name = labels.len() <= 253 && labels.split('.').all(is_label);
    if is_name { Ok(labels.to_ascii_lowercase().into()) } else { Err(NoName::NoName) }
}

/// The known names.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) all: BTreeMap<DnsName, Known>,
    /// Whether there may be other names or users than those that were handed out.
    pub(crate) is_changed: bool,
    /// How many names in rules have no addresses, because there was no answer.
    pub(crate) unanswered: usize,
    /// What was handed out.
    pub(crate) taken: BTreeMap<DnsName, NameUse>,
    /// The addresses of sets in the database at the start.
    pub(crate) found: BTreeMap<DnsName, BTreeSet<IpAddr>>,
}

#[derive(Debug, Default)]
pub(crate) struct Known {
    /// Whose rules have it. Without any, its set is still there for rules in the database.
    pub(crate) users: BTreeSet<AnyPolicy>,
    /// The last answer; none: there was none yet.
    pub(crate) addresses: Option<BTreeSet<IpAddr>>,
    /// Those of them that no rule about names opens: whoever runs the name's zone may answer with
    /// any.
    pub(crate) left_out: BTreeSet<IpAddr>,
    /// Why there was no answer the last time.
    pub(crate) error: Option<Box<str>>,
}

impl Names {
    /// Whether a rule has the name.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.all.get(name).is_some_and(|known| !known.users.is_empty())
    }

    /// The names that rules have, in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &DnsName> {
        self.all.iter().filter(|(_, known)| !known.users.is_empty()).map(|(name, _)| name)
    }

    /// The set of a name has these addresses in the database.
    pub(crate) fn found(&mut self, name: DnsName, addresses: impl IntoIterator<Item = IpAddr>) {
        self.found.entry(name).or_default().extend(addresses);
    }

    pub(crate) fn join(&mut self, name: &DnsName, user: &AnyPolicy) {
        self.is_changed = true;
        self.all.entry(Arc::clone(name)).or_default().users.insert(user.clone());
    }

    pub(crate) fn leave(&mut self, name: &DnsName, user: &AnyPolicy) {
        let Some(known) = self.all.get_mut(name) else { return };
        known.users.remove(user);
        self.is_changed = true;
    }

    /// No rule in the database has the name.
    pub(crate) fn forget(&mut self, name: &str) {
        if !self.contains(name) {
            self.found.remove(name);
            self.all.remove(name);
        }
    }

    /// Why the name has no addresses, if it was asked for.
    pub(crate) fn unanswered(&self, name: &str) -> Option<&str> {
        let has_none = |known: &&Known| known.addresses.as_ref().is_none_or(BTreeSet::is_empty);
        self.all.get(name).filter(has_none)?.error.as_deref()
    }

    pub(crate) fn is_unanswered(&self, name: &str) -> bool {
        self.contains(name) && self.unanswered(name).is_some()
    }

    /// The first of the name's addresses that is left out.
    pub(crate) fn left_out(&self, name: &str) -> Option<IpAddr> {
        self.all.get(name)?.left_out.first().copied()
    }

    pub(crate) fn users(&self, name: &str) -> impl Iterator<Item = &AnyPolicy> {
        self.all.get(name).into_iter().flat_map(|known| &known.users)
    }
}
