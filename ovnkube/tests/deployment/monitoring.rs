//! Dashboards and alerts: every metric and label in them exists, Prometheus can compute them, and
//! each alert fires when it should.
//!
//! | module | what it does |
//! |---|---|
//! | `series` | what can be measured |
//! | `expression` | names in expressions |
//! | `machine` | OVN's and Open vSwitch's daemons |
//! | `alerts` | cases of alerts, by promtool |
//! | `prometheus` | a real Prometheus |

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use testkit::executable;

use self::expression::check;
use crate::manifests::{conf, read};

#[path = "monitoring/alerts.rs"]
mod alerts;
#[path = "monitoring/expression.rs"]
mod expression;
#[path = "monitoring/machine.rs"]
mod machine;
#[path = "monitoring/prometheus.rs"]
mod prometheus;
#[path = "monitoring/series.rs"]
mod series;

/// Limit for a daemon to do its work, on a busy machine.
const SOON: Duration = Duration::from_secs(30);

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

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    alert: String,
    expr: String,
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    lasting: Option<String>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

/// The files of a kind that are installed.
fn files(prefix: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(conf("monitoring"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(prefix))
        .collect();
    files.sort();
    files
}

fn rule_files() -> Vec<PathBuf> {
    files("prometheus-rules")
}

fn rules() -> Vec<Rule> {
    let groups = rule_files()
        .into_iter()
        .flat_map(|file| serde_yaml_ng::from_str::<RuleFile>(&read(&file)).unwrap().groups);
    groups
        .flat_map(|Group { name, rules }| {
            assert!(!name.is_empty());
            rules
        })
        .collect()
}

/// The expressions of dashboards, each with its file and panel.
fn dashboards() -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    for file in files("grafana-") {
        let dashboard: Value = serde_json::from_str(&read(&file)).unwrap();
        let file = file.file_name().unwrap().to_str().unwrap();
        for panel in dashboard["panels"].as_array().unwrap() {
            for target in panel["targets"].as_array().unwrap_or(&Vec::new()) {
                let text = |value: &Value| value.as_str().unwrap().to_owned();
                found.push((file.to_owned(), text(&panel["title"]), text(&target["expr"])));
            }
        }
    }
    found
}

#[test]
fn alerts_and_panels_are_about_what_is_measured() {
    let known = series::all();
    for Rule { alert: _, expr, .. } in rules() {
        check(&expr, &known);
    }
    for (_, _, expression) in dashboards() {
        check(&expression, &known);
    }
    for file in files("grafana-") {
        let dashboard: Value = serde_json::from_str(&read(&file)).unwrap();
        check(dashboard["templating"]["list"][1]["query"].as_str().unwrap(), &known);
    }
}

#[test]
fn each_alert_says_what_is_wrong_and_what_to_run_next() {
    let page = read(&executable::workspace().join("docs/how-to/alerts.md"));
    let mut names = BTreeSet::new();
    for Rule { alert, expr: _, lasting, labels, annotations } in rules() {
        assert!(
            lasting.as_ref().is_none_or(|time| time.ends_with(['m', 'h']))
                && ["critical", "warning"].contains(&labels["severity"].as_str()),
            "{alert}"
        );
        assert!(annotations.keys().eq(["command", "description", "summary"]), "{alert}");
        let row = format!("| `{alert}` | {} |", labels["severity"]);
        assert!(page.contains(&row), "docs/how-to/alerts.md has no row {row}");
        assert!(names.insert(alert.clone()), "twice: {alert}");
    }
    let listed = page.lines().filter(|line| line.starts_with("| `Ov")).count();
    assert_eq!(listed, names.len(), "docs/how-to/alerts.md has alerts that are gone");
    // Panels that name an alert.
    for file in files("grafana-") {
        let text = read(&file);
        for word in text.split(|c: char| !c.is_ascii_alphanumeric()) {
            let is_name = word.starts_with("Ovn") || word.starts_with("Ovs");
            assert!(!is_name || names.contains(word), "{}: {word}", file.display());
        }
    }
}

#[test]
fn dashboards_begin_with_what_is_wrong_and_no_panel_covers_another() {
    let mut uids = BTreeSet::new();
    for file in files("grafana-") {
        let dashboard: Value = serde_json::from_str(&read(&file)).unwrap();
        let name = file.display();
        assert!(uids.insert(dashboard["uid"].as_str().unwrap().to_owned()), "{name}");
        let variables = dashboard["templating"]["list"].as_array().unwrap();
        let names: Vec<&str> =
            variables.iter().map(|variable| variable["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["datasource", "instance"], "{name}");
        let panels = dashboard["panels"].as_array().unwrap();
        // States first: what is red is seen without scrolling.
        assert!(panels.iter().take(6).all(|panel| panel["type"] == "stat"), "{name}");
        let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
        for panel in panels {
            let number = |field: &str| panel["gridPos"][field].as_u64().unwrap();
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{name}: {panel:#}");
            assert!(number("x") + number("w") <= 24, "{name}: {panel:#}");
            for x in number("x")..number("x") + number("w") {
                for y in number("y")..number("y") + number("h") {
                    assert!(cells.insert((x, y)), "{name}: {panel:#}");
                }
            }
        }
    }
    assert_eq!(uids.len(), 4);
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
    for (name, mut labels) in
        series::of_servers().into_iter().filter(|(name, _)| name.starts_with("ovnkube_node_"))
    {
        labels.remove("le");
        let family = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix))
            .unwrap_or(&name);
        measured.insert(family.to_owned(), labels);
    }
    assert!(listed.keys().eq(measured.keys()), "{listed:#?} {measured:#?}");
    for (name, labels) in listed {
        assert!(
            labels.is_none_or(|labels| labels == measured[&name]),
            "{name}: {:?}",
            measured[&name]
        );
    }
}
