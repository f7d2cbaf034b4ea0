//! Which keys a change of a NetworkPolicy concerns.

use contract::names::{PodKey, PolicyKey};

use crate::key::{Dirty, Key, Scope, SetId};

/// Follows a change of a policy. `sets`: those that it names from now on. `pods`: those whose
/// isolation may be another one.
pub(crate) fn policy<'a>(
    key: &PolicyKey,
    is_isolation_new: bool,
    sets: impl Iterator<Item = &'a SetId>,
    pods: impl IntoIterator<Item = &'a PodKey>,
    dirty: &mut Dirty<'_>,
) {
    dirty(Key::Policy(key.clone()), Scope::Whole);
    if is_isolation_new {
        dirty(Key::Isolation(key.namespace().into()), Scope::Whole);
    }
    sets.for_each(|set| dirty(Key::Set(set.clone()), Scope::Whole));
    pods.into_iter().for_each(|pod| dirty(Key::Pod(pod.clone()), Scope::Whole));
}
