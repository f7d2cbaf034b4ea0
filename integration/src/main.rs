//! The command `integration`: starts the lab for people, and the pieces of itself that run on nodes
//! and in pods.
#![expect(
    clippy::print_stdout,
    reason = "a command for people; its hidden subcommands report to their parent on standard output"
)]

mod bench;
mod conformance;
mod demo;
mod kubernetes;
mod latency;
mod report;
mod run_inside;
mod scale;
mod services;
mod show;
mod takeover;

use std::{
    os::unix::process::ExitStatusExt as _,
    process::{ExitCode, ExitStatus},
};

use anyhow::Result;
use clap::{Parser, Subcommand};
use integration::{
    Lab,
    churn::{chaos::Chaos, soak::Soak},
    executable,
    faults::report::Faults,
    hold, inside,
    peer::Peer,
    tenants::report::Tenants,
};
use serde_json::json;

use report::environment::Environment;

/// Real Open vSwitch and OVN on this machine, in namespaces of their own. The host's Open vSwitch
/// is not touched.
#[derive(Debug, Parser)]
#[command(name = "integration")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start nodes and pods, show that they reach each other, take the pods away again, and end.
    Lab(show::Lab),
    Bench(bench::Bench),
    Cluster(kubernetes::Cluster),
    Conformance(conformance::Conformance),
    Chaos(Chaos),
    Soak(Soak),
    Faults(Faults),
    Tenants(Tenants),
    Scale(scale::Scale),
    Latency(latency::Latency),
    Services(services::Services),
    Takeover(takeover::Takeover),
    Starts(takeover::Starts),
    Connectivity(takeover::Connectivity),
    /// See it work: three pods on two nodes get their network, use it and lose it again.
    Demo(demo::Demo),
    /// Hold the namespaces of node NAME until standard input closes.
    #[command(hide = true)]
    Hold {
        /// Name of the node.
        name: String,
    },
    /// Be one end of traffic between pods.
    #[command(hide = true, subcommand)]
    Peer(Peer),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Lab(lab) => in_a_lab("lab", || lab.run()),
        Command::Demo(demo) => in_a_lab("demo", || demo.run()),
        Command::Bench(bench) => in_a_lab("bench", || bench.run()),
        Command::Cluster(cluster) => in_a_lab("cluster", || cluster.run()),
        Command::Conformance(conformance) => in_a_lab("conformance", || conformance.run()),
        Command::Chaos(chaos) => in_a_lab("chaos", || bring(&chaos)),
        Command::Soak(soak) => in_a_lab("soak", || wear_out(&soak)),
        Command::Faults(faults) => faults.run(&mut |text| println!("{text}")),
        Command::Tenants(tenants) => tenants.run(&mut |text| println!("{text}")),
        Command::Scale(scale) => scale.run(),
        Command::Latency(latency) => in_a_lab("latency", || latency.run()),
        Command::Services(services) => in_a_lab("services", || services.run()),
        Command::Takeover(takeover) => in_a_lab("takeover", || takeover.run()),
        Command::Starts(starts) => starts.run(),
        Command::Connectivity(test) => in_a_lab("connectivity", || test.run()),
        Command::Hold { name } => hold(&name, || println!("ready")).map(|()| ExitCode::SUCCESS),
        Command::Peer(peer) => peer
            .run(|report| {
                println!("{}", serde_json::to_string(report).expect("a report is plain data"))
            })
            .map(|()| ExitCode::SUCCESS),
    };
    finish(result)
}

/// Exit status after a signal, by the convention of shells: this number plus the signal's.
const BY_SIGNAL: i32 = 128;

/// Runs `body` in namespaces of its own: this process starts itself again in them. The outer
/// process only waits, and passes the result on.
fn in_a_lab(name: &str, body: impl FnOnce() -> Result<ExitCode>) -> Result<ExitCode> {
    if inside::is_inside() {
        inside::enter_again()?;
        return body();
    }
    let lab = format!("{name}-{}", std::process::id());
    let (status, signal) = inside::run_again(&lab, std::env::args_os().skip(1))?;
    if let Some(signal) = signal {
        eprintln!("\n{name}: interrupted. Nothing of it is left.");
        return Ok(code(BY_SIGNAL + signal as i32));
    }
    if !status.success() {
        let logs = executable::target_dir()?.join("lab-logs").join(lab);
        eprintln!("\n{name}: {status}. What each program said is in {}", logs.display());
    }
    Ok(exit_code(status))
}

/// The exit status of a child, as a shell passes it on.
fn exit_code(status: ExitStatus) -> ExitCode {
    code(status.code().unwrap_or(BY_SIGNAL + status.signal().unwrap_or(0)))
}

fn code(number: i32) -> ExitCode {
    u8::try_from(number).map_or(ExitCode::FAILURE, ExitCode::from)
}

fn bring(chaos: &Chaos) -> Result<ExitCode> {
    chaos.run(&Lab::of_nodes(1).build()?, &mut |text| println!("{text}"))?;
    Ok(ExitCode::SUCCESS)
}

fn wear_out(soak: &Soak) -> Result<ExitCode> {
    let environment = Environment::of_this_machine(
        executable::under_test(executable::PLUGIN)?.metadata()?.len(),
    )?;
    // A prefix length that has room for thousands of pods.
    let report = soak
        .run(&Lab::of_nodes(1).v4_prefix_len(20).build()?, &mut |text| eprintln!("soak: {text}"))?;
    let environment = environment.at_the_end()?;
    let all = json!({"environment": environment, "soak": report});
    report::publish(format_args!("\n{environment}\n{report}\n"), &all, "soak/soak.json")?;
    Ok(if report.findings().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn finish(result: Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        eprintln!("integration: {error:#}");
        ExitCode::FAILURE
    })
}
