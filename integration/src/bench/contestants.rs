//! How each contestant attaches a pod and detaches it again.

use std::sync::Arc;

use anyhow::{Result, bail};

use super::{
    floor::{self, Floor, FloorPod},
    measurements::{Call, Contestant},
    plan::PlannedPod,
    plugin::{self, Plugin},
};

/// The way of a contestant.
#[derive(Debug, Clone)]
pub(crate) enum Way {
    Floor,
    Plugin(Arc<Plugin>),
}

/// A pod between its ADD and its DEL.
#[derive(Debug)]
pub(crate) enum Attached {
    Floor(floor::Attached),
    Plugin(plugin::Attached),
}

impl Way {
    pub(crate) fn of(contestant: Contestant) -> Result<Self> {
        Ok(match contestant {
            Contestant::Floor => Self::Floor,
            Contestant::Ours => Self::Plugin(Arc::new(Plugin::ours())),
            Contestant::Bridge => Self::Plugin(Arc::new(Plugin::bridge()?)),
            Contestant::BinTrue => bail!("{contestant} attaches no pods"),
        })
    }

    /// What attaches the pods that are there already, if this contestant's belong to that: each in its own network, in one namespace.
    pub(crate) fn stays(&self) -> Option<Arc<Plugin>> {
        match self {
            Self::Floor => None,
            Self::Plugin(plugin) => Some(plugin.beside_others()),
        }
    }

    pub(crate) fn add(&self, floor: &mut Floor, pod: &FloorPod<'_>, sandbox: &str) -> (Call, Option<Attached>) {
        match self {
            Self::Floor => {
                let (call, attached) = floor.add(pod, sandbox);
                (call, attached.map(Attached::Floor))
            }
            Self::Plugin(plugin) => {
                let (call, attached) = plugin.add(pod.pod, sandbox);
                (call, attached.map(Attached::Plugin))
            }
        }
    }
}

impl Attached {
    pub(crate) fn del(&self, floor: &mut Floor, pod: &PlannedPod) -> Call {
        match self {
            Self::Floor(attached) => floor.del(attached),
            Self::Plugin(attached) => attached.del(pod),
        }
    }

    /// CHECK, by who has it.
    pub(crate) fn check(&self, pod: &PlannedPod) -> Option<Call> {
        match self {
            Self::Floor(_) => None,
            Self::Plugin(attached) => Some(attached.check(pod)),
        }
    }
}
