//! A connection to a scripted API server, for tests.

use kubeapi::{ApiServer, Cluster, Connection};
use testkit::ScriptedApi;

pub(crate) async fn start() -> (ScriptedApi, Connection) {
    let api = ScriptedApi::start().await;
    let cluster = Cluster::Url { url: api.url.clone(), authority: None };
    (api, Connection::open(ApiServer { cluster, credential: None }))
}
