//! One attempt to write an object's annotations, and what it means.

use std::time::Duration;

use kube::{
    api::{Patch, PatchParams},
    core::request::Request,
};
use serde_json::json;

use super::Annotations;
use crate::{
    api_server::{ApiServer, Kind, Trouble},
    object::Object,
};

/// How long the API server may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// The answer is not read: the shortest form of it.
const SHORT: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Written,
    /// The object is no more, or another one has its name.
    Gone,
    /// The API server wants less of everybody.
    Overloaded(Trouble),
    /// Nothing can be said, or nobody is there.
    Unavailable(Trouble),
    /// This one was refused.
    Refused(Trouble),
}

pub(super) async fn patch(api: &ApiServer, annotations: &Annotations) -> Outcome {
    let request = match request(annotations) {
        Ok(request) => request,
        Err(error) => return Outcome::Refused(api.trouble(&kube::Error::BuildRequest(error))),
    };
    match api.ask(PATIENCE, api.client().request_text(request)).await {
        Ok(_) => Outcome::Written,
        Err(trouble) => Outcome::of(trouble),
    }
}

fn request(annotations: &Annotations) -> Result<http::Request<Vec<u8>>, kube::core::request::Error> {
    let Annotations { object, uid, values } = annotations;
    let (path, name) = match object {
        Object::Node(name) => ("/api/v1/nodes".to_owned(), &**name),
        Object::Pod(pod) => (format!("/api/v1/namespaces/{}/pods", pod.namespace()), pod.name()),
    };
    let patch = Patch::Merge(json!({"metadata": {"uid": **uid, "annotations": values}}));
    let mut request = Request::new(path).patch_subresource("status", name, &PatchParams::default(), &patch)?;
    request.headers_mut().insert(http::header::ACCEPT, http::HeaderValue::from_static(SHORT));
    Ok(request)
}

impl Outcome {
    fn of(trouble: Trouble) -> Self {
        match trouble.code {
            Some(404) => Self::Gone,
            // The UID is a condition, and the only one; a conflict between writers is settled inside of the API server.
            Some(409) if trouble.text.contains("UID") => Self::Gone,
            Some(429) => Self::Overloaded(trouble),
            // What this process may not do for one object, it may not do for any.
            Some(401 | 403) => Self::Unavailable(trouble),
            _ if trouble.kind == Kind::Refused => Self::Refused(trouble),
            _ if trouble.retry_after.is_some() => Self::Overloaded(trouble),
            _ => Self::Unavailable(trouble),
        }
    }

    /// For metrics.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Written => "written",
            Self::Gone => "gone",
            Self::Overloaded(_) => "overloaded",
            Self::Unavailable(_) => "unavailable",
            Self::Refused(_) => "refused",
        }
    }
}
