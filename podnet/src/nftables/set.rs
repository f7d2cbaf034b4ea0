//! Sets and maps of nftables: what a rule looks up instead of a rule for each value. Elements are
//! changed one by one.

use std::{collections::BTreeMap, io};

use netlink_packet_core::NLM_F_CREATE;
use netlink_packet_netfilter::nftables::{
    DataAttribute, ListAttribute, NfTablesMessage, SetAttribute, SetElementAttribute,
    SetElementFlags, SetElementList, SetElementMessage, SetFlags, SetMessage,
};

use super::{Change, find};

mod interval;
mod listed;

/// Elements in one message: the length of an attribute has 16 bits, and an element has at most some
/// 80 bytes.
const IN_A_MESSAGE: usize = 400;

/// A type of nftables(8) with its length, for keys and values. The kernel knows only the length,
/// `nft` the type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    pub number: u32,
    /// Bytes.
    pub length: u32,
}

/// A set, or a map, in a table of family `inet`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Set {
    pub table: &'static str,
    pub name: &'static str,
    pub key: Kind,
    pub content: Content,
}

/// What is beside the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Nothing: it is a set.
    Nothing,
    /// A value for each: it is a map.
    Values(Kind),
    /// The last key of an interval for each: a key is in it if it is one of the two, or between
    /// them as a text of bytes. No two intervals overlap.
    ///
    /// The kernel has a tree of them (`nft_set_rbtree`). In its other kind of set of intervals, of
    /// concatenated fields (`nft_set_pipapo`), each change of an element costs as much as there are
    /// elements: 10,000 of them take seconds of a processor.
    Ends,
}

/// The elements of a change, in the order in which they have to be changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Correction {
    /// Before others are added: a key has one value, and intervals do not overlap.
    pub removals: Vec<Change>,
    pub additions: Vec<Change>,
}

/// Keys, each with its value in a map, with its end in a set of intervals, with nothing in another
/// set.
pub type Elements = BTreeMap<Vec<u8>, Vec<u8>>;

/// What exists under the name of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoundSet {
    Nothing,
    /// One with keys or values of another length, or with half an interval.
    Other,
    Elements(Elements),
}

impl Set {
    /// Reads what exists now. Needs a tokio runtime.
    ///
    /// # Errors
    /// The kernel refuses, or has no nftables.
    pub async fn look(self) -> io::Result<FoundSet> {
        let get = NfTablesMessage::GetSet(SetMessage { attributes: self.names() });
        let pick =
            |answer| if let NfTablesMessage::NewSet(set) = answer { Some(set) } else { None };
        let Some(set) = find(get, pick).await? else { return Ok(FoundSet::Nothing) };
        if !self.lengths().iter().all(|wanted| set.attributes.contains(wanted)) {
            return Ok(FoundSet::Other);
        }
        let listed = listed::elements(self.of_elements()).await?;
        let elements = match self.content {
            Content::Ends => interval::paired(listed),
            Content::Nothing | Content::Values(_) => {
                Some(listed.into_iter().map(|element| (element.key, element.value)).collect())
            }
        };
        Ok(elements.map_or(FoundSet::Other, FoundSet::Elements))
    }

    /// The change that makes the set, if it does not exist.
    pub fn create(self) -> Change {
        // The kernel wants a number within the transaction. Rules refer to the name.
        let own = [SetAttribute::KeyType(self.key.number), SetAttribute::Id(1)];
        let more = match self.content {
            Content::Nothing | Content::Ends => None,
            Content::Values(kind) => Some(SetAttribute::DataType(kind.number)),
        };
        let mut attributes = self.names();
        attributes.extend(self.lengths());
        attributes.extend(own.into_iter().chain(more));
        Change(NfTablesMessage::NewSet(SetMessage { attributes }), NLM_F_CREATE)
    }

    /// The change that removes the set, if no rule refers to it.
    pub fn remove(self) -> Change {
        Change(NfTablesMessage::DeleteSet(SetMessage { attributes: self.names() }), 0)
    }

    /// The changes from the elements `found` to those that are `wanted`. Only elements that differ
    /// are changed.
    pub fn correct(self, found: &Elements, wanted: &Elements) -> Correction {
        let differ = |from: &Elements, to: &Elements| {
            let missing = from.iter().filter(|(key, value)| to.get(*key) != Some(*value));
            missing.map(|(key, value)| (key.clone(), value.clone())).collect::<Vec<_>>()
        };
        let (gone, new) = (differ(found, wanted), differ(wanted, found));
        let removals = gone.chunks(IN_A_MESSAGE).map(|some| {
            // A map's element is found by its key alone.
            let with_end = |(key, end)| (key, (self.content == Content::Ends).then_some(end));
            let attributes = self.with(some.iter().map(|(key, end)| with_end((key, end))));
            Change(NfTablesMessage::DeleteSetElement(SetElementMessage { attributes }), 0)
        });
        let additions = new.chunks(IN_A_MESSAGE).map(|some| {
            let has_more = self.content != Content::Nothing;
            let attributes =
                self.with(some.iter().map(|(key, value)| (key, has_more.then_some(value))));
            Change(NfTablesMessage::NewSetElement(SetElementMessage { attributes }), NLM_F_CREATE)
        });
        Correction { removals: removals.collect(), additions: additions.collect() }
    }

    fn names(self) -> Vec<SetAttribute> {
        vec![SetAttribute::Table(self.table.to_owned()), SetAttribute::Name(self.name.to_owned())]
    }

    fn lengths(self) -> Vec<SetAttribute> {
        let mut lengths = vec![SetAttribute::KeyLen(self.key.length)];
        match self.content {
            Content::Nothing => {}
            Content::Values(kind) => lengths
                .extend([SetAttribute::Flags(SetFlags::Map), SetAttribute::DataLen(kind.length)]),
            Content::Ends => lengths.push(SetAttribute::Flags(SetFlags::Interval)),
        }
        lengths
    }

    fn of_elements(self) -> Vec<SetElementList> {
        vec![
            SetElementList::Table(self.table.to_owned()),
            SetElementList::Set(self.name.to_owned()),
        ]
    }

    fn with<'a>(
        self,
        elements: impl Iterator<Item = (&'a Vec<u8>, Option<&'a Vec<u8>>)>,
    ) -> Vec<SetElementList> {
        let data = |bytes: &[u8]| DataAttribute::Value(bytes.to_vec());
        let elements = elements.flat_map(|(key, value)| {
            let start = SetElementAttribute::Key(data(key));
            let (value, end) = match (self.content, value) {
                // An element of its own, right after the other one, as `nft` writes it.
                (Content::Ends, Some(last)) => {
                    let end = SetElementAttribute::Key(data(&interval::after(last)));
                    let flags = SetElementAttribute::Flags(SetElementFlags::IntervalEnd);
                    (None, Some(ListAttribute::Element(vec![end, flags])))
                }
                (_, value) => (value.map(|value| SetElementAttribute::Data(data(value))), None),
            };
            let start = ListAttribute::Element([start].into_iter().chain(value).collect());
            [start].into_iter().chain(end)
        });
        let mut attributes = self.of_elements();
        attributes.push(SetElementList::Elements(elements.collect()));
        attributes
    }
}
