//! The executable: hands the process' environment and streams to [`cni::run`], and its outcome to the runtime.

use std::process::ExitCode;

use cni::{invocation::Environment, run::run};

fn main() -> ExitCode {
    if std::env::args_os().skip(1).any(|argument| argument == "--version") {
        eprintln!("ovn-k8s-cni-overlay {}", env!("CARGO_PKG_VERSION"));
        return ExitCode::SUCCESS;
    }
    run(&Environment::of_process(), &mut std::io::stdin().lock(), &mut std::io::stdout().lock())
}
