//! One attempt to write an object's annotations, and what it means.

use std::{collections::BTreeMap, time::Duration};

use kube::{
    api::{Patch, PatchParams},
    core::request::Request,
};
use kubeapi::{Connection, Kind, Trouble, object::Object};
use serde_json::{Value, json};

use super::{Annotations, Only};
use crate::store::Texts;

/// The answer is not read: the shortest form of it.
const SHORT: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

const MERGE_PATCH: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
/// What the API server says of a patch that it cannot apply; of an object that is wrong it says which, and a webhook gives its name.
const TEST_FAILED: &str = "the server rejected our request due to an error in our request";

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
    let request = match request(annotations) {
        Ok(request) => request,
        Err(error) => {
            let trouble = api.trouble(&kube::Error::BuildRequest(error));
            return Outcome::Refused(Trouble { kind: Kind::Refused, ..trouble });
        }
    };
    match api.ask(patience, api.client().request_text(request)).await {
        Ok(_) => Outcome::Written,
        Err(trouble) => Outcome::of(trouble, &annotations.only),
    }
}

fn request(annotations: &Annotations) -> Result<http::Request<Vec<u8>>, kube::core::request::Error> {
    let Annotations { object, uid, values, only } = annotations;
    let (path, name) = match object {
        Object::Node(name) => ("/api/v1/nodes".to_owned(), &**name),
        Object::Pod(pod) => (format!("/api/v1/namespaces/{}/pods", pod.namespace()), pod.name()),
    };
    let (kind, patch) = match only {
        Only::Over(Texts::NoneAtAll) => (JSON_PATCH, over(uid, values, None)),
        Only::Over(Texts::These(texts)) => (JSON_PATCH, over(uid, values, Some(texts))),
        Only::Version(version) => (MERGE_PATCH, json!({"metadata": {"uid": **uid, "resourceVersion": **version, "annotations": values}})),
        Only::Always | Only::Over(Texts::Right) => (MERGE_PATCH, json!({"metadata": {"uid": **uid, "annotations": values}})),
    };
    let mut request = Request::new(path).patch_subresource("status", name, &PatchParams::default(), &Patch::Merge(patch))?;
    // The API library has the other kind only with a package of its own.
    request.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
    request.headers_mut().insert(http::header::ACCEPT, http::HeaderValue::from_static(SHORT));
    Ok(request)
}

/// Tests and changes (RFC 6902). A test for null succeeds where there is nothing, as the API server's library has it.
fn over(uid: &str, values: &BTreeMap<&'static str, String>, texts: Option<&BTreeMap<&'static str, String>>) -> Value {
    const ANNOTATIONS: &str = "/metadata/annotations";
    let mut patch = vec![json!({"op": "replace", "path": "/metadata/uid", "value": uid})];
    match texts {
        None => {
            patch.push(json!({"op": "test", "path": ANNOTATIONS, "value": null}));
            patch.push(json!({"op": "add", "path": ANNOTATIONS, "value": values}));
        }
        Some(texts) => {
            for (name, value) in values {
                let path = format!("{ANNOTATIONS}/{}", name.replace('~', "~0").replace('/', "~1"));
                patch.push(json!({"op": "test", "path": path, "value": texts.get(name)}));
                patch.push(json!({"op": "add", "path": path, "value": value}));
            }
        }
    }
    patch.into()
}

impl Outcome {
    fn of(trouble: Trouble, only: &Only) -> Self {
        match trouble.code {
            Some(404) => Self::Gone,
            // The UID is a condition, and the only one; a conflict between writers is settled inside of the API server. It is compared as a
            // precondition, or as a field that cannot be changed.
            Some(409) if trouble.text.contains("UID") => Self::Gone,
            Some(422) if trouble.text.contains("metadata.uid") => Self::Gone,
            Some(409) if matches!(only, Only::Version(_)) => Self::Outdated,
            Some(422) if matches!(only, Only::Over(_)) && trouble.text.contains(TEST_FAILED) => Self::Outdated,
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
