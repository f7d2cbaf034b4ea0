//! How each contestant attaches a pod and detaches it again.

use std::{path::Path, sync::Arc};

use anyhow::{Context as _, Result, bail};

use super::{
    floor::{self, Floor, FloorPod},
    measurements::{Call, Contestant},
    plan::PlannedPod,
    plugin::{self, Plugin},
};

/// How a contestant attaches pods.
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
    /// `upstream` is the path of upstream's plugin.
    pub(crate) fn of(contestant: Contestant, upstream: Option<&Path>) -> Result<Self> {
        Ok(match contestant {
            Contestant::Floor => Self::Floor,
            Contestant::Ours => Self::Plugin(Arc::new(Plugin::ours())),
            Contestant::Bridge => Self::Plugin(Arc::new(Plugin::bridge()?)),
            Contestant::Upstream => {
                Self::Plugin(Arc::new(Plugin::upstream(upstream.context("no path of upstream's plugin")?)))
            }
            Contestant::BinTrue => bail!("{contestant} attaches no pods"),
        })
    }

    /// The plugin that attaches the pods that stay, so that `contestant` finds a node with other pods. Each
    /// network has an interface of its own in them.
    pub(crate) fn staying(&self, contestant: Contestant) -> Option<Arc<Plugin>> {
        match (self, contestant) {
            (Self::Plugin(plugin), Contestant::Ours) => Some(Arc::clone(plugin)),
            (Self::Plugin(plugin), Contestant::Bridge) => Some(plugin.beside_others()),
            (Self::Floor | Self::Plugin(_), _) => None,
        }
    }

    pub(crate) fn add(
        &self,
        floor: &mut Floor,
        pod: &FloorPod<'_>,
        sandbox: &str,
    ) -> (Call, Option<Attached>) {
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

    /// CHECK, for the contestants that implement it.
    pub(crate) fn check(&self, pod: &PlannedPod) -> Option<Call> {
        match self {
            Self::Floor(_) => None,
            Self::Plugin(attached) => Some(attached.check(pod)),
        }
    }
}
