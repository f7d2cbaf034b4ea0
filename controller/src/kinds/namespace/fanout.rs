//! Which keys a change of a namespace concerns.

use std::sync::Arc;

use contract::{
    definition::CustomKind,
    names::{PodKey, PolicyKey},
};

use crate::{
    key::{Dirty, Key, Scope, SetId},
    kinds::egress_firewall::object::EgressFirewall,
};

/// The namespace is known from now on, and its pods have waited for it; or it is no longer, and
/// their ports stay as they are.
pub(crate) fn namespace<'a>(pods: impl Iterator<Item = &'a PodKey>, dirty: &mut Dirty<'_>) {
    pods.for_each(|pod| dirty(Key::Pod(pod.clone()), Scope::Whole));
}

/// The namespace has multicast from now on, or no longer.
pub(crate) fn multicast(namespace: &Arc<str>, dirty: &mut Dirty<'_>) {
    dirty(Key::Set(SetId::Namespace(Arc::clone(namespace))), Scope::Whole);
    dirty(Key::Namespace(Arc::clone(namespace)), Scope::Whole);
}

/// The pods of the namespace have a group from now on, or no longer.
pub(crate) fn namespace_group<'a>(
    namespace: &Arc<str>,
    pods: impl Iterator<Item = &'a PodKey>,
    dirty: &mut Dirty<'_>,
) {
    dirty(Key::Namespace(Arc::clone(namespace)), Scope::Whole);
    pods.for_each(|pod| dirty(Key::Pod(pod.clone()), Scope::Whole));
}

/// Policies and rules of the namespace are logged in another way.
pub(crate) fn logging(
    namespace: &Arc<str>,
    policies: &[&PolicyKey],
    firewall: Option<&EgressFirewall>,
    dirty: &mut Dirty<'_>,
) {
    if firewall.is_some() {
        dirty(Key::custom(CustomKind::EgressFirewall, Arc::clone(namespace)), Scope::Whole);
    }
    if !policies.is_empty() {
        dirty(Key::Isolation(Arc::clone(namespace)), Scope::Whole);
    }
    policies.iter().for_each(|policy| dirty(Key::Policy((*policy).clone()), Scope::Whole));
}
