//! `policy explain`.

use clap::{Arg, ArgMatches};

use super::{Command, output};
use crate::{
    explain::Question,
    options::{Options, Source, arguments},
};

const EXPLAIN: &str = "explain";
const WORDS: [(&str, &str); 3] = [
    ("CLIENT", "The end that opens the connection: NAMESPACE/POD, node/NODE or an address"),
    ("SERVER", "The other end; also svc/NAMESPACE/SERVICE"),
    ("PORT[/PROTOCOL]", "A port of the server; TCP (the default), UDP or SCTP"),
];

const LONG_ABOUT: &str = "\
Says whether the client may connect to the server at the port: which NetworkPolicies and policies of the cluster \
select either end, what each of their rules says, which one decides, and which ACLs of OVN's northbound database \
carry it; of a connection that leaves the cluster, what the EgressFirewall says, too. Nothing is written. At \
least one of the two ends has to be a pod in the cluster's network.";

const AFTER_HELP: &str = "\
An end is one of these:
  NAMESPACE/POD           a pod; also pod/NAMESPACE/POD. A pod in its node's network counts as its node.
  node/NODE               a node
  ADDRESS                 whatever has the address: a pod, a node, a Service, or a machine outside
  svc/NAMESPACE/SERVICE   of the server: each backend of the Service that takes connections at its PORT

Examples:
  ovnkube policy explain shop/cart-0 shop/db-0 5432 --k8s-kubeconfig ~/.kube/config
  ovnkube policy explain shop/cart-0 203.0.113.7 443 --k8s-kubeconfig ~/.kube/config
  ovnkube policy explain shop/cart-0 svc/shop/db 5432 -o json

A node connects to pods from the address of its management port, and always reaches its own pods. A client outside \
of the cluster may have another address where it arrives at the pod: behind a Service, one of the node's.

Rights: get pods and namespaces, and list networkpolicies and the kinds of policy.networking.k8s.io; for an end \
that is no pod, also get services and egressfirewalls, and list nodes, pods, services and \
endpointslices.

Exit status: 0: answered, whatever the verdict. 1: something could not be read, or the database does not do what \
the policies say. 2: the command line or an option cannot be used.";

pub(super) fn definition() -> clap::Command {
    let words = WORDS
        .iter()
        .map(|(name, help)| Arg::new(*name).value_name(*name).required(true).help(*help));
    let explain = clap::Command::new(EXPLAIN)
        .about("Say which policies let a pod connect to another end, or the other end to it")
        .long_about(LONG_ABOUT)
        .after_help(AFTER_HELP)
        .args_override_self(true)
        .args(words)
        .args([output::argument(), output::bundle()])
        .args(arguments(&[Source::ApiServer, Source::Northbound]));
    clap::Command::new("policy")
        .about("Questions about network policies")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(explain)
}

pub(super) fn read(_: &str, matches: &ArgMatches) -> Result<Command, String> {
    // The only command below `policy`, and required.
    let (_, matches) = matches.subcommand().ok_or("the command is missing")?;
    let word = |(name, _): (&str, &str)| matches.get_one::<String>(name).map_or("", String::as_str);
    let [client, server, place] = WORDS.map(word);
    Ok(Command::Explain {
        question: Question::read(client, server, place)?,
        format: output::read(matches),
        options: Options::of_command(matches),
        bundle: output::bundle_of(matches),
    })
}
