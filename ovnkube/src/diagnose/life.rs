//! A pod's life as its object and its events tell it.

use std::net::IpAddr;

use contract::{annotation::POD_NETWORKS, names::PodKey};
use k8s_openapi::jiff::Timestamp;
use kubeapi::Connection;
use serde_json::Value;

use super::{TIME_LINE, annotation, unread};
use crate::{
    api_query::list,
    findings::{Finding, State},
};

/// The most events that are shown, the newest.
const MOST_EVENTS: usize = 5;
/// Reasons of what goes well.
const GOOD: [&str; 6] = ["Scheduled", "Pulled", "Pulling", "Created", "Started", "NetworkRestored"];

/// Creation, scheduling, annotation.
pub(super) fn findings(pod: &Value) -> Vec<Finding> {
    let metadata = &pod["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    let namespace = metadata["namespace"].as_str().unwrap_or_default();
    let describe = format!("kubectl -n {namespace} describe pod {name}");
    let found = |name: &str, state, said: &str| Finding::new(TIME_LINE, name, state, said);
    let created = metadata["creationTimestamp"].as_str().unwrap_or("at an unknown time");
    let mut findings = vec![found("created", State::Ok, created)];
    findings.extend(clock(metadata));
    let scheduled = condition(pod, "PodScheduled");
    findings.push(match pod["spec"]["nodeName"].as_str() {
        Some(node) => {
            found("scheduled", State::Ok, &format!("{}, to node {node}", time(scheduled)))
        }
        None => {
            let why = scheduled.and_then(|condition| condition["message"].as_str());
            let why = format!("is on no node: {}", why.unwrap_or("the scheduler has not said why"));
            found("scheduled", State::Failed, &why).next(&describe)
        }
    });
    if pod["spec"]["hostNetwork"] == true {
        return findings;
    }
    findings.push(match annotation(pod) {
        Some(_) => {
            let own = addresses(pod);
            let own: Vec<String> = own.iter().map(ToString::to_string).collect();
            let when = written(metadata).unwrap_or_default();
            match own.is_empty() {
                true => found("annotated", State::Failed, "its annotation has no address in it")
                    .next(&describe),
                false => found("annotated", State::Ok, &format!("{when}{}", own.join(", "))),
            }
        }
        None => {
            let why = format!(
                "has no annotation {POD_NETWORKS}: no control plane leads, it may not write it, \
                 or the node has no subnet or no address left"
            );
            found("annotated", State::Failed, &why).next("ovnkube status")
        }
    });
    findings
}

/// A clock that is behind the API server's: an object cannot be younger than now.
fn clock(metadata: &Value) -> Option<Finding> {
    let created: Timestamp = metadata["creationTimestamp"].as_str()?.parse().ok()?;
    let ahead = created.as_second() - Timestamp::now().as_second();
    let why = format!("the pod is created {ahead} s from now: this machine's clock is behind");
    let finding = Finding::new(TIME_LINE, "clock", State::Warning, &why);
    (ahead > 5).then(|| finding.next("chronyc tracking here and on the API server's machine"))
}

/// When the annotation was written, as the API server has it.
fn written(metadata: &Value) -> Option<String> {
    let fields = metadata["managedFields"].as_array()?;
    let key = format!("f:{POD_NETWORKS}");
    let has = |entry: &&Value| entry["fieldsV1"]["f:metadata"]["f:annotations"].get(&key).is_some();
    Some(format!("{}, ", fields.iter().find(has)?["time"].as_str()?))
}

/// Whether it is ready, at the end of its life's beginning.
pub(super) fn ready(pod: &Value) -> Finding {
    let found = |state, said: &str| Finding::new(TIME_LINE, "ready", state, said);
    let metadata = &pod["metadata"];
    if let Some(deleted) = metadata["deletionTimestamp"].as_str() {
        return found(State::Warning, &format!("is being deleted, since {deleted}"));
    }
    let condition = condition(pod, "Ready");
    let is_ready = condition.is_some_and(|condition| condition["status"] == "True");
    let is_running = pod["status"]["phase"] == "Running";
    match (is_ready, is_running) {
        (true, _) => found(State::Ok, &time(condition)),
        (false, true) => {
            let why = condition.and_then(|condition| condition["message"].as_str());
            let why = format!("runs, and is not ready: {}", why.unwrap_or("no reason is given"));
            found(State::Warning, &why)
        }
        (false, false) => {
            let phase = pod["status"]["phase"].as_str().unwrap_or("in an unknown phase");
            found(State::Warning, &format!("is {phase}"))
        }
    }
}

/// The newest events about it that say that something goes wrong.
pub(super) async fn events(api: &Connection, key: &PodKey, uid: &str) -> Vec<Finding> {
    // A former pod of the name had others.
    let of_name = format!("involvedObject.kind=Pod,involvedObject.name={}", key.name());
    let fields = format!("{of_name},involvedObject.uid={uid}");
    let collection = format!("/api/v1/namespaces/{}/events", key.namespace());
    let listed = match list(api, &collection, &fields).await {
        Ok(listed) => listed,
        Err(trouble) => {
            let right = format!("list events -n {}", key.namespace());
            return vec![unread("events", &trouble, &right)];
        }
    };
    let when = |event: &Value| {
        ["lastTimestamp", "eventTime"]
            .iter()
            .find_map(|field| event[*field].as_str().map(str::to_owned))
    };
    let mut bad: Vec<&Value> = listed
        .items
        .iter()
        .filter(|event| event["type"] == "Warning")
        .filter(|event| !GOOD.contains(&event["reason"].as_str().unwrap_or_default()))
        .collect();
    bad.sort_by_key(|event| when(event));
    let newest = bad.len().saturating_sub(MOST_EVENTS);
    let finding = |event: &&Value| {
        let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
        let said = format!("{} {}", when(event).unwrap_or_default(), text("message"));
        Finding::new(TIME_LINE, &text("reason"), State::Warning, said.trim())
    };
    bad[newest..].iter().map(finding).collect()
}

/// Its addresses as the annotation has them.
pub(super) fn addresses(pod: &Value) -> Vec<IpAddr> {
    let Some(text) = annotation(pod) else { return Vec::new() };
    let networks: Value = serde_json::from_str(text).unwrap_or_default();
    let own = &networks["default"];
    let list = own["ip_addresses"].as_array().cloned().unwrap_or_default();
    let all = list.iter().chain([&own["ip_address"]]).filter_map(Value::as_str);
    let mut found: Vec<IpAddr> =
        all.filter_map(|text| text.split('/').next()?.parse().ok()).collect();
    found.dedup();
    found.truncate(2);
    found
}

fn condition<'a>(pod: &'a Value, kind: &str) -> Option<&'a Value> {
    let all = pod["status"]["conditions"].as_array()?;
    all.iter().find(|condition| condition["type"] == kind)
}

