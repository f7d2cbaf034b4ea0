//! What the clients' logs say, with a finding for each test.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::{Instant, sleep};

use super::{
    cluster::{Cluster, PAUSE},
    manifests::pods_of,
    plan::{Client, Test},
    progress, site,
};
use crate::{
    findings::{Finding, State},
    probe::{Expect, Outcome},
};

/// How long all clients may take: their pods start, and each outcome has its time.
const TESTED: Duration = Duration::from_secs(180);

/// What became of a test.
#[derive(Debug)]
pub(super) struct Tested<'a> {
    pub(super) test: &'a Test,
    /// `None` if its client has not said it.
    outcome: Option<Outcome>,
    pub(super) finding: Finding,
}

impl<'a> Tested<'a> {
    /// `silence`: why there is no outcome.
    pub(super) fn new(test: &'a Test, outcome: Option<Outcome>, silence: &str) -> Self {
        let finding = finding(test, outcome.as_ref(), silence);
        Self { test, outcome, finding }
    }

    /// Whether a policy forbids what the test tries.
    pub(super) fn is_forbidden(&self) -> bool {
        self.test.probe.expect == Expect::Closed
    }

    /// Whether the connection was made although a policy forbids it.
    pub(super) fn is_let_through(&self) -> bool {
        self.is_forbidden() && self.outcome.as_ref().is_some_and(|outcome| !outcome.passed)
    }
}

/// What became of each test.
pub(super) async fn of<'a>(cluster: &Cluster, clients: &'a [Client]) -> Vec<Tested<'a>> {
    let began = Instant::now();
    let mut waiting: Vec<&Client> = clients.iter().collect();
    let mut results = Vec::new();
    while !waiting.is_empty() {
        let is_late = began.elapsed() > TESTED;
        let mut still = Vec::new();
        for client in waiting {
            let log = cluster.log(&client.namespace, &client.name, None).await;
            let mut outcomes = log.as_deref().map(read).unwrap_or_default();
            if outcomes.len() < client.tests.len() && !is_late {
                still.push(client);
                continue;
            }
            let silence = if outcomes.is_empty() {
                silence(cluster, client, log.err()).await
            } else {
                String::new()
            };
            results.extend(
                client
                    .tests
                    .iter()
                    .map(|test| Tested::new(test, outcomes.remove(&test.probe.name), &silence)),
            );
        }
        waiting = still;
        if !waiting.is_empty() {
            progress(&format!("{} of {} pods are at work", waiting.len(), clients.len()));
            sleep(PAUSE).await;
        }
    }
    results
}

/// The outcomes in a log, by the names of their tests. Other lines are left out.
fn read(log: &str) -> BTreeMap<String, Outcome> {
    let outcomes = log.lines().filter_map(|line| serde_json::from_str::<Outcome>(line).ok());
    outcomes.map(|outcome| (outcome.name.clone(), outcome)).collect()
}

/// Why a client says nothing.
async fn silence(cluster: &Cluster, client: &Client, error: Option<String>) -> String {
    let pod = cluster.get(&pods_of(&client.namespace), &client.name).await;
    match (pod, error) {
        (Ok(Some(pod)), None) if pod["status"]["phase"] == "Running" => {
            "its client has not said anything".to_owned()
        }
        (Ok(Some(pod)), _) if pod["status"]["phase"] != "Running" => site::why(&pod),
        (_, Some(error)) => error,
        (Err(error), None) => error,
        (Ok(_), None) => "its client is gone".to_owned(),
    }
}

fn finding(test: &Test, outcome: Option<&Outcome>, silence: &str) -> Finding {
    let Test { subject, probe, next } = test;
    let Some(Outcome { passed, ms, why, .. }) = outcome else {
        let why = if silence.is_empty() { "no result" } else { silence };
        return Finding::new(subject, &probe.name, State::Failed, why).next(next);
    };
    let finding = match (passed, probe.expect) {
        (true, _) => Finding::new(subject, &probe.name, State::Ok, &format!("{ms} ms")),
        (false, Expect::Open) => Finding::new(
            subject,
            &probe.name,
            State::Failed,
            &format!("{}:{} is not reached: {why}", probe.to, probe.port),
        )
        .next(next),
        (false, Expect::Closed) => {
            let why = format!("{}:{} answers, and a policy forbids it", probe.to, probe.port);
            Finding::new(subject, &probe.name, State::Failed, &why).next(next)
        }
    };
    finding.with("milliseconds", *ms).with("to", probe.to.as_str()).with("port", probe.port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::{Kind, Probe};

    #[test]
    fn a_test_without_a_result_has_failed_and_a_line_of_another_program_is_none() {
        let probe = Probe {
            name: "a".to_owned(),
            kind: Kind::Tcp,
            to: "10.0.0.1".to_owned(),
            port: 80,
            expect: Expect::Closed,
        };
        let test = Test { subject: "policies", probe, next: "look".to_owned() };
        let outcomes = read("panic!\n{\"name\":\"a\",\"passed\":false,\"ms\":20000}\n");
        assert_eq!(outcomes.len(), 1);
        let found = finding(&test, outcomes.get("a"), "");
        assert_eq!(found.state, State::Failed);
        assert!(found.summary.contains("a policy forbids it"), "{found:?}");
        let none = finding(&test, None, "friend-0 is not running: ErrImagePull");
        assert!(none.state == State::Failed && none.summary.contains("ErrImagePull"), "{none:?}");
        assert_eq!(none.next.as_deref(), Some("look"));
    }
}
