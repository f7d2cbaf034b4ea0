//! Services, policies and other objects that are not in force: the warnings that this project's
//! programs have written as events, and the statuses of EgressFirewalls and EgressQoSes.

use std::collections::BTreeMap;

use contract::definition::CustomKind;
use kubeapi::Connection;
use serde_json::Value;

use crate::{
    api_query as api,
    findings::{Finding, State},
};

/// The programs that report on objects (`reportingComponent` of their events).
const REPORTERS: [&str; 2] = ["ovn-kubernetes/ovnkube-controller", "ovn-kubernetes/ovnkube-node"];
const EVENTS: &str = "/api/v1/events";

const SUBJECT: &str = "services, policies, pods";

/// An object and the reason of a warning about it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Warned {
    kind: String,
    object: String,
    reason: String,
}

pub(super) async fn findings(api: &Connection, node: Option<&str>) -> Vec<Finding> {
    // About one node, only events of its own programs count.
    let reporters = if node.is_some() { &REPORTERS[1..] } else { &REPORTERS };
    let mut findings = Vec::new();
    let mut warned: BTreeMap<Warned, (String, String)> = BTreeMap::new();
    for reporter in reporters {
        let fields = format!("type=Warning,reportingComponent={reporter}");
        match api::list(api, EVENTS, &fields).await {
            Ok(listed) => listed.items.iter().for_each(|event| note(&mut warned, event, node)),
            Err(trouble) => {
                let why = format!("events cannot be read: {trouble}");
                findings.push(Finding::new(SUBJECT, "events", State::Unknown, &why));
                break;
            }
        }
    }
    findings.extend(
        warned.into_iter().map(|(warned, (time, message))| of_event(&warned, &time, &message)),
    );
    if node.is_none() {
        for kind in CustomKind::ALL {
            findings.extend(of_statuses(api, kind).await);
        }
    }
    if findings.is_empty() {
        let well = "no warning about any object in the last hour";
        findings.push(Finding::new(SUBJECT, "events", State::Ok, well));
    }
    findings
}

/// Of several events with one reason, the last one counts.
fn note(warned: &mut BTreeMap<Warned, (String, String)>, event: &Value, node: Option<&str>) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if node.is_some_and(|node| event["reportingInstance"] != node) {
        return;
    }
    let of = &event["involvedObject"];
    let object = match of["namespace"].as_str() {
        Some(namespace) => format!("{namespace}/{}", text(&of["name"])),
        None => text(&of["name"]),
    };
    let times =
        [&event["series"]["lastObservedTime"], &event["lastTimestamp"], &event["eventTime"]];
    let time = times.into_iter().find_map(|time| time.as_str()).unwrap_or_default().to_owned();
    let key = Warned { kind: text(&of["kind"]), object, reason: text(&event["reason"]) };
    let last = warned.entry(key).or_default();
    if *last <= (time.clone(), String::new()) {
        *last = (time, text(&event["message"]));
    }
}

fn of_event(warned: &Warned, time: &str, message: &str) -> Finding {
    let Warned { kind, object, reason } = warned;
    let name = format!("{kind} {object}");
    let describe = match object.split_once('/') {
        Some((namespace, name)) => format!("kubectl -n {namespace} describe {kind} {name}"),
        None => format!("kubectl describe {kind} {object}"),
    };
    Finding::new(SUBJECT, &name, State::Warning, &format!("{reason}: {message} ({time})"))
        .with("kind", kind.as_str())
        .with("object", object.as_str())
        .with("reason", reason.as_str())
        .with("time", time)
        .next(&describe)
}

/// The objects of the kind whose status does not say that they are in force.
async fn of_statuses(api: &Connection, kind: CustomKind) -> Vec<Finding> {
    match api::list(api, kind.collection(), "").await {
        Ok(listed) => listed.items.iter().filter_map(|object| of_status(object, kind)).collect(),
        Err(trouble) => {
            let why = format!("cannot be read: {trouble}");
            vec![Finding::new(SUBJECT, kind.definition().plural, State::Unknown, &why)]
        }
    }
}

fn of_status(object: &Value, kind: CustomKind) -> Option<Finding> {
    let status = object["status"]["status"].as_str().unwrap_or("no status has been written yet");
    if status.starts_with(kind.applied()) {
        return None;
    }
    let (kind, name) = (kind.as_str(), api::name(object));
    let finding = Finding::new(SUBJECT, &format!("{kind} {name}"), State::Warning, status);
    let (namespace, name) = name.split_once('/').unwrap_or(("default", &name));
    let kind = kind.to_lowercase();
    Some(finding.next(&format!("kubectl -n {namespace} describe {kind} {name}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_in_force_is_shown_once_and_that_of_other_nodes_is_not() {
        let event = |time: &str, message: &str, instance: &str| {
            json!({
                "involvedObject": {"kind": "Service", "namespace": "shop", "name": "web"},
                "reason": "TooLarge", "message": message, "reportingInstance": instance,
                "eventTime": "2026-01-01T00:00:00Z", "series": {"lastObservedTime": time},
            })
        };
        let mut warned = BTreeMap::new();
        note(&mut warned, &event("2026-01-01T00:00:02Z", "newer", "n1"), None);
        note(&mut warned, &event("2026-01-01T00:00:01Z", "older", "n2"), None);
        let shown: Vec<Finding> = warned
            .iter()
            .map(|(warned, (time, message))| of_event(warned, time, message))
            .collect();
        assert_eq!(shown.len(), 1);
        assert_eq!(shown[0].name, "Service shop/web");
        assert!(shown[0].summary.contains("TooLarge: newer"), "{shown:?}");
        assert_eq!(shown[0].next.as_deref(), Some("kubectl -n shop describe Service web"));
        let metadata = json!({"namespace": "shop", "name": "default"});
        for kind in CustomKind::ALL {
            let of = |text: Value| {
                of_status(&json!({"metadata": metadata, "status": {"status": text}}), kind)
            };
            assert!(of(kind.applied().into()).is_none());
            let name = format!("{} shop/default", kind.as_str());
            assert_eq!(of("rule 0: not valid".into()).unwrap().name, name);
            assert!(of(Value::Null).unwrap().summary.contains("no status"), "{name}");
        }
        let mut of_node = BTreeMap::new();
        note(&mut of_node, &event("2026-01-01T00:00:02Z", "other node", "n2"), Some("n1"));
        assert!(of_node.is_empty());
    }
}
