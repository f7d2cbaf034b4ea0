//! An API server that a test plays.

use kube::{Client, Config};
use tests::ScriptedApi;

use super::ApiServer;

pub(crate) async fn start() -> (ScriptedApi, ApiServer) {
    let api = ScriptedApi::start().await;
    let mut config = Config::new(api.url.parse().unwrap());
    config.default_retry = false;
    let client = Client::try_from(config).unwrap();
    (api, ApiServer::plain(client))
}
