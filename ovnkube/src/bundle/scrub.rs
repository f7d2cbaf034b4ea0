//! Secrets are left out: what may carry one by its place in an object, what has a name like one,
//! and what looks like one. Pure.

use serde_json::Value;

/// In place of what is left out.
const REMOVED: &str = "REMOVED";
/// Names of secrets have one of these in them, in lower case.
const WORDS: [&str; 9] = [
    "password",
    "passwd",
    "secret",
    "token",
    "psk",
    "privkey",
    "private_key",
    "authorization",
    "credential",
];
/// Annotations that these programs read have one of these in their names.
const ANNOTATIONS: [&str; 4] = ["ovn.org/", "cni.cncf.io/", "kubernetes.io/", "nfd."];
/// Has a whole object in it, with whatever its owner wrote.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// What of a container is kept: commands, arguments, variables and probes may have secrets.
const OF_CONTAINERS: [&str; 3] = ["name", "image", "ports"];
/// Fewer characters after `eyJ` are no token.
const TOKEN: usize = 20;

/// The value without secrets.
pub(super) fn json(value: &mut Value) {
    match value {
        Value::String(text) => *text = self::text(text),
        // A pair of a map of OVSDB: `["KEY", "VALUE"]`.
        Value::Array(pair) if is_secret_pair(pair) => pair[1] = REMOVED.into(),
        Value::Array(items) => items.iter_mut().for_each(json),
        Value::Object(fields) => {
            // Which program has written which field: long, and of no use here.
            fields.remove("managedFields");
            for (name, value) in fields.iter_mut() {
                match (name.as_str(), &mut *value) {
                    ("annotations", Value::Object(annotations)) => {
                        annotations.retain(|name, _| is_known(name));
                    }
                    ("containers" | "initContainers" | "ephemeralContainers", list) => {
                        list.as_array_mut().into_iter().flatten().for_each(container);
                    }
                    // Of a pod: it may name or have secrets.
                    ("volumes", list) => *list = Value::Null,
                    (name, Value::String(text)) if is_secret(name) => REMOVED.clone_into(text),
                    _ => {}
                }
                json(value);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn container(container: &mut Value) {
    if let Value::Object(fields) = container {
        fields.retain(|name, _| OF_CONTAINERS.contains(&name.as_str()));
    }
}

fn is_known(annotation: &str) -> bool {
    annotation != LAST_APPLIED
        && (annotation == "ovn" || ANNOTATIONS.iter().any(|part| annotation.contains(part)))
}

fn is_secret(name: &str) -> bool {
    let name = name.to_lowercase();
    WORDS.iter().any(|word| name.contains(word))
}

fn is_secret_pair(items: &[Value]) -> bool {
    match items {
        [Value::String(name), Value::String(_)] => is_secret(name),
        _ => false,
    }
}

/// The text without secrets.
pub(super) fn text(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut is_key = false;
    for line in text.split_inclusive('\n') {
        is_key |= line.contains("-----BEGIN") && line.contains("PRIVATE KEY");
        if is_key {
            is_key = !line.contains("-----END");
            if !is_key {
                kept.push_str(REMOVED);
                kept.push('\n');
            }
            continue;
        }
        without_values(line, &mut kept);
    }
    kept
}

/// Appends the line without tokens, and without what stands behind a secret's name.
fn without_values(line: &str, kept: &mut String) {
    // Of a byte for each of the line's: positions are the same in both.
    let lower = line.to_ascii_lowercase();
    let mut rest = 0;
    while let Some((start, end)) = secret(&lower, rest) {
        kept.push_str(&line[rest..start]);
        kept.push_str(REMOVED);
        rest = end;
    }
    kept.push_str(&line[rest..]);
}

/// The next secret in the line, from this position on.
fn secret(lower: &str, from: usize) -> Option<(usize, usize)> {
    let named = WORDS.iter().filter_map(|word| value_of(lower, from, word));
    let bearer = lower[from..].find("bearer ").and_then(|at| {
        let start = from + at + "bearer ".len();
        let end = value_end(lower, start);
        (end > start).then_some((start, end))
    });
    let token = lower[from..].find("eyj").and_then(|at| {
        let start = from + at;
        let end = value_end(lower, start);
        (end - start > TOKEN).then_some((start, end))
    });
    named.chain(bearer).chain(token).min()
}

/// What stands behind a name with `word` in it and `=` or `:`.
fn value_of(lower: &str, from: usize, word: &str) -> Option<(usize, usize)> {
    let mut search = from;
    while let Some(at) = lower[search..].find(word) {
        let name_end = search + at + word.len();
        let behind =
            lower[name_end..].trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
        let behind = behind.trim_start_matches(['"', '\'', '\\', '-', ' ']);
        if let Some(value) = behind.strip_prefix(['=', ':']) {
            let value = value.trim_start_matches(['"', '\'', '\\', ' ']);
            let start = lower.len() - value.len();
            // `Authorization: Bearer TOKEN`
            let scheme = ["bearer ", "basic "].into_iter().find(|word| value.starts_with(word));
            let end = value_end(lower, start + scheme.map_or(0, str::len));
            if end > start {
                return Some((start, end));
            }
        }
        search = name_end;
    }
    None
}

fn value_end(lower: &str, start: usize) -> usize {
    let is_end = |c: char| c.is_whitespace() || ['"', '\'', ',', ';', '\\', '}', ')'].contains(&c);
    lower[start..].find(is_end).map_or(lower.len(), |length| start + length)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CANARY: &str = "canary-5d3f";

    #[test]
    fn no_canary_is_left_in_a_text_and_the_rest_is_as_it_was() {
        for line in [
            format!("dial with token={CANARY} and go on"),
            format!("db-password: {CANARY}"),
            format!(r#"{{"clientSecret":"{CANARY}","a":1}}"#),
            format!(r#"Authorization: Bearer {CANARY}"#),
            format!("curl -H 'Authorization: bearer {CANARY}' x"),
            format!("got eyJhbGciOiJSUzI1NiIsImtpZCI6.{CANARY}.x back"),
            format!("-----BEGIN EC PRIVATE KEY-----\n{CANARY}\n-----END EC PRIVATE KEY-----\n"),
            format!("ipsec_psk='{CANARY}'"),
        ] {
            let kept = text(&line);
            assert!(!kept.contains(CANARY) && kept.contains(REMOVED), "{line}: {kept}");
        }
        for line in ["tunnel_key: 5\n", "no token here", "the secret of the sea", "ä=ö: token"] {
            assert_eq!(text(line), line);
        }
        let two = text(&format!("password={CANARY}, token={CANARY} end\nnext"));
        assert_eq!(two, "password=REMOVED, token=REMOVED end\nnext");
    }

    #[test]
    fn no_canary_is_left_in_an_object_and_what_commands_read_is() {
        let mut pod = json!({
            "metadata": {
                "labels": {"app": "db"},
                "annotations": {
                    "k8s.ovn.org/pod-networks": "{\"default\":{}}",
                    "example.com/note": CANARY,
                    LAST_APPLIED: CANARY,
                },
                "managedFields": [{"x": CANARY}],
            },
            "spec": {
                "nodeName": "n1",
                "volumes": [{"name": "v", "csi": {"volumeAttributes": {"x": CANARY}}}],
                "containers": [{
                    "name": "c", "image": "i", "ports": [{"containerPort": 80}],
                    "env": [{"name": "X", "value": CANARY}], "args": [CANARY],
                    "livenessProbe": {"httpGet": {"httpHeaders": [{"name": "X", "value": CANARY}]}},
                }],
            },
        });
        json(&mut pod);
        assert!(!pod.to_string().contains(CANARY), "{pod:#}");
        assert_eq!(pod["metadata"]["labels"]["app"], "db");
        assert_eq!(pod["metadata"]["annotations"]["k8s.ovn.org/pod-networks"], "{\"default\":{}}");
        assert_eq!(pod["spec"]["containers"][0]["ports"][0]["containerPort"], 80);
        let mut row = json!({
            "_uuid": ["uuid", "x"],
            "options": ["map", [["psk", CANARY], ["remote_ip", "192.0.2.1"]]],
            "external_ids": ["map", [["k8s-api-token", CANARY]]],
        });
        json(&mut row);
        assert!(
            !row.to_string().contains(CANARY) && row.to_string().contains("192.0.2.1"),
            "{row}"
        );
    }
}
