//! `ovn-k8s-gateway-helper` and `ovn-k8s-watcher`, with the options of Open vSwitch's daemons.

use std::{ffi::OsString, path::PathBuf};

use clap::{Arg, ArgAction, ArgMatches};

use super::{Command, Invocation, refused};
use crate::{
    legacy::{Helper, daemon::DaemonOptions},
    options::Options,
};

/// The name of the program.
pub(super) const GATEWAY_HELPER: &str = "ovn-k8s-gateway-helper";

/// The same of the control plane.
pub(super) const WATCHER: &str = "ovn-k8s-watcher";
/// The modes of the watcher; the others were never there.
const MODES: [(&str, &str); 3] = [
    ("overlay", "Pods are in OVN's overlay"),
    ("underlay", "Not implemented"),
    ("openstack", "Not implemented"),
];

const BRIDGE: &str = "physical-bridge";
const NIC: &str = "physical-interface";
const DB: &str = "db";
const DETACH: &str = "detach";
const NO_CHDIR: &str = "no-chdir";
const MONITOR: &str = "monitor";
const PIDFILE: &str = "pidfile";
const OVERWRITE: &str = "overwrite-pidfile";
const LOG_FILE: &str = "log-file";
const VERBOSE: &str = "verbose";

const AFTER: &str = "\
The API server is where external_ids:k8s-api-server of the local Open vSwitch says. With \
--pidfile, `ovs-appctl -t NAME COMMAND` asks the process: exit, version, list-commands, vlog/list, \
vlog/set, vlog/reopen.";

fn daemon(name: &'static str) -> clap::Command {
    let switch = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
    };
    let file = |name: &'static str, help: &'static str| {
        let file = Arg::new(name).long(name).value_name("FILE").num_args(0..=1);
        file.require_equals(true).default_missing_value("").help(help)
    };
    let verbose = Arg::new(VERBOSE)
        .short('v')
        .long(VERBOSE)
        .value_name("SPEC")
        .num_args(0..=1)
        .default_missing_value("dbg")
        .action(ArgAction::Append)
        .help("Levels of the log: [MODULE:][console|syslog|file:][off|emer|err|warn|info|dbg]");
    clap::Command::new(name)
        .version(env!("CARGO_PKG_VERSION"))
        .max_term_width(100)
        .after_help(AFTER)
        .args([
            switch(DETACH, "Run in the background, once the work has begun"),
            switch(NO_CHDIR, "Keep the working directory in the background"),
            switch(MONITOR, "Start the process again when it crashes"),
            file(
                PIDFILE,
                "Write the process id to a file; without a value to /var/run/openvswitch/NAME.pid",
            ),
            switch(OVERWRITE, "Start even if the process of that file runs"),
            file(LOG_FILE, "Log to a file; without a value to /var/log/openvswitch/NAME.log"),
            verbose,
            Arg::new(DB)
                .long(DB)
                .value_name("ENDPOINT")
                .help("Open vSwitch's database, instead of the usual socket"),
        ])
}

pub(super) fn gateway_helper() -> clap::Command {
    let value = |name: &'static str, what: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(what).required(true).help(help)
    };
    daemon(GATEWAY_HELPER)
        .about("Keep the flows of a bridge whose NIC this node and its pods share")
        .arg(value(BRIDGE, "BRIDGE", "The bridge"))
        .arg(value(NIC, "INTERFACE", "The NIC in it"))
}

pub(super) fn watcher() -> clap::Command {
    let mode = |(name, help): (&'static str, &'static str)| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
    };
    daemon(WATCHER)
        .about(
            "Be the control plane under its name of 2016: follow pods and Services, and write rows",
        )
        .args(MODES.map(mode))
}

/// Reads the command line of a program that has no commands.
pub(super) fn read(program: clap::Command, arguments: Vec<OsString>) -> Invocation {
    match program.clone().try_get_matches_from(arguments) {
        Ok(matches) if program.get_name() == WATCHER => watch(&matches),
        Ok(matches) => Invocation::Command(Box::new(command(&matches))),
        Err(error) => refused(&program, &error),
    }
}

fn watch(matches: &ArgMatches) -> Invocation {
    let [overlay, underlay, openstack] = MODES.map(|(name, _)| matches.get_flag(name));
    let refused = match (overlay, underlay, openstack) {
        (_, true, _) => "Underlay mode not implemented",
        (_, _, true) => "OpenStack mode not implemented",
        (false, false, false) => "Atleast one of --overlay, --underlay or --openstack needed",
        (true, false, false) => {
            let line = ["--init-master=ovn-k8s-watcher", "--legacy-annotations"];
            return Invocation::Command(Box::new(Command::Watcher {
                daemon: options_of_daemon(matches),
                legacy: options(matches, &[]),
                options: options(matches, &line),
            }));
        }
    };
    Invocation::Unusable(refused.to_owned())
}

fn command(matches: &ArgMatches) -> Command {
    let text = |name: &str| matches.get_one::<String>(name).cloned().unwrap_or_default();
    let helper =
        Helper { bridge: text(BRIDGE), nic: text(NIC), daemon: options_of_daemon(matches) };
    Command::GatewayHelper { helper, options: options(matches, &[]) }
}

fn options_of_daemon(matches: &ArgMatches) -> DaemonOptions {
    let file = |name: &str| {
        let given = matches.get_one::<String>(name);
        given.map(|text| Some(PathBuf::from(text)).filter(|_| !text.is_empty()))
    };
    DaemonOptions {
        detach: matches.get_flag(DETACH),
        no_chdir: matches.get_flag(NO_CHDIR),
        monitor: matches.get_flag(MONITOR),
        pidfile: file(PIDFILE),
        overwrite_pidfile: matches.get_flag(OVERWRITE),
        log_file: file(LOG_FILE),
        levels: matches.get_many::<String>(VERBOSE).into_iter().flatten().cloned().collect(),
    }
}

/// The sources of options that these programs share with `ovnkube`.
fn options(matches: &ArgMatches, line: &[&str]) -> Options {
    let database = matches.get_one::<String>(DB);
    let database = database.map(|endpoint| format!("--ovsdb-endpoint={endpoint}").into());
    let line = ["ovnkube"].iter().chain(line).map(OsString::from);
    Options::read(line.chain(database))
}
