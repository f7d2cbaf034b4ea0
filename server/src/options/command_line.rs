//! The command line: clap's command, made of the table, and what it reads.

use std::ffi::OsString;

use clap::{Arg, ArgAction, ArgMatches, Command, builder::Str, error::ErrorKind};

use super::{
    go_style,
    settings::{Origin, Setting, Settings},
    spec::{Effect, Group, Spec},
    table,
};

/// What a command line says.
#[derive(Debug, Clone)]
pub(super) enum CommandLine {
    Options(Settings),
    /// Help or version: this text, and nothing else.
    Text(String),
}

/// `ovnkube`, for clap, its manual and its completion.
pub fn command() -> Command {
    Command::new("ovnkube")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Connects the pods of Kubernetes through OVN")
        .args_override_self(true)
        .max_term_width(100)
        .after_help(
            "Options are --name VALUE, --name=VALUE, and both with one dash. What is not given here is looked for in the configuration file, in the \
             environment, in the service account's files and in external_ids of Open vSwitch's database, in this order; --print-config shows the \
             outcome. -h leaves out the options that have no effect in this version.",
        )
        .args(Group::ALL.into_iter().flat_map(|group| table::all().filter(move |spec| heading(spec) == group)).map(argument))
}

/// Under which heading an option is listed.
pub(super) fn heading(spec: &Spec) -> Group {
    match spec.effect {
        Effect::Full => spec.group,
        Effect::Later(_) | Effect::Never(_) => Group::Later,
    }
}

fn argument(spec: &'static Spec) -> Arg {
    let argument = Arg::new(spec.name)
        .long(spec.name)
        .aliases(spec.aliases.iter().copied().map(Str::from).collect::<Vec<_>>())
        .value_name(spec.value_name)
        .help(spec.help)
        .help_heading(heading(spec).title())
        .hide_short_help(spec.effect != Effect::Full)
        .action(ArgAction::Set)
        .allow_negative_numbers(true);
    let argument = if spec.default.is_empty() {
        argument
    } else {
        argument.long_help(format!("{} [default: {}]", spec.help, spec.default)).help(format!("{} [default: {}]", spec.help, spec.default))
    };
    if spec.is_switch() {
        // Only behind an equals sign: `--nodeport true` is not a value in Go either.
        argument.num_args(0..=1).require_equals(true).default_missing_value("true")
    } else {
        argument
    }
}

/// Reads a command line, the program's name first.
pub(super) fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<CommandLine, String> {
    let command = command();
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    match command.clone().try_get_matches_from(go_style::with_two_dashes(&command, arguments.clone())) {
        Ok(matches) => Ok(CommandLine::Options(settings(&matches))),
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            Ok(CommandLine::Text(error.render().to_string()))
        }
        Err(error) if error.kind() == ErrorKind::UnknownArgument => {
            // With one dash clap sees a bunch of letters; with two it knows which option is meant.
            let again = command.clone().try_get_matches_from(go_style::all_with_two_dashes(arguments)).err();
            Err(text(&again.filter(|again| again.kind() == ErrorKind::UnknownArgument).unwrap_or(error)))
        }
        Err(error) => Err(text(&error)),
    }
}

/// Without clap's prefix, usage and pointer to help, which stand around all problems alike.
fn text(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"));
    let text: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    text.join("; ").trim_start_matches("error: ").to_owned()
}

fn settings(matches: &ArgMatches) -> Settings {
    let mut settings = Settings::default();
    for spec in table::all() {
        if let Some(value) = matches.get_one::<String>(spec.name) {
            settings.add(spec, Setting { value: value.clone(), origin: Origin::CommandLine, insists: true });
        }
    }
    settings
}
