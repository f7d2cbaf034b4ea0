//! `status`.

use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches};

use super::{Command, output};
use crate::{
    options::{Options, Source, arguments},
    status::Question,
};

const NODE: &str = "NODE";
const WAIT: &str = "wait";
const WAIT_TIMEOUT: &str = "wait-timeout";

const LONG_ABOUT: &str = "\
Says whether the network works: the control plane's leader and replicas, OVN's databases, each node and its tunnels, \
Services and policies that are not in force, what is degraded, and the command that says more. What cannot be asked \
is named, and the rest is shown: on a node without a kubeconfig, the part that its server, Open vSwitch and \
ovn-controller know. Of another NODE, these are asked in its pod. Nothing is written.";

const AFTER_HELP: &str = "\
Examples:
  ovnkube status                                   on a node, as root
  kubectl ovn status --k8s-kubeconfig ~/.kube/config
  ovnkube status worker-1 --wait -o json
  ovnkube status -o html > status.html

Rights in the cluster: list nodes, events, egressfirewalls and egressqoses; list leases in kube-node-lease; get the lease \
ovn-kubernetes-master and list deployments and daemonsets in the control plane's namespace. For what another NODE says of itself: list pods, create and get pods/exec there. A right that \
is missing makes its part unknown.";

pub(super) fn definition() -> clap::Command {
    let node = Arg::new(NODE).value_name(NODE).help("Only this node");
    let here = output::here().conflicts_with(NODE);
    let wait =
        Arg::new(WAIT).long(WAIT).action(ArgAction::SetTrue).help("Wait until nothing is degraded");
    let timeout = Arg::new(WAIT_TIMEOUT)
        .long(WAIT_TIMEOUT)
        .value_name("SECONDS")
        .value_parser(clap::value_parser!(u64))
        .default_value("300")
        .help("How long --wait waits");
    clap::Command::new("status")
        .about("Say whether the network works, what is degraded, and which command says more")
        .long_about(LONG_ABOUT)
        .after_help(format!("{AFTER_HELP}\n\n{}", output::EXIT_STATUS))
        .args_override_self(true)
        .args([node, here, wait, timeout, output::argument_with_page(), output::bundle()])
        .args(arguments(&[Source::ApiServer, Source::Northbound, Source::Southbound, Source::Node]))
}

pub(super) fn read(_: &str, matches: &ArgMatches) -> Result<Command, String> {
    let timeout = Duration::from_secs(matches.get_one(WAIT_TIMEOUT).copied().unwrap_or_default());
    let question = Question {
        node: matches.get_one::<String>(NODE).cloned(),
        here: output::is_here(matches),
        wait: matches.get_flag(WAIT).then_some(timeout),
        format: output::read(matches),
    };
    let bundle = output::bundle_of(matches);
    Ok(Command::Status { question, options: Options::of_command(matches), bundle })
}
