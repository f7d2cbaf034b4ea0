//! `hand-back`.

use clap::{Arg, ArgAction, ArgMatches};

use super::{Command, output};
use crate::{
    hand_back::HandBackQuestion,
    options::{Options, Source, arguments},
};

const DRY_RUN: &str = "dry-run";

const LONG_ABOUT: &str = "\
Removes from the northbound database the rows that upstream's control plane neither knows nor \
removes, when it takes the cluster back and this one has ended: of ClusterNetworkPolicies, of \
ports' names in policies, of sets of nodes, of Services' source ranges, and what leads from one \
tier of rules to the next. Without it, they go on deciding what no object explains. A set that \
another rule still names stays, and is said. A control plane of this program that runs puts all \
of it back.";

const AFTER_HELP: &str = "\
Examples:
  ovnkube hand-back --dry-run --nb-address tcp:192.0.2.1:6641
  ovnkube hand-back                                on the host of the database, as root

Each node has rules of its own: ovnkube --hand-back-node NODE removes them.";

pub(super) fn definition() -> clap::Command {
    let dry = Arg::new(DRY_RUN)
        .long(DRY_RUN)
        .action(ArgAction::SetTrue)
        .help("Only say what would be removed");
    clap::Command::new("hand-back")
        .about("Remove what upstream's control plane, which is to run again, does not know")
        .long_about(LONG_ABOUT)
        .after_help(format!("{AFTER_HELP}\n\n{}", output::EXIT_STATUS))
        .args_override_self(true)
        .args([dry, output::argument()])
        .args(arguments(&[Source::Northbound]))
}

pub(super) fn read(_: &str, matches: &ArgMatches) -> Result<Command, String> {
    let question =
        HandBackQuestion { is_dry: matches.get_flag(DRY_RUN), format: output::read(matches) };
    Ok(Command::HandBack { question, options: Options::of_command(matches) })
}
