//! Candidates against a scripted API server, on a paused clock.

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use prometheus::Registry;
use serde_json::{Value, json};
use testkit::{ScriptedApi, scripted_api::Asked};

use super::*;
use crate::scripted;

mod several;

const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/ovn/leases";

fn candidate(identity: &str) -> ElectionConfig {
    ElectionConfig {
        identity: identity.to_owned(),
        namespace: "ovn".to_owned(),
        lease: "ovn-kubernetes-master".to_owned(),
        durations: Durations::default(),
        own_lease: OwnLease::Resume(None),
    }
}

/// A leader elector, and the scripted API server that it talks to.
struct Played {
    api: ScriptedApi,
    leadership: Leadership,
    elector: LeaderElector,
}

impl Played {
    async fn start(candidate: ElectionConfig) -> Self {
        let (api, client) = scripted::start().await;
        let metrics = Metrics::register(&Registry::new(), "test").unwrap();
        let (leadership, elector) = LeaderElector::start(client, candidate.into(), metrics);
        Self { api, leadership, elector }
    }

    /// The next request other than a watch. Watches are refused.
    async fn asked(&mut self) -> Asked {
        loop {
            let asked = self.api.asked().await;
            if !asked.is_watch() {
                return asked;
            }
            asked.status(403, "leases is forbidden: may not watch").await;
        }
    }

    /// A process that has just become leader, with the Lease as it wrote it.
    async fn leader() -> (Self, Value) {
        let mut played = Self::start(candidate("node1")).await;
        played.asked().await.status(404, "not found").await;
        let lease = accept(played.asked().await, "POST", "1").await;
        played.leadership.won().await;
        (played, lease)
    }
}

/// Stores what was sent, as the API server does.
async fn accept(asked: Asked, method: &str, version: &str) -> Value {
    let mut lease: Value = serde_json::from_slice(&asked.body).unwrap();
    assert_eq!(asked.method, method);
    assert!(asked.path.starts_with(PATH), "{}", asked.path);
    lease["metadata"]["resourceVersion"] = version.into();
    asked.json(&lease).await;
    lease
}

fn held_by(holder: &str, version: &str, transitions: i32) -> Value {
    // Written by a clock that is years fast: no process may look at these times.
    let time = MicroTime(Timestamp::from_second(2_500_000_000 + i64::from(transitions)).unwrap());
    let spec = LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        lease_duration_seconds: Some(137),
        acquire_time: Some(time.clone()),
        renew_time: Some(time),
        lease_transitions: Some(transitions),
        ..LeaseSpec::default()
    };
    let metadata = ObjectMeta {
        name: Some("ovn-kubernetes-master".to_owned()),
        namespace: Some("ovn".to_owned()),
        resource_version: Some(version.to_owned()),
        ..ObjectMeta::default()
    };
    serde_json::to_value(Lease { metadata, spec: Some(spec) }).unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_first_candidate_creates_the_lease_and_its_namespace() {
    let mut played = Played::start(candidate("node1")).await;
    assert!(!played.leadership.is_leader());
    let read = played.asked().await;
    assert_eq!(
        (read.method.as_str(), read.path.as_str()),
        ("GET", format!("{PATH}/ovn-kubernetes-master").as_str())
    );
    read.status(404, "leases \"ovn-kubernetes-master\" not found").await;
    played.asked().await.status(404, "namespaces \"ovn\" not found").await;
    let namespace = played.asked().await;
    assert_eq!(
        (namespace.method.as_str(), namespace.path.as_str()),
        ("POST", "/api/v1/namespaces?")
    );
    namespace.json(&json!({"metadata": {"name": "ovn"}})).await;
    let lease = accept(played.asked().await, "POST", "1").await;
    played.leadership.won().await;
    let spec = &lease["spec"];
    assert_eq!(
        (&spec["holderIdentity"], &spec["leaseDurationSeconds"], &spec["leaseTransitions"]),
        (&json!("node1"), &json!(137), &json!(0))
    );
    let renewed = spec["renewTime"].as_str().unwrap();
    assert!(
        renewed.len() == "2026-01-01T00:00:00.000000Z".len() && renewed == spec["acquireTime"],
        "{renewed}"
    );
    assert_eq!(played.leadership.waits_for(), None);
}

