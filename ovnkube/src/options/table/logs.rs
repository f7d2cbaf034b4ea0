//! Levels, files and rotation of the logs.

use contract::paths::{PLUGIN_LOG, SERVER_LOG};

use super::super::{
    kind::Kind,
    spec::{Group, OldKey, Spec},
    values,
};

const SECTION: &str = "logging";
const LEVEL: Kind =
    Kind::Checked { value_name: "LEVEL", check: |text| values::level(text).map(drop) };

options! { Group::Logs;
    LOGLEVEL = Spec::new("loglevel", LEVEL).key(SECTION, "loglevel").default("info")
        .help("Level of both logs: fatal, err, warn, info, dbg, or a number: 1 fatal, 2 error, 3 warn, 4 \
               info, 5 debug, and above, as with klog, debug");
    LOGFILE = Spec::new("logfile", Kind::Path).key(SECTION, "logfile").default(SERVER_LOG)
        .help("This server's log, in Open vSwitch's layout");
    CNILOGFILE = Spec::new("cnilogfile", Kind::Path).key(SECTION, "cnilogfile").default(PLUGIN_LOG)
        .old_keys(&[OldKey::python("log-path")]).help("The CNI plugin's log");
    MAX_SIZE = Spec::new("logfile-maxsize", Kind::NUMBER).value("MEGABYTES").key(SECTION, "logfile-maxsize")
        .default("100")
        .help("Rename this server's log when it is larger; 0 for never. Another program (logrotate) may \
               rename it, too");
    MAX_BACKUPS = Spec::new("logfile-maxbackups", Kind::NUMBER).key(SECTION, "logfile-maxbackups")
        .default("5")
        .help("How many renamed logs are kept; 0 for all");
    MAX_AGE = Spec::new("logfile-maxage", Kind::NUMBER).value("DAYS").key(SECTION, "logfile-maxage")
        .default("5")
        .help("How long renamed logs are kept; 0 for ever");
    LIBOVSDBLOGFILE = Spec::new("libovsdblogfile", Kind::Path).key(SECTION, "libovsdblogfile")
        .help("Log of the database client")
        .never("is for a Go library; --loglevel dbg has such lines in this server's log");
    LOGDIR = Spec::new("logdir", Kind::Path).value("DIR").key("default", "logdir")
        .help("Open vSwitch's log directory")
        .never("is for the Python programs: give --logfile and --cnilogfile");
}
