//! Which keys a change of a Service concerns.

use contract::names::ServiceKey;

use crate::key::{Dirty, Key, Scope};

/// Follows a change of a Service.
pub(crate) fn service(key: &ServiceKey, dirty: &mut Dirty<'_>) {
    dirty(Key::Service(key.clone()), Scope::Whole);
}

/// Follows a change of a slice of this Service.
pub(crate) fn slice(service: &ServiceKey, dirty: &mut Dirty<'_>) {
    dirty(Key::Service(service.clone()), Scope::Whole);
}
