//! The kinds of which a namespace has one object: one line each. Watch, list, safety brake, rows,
//! events and status follow from it; what is special of a kind is in its folder, as
//! `world::custom::CustomChanges`.

use std::sync::Arc;

use contract::definition::CustomKind;
use kubeapi::watch::Seen;

use crate::{
    custom::{CustomObject, CustomObjects, SeenCustom},
    kinds::{egress_firewall::object::EgressFirewall, egress_qos::object::EgressQos},
};

/// A kind of this list.
pub trait RegisteredKind: CustomObject {
    fn event(seen: SeenCustom<Self>) -> CustomEvent;
}

/// The objects of a kind of this list.
pub(crate) trait StoredKind: RegisteredKind {
    fn of(states: &CustomStates) -> &CustomObjects<Self>;
    fn of_mut(states: &mut CustomStates) -> &mut CustomObjects<Self>;
}

macro_rules! custom_kinds {
    ($d:tt $($kind:ident in $field:ident at $path:path),+ $(,)?) => {
        /// What the API server says of the objects of one of the kinds.
        #[derive(Debug, Clone)]
        pub enum CustomEvent {
            $($kind(SeenCustom<$kind>),)+
        }

        /// The objects of all kinds.
        #[derive(Debug, Default)]
        pub(crate) struct CustomStates {
            $(pub(crate) $field: CustomObjects<$kind>,)+
        }

        $(impl RegisteredKind for $kind {
            fn event(seen: SeenCustom<Self>) -> CustomEvent {
                CustomEvent::$kind(seen)
            }
        }

        impl StoredKind for $kind {
            fn of(states: &CustomStates) -> &CustomObjects<Self> {
                &states.$field
            }

            fn of_mut(states: &mut CustomStates) -> &mut CustomObjects<Self> {
                &mut states.$field
            }
        })+

        /// `of_kind!(kind, K => …)`: the expression, with `K` as the type of the kind's objects.
        macro_rules! of_kind {
            ($d of:expr, $d object:ident => $d body:expr) => {
                match $d of {
                    $(contract::definition::CustomKind::$kind => {
                        type $d object = $path;
                        $d body
                    })+
                }
            };
        }

        /// `of_event!(event, seen => …)`: the expression, with what is in the event.
        macro_rules! of_event {
            ($d event:expr, $d seen:ident => $d body:expr) => {
                match $d event {
                    $($crate::custom::registry::CustomEvent::$kind($d seen) => $d body,)+
                }
            };
        }
    };
}

custom_kinds! { $
    EgressFirewall in egress_firewalls at crate::kinds::egress_firewall::object::EgressFirewall,
    EgressQos in egress_qoses at crate::kinds::egress_qos::object::EgressQos,
}

pub(crate) use {of_event, of_kind};

impl CustomEvent {
    pub fn kind(&self) -> CustomKind {
        fn kind<K: CustomObject>(_: &SeenCustom<K>) -> CustomKind {
            K::KIND
        }
        of_event!(self, seen => kind(seen))
    }

    /// Whether it is all objects of the kind.
    pub(crate) fn is_list(&self) -> bool {
        of_event!(self, seen => matches!(seen, Seen::All(_)))
    }

    /// Whether it is that there is no list of the kind.
    pub(crate) fn is_unlisted(&self) -> bool {
        of_event!(self, seen => matches!(seen, Seen::Unlisted(_)))
    }

    /// The namespace of the object; none for a list, and for none.
    pub(crate) fn namespace(&self) -> Option<Arc<str>> {
        of_event!(self, seen => match seen {
            Seen::All(_) | Seen::Unlisted(_) => None,
            Seen::Applied((namespace, _)) | Seen::Deleted(namespace) => Some(Arc::clone(namespace)),
        })
    }

    /// The empty list of a kind.
    pub(crate) fn nothing(kind: CustomKind) -> Self {
        of_kind!(kind, K => K::event(Seen::All(Vec::new())))
    }
}
