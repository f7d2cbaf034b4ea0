//! The pod that a runtime names: the value of `CNI_ARGS`. Knows nothing of the other `CNI_*`
//! variables.

use crate::names::{BadName, PodKey};

/// What Kubernetes' container runtimes say about a pod in `CNI_ARGS`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodArgs {
    /// `K8S_POD_NAMESPACE` and `K8S_POD_NAME`.
    pub pod: PodKey,
    /// `K8S_POD_UID`; older runtimes do not send it.
    pub uid: Option<String>,
    /// `K8S_POD_INFRA_CONTAINER_ID`: the sandbox, once more.
    pub infra_container_id: Option<String>,
}

/// Why `CNI_ARGS` does not name a pod.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PodArgsError {
    #[error("CNI_ARGS has {0:?} where KEY=VALUE is expected")]
    NotAPair(String),
    #[error("CNI_ARGS lacks {0}")]
    Missing(&'static str),
    #[error("CNI_ARGS has a {key} of {length} bytes")]
    TooLong { key: &'static str, length: usize },
    #[error("CNI_ARGS names no pod: {0}")]
    Pod(#[from] BadName),
}

/// Bytes of the longest id that is accepted. Real ones have 36 (UID) or 64 (container id); this
/// bounds what a caller can put into the database and the logs.
const LONGEST_ID: usize = 255;

impl PodArgs {
    /// Reads `KEY=VALUE;KEY=VALUE`. A value may contain `=`. The last one of several equal keys
    /// counts. Other keys are ignored (`IgnoreUnknown=1`, and whatever a runtime adds).
    ///
    /// # Errors
    /// A part has no `=`; the namespace or name is missing, or Kubernetes would not accept it; an
    /// id has more than 255 bytes.
    pub fn parse(text: &str) -> Result<Self, PodArgsError> {
        let [mut namespace, mut name, mut uid, mut infra_container_id] = [None; 4];
        for pair in text.split(';').filter(|pair| !pair.trim().is_empty()) {
            let (key, value) = pair
                .split_once('=')
                .ok_or_else(|| PodArgsError::NotAPair(pair.chars().take(64).collect()))?;
            match key.trim() {
                "K8S_POD_NAMESPACE" => namespace = Some(value),
                "K8S_POD_NAME" => name = Some(value),
                "K8S_POD_UID" => uid = Some(value),
                "K8S_POD_INFRA_CONTAINER_ID" => infra_container_id = Some(value),
                _ => {}
            }
        }
        let namespace = namespace.ok_or(PodArgsError::Missing("K8S_POD_NAMESPACE"))?;
        let name = name.ok_or(PodArgsError::Missing("K8S_POD_NAME"))?;
        Ok(Self {
            pod: PodKey::new(namespace, name)?,
            uid: optional("K8S_POD_UID", uid)?,
            infra_container_id: optional("K8S_POD_INFRA_CONTAINER_ID", infra_container_id)?,
        })
    }
}

/// Reads an optional id. An empty value means the same as none.
fn optional(key: &'static str, value: Option<&str>) -> Result<Option<String>, PodArgsError> {
    match value {
        None | Some("") => Ok(None),
        Some(value) if value.len() > LONGEST_ID => {
            Err(PodArgsError::TooLong { key, length: value.len() })
        }
        Some(value) => Ok(Some(value.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_containerd_sends_names_the_pod() {
        let text = "K8S_POD_INFRA_CONTAINER_ID=c0ffee;K8S_POD_UID=4-2;IgnoreUnknown=1;\
                    K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart-0";
        assert_eq!(
            PodArgs::parse(text),
            Ok(PodArgs {
                pod: PodKey::new("shop", "cart-0").unwrap(),
                uid: Some("4-2".to_owned()),
                infra_container_id: Some("c0ffee".to_owned())
            })
        );
    }

    #[test]
    fn only_namespace_and_name_are_needed_and_a_value_may_contain_an_equals_sign() {
        let args =
            PodArgs::parse("K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart-0;K8S_POD_UID=;LABEL=a=b;")
                .unwrap();
        assert_eq!((args.uid, args.infra_container_id), (None, None));
    }

    #[test]
    fn what_names_no_pod_is_refused_with_the_reason() {
        for (text, message) in [
            ("", "CNI_ARGS lacks K8S_POD_NAMESPACE"),
            ("K8S_POD_NAMESPACE=shop", "CNI_ARGS lacks K8S_POD_NAME"),
            ("K8S_POD_NAMESPACE=shop;cart", "CNI_ARGS has \"cart\" where KEY=VALUE is expected"),
            (
                "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=",
                "CNI_ARGS names no pod: pod name \"\" is empty",
            ),
        ] {
            assert_eq!(PodArgs::parse(text).expect_err(text).to_string(), message);
        }
        let long =
            format!("K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart-0;K8S_POD_UID={}", "f".repeat(256));
        assert_eq!(
            PodArgs::parse(&long).unwrap_err(),
            PodArgsError::TooLong { key: "K8S_POD_UID", length: 256 }
        );
    }
}
