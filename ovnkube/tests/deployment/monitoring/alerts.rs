//! Each alert fires and is silent as `alerts/*.yaml` say: by promtool, Prometheus' own tool for
//! that.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
};

use serde_json::{Value, json};
use testkit::{Scratch, command, executable, program};

use super::{Rule, machine::Machine, rule_files, rules};
use crate::manifests::{conf, documents, read};

/// Files of cases. Each has Prometheus' form of a test ("Unit testing for rules"); what every case
/// has in common with its rule is left out.
const CASES: [&str; 4] = ["node", "control-plane", "ovn", "open-vswitch"];

/// What this machine or a node has beside this project's own.
const PROGRAMS: [&str; 8] =
    ["awk", "df", "grep", "head", "journalctl", "kubectl", "ls", "ovs-vsctl"];

fn cases() -> Vec<Value> {
    let directory = executable::workspace().join("ovnkube/tests/deployment/alerts");
    let files = CASES.map(|name| read(&directory.join(format!("{name}.yaml"))));
    let parsed = files.iter().map(|text| serde_yaml_ng::from_str::<Value>(text).unwrap());
    parsed.flat_map(|file| file["tests"].as_array().unwrap().clone()).collect()
}

/// The case with what the rule says of each alert that it expects.
fn completed(mut case: Value, rules: &BTreeMap<String, Rule>) -> Value {
    for expected in case["alert_rule_test"].as_array_mut().unwrap() {
        let rule = &rules[expected["alertname"].as_str().unwrap()];
        for alert in expected["exp_alerts"].as_array_mut().unwrap() {
            if alert["exp_labels"].is_null() {
                alert["exp_labels"] = json!({});
            }
            alert["exp_labels"]["severity"] = json!(rule.labels["severity"]);
            for (name, text) in &rule.annotations {
                // What has a template stands in the case, as it is to be read.
                if !text.contains("{{") {
                    alert["exp_annotations"][name] = json!(text);
                }
            }
        }
    }
    case
}

#[test]
fn each_alert_fires_and_is_silent_as_its_cases_say() {
    let rules: BTreeMap<String, Rule> =
        rules().into_iter().map(|rule| (rule.alert.clone(), rule)).collect();
    let scratch = Scratch::new();
    let (mut fires, mut is_silent) = (BTreeSet::new(), BTreeSet::new());
    let mut files = Vec::new();
    for (number, case) in cases().into_iter().enumerate() {
        let mut about = BTreeSet::new();
        for expected in case["alert_rule_test"].as_array().unwrap() {
            let alert = expected["alertname"].as_str().unwrap().to_owned();
            let alerts = expected["exp_alerts"].as_array().unwrap();
            let seen = if alerts.is_empty() { &mut is_silent } else { &mut fires };
            seen.insert(alert.clone());
            about.insert(alert);
        }
        // Only the rules that the case is about: all of them in each case would take ten times as
        // long.
        let about: Vec<&Rule> = about.iter().map(|alert| &rules[alert]).collect();
        let of_case = scratch.join(format!("rules-{number}.yaml"));
        // JSON is YAML.
        fs::write(&of_case, json!({"groups": [{"name": "case", "rules": about}]}).to_string())
            .unwrap();
        let test = json!({
            "rule_files": [of_case],
            "evaluation_interval": "1m",
            "tests": [completed(case, &rules)],
        });
        let file = scratch.join(format!("case-{number}.yaml"));
        fs::write(&file, test.to_string()).unwrap();
        files.push(file);
    }
    let all: BTreeSet<String> = rules.into_keys().collect();
    assert_eq!((&fires, &is_silent), (&all, &all), "an alert has no case, or is gone");
    let promtool = || Command::new(executable::tool("promtool").unwrap());
    command::output(promtool().args(["test", "rules"]).args(&files)).unwrap();
    // Both files as they are installed, too.
    command::output(promtool().args(["check", "rules"]).args(rule_files())).unwrap();
}

