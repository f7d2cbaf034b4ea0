//! `ovnkube top`: pods a second, what waits and for what, how soon ports have had their flows, rows
//! and flows; live. Nothing is written.
//!
//! ```text
//! southbound: ports, as they change ─▶ Ports ─┐
//! northbound: rows ───────────────────────────┼─▶ Report, each time
//! this node: flows of br-int ─────────────────┤
//!            stages of ADDs, by its server ───┘
//! ```

use std::{
    collections::BTreeMap,
    io::{IsTerminal as _, Write as _, stdout},
    process::ExitCode,
    time::Duration,
};

use contract::{
    paths::INTEGRATION_BRIDGE,
    wire::{NODE_PATH, NodeAnswer},
};
use ovsdb::{Connection, Monitor, Monitored, Where};
use podnet::openflow::FlowCounter;
use tokio::{runtime::Builder, time::Instant};

use self::{
    ports::{PortRow, Ports},
    stages::Stages,
};
use crate::{
    chain,
    findings::{Colour, Finding, Format, INTERRUPTED, Report, State, until_interrupted},
    node_server,
    status::{
        PATIENCE, StatusConfig, answer,
        databases::{NORTHBOUND, SOUTHBOUND, connect, rows},
    },
};

mod ports;
mod stages;

const KIND: &str = "Top";
/// Tables of the northbound database that are counted.
const TABLES: [&str; 7] = [
    "Logical_Switch",
    "Logical_Switch_Port",
    "Load_Balancer",
    "ACL",
    "Port_Group",
    "Address_Set",
    "QoS",
];
/// Clears a terminal, and goes to its beginning (ECMA-48).
const CLEAR: &str = "\u{1b}[2J\u{1b}[H";

/// What is asked for.
#[derive(Debug, Clone)]
pub struct TopQuestion {
    pub interval: Duration,
    /// How many times; without end if it is not given.
    pub times: Option<u64>,
    pub format: Format,
}

/// Shows it until it was shown often enough, or a signal comes. The exit status is that of the last
/// report.
pub fn run(config: &StatusConfig, question: &TopQuestion) -> ExitCode {
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("ovnkube: the runtime of this program: {}", chain(&error));
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(until_interrupted(shown(config, question))) {
        Some(status) => status.into(),
        None => INTERRUPTED.into(),
    }
}

async fn shown(config: &StatusConfig, question: &TopQuestion) -> u8 {
    let mut top = Top::start(config).await;
    let mut left = question.times;
    loop {
        let report = top.report(question.interval).await;
        let is_live = stdout().is_terminal() && question.format == Format::Text;
        let clear = if is_live { CLEAR } else { "" };
        let text = report.output(question.format, Colour::of_stdout());
        if write!(stdout(), "{clear}{text}").and_then(|()| stdout().flush()).is_err() {
            return 1;
        }
        left = left.map(|left| left.saturating_sub(1));
        if left == Some(0) {
            return report.exit_status();
        }
    }
}

/// What is looked at again and again.
struct Top<'a> {
    config: &'a StatusConfig,
    north: Result<Connection, String>,
    ports: Result<(Monitored, Ports), String>,
    /// The rows of each table, the last time.
    counts: BTreeMap<&'static str, usize>,
    flows: Option<FlowCounter>,
    /// Those of this node's ADDs before this looked, if it is a node.
    stages: Option<Stages>,
}

impl<'a> Top<'a> {
    async fn start(config: &'a StatusConfig) -> Self {
        let (north, south) = tokio::join!(
            connect(&config.northbound, NORTHBOUND),
            connect(&config.southbound, SOUTHBOUND)
        );
        let ports = match south {
            Ok(south) => {
                let monitor = Monitor::new().table::<PortRow>(Where::all());
                let monitored = answer(south.monitor(monitor)).await;
                monitored.map(|monitored| {
                    let ports = Ports::of(monitored.rows::<PortRow>(), Instant::now());
                    (monitored, ports)
                })
            }
            Err(why) => Err(why),
        };
        let run_dir = &config.machine.ovs_run_dir;
        let flows = FlowCounter::open(run_dir, INTEGRATION_BRIDGE, PATIENCE).await.ok();
        let stages = Self::stages(config).await;
        Self { config, north, ports, counts: BTreeMap::new(), flows, stages }
    }

