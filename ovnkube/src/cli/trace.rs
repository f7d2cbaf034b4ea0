//! `trace`.

use clap::{Arg, ArgAction, ArgGroup, ArgMatches};
use contract::wire::TraceProtocol;

use super::{Command, output};
use crate::{
    explain::Asked,
    options::{Options, Source, arguments},
    trace::TraceQuestion,
};

const FROM: &str = "FROM";
const TO: &str = "TO";
const TCP: &str = "tcp";
const UDP: &str = "udp";
const ICMP: &str = "icmp";
const SIZE: &str = "size";
const VIA: &str = "via";

const LONG_ABOUT: &str = "\
Follows the first packet of a connection through OVN, and says where it ends and which object of \
Kubernetes decides: this NetworkPolicy, that Service. Addresses, ports and tunnel keys are filled \
in from the southbound database, ovn-trace says which logical flows the packet meets, and the \
northbound database whose they are. The servers of the nodes that it crosses are asked which way \
it takes through their switches: that of this machine over its socket, others in their pods. Where \
that is not possible, the command is named. Nothing is sent and nothing is written.

FROM and TO are NAMESPACE/POD, node/NODE or an address; TO is also svc/NAMESPACE/SERVICE. A node \
sends over its management port. Each family of addresses that both have is followed, and each \
endpoint of a Service, up to 8.

An address of FROM that is neither a pod's nor a node's is that of a machine outside: then TO is a \
node with a node port, an outer address of a Service, or a pod. A packet for an outer address is \
followed at each node, up to 8, or at the one of --via.";

const AFTER_HELP: &str = "\
Examples:
  ovnkube trace shop/cart shop/db --tcp 5432
  kubectl ovn trace shop/cart svc/shop/db --tcp 5432 --sb-address tcp:192.0.2.1:6642 …
  ovnkube trace shop/cart 203.0.113.7 --icmp --size 1500 -o json
  ovnkube trace 203.0.113.7 node/worker-1 --tcp 30080
  ovnkube trace 203.0.113.7 svc/shop/web --tcp 443 --via worker-1

It runs where ovn-trace is installed, such as in a pod of ovnkube-node. Rights in the cluster: \
get pods, services and nodes, list nodes. To ask other nodes: list pods, create and get pods/exec \
in the control plane's namespace. Without an API server the databases say what they have.

Exit status: 0: delivered. 1: not delivered. 2: the command line cannot be used. 3: it could not \
be found out. 4: delivered, and something needs attention, such as an endpoint that is not \
reached. 130: Ctrl-C.

Colours are for terminals, without NO_COLOR. COLUMNS sets the width, which is 80.";

pub(super) fn definition() -> clap::Command {
    let end = |name: &'static str, help: &'static str| {
        Arg::new(name).value_name(name).required(true).help(help)
    };
    let port = |name: &'static str, help: &'static str| {
        let number = clap::value_parser!(u16).range(1..);
        Arg::new(name).long(name).value_name("PORT").value_parser(number).help(help)
    };
    let icmp =
        Arg::new(ICMP).long(ICMP).action(ArgAction::SetTrue).help("An echo request; the default");
    let size = Arg::new(SIZE)
        .long(SIZE)
        .value_name("BYTES")
        .value_parser(clap::value_parser!(u32).range(1..=65_535))
        .help("The size of the IP packet, to be compared with MTUs");
    let via = Arg::new(VIA)
        .long(VIA)
        .value_name("NODE")
        .help("The node at which a packet from outside arrives");
    clap::Command::new("trace")
        .about("Say where a packet ends, and which policy or Service decides")
        .long_about(LONG_ABOUT)
        .after_help(AFTER_HELP)
        .args_override_self(true)
        .args([
            end(FROM, "NAMESPACE/POD, node/NODE or an address"),
            end(TO, "The same, or svc/NAMESPACE/SERVICE"),
            port(TCP, "The first packet of a TCP connection to this port"),
            port(UDP, "A UDP packet to this port"),
            icmp,
            size,
            via,
            output::argument(),
            output::bundle(),
        ])
        .group(ArgGroup::new("protocol").args([TCP, UDP, ICMP]))
        .args(arguments(&[Source::ApiServer, Source::Northbound, Source::Southbound, Source::Node]))
}

pub(super) fn read(_: &str, matches: &ArgMatches) -> Result<Command, String> {
    let end = |name: &str| -> Result<Asked, String> {
        matches.get_one::<String>(name).map_or("", String::as_str).parse()
    };
    let port = |name: &str| matches.get_one::<u16>(name).copied();
    let protocol = match (port(TCP), port(UDP)) {
        (Some(port), _) => TraceProtocol::Tcp(port),
        (None, Some(port)) => TraceProtocol::Udp(port),
        (None, None) => TraceProtocol::Icmp,
    };
    let question = TraceQuestion {
        from: end(FROM)?,
        to: end(TO)?,
        protocol,
        size: matches.get_one::<u32>(SIZE).copied(),
        via: matches.get_one::<String>(VIA).cloned(),
        format: output::read(matches),
    };
    if matches!(question.from, Asked::Service(_)) {
        return Err("a Service sends nothing: FROM is a pod, a node or an address".to_owned());
    }
    let bundle = output::bundle_of(matches);
    Ok(Command::Trace { question, options: Options::of_command(matches), bundle })
}
