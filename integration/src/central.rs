//! The central part of OVN: northbound and southbound databases, ovn-northd, and the logical
//! topology.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
    os::unix::{fs::symlink, net::UnixStream},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result};
use ipnet::IpNet;

use crate::{Daemon, command, eventually, mounts, subnet};

/// Logical router that joins the nodes' switches, under upstream's name.
pub const ROUTER: &str = "ovn_cluster_router";

/// Address of the southbound database, the same on every node.
pub const SOUTHBOUND: &str = "unix:/run/lab/central/sb.sock";
/// Address of the northbound database, for the control plane or the test in its place.
pub const NORTHBOUND: &str = "unix:/run/lab/central/nb.sock";

const NORTHBOUND_SCHEMA: &str = "/usr/share/ovn/ovn-nb.ovsschema";
const SOUTHBOUND_SCHEMA: &str = "/usr/share/ovn/ovn-sb.ovsschema";

/// The running databases and ovn-northd.
#[derive(Debug)]
pub struct Central {
    /// Northbound database server.
    pub northbound: Daemon,
    /// Southbound database server.
    pub southbound: Daemon,
    /// Translates the northbound database into the southbound one.
    pub northd: Daemon,
    /// Of sockets and files.
    directory: PathBuf,
}

impl Central {
    /// Starts all three, with empty databases.
    pub(crate) fn start() -> Result<Self> {
        Self::create()?.run()
    }

    /// Starts the central part of a zone beside the lab's own, with empty databases.
    pub fn of_zone(zone: &str) -> Result<Self> {
        Self::create_in(Path::new(mounts::LAB).join(format!("zone-{zone}")))?.run()
    }

    fn run(self) -> Result<Self> {
        self.start_northbound()?;
        self.start_southbound()?;
        self.northd.spawn()?;
        Ok(self)
    }

    /// Creates empty databases; nothing runs yet.
    pub fn create() -> Result<Self> {
        Self::create_in(dir())
    }

    fn create_in(directory: PathBuf) -> Result<Self> {
        fs::create_dir_all(&directory)?;
        let northbound =
            database(&directory, "nb", NORTHBOUND_SCHEMA, "OVN_Northbound", "NB_Global")?;
        let southbound =
            database(&directory, "sb", SOUTHBOUND_SCHEMA, "OVN_Southbound", "SB_Global")?;
        let log = log(&directory, "ovn-northd");
        let mut arguments = vec![
            format!("--ovnnb-db={}", socket(&directory, "nb")),
            format!("--ovnsb-db={}", socket(&directory, "sb")),
            "-vconsole:err".to_owned(),
            format!("--log-file={}", log.with_extension("log").display()),
            "--pidfile".to_owned(),
        ];
        // Programs look for the lab's own where they are by default.
        if directory != dir() {
            let own = |option| {
                format!("--{option}={}", directory.join(format!("ovn-northd.{option}")).display())
            };
            arguments.extend(["pidfile", "unixctl"].map(own));
        }
        Ok(Self {
            northbound,
            southbound,
            northd: Daemon::new("ovn-northd", log, || Ok(Command::new("ovn-northd")), arguments),
            directory,
        })
    }

    /// Address of the northbound database.
    pub fn northbound_address(&self) -> String {
        socket(&self.directory, "nb")
    }

    /// Address of the southbound database, the same on every node.
    pub fn southbound_address(&self) -> String {
        socket(&self.directory, "sb")
    }

    /// Starts the northbound database (again).
    pub fn start_northbound(&self) -> Result<()> {
        self.northbound.start(|| accepts(&self.directory.join("nb.sock")))
    }

    /// Kills the server of the northbound database and starts it with an empty one, as after the
    /// loss of its disk.
    pub fn replace_northbound(&self) -> Result<()> {
        self.northbound.kill()?;
        create_anew(&self.directory.join("nb.db"), NORTHBOUND_SCHEMA)?;
        self.start_northbound()
    }

