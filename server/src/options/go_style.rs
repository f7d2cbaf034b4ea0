//! Options with one dash, as programs in Go take them: `-init-node n1`, `-mtu=1400`.

use std::ffi::OsString;

use clap::Command;

/// `-name` and `-name=value` as `--name…`, where `name` is an option of `command`. All else, and all behind `--`, stays as it is.
pub(super) fn with_two_dashes(command: &Command, arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    rewrite(arguments, |name| is_option(command, name))
}

/// The same for everything that could be the name of an option.
pub(super) fn all_with_two_dashes(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    rewrite(arguments, |name| name.len() > 1 && name.starts_with(|c: char| c.is_ascii_alphabetic()))
}

fn rewrite(arguments: impl IntoIterator<Item = OsString>, is_option: impl Fn(&str) -> bool) -> Vec<OsString> {
    let mut only_values = false;
    let rewrite = |argument: OsString| {
        only_values |= argument == "--";
        match argument.to_str().and_then(|text| text.strip_prefix('-')) {
            Some(text) if !only_values && is_option(text.split('=').next().unwrap_or_default()) => format!("--{text}").into(),
            _ => argument,
        }
    };
    arguments.into_iter().map(rewrite).collect()
}

fn is_option(command: &Command, name: &str) -> bool {
    // clap adds these two when it parses.
    name == "help"
        || name == "version"
        || command.get_arguments().any(|argument| argument.get_long_and_visible_aliases().unwrap_or_default().contains(&name))
        || command.get_arguments().any(|argument| argument.get_all_aliases().unwrap_or_default().contains(&name))
}
