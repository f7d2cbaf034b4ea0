//! The changes of a Service that are measured, and how soon connections follow each.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Result, ensure};
use integration::{connections::Connections, peer::Moment};
use serde::Serialize;

/// The servers that back the Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backends {
    First,
    Both,
    Second,
}

/// A Service from its beginning to its end, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Round {
    /// From the request that creates it until the first connection is established.
    pub(crate) created: f64,
    /// The part of it until the request was answered.
    pub(crate) answered: f64,
    /// From the request that adds an endpoint until the first connection to it is established.
    pub(crate) added: f64,
    /// From the request that removes an endpoint until the last connection to it is established.
    pub(crate) removed: f64,
}

/// A Service that can be changed.
pub(crate) trait Service {
    /// Creates it with the first backend.
    fn create(&self) -> Result<()>;
    fn change(&self, backends: Backends) -> Result<()>;
    fn delete(&self) -> Result<()>;
}

/// Far longer than any time that is worth measuring.
const PATIENCE: Duration = Duration::from_secs(20);
/// After so many connections in a row to other servers, none goes to the removed one any more: a
/// fifth of a second, ten times the longest time measured.
const NO_MORE: usize = 100;

/// Measures one Service. `connections` to its address have begun, in vain so far. `servers` are its
/// backends.
pub(crate) fn measure(
    service: &impl Service,
    connections: &Connections,
    [first, second]: [SocketAddr; 2],
) -> Result<Round> {
    ensure!(
        connections.all().iter().all(|known| known.by.is_none()),
        "something answers before the Service exists"
    );
    let begun = Moment::now();
    service.create()?;
    let answered = Moment::now().milliseconds_since(begun);
    let created = connections.first_by(first, PATIENCE)?.answered.milliseconds_since(begun);

    let begun = Moment::now();
    service.change(Backends::Both)?;
    let added = connections.first_by(second, PATIENCE)?.answered.milliseconds_since(begun);

    let begun = Moment::now();
    service.change(Backends::Second)?;
    let last =
        connections.wait(&format!("no connection is answered by {first}"), PATIENCE, |seen| {
            let after: Vec<_> =
                seen.iter().filter(|connection| connection.answered >= begun).collect();
            let last = after.iter().rposition(|connection| connection.by == Some(first));
            let in_a_row = after.len() - last.map_or(0, |last| last + 1);
            (in_a_row >= NO_MORE).then(|| last.map_or(begun, |last| after[last].answered))
        })?;
    let removed = last.milliseconds_since(begun);
    service.delete()?;
    Ok(Round { created, answered, added, removed })
}
