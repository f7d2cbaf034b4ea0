//! `ovnkube applied`: on how many nodes an object is in force.
//!
//! The object's rows have to be in the northbound database; then all nodes are asked
//! (`hypervisor_sync`). Nothing is counted, and nothing is written on a node, while this is not
//! asked.

use std::{process::ExitCode, time::Duration};

use ovsdb::Connection;
use tokio::time::{Instant, sleep};

use crate::{
    findings::{self, Finding, Format, Report, State},
    hypervisor_sync::{Answers, milliseconds},
    ovn_query::PATIENCE,
    status::{
        StatusConfig,
        databases::{NORTHBOUND, SOUTHBOUND, connect},
    },
};

mod subject;

pub use subject::AppliedSubject;

const KIND: &str = "Applied";
const VERDICT: &str = "verdict";
/// The pause between two looks for the object's rows, while they are waited for.
const PAUSE: Duration = Duration::from_millis(50);

/// What is asked for.
#[derive(Debug, Clone)]
pub struct AppliedQuestion {
    pub subject: AppliedSubject,
    /// How long to wait for rows and nodes.
    pub wait: Option<Duration>,
    pub format: Format,
}

/// Prints on how many nodes it is applied. The exit status is the report's.
pub fn run(config: &StatusConfig, question: &AppliedQuestion) -> ExitCode {
    findings::run(report(config, question), question.format)
}

async fn report(config: &StatusConfig, question: &AppliedQuestion) -> Report {
    let subject = &question.subject;
    let unknown = |name: &str, why: String| {
        let why = format!("the {name} database is not read: {why}");
        let finding = Finding::new(VERDICT, &subject.to_string(), State::Unknown, &why);
        Report::new(KIND, vec![finding.next("ovnkube status")])
    };
    let (north, south) = tokio::join!(
        connect(&config.northbound, NORTHBOUND),
        connect(&config.southbound, SOUTHBOUND)
    );
    let (north, south) = match (north, south) {
        (Ok(north), Ok(south)) => (north, south),
        (Err(why), _) => return unknown("northbound", why),
        (_, Err(why)) => return unknown("southbound", why),
    };
    let deadline = Instant::now() + question.wait.unwrap_or(PATIENCE);
    let mut findings = Vec::new();
    match written(&north, question, deadline).await {
        Ok(0) => {
            let why = "the northbound database has no row of it: the control plane has not written \
                       it, it needs none, such as a policy that selects no pod, or there is no \
                       such object";
            let finding = Finding::new(VERDICT, &subject.to_string(), State::Failed, why);
            findings.push(finding.next(&subject.describe()));
            return Report::new(KIND, findings);
        }
        Ok(count) => {
            let said = format!("{count} rows in the northbound database");
            let finding = Finding::new("rows", &subject.to_string(), State::Ok, &said);
            findings.push(finding.with("rows", count));
        }
        Err(why) => return unknown("northbound", why),
    }
    match Answers::of(&north, &south, deadline).await {
        Ok(answers) => {
            findings.extend(of_nodes(&answers));
            findings.push(verdict(&answers, subject));
        }
        Err(why) => return unknown("southbound", why),
    }
    Report::new(KIND, findings)
}

/// How many rows the object has; with `--wait`, as soon as it has any.
async fn written(
    north: &Connection,
    question: &AppliedQuestion,
    deadline: Instant,
) -> Result<usize, String> {
    loop {
        let count = question.subject.rows(north).await?;
        if count > 0 || question.wait.is_none() || Instant::now() + PAUSE > deadline {
            return Ok(count);
        }
        sleep(PAUSE).await;
    }
}

fn of_nodes(answers: &Answers) -> impl Iterator<Item = Finding> {
    answers.each().map(|(name, answer)| match answer {
        Ok(after) => {
            let said = format!("applied, seen after {}", milliseconds(after));
            Finding::new("nodes", name, State::Ok, &said).with("milliseconds", whole(after))
        }
        Err(behind) => {
            let why = format!(
                "has not answered: its ovn-controller is {behind} generations behind, or does not \
                 run"
            );
            Finding::new("nodes", name, State::Failed, &why)
                .next(&format!("ovnkube status {name}"))
                .with("behind", behind)
        }
    })
}

fn verdict(answers: &Answers, subject: &AppliedSubject) -> Finding {
    let all = answers.nodes();
    let applied = all - answers.missing().count();
    let took = milliseconds(answers.took);
    let state = if applied == all && all > 0 { State::Ok } else { State::Failed };
    let said = match applied {
        0 => format!("applied on 0 of {all} nodes"),
        applied => format!("applied on {applied} of {all} nodes in {took}"),
    };
    let finding = Finding::new(VERDICT, &subject.to_string(), state, &said)
        .with("nodes", all)
        .with("applied", applied)
        .with("milliseconds", whole(answers.took));
    match state {
        State::Ok => finding,
        _ => finding.next("ovnkube status"),
    }
}

fn whole(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