    /// The same with the southbound database.
    pub fn replace_southbound(&self) -> Result<()> {
        self.southbound.kill()?;
        create_anew(&self.directory.join("sb.db"), SOUTHBOUND_SCHEMA)?;
        self.start_southbound()
    }

    /// Replaces both at once, as after the loss of all database files of OVN.
    pub fn replace_all(&self) -> Result<()> {
        // Both end before either starts: no client sees one old and one new database.
        self.northbound.kill()?;
        self.southbound.kill()?;
        create_anew(&self.directory.join("nb.db"), NORTHBOUND_SCHEMA)?;
        create_anew(&self.directory.join("sb.db"), SOUTHBOUND_SCHEMA)?;
        self.start_northbound()?;
        self.start_southbound()
    }

    /// The northbound database's log of transactions (ovsdb(5)).
    pub fn northbound_file() -> PathBuf {
        dir().join("nb.db")
    }

    /// Number of transactions that have changed the northbound database since it was created: the
    /// records of its log without the first, which is the schema.
    ///
    /// Valid for ten minutes: ovsdb-server compacts the log ten minutes after its start, at the
    /// earliest.
    pub fn northbound_transactions() -> Result<u64> {
        transactions(&Self::northbound_file())
    }

    /// The same of this central part, and of each database: northbound, southbound.
    pub fn transactions(&self) -> Result<[u64; 2]> {
        let of = |name: &str| transactions(&self.directory.join(name));
        Ok([of("nb.db")?, of("sb.db")?])
    }

    /// Starts the southbound database (again).
    pub fn start_southbound(&self) -> Result<()> {
        self.southbound.start(|| accepts(&self.directory.join("sb.sock")))
    }

    /// `ovn-nbctl` with a time limit of 30 s.
    pub fn nbctl(&self, arguments: impl IntoIterator<Item = impl Into<String>>) -> Result<String> {
        let arguments = arguments.into_iter().map(Into::into);
        command::output(
            Command::new("ovn-nbctl")
                .args(["--timeout=30", "--db", &self.northbound_address()])
                .args(arguments),
        )
    }

    /// `ovn-sbctl` with a time limit of 30 s.
    pub fn sbctl(&self, arguments: impl IntoIterator<Item = impl Into<String>>) -> Result<String> {
        let arguments = arguments.into_iter().map(Into::into);
        command::output(
            Command::new("ovn-sbctl")
                .args(["--timeout=30", "--db", &self.southbound_address()])
                .args(arguments),
        )
    }

    /// Waits until every chassis has applied what the northbound database says now.
    ///
    /// Repeats the request with a short time limit: after a failed commit ovn-northd sleeps until
    /// the northbound database changes, and each request changes it (`nb_cfg`).
    pub fn sync(&self) -> Result<()> {
        let ask = || self.nbctl(["--timeout=5", "--wait=hv", "sync"]).map(drop);
        eventually("every chassis has caught up", Duration::from_secs(30), ask)
    }

    /// Creates one switch per node, named as the node, with the node's management port. [`ROUTER`]
    /// joins the switches and is the gateway of each.
    pub(crate) fn create_topology<'a>(
        &self,
        nodes: impl IntoIterator<Item = (&'a str, &'a [IpNet])>,
    ) -> Result<()> {
        // With a fixed prefix, the addresses that OVN generates look alike in every run.
        let mut command = words("set NB_Global . options:mac_prefix=0a:00:00");
        command.extend(words(&format!("-- lr-add {ROUTER}")));
        for (node, subnets) in nodes {
            let gateways: Vec<IpNet> = subnets.iter().map(subnet::gateway).collect();
            let mac = subnet::mac(gateways[0].addr());
            let addresses = gateways.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
            command.extend(words(&format!(
                "-- ls-add {node} -- lrp-add {ROUTER} rtos-{node} {mac} {addresses}"
            )));
            command.extend(words(&format!(
                "-- lsp-add {node} stor-{node} -- lsp-set-type stor-{node} router"
            )));
            let management: Vec<_> =
                subnets.iter().map(|subnet| subnet::host(subnet, 2).addr()).collect();
            let mac = subnet::mac(management[0]);
            let addresses =
                management.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
            command.extend(words(&format!(
                "-- lsp-add {node} k8s-{node} -- lsp-set-addresses k8s-{node}"
            )));
            command.push(format!("{mac} {addresses}"));
            command.extend(words(&format!(
                "-- lsp-set-addresses stor-{node} router \
                 -- lsp-set-options stor-{node} router-port=rtos-{node}"
            )));
        }
        self.nbctl(command).map(drop)
    }
}

