//! One attempt to write an object's annotations, and what it means.

use std::{collections::BTreeMap, time::Duration};

use kubeapi::{
    Connection, Kind, Trouble,
    object::Object,
    patch::{self, Patch},
};
use serde_json::{Value, json};

use super::{Annotations, Only};
use crate::store::Texts;

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Written,
    /// The object is no more, or another one has its name.
    Gone,
    /// It is not the version that was decided on: what is known of the new one decides anew.
    Outdated,
    /// The API server wants less of everybody.
    Overloaded(Trouble),
    /// Nobody answered.
    Silent(Trouble),
    /// The API server answered that it does not take this, for whatever reason: what an admission webhook says, or says not, of one object
    /// comes as 403 or 500.
    Refused(Trouble),
}

/// `patience`: how long the API server may take.
pub(super) async fn patch(api: &Connection, patience: Duration, annotations: &Annotations) -> Outcome {
    let Annotations { object, uid, values, only } = annotations;
    let (collection, name) = match object {
        Object::Node(name) => ("/api/v1/nodes".to_owned(), &**name),
        Object::Pod(pod) => (format!("/api/v1/namespaces/{}/pods", pod.namespace()), pod.name()),
    };
    let patch = match only {
        Only::Over(Texts::NoneAtAll) => over(uid, values, None),
        Only::Over(Texts::These(texts)) => over(uid, values, Some(texts)),
        Only::Version(version) => Patch::Merge(json!({"metadata": {"uid": **uid, "resourceVersion": **version, "annotations": values}})),
        Only::Always | Only::Over(Texts::Right) => Patch::Merge(json!({"metadata": {"uid": **uid, "annotations": values}})),
    };
    match patch::status(api, patience, &collection, name, patch).await {
        Ok(()) => Outcome::Written,
        Err(trouble) => Outcome::of(trouble, only),
    }
}

/// Tests and changes.
fn over(uid: &str, values: &BTreeMap<&'static str, String>, texts: Option<&BTreeMap<&'static str, String>>) -> Patch {
    const ANNOTATIONS: &str = "/metadata/annotations";
    let mut operations = vec![patch::of_uid(uid)];
    match texts {
        None => {
            operations.push(patch::test(ANNOTATIONS, Value::Null));
            operations.push(patch::add(ANNOTATIONS, json!(values)));
        }
        Some(texts) => {
            for (name, value) in values {
                let path = format!("{ANNOTATIONS}/{}", patch::escaped(name));
                operations.push(patch::test(&path, json!(texts.get(name))));
                operations.push(patch::add(&path, json!(value)));
            }
        }
    }
    Patch::Json(operations)
}

impl Outcome {
    fn of(trouble: Trouble, only: &Only) -> Self {
        // The UID is a condition, and the only one; a conflict between writers is settled inside of the API server.
        if patch::is_gone(&trouble) {
            return Self::Gone;
        }
        match trouble.code {
            Some(409) if matches!(only, Only::Version(_)) => Self::Outdated,
            Some(422) if matches!(only, Only::Over(_)) && patch::is_test_failed(&trouble) => Self::Outdated,
            Some(429) => Self::Overloaded(trouble),
            Some(_) => Self::Refused(trouble),
            None if trouble.kind == Kind::Refused => Self::Refused(trouble),
            None => Self::Silent(trouble),
        }
    }

    /// For metrics.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Written => "written",
            Self::Gone => "gone",
            Self::Outdated => "outdated",
            Self::Overloaded(_) => "overloaded",
            Self::Silent(_) => "unavailable",
            Self::Refused(_) => "refused",
        }
    }
}
