//! Parses the text of one file into its pods. Pure.

use std::collections::BTreeMap;

use contract::names::{BadName, PodKey};
use serde::Deserialize;

use crate::pods::PodFacts;

/// The namespace of a manifest without one.
const DEFAULT_NAMESPACE: &str = "default";

/// Why a file holds no usable pods.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("not the YAML of a Pod")]
    Yaml(#[from] serde_yaml_ng::Error),
    #[error("kind {0:?} is neither Pod nor List")]
    Kind(String),
    #[error(transparent)]
    Name(#[from] BadName),
}

/// Every pod in `text`: JSON or YAML, one or several documents, Pods or Lists of them.
///
/// # Errors
///
/// A document is not valid, is of another kind, or has a name that Kubernetes does not allow. No
/// pod of the text is returned then.
pub fn parse(text: &str) -> Result<Vec<(PodKey, PodFacts)>, ManifestError> {
    let mut pods = Vec::new();
    // JSON first, because not all JSON is YAML: surrogate pairs (`\ud83d\ude00`) and some control
    // characters are not.
    if let Ok(object) = serde_json::from_str::<Object>(text) {
        object.pods(&mut pods)?;
        return Ok(pods);
    }
    for document in serde_yaml_ng::Deserializer::from_str(text) {
        if let Some(object) = Option::<Object>::deserialize(document)? {
            object.pods(&mut pods)?;
        }
    }
    Ok(pods)
}

#[derive(Deserialize)]
struct Object {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    metadata: ManifestMetadata,
    #[serde(default)]
    items: Vec<Object>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ManifestMetadata {
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
    annotations: Option<BTreeMap<String, String>>,
}

impl Object {
    fn pods(self, pods: &mut Vec<(PodKey, PodFacts)>) -> Result<(), ManifestError> {
        let Self { kind, metadata, items } = self;
        match kind.as_str() {
            "Pod" => {
                let ManifestMetadata { namespace, name, uid, annotations } = metadata;
                let namespace = namespace.filter(|text| !text.is_empty());
                let key = PodKey::new(
                    namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE),
                    &name.unwrap_or_default(),
                )?;
                pods.push((
                    key,
                    PodFacts {
                        uid: uid.unwrap_or_default(),
                        annotations: annotations.unwrap_or_default(),
                    },
                ));
                Ok(())
            }
            // The parser's depth limit bounds the recursion.
            "List" | "PodList" => items.into_iter().try_for_each(|item| item.pods(pods)),
            _ => Err(ManifestError::Kind(kind.chars().take(64).collect())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        parse(text).unwrap().iter().map(|(key, _)| key.to_string()).collect()
    }

    #[test]
    fn a_pod_is_read_as_kubectl_prints_it() {
        let text = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: cart-0\n  namespace: shop\n  uid: 4-2\n\
                    \x20 annotations:\n    ovn: '{}'\n\
                    spec:\n  containers: [{name: c, image: i}]\n";
        let facts = PodFacts {
            uid: "4-2".to_owned(),
            annotations: BTreeMap::from([("ovn".to_owned(), "{}".to_owned())]),
        };
        assert_eq!(parse(text).unwrap(), [(PodKey::new("shop", "cart-0").unwrap(), facts)]);
    }

    #[test]
    fn json_several_documents_and_lists_are_read() {
        assert_eq!(
            names(r#"{"kind":"Pod","metadata":{"name":"a","annotations":null}}"#),
            ["default/a"]
        );
        let list = "kind: List\nitems:\n- {kind: Pod, metadata: {name: b}}\n\
                    - {kind: Pod, metadata: {name: c, namespace: n}}\n";
        assert_eq!(
            names(&format!("---\nkind: Pod\nmetadata: {{name: a}}\n---\n{list}---\n")),
            ["default/a", "default/b", "n/c"]
        );
        assert_eq!(names(""), [""; 0]);
    }

    /// Such a manifest was refused as YAML, and the pod never had a network.
    #[test]
    fn json_that_is_no_yaml_is_read() {
        for (escaped, annotation) in [(r"\ud83d\ude00", "\u{1f600}"), ("\u{7f}", "\u{7f}")] {
            let text = format!(
                r#"{{"kind":"Pod","metadata":{{"name":"a","annotations":{{"k":"{escaped}"}}}}}}"#
            );
            assert_eq!(parse(&text).unwrap()[0].1.annotations["k"], annotation);
        }
    }

    #[test]
    fn what_is_no_pod_is_refused_with_the_reason() {
        for (text, reason) in [
            (
                "kind: Deployment\nmetadata: {name: a}",
                "kind \"Deployment\" is neither Pod nor List",
            ),
            ("kind: Pod", "pod name \"\" is empty"),
            (
                "kind: Pod\nmetadata: {name: a_b}",
                "pod name \"a_b\" has characters other than lower-case letters, digits, '-' and '.'",
            ),
            ("kind: Pod\nmetadata: {name: a, annotations: {ovn: {}}}", "not the YAML of a Pod"),
            ("{", "not the YAML of a Pod"),
            ("- kind: Pod", "not the YAML of a Pod"),
        ] {
            assert_eq!(parse(text).expect_err(text).to_string(), reason);
        }
    }
}
