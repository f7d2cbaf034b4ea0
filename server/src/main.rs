//! `ovnkube`: outcomes to exit statuses, nothing else. 0: done; 1: not started; 2: the command line.

use std::process::ExitCode;

use server::{
    node,
    options::{Options, Program},
};

fn main() -> ExitCode {
    let outcome = match Options::read(std::env::args_os()).and_then(Options::program) {
        Ok(Program::Node(options)) => node::run(&options),
        Err(usage) => {
            // Help and version go to standard output, with success. Nobody is left to tell that they cannot be printed.
            let _ = usage.print();
            return u8::try_from(usage.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