/// The Leases of an API server before Kubernetes 1.14 were said not to be found.
#[tokio::test(start_paused = true)]
async fn an_api_server_without_leases_is_said_to_be_too_old() {
    let mut played = Played::start(candidate("node1")).await;
    played.asked().await.status(404, "the server could not find the requested resource").await;
    played.asked().await.status(404, "the server could not find the requested resource").await;
    let namespace = played.asked().await;
    assert_eq!(
        (namespace.method.as_str(), namespace.path.as_str()),
        ("POST", "/api/v1/namespaces?")
    );
    namespace.status(409, "namespaces \"ovn\" already exists").await;
    played.asked().await.status(404, "the server could not find the requested resource").await;
    played.asked().await.status(404, "the server could not find the requested resource").await;
    let why = played.leadership.waits_for().unwrap();
    assert!(
        why.contains("no Leases (coordination.k8s.io/v1), which Kubernetes has since 1.14"),
        "{why}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_cannot_be_created_is_said() {
    let mut played = Played::start(candidate("node1")).await;
    for _ in 0..3 {
        played.asked().await.status(404, "not found").await;
        played.asked().await.status(404, "namespaces \"ovn\" not found").await;
        played.asked().await.status(403, "namespaces is forbidden").await;
    }
    played.asked().await.status(500, "later").await;
    let says = played.leadership.waits_for().unwrap();
    assert!(
        says.contains("kubectl create namespace ovn") && says.contains("ovn/ovn-kubernetes-master"),
        "{says}"
    );
}

#[tokio::test(start_paused = true)]
async fn another_ones_lease_is_taken_only_after_it_was_seen_unchanged_for_its_duration() {
    let mut played = Played::start(candidate("node2")).await;
    let mut seen = Instant::now();
    // The holder renews once while the candidate waits.
    for version in ["7", "8"] {
        for _ in 0..3 {
            let read = played.asked().await;
            assert_eq!(read.method, "GET");
            read.json(&held_by("node1", version, if version == "7" { 3 } else { 4 })).await;
        }
        if version == "7" {
            seen = Instant::now();
        }
    }
    assert!(played.leadership.waits_for().unwrap().starts_with("node1 holds the lease"));
    let taken = loop {
        let asked = played.asked().await;
        match asked.method.as_str() {
            "GET" => asked.json(&held_by("node1", "8", 4)).await,
            _ => break asked,
        }
    };
    assert!(seen.elapsed() >= Duration::from_secs(137), "{:?}", seen.elapsed());
    assert!(seen.elapsed() <= Duration::from_secs(137 + 32), "{:?}", seen.elapsed());
    let lease = accept(taken, "PUT", "9").await;
    assert_eq!(
        (&lease["spec"]["leaseTransitions"], &lease["spec"]["holderIdentity"]),
        (&json!(5), &json!("node2"))
    );
    played.leadership.won().await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_let_go_of_is_taken_at_once() {
    let mut played = Played::start(candidate("node2")).await;
    played.api.asked().await.json(&held_by("node1", "7", 3)).await;
    let watch = played.api.asked().await;
    assert!(watch.is_watch());
    assert_eq!(
        (watch.parameter("fieldSelector"), watch.parameter("resourceVersion")),
        (Some("metadata.name%3Dovn-kubernetes-master"), Some("7"))
    );
    let mut events = watch.begin().await;
    let begun = Instant::now();
    events.send("MODIFIED", &held_by("", "9", 3)).await;
    let read = played.api.asked().await;
    assert_eq!(read.method, "GET");
    read.json(&held_by("", "9", 3)).await;
    accept(played.api.asked().await, "PUT", "10").await;
    played.leadership.won().await;
    assert!(begun.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_lease_counts_from_its_renewal_and_not_from_the_next_attempt() {
    let mut played = Played::start(candidate("node2")).await;
    played.api.asked().await.json(&held_by("node1", "7", 3)).await;
    let mut events = played.api.asked().await.begin().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    // The holder renews once more and then dies.
    events.send("MODIFIED", &held_by("node1", "8", 4)).await;
    let renewed = Instant::now();
    let taken = loop {
        let asked = played.api.asked().await;
        match asked.method.as_str() {
            "GET" if asked.is_watch() => {
                asked.status(403, "leases is forbidden: may not watch").await
            }
            "GET" => asked.json(&held_by("node1", "8", 4)).await,
            _ => break asked,
        }
    };
    assert_eq!(renewed.elapsed().as_secs(), 137);
    accept(taken, "PUT", "9").await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_deleted_is_no_sign_that_its_holder_knows() {
    let mut played = Played::start(candidate("node2")).await;
    let begun = Instant::now();
    played.asked().await.json(&held_by("node1", "7", 3)).await;
    let created = loop {
        let asked = played.asked().await;
        match asked.method.as_str() {
            "GET" => asked.status(404, "not found").await,
            _ => break asked,
        }
    };
    assert!(begun.elapsed() >= Duration::from_secs(137), "{:?}", begun.elapsed());
    accept(created, "POST", "9").await;
}

#[tokio::test(start_paused = true)]
async fn the_own_lease_of_before_is_resumed_unless_its_process_may_live() {
    let mut played = Played::start(candidate("node1")).await;
    let begun = Instant::now();
    played.asked().await.json(&held_by("node1", "7", 3)).await;
    accept(played.asked().await, "PUT", "8").await;
    played.leadership.won().await;
    assert!(begun.elapsed() < Duration::from_secs(1));

    let mut played =
        Played::start(ElectionConfig { own_lease: OwnLease::Wait, ..candidate("node1") }).await;
    played.asked().await.json(&held_by("node1", "7", 3)).await;
    assert_eq!(played.asked().await.method, "GET");
}

#[tokio::test(start_paused = true)]
async fn the_own_lease_of_a_process_whose_lock_is_free_is_taken_at_once_and_says_so() {
    let mark = Mark { boot: "b1".to_owned(), file: "25:7".to_owned(), machine: None };
    let with_lock = |held| ElectionConfig {
        own_lease: OwnLease::Lock(HostLock { mark: mark.clone(), held }),
        ..candidate("node1")
    };
    let left_by = |file: &str, version: &str| {
        let mut lease = held_by("node1", version, 3);
        lease["metadata"]["annotations"] =
            json!({"ovn-kubernetes/holder-lock": format!("boot=b1 file={file}"), "other": "kept"});
        lease
    };
    let (free, held) = watch::channel(false);
    let mut played = Played::start(with_lock(held)).await;
    let begun = Instant::now();
    // The holder is alive: stopped, or a second process of the same name.
    played.asked().await.json(&left_by("25:7", "7")).await;
    played.asked().await.json(&left_by("25:7", "7")).await;
    assert!(begun.elapsed() > Duration::from_secs(25), "{:?}", begun.elapsed());
    // It is killed.
    let ended = Instant::now();
    free.send_replace(true);
    let taken = loop {
        let asked = played.asked().await;
        match asked.method.as_str() {
            "GET" => asked.json(&left_by("25:7", "7")).await,
            _ => break asked,
        }
    };
    let lease = accept(taken, "PUT", "8").await;
    assert!(ended.elapsed() < Duration::from_secs(1), "{:?}", ended.elapsed());
    assert_eq!(
        lease["metadata"]["annotations"],
        json!({"ovn-kubernetes/holder-lock": "boot=b1 file=25:7", "other": "kept"})
    );
    played.leadership.won().await;

    // A process of the same name on another host holds another lock.
    let mut played = Played::start(with_lock(watch::channel(true).1)).await;
    played.asked().await.json(&left_by("25:8", "7")).await;
    assert_eq!(played.asked().await.method, "GET");
}

#[tokio::test(start_paused = true)]
async fn a_candidate_that_was_overtaken_waits_again() {
    let mut played = Played::start(candidate("node2")).await;
    played.asked().await.json(&held_by("", "7", 3)).await;
    let put = played.asked().await;
    let sent: Value = serde_json::from_slice(&put.body).unwrap();
    assert_eq!(
        sent["metadata"]["resourceVersion"], "7",
        "it replaces what was read, and nothing newer"
    );
    put.status(409, "the object has been modified").await;
    played.asked().await.json(&held_by("node3", "8", 4)).await;
    assert_eq!(played.asked().await.method, "GET");
    assert!(!played.leadership.is_leader());
}

#[tokio::test(start_paused = true)]
async fn a_leader_renews_with_what_it_wrote_last() {
    let (mut played, first) = Played::leader().await;
    let begun = Instant::now();
    for version in 2..6 {
        let put = played.asked().await;
        assert_eq!(Instant::now().duration_since(begun).as_secs(), 26 * (version - 1));
        let renewed = accept(put, "PUT", &version.to_string()).await;
        let (spec, before) = (&renewed["spec"], &first["spec"]);
        assert_eq!(
            (&spec["acquireTime"], &spec["leaseTransitions"]),
            (&before["acquireTime"], &before["leaseTransitions"])
        );
    }
    assert!(played.leadership.is_leader());
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_at_the_deadline_counted_from_its_last_question() {
    let (mut played, _) = Played::leader().await;
    let renewal = played.asked().await;
    let asked = Instant::now();
    // The answer is slow.
    tokio::time::sleep(Duration::from_secs(7)).await;
    accept(renewal, "PUT", "2").await;
    let leadership = played.leadership.clone();
    let lost = tokio::spawn(async move {
        leadership.lost().await;
        Instant::now()
    });
    let api = tokio::spawn(async move {
        loop {
            played.api.asked().await.status(500, "etcd is gone").await;
        }
    });
    assert_eq!(lost.await.unwrap().duration_since(asked).as_secs(), 107);
    let lost = played.elector.lost().await;
    assert!(
        matches!(&lost, Lost::Late { problem, .. } if problem.contains("etcd is gone")),
        "{lost}"
    );
    assert!(!played.leadership.is_leader());
    api.abort();
}

#[tokio::test(start_paused = true)]
async fn a_process_that_was_stopped_for_long_knows_that_it_leads_no_more() {
    // The state when no task had a chance to run: the clock alone decides.
    let (sender, state) = watch::channel(State::Leading {
        until: Some(Moment::now().after(Duration::from_secs(107))),
    });
    let leadership = Leadership {
        states: vec![state],
        durations: Some(Durations::default()),
        resigned: watch::channel(false).0,
    };
    assert!(leadership.is_leader());
    tokio::time::advance(Duration::from_secs(108)).await;
    assert!(!leadership.is_leader());
    drop(sender);
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_lease_was_taken_stops_at_once_and_one_whose_answer_was_lost_goes_on() {
    let (mut played, first) = Played::leader().await;
    // The API server has written the Lease, but its answer is lost.
    let lost_answer = played.asked().await;
    let mut written: Value = serde_json::from_slice(&lost_answer.body).unwrap();
    written["metadata"]["resourceVersion"] = "2".into();
    lost_answer.status(500, "timeout").await;
    played.asked().await.status(409, "the object has been modified").await;
    played.asked().await.json(&written).await;
    let again = accept(played.asked().await, "PUT", "3").await;
    assert_eq!(again["spec"]["acquireTime"], first["spec"]["acquireTime"]);
    assert!(played.leadership.is_leader());

    played.asked().await.status(409, "the object has been modified").await;
    played.asked().await.json(&held_by("node1", "9", 1)).await;
    let lost = played.elector.lost().await;
    assert_eq!(
        lost.to_string(),
        "the lease ovn/ovn-kubernetes-master was taken by another process that calls itself node1"
    );
    assert!(!played.leadership.is_leader());
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_resigns_leads_no_more_while_it_has_the_lease_and_its_requests_end_before_others_lead()
 {
    let (played, _) = Played::leader().await;
    let clone = played.leadership.clone();
    let lost = tokio::spawn(async move { clone.lost().await });
    assert!(!played.leadership.has_resigned() && played.leadership.is_elected());
    played.leadership.resign();
    lost.await.unwrap();
    assert!(!played.leadership.is_leader() && played.leadership.has_resigned());
    assert_eq!(
        played.leadership.patience(),
        Duration::from_secs(15),
        "half of what is between 107 s and 137 s"
    );

    let always = Leadership::always();
    assert_eq!(
        (always.is_leader(), always.is_elected(), always.patience()),
        (true, false, Duration::from_secs(30))
    );
    always.resign();
    always.lost().await;
}

#[tokio::test(start_paused = true)]
async fn a_clean_stop_ends_leadership_and_then_lets_go() {
    let (mut played, _) = Played::leader().await;
    let leadership = played.leadership.clone();
    let release = tokio::spawn(played.elector.release());
    let put = played.api.asked().await;
    assert!(!leadership.is_leader(), "a process must not lead while another one takes over");
    // A renewal that was under way arrived first.
    put.status(409, "the object has been modified").await;
    let mut newer: Value = held_by("node1", "5", 0);
    let sent = {
        let read = played.api.asked().await;
        assert_eq!(read.method, "GET");
        newer["spec"]["holderIdentity"] = "node2".into();
        read.json(&newer).await;
        release.await
    };
    assert!(sent.is_ok(), "a Lease that another process holds is left alone");

    let (mut played, _) = Played::leader().await;
    let release = tokio::spawn(played.elector.release());
    let lease = accept(played.api.asked().await, "PUT", "2").await;
    assert_eq!(
        (&lease["spec"]["holderIdentity"], &lease["spec"]["leaseDurationSeconds"]),
        (&json!(""), &json!(1))
    );
    release.await.unwrap();
}

#[test]
fn durations_that_let_two_lead_are_refused() {
    let seconds = Duration::from_secs;
    assert!(Durations::new(seconds(137), seconds(107), seconds(26)).is_ok());
    for (lease, renew, retry) in [(107, 107, 26), (60, 107, 26), (137, 26, 26), (137, 107, 0)] {
        assert!(
            Durations::new(seconds(lease), seconds(renew), seconds(retry)).is_err(),
            "{lease} {renew} {retry}"
        );
    }
    assert!(Durations::new(Duration::from_millis(2500), seconds(2), seconds(1)).is_err());
}
