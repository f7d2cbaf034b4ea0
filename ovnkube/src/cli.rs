//! The command line. Its first word is a command, such as `policy explain`, or else all of it are
//! the options of a role, such as `--init-node`, which [`options`] reads.
//!
//! ```text
//! arguments ─▶ Invocation ─┬─▶ Command: bridges, policy explain
//!                          └─▶ options
//! ```
//!
//! One definition of each command is the source of parser, help, manual and completion. The name of
//! the program counts: `kubectl-ovn`, which kubectl runs as `kubectl ovn`, has commands only, and
//! `ovn-kube-util` and `ovn-k8s-util` those for bridges and `gateway-init`; `ovn-k8s-overlay` has
//! its own.

use std::{
    ffi::OsString,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use clap::{
    ArgMatches,
    error::{ContextKind, ContextValue, ErrorKind},
};

use crate::{
    explain::Question,
    findings::Format,
    options::{self, Options, with_two_dashes},
};

mod applied;
mod ask_server;
mod bridges;
mod check;
mod connectivity;
mod diagnose;
mod exporter;
mod hand_back;
mod legacy;
mod legacy_daemons;
mod output;
mod policy;
mod status;
mod support_bundle;
mod top;
mod trace;
mod zones;

/// The name of a plugin of kubectl: `kubectl ovn`.
const KUBECTL_PLUGIN: &str = "kubectl-ovn";
/// Names of the former programs for bridges: OVN-Kubernetes in Go, and in Python before.
const BRIDGE_PROGRAMS: [&str; 2] = ["ovn-kube-util", "ovn-k8s-util"];

/// The name of the former program that made a node's rows.
const OVERLAY_PROGRAM: &str = "ovn-k8s-overlay";

/// Former programs that this one is not, and what takes their place.
const ABSENT_PROGRAMS: [(&str, &str); 1] =
    [("ovn-k8-underlay", "there is no underlay, and pods are in OVN's overlay")];

/// What a command line asks for.
#[derive(Debug)]
pub enum Invocation {
    /// The arguments are options of a role.
    Options,
    Command(Box<Command>),
    /// A text to print to standard output.
    Text(String),
    /// The command line cannot be used; the text says why and what can be.
    Unusable(String),
}

/// A command with its arguments.
#[derive(Debug)]
pub enum Command {
    /// `applied`
    Applied { question: crate::applied::AppliedQuestion, options: Options },
    /// `ask-server`, in the pod of a node.
    AskServer { path: &'static str, body: String, options: Options },
    /// `nics-to-bridge` and `bridges-to-nic`.
    Bridges(uplink::Command),
    /// `policy explain`
    Explain { question: Question, format: Format, options: Options, bundle: Option<PathBuf> },
    /// `check`
    Check { question: crate::check::Question, options: Options },
    /// `connectivity test`
    Connectivity { question: crate::connectivity::Question, options: Options },
    /// `diagnose`
    Diagnose { question: crate::diagnose::PodQuestion, options: Options, bundle: Option<PathBuf> },
    /// `ovs-exporter`
    Exporter { address: SocketAddr, options: Options },
    /// `probe`, in the pods of `connectivity test`.
    Probe,
    /// `hand-back`
    HandBack { question: crate::hand_back::HandBackQuestion, options: Options },
    /// `master-init`, `minion-init`, `gateway-init`
    Init { init: crate::legacy::Init, options: Options },
    /// `ovn-k8s-gateway-helper`
    GatewayHelper { helper: crate::legacy::Helper, options: Options },
    /// `ovn-k8s-watcher`: `legacy` has the directory of Open vSwitch's daemons.
    Watcher { daemon: crate::legacy::daemon::DaemonOptions, legacy: Options, options: Options },
    /// `status`
    Status { question: crate::status::Question, options: Options, bundle: Option<PathBuf> },
    /// `support-bundle`
    SupportBundle { question: crate::bundle::BundleQuestion, options: Options },
    /// `top`
    Top { question: crate::top::TopQuestion, options: Options },
    /// `trace`
    Trace { question: crate::trace::TraceQuestion, options: Options, bundle: Option<PathBuf> },
    /// `zones migrate`
    Zones { migration: crate::zones::Migration, options: Options },
}

/// The definition of one command, and its reader.
struct Definition {
    make: fn() -> clap::Command,
    read: fn(&str, &ArgMatches) -> Result<Command, String>,
}

static COMMANDS: [Definition; 13] = [
    Definition { make: status::definition, read: status::read },
    Definition { make: check::definition, read: check::read },
    Definition { make: connectivity::definition, read: connectivity::read },
    Definition { make: connectivity::probe, read: connectivity::read_probe },
    Definition { make: ask_server::definition, read: ask_server::read },
    Definition { make: trace::definition, read: trace::read },
    Definition { make: diagnose::definition, read: diagnose::read },
    Definition { make: applied::definition, read: applied::read },
    Definition { make: policy::definition, read: policy::read },
    Definition { make: top::definition, read: top::read },
    Definition { make: hand_back::definition, read: hand_back::read },
    Definition { make: zones::definition, read: zones::read },
    Definition { make: support_bundle::definition, read: support_bundle::read },
];

static BRIDGE_COMMANDS: [Definition; 2] = [
    Definition { make: bridges::nics_to_bridge, read: bridges::read },
    Definition { make: bridges::bridges_to_nic, read: bridges::read },
];

/// A command of [`BRIDGE_PROGRAMS`], too.
static EXPORTER_COMMAND: Definition =
    Definition { make: exporter::definition, read: exporter::read };

/// The commands of [`OVERLAY_PROGRAM`]: none is a command of `ovnkube` itself.
static OVERLAY_COMMANDS: [Definition; 3] = [
    Definition { make: legacy::master_init, read: legacy::read_master },
    Definition { make: legacy::minion_init, read: legacy::read_minion },
    Definition { make: legacy::gateway_init, read: legacy::read_gateway },
];

/// A command of [`BRIDGE_PROGRAMS`] alone.
static GATEWAY_COMMAND: Definition =
    Definition { make: legacy::util_gateway_init, read: legacy::read_util_gateway };

type Definitions = [&'static Definition];

fn all_commands() -> impl Iterator<Item = &'static Definition> {
    COMMANDS.iter().chain([&EXPORTER_COMMAND]).chain(&BRIDGE_COMMANDS)
}

/// The program with commands and options, for help, manual and completion.
pub fn command() -> clap::Command {
    with_commands(options::command(), all_commands())
        .subcommand_value_name("COMMAND")
        .subcommand_help_heading("Commands, instead of options; each has a --help of its own")
        .override_usage("ovnkube COMMAND …\n       ovnkube --init-node NODE [OPTION…]\n       ovnkube --init-master NODE [OPTION…]")
}

/// The programs of 2016 to 2018 that this one is by other names, for their manuals.
pub fn older_programs() -> Vec<clap::Command> {
    let overlay: Vec<_> = OVERLAY_COMMANDS.iter().collect();
    vec![
        commands(OVERLAY_PROGRAM, OVERLAY_PROGRAM, &overlay)
            .about("Make the rows of a node, as OVN-Kubernetes did from 2016 to 2018"),
        legacy_daemons::gateway_helper(),
        legacy_daemons::watcher(),
    ]
}

fn with_commands(
    program: clap::Command,
    definitions: impl Iterator<Item = &'static Definition>,
) -> clap::Command {
    definitions.fold(program, |program, definition| {
        program.subcommand((definition.make)().disable_version_flag(true))
    })
}

/// The program with commands alone, under the name by which it was called.
fn commands(
    name: &'static str,
    bin_name: &'static str,
    definitions: &Definitions,
) -> clap::Command {
    let program = clap::Command::new(name).bin_name(bin_name);
    with_commands(program, definitions.iter().copied())
        .about("Commands of OVN-Kubernetes")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .max_term_width(100)
}

impl Invocation {
    /// Reads a command line, of which the first word is the program's name.
    pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Self {
        let arguments: Vec<OsString> = arguments.into_iter().collect();
        let program =
            arguments.first().map(|program| Path::new(program).file_name().unwrap_or(program));
        let program = program.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if let Some(name) = BRIDGE_PROGRAMS.into_iter().find(|name| *name == program) {
            let others = [&GATEWAY_COMMAND, &EXPORTER_COMMAND];
            let own: Vec<_> = BRIDGE_COMMANDS.iter().chain(others).collect();
            return read(name, name, &own, arguments);
        }
        if program == OVERLAY_PROGRAM {
            let own: Vec<_> = OVERLAY_COMMANDS.iter().collect();
            return read(OVERLAY_PROGRAM, OVERLAY_PROGRAM, &own, arguments);
        }
        if let Some((name, instead)) =
            ABSENT_PROGRAMS.into_iter().find(|(name, _)| *name == program)
        {
            return Self::Unusable(format!("{name} is not part of this version: {instead}"));
        }
        if program == legacy_daemons::GATEWAY_HELPER {
            return legacy_daemons::read(legacy_daemons::gateway_helper(), arguments);
        }
        if program == legacy_daemons::WATCHER {
            return legacy_daemons::read(legacy_daemons::watcher(), arguments);
        }
        if program == KUBECTL_PLUGIN {
            let all: Vec<_> = all_commands().collect();
            return read(KUBECTL_PLUGIN, "kubectl ovn", &all, arguments);
        }
        match arguments.get(1).map(|word| word.to_string_lossy()).as_deref() {
            Some("help" | "--help" | "-help") if arguments.len() == 2 => {
                Self::Text(command().render_long_help().to_string())
            }
            Some("-h") if arguments.len() == 2 => Self::Text(command().render_help().to_string()),
            Some(word) if !word.starts_with('-') => {
                let all: Vec<_> = all_commands().collect();
                read("ovnkube", "ovnkube", &all, arguments)
            }
            Some(_) | None => Self::Options,
        }
    }
}

fn read(
    name: &'static str,
    bin_name: &'static str,
    definitions: &Definitions,
    arguments: Vec<OsString>,
) -> Invocation {
    let program = commands(name, bin_name, definitions);
    let arguments = with_two_dashes(&program, arguments);
    let matches = match program.clone().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => return refused(&program, &error),
    };
    // clap has checked that there is one, and that it is one of these.
    let Some((name, matches)) = matches.subcommand() else { return Invocation::Options };
    let definition = definitions.iter().find(|definition| (definition.make)().get_name() == name);
    match definition.map(|definition| (definition.read)(name, matches)) {
        Some(Ok(command)) => Invocation::Command(Box::new(command)),
        Some(Err(why)) => {
            let program = program.get_bin_name().unwrap_or(name);
            Invocation::Unusable(format!("{why}\nFor its arguments: {program} {name} --help."))
        }
        None => Invocation::Options,
    }
}

/// Help that was asked for, or why the command line cannot be used.
fn refused(program: &clap::Command, error: &clap::Error) -> Invocation {
    let text = error.render().to_string();
    match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => Invocation::Text(text),
        ErrorKind::InvalidSubcommand => Invocation::Unusable(no_command(program, error)),
        _ => {
            // Its line of usage has the options that were given as if they were required.
            let why =
                text.trim_start_matches("error: ").split("\n\nUsage:").next().unwrap_or(&text);
            let hint = "For more information, try '--help'.";
            let why = why.trim_end().trim_end_matches(hint).trim_end();
            Invocation::Unusable(format!("{why}\n{hint}"))
        }
    }
}

/// Names the command that is not there, and the one that was probably meant.
fn no_command(program: &clap::Command, error: &clap::Error) -> String {
    let wrong = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) => word.as_str(),
        _ => "",
    };
    let mut names: Vec<String> = Vec::new();
    for command in program.get_subcommands().filter(|command| !command.is_hide_set()) {
        names.push(command.get_name().to_owned());
        let below = command
            .get_subcommands()
            .map(|below| format!("{} {}", command.get_name(), below.get_name()));
        names.extend(below);
    }
    let distance = |name: &String| {
        let last = name.split(' ').next_back().unwrap_or_default();
        strsim::damerau_levenshtein(wrong, name).min(strsim::damerau_levenshtein(wrong, last))
    };
    let nearest = names.iter().min_by_key(|name| distance(name));
    let near = nearest.filter(|name| distance(name) <= 2.max(wrong.len() / 4));
    let hint = near.map(|name| format!(" (is it {name}?)")).unwrap_or_default();
    let program = program.get_bin_name().unwrap_or(program.get_name());
    format!(
        "there is no command {wrong:?}{hint}\nCommands: {}.\nFor each of them: {program} COMMAND --help.",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests;
