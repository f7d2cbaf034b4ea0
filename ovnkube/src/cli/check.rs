//! `check`.

use std::fmt::Write as _;

use clap::{Arg, ArgMatches};

use super::{Command, output};
use crate::{
    check::{CLASSES, Question},
    options::{Options, Source, arguments},
};

const NIC: &str = "nic";

const LONG_ABOUT: &str = "\
Says whether this machine is fit for a node, before anything is installed: modules of the kernel, ports that are \
taken, another network or kube-proxy, releases of Open vSwitch and OVN with known faults, the MTU, the programs that \
configure the NIC, disk and rights. Nothing is changed.";

const AFTER_HELP: &str = "\
Examples:
  ovnkube check
  ovnkube check --nic eth1 --mtu 8900 -o json

Rights in the cluster, if a kubeconfig is given: those that every user has, to ask for its own rights.";

pub(super) fn definition() -> clap::Command {
    let nic = Arg::new(NIC).long(NIC).value_name("NAME").help(
        "The device that leads to the other nodes; that of the default route if it is not given",
    );
    let mut classes = String::new();
    for (class, status) in CLASSES {
        let _ = write!(classes, "{status}: {class}. ");
    }
    let statuses = format!(
        "Exit status: 0: fit. The first class that fails: {classes}2: the command line cannot be used. 3: something \
         could not be found out. 4: fit, and something needs attention."
    );
    clap::Command::new("check")
        .about("Say whether this machine is fit for a node, before anything is installed")
        .long_about(LONG_ABOUT)
        .after_help(format!("{AFTER_HELP}\n\n{statuses}"))
        .args_override_self(true)
        .args([nic, output::argument()])
        .args(arguments(&[Source::ApiServer, Source::Node, Source::Mtu]))
}

pub(super) fn read(_: &str, matches: &ArgMatches) -> Result<Command, String> {
    let question =
        Question { nic: matches.get_one::<String>(NIC).cloned(), format: output::read(matches) };
    Ok(Command::Check { question, options: Options::of_command(matches) })
}