/// Links the sockets to where packages have them below `root`, the lab's (`/`) or a node's, for
/// programs that are given no address.
pub fn link_sockets(root: &Path) -> Result<()> {
    for database in ["nb", "sb"] {
        let link = root.join(format!("run/ovn/ovn{database}_db.sock"));
        symlink(dir().join(format!("{database}.sock")), &link)
            .with_context(|| format!("link {}", link.display()))?;
    }
    Ok(())
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Number of transactions in the log of a database, without the schema.
fn transactions(path: &Path) -> Result<u64> {
    let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    let mut records = 0_u64;
    for line in BufReader::new(file).split(b'\n') {
        // The header of a record, ovsdb(5).
        if line?.starts_with(b"OVSDB JSON ") {
            records += 1;
        }
    }
    Ok(records.saturating_sub(1))
}

fn dir() -> PathBuf {
    Path::new(mounts::LAB).join("central")
}

/// The address of a database's socket.
fn socket(directory: &Path, database: &str) -> String {
    format!("unix:{}", directory.join(format!("{database}.sock")).display())
}

fn log(directory: &Path, name: &str) -> PathBuf {
    let part = directory.file_name().unwrap_or_default();
    Path::new(mounts::LOGS).join(part).join(format!("{name}.out"))
}

/// A server that listens, besides its socket, where the rows below `root` say, as ovn-ctl(8) starts
/// it.
fn database(
    directory: &Path,
    name: &str,
    schema: &str,
    database: &str,
    root: &str,
) -> Result<Daemon> {
    let file = directory.join(format!("{name}.db"));
    create_database(&file, schema)?;
    let log = log(directory, &format!("ovsdb-server-{name}"));
    let arguments = [
        file.display().to_string(),
        format!("--remote=punix:{}", directory.join(format!("{name}.sock")).display()),
        format!("--remote=db:{database},{root},connections"),
        format!("--private-key=db:{database},SSL,private_key"),
        format!("--certificate=db:{database},SSL,certificate"),
        format!("--ca-cert=db:{database},SSL,ca_cert"),
        // Files named after the database: the default names of two servers would collide.
        format!("--unixctl={}", directory.join(format!("{name}.ctl")).display()),
        format!("--pidfile={}", directory.join(format!("{name}.pid")).display()),
        "-vconsole:err".to_owned(),
        format!("--log-file={}", log.with_extension("log").display()),
    ];
    Ok(Daemon::new(
        format!("ovsdb-server ({name})"),
        log,
        || Ok(Command::new("ovsdb-server")),
        arguments,
    ))
}

fn create_anew(file: &Path, schema: &str) -> Result<()> {
    fs::remove_file(file).with_context(|| format!("remove {}", file.display()))?;
    create_database(file, schema)
}

fn create_database(file: &Path, schema: &str) -> Result<()> {
    command::output(Command::new("ovsdb-tool").arg("create").arg(file).arg(schema)).map(drop)
}

/// Succeeds if a server accepts connections on the socket.
pub(crate) fn accepts(socket: &Path) -> Result<()> {
    UnixStream::connect(socket)
        .map(drop)
        .with_context(|| format!("connect to {}", socket.display()))
}
