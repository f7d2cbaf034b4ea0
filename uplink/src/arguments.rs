//! The command line of the two commands, also under the names of the programs that had them before.

use std::{ffi::OsString, path::Path};

use contract::paths::OVSDB_ENDPOINT;
use ovsdb::Endpoint;

/// Names of the former programs with these commands: OVN-Kubernetes in Go, and in Python before.
const OLD_NAMES: [&str; 2] = ["ovn-kube-util", "ovn-k8s-util"];

const USAGE: &str = "\
Usage: ovnkube nics-to-bridge [--db=ENDPOINT] INTERFACE...
       ovnkube bridges-to-nic [--db=ENDPOINT] BRIDGE...

nics-to-bridge makes each interface the uplink of a new Open vSwitch bridge, brINTERFACE, and moves the
interface's addresses and routes there. bridges-to-nic moves them back and removes the bridge. If a step
fails, those before it are undone. A second run changes nothing; one after a run that was killed completes it.

      --db=ENDPOINT  Open vSwitch's database [default: unix:/var/run/openvswitch/db.sock]
  -h, --help         this text

Called as ovn-kube-util or ovn-k8s-util, this program has these two commands only.
";

/// What a command line asks for.
#[derive(Debug)]
pub enum Arguments {
    /// One of the two commands.
    Run(Command),
    /// A text to print.
    Help(&'static str),
    /// A command line that is not valid: the reason, and the usage.
    Wrong(String),
}

/// A command, with the interfaces or bridges in the order given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    NicsToBridge { database: Endpoint, interfaces: Vec<String> },
    BridgesToNic { database: Endpoint, bridges: Vec<String> },
}

impl Arguments {
    /// Reads a command line, of which the first word is the program's name. `None` if it is not one of these
    /// commands.
    pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Option<Self> {
        let mut words = arguments.into_iter().map(|word| word.to_string_lossy().into_owned());
        let program = words.next().unwrap_or_default();
        let is_old =
            Path::new(&program).file_name().is_some_and(|name| OLD_NAMES.iter().any(|old| name == *old));
        match words.next().as_deref() {
            Some("nics-to-bridge") => Some(Self::command(
                words,
                |database, interfaces| Command::NicsToBridge { database, interfaces },
                "interface",
            )),
            Some("bridges-to-nic") => Some(Self::command(
                words,
                |database, bridges| Command::BridgesToNic { database, bridges },
                "bridge",
            )),
            _ if !is_old => None,
            Some("-h" | "--help" | "-help" | "help") | None => Some(Self::Help(USAGE)),
            Some(other) => Some(Self::wrong(&format!("there is no command {other:?}"))),
        }
    }

    fn command(
        mut words: impl Iterator<Item = String>,
        make: fn(Endpoint, Vec<String>) -> Command,
        what: &str,
    ) -> Self {
        let (mut database, mut names) = (OVSDB_ENDPOINT.to_owned(), Vec::new());
        while let Some(word) = words.next() {
            match (word.as_str(), word.strip_prefix("--db=")) {
                ("-h" | "--help" | "-help", _) => return Self::Help(USAGE),
                ("--db", _) => match words.next() {
                    Some(endpoint) => database = endpoint,
                    None => return Self::wrong("--db needs an endpoint"),
                },
                (_, Some(endpoint)) => endpoint.clone_into(&mut database),
                (option, None) if option.starts_with('-') => {
                    return Self::wrong(&format!("there is no option {option:?}"));
                }
                (_, None) if names.contains(&word) => {}
                _ => names.push(word),
            }
        }
        if names.is_empty() {
            return Self::wrong(&format!("no {what} is named"));
        }
        match database.parse() {
            Ok(database) => Self::Run(make(database, names)),
            Err(error) => Self::wrong(&format!("option --db: {error}")),
        }
    }

    fn wrong(problem: &str) -> Self {
        Self::Wrong(format!("{problem}\n{USAGE}"))
    }
}

impl Command {
    pub(crate) fn names(&self) -> &[String] {
        match self {
            Self::NicsToBridge { interfaces: names, .. } | Self::BridgesToNic { bridges: names, .. } => names,
        }
    }

    pub(crate) fn database(&self) -> &Endpoint {
        match self {
            Self::NicsToBridge { database, .. } | Self::BridgesToNic { database, .. } => database,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<Arguments> {
        Arguments::read(line.split_whitespace().map(OsString::from))
    }

    fn command(line: &str) -> Command {
        match read(line) {
            Some(Arguments::Run(command)) => command,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_commands_are_known_under_every_name() {
        let database: Endpoint = OVSDB_ENDPOINT.parse().unwrap();
        for program in ["ovnkube", "/usr/bin/ovn-kube-util", "ovn-k8s-util"] {
            let interfaces = vec!["eth0".to_owned(), "eth1".to_owned()];
            let expected = Command::NicsToBridge { database: database.clone(), interfaces };
            assert_eq!(command(&format!("{program} nics-to-bridge eth0 eth1 eth0")), expected);
            let expected =
                Command::BridgesToNic { database: database.clone(), bridges: vec!["breth0".to_owned()] };
            assert_eq!(command(&format!("{program} bridges-to-nic breth0")), expected);
        }
    }

    #[test]
    fn another_database_is_named_in_both_ways() {
        for line in [
            "ovnkube nics-to-bridge --db=tcp:127.0.0.1:6640 eth0",
            "ovnkube nics-to-bridge eth0 --db tcp:127.0.0.1:6640",
        ] {
            assert_eq!(command(line).database().to_string(), "tcp:127.0.0.1:6640");
        }
    }

    #[test]
    fn other_command_lines_are_left_to_others() {
        for line in ["ovnkube", "ovnkube --init-node x", "ovnkube --help", "ovnkube eth0 nics-to-bridge"] {
            assert!(read(line).is_none(), "{line}");
        }
    }

    #[test]
    fn what_cannot_be_understood_is_named() {
        for (line, problem) in [
            ("ovnkube nics-to-bridge", "no interface is named"),
            ("ovnkube bridges-to-nic", "no bridge is named"),
            ("ovnkube nics-to-bridge --force eth0", "there is no option \"--force\""),
            ("ovnkube nics-to-bridge eth0 --db", "--db needs an endpoint"),
            ("ovnkube nics-to-bridge eth0 --db=x", "option --db: endpoint \"x\" does not begin with"),
            ("ovn-kube-util gateway-init", "there is no command \"gateway-init\""),
        ] {
            match read(line) {
                Some(Arguments::Wrong(text)) => {
                    assert!(text.starts_with(problem) && text.contains("Usage: "), "{text}")
                }
                other => panic!("{line}: {other:?}"),
            }
        }
        for line in ["ovn-kube-util", "ovn-k8s-util --help", "ovnkube nics-to-bridge -h"] {
            assert!(matches!(read(line), Some(Arguments::Help(_))), "{line}");
        }
    }
}
