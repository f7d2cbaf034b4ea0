//! Releases of Open vSwitch and OVN with known faults.

use std::{
    io::Read as _,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use podnet::control_socket::{ControlSocket, VSWITCHD};
use server::release;
use tokio::time::timeout;

use crate::{
    findings::{Finding, State},
    status::Machine,
};

pub(super) const RELEASES: &str = "Open vSwitch and OVN";
/// How long a program may take to say its version.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of what a program says that are read.
const LONGEST: u64 = 1 << 16;

pub(super) async fn findings(machine: &Machine) -> Vec<Finding> {
    let (switch, controller) = tokio::join!(
        version(&machine.ovs_run_dir, VSWITCHD),
        version(&machine.ovn_run_dir, "ovn-controller")
    );
    vec![of_switch(switch.as_deref()), of_controller(controller.as_deref())]
}

/// The first line of the version, of the daemon that runs, or else of the program that is
/// installed.
async fn version(run_dir: &Path, daemon: &'static str) -> Option<String> {
    let running = ControlSocket::of(run_dir, daemon).ask("version", &[], PATIENCE).await.ok();
    let text = match running {
        Some(text) => text,
        None => installed(daemon).await?,
    };
    text.lines().next().map(str::to_owned)
}

/// What the program says about itself that is installed.
async fn installed(program: &'static str) -> Option<String> {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let mut output = child.stdout.take()?.take(LONGEST);
    let reading = tokio::task::spawn_blocking(move || {
        let mut text = Vec::new();
        output.read_to_end(&mut text).map(|_| String::from_utf8_lossy(&text).into_owned())
    });
    let text = timeout(PATIENCE, reading).await;
    // It has ended, or hangs; killed, it closes its end of the pipe, and the thread that reads
    // ends, too.
    let _ = child.kill();
    let _ = child.wait();
    text.ok()?.ok()?.ok()
}

fn of_switch(version: Option<&str>) -> Finding {
    let found = |state, said: &str| Finding::new(RELEASES, "Open vSwitch", state, said);
    match version {
        None => found(State::Skipped, "not installed yet"),
        Some(version) => match release::fault(version) {
            Some(fault) => found(State::Warning, &format!("{version}: {fault}"))
                .next("a newer release, or the kernel's datapath"),
            None => found(State::Ok, version),
        },
    }
}

fn of_controller(version: Option<&str>) -> Finding {
    match version {
        None => Finding::new(RELEASES, "OVN", State::Skipped, "not installed yet"),
        Some(version) => Finding::new(RELEASES, "OVN", State::Ok, version),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_that_aborts_is_named() {
        let finding = of_switch(Some("ovs-vswitchd (Open vSwitch) 3.1.0"));
        assert_eq!(finding.state, State::Warning);
        assert!(finding.summary.contains("3.1.3"), "{finding:?}");
        assert_eq!(of_switch(Some("ovs-vswitchd (Open vSwitch) 3.5.1")).state, State::Ok);
        assert_eq!(of_switch(None).state, State::Skipped);
    }
}
