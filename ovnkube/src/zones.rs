//! `ovnkube zones migrate`: moves nodes from the zone that they share to zones of their own, one
//! after the other, or back. The servers of the nodes move them; this tells them, and waits.
//!
//! All state is in the annotations of the nodes, so that the command may end at any point and be
//! run again. Must not know databases.

use std::{process::ExitCode, time::Duration};

use contract::node_annotation::WANTED_ZONE;
use kubeapi::{
    ApiServer, Connection, Trouble,
    patch::{self, Patch},
};
use serde_json::json;
use tokio::time::{Instant, sleep};

use self::node::{MoveStep, NodeZones};
use crate::{
    api_query as api,
    findings::{self, Finding, Format, Report, State},
    ovn_query::PATIENCE,
};

mod node;

const KIND: &str = "ZoneMigration";
const SUBJECT: &str = "nodes";
const NODES: &str = "/api/v1/nodes";
/// Between two looks at a node that moves, and between a refused request and the next one. A move
/// takes two seconds or more.
const PAUSE: Duration = Duration::from_millis(500);
/// Between two lines about a step that lasts.
const REMINDER: Duration = Duration::from_secs(15);

/// The task of a command.
#[derive(Debug)]
pub struct Migration {
    pub scope: Scope,
    pub direction: Direction,
    /// Only said, and not done.
    pub is_dry: bool,
    /// For each node.
    pub patience: Duration,
    pub format: Format,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    All,
    /// In this order.
    Named(Vec<String>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the zone of the node's name.
    Own,
    /// From there to the other zone.
    Back,
}

/// Runs the command, and prints its report.
pub fn run(api_server: &ApiServer, migration: &Migration) -> ExitCode {
    let migrated = async {
        let api = Connection::open(api_server.clone());
        let findings = match nodes(&api).await {
            Ok(nodes) => migrate(&api, migration, &nodes).await,
            Err(trouble) => vec![unread("nodes", &trouble)],
        };
        Report::new(KIND, findings)
    };
    findings::run(migrated, migration.format)
}

fn unread(name: &str, trouble: &Trouble) -> Finding {
    Finding::new(SUBJECT, name, State::Unknown, &format!("not known: {}", trouble.text))
}

async fn nodes(api: &Connection) -> Result<Vec<NodeZones>, Trouble> {
    let listed = api::list(api, NODES, "").await?;
    let mut nodes: Vec<NodeZones> = listed.items.iter().map(NodeZones::of).collect();
    nodes.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(nodes)
}

async fn migrate(api: &Connection, migration: &Migration, nodes: &[NodeZones]) -> Vec<Finding> {
    let names: Vec<&str> = match &migration.scope {
        Scope::All => nodes.iter().map(|node| node.name.as_str()).collect(),
        Scope::Named(names) => names.iter().map(String::as_str).collect(),
    };
    // A node that other zones cannot reach would be cut off from each node that moves.
    let cut_off = |name: &str| {
        nodes.iter().filter(|node| node.name != name).find_map(|node| {
            let why = node.unconnected()?;
            Some(format!("node {} could not be reached then: {why}", node.name))
        })
    };
    let mut findings = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let Some(node) = nodes.iter().find(|node| node.name == *name) else {
            let finding = Finding::new(SUBJECT, name, State::Failed, "there is no such node");
            findings.push(finding.next("kubectl get nodes"));
            continue;
        };
        let target = match node.target(migration.direction) {
            Ok(target) => target,
            Err(why) => {
                findings.push(cannot(name, &why));
                continue;
            }
        };
        let step = node.step(&target);
        if step == MoveStep::Arrived {
            let said = step.text(&target);
            findings.push(Finding::new(SUBJECT, name, State::Ok, &said).with("zone", target));
            continue;
        }
        // One that is under way has had all of this, and goes on whatever happens.
        let has_begun = step != MoveStep::Elsewhere;
        let problem = || node.problem(&target).or_else(|| cut_off(name));
        if let Some(why) = (!has_begun).then(problem).flatten() {
            findings.push(cannot(name, &why));
            continue;
        }
        if migration.is_dry {
            let from = node.zone().unwrap_or("none");
            let said = match has_begun {
                true => format!("is on its way from zone {from}: {}", step.text(&target)),
                false => format!("would move from zone {from} to {target}"),
            };
            findings.push(Finding::new(SUBJECT, name, State::Ok, &said).with("target", target));
            continue;
        }
        let finding = follow(api, migration, node, &target).await;
        let is_there = finding.state == State::Ok;
        findings.push(finding);
        if !is_there {
            let left = names.len() - index - 1;
            if left > 0 {
                let said = format!("{left} nodes after it were not asked to move");
                findings.push(Finding::new(SUBJECT, "others", State::Skipped, &said));
            }
            break;
        }
    }
    findings
}

