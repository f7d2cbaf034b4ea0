use contract::{
    stage::{Stage, StageTime},
    wire::Rollback,
};
use prometheus::TextEncoder;

use super::*;

pub(crate) fn registered() -> (Registry, Metrics) {
    let registry = Registry::new();
    let metrics = Metrics::register(&registry).unwrap();
    (registry, metrics)
}

pub(crate) fn text(registry: &Registry) -> String {
    TextEncoder::new().encode_to_string(&registry.gather()).unwrap()
}

/// The value of this sample.
fn value(registry: &Registry, sample: &str) -> Option<f64> {
    text(registry)
        .lines()
        .find_map(|line| line.strip_prefix(sample)?.strip_prefix(' ')?.parse().ok())
}

fn report(command: &str) -> wire::Metrics {
    serde_json::from_value(
        serde_json::json!({"command": command, "elapsedTime": 0.25, "hasErr": false}),
    )
    .unwrap()
}

#[test]
fn what_upstreams_plugin_reports_is_counted_under_upstreams_names() {
    let (registry, metrics) = registered();
    metrics.reported(&report("ADD"));
    metrics.reported(&wire::Metrics { has_err: true, ..report("DEL") });
    for (sample, expected) in [
        (r#"ovnkube_node_cni_request_duration_seconds_count{command="ADD",err="false"}"#, 1.0),
        (
            r#"ovnkube_node_cni_request_duration_seconds_bucket{command="ADD",err="false",le="0.2"}"#,
            0.0,
        ),
        (
            r#"ovnkube_node_cni_request_duration_seconds_bucket{command="ADD",err="false",le="0.4"}"#,
            1.0,
        ),
        (
            r#"ovnkube_node_cni_request_duration_seconds_bucket{command="DEL",err="true",le="1638.4"}"#,
            1.0,
        ),
        (r#"ovnkube_node_cni_errors_total{code="999",command="DEL",stage="none"}"#, 1.0),
    ] {
        assert_eq!(value(&registry, sample), Some(expected), "{sample}");
    }
}

#[test]
fn the_version_of_the_plugin_that_called_last_is_kept_with_a_bound() {
    let (_, metrics) = registered();
    assert_eq!(metrics.plugin(), None);
    metrics.reported(&wire::Metrics { version: "2.0".to_owned(), ..report("ADD") });
    assert_eq!(metrics.plugin().as_deref(), Some("2.0"));
    metrics.reported(&report("DEL"));
    assert_eq!(metrics.plugin().as_deref(), Some(""), "upstream's does not say its version");
    metrics.reported(&wire::Metrics { version: "9".repeat(1 << 20), ..report("ADD") });
    assert_eq!(metrics.plugin().unwrap().len(), 64);
}

#[test]
fn a_failed_add_is_counted_by_stage_and_code_with_its_rollback() {
    let (registry, metrics) = registered();
    let times = |stage, start, end| StageTime { stage, start, end };
    metrics.reported(&wire::Metrics {
        has_err: true,
        code: Some(11),
        stages: vec![times(Stage::Veth, 1.0, 4.0), times(Stage::OvnInstalled, 4.0, 2_004.0)],
        failed_stage: Some(Stage::OvnInstalled),
        rollback: Some(Rollback::Clean),
        ..report("ADD")
    });
    for (sample, expected) in [
        (r#"ovnkube_node_cni_errors_total{code="11",command="ADD",stage="ovn_installed"}"#, 1.0),
        (r#"ovnkube_node_cni_rollbacks_total{outcome="clean"}"#, 1.0),
        (r#"ovnkube_node_cni_rollbacks_total{outcome="leftover"}"#, 0.0),
        (r#"ovnkube_node_cni_stage_duration_seconds_bucket{stage="veth",le="0.002"}"#, 0.0),
        (r#"ovnkube_node_cni_stage_duration_seconds_bucket{stage="veth",le="0.004"}"#, 1.0),
        (r#"ovnkube_node_cni_stage_duration_seconds_count{stage="port"}"#, 0.0),
        ("ovs_vswitchd_interface_up_wait_seconds_total", 2.0),
    ] {
        assert_eq!(value(&registry, sample), Some(expected), "{sample}");
    }
}

#[test]
fn no_report_makes_the_list_of_series_longer_than_the_sets_that_labels_come_from() {
    let (registry, metrics) = registered();
    for n in 0..1000 {
        let bad = |command: String| wire::Metrics {
            has_err: true,
            code: Some(n + 1000),
            message: Some(command.clone()),
            ..report(&command)
        };
        metrics.reported(&bad(format!("verb-{n}\n\"")));
        drop(metrics.in_progress(Some(&format!("verb-{n}"))));
    }
    assert_eq!(
        value(
            &registry,
            r#"ovnkube_node_cni_errors_total{code="999",command="other",stage="none"}"#
        ),
        Some(1000.0)
    );
    assert_eq!(
        value(&registry, r#"ovnkube_node_cni_requests_in_flight{command="other"}"#),
        Some(0.0)
    );
    let text = text(&registry);
    assert!(!text.contains("verb-"), "{text}");
    assert!(text.lines().count() < 500, "{}", text.lines().count());
}

#[test]
fn a_report_of_impossible_times_spoils_no_sum() {
    let (registry, metrics) = registered();
    for seconds in [-1.0, 1e300, f64::NAN, f64::INFINITY] {
        let stages = vec![StageTime { stage: Stage::OvnInstalled, start: 0.0, end: seconds }];
        metrics.reported(&wire::Metrics { elapsed_time: seconds, stages, ..report("ADD") });
    }
    assert_eq!(
        value(&registry, r#"ovnkube_node_cni_call_duration_seconds_count{command="ADD"}"#),
        Some(0.0)
    );
    assert_eq!(value(&registry, "ovs_vswitchd_interface_up_wait_seconds_total"), Some(0.0));
}

#[test]
fn what_goes_on_is_counted_until_it_ends_however_it_ends() {
    let (registry, metrics) = registered();
    let in_flight = r#"ovnkube_node_cni_requests_in_flight{command="ADD"}"#;
    let add = metrics.in_progress(Some("ADD"));
    let connection = metrics.connected();
    assert_eq!(
        (value(&registry, in_flight), value(&registry, "ovnkube_node_cni_connections")),
        (Some(1.0), Some(1.0))
    );
    drop((add, connection));
    assert_eq!(
        (value(&registry, in_flight), value(&registry, "ovnkube_node_cni_connections")),
        (Some(0.0), Some(0.0))
    );
    assert_eq!(value(&registry, "ovnkube_node_cni_connections_total"), Some(1.0));

    metrics.annotation_wait().ended(&Ok::<_, ()>(()));
    metrics.annotation_wait().ended(&Err::<(), _>(()));
    drop(metrics.annotation_wait());
    for outcome in ["answered", "refused", "hung-up"] {
        let sample =
            format!(r#"ovnkube_node_cni_annotation_wait_seconds_count{{outcome="{outcome}"}}"#);
        assert_eq!(value(&registry, &sample), Some(1.0), "{sample}");
    }
    metrics.refused(Code::TryAgain);
    assert_eq!(
        value(&registry, r#"ovnkube_node_cni_requests_refused_total{code="11"}"#),
        Some(1.0)
    );
    metrics.reconnected(Peer::ApiServer);
    assert_eq!(value(&registry, r#"ovnkube_node_reconnects_total{peer="api-server"}"#), Some(1.0));
    assert_eq!(
        value(&registry, r#"ovnkube_node_reconnects_total{peer="open-vswitch"}"#),
        Some(0.0)
    );
}

#[test]
fn the_time_until_the_node_was_ready_is_told_once_it_is() {
    let (registry, metrics) = registered();
    assert_eq!(value(&registry, "ovnkube_node_ready_duration_seconds"), Some(0.0));
    metrics.became_ready();
    assert!(
        value(&registry, "ovnkube_node_ready_duration_seconds")
            .is_some_and(|seconds| seconds > 0.0)
    );
}
