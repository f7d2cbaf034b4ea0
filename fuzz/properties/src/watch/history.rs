//! A drawn history of a few pods, reported by an API server that lags, drops connections, refuses
//! and repeats itself, and then recovers: in the end its clients know the existing pods.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

use super::{
    api::{Answer, End},
    follow::{self, ClusterManagerInputs, PODS, key, state},
};
use crate::draw::Bytes;
use server::pods::PodSource;

/// Limit for the clients to catch up. It costs no real time on a paused clock.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);

pub(super) fn check(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let (lookups, script) = rest.split_at(rest.len().min(usize::from(first % 8)));
    let mut lookups = Bytes::of(lookups);
    let world = Arc::new(Mutex::new(World { script: Bytes::of(script), ..World::default() }));
    let well = Arc::new(Notify::new());
    let respond = {
        let (world, well) = (Arc::clone(&world), Arc::clone(&well));
        move |path: &str| {
            let mut world = locked(&world);
            let answer = world.answer(&ApiRequest::read(path));
            if world.is_followed == [true, true] {
                well.notify_one();
            }
            answer
        }
    };
    let (told, known) = follow::run(respond, |pods| async move {
        while !lookups.is_empty() {
            sleep(Duration::from_millis(u64::from(lookups.below(40)) * 250)).await;
            pods.look_up(&key(usize::from(lookups.below(4))));
        }
        timeout(PATIENCE, well.notified())
            .await
            .expect("both clients follow the recovered API server");
        sleep(Duration::from_secs(1)).await;
    });
    let world = locked(&world);
    let there: Vec<Option<String>> =
        (0..PODS).map(|pod| world.now[pod].map(|event| event.state())).collect();
    assert_eq!(known, there, "the node's server; what happened: {:#?}", world.log);
    world.check_told(&told, &there);
}

fn locked(world: &Mutex<World>) -> MutexGuard<'_, World> {
    world.lock().expect("no holder of the lock panics")
}

/// A change of a pod, with the version of the cluster after it.
#[derive(Debug, Clone, Copy)]
struct Event {
    kind: &'static str,
    pod: usize,
    uid: u64,
    version: u64,
}

impl Event {
    /// An address that is different for each version of a pod.
    fn address(&self) -> String {
        format!("10.{}.{}.{}/8", self.version >> 16, self.version >> 8 & 255, self.version & 255)
    }

    fn state(&self) -> String {
        state(&format!("p{}", self.pod), &format!("u{}", self.uid), self.address())
    }

    fn object(&self) -> Value {
        let network =
            json!({"default": {"mac_address": "0a:58:0a:00:00:05", "ip_addresses": [self.address()]}})
                .to_string();
        json!({"kind": "Pod", "metadata": {
            "namespace": "shop", "name": format!("p{}", self.pod), "uid": format!("u{}", self.uid), "resourceVersion": self.version.to_string(),
            "annotations": {"k8s.ovn.org/pod-networks": network, "other": "x"}, "managedFields": [{"manager": "m"}],
        }, "spec": {"nodeName": "n1"}})
    }

    fn line(&self, kind: &str) -> String {
        json!({"type": kind, "object": self.object()}).to_string()
    }
}

#[derive(Debug, Default)]
struct World {
    script: Bytes,
    version: u64,
    now: [Option<Event>; PODS],
    log: Vec<Event>,
    /// Whether the control plane and the server have a stream that reports all further changes.
    is_followed: [bool; 2],
}

/// A parsed request.
#[derive(Debug)]
struct ApiRequest {
    is_watch: bool,
    is_of_node: bool,
    /// The pod of a lookup.
    pod: Option<usize>,
    parameters: BTreeMap<String, String>,
}

impl ApiRequest {
    fn read(path: &str) -> Self {
        let (_, query) = path.split_once('?').unwrap_or_default();
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let parameters: BTreeMap<String, String> =
            pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let selector = parameters.get("fieldSelector").map(String::as_str).unwrap_or_default();
        let pod =
            selector.strip_prefix("metadata.name%3Dp").and_then(|rest| rest[..1].parse().ok());
        Self {
            is_watch: parameters.contains_key("watch"),
            is_of_node: !selector.is_empty(),
            pod,
            parameters,
        }
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.parameters.get(name)?.parse().ok()
    }
}

