//! The node's way from the databases of one zone to those of another, while its pods talk.
//!
//! The zone is that of the options, or, of the two that these name, the one that `zone-wanted`
//! says: [`ZonePlaces`].
//!
//! | step | `zone-name`, `zone-next` | ovn-controller |
//! |---|---|---|
//! | Another zone is in the options, or wanted. | old, none | follows the old zone |
//! | The controllers of both zones write the node's rows. | old, new | follows the old zone |
//! | The new zone has what the old one has. | old, new | is paused |
//! | The old zone drops the node: others reach it over the transit switch. | new, new | is paused |
//! | Its flows know that way, too, until the new ones are there. | new, none | follows the new |
//!
//! Where the new zone has other nodes, these reach the node as before until it has arrived, and by
//! the cluster router from then on: ovn-controller follows the new zone first, and `zone-name` says
//! so after.
//!
//! A server that is started again begins where the node is: `ovn-remote` and annotations say so.
//! While ovn-controller is paused, Open vSwitch forwards with the flows that it has.

use std::{path::PathBuf, sync::Arc, time::Duration};

use contract::node_annotation::{NEXT_ZONE, ZONE};
use podnet::control_socket::ControlSocket;
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

use self::{
    places::{ZonePlace, ZonePlaces},
    rows::{Company, ZoneRows},
};
use super::{
    annotations::ZoneNames,
    object::{NodeFacts, NodeView},
    open_vswitch::{Identity, Southbound},
};

pub(super) mod places;
mod rows;

const OVN_CONTROLLER: &str = "ovn-controller";
/// For one answer of ovn-controller.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two comparisons of the zones.
const PAUSE: Duration = Duration::from_millis(500);
/// Between two log lines about what the new zone lacks.
const REMINDER: Duration = Duration::from_secs(30);
/// How long ovn-controller stays paused at the most while API server or old zone do not follow.
/// Pods of before talk meanwhile, and new ones wait.
const PAUSED: Duration = Duration::from_secs(10);
/// From the old zone's rows to the flows of its other nodes.
const SETTLE: Duration = Duration::from_millis(500);
/// How long ovn-controller has to take the node's ports in the new zone.
const TAKEN: Duration = Duration::from_secs(30);
/// Between two looks whether the other zone is ready, for the annotation. Only an administrator
/// waits for it, who has just started that zone's databases.
const LOOK: Duration = Duration::from_secs(10);
/// Characters of what a zone lacks in the annotation.
const LONGEST: usize = 200;

/// A node that may have to move.
#[derive(Debug)]
pub(super) struct ZoneMove {
    pub(super) node: String,
    pub(super) places: ZonePlaces,
    /// The database that ovn-controller follows.
    pub(super) followed: Southbound,
    pub(super) view: watch::Receiver<NodeView>,
    pub(super) identity: watch::Receiver<Identity>,
    pub(super) ovn_run_dir: PathBuf,
    /// What the annotations say; nothing while it is not known.
    pub(super) names: watch::Sender<Option<ZoneNames>>,
    /// Where ovn-controller is led.
    pub(super) lead: watch::Sender<Option<Southbound>>,
}

impl ZoneMove {
    /// Ends once the node is in the zone of the options, if these name one alone.
    pub(super) async fn run(mut self) {
        let mut is_first = true;
        loop {
            let Some(facts) = self.facts().await else { return };
            let annotated = |key: &str| facts.annotations.get(key).cloned();
            let target = self.places.target(&facts.annotations, &self.followed).clone();
            let from = annotated(ZONE).filter(|name| *name != target.zone);
            let is_led = self.followed == target.southbound;
            // A former process may have ended while ovn-controller was paused.
            let is_interrupted = std::mem::take(&mut is_first) && annotated(NEXT_ZONE).is_some();
            if let Some(from) = from.as_ref().filter(|_| is_led && is_interrupted) {
                self.finish(from, &target).await;
            } else if is_interrupted {
                self.resume().await;
            }
            match from {
                _ if is_led => self.say(&target.zone, None),
                Some(from) => self.travel(&from, &target).await,
                None => {
                    // The same zone at another place.
                    self.say(&target.zone, None);
                    self.lead.send_replace(Some(target.southbound.clone()));
                    self.followed = target.southbound.clone();
                }
            }
            if self.places.other.is_none() {
                return;
            }
            if self.followed == target.southbound {
                self.stay(&target).await;
            }
        }
    }

