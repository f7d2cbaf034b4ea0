//! `ovnkube probe`, which `connectivity test` runs in its pods: a server that echoes, and a client
//! that tries what its plan says. The plan comes in an environment variable and the results go to
//! standard output, a line of JSON each: a pod needs no shell, no token and no other program.

use std::{
    io::{self, Write as _, stdout},
    net::IpAddr,
    process::ExitCode,
    time::Duration,
};

use podnet::reach::{Reply, Target, TargetKind, reach};
use serde::{Deserialize, Serialize};

mod attempt;
mod flow;
mod server;

pub use flow::Counters;

/// The variable with the plan: [`Plan`] as JSON.
pub const PLAN: &str = "OVNKUBE_PROBE_PLAN";

/// How long one attempt may take: a packet that is not lost needs a thousandth of it.
const ATTEMPT: Duration = Duration::from_millis(1500);
/// How long an outcome may take to become the expected one: rows and flows of new objects are on
/// their way.
const SETTLED: Duration = Duration::from_secs(20);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(300);
/// Failures in a row that make a place closed; one may be an accident.
const CLOSED: usize = 2;

/// What a pod does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Plan {
    /// Ports on which it echoes, over TCP and UDP.
    pub serve: Vec<u16>,
    pub probes: Vec<Probe>,
    /// Flows that are held until the pod ends.
    pub flows: Vec<Probe>,
}

/// One test of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    pub name: String,
    pub kind: Kind,
    /// An address, or a name of the DNS.
    pub to: String,
    pub port: u16,
    pub expect: Expect,
}

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A connection that echoes.
    Tcp,
    /// A connection that echoes a megabyte.
    TcpBulk,
    /// A connection, whatever the server says.
    Connect,
    Udp,
    /// A datagram as large as the MTU allows.
    UdpFull,
    Icmp,
    /// The name has an address.
    Dns,
}

/// The outcome that is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expect {
    Open,
    Closed,
}

/// The outcome of a probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub name: String,
    /// It was as expected.
    pub passed: bool,
    /// Milliseconds until it was.
    pub ms: u64,
    /// What the last attempt said.
    #[serde(default)]
    pub why: String,
}

/// Carries out the plan: serves, tries, and then serves on until it is told to stop.
pub fn run() -> ExitCode {
    let plan = std::env::var(PLAN).unwrap_or_default();
    let plan: Plan = match serde_json::from_str(&plan) {
        Ok(plan) => plan,
        Err(error) => {
            eprintln!("ovnkube: {PLAN}: {error}");
            return ExitCode::FAILURE;
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("ovnkube: the runtime of this program: {error}");
            return ExitCode::FAILURE;
        }
    };
    runtime.block_on(async {
        tokio::select! {
            failed = carry_out(plan) => failed,
            _ = stopped() => ExitCode::SUCCESS,
        }
    })
}

/// A process with the number 1 ignores SIGTERM unless it asks for it.
async fn stopped() -> Option<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).ok()?;
    terminate.recv().await
}

async fn carry_out(plan: Plan) -> ExitCode {
    let Plan { serve, probes, flows } = plan;
    let mut servers = Vec::new();
    for port in serve {
        match server::start(port).await {
            Ok(server) => servers.push(server),
            Err(error) => {
                eprintln!("ovnkube: port {port}: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    let probes: Vec<_> = probes.into_iter().map(|probe| tokio::spawn(outcome(probe))).collect();
    for probe in probes {
        if let Ok(outcome) = probe.await {
            report(&outcome);
        }
    }
    if !flows.is_empty() {
        flow::hold(flows).await;
    }
    // The kubelet keeps the log of a container that runs, and a server is needed until all have
    // tried.
    std::future::pending().await
}

fn report(line: &impl Serialize) {
    if let Ok(line) = serde_json::to_string(line) {
        drop(writeln!(stdout(), "{line}"));
    }
}

/// One echo request, on a thread of its own.
async fn echo(address: IpAddr) -> Reply {
    let target = Target { kind: TargetKind::Echo, address, port: 0 };
    let asked = tokio::task::spawn_blocking(move || reach(None, &[target], ATTEMPT)).await;
    match asked.map_err(io::Error::other).flatten() {
        Ok(replies) => replies.into_iter().next().unwrap_or(Reply::Silent),
        Err(error) => Reply::Unsent(error.to_string()),
    }
}

/// Tries until the outcome is the expected one, or too late.
async fn outcome(probe: Probe) -> Outcome {
    let began = tokio::time::Instant::now();
    let mut failures = 0;
    loop {
        let attempt = tokio::time::timeout(ATTEMPT, attempt::once(&probe)).await;
        let attempt =
            attempt.unwrap_or_else(|_| Err(format!("no answer within {} ms", ATTEMPT.as_millis())));
        failures = if attempt.is_err() { failures + 1 } else { 0 };
        let passed = match probe.expect {
            Expect::Open => attempt.is_ok(),
            Expect::Closed => failures >= CLOSED,
        };
        if passed || began.elapsed() > SETTLED {
            let why = attempt.err().unwrap_or_else(|| "it answers".to_owned());
            let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            return Outcome { name: probe.name, passed, ms, why };
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests;