impl World {
    fn answer(&mut self, asked: &ApiRequest) -> Answer {
        for _ in 0..self.script.below(4) {
            self.change();
        }
        if let Some(refusal) = self.refusal() {
            return refusal;
        }
        if asked.is_watch { self.watch(asked) } else { self.list(asked) }
    }

    /// Changes, creates or deletes a pod.
    fn change(&mut self) {
        let pod = usize::from(self.script.below(4));
        let deletes = self.script.below(3) == 2;
        self.version += 1 + u64::from(self.script.below(3));
        let event = |kind, uid| Event { kind, pod, uid, version: self.version };
        let event = match self.now[pod] {
            Some(before) if deletes => event("DELETED", before.uid),
            Some(before) => event("MODIFIED", before.uid),
            None => event("ADDED", self.version),
        };
        self.now[pod] = Some(event).filter(|event| event.kind != "DELETED");
        self.log.push(event);
    }

    fn refusal(&mut self) -> Option<Answer> {
        let (status, text) = match self.script.below(24) {
            1 => (503, "shutting down".to_owned()),
            2 => (410, status(410, json!({})).to_string()),
            3 => (429, status(429, json!({"retryAfterSeconds": 7})).to_string()),
            4 => (
                504,
                status(504, json!({"causes": [{"reason": "ResourceVersionTooLarge"}]})).to_string(),
            ),
            5 => (401, status(401, json!({})).to_string()),
            6 => (400, status(400, json!({})).to_string()),
            7 => (500, status(500, json!({})).to_string()),
            8 => (200, "{}".to_owned()),
            _ => return None,
        };
        Some(Answer { status, ..Answer::json(&text) })
    }

    /// The pods as of `version`.
    fn snapshot(&self, version: u64) -> Vec<Event> {
        let mut pods = BTreeMap::new();
        for event in self.log.iter().filter(|event| event.version <= version) {
            pods.insert(event.pod, *event);
        }
        pods.into_values().filter(|event| event.kind != "DELETED").collect()
    }

    /// The version that a read from the API server's cache returns: older than the current one if
    /// the cache lags.
    fn remembered(&mut self) -> u64 {
        let behind = usize::from(self.script.below(6));
        self.log.iter().rev().nth(behind).map_or(0, |event| event.version).max(if behind == 0 {
            self.version
        } else {
            0
        })
    }

    fn list(&mut self, asked: &ApiRequest) -> Answer {
        let token = asked.parameters.get("continue").and_then(|token| token.split_once('.'));
        let token =
            token.and_then(|(version, place)| Some((version.parse().ok()?, place.parse().ok()?)));
        let is_any = asked.parameters.get("resourceVersion").is_some_and(|version| version == "0");
        let (version, place): (u64, usize) = match token {
            Some(token) => token,
            None if is_any => (self.remembered(), 0),
            None => (self.version, 0),
        };
        let pods = self.snapshot(version);
        let pods: Vec<Event> = pods
            .into_iter()
            .filter(|event| asked.pod.is_none_or(|pod| pod == event.pod))
            .skip(place)
            .collect();
        let most = match self.script.below(4) {
            0 => pods.len(),
            most if asked.parameters.contains_key("limit") => usize::from(most),
            _ => pods.len(),
        };
        let token =
            if pods.len() > most { format!("{version}.{}", place + most) } else { String::new() };
        let items: Vec<Value> = pods.iter().take(most).map(Event::object).collect();
        Answer::json(
            &json!({"metadata": {"resourceVersion": version.to_string(), "continue": token}, "items": items})
                .to_string(),
        )
    }

    fn watch(&mut self, asked: &ApiRequest) -> Answer {
        let initial = asked.parameters.contains_key("sendInitialEvents");
        let from = if initial {
            self.remembered()
        } else {
            asked.number("resourceVersion").unwrap_or_default()
        };
        let mut lines: Vec<String> = Vec::new();
        if initial {
            lines.extend(self.snapshot(from).iter().map(|event| event.line("ADDED")));
        }
        let mut at = from;
        for event in self.log.clone().iter().filter(|event| event.version > from) {
            if self.script.below(5) == 1 {
                lines.push(bookmark(at, json!({})));
            }
            lines.push(event.line(event.kind));
            at = event.version;
        }
        if initial {
            lines.push(bookmark(self.version, json!({"k8s.io/initial-events-end": "true"})));
            let before = self.log.len();
            for _ in 0..self.script.below(3) {
                self.change();
            }
            lines.extend(self.log[before..].iter().map(|event| event.line(event.kind)));
        }
        self.broken_off(lines, asked)
    }

