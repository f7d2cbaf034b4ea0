//! Flows as OpenFlow 1.4 and the extensions of Open vSwitch have them on the wire: what is written,
//! and what a bridge answers. Must not know why a flow is written.
//!
//! A flow that was written is read as the same value, whatever order and spelling the bridge gives
//! it. A flow that this module does not understand keeps the bytes of its match, so that it can be
//! removed.

mod action;
#[cfg(any(test, feature = "fuzzing"))]
pub mod bridge_side;
mod matching;

use super::{
    COOKIE,
    flow::{Action, OF_SERVICES, Slot},
};

// Constants of the OpenFlow Switch Specification 1.4.1, section 7; the extensions are those of Open
// vSwitch's include/openflow/nicira-ext.h.

/// Kinds of messages.
pub(super) const ERROR: u8 = 1;
pub(super) const FLOW_MOD: u8 = 14;
pub(super) const MULTIPART_REQUEST: u8 = 18;
pub(super) const MULTIPART_REPLY: u8 = 19;
pub(super) const BUNDLE_CONTROL: u8 = 33;
pub(super) const BUNDLE_ADD: u8 = 34;

/// Kinds of multipart messages: `OFPMP_FLOW`, `OFPMP_FLOW_MONITOR`.
const FLOWS: u16 = 1;
const MONITOR: u16 = 16;
/// `OFPMPF_REPLY_MORE`
const MORE: u16 = 1;
const ALL_TABLES: u8 = 0xff;
/// `OFPP_ANY`, `OFPG_ANY`, `OFP_NO_BUFFER`
const ANY: [u8; 4] = [0xff; 4];

/// `OFPFC_ADD`, which replaces the flow of the slot; `OFPFC_DELETE_STRICT`, which removes only
/// that.
const ADD: u8 = 0;
const DELETE_STRICT: u8 = 4;

/// What a message says of a bundle (`OFPBCT_…`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bundle {
    Open = 0,
    Commit = 4,
    Committed = 5,
}

/// `OFPBF_ATOMIC` and `OFPBF_ORDERED`: packets see all of the changes or none, and of two for one
/// slot the second counts.
const ATOMIC_ORDERED: u16 = 0b11;

/// `OFPFMF_ADD`, `OFPFMF_REMOVED`, `OFPFMF_MODIFY`: tell of changes, and only in short of our own.
const CHANGES: u16 = 0b1110;
/// `OFPFME_ADDED`, `OFPFME_REMOVED`, `OFPFME_MODIFIED`
const CHANGED: std::ops::RangeInclusive<u16> = 1..=3;

/// A flow that a bridge has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) cookie: u64,
    pub(super) at: RawSlot,
    /// `None` of a flow that this module would never have written: with fields or actions that it
    /// does not know, or a time limit.
    pub(super) actions: Option<Vec<Action>>,
}

/// A slot, with the match as it is on the wire.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RawSlot {
    pub(super) table: u8,
    pub(super) priority: u16,
    pub(super) matching: Vec<u8>,
}

impl RawSlot {
    /// The slot as a value, if its match is understood.
    pub(super) fn slot(&self) -> Option<Slot> {
        let matching = matching::decode(&self.matching)?;
        Some(Slot { table: self.table, priority: self.priority, matching })
    }
}

impl From<&Slot> for RawSlot {
    fn from(slot: &Slot) -> Self {
        let Slot { table, priority, matching } = slot;
        Self { table: *table, priority: *priority, matching: matching::encode(matching) }
    }
}

/// The body of a message that adds a flow, or replaces that of the slot.
pub(super) fn add(cookie: u64, slot: &Slot, actions: &[Action]) -> Vec<u8> {
    let mut body = flow_mod(ADD, cookie, 0, &RawSlot::from(slot));
    body.extend(action::instructions(actions));
    body
}

/// The body of a message that removes the flow of the slot, if it has our cookie or is one of a
/// Service.
pub(super) fn delete(at: &RawSlot) -> Vec<u8> {
    let mask = if (at.table, at.priority) == OF_SERVICES { 0 } else { u64::MAX };
    flow_mod(DELETE_STRICT, COOKIE, mask, at)
}

fn flow_mod(command: u8, cookie: u64, mask: u64, at: &RawSlot) -> Vec<u8> {
    let mut body = [cookie.to_be_bytes(), mask.to_be_bytes()].concat();
    body.extend([at.table, command]);
    // No time limits.
    body.extend([0; 4]);
    body.extend(at.priority.to_be_bytes());
    body.extend([ANY, ANY, ANY].concat());
    // Flags and importance.
    body.extend([0; 4]);
    body.extend(padded_match(&at.matching));
    body
}

/// `struct ofp_match` with its fields, padded.
fn padded_match(fields: &[u8]) -> Vec<u8> {
    // `OFPMT_OXM`
    let mut bytes = [1_u16.to_be_bytes(), length(fields.len() + 4)].concat();
    bytes.extend(fields);
    pad(&mut bytes);
    bytes
}

/// The body of a message about a bundle.
pub(super) fn bundle(id: u32, what: Bundle) -> Vec<u8> {
    let mut body = id.to_be_bytes().to_vec();
    body.extend((what as u16).to_be_bytes());
    body.extend(ATOMIC_ORDERED.to_be_bytes());
    body
}

