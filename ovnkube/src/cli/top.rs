//! `top`.

use std::{io::IsTerminal as _, time::Duration};

use clap::{Arg, ArgMatches};

use super::{Command, output};
use crate::{
    options::{Options, Source, arguments},
    top::TopQuestion,
};

const INTERVAL: &str = "interval";
const TIMES: &str = "times";

const LONG_ABOUT: &str = "\
Shows, again and again, how many ports of pods there are, how many come and go a second, which \
wait and for what, how soon new ones have their flows, the rows of the northbound database, and on \
a node the flows of its integration bridge. Nothing is written.";

const AFTER_HELP: &str = "\
Examples:
  ovnkube top                                        beside the databases, until Ctrl-C
  ovnkube top --interval 10 --times 6 -o json

Rights: to read both databases.";

pub(super) fn definition() -> clap::Command {
    let number = |name: &'static str, value: &'static str| {
        let parser = clap::value_parser!(u64).range(1..=86_400);
        Arg::new(name).long(name).value_name(value).value_parser(parser)
    };
    clap::Command::new("top")
        .about("Show pods a second, what waits, rows and flows, live")
        .long_about(LONG_ABOUT)
        .after_help(format!("{AFTER_HELP}\n\n{}", output::EXIT_STATUS))
        .args_override_self(true)
        .args([
            number(INTERVAL, "SECONDS").default_value("2").help("The time between two looks"),
            number(TIMES, "COUNT").help("How many looks; on a terminal without end, else one"),
            output::argument(),
        ])
        .args(arguments(&[Source::Northbound, Source::Southbound, Source::Node]))
}

pub(super) fn read(_: &str, matches: &ArgMatches) -> Result<Command, String> {
    let is_terminal = std::io::stdout().is_terminal();
    let question = TopQuestion {
        interval: Duration::from_secs(matches.get_one(INTERVAL).copied().unwrap_or(2)),
        times: matches.get_one(TIMES).copied().or((!is_terminal).then_some(1)),
        format: output::read(matches),
    };
    Ok(Command::Top { question, options: Options::of_command(matches) })
}
