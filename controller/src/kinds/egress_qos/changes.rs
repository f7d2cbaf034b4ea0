//! What an event of an EgressQoS changes.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    custom::{CustomObject as _, CustomProblem},
    key::{AnyPolicy, Dirty},
    kinds::egress_qos::{object::EgressQos, rows},
    rows::RowSet,
    select::peer::PodPeer,
    world::{Store, custom::CustomChanges},
};

/// The sets of pods that an EgressQoS names.
#[derive(Debug, Default)]
pub(crate) struct QosUses {
    /// By their texts.
    pods: BTreeMap<Arc<str>, Arc<PodPeer>>,
    /// Whether a rule is about all pods of the namespace.
    names_namespace: bool,
}

impl CustomChanges for EgressQos {
    type Uses = QosUses;

    fn uses(store: &Store, namespace: &Arc<str>) -> QosUses {
        let mut uses = QosUses::default();
        for rule in store.custom::<Self>(namespace).into_iter().flat_map(|qos| &qos.rules) {
            match &rule.pods {
                None => uses.names_namespace = true,
                Some(peer) => drop(uses.pods.insert(Arc::clone(&peer.text), Arc::clone(peer))),
            }
        }
        uses
    }

    fn follow(store: &mut Store, namespace: &Arc<str>, before: QosUses, dirty: &mut Dirty<'_>) {
        let now = Self::uses(store, namespace);
        let user = AnyPolicy::Custom(Self::KIND, Arc::clone(namespace));
        for (text, peer) in &now.pods {
            if before.pods.get(text) != Some(peer) {
                store.join_own_set(&user, peer, dirty);
            }
        }
        for text in before.pods.keys().filter(|text| !now.pods.contains_key(*text)) {
            store.leave_own_set(&user, text);
        }
        if before.names_namespace != now.names_namespace {
            store.name_namespace_set(&user, namespace, now.names_namespace, dirty);
        }
    }

    fn problem(store: &Store, namespace: &str) -> Option<CustomProblem> {
        let unusable = store.custom::<Self>(namespace)?.unusable.as_deref()?;
        Some(CustomProblem::new(unusable.reason(), unusable))
    }

    fn rows(store: &Store, namespace: &Arc<str>) -> RowSet {
        rows::egress_qos(store, namespace)
    }
}