    /// The response with the part of the stream that arrives, in pieces.
    fn broken_off(&mut self, mut lines: Vec<String>, asked: &ApiRequest) -> Answer {
        let kind = self.script.below(10);
        let place = usize::from(self.script.below(16));
        let line = match kind {
            1 => Some(json!({"type": "ERROR", "object": status(410, json!({}))}).to_string()),
            2 => Some(json!({"type": "ERROR", "object": status(500, json!({}))}).to_string()),
            3 => Some(r#"{"type":"ADDED","object":{"metadata":7}}"#.to_owned()),
            4 => Some(r#"{"type":"LATER","object":{}}"#.to_owned()),
            _ => None,
        };
        if let Some(line) = line {
            lines.truncate(place);
            lines.push(line);
        }
        let mut text: Vec<u8> = lines.iter().flat_map(|line| line.bytes().chain([b'\n'])).collect();
        if matches!(kind, 5 | 6) {
            text.truncate(usize::from(self.script.below(255)) * text.len() / 255);
        }
        let end = match kind {
            0 | 1 => End::Never,
            5 | 7 => End::Broken,
            _ => End::Ordinary,
        };
        let mut pieces = Vec::new();
        while !text.is_empty() {
            let most = match self.script.below(255) {
                0 => text.len(),
                most => usize::from(most).min(text.len()),
            };
            let rest = text.split_off(most);
            pieces.push(std::mem::replace(&mut text, rest));
        }
        if self.script.is_empty() && kind == 0 {
            self.is_followed[usize::from(asked.is_of_node)] = true;
        }
        Answer { status: 200, pieces, end }
    }

    /// Checks that the control plane observed only states that existed, in their order, and in the
    /// end the current ones.
    fn check_told(&self, told: &[ClusterManagerInputs], there: &[Option<String>]) {
        let versions: BTreeMap<String, u64> =
            self.log.iter().map(|event| (event.state(), event.version)).collect();
        let mut newest = [0; PODS];
        let mut pods: BTreeMap<String, String> = BTreeMap::new();
        assert!(matches!(told.first(), Some(ClusterManagerInputs::All(_))), "{told:?}");
        for told in told {
            let applied = match told {
                ClusterManagerInputs::All(all) => {
                    pods.clear();
                    all.iter().collect()
                }
                ClusterManagerInputs::Applied(pod) => vec![pod],
                ClusterManagerInputs::Deleted(name) => {
                    pods.remove(name);
                    Vec::new()
                }
            };
            for state in applied {
                let version = *versions
                    .get(state)
                    .unwrap_or_else(|| panic!("no pod was ever {state:?}: {told:?}"));
                let (name, _) = state.split_once(' ').expect("a name is first");
                let newest = &mut newest[usize::from(name.as_bytes()[1] - b'0')];
                assert!(version >= *newest, "{state:?} after {newest}: {told:?}");
                *newest = version;
                let before = pods.insert(name.to_owned(), state.clone());
                assert!(
                    before.is_none() || !matches!(told, ClusterManagerInputs::All(_)),
                    "twice in {told:?}"
                );
            }
        }
        let known: Vec<Option<String>> =
            (0..PODS).map(|pod| pods.get(&format!("p{pod}")).cloned()).collect();
        assert_eq!(known, there, "the control plane; what happened: {:#?}", self.log);
    }
}

fn bookmark(version: u64, annotations: Value) -> String {
    let metadata = json!({"resourceVersion": version.to_string(), "annotations": annotations});
    json!({"type": "BOOKMARK", "object": {"kind": "Pod", "apiVersion": "v1", "metadata": metadata}})
        .to_string()
}

fn status(code: u16, details: Value) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "m", "reason": "R", "details": details})
}
