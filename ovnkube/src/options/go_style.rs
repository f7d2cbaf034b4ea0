//! Options with one dash, as Go's flags: `-init-node n1`, `-mtu=1400`.

use std::ffi::OsString;

use clap::Command;

/// Rewrites `-name` and `-name=value` to `--name…` if `name` is an option of `command` or of its
/// subcommands. Other arguments, and all after `--`, stay.
pub fn with_two_dashes(
    command: &Command,
    arguments: impl IntoIterator<Item = OsString>,
) -> Vec<OsString> {
    let mut only_values = false;
    let rewrite = |argument: OsString| {
        // getopt(3): no argument after `--` is an option.
        only_values |= argument == "--";
        match argument.to_str().and_then(|text| text.strip_prefix('-')) {
            Some(text)
                if !only_values
                    && is_option(command, text.split('=').next().unwrap_or_default()) =>
            {
                format!("--{text}").into()
            }
            _ => argument,
        }
    };
    arguments.into_iter().map(rewrite).collect()
}

fn is_option(command: &Command, name: &str) -> bool {
    // clap adds these two when it parses.
    name == "help"
        || name == "version"
        || command.get_arguments().any(|argument| {
            argument.get_long() == Some(name)
                || argument.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
        })
        || command.get_subcommands().any(|command| is_option(command, name))
}
