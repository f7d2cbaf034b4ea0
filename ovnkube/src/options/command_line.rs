//! The command line: clap's command, made of the table, and its parser.

use std::{ffi::OsString, path::PathBuf};

use clap::{
    Arg, ArgAction, ArgMatches, Command,
    builder::Str,
    error::{ContextKind, ContextValue, ErrorKind},
};

use super::{
    go_style,
    settings::{Origin, Setting, Settings},
    spec::{Effect, Group, Spec},
    table,
};

/// Hidden: for package builds (`make docs`, `make install`), not for administrators.
const DOCUMENTS: &str = "generate-documents";

/// A parsed command line.
#[derive(Debug, Clone)]
pub(super) enum CommandLine {
    Options {
        settings: Settings,
        /// Unknown options, and options without a value.
        problems: Vec<String>,
    },
    /// Help or version: the text to print.
    Text(String),
    /// Directory for the documents.
    Documents(PathBuf),
}

/// clap's command for `ovnkube`, from which help, manual and completion are made.
pub fn command() -> Command {
    Command::new("ovnkube")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Connects the pods of Kubernetes through OVN")
        .args_override_self(true)
        .max_term_width(100)
        .after_help(
            "Options are --name VALUE, --name=VALUE, and both with one dash. What is not given here is \
             looked for in the configuration file, in the environment, in the service account's files and in \
             external_ids of Open vSwitch's database, in this order; --print-config shows the outcome. \
             -h leaves out the options that have no effect in this version.",
        )
        .args(
            Group::ALL
                .into_iter()
                .flat_map(|group| table::all().filter(move |spec| heading(spec) == group))
                .map(argument),
        )
}

/// What a command reads. The options of the table that say where it is are options of the command,
/// too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    ApiServer,
    Northbound,
    Southbound,
    /// The daemons of this machine, and the namespace of the control plane.
    Node,
    /// The MTU of pods.
    Mtu,
}

/// Options of every command that reads anything: the file and Open vSwitch's database have more of
/// them.
static OF_ALL_SOURCES: [&Spec; 3] = [
    &table::roles::CONFIG_FILE,
    &table::open_vswitch::OVSDB_ENDPOINT,
    &table::databases::DB_TXN_TIMEOUT,
];
static OF_API_SERVER: [&Spec; 9] = [
    &table::kubernetes::KUBECONFIG,
    &table::kubernetes::BOOTSTRAP_KUBECONFIG,
    &table::kubernetes::API_SERVER,
    &table::kubernetes::CA_CERT,
    &table::kubernetes::CA_CERT_DATA,
    &table::kubernetes::TOKEN,
    &table::kubernetes::TOKEN_FILE,
    &table::kubernetes::CLIENT_CERT,
    &table::kubernetes::CLIENT_PRIVKEY,
];
static OF_NORTHBOUND: [&Spec; 7] = [
    &table::databases::NB_ADDRESS,
    &table::databases::NB_CLIENT_PRIVKEY,
    &table::databases::NB_CLIENT_CERT,
    &table::databases::NB_CLIENT_CACERT,
    &table::databases::NB_CERT_COMMON_NAME,
    &table::databases::NB_RUN_DIR,
    &table::databases::BOOTSTRAP_CA_CERT,
];
static OF_SOUTHBOUND: [&Spec; 6] = [
    &table::databases::SB_ADDRESS,
    &table::databases::SB_CLIENT_PRIVKEY,
    &table::databases::SB_CLIENT_CERT,
    &table::databases::SB_CLIENT_CACERT,
    &table::databases::SB_CERT_COMMON_NAME,
    &table::databases::SB_RUN_DIR,
];

static OF_NODE: [&Spec; 4] = [
    &table::cni::SOCKET,
    &table::open_vswitch::OVS_RUN_DIR,
    &table::open_vswitch::OVN_RUN_DIR,
    &table::control_plane::OVN_CONFIG_NAMESPACE,
];

static OF_MTU: [&Spec; 1] = [&table::node::MTU];

impl Source {
    fn specs(self) -> &'static [&'static Spec] {
        match self {
            Self::ApiServer => &OF_API_SERVER,
            Self::Northbound => &OF_NORTHBOUND,
            Self::Southbound => &OF_SOUTHBOUND,
            Self::Node => &OF_NODE,
            Self::Mtu => &OF_MTU,
        }
    }
}

/// The options of a command that reads these sources.
pub fn arguments(sources: &[Source]) -> Vec<Arg> {
    let specs = sources.iter().flat_map(|source| source.specs()).chain(&OF_ALL_SOURCES);
    specs.map(|spec| argument(spec)).collect()
}

/// The heading under which an option is listed: those without effect have one of their own.
pub(super) fn heading(spec: &Spec) -> Group {
    match spec.effect {
        Effect::Full => spec.group,
        Effect::Later(_) | Effect::Never(_) => Group::Later,
    }
}