fn cannot(name: &str, why: &str) -> Finding {
    Finding::new(SUBJECT, name, State::Failed, &format!("stays as it is: {why}"))
        .next(&format!("ovnkube status {name}"))
}

/// Asks the node to move, and waits until it is there.
async fn follow(
    api: &Connection,
    migration: &Migration,
    node: &NodeZones,
    target: &str,
) -> Finding {
    let (name, begun) = (node.name.as_str(), Instant::now());
    let from = node.zone().unwrap_or("none").to_owned();
    let (mut said, mut told) = (None, begun);
    let mut trouble = String::new();
    let step = loop {
        let step = match look(api, name, target).await {
            Ok((step, lacks)) => {
                let text = match (&step, lacks) {
                    (MoveStep::Filling, Some(lacks)) => format!("{}: {lacks}", step.text(target)),
                    _ => step.text(target),
                };
                if said.as_ref() != Some(&text) || told.elapsed() >= REMINDER {
                    eprintln!("ovnkube: {name}: {text} ({} s)", begun.elapsed().as_secs());
                    told = Instant::now();
                }
                said = Some(text);
                trouble.clear();
                step
            }
            Err(why) => {
                if trouble != why {
                    eprintln!("ovnkube: {name}: {why}; it is tried again");
                }
                trouble = why;
                MoveStep::Elsewhere
            }
        };
        if step == MoveStep::Arrived || begun.elapsed() >= migration.patience {
            break step;
        }
        sleep(PAUSE).await;
    };
    let seconds = begun.elapsed().as_secs_f64();
    if step == MoveStep::Arrived {
        let said = format!("moved from zone {from} to {target} in {seconds:.1} s");
        return Finding::new(SUBJECT, name, State::Ok, &said)
            .with("zone", target)
            .with("seconds", seconds);
    }
    let what = if trouble.is_empty() { said.unwrap_or_default() } else { trouble };
    let back = match migration.direction {
        Direction::Own => " --back",
        Direction::Back => "",
    };
    let why = format!(
        "not in zone {target} after {seconds:.0} s: {what}. Its server goes on; this command run \
         again waits for it, and ovnkube zones migrate {name}{back} calls it off"
    );
    Finding::new(SUBJECT, name, State::Failed, &why)
        .next(&format!("ovnkube status {name}, and the log of the server on {name}"))
}

/// Where the node is, and what its new zone lacks. Asks it to move unless that is done.
async fn look(
    api: &Connection,
    name: &str,
    target: &str,
) -> Result<(MoveStep, Option<String>), String> {
    let fields = format!("metadata.name={name}");
    let listed = api::list(api, NODES, &fields).await.map_err(|trouble| trouble.text)?;
    let object = listed.items.first().ok_or_else(|| format!("there is no node {name} any more"))?;
    let node = NodeZones::of(object);
    let step = node.step(target);
    if step == MoveStep::Elsewhere {
        let wanted = json!({"metadata": {"annotations": {WANTED_ZONE: target}}});
        patch::status(api, PATIENCE, NODES, name, Patch::Merge(wanted))
            .await
            .map_err(|trouble| trouble.text)?;
    }
    Ok((step, node.lacking(target)))
}
