//! `ovnkube`: maps outcomes to exit statuses, and nothing else.
//!
//! 0: done. 1: the process could not start or go on, or a task was not completed. 2: the options
//! cannot be used.

use std::{
    io::{self, Write, stdout},
    path::PathBuf,
    process::ExitCode,
};

use ovnkube::{
    applied,
    bundle::{self, Replay},
    check,
    cli::{self, Command, Invocation},
    connectivity,
    control_plane::{self, ControlPlaneConfig},
    diagnose, explain, hand_back,
    legacy::{self, daemon::DaemonOptions},
    node::{self, CleanupError, StartError},
    node_server,
    options::{Collected, NodeOptions, Options, Problems, Program, documents},
    ovs_exporter, probe,
    status::{self, StatusConfig},
    top, trace, zones,
};
use server::node::Cleaned;

// An executable that is linked with glibc, as those of tests are, has glibc's.
#[cfg(all(target_env = "musl", target_arch = "x86_64"))]
mod allocator;

/// Exit status: the options cannot be used.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    match Invocation::read(std::env::args_os()) {
        Invocation::Options => run_role(),
        Invocation::Command(command) => run_command(*command),
        Invocation::Text(text) => print(&text),
        Invocation::Unusable(why) => {
            eprintln!("ovnkube: {why}");
            USAGE.into()
        }
    }
}

/// Prints a text that was asked for. If standard output is closed, there is no other place for it:
/// the exit status is all that is left.
fn print(text: &str) -> ExitCode {
    u8::from(write!(stdout(), "{text}").is_err()).into()
}

fn run_command(command: Command) -> ExitCode {
    match command {
        Command::Applied { question, options } => {
            with_places(options, None, |config| applied::run(config, &question))
        }
        Command::AskServer { path, body, options } => with_places(options, None, |config| {
            node_server::pass_on(&config.machine.socket, path, &body)
        }),
        Command::Bridges(command) => uplink::run(&command),
        Command::Explain { question, format, options, bundle } => {
            let explained = |config: &_| match explain::explain(config, &question, format) {
                true => ExitCode::SUCCESS,
                false => ExitCode::FAILURE,
            };
            match bundle {
                None => match options.explanation() {
                    Ok(config) => explained(&config),
                    Err(problems) => refuse(&problems),
                },
                Some(file) => match Replay::open(&file).and_then(|replay| replay.explanation()) {
                    Ok(config) => explained(&config),
                    Err(why) => unreadable(&why),
                },
            }
        }
        Command::Check { question, options } => match options.check() {
            Ok(config) => check::run(&config, &question),
            Err(problems) => refuse(&problems),
        },
        Command::Connectivity { question, options } => match options.api_server() {
            Ok(api_server) => connectivity::run(&api_server, &question),
            Err(problems) => refuse(&problems),
        },
        Command::Exporter { address, options } => match options.exporter() {
            Ok(places) => ovs_exporter::run(places, address),
            Err(problems) => refuse(&problems),
        },
        Command::GatewayHelper { helper, options } => match options.legacy() {
            Ok(config) => legacy::help_gateway(&helper, &config),
            Err(problems) => refuse(&problems),
        },
        Command::HandBack { question, options } => {
            with_places(options, None, |config| hand_back::run(config, &question))
        }
        Command::Init { init, options } => match options.legacy() {
            Ok(config) => legacy::init(&init, &config),
            Err(problems) => refuse(&problems),
        },
        Command::Watcher { daemon, legacy, options } => watch(&daemon, legacy, options),
        Command::Probe => probe::run(),
        Command::Status { question, options, bundle } => {
            with_places(options, bundle, |config| status::run(config, &question))
        }
        Command::Diagnose { question, options, bundle } => {
            with_places(options, bundle, |config| diagnose::run(config, &question))
        }
        Command::SupportBundle { question, options } => {
            with_places(options, None, |config| bundle::run(config, &question))
        }
        Command::Top { question, options } => {
            with_places(options, None, |config| top::run(config, &question))
        }
        Command::Trace { question, options, bundle } => {
            with_places(options, bundle, |config| trace::run(config, &question))
        }
        Command::Zones { migration, options } => match options.api_server() {
            Ok(api_server) => zones::run(&api_server, &migration),
            Err(problems) => refuse(&problems),
        },
    }
}

