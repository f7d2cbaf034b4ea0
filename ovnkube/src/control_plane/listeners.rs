//! The databases of this host are opened for other machines: a `Connection` row in each, through
//! its local socket, and for TLS the `SSL` row with the files of its server (ovn-nb(5), ovn-sb(5)).
//!
//! Rows are added, and never changed or removed: a connection on the same port, or an `SSL` row, is
//! the administrator's, whatever it says.

use std::{path::Path, time::Duration};

use contract::backoff::Backoff;
use ovsdb::{
    Connection, Datum, Endpoint, Mutation, Outcome, Row, SelectedRow, TransactError, Transaction,
    Until, Where,
};
use tokio::time::{sleep, timeout};

use crate::chain;

/// Limit for one try. A server on the same machine answers in milliseconds; a member of a cluster
/// without a leader keeps a transaction for as long as it takes, and another member may be asked
/// meanwhile.
const PATIENCE: Duration = Duration::from_secs(10);

/// A database of this host, and where it has to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    pub database: OvnDatabase,
    /// Its local socket.
    pub socket: Endpoint,
    /// `ptcp:PORT` or `pssl:PORT`, with an address behind it that is not every IPv4 one.
    pub target: String,
    pub port: u16,
    /// For `pssl:`.
    pub tls: Option<ServerFiles>,
}

/// One of OVN's two databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OvnDatabase {
    Northbound,
    Southbound,
}

/// Paths on the host of the database's server, which reads the files itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFiles {
    pub private_key: String,
    pub certificate: String,
    pub authority: String,
}

/// What was found and done.
#[derive(Debug, PartialEq, Eq)]
enum Opened {
    /// The row was added.
    Now,
    /// A connection on this port was there.
    Before { target: String },
}

