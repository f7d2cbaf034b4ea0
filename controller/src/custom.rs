//! Objects of the kinds of which a namespace has one: what all of these kinds have in common, their
//! objects by namespace, and their statuses. Knows no single kind, neither the world nor the
//! database. The kinds are in [`registry`].

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    marker::PhantomData,
    sync::Arc,
};

use contract::{
    definition::CustomKind,
    names::{BadName, of_custom},
};
use k8s_openapi::jiff::Timestamp;
use kube::api::ObjectMeta;
use kubeapi::watch::{Presence, Seen, Watched};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    config::{ClusterConfig, Zone},
    object::specification::Specification,
    problem::ProblemText,
    status_writeback::{RowsState, StatusWriteback},
};

pub mod registry;

/// The type of a condition begins with it; the name of the zone follows. Upstream's.
const READY_IN_ZONE: &str = "Ready-In-Zone-";
/// Characters of the longest name of a manager that an API server takes.
const MOST_MANAGER: usize = 128;

/// What the API server says of the objects of a kind, by their namespaces.
pub type SeenCustom<K> = Seen<Arc<str>, (Arc<str>, K)>;

/// An object of a kind of which a namespace has one.
pub trait CustomObject: Clone + fmt::Debug + Send + Sync + 'static {
    const KIND: CustomKind;
    /// Whether the objects deny connections: while their list is held back, no pod gets its port.
    const DENIES: bool;
    /// Whether the rows are on the switches of all nodes.
    const ON_SWITCHES: bool;
    const STATUS: StatusForm;

    /// The object of the namespace with this specification and this status.
    fn read(namespace: &str, uid: &str, spec: Specification, status: Specification) -> Self;

    fn uid(&self) -> &Arc<str>;

    /// Whether both ask for the same, whatever their statuses are.
    fn is_like(&self, other: &Self) -> bool;

    /// Whether it is beyond a limit.
    fn is_too_large(&self) -> bool;

    /// The status that it has.
    fn observed(&self) -> &ObservedStatus;

    /// Replaces the status that it has.
    fn observe(&mut self, status: ObservedStatus);
}

/// How the status of a kind tells about a zone, beside the field `status` of the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusForm {
    /// In a set of `messages`, each of which begins with the zone's name.
    Messages,
    /// In `conditions`, each of which has a zone's name in its type.
    Conditions,
}

/// The status that an object has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ObservedStatus {
    pub status: Option<Box<str>>,
    pub messages: Option<BTreeSet<Box<str>>>,
    pub conditions: Box<[ObservedCondition]>,
}

impl ObservedStatus {
    /// The zones that have said something of the object, as far as their names can be a manager's.
    pub(crate) fn zones(&self, form: StatusForm) -> impl Iterator<Item = &str> {
        let messages = self.messages.iter().flatten().filter(move |_| form == StatusForm::Messages);
        let messages = messages.filter_map(|text| Some(text.split_once(": ")?.0));
        let conditions = self.conditions.iter().filter(move |_| form == StatusForm::Conditions);
        let conditions = conditions.filter_map(|of| of.kind.strip_prefix(READY_IN_ZONE));
        let is_name = |zone: &&str| {
            let is_short = (1..=MOST_MANAGER).contains(&zone.len());
            is_short && zone.bytes().all(|byte| byte.is_ascii_graphic())
        };
        messages.chain(conditions).filter(is_name)
    }
}

/// A condition in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ObservedCondition {
    #[serde(rename = "type")]
    pub kind: Box<str>,
    pub status: Box<str>,
    pub message: Box<str>,
    pub last_transition_time: Box<str>,
}

/// The status that an object should have, to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomStatus {
    pub kind: CustomKind,
    pub form: StatusForm,
    pub namespace: Arc<str>,
    pub uid: Arc<str>,
    /// The zone that this is about, which also is the manager of these fields.
    pub zone: Zone,
    /// Upstream's words, for which scripts look.
    pub status: &'static str,
    /// Whether they are about the whole object. With other zones they are not: each would write its
    /// own over the others'.
    pub is_of_all: bool,
    pub message: String,
    /// Of a condition: since when it has been as it should be; none: until now it was another.
    pub since: Option<Box<str>>,
    /// Nothing is said of the zone any more.
    pub is_withdrawn: bool,
}

