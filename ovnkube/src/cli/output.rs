//! `--output`, which every command has that ends in a report.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, builder::PossibleValuesParser};

use crate::findings::Format;

const OUTPUT: &str = "output";
const BUNDLE: &str = "bundle";
const HERE: &str = "here";

/// The exit statuses of a report.
pub(super) const EXIT_STATUS: &str = "\
Exit status: 0: all is well. 1: something does not work. 2: the command line cannot be used. 3: \
something could not be found out. 4: it works, and something needs attention. The worst counts: 1, \
then 3, then 4. 130: Ctrl-C.

Colours are for terminals, without NO_COLOR. COLUMNS sets the width, which is 80.";

pub(super) fn argument() -> Arg {
    of_forms(["text", "json", "yaml"]).help("The form of the report: text, json or yaml")
}

/// The same of a command that also makes a page.
pub(super) fn argument_with_page() -> Arg {
    of_forms(["text", "json", "yaml", "html"])
        .help("The form of the report: text, json, yaml or html, a page to attach to a ticket")
}

fn of_forms<const N: usize>(forms: [&'static str; N]) -> Arg {
    Arg::new(OUTPUT)
        .long(OUTPUT)
        .short('o')
        .value_name("FORMAT")
        .value_parser(PossibleValuesParser::new(forms))
        .default_value("text")
}

/// `--bundle`, of commands that also read an archive.
pub(super) fn bundle() -> Arg {
    Arg::new(BUNDLE)
        .long(BUNDLE)
        .value_name("FILE")
        .value_parser(clap::value_parser!(PathBuf))
        .help("Read this archive of ovnkube support-bundle, and ask nothing else")
}

/// `--here`, of commands that also ask others than this machine. In the pod of a node it keeps them
/// from asking other pods.
pub(super) fn here() -> Arg {
    Arg::new(HERE)
        .long(HERE)
        .action(ArgAction::SetTrue)
        .help("Only this machine: ask neither API server nor databases")
}

pub(super) fn is_here(matches: &ArgMatches) -> bool {
    matches.get_flag(HERE)
}

pub(super) fn bundle_of(matches: &ArgMatches) -> Option<PathBuf> {
    matches.get_one(BUNDLE).cloned()
}

pub(super) fn read(matches: &ArgMatches) -> Format {
    match matches.get_one::<String>(OUTPUT).map(String::as_str) {
        Some("json") => Format::Json,
        Some("yaml") => Format::Yaml,
        Some("html") => Format::Html,
        _ => Format::Text,
    }
}
