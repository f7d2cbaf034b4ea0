//! Open vSwitch's database: a real ovsdb-server with the real schema. No daemon acts on it unless a
//! test starts one.

use std::{
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::Stdio,
};

use serde_json::Value;

use crate::{process::Process, program};

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// A database that listens on a socket in its directory.
#[derive(Debug)]
pub struct Database {
    pub process: Process,
    endpoint: String,
    file: PathBuf,
}

impl Database {
    /// Starts a database with the row that `ovs-vsctl init` inserts, at `db.sock`.
    #[track_caller]
    pub fn start(directory: &Path) -> Self {
        let database = Self::of_schema(directory, "db", SCHEMA);
        database.vsctl(&["init"]);
        database
    }

    /// Starts a database without that row.
    #[track_caller]
    pub fn start_empty(directory: &Path) -> Self {
        Self::of_schema(directory, "db", SCHEMA)
    }

    /// Starts a server again for the database in `directory`, with its contents.
    #[track_caller]
    pub fn restart(directory: &Path) -> Self {
        Self::serve(directory, "db")
    }

    /// Creates a database with any schema and serves it at `NAME.sock`.
    #[track_caller]
    pub fn of_schema(directory: &Path, name: &str, schema: &'static str) -> Self {
        let file = directory.join(format!("{name}.conf"));
        program::output(
            program::command("ovsdb-tool").arg("create").arg(&file).arg(program::file(schema)),
        );
        Self::serve(directory, name)
    }

    /// Serves the existing database `name` at `NAME.sock`.
    #[track_caller]
    pub fn serve(directory: &Path, name: &str) -> Self {
        let place = |ending: &str| directory.join(format!("{name}.{ending}"));
        let (file, socket) = (place("conf"), place("sock"));
        let mut command = program::unprivileged("ovsdb-server");
        let option = |name: &str, place: PathBuf| format!("--{name}={}", place.display());
        command.arg(&file).arg(format!("--remote=punix:{}", socket.display())).arg("-vconsole:off");
        command
            .args([option("unixctl", place("ctl")), option("log-file", place("log"))])
            .stdin(Stdio::null());
        let mut process = Process::start(&mut command);
        process.ready("the database listens", || {
            UnixStream::connect(&socket).map_err(|error| error.to_string())
        });
        Self { process, endpoint: format!("unix:{}", socket.display()), file }
    }

    /// Path of the file, which also holds past transactions with their comments.
    pub fn file(&self) -> &Path {
        &self.file
    }

    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Runs `ovs-vsctl` with these arguments and returns its output.
    #[track_caller]
    pub fn vsctl(&self, arguments: &[impl AsRef<str>]) -> String {
        let mut command = program::command("ovs-vsctl");
        command
            .args(["--no-wait", "--timeout=10"])
            .arg(format!("--db={}", self.endpoint))
            .args(arguments.iter().map(AsRef::as_ref));
        program::output(&mut command)
    }

    /// Names of the ports of `br-int`, sorted.
    #[track_caller]
    pub fn ports(&self) -> Vec<String> {
        self.vsctl(&["list-ports", "br-int"]).lines().map(str::to_owned).collect()
    }

    /// One column of every row of a table, sorted.
    #[track_caller]
    pub fn column(&self, table: &str, column: &str) -> Vec<String> {
        let column = format!("--columns={column}");
        let text = self.vsctl(&["--bare", &column, "list", table]);
        let mut rows: Vec<String> =
            text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
        rows.sort();
        rows
    }

    /// The whole contents, to detect changes. The counter `next_cfg` is left out: each client that
    /// waits for ovs-vswitchd increments it.
    #[track_caller]
    pub fn content(&self) -> String {
        let text = program::output(program::command("ovsdb-client").args([
            "--format=json",
            "dump",
            &self.endpoint,
            "Open_vSwitch",
        ]));
        let tables = text.lines().map(|line| {
            let mut table: Value = serde_json::from_str(line).expect("a table in JSON");
            let counter = table["headings"]
                .as_array()
                .and_then(|columns| columns.iter().position(|column| column == "next_cfg"));
            if let (Some(counter), Some(rows)) = (counter, table["data"].as_array_mut()) {
                rows.iter_mut().for_each(|row| row[counter] = Value::Null);
            }
            table.to_string()
        });
        tables.collect::<Vec<_>>().join("\n")
    }

    /// Plays an ovs-vswitchd that has done all work that will ever be requested.
    #[track_caller]
    pub fn say_all_done(&self) {
        self.vsctl(&["set", "Open_vSwitch", ".", "cur_cfg=1000000"]);
    }
}
