//! Patches of an object's subresource, mostly `status`, and the meaning of the API server's answers
//! to preconditions in them. It knows neither what is changed nor which object has to wait: the
//! queue of annotations is in `controller`, which knows pods and nodes as its store does.

use std::time::Duration;

use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use kube::{api::PatchParams, core::request::Request};
use serde_json::{Value, json};

use crate::{
    connection::Connection,
    trouble::{Kind, Trouble},
};

/// Asks for the shortest form of the answer, which is not used.
const SHORT: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

const MERGE_PATCH: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const APPLY_PATCH: &str = "application/apply-patch+yaml";
/// The API server's message if a JSON patch cannot be applied. If the object is invalid, the
/// message names the field instead; if a webhook refuses, it names the webhook.
const TEST_FAILED: &str = "the server rejected our request due to an error in our request";

/// A change of an object.
#[derive(Debug, Clone, PartialEq)]
pub enum Patch {
    /// The fields as they should be (RFC 7396).
    Merge(Value),
    /// Tests and changes, all or nothing (RFC 6902).
    Json(Vec<Value>),
    /// All fields that this manager owns, as they should be. Those that another manager has become
    /// this one's (server-side apply, with force).
    Apply { manager: String, fields: Value },
}

/// Patches the status of object `name` in `collection` (`/api/v1/nodes`). `patience`: how long the
/// API server may take.
///
/// # Errors
///
/// The API server does not answer within `patience`, or refuses the patch.
pub async fn status(
    connection: &Connection,
    patience: Duration,
    collection: &str,
    name: &str,
    patch: Patch,
) -> Result<(), Trouble> {
    subresource(connection, patience, collection, name, "status", patch).await
}

/// Patches a subresource of object `name` in `collection`, such as the `approval` of a certificate
/// signing request.
///
/// # Errors
///
/// As for [`status`].
pub async fn subresource(
    connection: &Connection,
    patience: Duration,
    collection: &str,
    name: &str,
    subresource: &str,
    patch: Patch,
) -> Result<(), Trouble> {
    let (kind, parameters, patch) = match patch {
        Patch::Merge(patch) => {
            (MERGE_PATCH, PatchParams::default(), kube::api::Patch::Merge(patch))
        }
        Patch::Json(operations) => {
            (JSON_PATCH, PatchParams::default(), kube::api::Patch::Merge(operations.into()))
        }
        Patch::Apply { manager, fields } => {
            (APPLY_PATCH, PatchParams::apply(&manager).force(), kube::api::Patch::Apply(fields))
        }
    };
    let request =
        Request::new(collection).patch_subresource(subresource, name, &parameters, &patch);
    let mut request = request.map_err(|error| {
        let trouble = connection.trouble(&kube::Error::BuildRequest(error));
        Trouble { kind: Kind::Refused, ..trouble }
    })?;
    // kube needs the crate `json-patch` for JSON patches. The body is JSON in all cases, so only
    // the content type is replaced.
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static(SHORT));
    connection.ask(patience, connection.client().request_text(request)).await.map(drop)
}

/// An operation of [`Patch::Json`]: the patch applies only if `path` has this value. A test for
/// null also succeeds if there is no value, as in the API server's library.
pub fn test(path: &str, value: Value) -> Value {
    json!({"op": "test", "path": path, "value": value})
}

/// An operation of [`Patch::Json`]: sets `path` to this value, whatever it was.
pub fn add(path: &str, value: Value) -> Value {
    json!({"op": "add", "path": path, "value": value})
}

/// An operation of [`Patch::Json`]: the patch applies only to the object with this UID.
pub fn of_uid(uid: &str) -> Value {
    json!({"op": "replace", "path": "/metadata/uid", "value": uid})
}

/// A name as a part of a JSON pointer (RFC 6901).
pub fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Whether a patch was refused because a [`test()`] in it failed.
pub fn is_test_failed(trouble: &Trouble) -> bool {
    trouble.code == Some(422) && trouble.text.contains(TEST_FAILED)
}

/// Whether a patch was refused because the object does not exist any more, or because another
/// object has its name now.
pub fn is_gone(trouble: &Trouble) -> bool {
    match trouble.code {
        Some(404) => true,
        // The API server compares the UID as a precondition (409), or as a field that cannot be
        // changed (422).
        Some(409) => trouble.text.contains("UID"),
        Some(422) => trouble.text.contains("metadata.uid"),
        _ => false,
    }
}
