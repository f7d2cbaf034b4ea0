//! `ovnkube diagnose` and an API server that refuses: what is missing is named, with the command
//! that shows it.

#![expect(clippy::unwrap_used, reason = "the shared parts of tests fail by panicking")]

use std::process::Command;

use serde_json::{Value, json};
use testkit::{ScriptedApi, scripted_api::Asked};

/// What the command says of `shop/cart`, while `answer` answers its requests.
async fn diagnosis<F: Future<Output = ()>>(answer: impl Fn(Asked) -> F) -> (Value, i32) {
    let mut api = ScriptedApi::start().await;
    let mut command = Command::new(env!("CARGO_BIN_EXE_ovnkube"));
    command
        .env_clear()
        .args(["diagnose", "shop/cart", "-o", "json", "--ovsdb-endpoint=unix:/nowhere"])
        .arg(format!("--k8s-apiserver={}", api.url));
    let output = tokio::task::spawn_blocking(move || command.output().unwrap());
    tokio::pin!(output);
    let output = loop {
        tokio::select! {
            output = &mut output => break output.unwrap(),
            asked = api.asked() => answer(asked).await,
        }
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let report = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}{errors}"));
    (report, output.status.code().unwrap())
}

/// The finding of that name.
fn named<'a>(report: &'a Value, name: &str) -> &'a Value {
    let findings = report["findings"].as_array().unwrap();
    let found = findings.iter().find(|finding| finding["name"] == name);
    found.unwrap_or_else(|| panic!("{name}: {report:#}"))
}

#[tokio::test]
async fn a_missing_right_and_an_api_server_that_has_too_much_to_do_are_named() {
    for (code, next) in [(403, "kubectl auth can-i get pods"), (429, "priority_and_fairness")] {
        let (report, status) = diagnosis(|asked| asked.status(code, "no")).await;
        let finding = named(&report, "API server");
        assert_eq!((finding["state"].as_str(), status), (Some("unknown"), 3), "{report:#}");
        assert!(finding["next"].as_str().unwrap().contains(next), "{report:#}");
    }
}

#[tokio::test]
async fn a_pod_that_is_made_in_the_future_shows_that_a_clock_is_behind() {
    let pod = json!({
        "metadata": {
            "namespace": "shop", "name": "cart", "creationTimestamp": "2999-01-01T00:00:00Z",
        },
        "spec": {"nodeName": "n1"}, "status": {"phase": "Pending"},
    });
    let answer = |asked: Asked| async {
        match asked.path.split('?').next() {
            Some(path) if path.ends_with("/pods/cart") => asked.json(&pod).await,
            _ => asked.json(&json!({"items": []})).await,
        }
    };
    let (report, _) = diagnosis(answer).await;
    let finding = named(&report, "clock");
    assert_eq!(finding["state"], "warning", "{report:#}");
    assert!(finding["next"].as_str().unwrap().contains("chronyc"), "{report:#}");
    // The pod is on another node, whose server alone sees into it.
    assert_eq!(named(&report, "namespace")["state"], "skipped", "{report:#}");
}
