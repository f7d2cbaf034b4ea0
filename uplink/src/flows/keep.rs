//! The flows of a bridge are the desired ones: now, or from now on. Must not know how flows are written.

use std::{path::Path, sync::Arc, time::Duration};

use contract::backoff::Backoff;
use tokio::{sync::watch, time::sleep};

use super::{
    flow::Flows,
    session::{InstallError, Outcome, Session, Watching},
};

/// Between attempts to connect: a bridge that is back has its flows within a fraction of a second. An attempt
/// costs one system call; with a hundredth of it, a machine without ovs-vswitchd would be kept busy.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(300);
/// Before flows that another program changed are put back: it may change more. Without a pause, two programs
/// that both want theirs would keep ovs-vswitchd busy.
const AFTER_CHANGE: Duration = Duration::from_millis(50);
/// How often flows are read again where the bridge does not tell of changes (an Open vSwitch without flow
/// monitors in OpenFlow 1.4). Each
/// reading costs some milliseconds for thousands of flows.
const UNTOLD: Duration = Duration::from_secs(15);

/// What happened to the flows of a bridge that are kept.
#[derive(Debug)]
pub enum Event {
    /// The flows are these, the desired ones, except for those that the outcome names. Comes after each
    /// change of the desired flows, each connection and each repair, even if nothing was to be done.
    Installed { flows: Arc<Flows>, outcome: Outcome },
    /// Another program has changed our flows. They are put back next.
    Changed,
    /// The flows cannot be written; told once, until they are installed again.
    Lost(InstallError),
}

/// Keeps the flows of the bridge, whose socket is in `run_dir`, as the channel has them: whatever other
/// programs do, and after each start of ovs-vswitchd. Returns when the channel is closed; the flows stay.
pub async fn keep(
    run_dir: &Path,
    bridge: &str,
    mut desired: watch::Receiver<Arc<Flows>>,
    mut report: impl FnMut(Event),
) {
    let mut pauses = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut is_lost = false;
    loop {
        let kept = async {
            let mut session = Session::open(run_dir, bridge).await?;
            follow(&mut session, &mut desired, |event| {
                pauses.reset();
                is_lost = false;
                report(event);
            })
            .await
        };
        let Err(error) = kept.await else { return };
        if !is_lost {
            report(Event::Lost(error));
            is_lost = true;
        }
        tokio::select! {
            () = sleep(pauses.next(None)) => {}
            () = closed(&mut desired) => return,
        }
    }
}

/// Keeps the flows as long as the connection lives. Returns when the channel is closed.
async fn follow(
    session: &mut Session,
    desired: &mut watch::Receiver<Arc<Flows>>,
    mut report: impl FnMut(Event),
) -> Result<(), InstallError> {
    loop {
        let flows = Arc::clone(&desired.borrow_and_update());
        let outcome = session.settle(&flows).await?;
        report(Event::Installed { flows, outcome });
        let watching = session.watching;
        let untold = async {
            match watching {
                Watching::Told => std::future::pending().await,
                Watching::NotTold => sleep(UNTOLD).await,
            }
        };
        tokio::select! {
            changed = desired.changed() => {
                if changed.is_err() {
                    return Ok(());
                }
                continue;
            }
            changed = session.changed() => changed?,
            () = untold => session.read().await?,
        }
        if watching == Watching::Told {
            report(Event::Changed);
            sleep(AFTER_CHANGE).await;
        }
    }
}

/// Waits until no one can send any more.
async fn closed(desired: &mut watch::Receiver<Arc<Flows>>) {
    let mut desired = desired.clone();
    while desired.changed().await.is_ok() {}
}

/// Makes the flows of the bridge the desired ones, once.
///
/// # Errors
/// The bridge does not exist, does not speak OpenFlow 1.4, or refuses. Then no flow has changed.
pub async fn install(run_dir: &Path, bridge: &str, desired: &Flows) -> Result<Outcome, InstallError> {
    Session::open(run_dir, bridge).await?.settle(desired).await
}

/// Removes our flows, so that the bridge is a plain switch again: in one bundle, with a flow `NORMAL` if no
/// foreign one is there. Afterwards there is nothing left to remove; foreign flows stay.
///
/// # Errors
/// As [`install`].
pub async fn release(run_dir: &Path, bridge: &str) -> Result<Outcome, InstallError> {
    Session::open(run_dir, bridge).await?.release().await
}
