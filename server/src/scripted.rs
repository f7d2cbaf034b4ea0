//! A scripted API server for tests, and assertions about the requests that this server sends.

use kubeapi::{ApiServer, Cluster, Connection};
use serde_json::{Value, json};
pub(crate) use testkit::scripted_api::{Asked, ScriptedApi as Scripted, WatchStream};

/// A connection without credentials.
pub(crate) fn connection(api: &Scripted) -> Connection {
    let cluster = Cluster::Url { url: api.url.clone(), authority: None };
    Connection::open(ApiServer { cluster, credential: None })
}

/// Assertions about requests for the pods of node1.
pub(crate) trait AboutPods {
    /// Asserts a list, with this `resourceVersion`.
    fn assert_list(&self, version: Option<&str>);

    fn assert_watch(&self, version: &str);
}

impl AboutPods for Asked {
    #[track_caller]
    fn assert_list(&self, version: Option<&str>) {
        assert!(!self.is_watch() && self.path.starts_with("/api/v1/pods?"), "{}", self.path);
        assert_eq!(
            (self.parameter("resourceVersion"), self.parameter("fieldSelector")),
            (version, Some("spec.nodeName%3Dnode1"))
        );
    }

    #[track_caller]
    fn assert_watch(&self, version: &str) {
        assert!(self.is_watch() && self.path.starts_with("/api/v1/pods?"), "{}", self.path);
        assert_eq!(
            (self.parameter("resourceVersion"), self.parameter("fieldSelector")),
            (Some(version), Some("spec.nodeName%3Dnode1"))
        );
        assert_eq!(self.parameter("allowWatchBookmarks"), Some("true"));
    }
}

/// A pod of namespace `shop`.
pub(crate) fn pod(name: &str, uid: &str, version: &str) -> Value {
    let annotations =
        json!({"ovn": "{}", "kubectl.kubernetes.io/last-applied-configuration": "long"});
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": name, "namespace": "shop", "uid": uid, "resourceVersion": version, "annotations": annotations}})
}
