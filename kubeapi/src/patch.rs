//! Changes of an object through its subresource `status`, as patches, and what the API server makes of conditions in them. Knows nothing of
//! what is changed, nor of which object has to wait: the control plane's queue of annotations is in `controller`, for it knows pods and nodes
//! as its store does.

use std::time::Duration;

use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use kube::{api::PatchParams, core::request::Request};
use serde_json::{Value, json};

use crate::{
    connection::Connection,
    trouble::{Kind, Trouble},
};

/// The answer is not read: the shortest form of it.
const SHORT: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

const MERGE_PATCH: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
/// What the API server says of a patch that it cannot apply; of an object that is wrong it says which, and a webhook gives its name.
const TEST_FAILED: &str = "the server rejected our request due to an error in our request";

/// A change of an object.
#[derive(Debug, Clone, PartialEq)]
pub enum Patch {
    /// Fields as they should be (RFC 7396).
    Merge(Value),
    /// Tests and changes, all or none (RFC 6902).
    Json(Vec<Value>),
}

/// Changes object `name` of `collection` (`/api/v1/nodes`). `patience`: how long the API server may take.
///
/// # Errors
///
/// The API server does not answer, or does not take it.
pub async fn status(connection: &Connection, patience: Duration, collection: &str, name: &str, patch: Patch) -> Result<(), Trouble> {
    let (kind, patch) = match patch {
        Patch::Merge(patch) => (MERGE_PATCH, patch),
        Patch::Json(operations) => (JSON_PATCH, operations.into()),
    };
    let request = Request::new(collection).patch_subresource("status", name, &PatchParams::default(), &kube::api::Patch::Merge(patch));
    let mut request = request.map_err(|error| {
        let trouble = connection.trouble(&kube::Error::BuildRequest(error));
        Trouble { kind: Kind::Refused, ..trouble }
    })?;
    // The API library has the other kind only with a package of its own.
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static(SHORT));
    connection.ask(patience, connection.client().request_text(request)).await.map(drop)
}

/// An operation of [`Patch::Json`]: nothing is changed unless this is there. A test for null succeeds where there is nothing, as the API
/// server's library has it.
pub fn test(path: &str, value: Value) -> Value {
    json!({"op": "test", "path": path, "value": value})
}

/// An operation of [`Patch::Json`]: this is there, whatever was.
pub fn add(path: &str, value: Value) -> Value {
    json!({"op": "add", "path": path, "value": value})
}

/// An operation of [`Patch::Json`] that only the object with this UID takes.
pub fn of_uid(uid: &str) -> Value {
    json!({"op": "replace", "path": "/metadata/uid", "value": uid})
}

/// A name as a part of a path (RFC 6901).
pub fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Whether a patch was refused because a [`test()`] in it failed.
pub fn is_test_failed(trouble: &Trouble) -> bool {
    trouble.code == Some(422) && trouble.text.contains(TEST_FAILED)
}

/// Whether a patch was refused because the object is no more, or another one has its name.
pub fn is_gone(trouble: &Trouble) -> bool {
    match trouble.code {
        Some(404) => true,
        // The UID is compared as a precondition, or as a field that cannot be changed.
        Some(409) => trouble.text.contains("UID"),
        Some(422) => trouble.text.contains("metadata.uid"),
        _ => false,
    }
}
