//! `ovs-exporter`.

use clap::{Arg, ArgMatches};

use super::Command;
use crate::options::{Options, Source, arguments, bind_address};

/// Not the name of the option: a node's server has one of that name with another default.
const ADDRESS: &str = "exporter-address";

const LONG_ABOUT: &str = "\
Serves /metrics of Open vSwitch on this machine, under upstream's names, until a signal: \
ovs-vswitchd, its datapaths, bridges and interfaces. It keeps its connections, starts no program, \
and reads once a second at most, however many scrape. On a node, \
--ovn-metrics-bind-address and --export-ovs-metrics of its server do the same.";

pub(super) fn definition() -> clap::Command {
    let address = Arg::new(ADDRESS)
        .long("metrics-bind-address")
        .value_name("ADDRESS:PORT")
        .default_value("0.0.0.0:9310")
        .help("Where /metrics is served; :PORT alone is every address");
    clap::Command::new("ovs-exporter")
        .about("Serve the metrics of Open vSwitch on this machine")
        .long_about(LONG_ABOUT)
        .args_override_self(true)
        .arg(address)
        .args(arguments(&[Source::Node]))
}

pub(super) fn read(_: &str, matches: &ArgMatches) -> Result<Command, String> {
    let text = matches.get_one::<String>(ADDRESS).map_or("", String::as_str);
    let address = bind_address(text).map_err(|why| format!("--metrics-bind-address: {why}"))?;
    Ok(Command::Exporter { address, options: Options::of_command(matches) })
}
