//! Warns of a release of Open vSwitch whose userspace datapath ends by itself, or drops what the
//! node wants served.
//!
//! Until 2.17.8, 3.0.5, 3.1.3 and 3.2.3, ovs-vswitchd asserted for each packet that the connection
//! that it found was not the second entry of one with NAT. Since 2.16 (all-zero SNAT) it finds such
//! entries. The fix is "conntrack: Remove nat_conn introducing key directionality". The kernel's
//! datapath has another connection tracker.
//!
//! Before 3.3 the userspace datapath drops a packet that is recirculated more than six times (then
//! eight), as OVN does with new connections to node ports of a gateway router
//! (`datapath_drop_recirc_error` of `coverage/show`).
//!
//! Must not know what else depends on a release.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    time::Duration,
};

use ovsdb::Client;
use podnet::{
    bridge::{Bridge, Datapath},
    control_socket::{ControlSocket, VSWITCHD},
    daemon::PATIENCE,
};
use tokio::time::{MissedTickBehavior, interval};

use crate::events::Events;

/// No event tells that ovs-vswitchd has started, or OVN has made the bridge. A warning may be that
/// late, and a node that waits for them pays for one look in this time.
const EVERY: Duration = Duration::from_secs(2);
/// The first release whose connection tracker finds entries that it asserts not to find.
const FIRST: Release = Release([2, 16, 0]);
/// The first release of each branch that has the fix, oldest branch first. All later branches have
/// it.
const FIXED: [Release; 5] = [
    Release([2, 17, 8]),
    Release([3, 0, 5]),
    Release([3, 1, 3]),
    Release([3, 2, 3]),
    Release([3, 3, 0]),
];

/// The first release whose userspace datapath recirculates a packet often enough for node ports.
const RECIRCULATES: Release = Release([3, 3, 0]);

/// Who serves node ports for the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodePorts {
    Host,
    GatewayRouter,
}

/// A release of Open vSwitch, such as 3.1.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Release([u16; 3]);

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self([major, minor, patch]) = self;
        write!(f, "{major}.{minor}.{patch}")
    }
}

impl Release {
    /// Reads the release at the end of the first line of `ovs-vswitchd --version`, or alone.
    /// Distributions append what they like to it.
    fn of(text: &str) -> Option<Self> {
        let word = text.lines().next()?.split_whitespace().next_back()?;
        let mut numbers =
            word.trim_start_matches('v').split(|c: char| !c.is_ascii_digit()).map(str::parse);
        let mut number = || numbers.next()?.ok();
        Some(Self([number()?, number()?, number()?]))
    }

    fn branch(self) -> [u16; 2] {
        let Self([major, minor, _]) = self;
        [major, minor]
    }

    /// Whether its userspace datapath ends at an assertion.
    fn aborts(self) -> bool {
        // A branch without a fix, such as 2.16, is below the first release of the next one.
        let fixed = FIXED.iter().find(|fixed| fixed.branch() >= self.branch());
        self >= FIRST && fixed.is_some_and(|fixed| self < *fixed)
    }

    /// Whether its userspace datapath drops new connections to these node ports.
    fn drops(self, node_ports: NodePorts) -> bool {
        node_ports == NodePorts::GatewayRouter && self < RECIRCULATES
    }
}

/// What the userspace datapath of a release does wrong; `version` is the first line of
/// `ovs-vswitchd --version`. `None` if nothing is known of it.
pub fn fault(version: &str) -> Option<String> {
    let release = Release::of(version)?;
    if release.aborts() {
        let fixed = FIXED.map(|fixed| fixed.to_string()).join(", ");
        return Some(format!(
            "its userspace datapath aborts under connections of pods (fixed in {fixed})"
        ));
    }
    (release < RECIRCULATES).then(|| {
        "its userspace datapath drops new connections to node ports of a gateway router".to_owned()
    })
}

/// What is known of ovs-vswitchd and the integration bridge.
enum Seen {
    /// ovs-vswitchd or the bridge is not there yet.
    Incomplete,
    Datapath(Datapath, Option<Release>),
}

/// Looks until ovs-vswitchd and the integration bridge are there; then warns in the log of what its
/// release does not do, and by an event on `node`, too, if ovs-vswitchd is going to end.
pub(crate) async fn warn(
    client: Client,
    ovs_run_dir: PathBuf,
    node_ports: NodePorts,
    node: String,
    events: Events,
) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (datapath, release) = loop {
        ticks.tick().await;
        if let Seen::Datapath(datapath, release) = look(&client, &ovs_run_dir).await {
            break (datapath, release);
        }
    };
    tracing::info!(?datapath, ?release, "Open vSwitch's release");
    let Some(release) = release.filter(|_| datapath == Datapath::Userspace) else { return };
    if release.drops(node_ports) {
        tracing::warn!(
            %release,
            "--nodeport: the userspace datapath of this Open vSwitch drops what is recirculated more than six times, \
             and with it connections to node ports: leave the option out, so that the host serves them"
        );
    }
    if release.aborts() {
        let (release, fixed) =
            (release.to_string(), FIXED.map(|fixed| fixed.to_string()).join(", "));
        tracing::warn!(
            release,
            fixed,
            "the userspace datapath of this Open vSwitch aborts under connections of pods \
             (docs/troubleshooting.md)"
        );
        events.aborting_switch(&node, &release, &fixed);
    }
}

async fn look(client: &Client, ovs_run_dir: &Path) -> Seen {
    let Some(connection) = client.connection() else { return Seen::Incomplete };
    let Ok((datapath, written)) = Bridge::over(connection, PATIENCE).datapath().await else {
        return Seen::Incomplete;
    };
    let vswitchd = ControlSocket::of(ovs_run_dir, VSWITCHD);
    match vswitchd.ask("version", &[], PATIENCE).await {
        Ok(text) => Seen::Datapath(datapath, Release::of(&text)),
        // Out of sight, in a container of its own, or not started yet: Open vSwitch's scripts write
        // the release before they start it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => match written {
            Some(release) => Seen::Datapath(datapath, Release::of(&release)),
            None => Seen::Incomplete,
        },
        Err(_) => Seen::Incomplete,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_releases_between_the_assertion_and_its_fix_abort() {
        let aborts = |text: &str| Release::of(text).map(Release::aborts);
        for text in [
            "ovs-vswitchd (Open vSwitch) 3.1.0",
            "ovs-vswitchd (Open vSwitch) 3.1.0\nDPDK 22.11.1",
            "2.16.0",
            "2.16.7",
            "2.17.7",
            "3.0.4",
            "3.1.2-1.el9",
            "v3.2.2",
        ] {
            assert_eq!(aborts(text), Some(true), "{text}");
        }
        for text in
            ["2.15.9", "2.17.8", "2.17.12", "3.0.5", "3.1.3", "3.2.3", "3.3.0", "3.5.0", "4.0.0"]
        {
            assert_eq!(aborts(text), Some(false), "{text}");
        }
        assert!(Release([3, 2, 3]).drops(NodePorts::GatewayRouter));
        assert!(!Release([3, 3, 0]).drops(NodePorts::GatewayRouter));
        assert!(!Release([3, 1, 0]).drops(NodePorts::Host), "the host translates them");
        for text in ["", "unknown", "3.1", "99999999.1.1", "ovs-vswitchd (Open vSwitch)"] {
            assert_eq!(aborts(text), None, "{text}");
        }
    }
}
