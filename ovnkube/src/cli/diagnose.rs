//! `diagnose`.

use clap::{Arg, ArgMatches};
use contract::names::PodKey;

use super::{Command, output};
use crate::{
    diagnose::PodQuestion,
    options::{Options, Source, arguments},
};

const POD: &str = "NAMESPACE/POD";

const LONG_ABOUT: &str = "\
Says how far the network of a pod has come, and the first thing that is wrong: created, \
scheduled, annotated, its port in the northbound database, claimed by a chassis, flows installed, \
interface, ready; an address that two pods have; and its own network namespace, beside what ADD \
has configured, and its node's daemons, MTU, NIC and CNI configuration: looked at here if this is \
the pod's node, and else in the pod of ovnkube there. Each fault has the command that shows it. \
Nothing is written.";

const AFTER_HELP: &str = "\
Examples:
  ovnkube diagnose shop/cart-0                       on the pod's node, as root
  kubectl ovn diagnose shop/cart-0 --nb-address tcp:172.18.0.2:6641 --sb-address tcp:172.18.0.2:6642

Rights in the cluster: get pods and list events in the pod's namespace; list nodes and get \
services of default and kube-system, which the pod is to reach. For a look at another node: list \
pods, create and get pods/exec in the control plane's namespace. What cannot be asked is named, \
and the rest is shown. Root, on the pod's node, for a look into its network namespace.";

pub(super) fn definition() -> clap::Command {
    let pod = Arg::new(POD).value_name(POD).required(true).help("The pod");
    clap::Command::new("diagnose")
        .about("Say how far a pod's network has come, and the first thing that is wrong")
        .long_about(LONG_ABOUT)
        .after_help(format!("{AFTER_HELP}\n\n{}", output::EXIT_STATUS))
        .args_override_self(true)
        .args([pod, output::here(), output::argument(), output::bundle()])
        .args(arguments(&[Source::ApiServer, Source::Northbound, Source::Southbound, Source::Node]))
}

pub(super) fn read(_: &str, matches: &ArgMatches) -> Result<Command, String> {
    let text = matches.get_one::<String>(POD).map_or("", String::as_str);
    let key = text.split_once('/').map(|(namespace, name)| PodKey::new(namespace, name));
    let pod = match key {
        Some(Ok(pod)) => pod,
        Some(Err(error)) => return Err(format!("{text:?} is no pod: {error}")),
        None => return Err(format!("{text:?} is no pod: give NAMESPACE/POD")),
    };
    let question =
        PodQuestion { pod, here: output::is_here(matches), format: output::read(matches) };
    let bundle = output::bundle_of(matches);
    Ok(Command::Diagnose { question, options: Options::of_command(matches), bundle })
}
