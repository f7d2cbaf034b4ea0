//! Options with one dash, as programs in Go take them: `-init-node n1`, `-mtu=1400`.

use std::ffi::OsString;

use clap::Command;

/// `-name` and `-name=value` as `--name…`, where `name` is an option of `command`. All else, and all behind `--`, stays as it is.
pub(super) fn with_two_dashes(command: &Command, arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut only_values = false;
    let rewrite = |argument: OsString| {
        only_values |= argument == "--";
        match argument.to_str().and_then(|text| text.strip_prefix('-')) {
            Some(text) if !only_values && is_option(command, text.split('=').next().unwrap_or_default()) => format!("--{text}").into(),
            _ => argument,
        }
    };
    arguments.into_iter().map(rewrite).collect()
}

fn is_option(command: &Command, name: &str) -> bool {
    // clap adds these two when it parses.
    name == "help"
        || name == "version"
        || command
            .get_arguments()
            .any(|argument| argument.get_long() == Some(name) || argument.get_all_aliases().is_some_and(|aliases| aliases.contains(&name)))
}
