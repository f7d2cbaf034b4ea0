//! Sets and maps of nftables: what a rule looks up instead of a rule for each value. Elements are changed
//! one by one.

use std::{collections::BTreeMap, io};

use netlink_packet_core::{DefaultNla, NLA_F_NESTED, NLM_F_CREATE};
use netlink_packet_netfilter::nftables::{
    DataAttribute, ListAttribute, NfTablesMessage, SetAttribute, SetDescription, SetElementAttribute,
    SetElementList, SetElementMessage, SetFlags, SetMessage,
};

use super::{Change, find};

mod listed;

/// Elements in one message: the length of an attribute has 16 bits, and an element has at most some 80 bytes.
const IN_A_MESSAGE: usize = 400;

/// A type of nftables(8) with its length, for keys and values. The kernel knows only the length, `nft` the
/// type.
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
    /// The end of an interval for each, in a set of concatenated fields with these lengths in bytes. A field
    /// is in an interval if it is in that of its own. Two intervals may not overlap.
    Ends(&'static [u32]),
}

/// The elements of a change, in the order in which they have to be changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Correction {
    /// Before others are added: a key has one value, and intervals do not overlap.
    pub removals: Vec<Change>,
    pub additions: Vec<Change>,
}

/// Keys, each with its value in a map, with its end in a set of intervals, with nothing in another set.
pub type Elements = BTreeMap<Vec<u8>, Vec<u8>>;

/// What exists under the name of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoundSet {
    Nothing,
    /// One with keys or values of another length.
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
        let pick = |answer| if let NfTablesMessage::NewSet(set) = answer { Some(set) } else { None };
        let Some(set) = find(get, pick).await? else { return Ok(FoundSet::Nothing) };
        if !self.lengths().iter().all(|wanted| set.attributes.contains(wanted)) {
            return Ok(FoundSet::Other);
        }
        Ok(FoundSet::Elements(listed::elements(self.of_elements()).await?))
    }

    /// The change that makes the set, if it does not exist.
    pub fn create(self) -> Change {
        // The kernel wants a number within the transaction. Rules refer to the name.
        let own = [SetAttribute::KeyType(self.key.number), SetAttribute::Id(1)];
        let more = match self.content {
            Content::Nothing => None,
            Content::Values(kind) => Some(SetAttribute::DataType(kind.number)),
            Content::Ends(fields) => Some(SetAttribute::Description(vec![concatenation(fields)])),
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

    /// The changes from the elements `found` to those that are `wanted`. Only elements that differ are
    /// changed.
    pub fn correct(self, found: &Elements, wanted: &Elements) -> Correction {
        let differ = |from: &Elements, to: &Elements| {
            let missing = from.iter().filter(|(key, value)| to.get(*key) != Some(*value));
            missing.map(|(key, value)| (key.clone(), value.clone())).collect::<Vec<_>>()
        };
        let (gone, new) = (differ(found, wanted), differ(wanted, found));
        let removals = gone.chunks(IN_A_MESSAGE).map(|some| {
            // A map's element is found by its key alone.
            let with_end = |(key, end)| (key, matches!(self.content, Content::Ends(_)).then_some(end));
            let attributes = self.with(some.iter().map(|(key, end)| with_end((key, end))));
            Change(NfTablesMessage::DeleteSetElement(SetElementMessage { attributes }), 0)
        });
        let additions = new.chunks(IN_A_MESSAGE).map(|some| {
            let has_more = self.content != Content::Nothing;
            let attributes = self.with(some.iter().map(|(key, value)| (key, has_more.then_some(value))));
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
            Content::Values(kind) => {
                lengths.extend([SetAttribute::Flags(SetFlags::Map), SetAttribute::DataLen(kind.length)])
            }
            Content::Ends(_) => {
                lengths.push(SetAttribute::Flags(SetFlags::Interval | SetFlags::Concat));
            }
        }
        lengths
    }

    fn of_elements(self) -> Vec<SetElementList> {
        vec![SetElementList::Table(self.table.to_owned()), SetElementList::Set(self.name.to_owned())]
    }

    fn with<'a>(
        self,
        elements: impl Iterator<Item = (&'a Vec<u8>, Option<&'a Vec<u8>>)>,
    ) -> Vec<SetElementList> {
        let data = |bytes: &Vec<u8>| DataAttribute::Value(bytes.clone());
        let elements = elements.map(|(key, value)| {
            let key = SetElementAttribute::Key(data(key));
            let value = value.map(|value| match self.content {
                // `NFTA_DATA_VALUE`
                Content::Ends(_) => SetElementAttribute::KeyEnd(vec![DefaultNla::new(1, value.clone())]),
                Content::Nothing | Content::Values(_) => SetElementAttribute::Data(data(value)),
            });
            ListAttribute::Element([key].into_iter().chain(value).collect())
        });
        let mut attributes = self.of_elements();
        attributes.push(SetElementList::Elements(elements.collect()));
        attributes
    }
}

/// The fields of a concatenation. The kernel looks up each by itself.
fn concatenation(fields: &[u32]) -> SetDescription {
    let field = |length: &u32| {
        // `NFTA_SET_FIELD_LEN` in `NFTA_LIST_ELEM`: 8 bytes with its header.
        let mut attribute = [8_u16.to_ne_bytes(), 1_u16.to_ne_bytes()].concat();
        attribute.extend(length.to_be_bytes());
        DefaultNla::new(1 | NLA_F_NESTED, attribute)
    };
    SetDescription::Concat(fields.iter().map(field).collect())
}
