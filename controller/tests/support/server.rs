//! A real database of OVN for one test.

use ovsdb::{Connection, Endpoint, Endpoints, Options};
use testkit::{Database, Scratch};

/// A database, what it runs in, and a connection for the test itself.
pub(crate) struct Server {
    pub(crate) endpoint: Endpoint,
    pub(crate) connection: Connection,
    database: Database,
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
        Self { endpoint, connection, database: server, _scratch: scratch }
    }

    /// The transactions that have changed the database since it was created, each as the record of
    /// its file (ovsdb(5)).
    #[allow(dead_code, reason = "one of the tests asks for it")]
    pub(crate) fn records(&self) -> Vec<String> {
        let file = std::fs::read_to_string(self.database.file()).unwrap();
        file.split("OVSDB JSON ").skip(2).map(str::to_owned).collect()
    }

    pub(crate) fn endpoints(&self) -> Endpoints {
        self.endpoint.to_string().parse().unwrap()
    }
}
