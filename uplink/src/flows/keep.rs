//! The flows of a bridge are the desired ones: now, or from now on. Must not know how flows are
//! written.

use std::{path::Path, sync::Arc, time::Duration};

use contract::backoff::Backoff;
use podnet::control_socket::{ControlSocket, VSWITCHD};
use tokio::{sync::watch, time::sleep};

use super::{
    flow::Flows,
    session::{InstallError, Outcome, Session, Watching},
};

/// Between attempts to connect: a bridge that is back has its flows within a fraction of a second.
/// An attempt costs one system call; with a hundredth of it, a machine without ovs-vswitchd would
/// be kept busy.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(300);
/// Before flows that another program changed are put back: it may change more. Without a pause, two
/// programs that both want theirs would keep ovs-vswitchd busy.
const AFTER_CHANGE: Duration = Duration::from_millis(50);
/// How often flows are read again where the bridge does not tell of changes (an Open vSwitch
/// without flow monitors in OpenFlow 1.4). Each reading costs some milliseconds for thousands of
/// flows.
const UNTOLD: Duration = Duration::from_secs(15);
/// How long ovs-vswitchd may take to forget the datapath's flows: as long as to take flows.
const PATIENCE: Duration = Duration::from_secs(10);

/// What happened to the flows of a bridge that are kept.
#[derive(Debug)]
pub enum Event {
    /// The flows are these, the desired ones, except for those that the outcome names. Comes after
    /// each change of the desired flows, each connection and each repair, even if nothing was to be
    /// done.
    Installed { flows: Arc<Flows>, outcome: Outcome },
    /// Another program has changed our flows. They are put back next.
    Changed,
    /// The flows cannot be written; told once, until they are installed again.
    Lost(InstallError),
}

/// Keeps the flows of the bridge, whose socket is in `run_dir`, as the channel has them: whatever
/// other programs do, and after each start of ovs-vswitchd. Returns when the channel is closed; the
/// flows stay.
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
            let flows = Arc::clone(&desired.borrow_and_update());
            let outcome = session.settle(&flows).await?;
            // Those of another mode, which a server before this one had.
            if outcome.removed > 0 {
                forget_paths(run_dir, bridge).await?;
            }
            follow(&mut session, &mut desired, Event::Installed { flows, outcome }, |event| {
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

/// Keeps the flows as long as the connection lives, after the first ones are installed. Returns
/// when the channel is closed.
async fn follow(
    session: &mut Session,
    desired: &mut watch::Receiver<Arc<Flows>>,
    first: Event,
    mut report: impl FnMut(Event),
) -> Result<(), InstallError> {
    report(first);
    loop {
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
            }
            changed = session.changed() => {
                changed?;
                if watching == Watching::Told {
                    report(Event::Changed);
                    sleep(AFTER_CHANGE).await;
                }
            }
            () = untold => session.read().await?,
        }
        let flows = Arc::clone(&desired.borrow_and_update());
        let outcome = session.settle(&flows).await?;
        report(Event::Installed { flows, outcome });
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
pub async fn install(
    run_dir: &Path,
    bridge: &str,
    desired: &Flows,
) -> Result<Outcome, InstallError> {
    Session::open(run_dir, bridge).await?.settle(desired).await
}

/// Removes our flows, so that the bridge is a plain switch again: in one bundle, with a flow
/// `NORMAL` if no foreign one is there. Afterwards there is nothing left to remove; foreign flows
/// stay.
///
/// # Errors
/// As [`install`].
pub async fn release(run_dir: &Path, bridge: &str) -> Result<Outcome, InstallError> {
    let outcome = Session::open(run_dir, bridge).await?.release().await?;
    if outcome.removed > 0 {
        forget_paths(run_dir, bridge).await?;
    }
    Ok(outcome)
}

/// Has ovs-vswitchd forget what the datapath does with packets, so that the next ones follow the
/// flows of now.
///
/// It follows changed flows by itself. But in userspace, before 2.17.8, 3.0.5, 3.1.3 and 3.2, it
/// may give the new actions to another entry of the datapath that fits the same packet
/// ("dpif-netdev: Fix dpif_netdev_flow_put"), and a connection that uses the first one goes the
/// former way for as long as it has packets. Each connection of the node then takes one packet
/// through ovs-vswitchd: too much for each change of a Service, and not for a change of the mode.
async fn forget_paths(run_dir: &Path, bridge: &str) -> Result<(), InstallError> {
    let switch = ControlSocket::of(run_dir, VSWITCHD);
    let purged = switch.ask("revalidator/purge", &[], PATIENCE).await;
    purged.map(drop).map_err(|error| InstallError::Datapath { bridge: bridge.to_owned(), error })
}
