//! A network namespace for an ordinary user: it belongs to a user namespace of its own.

use std::{
    fs,
    path::PathBuf,
    process::{ChildStdin, Command, Stdio},
};

use crate::{process::Process, program};

/// An empty network namespace. A process in its user namespace has root's powers over it, and no
/// additional power over the machine's own network.
#[derive(Debug)]
pub struct Namespace {
    holder: Process,
    /// The holder reads from this pipe, and ends when it is closed.
    _alive: ChildStdin,
}

impl Namespace {
    #[track_caller]
    pub fn new() -> Self {
        let mut command = program::command("unshare");
        command
            .args(["--user", "--map-root-user", "--net", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        let own = fs::read_link("/proc/self/ns/net").expect("this process has a network namespace");
        let (mut holder, alive) = Process::start_with_stdin(&mut command);
        let link = PathBuf::from(format!("/proc/{}/ns/net", holder.pid()));
        let hint = "user namespaces (if they are not allowed: sysctl user.max_user_namespaces=10000 \
                    kernel.apparmor_restrict_unprivileged_userns=0)";
        // unshare executes `cat` after it has made the namespaces.
        let name = PathBuf::from(format!("/proc/{}/comm", holder.pid()));
        holder.ready(hint, || match (fs::read_link(&link), fs::read_to_string(&name)) {
            (Ok(theirs), Ok(name)) if theirs != own && name.trim() == "cat" => Ok(()),
            seen => Err(format!("{seen:?}")),
        });
        Self { holder, _alive: alive }
    }

    /// The path that a runtime would pass as `CNI_NETNS`.
    pub fn path(&self) -> String {
        format!("/proc/{}/ns/net", self.holder.pid())
    }

    /// A command that executes `program` with root's powers over this namespace.
    pub(crate) fn enter(&self, program: PathBuf) -> Command {
        let mut command = program::command("nsenter");
        command
            .args([
                "--user",
                "--preserve-credentials",
                "--target",
                &self.holder.pid().to_string(),
                "--",
            ])
            .arg(program);
        command
    }
}

impl Default for Namespace {
    fn default() -> Self {
        Self::new()
    }
}
