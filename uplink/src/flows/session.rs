//! A connection to a bridge, with what is known of its flows. Must not know which flows are wanted.

use std::{collections::BTreeSet, io, path::Path, time::Duration};

use podnet::openflow::{Connection, Message, Version};
use tokio::time::timeout;

use super::{
    difference::{Change, Difference, Installed},
    flow::{Flow, Flows, Slot},
    wire::{self, Bundle, Part},
};

/// How long a bridge may take to answer. ovs-vswitchd answers at once, but does not while it
/// applies a configuration or, on kernels before 6.8, empties a conntrack zone, which takes up to a
/// minute. Ten times as much would hide a daemon that hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bundles that are tried, each without the flows that the bridge refused in the one before. A
/// bridge without a feature refuses flows of a few kinds; the commit names one a time.
const ATTEMPTS: usize = 16;

/// Why the flows of a bridge could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    #[error("OpenFlow with bridge {bridge}")]
    Connection {
        bridge: String,
        #[source]
        error: io::Error,
    },
    #[error("bridge {bridge} has not answered within {} s", PATIENCE.as_secs())]
    Slow { bridge: String },
    #[error("bridge {bridge} refuses {what}: OpenFlow error {kind}, {code}")]
    Refused { bridge: String, what: String, kind: u16, code: u16 },
    #[error(
        "ovs-vswitchd does not forget what the datapath did by former flows of bridge {bridge}"
    )]
    Datapath {
        bridge: String,
        #[source]
        error: io::Error,
    },
}

/// What was changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    pub added: usize,
    pub removed: usize,
    /// Bytes of the messages that were sent for it.
    pub bytes: usize,
    /// Flows that are not there because a foreign flow has the same match and priority.
    pub conflicts: Vec<Flow>,
    /// Flows that the bridge does not accept, each with its error (`OFPET_…` and code).
    pub refused: Vec<(Flow, u16, u16)>,
}

impl Outcome {
    /// Whether nothing was to be done, and nothing is in the way.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// How changes by other programs are noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watching {
    /// The bridge tells them (flow monitor).
    Told,
    /// It cannot: they have to be looked for.
    NotTold,
}

#[derive(Debug)]
pub(super) struct Session {
    connection: Connection,
    bridge: String,
    last_id: u32,
    installed: Installed,
    /// Another program has changed flows since they were read.
    is_stale: bool,
    pub(super) watching: Watching,
}

/// Answers to the messages from `first` on, up to that of `last`.
#[derive(Debug, Default)]
struct Refusals(Vec<(u32, u16, u16)>);

impl Session {
    /// Connects, asks to be told of changes, and reads all flows.
    pub(super) async fn open(run_dir: &Path, bridge: &str) -> Result<Self, InstallError> {
        let opening = Connection::open(run_dir, bridge, &[Version::V1_4]);
        let opened = timeout(PATIENCE, opening).await;
        let connection = opened
            .map_err(|_| InstallError::Slow { bridge: bridge.to_owned() })?
            .map_err(|error| InstallError::Connection { bridge: bridge.to_owned(), error })?;
        let mut session = Self {
            connection,
            bridge: bridge.to_owned(),
            last_id: 0,
            installed: Installed::default(),
            is_stale: false,
            watching: Watching::Told,
        };
        // Before the flows are read: a change in between is told.
        let watch = session.message(wire::MULTIPART_REQUEST, wire::watch());
        session.send(std::slice::from_ref(&watch)).await?;
        let (_, refusals) = session.answer_to(watch.id).await?;
        if !refusals.0.is_empty() {
            session.watching = Watching::NotTold;
        }
        session.read().await?;
        Ok(session)
    }

    /// Reads all flows of the bridge.
    pub(super) async fn read(&mut self) -> Result<(), InstallError> {
        self.is_stale = false;
        let question = self.message(wire::MULTIPART_REQUEST, wire::all_flows());
        self.send(std::slice::from_ref(&question)).await?;
        let mut found = Vec::new();
        loop {
            let (message, refusals) = self.answer_to(question.id).await?;
            if let Some((_, kind, code)) = refusals.0.first() {
                return Err(self.refused("to tell its flows", *kind, *code));
            }
            match wire::part(&message.body) {
                Some(Part::Flows { flows, is_last }) => {
                    found.extend(flows);
                    if is_last {
                        self.installed = Installed::new(found);
                        return Ok(());
                    }
                }
                Some(Part::Changes(_) | Part::Other) => {}
                None => return Err(self.failed(io::ErrorKind::InvalidData.into())),
            }
        }
    }

    /// Makes the flows of the bridge the desired ones.
    pub(super) async fn settle(&mut self, desired: &Flows) -> Result<Outcome, InstallError> {
        let mut refused: Vec<(Flow, u16, u16)> = Vec::new();
        let mut outcome = Outcome::default();
        for _ in 0..ATTEMPTS {
            if self.is_stale {
                self.read().await?;
            }
            let without: BTreeSet<Slot> = refused.iter().map(|(flow, ..)| flow.slot).collect();
            let Difference { changes, conflicts } = self.installed.difference(desired, &without);
            outcome.conflicts = conflicts;
            match self.write(changes, &mut outcome).await? {
                Some(more) => refused.extend(more),
                // A change by another program came in between.
                None if self.is_stale => {}
                None => break,
            }
        }
        outcome.refused = refused;
        Ok(outcome)
    }

