//! Fields of a kubeconfig that are not secret: names, paths and addresses, which messages may
//! repeat.

use kube::config::Kubeconfig;
use serde_yaml_ng::Value;

/// Fields whose text is not secret.
const TEXTS: [&str; 15] = [
    "current-context",
    "name",
    "cluster",
    "user",
    "server",
    "tls-server-name",
    "proxy-url",
    "certificate-authority",
    "client-certificate",
    "client-key",
    "tokenFile",
    "username",
    "as",
    "as-uid",
    "namespace",
];
/// Fields that contain no secret at any depth.
const WHOLE: [&str; 2] = ["as-groups", "as-user-extra"];

/// Whether a field that is not secret contains `text`. A file that is no kubeconfig has no such
/// fields.
///
/// The fields are those of the product's own reading, written again: a tag of YAML or a field that
/// occurs twice is read differently as a plain value.
pub(super) fn mention(config: &[u8], text: &str) -> bool {
    serde_yaml_ng::from_slice::<Kubeconfig>(config)
        .and_then(serde_yaml_ng::to_value)
        .is_ok_and(|value| mentions(&value, text))
}

fn mentions(value: &Value, text: &str) -> bool {
    match value {
        Value::Sequence(values) => values.iter().any(|value| mentions(value, text)),
        Value::Mapping(fields) => {
            fields.iter().any(|(name, value)| match (name.as_str().unwrap_or_default(), value) {
                ("server", Value::String(url)) => without_user(url).contains(text),
                (name, Value::String(value)) => TEXTS.contains(&name) && value.contains(text),
                (name, value) if WHOLE.contains(&name) => {
                    serde_yaml_ng::to_string(value).is_ok_and(|value| value.contains(text))
                }
                (_, value) => mentions(value, text),
            })
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Tagged(_) => {
            false
        }
    }
}

/// The URL without its user and password, which are secret.
fn without_user(url: &str) -> &str {
    url.rsplit_once('@').map_or(url, |(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_open_and_tokens_are_not() {
        let config =
            |field: &str| format!("{{users: [{{name: we, user: {{{field}}}}}]}}").into_bytes();
        for open in ["tokenFile: x", "as-user-extra: {reason: [x]}", "username: !!str x"] {
            assert!(mention(&config(open), "x"), "{open}");
        }
        for secret in ["token: x", "password: x", "client-key-data: x", "exec: {command: x}"] {
            assert!(!mention(&config(secret), "x"), "{secret}");
        }
        for open in [
            "{current-context: x}",
            "{current-context: !name x}",
            "{current-context: x, a: 1, a: 2}",
        ] {
            assert!(mention(open.as_bytes(), "x"), "{open}");
        }
        let server = b"{clusters: [{name: we, cluster: {server: 'https://x:x@host'}}]}";
        assert!(mention(server, "host") && !mention(server, "x"));
        assert!(!mention(b"current-context: {x", "x"));
    }
}
