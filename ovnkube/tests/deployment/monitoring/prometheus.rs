//! A real Prometheus that scrapes a node's server and the machine's daemons: it loads the rules,
//! and every expression of rules and dashboards can be computed from what it has read.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    net::TcpStream,
    process::{Command, Stdio},
};

use serde_json::Value;
use testkit::{NodeServer, Scratch, eventually, executable, process::Process};

use super::{SOON, dashboards, machine::Machine, rule_files};

/// How often it scrapes and evaluates.
const INTERVAL: &str = "1s";

struct Prometheus {
    _process: Process,
    address: String,
    _scratch: Scratch,
}

impl Prometheus {
    fn start(targets: &[String]) -> Self {
        let scratch = Scratch::new();
        let (config, log) = (scratch.join("prometheus.yml"), scratch.join("log"));
        let targets = serde_json::json!({
            "global": {"scrape_interval": INTERVAL, "evaluation_interval": INTERVAL},
            "rule_files": rule_files(),
            "scrape_configs": [{"job_name": "ovn", "static_configs": [{"targets": targets}]}],
        });
        // JSON is YAML.
        fs::write(&config, targets.to_string()).unwrap();
        let mut command = Command::new(executable::tool("prometheus").unwrap());
        command
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", scratch.join("data").display()))
            .arg("--web.listen-address=127.0.0.1:0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap());
        let mut process = Process::start(&mut command);
        let address = process.ready("Prometheus listens", || {
            let text = fs::read_to_string(&log).unwrap_or_default();
            let line = text.lines().find(|line| line.contains("msg=\"Listening on\""));
            let address = line.and_then(|line| line.split("address=").nth(1));
            address.map(|address| address.trim_matches('"').to_owned()).ok_or(text)
        });
        Self { _process: process, address, _scratch: scratch }
    }

    /// What its API answers; an error is one.
    fn get(&self, path: &str) -> Result<Value, String> {
        let mut stream = TcpStream::connect(&self.address).map_err(|error| error.to_string())?;
        let request = format!("GET /api/v1/{path} HTTP/1.0\r\nHost: h\r\n\r\n");
        let mut answer = String::new();
        stream.write_all(request.as_bytes()).unwrap();
        stream.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").ok_or_else(|| answer.clone())?;
        let body: Value = serde_json::from_str(body).map_err(|error| format!("{error}: {body}"))?;
        if body["status"] == "success" { Ok(body["data"].clone()) } else { Err(body.to_string()) }
    }

    /// The series that the expression is now.
    fn query(&self, expression: &str) -> Result<Vec<Value>, String> {
        let encoded: String =
            expression.bytes().map(|byte| format!("%{byte:02x}")).collect::<Vec<_>>().concat();
        let data = self.get(&format!("query?query={encoded}"))?;
        Ok(data["result"].as_array().unwrap().clone())
    }
}

/// The address in the server's log.
fn address(server: &NodeServer, option: &str) -> String {
    let line = server.wait_for_line(&format!("option={option} url=http://"));
    let (_, url) = line.split_once("url=http://").unwrap();
    url.split_whitespace().next().unwrap().to_owned()
}

#[test]
fn prometheus_loads_the_rules_and_computes_every_panel() {
    let machine = Machine::start();
    let (of_switch, of_ovn) = (machine.node.ovs_run_dir(), machine.node.ovn_run_dir());
    let server = NodeServer::start_with(
        &machine.node,
        &[
            "--metrics-bind-address=127.0.0.1:0",
            "--ovn-metrics-bind-address=127.0.0.1:0",
            "--export-ovs-metrics",
            &format!("--ovs-run-dir={}", of_switch.display()),
            &format!("--ovn-run-dir={}", of_ovn.display()),
            &format!("--nb-db-location={}", of_ovn.join("ovnnb_db.conf").display()),
        ],
    );
    let targets = ["--metrics-bind-address", "--ovn-metrics-bind-address"]
        .map(|option| address(&server, option));
    let prometheus = Prometheus::start(&targets);
    eventually("both targets were scraped three times", SOON, || {
        let ups = prometheus.query("count_over_time(up[1m]) >= 3 and up == 1")?;
        if ups.len() == targets.len() { Ok(()) } else { Err(format!("{ups:?}")) }
    });
    eventually("all daemons are seen, and ovn-northd is at work", SOON, || {
        let active = prometheus.query("ovn_northd_status == 1")?;
        let daemons = prometheus.query("ovnkube_exporter_up == 1")?;
        let is_all = active.len() == 1 && daemons.len() >= 4;
        if is_all { Ok(()) } else { Err(format!("{active:?} {daemons:?}")) }
    });

    eventually("all rules were evaluated, without an error", SOON, || {
        let groups = prometheus.get("rules")?;
        for group in groups["groups"].as_array().unwrap() {
            for rule in group["rules"].as_array().unwrap() {
                if rule["health"] != "ok" {
                    return Err(format!("{rule:#}"));
                }
            }
        }
        Ok(())
    });
    let critical = prometheus.query("ALERTS{alertstate=\"firing\", severity=\"critical\"}");
    assert_eq!(critical, Ok(Vec::new()), "a machine that works");

    let mut shown = 0;
    for (file, panel, expression) in dashboards() {
        let computed = expression.replace("$instance", ".*").replace("$__rate_interval", "1m");
        let series = prometheus
            .query(&computed)
            .unwrap_or_else(|error| panic!("{file}: {panel}: {expression}: {error}"));
        shown += usize::from(!series.is_empty());
    }
    // Some show what a machine without a control plane, without pods or without faults has not.
    assert!(shown > 80, "{shown}");
}
