//! Kills daemons of the node and starts them again.

use std::{collections::BTreeMap, ops::ControlFlow, time::Duration};

use anyhow::Result;
use fastrand::Rng;

use super::{Actor, once_in, pause_up_to};
use crate::{Node, Program};

/// Longest time between two kills, and until a killed daemon is started again. Both are well below
/// the deadline of an ADD (10 s), so that calls see daemons go and come back.
const PEACE: Duration = Duration::from_millis(2000);
const ABSENCE: Duration = Duration::from_millis(700);

pub(super) struct Destroyer<'node> {
    node: &'node Node,
    rng: Rng,
    /// How often each daemon was killed.
    pub(super) kills: BTreeMap<String, u32>,
}

impl<'node> Destroyer<'node> {
    pub(super) fn new(node: &'node Node, rng: Rng) -> Self {
        Self { node, rng, kills: BTreeMap::new() }
    }
}

impl Actor for Destroyer<'_> {
    /// Kills one daemon or two. All of them run when it returns.
    fn turn(&mut self) -> Result<ControlFlow<()>> {
        pause_up_to(&mut self.rng, PEACE);
        let daemons = Program::ALL;
        let first = self.rng.usize(..daemons.len());
        let second =
            if once_in(&mut self.rng, 3) { self.rng.usize(..daemons.len()) } else { first };
        let struck: Vec<Program> = daemons
            .into_iter()
            .enumerate()
            .filter_map(|(index, program)| [first, second].contains(&index).then_some(program))
            .collect();
        for program in &struck {
            let daemon = self.node.daemon(*program);
            // Fails if the daemon has ended already: a daemon that ends by itself is a finding.
            daemon.kill()?;
            *self.kills.entry(daemon.name().to_owned()).or_default() += 1;
        }
        pause_up_to(&mut self.rng, ABSENCE);
        // In start order: each needs those before it.
        struck.iter().try_for_each(|program| self.node.start_program(*program))?;
        Ok(ControlFlow::Continue(()))
    }
}
