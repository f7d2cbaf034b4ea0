//! Questions to the API server. Reads only.

use kube::{
    api::{GetParams, ListParams},
    core::request::Request,
};
use kubeapi::{Connection, Trouble};
use serde_json::Value;

use crate::ovn_query::PATIENCE;

/// Objects of one request.
const PAGE: u32 = 500;
/// The most requests for one list: objects beyond them are not looked at.
const MOST_PAGES: usize = 20;

/// A list that may be cut.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    pub(crate) items: Vec<Value>,
    pub(crate) is_whole: bool,
}

/// The object; `None` if there is none, or no such kind.
pub(crate) async fn get(
    api: &Connection,
    collection: &str,
    name: &str,
) -> Result<Option<Value>, Trouble> {
    match ask(api, Request::new(collection).get(name, &GetParams::default())).await {
        Err(trouble) if trouble.code == Some(404) => Ok(None),
        answer => answer.map(Some),
    }
}

/// The objects that the field selector selects, all with an empty one. None if there is no such
/// kind.
pub(crate) async fn list(
    api: &Connection,
    collection: &str,
    fields: &str,
) -> Result<Listed, Trouble> {
    let mut listed = Listed { items: Vec::new(), is_whole: true };
    let mut which = ListParams { limit: Some(PAGE), ..ListParams::default() };
    if !fields.is_empty() {
        which = which.fields(fields);
    }
    for _ in 0..MOST_PAGES {
        let mut page = match ask(api, Request::new(collection).list(&which)).await {
            Err(trouble) if trouble.code == Some(404) => return Ok(listed),
            answer => answer?,
        };
        if let Value::Array(items) = page["items"].take() {
            listed.items.extend(items);
        }
        match page["metadata"]["continue"].as_str() {
            Some(token) if !token.is_empty() => which = which.continue_token(token),
            _ => return Ok(listed),
        }
    }
    listed.is_whole = false;
    Ok(listed)
}

/// A path that is no collection, such as `/version`.
pub(crate) async fn page(api: &Connection, path: &str) -> Result<Value, Trouble> {
    let request = hyper::Request::get(path).body(Vec::new());
    ask(api, request.map_err(kube::core::request::Error::BuildRequest)).await
}

async fn ask(
    api: &Connection,
    request: Result<hyper::Request<Vec<u8>>, kube::core::request::Error>,
) -> Result<Value, Trouble> {
    match request {
        Ok(request) => api.ask(PATIENCE, api.client().request::<Value>(request)).await,
        Err(error) => Err(api.trouble(&kube::Error::BuildRequest(error))),
    }
}

/// The name of an object, with its namespace if it has one.
pub(crate) fn name(object: &Value) -> String {
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    match metadata["namespace"].as_str() {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}
