//! `ovnkube`: maps outcomes to exit statuses, and nothing else.
//!
//! 0: done. 1: the process could not start or go on, or a task was not completed. 2: the options cannot be
//! used.

use std::{
    io::{self, Write, stdout},
    process::ExitCode,
};

use ovnkube::{
    control_plane::{self, ControlPlaneConfig},
    explain::{self, Command},
    node::{self, CleanupError, StartError},
    options::{Collected, NodeOptions, Options, Problems, Program, documents},
};
use server::node::Cleaned;

// An executable that is linked with glibc, as those of tests are, has glibc's.
#[cfg(all(target_env = "musl", target_arch = "x86_64"))]
mod allocator;

/// Exit status: the options cannot be used.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    // The commands for bridges and policies come first: they have a command line of their own, which the
    // options do not know.
    if let Some(arguments) = uplink::Arguments::read(std::env::args_os()) {
        return run_uplink(&arguments);
    }
    if let Some(command) = Command::read(std::env::args_os()) {
        return run_explain(command);
    }
    let outcome = match Options::read(std::env::args_os()).with_external_ids().program() {
        Ok(Program::Node(options)) => return serve_node(&options, None),
        Ok(Program::Both(config, options)) => return serve_node(&options, Some(*config)),
        Ok(Program::ControlPlane(config, options)) => control_plane::run(&config, &options.notes()).is_ok(),
        Ok(Program::RemoveNode(config)) => control_plane::remove_node(&config),
        Ok(Program::CleanupNode(early)) => cleaned(node::cleanup(&early)),
        Ok(Program::HandBackNode(early)) => cleaned(node::hand_back(&early)),
        Ok(Program::PrintConfig(options)) => return print_config(&options),
        // If standard output is closed, there is no other place for the text: the exit status is all that is
        // left.
        Ok(Program::Text(text)) => write!(stdout(), "{text}").is_ok(),
        Ok(Program::Documents(directory)) => said(documents::write(&directory)),
        Err(problems) => return refuse(&problems),
    };
    if outcome { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_uplink(arguments: &uplink::Arguments) -> ExitCode {
    match arguments {
        uplink::Arguments::Run(command) => uplink::run(command),
        uplink::Arguments::Help(text) => u8::from(write!(stdout(), "{text}").is_err()).into(),
        uplink::Arguments::Wrong(text) => {
            eprintln!("ovnkube: {text}");
            USAGE.into()
        }
    }
}

fn run_explain(command: Command) -> ExitCode {
    match command {
        Command::Explain { question, options } => match Options::read(options).explanation() {
            Ok(config) if explain::explain(&config, &question) => ExitCode::SUCCESS,
            Ok(_) => ExitCode::FAILURE,
            Err(problems) => refuse(&problems),
        },
        Command::Help(text) => u8::from(write!(stdout(), "{text}").is_err()).into(),
        Command::Wrong(text) => {
            eprintln!("ovnkube: {text}");
            USAGE.into()
        }
    }
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
        Ok(printed) if write!(stdout(), "{}", printed.text).is_ok() && printed.usable => ExitCode::SUCCESS,
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
