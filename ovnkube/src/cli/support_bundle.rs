//! `support-bundle`.

use std::path::PathBuf;

use clap::{Arg, ArgMatches};

use super::{Command, output};
use crate::{
    bundle::BundleQuestion,
    options::{Options, Source, arguments},
};

const FILE: &str = "file";
const MAX_SIZE: &str = "max-size";
const MEBIBYTE: u64 = 1 << 20;

const LONG_ABOUT: &str = "\
Writes one archive (tar) with everything that status, diagnose, trace and policy explain read: \
objects of the API server, rows of the northbound and southbound databases and of Open vSwitch, \
what the server and daemons of this machine say, the network namespaces of its pods, and the ends \
of logs. Those commands read it again with --bundle FILE.

Secrets are left out: Secrets and ConfigMaps are not read; variables, commands, arguments, probes \
and volumes of containers and annotations of other programs are removed; and so is what has the \
name or the form of a password, token or key. Only its owner may read the file.";

const AFTER_HELP: &str = "\
Examples:
  ovnkube support-bundle -o node-1.tar               on a node, as root
  ovnkube status --bundle node-1.tar
  ovnkube diagnose shop/cart-0 --bundle node-1.tar

Rights in the cluster: list nodes, namespaces, pods, services, events, endpointslices, \
networkpolicies, servicecidrs, egressfirewalls, egressqoses and the kinds of \
policy.networking.k8s.io; in the control plane's namespace also leases, deployments, daemonsets, \
and get pods/log; leases in kube-node-lease. What may not be read is named, and the rest is there.";

pub(super) fn definition() -> clap::Command {
    let file = Arg::new(FILE)
        .long("output")
        .short('o')
        .value_name("FILE")
        .value_parser(clap::value_parser!(PathBuf))
        .default_value("ovnkube-support.tar")
        .help("The archive; a file of that name is replaced");
    let most = Arg::new(MAX_SIZE)
        .long(MAX_SIZE)
        .value_name("MIB")
        .value_parser(clap::value_parser!(u64).range(1..=2000))
        .default_value("200")
        .help("The largest archive; what comes last is left out, and named");
    clap::Command::new("support-bundle")
        .about("Write an archive of what the other commands read, without secrets")
        .long_about(LONG_ABOUT)
        .after_help(format!("{AFTER_HELP}\n\n{}", output::EXIT_STATUS))
        .args_override_self(true)
        .args([file, most])
        .args(arguments(&[Source::ApiServer, Source::Northbound, Source::Southbound, Source::Node]))
}

pub(super) fn read(_: &str, matches: &ArgMatches) -> Result<Command, String> {
    let question = BundleQuestion {
        file: matches.get_one::<PathBuf>(FILE).cloned().ok_or("the file is missing")?,
        most: matches.get_one::<u64>(MAX_SIZE).copied().unwrap_or_default() * MEBIBYTE,
    };
    Ok(Command::SupportBundle { question, options: Options::of_command(matches) })
}
