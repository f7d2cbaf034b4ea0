//! `ovnkube`: outcomes to exit statuses, nothing else. 0: done; 1: not started; 2: the options.

use std::{
    io::{Write, stdout},
    process::ExitCode,
};

use server::{
    node,
    options::{Options, Program},
};

/// The options cannot be used.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let outcome = match Options::read(std::env::args_os()).and_then(Options::program) {
        Ok(Program::Node(options)) => node::run(&options).is_ok(),
        Ok(Program::CleanupNode(_) | Program::PrintConfig(_)) => false,
        // Nobody is left to tell that it cannot be printed.
        Ok(Program::Text(text)) => write!(stdout(), "{text}").is_ok(),
        Err(problems) => {
            eprintln!("ovnkube: {problems}\nFor all options: ovnkube --help. For what is in force: ovnkube --print-config.");
            return USAGE.into();
        }
    };
    if outcome { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
