//! Pod manifests: parsed pods can be written as YAML and as JSON, in one list or as several
//! documents, and give the same pods. A JSON file is parsed as JSON, even where YAML would differ.

use contract::names::PodKey;
use serde::Serialize;
use serde_json::{Value, json};
use server::pods::{PodFacts, manifest};

use crate::LONGEST_ERROR;

type Pods = Vec<(PodKey, PodFacts)>;

/// `data` is the contents of a file.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let parsed = parse(text);
    if let Ok(value) = serde_json::from_str::<Value>(text)
        && value.to_string().len() >= text.split_ascii_whitespace().map(str::len).sum::<usize>()
    {
        // Nothing was lost, so no key occurs twice.
        assert_eq!(parse(&ascii(&value)), parsed, "with escapes");
    }
    let Some(pods) = parsed else { return };

    let objects: Vec<Value> = pods.iter().map(object).collect();
    let list = json!({"kind": "List", "apiVersion": "v1", "items": objects});
    for (how, text) in [
        ("JSON", list.to_string()),
        ("JSON with escapes", ascii(&list)),
        ("JSON with tabs", tabs(&list)),
        ("YAML", yaml(&list)),
    ] {
        assert_eq!(parse(&text).as_ref(), Some(&pods), "{how}: {text}");
    }
    let documents: String = objects.iter().map(|object| format!("---\n{}", yaml(object))).collect();
    assert_eq!(parse(&documents), Some(pods), "{documents}");
}

fn parse(text: &str) -> Option<Pods> {
    let parsed = manifest::parse(text);
    if let Err(error) = &parsed {
        assert!(
            error.to_string().len() <= LONGEST_ERROR,
            "an error of {} bytes",
            error.to_string().len()
        );
    }
    parsed.ok()
}

fn object((key, PodFacts { uid, annotations }): &(PodKey, PodFacts)) -> Value {
    json!({"kind": "Pod", "metadata": {"namespace": key.namespace(), "name": key.name(), "uid": uid, "annotations": annotations}})
}

fn yaml(value: &Value) -> String {
    serde_yaml_ng::to_string(value).expect("JSON can be written as YAML")
}

fn tabs(value: &Value) -> String {
    let mut written = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"\t");
    value
        .serialize(&mut serde_json::Serializer::with_formatter(&mut written, formatter))
        .expect("a value can be written");
    String::from_utf8(written).expect("JSON is text")
}

/// JSON with escapes instead of all characters that are not ASCII, as some programs write it.
fn ascii(value: &Value) -> String {
    let mut units = [0; 2];
    let mut escapes = |character: char| -> String {
        character.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")).collect()
    };
    value
        .to_string()
        .chars()
        .map(
            |character| {
                if character.is_ascii() { character.to_string() } else { escapes(character) }
            },
        )
        .collect()
}
