//! The executable: passes the environment and the streams of the process to [`cni::run`], and its
//! exit status to the runtime.

mod arena;

use std::process::ExitCode;

use arena::Arena;
use cni::{invocation::Environment, run::run};

#[global_allocator]
static ARENA: Arena = Arena::new();

fn main() -> ExitCode {
    if std::env::args_os().skip(1).any(|argument| argument == "--version") {
        // Standard error: standard output belongs to the CNI protocol.
        eprintln!("ovn-k8s-cni-overlay {}", env!("CARGO_PKG_VERSION"));
        return ExitCode::SUCCESS;
    }
    run(&Environment::of_process(), std::io::stdin(), &mut std::io::stdout().lock())
}