#[test]
fn prometheus_can_be_configured_as_the_page_says() {
    let page = read(&executable::workspace().join("docs/how-to/alerts.md"));
    let (_, rest) = page.split_once("```yaml\n").unwrap();
    let (block, _) = rest.split_once("```").unwrap();
    let scratch = Scratch::new();
    let config = scratch.join("prometheus.yml");
    // The block is in an item of a list. Debian builds Prometheus without discovery in Kubernetes.
    let lines = block.lines().filter(|line| !line.contains("kubernetes_sd_configs"));
    let lines: Vec<&str> = lines.map(|line| line.strip_prefix("   ").unwrap_or(line)).collect();
    fs::write(&config, lines.join("\n")).unwrap();
    let mut promtool = Command::new(executable::tool("promtool").unwrap());
    command::output(promtool.args(["check", "config", "--syntax-only"]).arg(config)).unwrap();
}

#[test]
fn the_rules_are_objects_of_the_operator_as_the_page_says() {
    let page = read(&executable::workspace().join("docs/how-to/alerts.md"));
    let (_, rest) = page.split_once("```sh\n").unwrap();
    let (script, _) = rest.split_once("```").unwrap();
    // What would be applied; the dashboards' commands print nothing.
    let kubectl = "kubectl() { [ \"$1\" != apply ] || { cat; echo ---; }; }";
    let mut bash = Command::new("bash");
    bash.arg("-euc").arg(format!("{kubectl}\n{script}")).current_dir(conf("monitoring"));
    let objects = documents(&command::output(&mut bash).unwrap());
    let names: Vec<&Value> = objects.iter().map(|object| &object["metadata"]["name"]).collect();
    assert_eq!(names, ["prometheus-rules", "prometheus-rules-ovn"]);
    let groups = objects.iter().flat_map(|object| object["spec"]["groups"].as_array().unwrap());
    let count: usize = groups.map(|group| group["rules"].as_array().unwrap().len()).sum();
    assert_eq!(count, rules().len());
}

/// What a daemon knows on its control socket.
fn commands(control: &Path) -> Vec<String> {
    let list =
        program::output(program::command("ovs-appctl").arg("-t").arg(control).arg("list-commands"));
    let names = list.lines().filter_map(|line| line.split_whitespace().next());
    names.map(str::to_owned).collect()
}

/// Commands with a placeholder in capitals have it as an argument.
#[test]
fn the_command_of_each_alert_can_be_run() {
    let machine = Machine::start();
    let of_switch = commands(&machine.control("ovs-vswitchd"));
    let of_controller = commands(&machine.control("ovn-controller"));
    let of_northd = commands(&machine.control("ovn-northd"));
    let of_database = commands(&machine.node.ovn_run_dir().join("ovnnb_db.ctl"));
    for Rule { alert, annotations, .. } in rules() {
        // Behind `#` is where.
        let line = annotations["command"].split(" # ").next().unwrap();
        // Without what is quoted.
        let line: String = line.split('\'').step_by(2).collect();
        for part in line.split([';', '|']).map(str::trim) {
            let words: Vec<&str> = part.split_whitespace().collect();
            match words[..] {
                ["ovnkube", ref arguments @ ..] | ["kubectl", "ovn", ref arguments @ ..] => {
                    let mut command = Command::new(executable::path(executable::SERVER));
                    command::output(command.args(arguments).arg("--help")).unwrap();
                }
                ["ovn-appctl", "-t", "ovn-controller", name, ..] => {
                    assert!(of_controller.iter().any(|known| known == name), "{alert}: {part}");
                }
                ["ovn-appctl", "-t", "ovn-northd", name, ..] => {
                    assert!(of_northd.iter().any(|known| known == name), "{alert}: {part}");
                }
                ["ovn-appctl", "-t", ..] => {
                    let is_known = |word: &&str| of_database.iter().any(|known| known == word);
                    assert!(words.iter().any(is_known), "{alert}: {part}");
                }
                ["ovs-appctl", name, ..] => {
                    assert!(of_switch.iter().any(|known| known == name), "{alert}: {part}");
                }
                [program, ..] => {
                    let filters = ["sort", "tail", "top", "uniq"];
                    let is_known = PROGRAMS.contains(&program) || filters.contains(&program);
                    assert!(is_known, "{alert}: {part}");
                }
                [] => panic!("{alert}: {line}"),
            }
        }
    }
}
