//! One row's test: the fault, and the checks that every row makes around it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::{
    matrix::{self, Row},
    process::Held,
    site::Site,
};
use crate::{Blueprint, Census, Lab, eventually, inside, matrix::Findings};

/// How long released resources may take to be gone. A leak never goes, so the value costs time only
/// where there is one.
const SETTLING: Duration = Duration::from_secs(12);
/// How long daemons that came back may take until they are connected to each other.
const RECOVERY: Duration = Duration::from_secs(30);

/// A row's test in preparation: what differs from other rows, then [`Case::test`].
#[derive(Debug, Clone)]
pub struct Case {
    row: &'static Row,
    limit: Duration,
    traffic: Traffic,
    recovery: Duration,
    settling: Duration,
    lab: Blueprint,
}

/// What the bystanders may suffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Traffic {
    /// Nothing: no packet is lost.
    GoesOn,
    /// It may stop, but has to come back by itself.
    MayStop,
}

/// Begins the test of row `number`.
///
/// # Panics
/// If there is no such row.
#[track_caller]
pub fn row(number: u8) -> Case {
    let row = matrix::find(number).expect("a test belongs to a row of the matrix");
    Case {
        row,
        limit: Duration::from_secs(30),
        traffic: Traffic::GoesOn,
        recovery: RECOVERY,
        settling: SETTLING,
        lab: Lab::of_nodes(1),
    }
}

impl Case {
    /// Time limit for all that the test itself does; 30 s unless said otherwise.
    #[must_use]
    pub fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// The bystanders may lose packets, because the fault breaks what forwards them. They have to
    /// reach each other afterwards.
    #[must_use]
    pub fn traffic_may_stop(mut self) -> Self {
        self.traffic = Traffic::MayStop;
        self
    }

    /// How long STATUS may take to succeed after the test, and resources to be released; 30 s and
    /// 12 s unless said otherwise.
    #[must_use]
    pub fn calm_within(mut self, limit: Duration) -> Self {
        (self.recovery, self.settling) = (limit, limit);
        self
    }

    /// Another lab than one node with IPv4.
    #[must_use]
    pub fn in_lab(mut self, lab: Blueprint) -> Self {
        self.lab = lab;
        self
    }

    /// Builds a lab, runs `body` in it, and then makes the checks of every row. Call it with a
    /// closure that is written in the test itself, because its type names the test.
    ///
    /// # Panics
    /// If something does not hold, or the test's name is not that of its row.
    #[track_caller]
    pub fn test<F: FnOnce(&Site<'_>) -> Result<()>>(self, body: F) {
        let path = inside::test_path::<F>();
        let number = self.row.number;
        assert_eq!(
            matrix::number_of(path),
            Some(number),
            "the test of row {number} is to be called row_{number:02}_…, not {path}"
        );
        inside::in_namespaces(path, || self.clone().hold_in(&self.lab.clone().build()?, body));
    }

    /// The same in a lab that runs already.
    ///
    /// # Errors
    /// If `body` fails; otherwise every check that does not hold.
    pub fn hold_in(self, lab: &Lab, body: impl FnOnce(&Site<'_>) -> Result<()>) -> Result<()> {
        let Self { row, limit, traffic, recovery, settling, lab: _ } = self;
        let site = Site::prepare(lab)?;
        let before = Before::note(&site)?;
        let [first, second] = &site.bystanders;
        // From before the fault until after the next pod: every lost packet counts.
        let flow = lab.flow(first, second)?;
        let began = Instant::now();
        let done = body(&site);
        let took = began.elapsed();
        done.with_context(|| {
            format!("row {} ({}): {} does not hold", row.number, row.fault, row.expected)
        })?;

        let mut findings = Findings::default();
        findings.note("it took too long", in_time(took, limit));
        findings.note("the next pod", next_pod(&site, recovery));
        match traffic {
            Traffic::GoesOn => {}
            Traffic::MayStop => findings.note("bystanders", site.bystanders_reach_each_other()),
        }
        let echoes = flow.stop()?;
        if traffic == Traffic::GoesOn {
            findings.note("bystanders", site.lost_nothing(&echoes));
        }
        findings.note("cleaning up", site.clean_up());
        before.compare(&site, settling, &mut findings);
        findings.verdict().with_context(|| {
            format!("row {} ({}) holds, but something around it does not", row.number, row.fault)
        })
    }
}

/// The node before the fault.
struct Before {
    census: Census,
    server: Held,
    answers: usize,
}

impl Before {
    fn note(site: &Site<'_>) -> Result<Self> {
        Ok(Self {
            census: site.node.census()?,
            server: server_of(site)?,
            answers: site.node.answers.all().len(),
        })
    }

    fn compare(&self, site: &Site<'_>, settling: Duration, findings: &mut Findings) {
        // The kernel removes the links of a deleted namespace a moment later.
        findings.note(
            "a leak",
            eventually("the node is as before", settling, || {
                self.census.must_equal(&site.node.census()?)
            }),
        );
        findings.note(
            "the server",
            eventually("it has let go", settling, || self.server.is_back(&server_of(site)?)),
        );
        for answer in site.node.answers.all().into_iter().skip(self.answers) {
            findings.note("an answer of the plugin", answer.verify().with_context(|| answer.verb));
        }
    }
}

fn server_of(site: &Site<'_>) -> Result<Held> {
    Held::by(site.node.server.pid().context("the server does not run")?)
}

fn in_time(took: Duration, limit: Duration) -> Result<()> {
    ensure!(took <= limit, "{took:?} instead of {limit:?} at most");
    Ok(())
}

/// Checks that, once STATUS succeeds, a new pod is attached and detached at the first attempt.
fn next_pod(site: &Site<'_>, recovery: Duration) -> Result<()> {
    site.healthy_within(recovery)?;
    let pod = site.new_pod()?;
    site.add(&pod)?.success()?;
    site.has_network(&pod)?;
    site.del(&pod)?.success()?;
    site.nothing_of(&pod)
}
