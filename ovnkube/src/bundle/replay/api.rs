//! The API server's lists: whole, of a namespace, one object, and those that a selector selects.

use std::{collections::BTreeMap, convert::Infallible, net::TcpListener, sync::Arc};

use http_body_util::Full;
use hyper::{
    Request, Response, StatusCode,
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};

use super::{Entries, pages};

/// What the API server had.
pub(super) struct ApiReplay(BTreeMap<String, Value>);

/// Answers from now on.
pub(super) async fn serve(listener: TcpListener, api: Arc<ApiReplay>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    while let Ok((stream, _)) = listener.accept().await {
        let api = Arc::clone(&api);
        let answer = service_fn(move |request: Request<Incoming>| {
            let (status, body) = api.answer(request.uri().path(), request.uri().query());
            let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
            *response.status_mut() = status;
            std::future::ready(Ok::<_, Infallible>(response))
        });
        tokio::spawn(async move {
            // The command may hang up at any time.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

impl ApiReplay {
    /// `None` if the archive has nothing of it.
    pub(super) fn of(entries: &Entries) -> Option<Self> {
        let found: BTreeMap<String, Value> =
            pages(entries).map(|(path, value)| (path.to_owned(), value)).collect();
        found.contains_key("/version").then_some(Self(found))
    }

    fn answer(&self, path: &str, query: Option<&str>) -> (StatusCode, Value) {
        let pages = &self.0;
        if let Some(page) = pages.get(&format!("{path}.page")) {
            return (StatusCode::OK, page.clone());
        }
        if path == "/version" {
            return (StatusCode::OK, pages[path].clone());
        }
        if let Some(items) = self.list(path) {
            let selected = selected(items, query.unwrap_or_default());
            return (StatusCode::OK, json!({"metadata": {}, "items": selected}));
        }
        let object = path.rsplit_once('/').and_then(|(collection, name)| {
            let items = self.list(collection)?;
            items.into_iter().find(|object| object["metadata"]["name"] == name)
        });
        match object {
            Some(object) => (StatusCode::OK, object.clone()),
            None => {
                let message = format!("the bundle has no {path}");
                let status = json!({"kind": "Status", "status": "Failure", "code": 404,
                    "reason": "NotFound", "message": message});
                (StatusCode::NOT_FOUND, status)
            }
        }
    }

    /// The objects of a collection, of a namespace or of all.
    fn list(&self, path: &str) -> Option<Vec<&Value>> {
        let of = |path: &str| Some(self.0.get(path)?["items"].as_array()?.iter());
        if let Some(items) = of(path) {
            return Some(items.collect());
        }
        // `…/namespaces/NAMESPACE/RESOURCE`
        let (group, rest) = path.split_once("/namespaces/")?;
        let (namespace, resource) = rest.split_once('/')?;
        let items = of(&format!("{group}/{resource}"))?;
        Some(items.filter(|object| object["metadata"]["namespace"] == namespace).collect())
    }
}

/// The objects that the selectors of the query select.
fn selected<'a>(items: Vec<&'a Value>, query: &str) -> Vec<&'a Value> {
    let parameters: Vec<(String, String)> = query
        .split('&')
        .filter_map(|parameter| parameter.split_once('='))
        .map(|(name, value)| (name.to_owned(), decoded(value)))
        .collect();
    let selector = |name: &str| -> Vec<(String, String)> {
        let found = parameters.iter().filter(|(parameter, _)| parameter == name);
        let pairs = found.flat_map(|(_, value)| value.split(','));
        pairs
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.trim_start_matches('=').to_owned()))
            .collect()
    };
    let (fields, labels) = (selector("fieldSelector"), selector("labelSelector"));
    let fits = |object: &&Value| {
        let field = |path: &str| path.split('.').fold(*object, |value, name| &value[name]);
        fields.iter().all(|(path, value)| field(path) == value.as_str())
            && labels.iter().all(|(key, value)| object["metadata"]["labels"][key] == value.as_str())
    };
    items.into_iter().filter(fits).collect()
}

/// A value of a query without its escapes.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::new();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let escaped = bytes.get(at + 1..at + 3).filter(|_| *byte == b'%');
        let escaped = escaped
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        decoded.push(escaped.unwrap_or(if *byte == b'+' { b' ' } else { *byte }));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_objects_and_selectors_are_answered_as_the_api_server_does() {
        let pod = |namespace: &str, name: &str, node: &str| {
            json!({"metadata": {"namespace": namespace, "name": name, "labels": {"app": "x"}},
                "spec": {"nodeName": node}})
        };
        let pods = json!({"items": [pod("shop", "a", "n1"), pod("shop", "b", "n2"),
            pod("bank", "a", "n1")]});
        let group = json!({"versions": [{"version": "v1alpha1"}]});
        let entries = [
            ("api/version.json", json!({"gitVersion": "v1.34.0"})),
            ("api/api/v1/pods.json", pods),
            ("api/apis/policy.networking.k8s.io.page.json", group),
        ];
        let entries =
            entries.map(|(name, value)| (name.to_owned(), value.to_string().into_bytes()));
        let api = ApiReplay::of(&entries.into()).unwrap();
        let count = |path: &str, query: Option<&str>| {
            let (_, body) = api.answer(path, query);
            body["items"].as_array().map(Vec::len)
        };
        assert_eq!(count("/api/v1/pods", None), Some(3));
        assert_eq!(count("/api/v1/namespaces/shop/pods", None), Some(2));
        assert_eq!(
            count("/api/v1/pods", Some("limit=500&fieldSelector=spec.nodeName%3Dn1")),
            Some(2)
        );
        assert_eq!(count("/api/v1/pods", Some("labelSelector=app%3Dy")), Some(0));
        assert_eq!(api.answer("/api/v1/namespaces/bank/pods/a", None).0, StatusCode::OK);
        assert_eq!(api.answer("/api/v1/namespaces/bank/pods/b", None).0, StatusCode::NOT_FOUND);
        assert_eq!(api.answer("/version", None).1["gitVersion"], "v1.34.0");
        let group = api.answer("/apis/policy.networking.k8s.io", None).1;
        assert_eq!(group["versions"][0]["version"], "v1alpha1");
        assert!(ApiReplay::of(&Entries::new()).is_none());
    }
}