    async fn stages(config: &StatusConfig) -> Option<Stages> {
        let socket = &config.machine.socket;
        let answer = node_server::ask::<NodeAnswer>(socket, NODE_PATH, Vec::new()).await;
        answer.ok().map(|answer| Stages(answer.stages))
    }

    /// What there is after the interval.
    async fn report(&mut self, interval: Duration) -> Report {
        let deadline = Instant::now() + interval;
        let mut findings = Vec::new();
        match &mut self.ports {
            Ok((monitored, ports)) => {
                while let Ok(changed) = tokio::time::timeout_at(deadline, monitored.changed()).await
                {
                    if let Err(closed) = changed {
                        let why = format!("the southbound database is lost: {closed}");
                        findings.push(Finding::new("pods", "ports", State::Unknown, &why));
                        tokio::time::sleep_until(deadline).await;
                        break;
                    }
                    ports.note(monitored.rows::<PortRow>(), Instant::now());
                }
                findings.extend(ports.findings(interval, Instant::now()));
            }
            Err(why) => {
                let why = format!("the southbound database is not read: {why}");
                findings.push(
                    Finding::new("pods", "ports", State::Unknown, &why).next("ovnkube status"),
                );
                tokio::time::sleep_until(deadline).await;
            }
        }
        findings.extend(self.rows(interval).await);
        findings.extend(self.flows().await);
        if let Some(now) = Self::stages(self.config).await {
            // Of a server that has started since, all of them.
            let before = self.stages.take().filter(|before| now.is_after(before));
            findings.extend(now.since(before.as_ref()));
            self.stages = Some(before.unwrap_or_default());
        }
        Report::new(KIND, findings)
    }

    async fn rows(&mut self, interval: Duration) -> Vec<Finding> {
        let north = match &self.north {
            Ok(north) => north,
            Err(why) => {
                let why = format!("the northbound database is not read: {why}");
                return vec![Finding::new("rows", "northbound", State::Unknown, &why)];
            }
        };
        let mut findings = Vec::new();
        for table in TABLES {
            if north.schema().table(table).is_none() {
                continue;
            }
            match rows(north, table, Where::all(), &["_uuid"]).await {
                Ok(rows) => {
                    let before = self.counts.insert(table, rows.len()).unwrap_or(rows.len());
                    let change = ports::rate(rows.len().abs_diff(before), interval);
                    let sign = if rows.len() < before { "-" } else { "+" };
                    let said = format!("{} ({sign}{change:.1} a second)", rows.len());
                    let finding = Finding::new("rows", table, State::Ok, &said);
                    findings.push(finding.with("rows", rows.len()));
                }
                Err(why) => findings.push(Finding::new("rows", table, State::Unknown, &why)),
            }
        }
        findings
    }

    /// Of this node, if it is one.
    async fn flows(&mut self) -> Option<Finding> {
        if self.flows.is_none() {
            let run_dir = &self.config.machine.ovs_run_dir;
            self.flows = FlowCounter::open(run_dir, INTEGRATION_BRIDGE, PATIENCE).await.ok();
        }
        match self.flows.as_mut()?.count(PATIENCE).await {
            Ok(count) => {
                let finding =
                    Finding::new("flows", INTEGRATION_BRIDGE, State::Ok, &count.to_string());
                Some(finding.with("flows", count))
            }
            Err(error) => {
                self.flows = None;
                let why = error.to_string();
                Some(Finding::new("flows", INTEGRATION_BRIDGE, State::Unknown, &why))
            }
        }
    }
}
