//! Kills daemons of the node and starts them again.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Result;
use fastrand::Rng;

use super::{Course, once_in, pause};
use crate::{Daemon, Node};

/// Longest time between two kills, and until a killed daemon is started again. Both are well below the
/// deadline of an ADD (10 s), so that calls see daemons go and come back.
const PEACE: Duration = Duration::from_millis(2000);
const ABSENCE: Duration = Duration::from_millis(700);

type Start = fn(&Node) -> Result<()>;

/// Kills daemons until the time is over; all of them run when it returns. Returns how often each was killed.
pub(super) fn run(node: &Node, mut rng: Rng, course: &Course) -> Result<BTreeMap<String, u32>> {
    let mut kills = BTreeMap::new();
    // In start order: each needs those before it.
    let daemons: [(&Daemon, Start); 4] = [
        (&node.ovsdb_server, Node::start_ovsdb_server),
        (&node.vswitchd, Node::start_vswitchd),
        (&node.ovn_controller, Node::start_ovn_controller),
        (&node.server, Node::start_server),
    ];
    while course.goes_on() {
        pause(&mut rng, PEACE);
        let first = rng.usize(..daemons.len());
        let second = if once_in(&mut rng, 3) { rng.usize(..daemons.len()) } else { first };
        let struck: Vec<_> =
            daemons.iter().enumerate().filter(|(index, _)| [first, second].contains(index)).collect();
        for (_, (daemon, _)) in &struck {
            // Fails if the daemon has ended already: a daemon that ends by itself is a finding.
            daemon.kill()?;
            *kills.entry(daemon.name().to_owned()).or_default() += 1;
        }
        pause(&mut rng, ABSENCE);
        struck.iter().try_for_each(|(_, (_, start))| start(node))?;
    }
    Ok(kills)
}