fn argument(spec: &'static Spec) -> Arg {
    let help = if spec.default.is_empty() {
        spec.help.to_owned()
    } else {
        format!("{} [default: {}]", spec.help, spec.default)
    };
    let argument = Arg::new(spec.name)
        .long(spec.name)
        .aliases(spec.aliases.iter().copied().map(Str::from).collect::<Vec<_>>())
        .value_name(spec.value_name)
        .help(help)
        .help_heading(heading(spec).title())
        .hide_short_help(spec.effect != Effect::Full)
        .action(ArgAction::Set)
        .allow_negative_numbers(true);
    if spec.is_switch() {
        // Only after an equals sign: `--nodeport true` gives the option no value in Go either.
        argument.num_args(0..=1).require_equals(true).default_missing_value("true")
    } else {
        argument
    }
}

/// Reads a command line, the program's name first.
pub(super) fn read(arguments: impl IntoIterator<Item = OsString>) -> CommandLine {
    let documents = Arg::new(DOCUMENTS).long(DOCUMENTS).value_name("DIR").hide(true);
    let command = command().arg(documents);
    let mut arguments = go_style::with_two_dashes(&command, arguments);
    let mut problems = Vec::new();
    loop {
        let error = match command.clone().try_get_matches_from(arguments.clone()) {
            Ok(matches) => {
                return match matches.get_one::<String>(DOCUMENTS) {
                    Some(directory) => CommandLine::Documents(directory.into()),
                    None => CommandLine::Options { settings: settings(&matches), problems },
                };
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) =>
            {
                return CommandLine::Text(error.render().to_string());
            }
            Err(error) => error,
        };
        // clap stops at the first error: remove the argument and parse again, so that all errors
        // are reported together.
        match position(&error, &arguments) {
            Some(at) => {
                let wrong = arguments.remove(at);
                // An unknown argument has a text without its value, which may be a secret.
                let is_unknown = error.kind() == ErrorKind::UnknownArgument;
                problems.push(if is_unknown {
                    unknown(&wrong.to_string_lossy())
                } else {
                    text(&error)
                });
                // The next argument may be the unknown option's value: on its own it would be one
                // more error.
                let had_value = wrong.to_string_lossy().contains('=')
                    || !wrong.to_string_lossy().starts_with('-');
                if is_unknown
                    && !had_value
                    && arguments
                        .get(at)
                        .is_some_and(|next| !next.to_string_lossy().starts_with('-'))
                {
                    arguments.remove(at);
                }
            }
            None => {
                problems.push(text(&error));
                return CommandLine::Options { settings: Settings::default(), problems };
            }
        }
    }
}

/// The index of the argument that an error is about.
fn position(error: &clap::Error, arguments: &[OsString]) -> Option<usize> {
    let Some(ContextValue::String(shown)) = error.get(ContextKind::InvalidArg) else { return None };
    let name = shown.split([' ', '=']).next()?;
    let is_it = |argument: &OsString| {
        let argument = argument.to_string_lossy();
        let is_long = argument.starts_with("--");
        // Of an argument with one dash, clap names the first letter only.
        argument.split('=').next() == Some(name)
            || !is_long && name.starts_with('-') && argument.starts_with(name)
    };
    arguments.iter().skip(1).position(is_it).map(|at| at + 1)
}

/// The problem of an unknown argument. Without its value, which may be a secret.
fn unknown(argument: &str) -> String {
    let name = argument.split('=').next().unwrap_or_default();
    if !name.starts_with('-') {
        let hint = if matches!(name, "true" | "false") {
            ": the value of a true-or-false option stands behind ="
        } else {
            ""
        };
        return format!("unexpected argument '{}'{hint}", super::kind::shown(name));
    }
    let name = name.trim_start_matches('-');
    let names = table::all().flat_map(|spec| spec.aliases.iter().chain([&spec.name]));
    let nearest = names.map(|other| (strsim::damerau_levenshtein(name, other), *other)).min();
    let near = nearest
        .filter(|(changes, other)| *changes <= 2.max(other.len() / 4))
        .map(|(_, other)| format!(" (is it --{other}?)"));
    format!("unexpected argument '--{}'{}", super::kind::shown(name), near.unwrap_or_default())
}

/// clap's error without its prefix, usage and pointer to help: `main` prints these once around all
/// problems.
fn text(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let lines = text.lines().map(str::trim).take_while(|line| {
        !line.starts_with("Usage:") && !line.starts_with("For more information")
    });
    let text: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    text.join("; ").trim_start_matches("error: ").to_owned()
}

/// The options on a command line. That of a command has some of the table.
pub(super) fn settings(matches: &ArgMatches) -> Settings {
    let mut settings = Settings::default();
    for spec in table::all() {
        if let Ok(Some(value)) = matches.try_get_one::<String>(spec.name) {
            settings.add(
                spec,
                Setting { value: value.clone(), origin: Origin::CommandLine, insists: true },
            );
        }
    }
    settings
}
