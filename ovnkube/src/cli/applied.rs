//! `applied`.

use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches};

use super::{Command, output};
use crate::{
    applied::{AppliedQuestion, AppliedSubject},
    options::{Options, Source, arguments},
};

const KIND: &str = "KIND";
const NAME: &str = "NAME";
const NAMESPACE: &str = "namespace";
const WAIT: &str = "wait";
const WAIT_TIMEOUT: &str = "wait-timeout";

const LONG_ABOUT: &str = "\
Says on how many nodes an object is in force, and after how many milliseconds: a pod, a Service, a \
policy, an EgressFirewall, an EgressQoS, a namespace or a node. Its rows have to be in the \
northbound database; then each node's ovn-controller is asked how far it is, by OVN's nb_cfg. The \
answer is about the rows as they are when it is asked.

It writes one number, NB_Global.nb_cfg, as ovn-nbctl --wait=hv sync does. Each ovn-controller \
answers with one row.";

const AFTER_HELP: &str = "\
Examples:
  ovnkube applied networkpolicy db -n shop --wait     beside the databases
  kubectl ovn applied svc web -n shop --nb-address tcp:172.18.0.2:6641 \
--sb-address tcp:172.18.0.2:6642

Rights: to write the northbound database and to read the southbound one; none in the cluster.";

pub(super) fn definition() -> clap::Command {
    let word = |name: &'static str, help: &'static str| {
        Arg::new(name).value_name(name).required(true).help(help)
    };
    let namespace = Arg::new(NAMESPACE)
        .long(NAMESPACE)
        .short('n')
        .value_name("NAMESPACE")
        .default_value("default")
        .help("The object's namespace");
    let wait = Arg::new(WAIT)
        .long(WAIT)
        .action(ArgAction::SetTrue)
        .help("Wait until it has rows, and every node has answered");
    let timeout = Arg::new(WAIT_TIMEOUT)
        .long(WAIT_TIMEOUT)
        .value_name("SECONDS")
        .value_parser(clap::value_parser!(u64))
        .default_value("300")
        .help("How long --wait waits");
    clap::Command::new("applied")
        .about("Say on how many nodes a policy, Service or pod is in force, and how soon it was")
        .long_about(LONG_ABOUT)
        .after_help(format!("{AFTER_HELP}\n\n{}", output::EXIT_STATUS))
        .args_override_self(true)
        .args([
            word(KIND, "pod, service, networkpolicy, …"),
            word(NAME, "The object's name"),
            namespace,
            wait,
            timeout,
            output::argument(),
        ])
        .args(arguments(&[Source::Northbound, Source::Southbound, Source::Node]))
}

pub(super) fn read(_: &str, matches: &ArgMatches) -> Result<Command, String> {
    let text = |name: &str| matches.get_one::<String>(name).map_or("", String::as_str);
    let timeout = Duration::from_secs(matches.get_one(WAIT_TIMEOUT).copied().unwrap_or_default());
    let question = AppliedQuestion {
        subject: AppliedSubject::read(text(KIND), text(NAMESPACE), text(NAME))?,
        wait: matches.get_flag(WAIT).then_some(timeout),
        format: output::read(matches),
    };
    Ok(Command::Applied { question, options: Options::of_command(matches) })
}