    /// Removes our flows.
    pub(super) async fn release(&mut self) -> Result<Outcome, InstallError> {
        let mut outcome = Outcome::default();
        let Difference { changes, .. } = self.installed.release();
        match self.write(changes, &mut outcome).await? {
            None => Ok(outcome),
            Some(refused) => {
                let (kind, code) =
                    refused.first().map(|(_, kind, code)| (*kind, *code)).unwrap_or_default();
                Err(self.refused("to remove flows", kind, code))
            }
        }
    }

    /// Does the changes in one bundle: all or none. Returns the flows that the bridge refuses, if
    /// it does.
    async fn write(
        &mut self,
        changes: Vec<Change>,
        outcome: &mut Outcome,
    ) -> Result<Option<Vec<(Flow, u16, u16)>>, InstallError> {
        if changes.is_empty() {
            return Ok(None);
        }
        let open = self.message(wire::BUNDLE_CONTROL, Vec::new());
        // A bundle has the number of its first message.
        let bundle = open.id;
        let mut messages = vec![Message { body: wire::bundle(bundle, Bundle::Open), ..open }];
        for change in &changes {
            let body = match change {
                Change::Add { cookie, flow } => wire::add(*cookie, &flow.slot, &flow.actions),
                Change::Delete(at) => wire::delete(at),
            };
            let inner = self.message(wire::FLOW_MOD, body);
            let mut body = wire::bundled(bundle);
            self.connection.frame(&inner, &mut body).map_err(|error| self.failed(error))?;
            messages.push(Message { kind: wire::BUNDLE_ADD, id: inner.id, body });
        }
        let commit = self.message(wire::BUNDLE_CONTROL, wire::bundle(bundle, Bundle::Commit));
        messages.push(commit.clone());
        outcome.bytes += self.send(&messages).await?;
        let (_, Refusals(refusals)) = self.answer_to(commit.id).await?;
        if refusals.is_empty() {
            let added =
                changes.iter().filter(|change| matches!(change, Change::Add { .. })).count();
            outcome.added += added;
            outcome.removed += changes.len() - added;
            self.installed.apply(changes);
            return Ok(None);
        }
        let refused_flow = |(id, kind, code): &(u32, u16, u16)| {
            // The changes have the numbers after that of the bundle.
            let index = usize::try_from(id.checked_sub(bundle + 1)?).ok()?;
            match changes.get(index)? {
                Change::Add { flow, .. } => Some((flow.clone(), *kind, *code)),
                Change::Delete(_) => None,
            }
        };
        let refused: Vec<_> = refusals.iter().filter_map(refused_flow).collect();
        match (refused.is_empty(), refusals.first()) {
            (true, Some((_, kind, code))) => Err(self.refused("a bundle of flows", *kind, *code)),
            _ => Ok(Some(refused)),
        }
    }

    /// Waits until another program has changed flows that concern us.
    pub(super) async fn changed(&mut self) -> Result<(), InstallError> {
        while !self.is_stale {
            let message = self.connection.receive().await.map_err(|error| self.failed(error))?;
            self.note(&message);
        }
        Ok(())
    }

    /// The next message with this number, and the errors that came before it or are it.
    async fn answer_to(&mut self, id: u32) -> Result<(Message, Refusals), InstallError> {
        let mut refusals = Refusals::default();
        loop {
            let received = timeout(PATIENCE, self.connection.receive()).await;
            let message = received
                .map_err(|_| InstallError::Slow { bridge: self.bridge.clone() })?
                .map_err(|error| self.failed(error))?;
            if message.kind == wire::ERROR {
                let (kind, code) = wire::error(&message.body).unwrap_or_default();
                refusals.0.push((message.id, kind, code));
            }
            let is_of_bundle =
                message.kind == wire::BUNDLE_CONTROL && !wire::is_committed(&message.body);
            if message.id == id && !is_of_bundle {
                return Ok((message, refusals));
            }
            self.note(&message);
        }
    }

    /// Takes notice of a message that nobody asked for.
    fn note(&mut self, message: &Message) {
        if message.kind != wire::MULTIPART_REPLY {
            return;
        }
        if let Some(Part::Changes(changes)) = wire::part(&message.body) {
            self.is_stale |=
                changes.iter().any(|(cookie, at)| self.installed.concerns(*cookie, at));
        }
    }

    fn message(&mut self, kind: u8, body: Vec<u8>) -> Message {
        // Number 0 is that of messages which answer nothing.
        self.last_id = self.last_id.checked_add(1).unwrap_or(1);
        Message { kind, id: self.last_id, body }
    }

    /// Sends messages; returns their size.
    async fn send(&mut self, messages: &[Message]) -> Result<usize, InstallError> {
        let sent = timeout(PATIENCE, self.connection.send(messages)).await;
        sent.map_err(|_| InstallError::Slow { bridge: self.bridge.clone() })?
            .map_err(|error| self.failed(error))
    }

    fn failed(&self, error: io::Error) -> InstallError {
        InstallError::Connection { bridge: self.bridge.clone(), error }
    }

    fn refused(&self, what: &str, kind: u16, code: u16) -> InstallError {
        InstallError::Refused { bridge: self.bridge.clone(), what: what.to_owned(), kind, code }
    }
}
