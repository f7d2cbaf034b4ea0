//! The command `integration`: starts the lab for people, and the pieces of itself that run on nodes and in pods.
#![expect(clippy::print_stdout, reason = "a command for people; its peers talk to their starter on standard output")]

mod bench;
mod demo;
mod kubernetes;
mod scale;
mod show;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use integration::{Lab, chaos::Chaos, faults::report::Faults, hold, inside, peer::Peer};

/// Real Open vSwitch and OVN on this machine, in namespaces of their own. The host's Open vSwitch is not touched.
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
    Chaos(Chaos),
    Faults(Faults),
    Scale(scale::Scale),
    /// Measure on the node, as `bench` says on standard input; what was measured goes to standard output.
    #[command(hide = true)]
    BenchDriver,
    /// See it work: three pods on two nodes get their network, use it and lose it again.
    Demo(demo::Demo),
    /// Hold the namespaces of node NAME until standard input closes.
    #[command(hide = true)]
    Hold {
        /// Its name.
        name: String,
    },
    /// Be one end of traffic between pods.
    #[command(hide = true, subcommand)]
    Peer(Peer),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Lab(lab) => lab.run(),
        Command::Demo(demo) => demo.run(),
        Command::Bench(bench) => bench.run(),
        Command::Cluster(cluster) => cluster.run(),
        Command::Chaos(chaos) => bring(&chaos),
        Command::Faults(faults) => faults.run(&mut |text| println!("{text}")),
        Command::Scale(scale) => scale.run(),
        Command::BenchDriver => bench::drive()
            .map(|measured| println!("{}", serde_json::to_string(&measured).expect("measurements are plain data")))
            .map(|()| ExitCode::SUCCESS),
        Command::Hold { name } => hold(&name, || println!("ready")).map(|()| ExitCode::SUCCESS),
        Command::Peer(peer) => {
            peer.run(|report| println!("{}", serde_json::to_string(report).expect("a report is plain data"))).map(|()| ExitCode::SUCCESS)
        }
    };
    finish(result)
}

/// Chaos in a lab of its own.
fn bring(chaos: &Chaos) -> Result<ExitCode> {
    if !inside::is_inside() {
        let status = inside::run_again(&format!("chaos-{}", std::process::id()), std::env::args_os().skip(1))?;
        return Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    inside::enter_again()?;
    chaos.run(&Lab::of_nodes(1).build()?, &mut |text| println!("{text}"))?;
    Ok(ExitCode::SUCCESS)
}

fn finish(result: Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        eprintln!("integration: {error:#}");
        ExitCode::FAILURE
    })
}
