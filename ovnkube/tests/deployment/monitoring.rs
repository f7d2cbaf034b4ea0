//! Dashboard and alerts: every metric and label in them exists.

use std::collections::{BTreeMap, BTreeSet};

use contract::{error::Code, ovn::DryRun};
use ovnkube::{
    metrics::{ControlPlaneMetrics, Page},
    roles::{self, Roles},
};
use serde::Deserialize;
use serde_json::{Value, json};
use server::{conditions::Conditions, metrics::Metrics};
use testkit::executable;

use crate::manifests::{conf, read};

/// Labels that are not in `series`: Prometheus adds `instance`, and `le` is in expressions only.
const NOT_OURS: [&str; 2] = ["instance", "le"];

/// A file of rules (Prometheus, "Recording rules" and "Alerting rules").
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    name: String,
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    alert: String,
    expr: String,
    #[serde(default, rename = "for")]
    lasting: Option<String>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

/// The labels of every series that a server can have, by the series' name.
fn series() -> BTreeMap<String, BTreeSet<String>> {
    let log = tempfile::NamedTempFile::new().unwrap();
    let page = Page::of_node([log.path().to_owned()]).unwrap();
    let metrics = Metrics::register(page.registry()).unwrap();
    metrics.refused(Code::TryAgain);
    metrics.reported(
        &serde_json::from_value(json!({"command": "ADD", "elapsedTime": 1.0, "hasErr": true})).unwrap(),
    );
    let dry_run = DryRun { namespace: "shop".to_owned(), policy: "db".to_owned(), direction: "Ingress" };
    metrics.count_dry_runs(move || Ok([(dry_run.clone(), 1)].into()));
    let of_control_plane = Page::of_control_plane(Roles::Both, log.path().to_owned()).unwrap();
    let _metrics = ControlPlaneMetrics::register(Roles::Both, of_control_plane.registry()).unwrap();
    let of_control_plane = of_control_plane.text(&Conditions::of(roles::NEEDS)).unwrap();
    let text = page.text(&Conditions::default()).unwrap() + &of_control_plane;
    let mut series: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, labels) = line.split_once('{').unwrap_or((line.split(' ').next().unwrap(), ""));
        let labels = labels
            .split("\",")
            .filter_map(|label| label.split_once("=\""))
            .map(|(label, _)| label.to_owned());
        series.entry(name.to_owned()).or_default().extend(labels);
    }
    series
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Checks that the series of an expression exist and have the labels of its selectors. Returns their number.
fn check(expression: &str, known: &BTreeMap<String, BTreeSet<String>>) -> usize {
    let mut found = 0;
    let mut rest = expression;
    while let Some(start) =
        ["ovnkube_", "ovs_", "process_"].iter().filter_map(|prefix| rest.find(prefix)).min()
    {
        let name: String = rest[start..].chars().take_while(|c| is_word(*c)).collect();
        rest = &rest[start + name.len()..];
        let labels = known.get(&name).unwrap_or_else(|| panic!("{name} does not exist: {expression}"));
        let selector =
            rest.strip_prefix('{').map(|rest| &rest[..rest.find('}').unwrap()]).unwrap_or_default();
        for matcher in selector.split(',').filter(|matcher| !matcher.trim().is_empty()) {
            let label: String = matcher.trim().chars().take_while(|c| is_word(*c)).collect();
            assert!(
                labels.contains(&label) || NOT_OURS.contains(&label.as_str()),
                "{name} has no label {label}: {expression}"
            );
        }
        found += 1;
    }
    // Labels in `by (…)` are labels of a series in the expression.
    for list in expression.split("by (").skip(1) {
        for label in list[..list.find(')').unwrap()].split(',').map(str::trim) {
            let ours = known
                .iter()
                .any(|(name, labels)| expression.contains(name.as_str()) && labels.contains(label));
            assert!(ours || NOT_OURS.contains(&label), "nothing has a label {label}: {expression}");
        }
    }
    found
}

#[test]
fn every_alert_is_about_something_that_is_measured() {
    let RuleFile { groups } = serde_yaml_ng::from_str(&read(&conf("prometheus-rules.yaml"))).unwrap();
    let known = series();
    let mut names = BTreeSet::new();
    for Rule { alert, expr, lasting, labels, annotations } in groups.iter().flat_map(|group| &group.rules) {
        assert!(check(expr, &known) > 0, "{alert}: {expr}");
        assert!(names.insert(alert), "twice: {alert}");
        assert!(
            lasting.as_ref().is_none_or(|time| time.ends_with('m')) && labels.contains_key("severity"),
            "{alert}"
        );
        assert!(annotations.keys().eq(["description", "summary"]), "{alert}");
    }
    assert!(!names.is_empty() && groups.iter().all(|group| !group.name.is_empty()));
}

#[test]
fn every_panel_shows_something_that_is_measured() {
    let dashboard: Value = serde_json::from_str(&read(&conf("grafana-dashboard.json"))).unwrap();
    let known = series();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    for panel in panels {
        assert!(
            ids.insert(panel["id"].as_u64().unwrap())
                && panel["title"].is_string()
                && panel["gridPos"]["w"].is_u64(),
            "{panel:#}"
        );
        for target in panel["targets"].as_array().unwrap() {
            assert!(check(target["expr"].as_str().unwrap(), &known) > 0, "{panel:#}");
        }
    }
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let used: Vec<&str> = variables.iter().map(|variable| variable["name"].as_str().unwrap()).collect();
    assert_eq!(used, ["datasource", "instance"]);
    assert!(check(variables[1]["query"].as_str().unwrap(), &known) > 0);
}

#[test]
fn the_page_lists_what_is_measured_with_its_labels() {
    let page = read(&executable::workspace().join("docs/metrics.md"));
    let rows = page
        .lines()
        .skip_while(|line| !line.starts_with("| measurement |"))
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let mut listed = BTreeMap::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let labels: BTreeSet<String> =
            cells[1].split(", ").filter(|label| !label.is_empty()).map(str::to_owned).collect();
        for name in cells[0].split(", ") {
            // Metrics of upstream have upstream's labels, which `tests/node/endpoints.rs` compares.
            let labels = Some(labels.clone()).filter(|_| cells[2] != "as upstream");
            listed.insert(format!("ovnkube_node_{}", name.trim_matches('`')), labels);
        }
    }
    let mut measured: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, mut labels) in series().into_iter().filter(|(name, _)| name.starts_with("ovnkube_node_")) {
        labels.remove("le");
        let family = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix))
            .unwrap_or(&name);
        measured.insert(family.to_owned(), labels);
    }
    assert!(listed.keys().eq(measured.keys()), "{listed:#?} {measured:#?}");
    for (name, labels) in listed {
        assert!(labels.is_none_or(|labels| labels == measured[&name]), "{name}: {:?}", measured[&name]);
    }
}
