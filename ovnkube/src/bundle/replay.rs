//! An archive as its sources: servers on this machine's loopback that answer from it as the API
//! server and the databases did. So every command reads an archive with the code with which it
//! reads a cluster. They end with the process.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read as _},
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use kubeapi::{ApiServer, Cluster};
use ovsdb::Endpoint;
use podnet::pod_look::wire::InsideAnswer;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::runtime::Builder;

use self::{api::ApiReplay, database::DatabaseReplay};
use super::{API, DATABASES, DESCRIPTION, Description, INSIDE, MACHINE, VERSION};
use crate::{
    control_plane::Database,
    explain::ExplainConfig,
    findings::ReportedFinding,
    status::{
        Machine, Reach, Recorded, StatusConfig,
        databases::{NORTHBOUND, SOUTHBOUND},
        node::THIS_MACHINE,
    },
};

mod api;
mod database;

/// Bytes of an archive that are read: more than `support-bundle` writes by default.
const MOST: u64 = 1 << 31;
/// How long `policy explain` waits for its database.
const PATIENCE: Duration = Duration::from_secs(30);

/// The entries of an archive, by their names.
type Entries = BTreeMap<String, Vec<u8>>;

/// Where a command reads an archive.
#[derive(Debug)]
pub struct Replay(StatusConfig);

impl Replay {
    /// Reads the archive, and serves it from now on.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is no archive of these programs.
    pub fn open(file: &Path) -> Result<Self, String> {
        let named = |why: &dyn std::fmt::Display| format!("{}: {why}", file.display());
        let opened = File::open(file).map_err(|error| named(&error))?;
        let entries = entries(opened).map_err(|_| named(&"is no support bundle"))?;
        let description: Description =
            parsed(&entries, DESCRIPTION).ok_or_else(|| named(&"is no support bundle"))?;
        if description.api_version != VERSION {
            return Err(named(&format!("its version is {}", description.api_version)));
        }
        Self::serve(&entries, description).map_err(|error| named(&error))
    }

    /// Where the command reads.
    pub fn config(&self) -> &StatusConfig {
        &self.0
    }

    /// The same for `policy explain`.
    ///
    /// # Errors
    ///
    /// The archive lacks one of the two.
    pub fn explanation(&self) -> Result<ExplainConfig, String> {
        let lacks = |what: &str| format!("the bundle has nothing of {what}");
        let Reach::Known(api_server) = self.0.api_server.clone() else {
            return Err(lacks("the API server"));
        };
        let Reach::Known(northbound) = self.0.northbound.clone() else {
            return Err(lacks("the northbound database"));
        };
        Ok(ExplainConfig { api_server, northbound, patience: PATIENCE })
    }

    fn serve(entries: &Entries, description: Description) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let mut serving = Vec::new();
        let listen = || -> io::Result<(u16, TcpListener)> {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            listener.set_nonblocking(true)?;
            Ok((listener.local_addr()?.port(), listener))
        };
        let api_server = match ApiReplay::of(entries) {
            None => Reach::NotGiven,
            Some(api) => {
                let (port, listener) = listen()?;
                serving.push(ReplayServer::Api(listener, Arc::new(api)));
                let url = format!("http://127.0.0.1:{port}");
                let cluster = Cluster::Url { url, authority: None };
                Reach::Known(ApiServer { cluster, credential: None })
            }
        };
        let mut database = |name: &str| -> io::Result<Option<Endpoint>> {
            let Some(database) = DatabaseReplay::of(entries, name) else { return Ok(None) };
            let (port, listener) = listen()?;
            serving.push(ReplayServer::Database(listener, Arc::new(database)));
            format!("tcp:127.0.0.1:{port}").parse().map(Some).map_err(io::Error::other)
        };
        let (north, south) = (database(NORTHBOUND)?, database(SOUTHBOUND)?);
        let nowhere = PathBuf::from("/nonexistent");
        let ovsdb =
            database("Open_vSwitch")?.unwrap_or_else(|| Endpoint::Unix(nowhere.join("db.sock")));
        thread::Builder::new().name("bundle".to_owned()).spawn(move || {
            runtime.block_on(async {
                serving.into_iter().for_each(ReplayServer::start);
                std::future::pending::<()>().await
            })
        })?;
        let reach = |endpoint: Option<Endpoint>| match endpoint {
            Some(endpoint) => {
                let endpoints = endpoint.into();
                Reach::Known(Database { endpoints, ssl: None, probe: None })
            }
            None => Reach::NotGiven,
        };
        let recorded = recorded(entries, &description);
        Ok(Self(StatusConfig {
            api_server,
            namespace: description.namespace,
            northbound: reach(north),
            southbound: reach(south),
            machine: Machine {
                ovsdb,
                ovs_run_dir: nowhere.clone(),
                ovn_run_dir: nowhere.clone(),
                socket: nowhere.join("bundle"),
                recorded: Some(Arc::new(recorded)),
            },
        }))
    }
}

/// A server of one source.
enum ReplayServer {
    Api(TcpListener, Arc<ApiReplay>),
    Database(TcpListener, Arc<DatabaseReplay>),
}

impl ReplayServer {
    fn start(self) {
        match self {
            Self::Api(listener, api) => drop(tokio::spawn(api::serve(listener, api))),
            Self::Database(listener, database) => {
                drop(tokio::spawn(database::serve(listener, database)));
            }
        }
    }
}

/// What was found out about the machine where the archive was made.
fn recorded(entries: &Entries, description: &Description) -> Recorded {
    let found: Vec<ReportedFinding> = parsed(entries, MACHINE).unwrap_or_default();
    let inside = entries.keys().filter_map(|name| {
        let port = name.strip_prefix(&format!("{INSIDE}/"))?.strip_suffix(".json")?;
        Some((port.to_owned(), parsed::<InsideAnswer>(entries, name)?))
    });
    Recorded {
        now: description.created,
        node: description.node.clone(),
        findings: found.into_iter().map(|found| found.under(THIS_MACHINE)).collect(),
        inside: inside.collect(),
    }
}

fn parsed<T: DeserializeOwned>(entries: &Entries, name: &str) -> Option<T> {
    serde_json::from_slice(entries.get(name)?).ok()
}

/// The lists and pages of the API server, by path, and whether they are lists.
fn pages(entries: &Entries) -> impl Iterator<Item = (&str, Value)> {
    entries.iter().filter_map(|(name, bytes)| {
        let path = name.strip_prefix(API)?.strip_suffix(".json")?;
        Some((path, serde_json::from_slice(bytes).ok()?))
    })
}

/// The tables of a database, by name, and its schema as the table `schema`.
fn tables<'a>(
    entries: &'a Entries,
    database: &str,
) -> impl Iterator<Item = (&'a str, Value)> + use<'a> {
    let directory = format!("{DATABASES}/{database}/");
    entries.iter().filter_map(move |(name, bytes)| {
        let table = name.strip_prefix(&directory)?.strip_suffix(".json")?;
        Some((table, serde_json::from_slice(bytes).ok()?))
    })
}

fn entries(file: File) -> io::Result<Entries> {
    let mut archive = tar::Archive::new(file.take(MOST));
    let mut found = Entries::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        let name = entry.path()?.to_string_lossy().into_owned();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        found.insert(name, bytes);
    }
    Ok(found)
}