#[derive(Debug, thiserror::Error)]
enum OpenError {
    #[error(transparent)]
    Connect(#[from] ovsdb::ConnectError),
    #[error(transparent)]
    Transact(#[from] TransactError),
    #[error("no answer within {} s", PATIENCE.as_secs())]
    Silent,
}

/// Opens the database, as soon as its server is there. Returns once it is open.
pub(super) async fn open(listener: Listener) {
    let (mut backoff, mut last) = (Backoff::default(), String::new());
    let database = listener.database.name();
    loop {
        let tried = timeout(PATIENCE, listener.try_open()).await.unwrap_or(Err(OpenError::Silent));
        match tried {
            Ok(opened) => return listener.report(&opened),
            Err(error) => {
                let error = chain(&error);
                if error != last {
                    let socket = listener.socket.to_string();
                    tracing::warn!(
                        database,
                        socket,
                        error,
                        "the database cannot be opened for others yet"
                    );
                }
                last = error;
            }
        }
        sleep(backoff.next(None)).await;
    }
}

impl Listener {
    fn report(&self, opened: &Opened) {
        let (database, target) = (self.database.name(), self.target.as_str());
        match (opened, &self.tls) {
            (Opened::Before { target: there }, _) => {
                tracing::info!(
                    database,
                    target = there,
                    "the database has a connection on this port, which stays"
                );
            }
            (Opened::Now, Some(_)) => {
                tracing::info!(database, target, "the database is open for other machines")
            }
            (Opened::Now, None) => tracing::warn!(
                database,
                target,
                "the database is open for other machines: everybody who reaches this port may write"
            ),
        }
    }

    async fn try_open(&self) -> Result<Opened, OpenError> {
        let options = ovsdb::Options { connect_timeout: PATIENCE, ..ovsdb::Options::small() };
        let connection = Connection::open(&self.socket, self.database.schema(), options).await?;
        let (seen, roots, ssl) = self.look(&connection).await?;
        if let Some(target) = seen.iter().find(|target| port_of(target) == Some(self.port)) {
            return Ok(Opened::Before { target: target.clone() });
        }
        self.compare_files(ssl.as_ref());
        connection.transact(self.transaction(roots.first())).await?;
        Ok(Opened::Now)
    }

    /// Targets of all connections, the root row (none before the first client of OVN came), and the
    /// row of TLS.
    async fn look(
        &self,
        connection: &Connection,
    ) -> Result<(Vec<String>, Vec<SelectedRow>, Option<SelectedRow>), TransactError> {
        let mut transaction = Transaction::new();
        let connections = transaction.select("Connection", Where::all(), &["target"]);
        let roots = transaction.select(self.database.root(), Where::all(), &["connections", "ssl"]);
        let ssl =
            transaction.select("SSL", Where::all(), &["private_key", "certificate", "ca_cert"]);
        let outcome: Outcome = connection.transact(transaction).await?;
        let targets = outcome.rows(connections).iter();
        let targets = targets.filter_map(|row| row.string("target")).map(str::to_owned).collect();
        Ok((targets, outcome.rows(roots).to_vec(), outcome.rows(ssl).first().cloned()))
    }

    /// Another writer may be opening the same database, or the administrator: only what was seen is
    /// added to.
    fn transaction(&self, root: Option<&SelectedRow>) -> Transaction {
        let table = self.database.root();
        let mut transaction = Transaction::new();
        let column = |row: &SelectedRow, name| row.datum(name).cloned().unwrap_or_else(empty);
        let seen = root.map(|row| {
            Row::new()
                .with("connections", column(row, "connections"))
                .with("ssl", column(row, "ssl"))
        });
        let rows: Vec<Row> = seen.into_iter().collect();
        transaction.wait(
            table,
            Where::all(),
            &["connections", "ssl"],
            Until::Equal,
            rows,
            Duration::ZERO,
        );
        let connection =
            transaction.insert("Connection", Row::new().with("target", self.target.as_str()));
        let has_ssl = root.is_some_and(|row| !row.uuids("ssl").is_empty());
        let ssl = self.tls.as_ref().filter(|_| !has_ssl).map(|files| {
            let row = Row::new()
                .with("private_key", files.private_key.as_str())
                .with("certificate", files.certificate.as_str())
                .with("ca_cert", files.authority.as_str());
            transaction.insert("SSL", row)
        });
        match root {
            None => {
                let mut row = Row::new().with("connections", &connection);
                if let Some(ssl) = &ssl {
                    row.set("ssl", ssl);
                }
                transaction.insert(table, row);
            }
            Some(_) => {
                let mut mutations = vec![Mutation::insert("connections", &connection)];
                mutations.extend(ssl.iter().map(|ssl| Mutation::insert("ssl", ssl)));
                transaction.mutate(table, Where::all(), mutations);
            }
        }
        transaction.comment("ovnkube --open-databases");
        transaction
    }

    /// A file that is not there, or that the database is not told of, is the usual reason why
    /// nobody can connect.
    fn compare_files(&self, ssl: Option<&SelectedRow>) {
        let Some(files) = &self.tls else { return };
        let database = self.database.name();
        let columns = [
            ("private_key", &files.private_key),
            ("certificate", &files.certificate),
            ("ca_cert", &files.authority),
        ];
        for (column, file) in columns {
            match ssl.map(|row| row.string(column).unwrap_or_default()) {
                Some(other) if other != file => tracing::warn!(
                    database,
                    column,
                    file,
                    is = other,
                    "the database has an SSL row with another file, which stays; see set-ssl in ovn-nbctl(8)"
                ),
                Some(_) => {}
                None if Path::new(file).exists() => {}
                None => tracing::warn!(
                    database,
                    column,
                    file,
                    "no such file here: the database needs it on the host of its server"
                ),
            }
        }
    }
}

fn empty() -> Datum {
    Datum::set(Vec::<ovsdb::Uuid>::new())
}

/// The port of `ptcp:6641`, `pssl:6641:192.0.2.1` and the like; OVSDB's own if there is none
/// (ovsdb(7)).
fn port_of(target: &str) -> Option<u16> {
    let place = target.strip_prefix("ptcp:").or_else(|| target.strip_prefix("pssl:"))?;
    match place.split(':').next() {
        None | Some("") => Some(6640),
        Some(port) => port.parse().ok(),
    }
}

impl OvnDatabase {
    fn name(self) -> &'static str {
        match self {
            Self::Northbound => "northbound",
            Self::Southbound => "southbound",
        }
    }

    fn schema(self) -> &'static str {
        match self {
            Self::Northbound => "OVN_Northbound",
            Self::Southbound => "OVN_Southbound",
        }
    }

    /// The table with one row, which refers to all connections.
    fn root(self) -> &'static str {
        match self {
            Self::Northbound => "NB_Global",
            Self::Southbound => "SB_Global",
        }
    }
}

#[cfg(test)]
mod tests;