/// Why an object does not do what its author may expect, worded for an event on it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct CustomProblem {
    reason: &'static str,
    text: String,
}

impl ProblemText for CustomProblem {
    fn reason(&self) -> &'static str {
        self.reason
    }

    fn message(&self) -> &'static str {
        "a part of an object cannot be used"
    }
}

impl CustomProblem {
    /// `reason`: one word for an event.
    pub fn new(reason: &'static str, problem: impl fmt::Display) -> Self {
        Self { reason, text: problem.to_string() }
    }
}

impl CustomStatus {
    /// The status of an object whose rows are in this state. `problem`: what is wrong with it.
    pub(crate) fn new<K: CustomObject>(
        namespace: &Arc<str>,
        object: &K,
        config: &ClusterConfig,
        state: &RowsState,
        problem: Option<CustomProblem>,
    ) -> Self {
        let why = match state {
            RowsState::Ready => problem.map(|problem| problem.to_string()),
            RowsState::Failed(why) => Some(why.to_string()),
        };
        let status = if why.is_none() { K::KIND.applied() } else { K::KIND.not_applied() };
        let text = why.map_or_else(|| status.to_owned(), |why| format!("{status}: {why}"));
        let message = match K::STATUS {
            StatusForm::Messages => format!("{}: {text}", config.zone.0),
            StatusForm::Conditions => text,
        };
        let mut wanted = Self {
            kind: K::KIND,
            form: K::STATUS,
            namespace: Arc::clone(namespace),
            uid: Arc::clone(object.uid()),
            zone: config.zone.clone(),
            status,
            is_of_all: !config.is_connected(),
            message,
            since: None,
            is_withdrawn: false,
        };
        let same = wanted
            .observed_condition(object.observed())
            .filter(|condition| *condition.status == *wanted.condition_status());
        wanted.since = same.map(|condition| condition.last_transition_time.clone());
        wanted
    }

    /// What a zone has said, taken back: no node is of it any more.
    pub(crate) fn withdrawn<K: CustomObject>(namespace: &Arc<str>, object: &K, zone: Zone) -> Self {
        Self {
            kind: K::KIND,
            form: K::STATUS,
            namespace: Arc::clone(namespace),
            uid: Arc::clone(object.uid()),
            zone,
            status: K::KIND.not_applied(),
            is_of_all: false,
            message: String::new(),
            since: None,
            is_withdrawn: true,
        }
    }

    /// Whether the object has it.
    pub(crate) fn is_in(&self, observed: &ObservedStatus) -> bool {
        let has_part = match self.form {
            StatusForm::Messages => observed
                .messages
                .as_ref()
                .is_some_and(|messages| messages.contains(self.message.as_str())),
            StatusForm::Conditions => self.observed_condition(observed).is_some_and(|own| {
                (&*own.message, &*own.status) == (&*self.message, self.condition_status())
            }),
        };
        has_part && (!self.is_of_all || observed.status.as_deref() == Some(self.status))
    }

