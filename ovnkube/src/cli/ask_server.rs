//! `ask-server`, which other machines run in the pod of a node ([`crate::node_server::pass_on`]).

use clap::{Arg, ArgMatches, builder::PossibleValuesParser};
use contract::wire::{NODE_PATH, TRACE_PATH};
use podnet::pod_look::wire::INSIDE_PATH;

use super::Command;
use crate::{
    node_server::ASK,
    options::{Options, Source, arguments},
};

const PATH: &str = "PATH";
const BODY: &str = "BODY";
/// What reads only.
const PATHS: [&str; 3] = [NODE_PATH, TRACE_PATH, INSIDE_PATH];

pub(super) fn definition() -> clap::Command {
    clap::Command::new(ASK)
        .about("Pass a question on to the server of this node")
        .hide(true)
        .args([
            Arg::new(PATH).required(true).value_parser(PossibleValuesParser::new(PATHS)),
            Arg::new(BODY).required(true),
        ])
        .args(arguments(&[Source::Node]))
}

pub(super) fn read(_: &str, matches: &ArgMatches) -> Result<Command, String> {
    let given = |name: &str| matches.get_one::<String>(name).map_or("", String::as_str);
    let path = PATHS.into_iter().find(|path| *path == given(PATH)).unwrap_or(NODE_PATH);
    let (body, options) = (given(BODY).to_owned(), Options::of_command(matches));
    Ok(Command::AskServer { path, body, options })
}
