//! The programs that this machine must have.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use nix::unistd::geteuid;

use crate::command;

/// Directories of programs that are not in an ordinary user's `PATH`.
const SYSTEM_DIRECTORIES: [&str; 5] = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"];
/// The command that installs all of them.
const INSTALL: &str = "integration/prerequisites.sh test \
                       (or: apt-get install openvswitch-switch ovn-host ovn-common util-linux)";

/// A command of this machine, without arguments.
#[track_caller]
pub fn command(name: &str) -> Command {
    Command::new(find(name.as_ref()))
}

/// A command without arguments and without privileges, even if root runs the tests: it cannot reach
/// the machine's network.
#[track_caller]
pub fn unprivileged(program: impl Into<PathBuf>) -> Command {
    let program = program.into();
    let program = if program.is_absolute() { program } else { find(&program) };
    if !geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = command("setpriv");
    command
        .args(["--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all", "--"])
        .arg(program);
    command
}

/// A data file of this machine.
#[track_caller]
pub fn file(path: &'static str) -> &'static Path {
    let path = Path::new(path);
    assert!(path.exists(), "{} is missing; install it with: {INSTALL}", path.display());
    path
}

/// Runs a command to its end and returns its standard output, without the line breaks at its end.
#[track_caller]
pub fn output(command: &mut Command) -> String {
    let text = command::output(command).unwrap_or_else(|error| panic!("{error:#}"));
    text.trim_end().to_owned()
}

#[track_caller]
fn find(name: &Path) -> PathBuf {
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = env::split_paths(&path).chain(SYSTEM_DIRECTORIES.map(PathBuf::from));
    let found = directories.map(|directory| directory.join(name)).find(|program| program.is_file());
    found.unwrap_or_else(|| panic!("{} is missing; install it with: {INSTALL}", name.display()))
}