    /// This zone's condition in the status that the object has.
    fn observed_condition<'a>(
        &self,
        observed: &'a ObservedStatus,
    ) -> Option<&'a ObservedCondition> {
        let own = self.condition_type();
        observed.conditions.iter().find(|condition| *condition.kind == *own)
    }

    fn condition_type(&self) -> String {
        format!("{READY_IN_ZONE}{}", self.zone.0)
    }

    fn condition_status(&self) -> &'static str {
        if self.status == self.kind.applied() { "True" } else { "False" }
    }

    /// The fields as the API spells them, if they are written now.
    pub(crate) fn fields(&self, now: Timestamp) -> Value {
        // What a manager does not apply any more goes, unless others have applied it, too.
        if self.is_withdrawn {
            return json!({});
        }
        let mut fields = match self.form {
            StatusForm::Messages => json!({"messages": [self.message]}),
            StatusForm::Conditions => {
                let is_applied = self.condition_status() == "True";
                // Whole seconds, as the API server keeps them.
                let now = || now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into();
                let condition = json!({
                    "type": self.condition_type(),
                    "status": self.condition_status(),
                    "reason": if is_applied { "SetupSucceeded" } else { "SetupFailed" },
                    "message": self.message,
                    "lastTransitionTime": self.since.clone().unwrap_or_else(now),
                });
                json!({"conditions": [condition]})
            }
        };
        if self.is_of_all {
            fields["status"] = json!(self.status);
        }
        fields
    }
}

/// An object, and what was said of it.
#[derive(Debug)]
pub(crate) struct KnownCustom<K> {
    pub(crate) object: K,
    pub(crate) said: StatusWriteback<CustomStatus>,
}

/// The known objects of a kind.
#[derive(Debug)]
pub(crate) struct CustomObjects<K> {
    pub(crate) all: BTreeMap<Arc<str>, Box<KnownCustom<K>>>,
}

impl<K> Default for CustomObjects<K> {
    fn default() -> Self {
        Self { all: BTreeMap::new() }
    }
}

impl<K> CustomObjects<K> {
    pub(crate) fn get(&self, namespace: &str) -> Option<&K> {
        self.all.get(namespace).map(|known| &known.object)
    }

    /// In the order of their names.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = &Arc<str>> {
        self.all.keys()
    }

    pub(crate) fn contains(&self, namespace: &str) -> bool {
        self.all.contains_key(namespace)
    }
}

/// An object as the API spells it, reduced to the fields in use while it is parsed. What it
/// specifies is read later, so that one that cannot be read is an object, too: it must not open
/// what it closes.
#[derive(Debug, Clone, Deserialize)]
#[serde(bound = "", default)]
pub struct CustomWire<K> {
    #[serde(deserialize_with = "crate::object::metadata::of_namespace")]
    metadata: ObjectMeta,
    spec: Specification,
    status: Specification,
    #[serde(skip)]
    kind: PhantomData<K>,
}

impl<K> Default for CustomWire<K> {
    fn default() -> Self {
        Self {
            metadata: ObjectMeta::default(),
            spec: Specification::default(),
            status: Specification::default(),
            kind: PhantomData,
        }
    }
}

impl<K: CustomObject> CustomWire<K> {
    /// The namespace of the object, and what the object describes.
    ///
    /// # Errors
    /// The namespace is one that no API server accepts, or the name is not the one that counts.
    pub fn into_object(self) -> Result<(Arc<str>, K), BadName> {
        let namespace = namespace::<K>(&self.metadata)?;
        let uid = self.metadata.uid.unwrap_or_default();
        let object = K::read(&namespace, &uid, self.spec, self.status);
        Ok((namespace, object))
    }
}

impl<K: CustomObject> Watched for CustomWire<K> {
    type Key = Arc<str>;
    type Value = (Arc<str>, K);
    const PATH: &'static str = K::KIND.collection();
    const KIND: &'static str = K::KIND.definition().plural;
    const PRESENCE: Presence = Presence::Defined(K::KIND.definition());

    fn version(&self) -> &str {
        self.metadata.resource_version.as_deref().unwrap_or_default()
    }

    fn key(&self) -> Result<Arc<str>, String> {
        namespace::<K>(&self.metadata).map_err(|error| error.to_string())
    }

    fn value(self) -> Result<(Arc<str>, K), String> {
        self.into_object().map_err(|error| error.to_string())
    }
}

fn namespace<K: CustomObject>(metadata: &ObjectMeta) -> Result<Arc<str>, BadName> {
    let ObjectMeta { namespace, name, .. } = metadata;
    of_custom(
        K::KIND,
        namespace.as_deref().unwrap_or_default(),
        name.as_deref().unwrap_or_default(),
    )
}