fn time(condition: Option<&Value>) -> String {
    let time = condition.and_then(|condition| condition["lastTransitionTime"].as_str());
    time.unwrap_or("at an unknown time").to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn states(findings: &[Finding]) -> Vec<(&str, State)> {
        findings.iter().map(|finding| (finding.name.as_str(), finding.state)).collect()
    }

    #[test]
    fn the_time_line_stops_at_what_is_missing() {
        let mut pod = json!({
            "metadata": {
                "namespace": "shop", "name": "cart", "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {}, "status": {"phase": "Pending"},
        });
        let unscheduled =
            [("created", State::Ok), ("scheduled", State::Failed), ("annotated", State::Failed)];
        assert_eq!(states(&findings(&pod)), unscheduled);
        pod["spec"]["nodeName"] = "n1".into();
        assert_eq!(findings(&pod)[1].state, State::Ok);
        let network = r#"{"default":{"ip_addresses":["10.244.1.3/24","fd00::3/64"]}}"#;
        pod["metadata"]["annotations"] = json!({ POD_NETWORKS: network });
        assert!(findings(&pod)[2].summary.ends_with("10.244.1.3, fd00::3"), "{:?}", findings(&pod));
        assert_eq!(ready(&pod).state, State::Warning);
        pod["status"]["conditions"] =
            json!([{"type": "Ready", "status": "True", "lastTransitionTime": "T"}]);
        assert_eq!(ready(&pod).state, State::Ok);
        pod["metadata"]["annotations"] = json!({ POD_NETWORKS: "{]" });
        assert_eq!(findings(&pod)[2].state, State::Failed);
        pod["metadata"]["creationTimestamp"] = "9999-01-01T00:00:00Z".into();
        assert!(states(&findings(&pod)).contains(&("clock", State::Warning)));
        pod["spec"]["hostNetwork"] = true.into();
        assert!(findings(&pod).iter().all(|finding| finding.name != "annotated"));
    }
}
