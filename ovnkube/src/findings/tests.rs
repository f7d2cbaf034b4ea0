use serde_json::json;

use super::*;

fn report() -> Report {
    let long = "ovs-vswitchd does not answer within 5 s at /var/run/openvswitch/ovs-vswitchd.123.ctl, so that no pod gets its port";
    Report::new(
        "Status",
        vec![
            Finding::new("databases", "northbound", State::Ok, "standalone")
                .with("rows", 12)
                .with("members", json!(["a", {"b": 1}])),
            Finding::new("nodes", "worker-1.with-a-long-name.example.org", State::Failed, long)
                .next("systemctl status openvswitch-switch"),
        ],
    )
}

#[test]
fn the_text_has_eighty_columns_a_heading_for_each_subject_and_what_to_do_next() {
    let text = report().output(Format::Text, Colour::Plain);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    for part in [
        "databases\n",
        "\nnodes\n",
        "ok       northbound",
        "next: systemctl status",
        "Status: 1 FAILED, 1 ok\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains('\u{1b}'), "{text}");
    assert!(report().output(Format::Text, Colour::Terminal).contains("\u{1b}[31mFAILED"));
}

#[test]
fn yaml_and_json_say_the_same() {
    let report = report();
    let json: Value = serde_json::from_str(&report.output(Format::Json, Colour::Plain)).unwrap();
    let yaml: Value = serde_yaml_ng::from_str(&report.output(Format::Yaml, Colour::Plain)).unwrap();
    assert_eq!(json, yaml);
    assert_eq!(json["apiVersion"], "report.k8s.ovn.org/v1");
    assert_eq!(json["state"], "failed");
    assert_eq!(json["findings"][0]["details"]["members"][1]["b"], 1);
}

#[test]
fn nothing_of_a_users_text_reaches_a_terminal_that_it_would_obey() {
    let hostile = "a\u{1b}[2Jb\rc\u{202e}d\u{9b}31m";
    let finding = Finding::new("nodes", hostile, State::Ok, hostile)
        .next(hostile)
        .with("text", hostile)
        .with("texts", json!([hostile, {"text": hostile}]));
    for format in [Format::Text, Format::Json, Format::Yaml] {
        let output = Report::new("Status", vec![finding.clone()]).output(format, Colour::Plain);
        assert!(
            output.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'),
            "{output:?}"
        );
    }
    assert_eq!(printable("a\u{1b}b"), "a\\u{1b}b");
}

#[test]
fn long_texts_and_many_findings_are_bounded_and_the_worst_state_counts() {
    let text = "x".repeat(100_000);
    let mut findings = vec![Finding::new("nodes", &text, State::Ok, &text); 5_000];
    findings.push(Finding::new("nodes", "last", State::Unknown, "no answer"));
    let report = Report::new("Status", findings);
    assert_eq!(report.findings.len(), MOST_ALIKE + 1);
    assert!(report.output(Format::Text, Colour::Plain).len() < 200_000);
    assert_eq!(report.exit_status(), 3);
    let skipped =
        Report::new("Status", vec![Finding::new("nodes", "a", State::Skipped, "not asked")]);
    assert_eq!(skipped.exit_status(), 0);
}

#[test]
fn the_reference_page_has_every_field_of_a_report() {
    let page = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../docs/reference/report.md"
    ))
    .unwrap();
    let findings =
        vec![Finding::new("nodes", "a", State::Ok, "a").next("b").with("c", 1); MOST_ALIKE + 1];
    let report = Report::new("Status", findings).json();
    for field in report.as_object().unwrap().keys() {
        assert!(page.contains(&format!("| `{field}` |")), "{field}");
    }
    for field in report["findings"][0].as_object().unwrap().keys() {
        assert!(page.contains(&format!("| `findings[].{field}` |")), "{field}");
    }
    for state in [State::Ok, State::Skipped, State::Warning, State::Unknown, State::Failed] {
        let word = serde_json::to_value(state).unwrap();
        assert!(page.contains(&format!("`{}`", word.as_str().unwrap())), "{word}");
    }
}

/// Written anew with `UPDATE_SCHEMA=1`.
#[test]
fn the_published_schema_is_that_of_every_report() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/report.schema.json");
    let schema = format!("{:#}\n", serde_json::to_value(schemars::schema_for!(Report)).unwrap());
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(path, &schema).unwrap();
    }
    let published = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(published, schema, "docs/reference/report.schema.json is another one");
}