/// The bytes before a message that a bundle contains.
pub(super) fn bundled(id: u32) -> Vec<u8> {
    let mut body = id.to_be_bytes().to_vec();
    body.extend([0; 2]);
    body.extend(ATOMIC_ORDERED.to_be_bytes());
    body
}

/// Whether the body of a message about a bundle says that all of it was done.
pub(super) fn is_committed(body: &[u8]) -> bool {
    body.get(4..6) == Some(&(Bundle::Committed as u16).to_be_bytes())
}

/// The body of the question for all flows of the bridge, whatever their cookies.
pub(super) fn all_flows() -> Vec<u8> {
    let mut body = multipart(FLOWS);
    body.extend([ALL_TABLES, 0, 0, 0]);
    body.extend([ANY, ANY].concat());
    // Padding, cookie and its mask.
    body.extend([0; 4 + 16]);
    body.extend(padded_match(&[]));
    body
}

/// The body of the request to be told of changes.
pub(super) fn watch() -> Vec<u8> {
    let mut body = multipart(MONITOR);
    body.extend([0; 4]);
    body.extend([ANY, ANY].concat());
    body.extend(CHANGES.to_be_bytes());
    // The command `OFPFMC_ADD`.
    body.extend([ALL_TABLES, 0]);
    body.extend(padded_match(&[]));
    body
}

fn multipart(kind: u16) -> Vec<u8> {
    [kind.to_be_bytes(), [0; 2], [0; 2], [0; 2]].concat()
}

/// A part of an answer to one of these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Flows {
        flows: Vec<Found>,
        is_last: bool,
    },
    /// Flows that changed, by another program.
    Changes(Vec<(u64, RawSlot)>),
    Other,
}

/// Reads a part of an answer. `None`: it is cut off.
pub(super) fn part(body: &[u8]) -> Option<Part> {
    let mut reader = Reader(body);
    let (kind, flags) = (reader.u16()?, reader.u16()?);
    reader.skip(4)?;
    match kind {
        FLOWS => {
            let mut flows = Vec::new();
            while !reader.0.is_empty() {
                flows.push(found(reader.record()?)?);
            }
            Some(Part::Flows { flows, is_last: flags & MORE == 0 })
        }
        MONITOR => {
            let mut changes = Vec::new();
            while !reader.0.is_empty() {
                changes.extend(changed(reader.record()?)?);
            }
            Some(Part::Changes(changes))
        }
        _ => Some(Part::Other),
    }
}

/// `struct ofp_flow_stats`, after its length.
fn found(mut record: Reader<'_>) -> Option<Found> {
    let table = record.u8()?;
    record.skip(1 + 8)?;
    let (priority, idle, hard) = (record.u16()?, record.u16()?, record.u16()?);
    // Flags, importance, padding.
    record.skip(6)?;
    let cookie = record.u64()?;
    record.skip(16)?;
    let matching = record.match_fields()?.to_vec();
    let is_permanent = (idle, hard) == (0, 0);
    let actions = action::from_instructions(record).filter(|_| is_permanent);
    Some(Found { cookie, at: RawSlot { table, priority, matching }, actions })
}

/// `struct ofp_flow_update_header`, after its length. `None` inside: an event of another kind.
fn changed(mut record: Reader<'_>) -> Option<Option<(u64, RawSlot)>> {
    if !CHANGED.contains(&record.u16()?) {
        return Some(None);
    }
    let table = record.u8()?;
    // Reason and time limits.
    record.skip(1 + 4)?;
    let priority = record.u16()?;
    record.skip(4)?;
    let cookie = record.u64()?;
    let matching = record.match_fields()?.to_vec();
    Some(Some((cookie, RawSlot { table, priority, matching })))
}

/// An error of the bridge: type and code (`OFPET_…`).
pub(super) fn error(body: &[u8]) -> Option<(u16, u16)> {
    let mut reader = Reader(body);
    Some((reader.u16()?, reader.u16()?))
}

fn length(bytes: usize) -> [u8; 2] {
    // What is written here is far shorter than 64 KiB; longer messages are refused by the
    // connection.
    u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes()
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(8), 0);
}

/// Bytes that are read from the front. Each method is `None` if there are too few.
#[derive(Debug, Clone, Copy)]
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn skip(&mut self, length: usize) -> Option<()> {
        self.take(length).map(drop)
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// The rest of a record that begins with its length.
    fn record(&mut self) -> Option<Reader<'a>> {
        let length = usize::from(self.u16()?);
        self.take(length.checked_sub(2)?).map(Reader)
    }

    /// The rest of a record that begins with its type and length.
    fn typed_record(&mut self) -> Option<(u16, Reader<'a>)> {
        let kind = self.u16()?;
        let length = usize::from(self.u16()?);
        Some((kind, Reader(self.take(length.checked_sub(4)?)?)))
    }

    /// The fields of a `struct ofp_match`, whose length leaves out the padding.
    fn match_fields(&mut self) -> Option<&'a [u8]> {
        let _kind = self.u16()?;
        let length = usize::from(self.u16()?);
        let fields = self.take(length.checked_sub(4)?)?;
        self.skip(length.next_multiple_of(8) - length)?;
        Some(fields)
    }
}

#[cfg(test)]
mod tests;