    /// Moves the node, unless it is called off before ovn-controller has gone.
    async fn travel(&mut self, from: &str, target: &ZonePlace) {
        let (node, zone) = (self.node.clone(), target.zone.clone());
        tracing::info!(node, from, to = zone, "the node moves to another zone");
        self.say(from, Some(&zone));
        let old = self.followed.clone();
        let called_off = self.other_target(target);
        let company = tokio::select! {
            company = self.has_rows(&old, target) => company,
            () = called_off => {
                tracing::info!(node, from, to = zone, "the move is called off");
                self.say(from, None);
                return;
            }
        };
        match company {
            Company::Alone => self.begin(from, &old, target).await,
            Company::Others => self.join(target).await,
        }
        match timeout(TAKEN, self.is_taken(target)).await {
            Ok(()) => tracing::info!(node, from, to = zone, "the node is in its zone"),
            Err(_) => tracing::warn!(
                node,
                to = zone,
                patience = ?TAKEN,
                "ovn-controller has not taken the node's ports in the new zone: see its log"
            ),
        }
        self.lacks(&zone, "");
        self.say(&zone, None);
    }

    /// Goes on where a former process had led ovn-controller to the new zone.
    async fn finish(&mut self, from: &str, target: &ZonePlace) {
        let chassis = self.identity.borrow().system_id.clone().unwrap_or_default();
        match rows::company(&target.southbound, &chassis).await {
            Ok(Company::Alone) => {
                let old = self.places.of(from).map(|place| place.southbound.clone());
                self.arrive(from, old.as_ref(), target).await;
            }
            Ok(Company::Others) | Err(_) => {
                self.resume().await;
                let _ = timeout(TAKEN, self.is_taken(target)).await;
            }
        }
    }

    /// Into a zone of its own.
    async fn begin(&mut self, from: &str, old: &Southbound, target: &ZonePlace) {
        self.lead(target).await;
        self.arrive(from, Some(old), target).await;
    }

    /// Others reach the node as one of another zone before its flows are those of the new zone. The
    /// former ones know both ways.
    async fn arrive(&mut self, from: &str, old: Option<&Southbound>, target: &ZonePlace) {
        let node = self.node.clone();
        self.say(&target.zone, Some(&target.zone));
        if timeout(PAUSED, self.is_arrived(&target.zone)).await.is_err() {
            tracing::warn!(node, "the annotation of the zone is not written yet");
        }
        if let Some(old) = old
            && timeout(PAUSED, self.is_dropped(old)).await.is_err()
        {
            tracing::warn!(
                node,
                from,
                "the former zone still has the node's ports: is its controller running?"
            );
        }
        sleep(SETTLE).await;
        self.resume().await;
    }

    /// Into a zone with other nodes: its flows are there, but for the link to the cluster router,
    /// before the others use that. However large the zone is, only the link takes time then.
    async fn join(&mut self, target: &ZonePlace) {
        self.lead(target).await;
        self.resume().await;
        let _ = timeout(TAKEN, self.is_taken(target)).await;
        self.say(&target.zone, None);
    }

    /// Pauses ovn-controller, and writes where it goes on.
    async fn lead(&mut self, target: &ZonePlace) {
        if let Err(error) = self.ask("debug/pause").await {
            let node = &self.node;
            tracing::warn!(node, %error, "ovn-controller is not paused: packets may be lost");
        }
        self.followed = target.southbound.clone();
        self.lead.send_replace(Some(target.southbound.clone()));
        let remote = target.southbound.remote.clone();
        let is_led = |identity: &Identity| identity.remote.as_ref() == Some(&remote);
        let _ = timeout(PAUSED, self.identity.wait_for(is_led)).await;
    }

    /// Waits until another zone is wanted than the one where the node is. Meanwhile says whether
    /// the other one is ready.
    async fn stay(&self, here: &ZonePlace) {
        let look = async {
            loop {
                for place in self.places.all().filter(|place| *place != here) {
                    let lacks = rows::unready(&here.southbound, place).await.err();
                    self.lacks(&place.zone, &lacks.unwrap_or_default());
                }
                sleep(LOOK).await;
            }
        };
        self.lacks(&here.zone, "");
        tokio::select! {
            () = self.other_target(here) => {}
            () = look => {}
        }
    }

