//! `connectivity test`, and `probe`, which its pods run.

use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches};

use super::{Command, output};
use crate::{
    connectivity::{Disruption, Leftovers, Nodes, Question},
    options::{Options, Source, arguments},
};

const TEST: &str = "test";
const NODES: &str = "nodes";
const ALL_NODES: &str = "all-nodes";
const IMAGE: &str = "image";
const WORLD: &str = "world";
const JUNIT: &str = "junit";
const KEEP: &str = "keep";
const DISRUPTION: &str = "disruption";
const DURATION: &str = "duration";
const ALLOWED: &str = "allowed-loss";

/// The image that the manifests have.
const DEFAULT_IMAGE: &str = concat!("ovn-kubernetes-node:", env!("CARGO_PKG_VERSION"));

const LONG_ABOUT: &str = "\
Makes two namespaces with pods on two nodes, Services and policies, and tries: pod to pod on one \
and on two nodes, packets as large as the MTU, cluster addresses, a pod that is its own backend, \
externalIPs, a load balancer, node ports, hosts, the DNS, policies that allow and that forbid, \
those of the whole cluster included; each for both families where the cluster has them, all at \
the same time. What the cluster does not have or take is skipped, with the reason, and so is a \
kind of policies of the whole cluster that its network does not carry out. Ends with a table, and \
the reason and the next command for each failure. The namespaces, and the policies of the whole \
cluster, are deleted at the end, also at Ctrl-C.";

const AFTER_HELP: &str = "\
Examples:
  kubectl ovn connectivity test --k8s-kubeconfig ~/.kube/config
  kubectl ovn connectivity test --nodes worker-1,worker-2 --world example.com:443 --junit \
result.xml
  kubectl ovn connectivity test --disruption --duration 10m

With --disruption, TCP, UDP and ICMP flows are held from pods and nodes to pods, Services and \
node ports, ten packets a second each, until Ctrl-C or --duration, while something is done to \
the cluster; a line on standard error says when they are there. One packet more than \
--allowed-loss is a failure.

Rights: create, get and delete namespaces; in them create and list pods, get pods, pods/log, and \
create and get services, create networkpolicies; list nodes; get services of default and \
kube-system; create, get and delete clusternetworkpolicies and adminnetworkpolicies, without \
which these are skipped. Pods are in the level privileged of Pod Security, for some are in the \
node's network.";

pub(super) fn definition() -> clap::Command {
    let nodes = Arg::new(NODES)
        .long(NODES)
        .value_name("NODE,NODE…")
        .value_delimiter(',')
        .action(ArgAction::Append)
        .help("The nodes with pods; the first two that are ready if none are given");
    let all = Arg::new(ALL_NODES)
        .long(ALL_NODES)
        .action(ArgAction::SetTrue)
        .conflicts_with(NODES)
        .help("Pods on every node; each tries itself and the next one");
    let image = Arg::new(IMAGE)
        .long(IMAGE)
        .value_name("IMAGE")
        .default_value(DEFAULT_IMAGE)
        .help("An image with /usr/bin/ovnkube");
    let world = Arg::new(WORLD)
        .long(WORLD)
        .value_name("HOST:PORT")
        .help("A place outside of the cluster that takes TCP connections");
    let junit = Arg::new(JUNIT)
        .long(JUNIT)
        .value_name("FILE")
        .help("Also write the results as JUnit's XML");
    let keep = Arg::new(KEEP)
        .long(KEEP)
        .action(ArgAction::SetTrue)
        .help("Leave the namespaces, to look at a failure");
    let disruption = Arg::new(DISRUPTION)
        .long(DISRUPTION)
        .action(ArgAction::SetTrue)
        .help("Hold flows in place of the tests, and count what they lose");
    let duration = Arg::new(DURATION)
        .long(DURATION)
        .value_name("TIME")
        .requires(DISRUPTION)
        .help("How long flows are held: 90s, 10m, 2h; until Ctrl-C if it is not given");
    let allowed = Arg::new(ALLOWED)
        .long(ALLOWED)
        .value_name("PACKETS")
        .value_parser(clap::value_parser!(u64))
        .default_value("0")
        .help("Packets that each flow may lose");
    let test = clap::Command::new(TEST)
        .about("Test the network with pods, Services and policies, and clean up")
        .long_about(LONG_ABOUT)
        .after_help(format!("{AFTER_HELP}\n\n{}\n130: a signal ended it.", output::EXIT_STATUS))
        .args_override_self(true)
        .args([
            nodes,
            all,
            image,
            world,
            junit,
            keep,
            disruption,
            duration,
            allowed,
            output::argument(),
        ])
        .args(arguments(&[Source::ApiServer]));
    clap::Command::new("connectivity")
        .about("Tests of the network with pods")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(test)
}

