//! `nics-to-bridge` and `bridges-to-nic`.

use clap::{Arg, ArgAction, ArgMatches};
use contract::paths::OVSDB_ENDPOINT;
use uplink::Command as Bridges;

use super::Command;

const NICS_TO_BRIDGE: &str = "nics-to-bridge";
const BRIDGES_TO_NIC: &str = "bridges-to-nic";
const NAMES: &str = "names";
const DB: &str = "db";

pub(super) fn nics_to_bridge() -> clap::Command {
    definition(NICS_TO_BRIDGE, "INTERFACE")
        .about("Make each interface the uplink of a bridge, which takes over its addresses and routes")
        .after_help(
            "The new bridge of Open vSwitch is called brINTERFACE. If a step fails, those before it are undone. A \
             second run changes nothing; one after a run that was killed completes it.",
        )
}

pub(super) fn bridges_to_nic() -> clap::Command {
    definition(BRIDGES_TO_NIC, "BRIDGE")
        .about("Move the addresses and routes of each bridge back to its uplink, and remove the bridge")
        .after_help(
            "If a step fails, those before it are undone. A second run changes nothing; one after a run that was \
             killed completes it.",
        )
}

fn definition(name: &'static str, what: &'static str) -> clap::Command {
    let names =
        Arg::new(NAMES).value_name(what).required(true).num_args(1..).action(ArgAction::Append);
    let database = Arg::new(DB)
        .long(DB)
        .value_name("ENDPOINT")
        .default_value(OVSDB_ENDPOINT)
        .help("Open vSwitch's database");
    clap::Command::new(name).args([names.help("One or more names, in this order"), database])
}

pub(super) fn read(name: &str, matches: &ArgMatches) -> Result<Command, String> {
    let database = matches.get_one::<String>(DB).map_or(OVSDB_ENDPOINT, String::as_str);
    let database = database.parse().map_err(|error| format!("option --db: {error}"))?;
    let mut names: Vec<String> = Vec::new();
    for name in matches.get_many::<String>(NAMES).into_iter().flatten() {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    Ok(Command::Bridges(match name {
        NICS_TO_BRIDGE => Bridges::NicsToBridge { database, interfaces: names },
        _ => Bridges::BridgesToNic { database, bridges: names },
    }))
}
