//! A real database of OVN for one test.

use ovsdb::{Connection, Endpoint, Endpoints, Options};
use testkit::{Database, Scratch};

/// A database, what it runs in, and a connection for the test itself.
pub(crate) struct Server {
    pub(crate) endpoint: Endpoint,
    pub(crate) connection: Connection,
    _database: Database,
    _scratch: Scratch,
}

impl Server {
    pub(crate) async fn northbound() -> Self {
        Self::start("OVN_Northbound", "/usr/share/ovn/ovn-nb.ovsschema").await
    }

    pub(crate) async fn southbound() -> Self {
        Self::start("OVN_Southbound", "/usr/share/ovn/ovn-sb.ovsschema").await
    }

    async fn start(database: &str, schema: &'static str) -> Self {
        let scratch = Scratch::new();
        let server = Database::of_schema(scratch.path(), "db", schema);
        let endpoint = Endpoint::Unix(scratch.join("db.sock"));
        let connection = Connection::open(&endpoint, database, Options::default()).await.unwrap();
        Self { endpoint, connection, _database: server, _scratch: scratch }
    }

    pub(crate) fn endpoints(&self) -> Endpoints {
        self.endpoint.to_string().parse().unwrap()
    }
}