/// Runs a command where the options say, or in an archive.
fn with_places(
    options: Options,
    bundle: Option<PathBuf>,
    run: impl FnOnce(&StatusConfig) -> ExitCode,
) -> ExitCode {
    match bundle {
        Some(file) => match Replay::open(&file) {
            Ok(replay) => run(replay.config()),
            Err(why) => unreadable(&why),
        },
        None => match options.status() {
            Ok(config) => run(&config),
            Err(problems) => refuse(&problems),
        },
    }
}

fn watch(daemon: &DaemonOptions, legacy: Options, options: Options) -> ExitCode {
    let run_dir = match legacy.legacy() {
        Ok(config) => config.run_dir,
        Err(problems) => return refuse(&problems),
    };
    match options.with_external_ids().program() {
        Ok(Program::ControlPlane(config, _)) => legacy::watch(daemon, &run_dir, *config),
        Ok(_) => USAGE.into(),
        Err(problems) => refuse(&problems),
    }
}

fn unreadable(why: &str) -> ExitCode {
    eprintln!("ovnkube: {why}");
    USAGE.into()
}

fn run_role() -> ExitCode {
    let outcome = match Options::read(std::env::args_os()).with_external_ids().program() {
        Ok(Program::Node(options)) => return serve_node(&options, None),
        Ok(Program::Both(config, options)) => return serve_node(&options, Some(*config)),
        Ok(Program::ControlPlane(config, options)) => {
            control_plane::run(&config, &options.notes()).is_ok()
        }
        Ok(Program::RemoveNode(config)) => control_plane::remove_node(&config),
        Ok(Program::Adopt(config)) => control_plane::adopt(&config),
        Ok(Program::CleanupNode(early)) => cleaned(node::cleanup(&early)),
        Ok(Program::HandBackNode(early)) => cleaned(node::hand_back(&early)),
        Ok(Program::PrintConfig(options)) => return print_config(&options),
        Ok(Program::Text(text)) => return print(&text),
        Ok(Program::Documents(directory)) => {
            said(documents::write(&directory, &cli::command(), &cli::older_programs()))
        }
        Err(problems) => return refuse(&problems),
    };
    if outcome { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn serve_node(options: &NodeOptions, control_plane: Option<ControlPlaneConfig>) -> ExitCode {
    match options.confirm().map(|()| node::run(options, control_plane)) {
        // `node::run` has reported the problems, in the log and on standard error.
        Ok(Err(StartError::Options(_))) => USAGE.into(),
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(_)) => ExitCode::FAILURE,
        Err(problems) => refuse(&problems),
    }
}

fn refuse(problems: &Problems) -> ExitCode {
    eprintln!(
        "ovnkube: {problems}\nFor all options: ovnkube --help. For what is in force: ovnkube --print-config."
    );
    USAGE.into()
}

fn print_config(options: &Collected) -> ExitCode {
    let printed = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map(|runtime| runtime.block_on(options.print()));
    match printed {
        Ok(printed) if write!(stdout(), "{}", printed.text).is_ok() && printed.usable => {
            ExitCode::SUCCESS
        }
        Ok(_) => USAGE.into(),
        Err(error) => u8::from(!said(Err(error))).into(),
    }
}

/// Prints what was removed, also when something is left. Returns whether everything was removed.
fn cleaned(outcome: Result<Cleaned, CleanupError>) -> bool {
    match outcome {
        Ok(cleaned) => write!(stdout(), "{cleaned}").is_ok(),
        Err(error) => {
            eprintln!("ovnkube: {error}");
            false
        }
    }
}

/// Whether it succeeded. An error goes to standard error.
fn said(outcome: io::Result<()>) -> bool {
    outcome.inspect_err(|error| eprintln!("ovnkube: {error}")).is_ok()
}