pub(super) fn read(_: &str, matches: &ArgMatches) -> Result<Command, String> {
    // The only command below `connectivity`, and required.
    let (_, matches) = matches.subcommand().ok_or("the command is missing")?;
    let text = |name: &str| matches.get_one::<String>(name);
    let nodes = match matches.get_many::<String>(NODES) {
        Some(names) => Nodes::Named(names.cloned().collect()),
        None if matches.get_flag(ALL_NODES) => Nodes::All,
        None => Nodes::Pair,
    };
    let disruption = match matches.get_flag(DISRUPTION) {
        true => Some(Disruption {
            duration: text(DURATION).map(|text| span(text)).transpose()?,
            allowed: matches.get_one(ALLOWED).copied().unwrap_or_default(),
        }),
        false => None,
    };
    let question = Question {
        nodes,
        image: text(IMAGE).cloned().unwrap_or_default(),
        world: text(WORLD).map(|text| place(text)).transpose()?,
        disruption,
        junit: text(JUNIT).map(Into::into),
        leftovers: if matches.get_flag(KEEP) { Leftovers::Kept } else { Leftovers::Deleted },
        format: output::read(matches),
    };
    Ok(Command::Connectivity { question, options: Options::of_command(matches) })
}

/// The program of the test's pods: not for people.
pub(super) fn probe() -> clap::Command {
    clap::Command::new("probe").about("What the pods of connectivity test run").hide(true)
}

pub(super) fn read_probe(_: &str, _: &ArgMatches) -> Result<Command, String> {
    Ok(Command::Probe)
}

fn span(text: &str) -> Result<Duration, String> {
    let wrong = || format!("--{DURATION} {text:?}: give a number with s, m or h");
    let unit = text.chars().next_back().ok_or_else(wrong)?;
    let (number, seconds) = match unit {
        's' => (text.trim_end_matches('s'), 1),
        'm' => (text.trim_end_matches('m'), 60),
        'h' => (text.trim_end_matches('h'), 3600),
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(wrong)
}

/// A host and a port; an IPv6 address stands in brackets.
fn place(text: &str) -> Result<(String, u16), String> {
    let wrong = || format!("--{WORLD} {text:?}: give HOST:PORT");
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = port.parse().map_err(|_| wrong())?;
    if host.is_empty() { Err(wrong()) } else { Ok((host.to_owned(), port)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_places_are_read_and_others_are_refused() {
        assert_eq!(span("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(span("2h"), Ok(Duration::from_secs(7200)));
        for text in ["", "90", "s", "-1m", "99999999999999999999h"] {
            assert!(span(text).is_err(), "{text}");
        }
        assert_eq!(place("example.com:443"), Ok(("example.com".to_owned(), 443)));
        assert_eq!(place("[2001:db8::1]:443"), Ok(("2001:db8::1".to_owned(), 443)));
        for text in ["example.com", ":443", "a:b"] {
            assert!(place(text).is_err(), "{text}");
        }
    }
}
