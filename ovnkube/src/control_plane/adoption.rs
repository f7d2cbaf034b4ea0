//! A northbound database of the programs of 2016 to 2018: taken over at the start of the
//! controller, or by `ovnkube --adopt`, which prints what changes. What changes is decided in
//! `controller::legacy::adopt`.

use std::{
    io::{Write, stdout},
    time::Duration,
};

use contract::backoff::Backoff;
use controller::{
    config::ClusterConfig,
    engine::{northbound::DATABASE, reconcile::Progress},
    legacy::adopt::{AdoptError, Adoption, remove_load_balancers},
};
use kubeapi::{ApiServer, Connection, election::Leadership};
use ovsdb::{Client, Monitor, State};
use server::conditions::Conditions;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use super::{ControlPlaneError, Database};
use crate::{chain, roles::ROWS};

/// The arguments of `--adopt`.
#[derive(Debug, Clone)]
pub struct AdoptConfig {
    pub northbound: Database,
    pub cluster: ClusterConfig,
    pub api_server: ApiServer,
    /// Limit for the database's first answer.
    pub patience: Duration,
    /// Nothing is written.
    pub dry_run: bool,
}

/// Prints the rows and nodes that change, to standard output, and writes them unless it is a dry
/// run. Returns whether it succeeded; an error goes to standard error.
pub fn adopt(config: &AdoptConfig) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ControlPlaneError::Runtime);
    let done = match runtime {
        Ok(runtime) => runtime.block_on(once(config)),
        Err(error) => Err(chain(&error)),
    };
    done.inspect_err(|why| eprintln!("ovnkube: {why}")).is_ok()
}

async fn once(config: &AdoptConfig) -> Result<(), String> {
    let AdoptConfig { northbound, cluster, api_server, patience, dry_run } = config;
    let (client, _updates) =
        Client::start(northbound.endpoints.clone(), DATABASE, Monitor::new(), northbound.options());
    let api = Connection::open(api_server.clone());
    if timeout(*patience, client.connected()).await.is_err() {
        let why = match &*client.state().borrow() {
            State::Connected(_) => String::new(),
            State::Disconnected(why) => format!(": {}", chain(why)),
        };
        let endpoints = &northbound.endpoints;
        return Err(format!(
            "northbound database {endpoints}: no connection within {patience:?} \
             (--db-txn-timeout){why}"
        ));
    }
    let refused =
        |error: AdoptError| format!("the northbound database is not taken over: {}", chain(&error));
    let mut out = stdout().lock();
    let Some(adoption) = Adoption::prepare(&client, &api, cluster).await.map_err(refused)? else {
        let said = writeln!(out, "there is no cluster router of 2018: nothing to take over");
        return said.map_err(|error| error.to_string());
    };
    for line in adoption.lines() {
        writeln!(out, "{line}").map_err(|error| error.to_string())?;
    }
    if *dry_run { Ok(()) } else { adoption.apply(&client, &api).await.map_err(refused) }
}

/// Takes over the database if it is of 2018. Returns once it is not, or not any more; until then
/// the readiness condition of the rows has the reason.
pub(super) async fn take_over(
    client: Client,
    api: Connection,
    cluster: ClusterConfig,
    conditions: Conditions,
) {
    let (mut backoff, mut told) = (Backoff::default(), String::new());
    loop {
        client.connected().await;
        match attempt(&client, &api, &cluster).await {
            Ok(()) => return,
            Err(error) => {
                let why = chain(&error);
                conditions.missing(ROWS, why.as_str());
                if told != why {
                    tracing::warn!(why, "the northbound database of 2018 is not taken over yet");
                    told = why;
                }
                sleep(backoff.next(None)).await;
            }
        }
    }
}

async fn attempt(
    client: &Client,
    api: &Connection,
    cluster: &ClusterConfig,
) -> Result<(), AdoptError> {
    let Some(adoption) = Adoption::prepare(client, api, cluster).await? else { return Ok(()) };
    let lines = adoption.lines().to_vec();
    adoption.apply(client, api).await?;
    for change in lines {
        tracing::info!(change, "took over what the programs of 2016 to 2018 wrote");
    }
    Ok(())
}

/// Removes load balancers of 2018 once all Services have today's.
pub(super) async fn finish(
    client: Client,
    leadership: Leadership,
    mut progress: watch::Receiver<Progress>,
) {
    let is_done = |progress: &Progress| progress.ever_converged && progress.blocked.is_none();
    if progress.wait_for(is_done).await.is_err() || !leadership.is_leader() {
        return;
    }
    match remove_load_balancers(&client).await {
        Ok(0) => {}
        Ok(removed) => tracing::info!(removed, "removed load balancers of 2018"),
        Err(error) => {
            let error = chain(&error);
            tracing::warn!(error, "load balancers of 2018 stay until the next start");
        }
    }
}
