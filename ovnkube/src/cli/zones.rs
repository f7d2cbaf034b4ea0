//! `zones migrate`.

use std::time::Duration;

use clap::{Arg, ArgAction, ArgGroup, ArgMatches};

use super::{Command, output};
use crate::{
    options::{Options, Source, arguments},
    zones::{Direction, Migration, Scope},
};

const MIGRATE: &str = "migrate";
const NODE: &str = "NODE";
const ALL: &str = "all";
const BACK: &str = "back";
const DRY_RUN: &str = "dry-run";
const WAIT_TIMEOUT: &str = "wait-timeout";

const LONG_ABOUT: &str = "\
Moves nodes from the databases of all to databases of their own, one after the other, while their \
pods talk: from the zone that they share to the zone of their name, or back. Each node's server \
has to know both zones (--other-zone; the chart's layout both). The command writes where a node \
should be into its annotation k8s.ovn.org/zone-wanted, and waits until the node is there; the \
server does the rest, with or without this command. Killed at any point, it goes on where it was \
when it is run again.

A node that lacks something stays as it is, and the next one follows. A node that does not arrive \
in time ends the command.";

const AFTER_HELP: &str = "\
Examples:
  ovnkube zones migrate --all --dry-run --k8s-kubeconfig ~/.kube/config
  kubectl ovn zones migrate worker-1
  kubectl ovn zones migrate --all
  kubectl ovn zones migrate --all --back

Rights in the cluster: list nodes, and patch nodes/status.";

pub(super) fn definition() -> clap::Command {
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
    };
    let nodes = Arg::new(NODE)
        .value_name(NODE)
        .num_args(1..)
        .action(ArgAction::Append)
        .help("The nodes to move, in this order");
    let timeout = Arg::new(WAIT_TIMEOUT)
        .long(WAIT_TIMEOUT)
        .value_name("SECONDS")
        .value_parser(clap::value_parser!(u64))
        .default_value("120")
        .help("How long to wait for each node");
    let migrate = clap::Command::new(MIGRATE)
        .about("Move nodes to databases of their own, or back, while their pods talk")
        .long_about(LONG_ABOUT)
        .after_help(format!("{AFTER_HELP}\n\n{}", output::EXIT_STATUS))
        .args_override_self(true)
        .args([
            nodes,
            flag(ALL, "All nodes, in the order of their names"),
            flag(BACK, "From the zone of its name to the other one"),
            flag(DRY_RUN, "Say what would be done and what is missing, and change nothing"),
            timeout,
            output::argument(),
        ])
        .group(ArgGroup::new("nodes").args([NODE, ALL]).required(true))
        .args(arguments(&[Source::ApiServer]));
    clap::Command::new("zones")
        .about("Zones: nodes with databases of their own")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(migrate)
}

pub(super) fn read(_: &str, matches: &ArgMatches) -> Result<Command, String> {
    // The only command below `zones`, and required.
    let (_, matches) = matches.subcommand().ok_or("the command is missing")?;
    let named = matches.get_many::<String>(NODE).into_iter().flatten().cloned().collect();
    let seconds = matches.get_one(WAIT_TIMEOUT).copied().unwrap_or_default();
    let migration = Migration {
        scope: if matches.get_flag(ALL) { Scope::All } else { Scope::Named(named) },
        direction: if matches.get_flag(BACK) { Direction::Back } else { Direction::Own },
        is_dry: matches.get_flag(DRY_RUN),
        patience: Duration::from_secs(seconds),
        format: output::read(matches),
    };
    Ok(Command::Zones { migration, options: Options::of_command(matches) })
}