    /// Waits until the node should be elsewhere.
    fn other_target(&self, target: &ZonePlace) -> impl Future<Output = ()> + use<> {
        let (places, followed, target) =
            (self.places.clone(), self.followed.clone(), target.clone());
        let mut view = self.view.clone();
        async move {
            let is_other = |view: &NodeView| match view {
                NodeView::There(facts) => *places.target(&facts.annotations, &followed) != target,
                NodeView::Unknown(_) | NodeView::Absent => false,
            };
            if view.wait_for(is_other).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    fn say(&self, name: &str, next: Option<&str>) {
        let next = next.map(str::to_owned);
        self.names.send_modify(|names| {
            let choices = match names.take() {
                Some(before) => before.choices,
                None => self.places.other.is_some().then(|| {
                    let unknown = |place: &ZonePlace| (place.zone.clone(), "not known yet".into());
                    self.places.all().map(unknown).collect()
                }),
            };
            *names = Some(ZoneNames { name: name.to_owned(), next, choices });
        });
    }

    /// Says what a zone lacks; an empty text: nothing.
    fn lacks(&self, zone: &str, what: &str) {
        let what: String = what.chars().take(LONGEST).collect();
        self.names.send_if_modified(|names| {
            let choices = names.as_mut().and_then(|names| names.choices.as_mut());
            let choice = choices.and_then(|choices| choices.get_mut(zone));
            choice.is_some_and(|before| std::mem::replace(before, what.clone()) != what)
        });
    }

    /// The object, once it is known. None if this process ends.
    async fn facts(&mut self) -> Option<Arc<NodeFacts>> {
        let seen = self.view.wait_for(|view| matches!(view, NodeView::There(_))).await.ok()?;
        let NodeView::There(facts) = &*seen else { return None };
        Some(Arc::clone(facts))
    }

    /// Waits until the new zone has all that the old one has of the node.
    async fn has_rows(&self, old: &Southbound, target: &ZonePlace) -> Company {
        let mut reminder = Instant::now() + PAUSE;
        loop {
            let lacks = match self.lacking(old, target).await {
                Ok((lacking, company)) if lacking.is_empty() => return company,
                Ok((lacking, _)) => format!("the new zone lacks {}", lacking.join(", ")),
                Err(why) => why,
            };
            if Instant::now() >= reminder {
                tracing::info!(node = self.node, to = target.zone, lacks, "the move waits");
                self.lacks(&target.zone, &lacks);
                reminder = Instant::now() + REMINDER;
            }
            sleep(PAUSE).await;
        }
    }

    async fn lacking(
        &self,
        old: &Southbound,
        target: &ZonePlace,
    ) -> Result<(Vec<String>, Company), String> {
        let chassis = self.identity.borrow().system_id.clone().unwrap_or_default();
        let before = ZoneRows::of_chassis(old, &chassis, &self.node).await?;
        if before.ports.is_empty() {
            return Err("the former zone has no port on this node's chassis".to_owned());
        }
        let after = ZoneRows::like(&before, &target.southbound, &chassis, &self.node).await?;
        Ok((before.lacking_in(&after), after.company))
    }

    /// Waits until the object says so.
    async fn is_arrived(&mut self, zone: &str) {
        let is_here = |view: &NodeView| match view {
            NodeView::There(facts) => facts.annotations.get(ZONE).is_some_and(|name| name == zone),
            NodeView::Unknown(_) | NodeView::Absent => false,
        };
        let _ = self.view.wait_for(is_here).await;
    }

    /// Waits until the old zone has no port of the node.
    async fn is_dropped(&self, old: &Southbound) {
        let chassis = self.identity.borrow().system_id.clone().unwrap_or_default();
        rows::wait_until(old, &chassis, |ports| ports == 0).await;
    }

    /// Waits until ovn-controller has ports in the new zone.
    async fn is_taken(&self, target: &ZonePlace) {
        let chassis = self.identity.borrow().system_id.clone().unwrap_or_default();
        rows::wait_until(&target.southbound, &chassis, |ports| ports > 0).await;
    }

    async fn resume(&self) {
        if let Err(error) = self.ask("debug/resume").await {
            tracing::warn!(node = self.node, %error, "ovn-controller does not answer");
        }
    }

    async fn ask(&self, command: &str) -> std::io::Result<()> {
        let socket = ControlSocket::of(&self.ovn_run_dir, OVN_CONTROLLER);
        socket.ask(command, &[], PATIENCE).await.map(drop)
    }
}
