//! A pod as a file in the server's directory of manifests.

use std::{collections::BTreeMap, fs, path::Path};

use contract::annotation::POD_NETWORKS;
use serde_json::json;

/// A network annotation with one address.
pub const ANNOTATION: &str = r#"{"default":{"ip_addresses":["10.244.1.5/24"],"mac_address":"0a:58:0a:f4:01:05","gateway_ips":["10.244.1.1"],"routes":[{"dest":"10.244.0.0/16","nextHop":"10.244.1.1"}],"ip_address":"10.244.1.5/24","gateway_ip":"10.244.1.1","role":"primary"}}"#;

/// A pod's manifest.
#[derive(Debug, Clone)]
pub struct Pod {
    namespace: String,
    name: String,
    uid: String,
    annotations: BTreeMap<String, String>,
}

impl Pod {
    /// The pod `shop/cart-0` of these tests' calls, without an annotation.
    pub fn cart() -> Self {
        Self::named("cart-0")
    }

    /// A pod of namespace `shop`, without an annotation.
    pub fn named(name: &str) -> Self {
        let annotations = BTreeMap::new();
        Self {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            uid: "4d3b-1".to_owned(),
            annotations,
        }
    }

    pub fn uid(mut self, uid: &str) -> Self {
        uid.clone_into(&mut self.uid);
        self
    }

    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Sets the text of the network annotation.
    pub fn network(self, value: &str) -> Self {
        self.annotation(POD_NETWORKS, value)
    }

    pub(crate) fn write_to(&self, directory: &Path) {
        let Self { namespace, name, uid, annotations } = self;
        let metadata =
            json!({"namespace": namespace, "name": name, "uid": uid, "annotations": annotations});
        let text = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}).to_string();
        let half_written = directory.join(format!(".{}", self.file_name()));
        fs::write(&half_written, text).expect("a file in our directory can be written");
        fs::rename(half_written, directory.join(self.file_name()))
            .expect("a file in our directory can be renamed");
    }

    pub(crate) fn delete_from(&self, directory: &Path) {
        fs::remove_file(directory.join(self.file_name())).expect("the pod's manifest is there");
    }

    /// The name ends in `.yaml`, since JSON is YAML, too.
    fn file_name(&self) -> String {
        format!("{}_{}.yaml", self.namespace, self.name)
    }
}
