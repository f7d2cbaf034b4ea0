//! The other side of the wire, for tests and the fuzzer: an answer as a bridge writes it, and what
//! is read from any answer.

use super::{FLOWS, Part, RawSlot, action, length, multipart, padded_match, part};
use crate::flows::{Action, Slot};

/// A flow as it was read: cookie, slot and actions, as far as they are understood.
pub type Read = (u64, Option<Slot>, Option<Vec<Action>>);

/// The body of an answer with one flow.
pub fn answer(cookie: u64, slot: &Slot, actions: &[Action]) -> Vec<u8> {
    let at = RawSlot::from(slot);
    let mut record = vec![at.table];
    record.extend([0; 9]);
    record.extend(at.priority.to_be_bytes());
    record.extend([0; 10]);
    record.extend(cookie.to_be_bytes());
    record.extend([0; 16]);
    record.extend(padded_match(&at.matching));
    record.extend(action::instructions(actions));
    let mut body = multipart(FLOWS);
    body.extend(length(record.len() + 2));
    body.extend(record);
    body
}

/// What is read from the body of an answer. `None`: it is no answer with flows, or cut off.
pub fn read(body: &[u8]) -> Option<Vec<Read>> {
    match part(body)? {
        Part::Flows { flows, .. } => Some(
            flows.into_iter().map(|found| (found.cookie, found.at.slot(), found.actions)).collect(),
        ),
        // The slots of changes are read, too.
        Part::Changes(changes) => {
            Some(changes.into_iter().map(|(cookie, at)| (cookie, at.slot(), None)).collect())
        }
        Part::Other => None,
    }
}
