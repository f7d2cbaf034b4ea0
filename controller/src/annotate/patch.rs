//! One request that writes an object's annotations or status, and the meaning of its answer.

use std::{collections::BTreeMap, time::Duration};

use kubeapi::{
    Connection, Kind, Trouble,
    object::Object,
    patch::{self, Patch},
};
use serde_json::{Value, json};

use crate::{
    annotate::{Annotations, Change, Only, Status},
    kinds::pod::object::Texts,
};

/// The outcome of one patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Written,
    /// The object is gone, or another object has its name.
    Gone,
    /// The object is no longer in the state that the decision was based on; the watch delivers the
    /// new state.
    Outdated,
    /// 429: the API server asks for fewer requests, whatever they are about.
    Overloaded(Trouble),
    /// No answer.
    Silent(Trouble),
    /// This program may not write a status of this kind, or objects of this kind have none. It is
    /// not tried again.
    Unwritable(Trouble),
    /// The API server answered that it does not accept this patch, for whatever reason. 5xx is
    /// here, too: a webhook that denies one object, or does not answer for it, shows as 403 or 500.
    Refused(Trouble),
}

/// Sends one patch. `patience`: the deadline of the request.
pub(super) async fn patch(api: &Connection, patience: Duration, change: &Change) -> Outcome {
    match change {
        Change::Annotations(annotations) => annotate(api, patience, annotations).await,
        Change::Status(status) => apply(api, patience, status).await,
    }
}

/// The collection that the object is in, and its name.
fn place<'a>(api: &Connection, object: &'a Object) -> (String, &'a str) {
    match object {
        Object::Node(name) => ("/api/v1/nodes".to_owned(), &**name),
        Object::Pod(pod) => (format!("/api/v1/namespaces/{}/pods", pod.namespace()), pod.name()),
        Object::Service(service) => {
            (format!("/api/v1/namespaces/{}/services", service.namespace()), service.name())
        }
        Object::NetworkPolicy(policy) => {
            let namespace = policy.namespace();
            let path = format!("/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies");
            (path, policy.name())
        }
        Object::ClusterPolicy(policy) => {
            let definition = policy.kind.definition();
            (definition.path(api.version_of(definition)), policy.name())
        }
        Object::Custom(kind, namespace) => {
            let definition = kind.definition();
            (definition.path_in(api.version_of(definition), namespace), object.name())
        }
        Object::Namespace(name) => ("/api/v1/namespaces".to_owned(), &**name),
    }
}

async fn apply(api: &Connection, patience: Duration, status: &Status) -> Outcome {
    let Status { object, uid, manager, fields } = status;
    let (collection, name) = place(api, object);
    let fields = json!({
        "apiVersion": object.api_version(|definition| api.version_of(definition)),
        "kind": object.kind(),
        "metadata": {"name": name, "uid": **uid},
        "status": fields,
    });
    let patch = Patch::Apply { manager: manager.clone(), fields };
    match patch::status(api, patience, &collection, name, patch).await {
        Ok(()) => Outcome::Written,
        // A kind without this subresource, or no kind at all, is 404 as well.
        Err(trouble) if trouble.code == Some(404) && !is_named(&trouble, name) => {
            Outcome::Unwritable(trouble)
        }
        Err(trouble) if trouble.code == Some(403) => Outcome::Unwritable(trouble),
        Err(trouble) => Outcome::of(trouble, &Only::Always),
    }
}

/// Whether the API server says that it has no object of this name.
fn is_named(trouble: &Trouble, name: &str) -> bool {
    trouble.text.contains(&format!("\"{name}\" not found"))
}

async fn annotate(api: &Connection, patience: Duration, annotations: &Annotations) -> Outcome {
    let Annotations { object, uid, values, only } = annotations;
    let (collection, name) = place(api, object);
    let patch = match only {
        Only::Over(Texts::NoneAtAll) => over(uid, values, None),
        Only::Over(Texts::These(texts)) => over(uid, values, Some(texts)),
        Only::Version(version) => Patch::Merge(
            json!({"metadata": {"uid": **uid, "resourceVersion": **version, "annotations": values}}),
        ),
        // `Right`, and so any `Derived`: the pod's annotations said the same, so there is nothing
        // to protect.
        Only::Always | Only::Over(Texts::Right | Texts::Derived) => {
            Patch::Merge(json!({"metadata": {"uid": **uid, "annotations": values}}))
        }
    };
    match patch::status(api, patience, &collection, name, patch).await {
        Ok(()) => Outcome::Written,
        Err(trouble) => Outcome::of(trouble, only),
    }
}

/// A JSON patch (RFC 6902) that changes annotations only if they still are as they were seen; all
/// or nothing.
fn over(
    uid: &str,
    values: &BTreeMap<&'static str, String>,
    texts: Option<&BTreeMap<&'static str, String>>,
) -> Patch {
    const ANNOTATIONS: &str = "/metadata/annotations";
    let mut operations = vec![patch::of_uid(uid)];
    match texts {
        // RFC 6902 §4.1: `add` needs the parent to exist, so a pod without annotations gets the
        // whole map. The test keeps that from replacing annotations that came meanwhile.
        None => {
            operations.push(patch::test(ANNOTATIONS, Value::Null));
            operations.push(patch::add(ANNOTATIONS, json!(values)));
        }
        Some(texts) => {
            for (name, value) in values {
                let path = format!("{ANNOTATIONS}/{}", patch::escaped(name));
                // An annotation that the pod does not have is tested as null.
                operations.push(patch::test(&path, json!(texts.get(name))));
                operations.push(patch::add(&path, json!(value)));
            }
        }
    }
    Patch::Json(operations)
}

impl Outcome {
    fn of(trouble: Trouble, only: &Only) -> Self {
        // First: a conflict about the UID means another object, whatever the precondition was.
        if patch::is_gone(&trouble) {
            return Self::Gone;
        }
        match trouble.code {
            // Other patches do not conflict with other writers: the API server applies them to the
            // newest version.
            Some(409) if matches!(only, Only::Version(_)) => Self::Outdated,
            Some(422) if matches!(only, Only::Over(_)) && patch::is_test_failed(&trouble) => {
                Self::Outdated
            }
            Some(429) => Self::Overloaded(trouble),
            Some(_) => Self::Refused(trouble),
            // Nothing was sent: this request cannot be built. That says nothing about the API
            // server.
            None if trouble.kind == Kind::Refused => Self::Refused(trouble),
            None => Self::Silent(trouble),
        }
    }

    /// Label `result` of the metric.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Written => "written",
            Self::Gone => "gone",
            Self::Outdated => "outdated",
            Self::Unwritable(_) => "unwritable",
            Self::Overloaded(_) => "overloaded",
            Self::Silent(_) => "unavailable",
            Self::Refused(_) => "refused",
        }
    }
}
