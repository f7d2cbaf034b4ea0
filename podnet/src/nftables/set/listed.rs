//! The elements of a set, as the kernel lists them.
//!
//! netlink-packet-netfilter 0.4.0 makes the text of an error for each element, also where there is
//! none, and each has the whole message: a second for 600 elements. Here they are read from the
//! bytes.

use std::io;

use netlink_packet_core::{
    DecodeError, NLM_F_DUMP, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader, NetlinkMessage,
    NetlinkPayload, NetlinkSerializable, NlasIterator,
};
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterProtoFamily,
    nftables::{NfTablesMessage, SetElementList, SetElementMessage},
};
use netlink_sys::protocols::NETLINK_NETFILTER;
use nix::libc;

use crate::netlink::batch;

/// Bytes before the attributes (`struct nfgenmsg`).
const HEADER: usize = 4;
// `linux/netfilter/nf_tables.h`
const NFTA_SET_ELEM_LIST_ELEMENTS: u16 = 3;
const NFTA_LIST_ELEM: u16 = 1;
const NFTA_SET_ELEM_KEY: u16 = 1;
const NFTA_SET_ELEM_DATA: u16 = 2;
const NFTA_SET_ELEM_FLAGS: u16 = 3;
const NFT_SET_ELEM_INTERVAL_END: u8 = 1;
const NFTA_DATA_VALUE: u16 = 1;

/// One element.
pub(super) struct Element {
    pub(super) key: Vec<u8>,
    /// Empty in a set.
    pub(super) value: Vec<u8>,
    /// It is the end of an interval, which no more belongs to it.
    pub(super) ends_interval: bool,
}

/// Lists the elements of the set that the attributes name.
pub(super) async fn elements(attributes: Vec<SetElementList>) -> io::Result<Vec<Element>> {
    let list = NfTablesMessage::GetSetElement(SetElementMessage { attributes });
    let header = NetfilterHeader::new(NetfilterProtoFamily::Inet, 0, 0);
    let mut request =
        NetlinkMessage::from(Listed::Request(Box::new(NetfilterMessage::new(header, list))));
    request.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let answers = batch::exchange(NETLINK_NETFILTER, vec![request], |answer| match answer {
        Listed::Elements(elements) => Some(elements),
        Listed::Request(_) => None,
    });
    Ok(answers.await?.into_iter().flatten().collect())
}

/// The request, or a message of the answer.
enum Listed {
    Request(Box<NetfilterMessage>),
    Elements(Vec<Element>),
}

impl From<Listed> for NetlinkPayload<Listed> {
    fn from(listed: Listed) -> Self {
        Self::InnerMessage(listed)
    }
}

impl NetlinkSerializable for Listed {
    fn message_type(&self) -> u16 {
        if let Self::Request(request) = self { request.message_type() } else { 0 }
    }

    fn buffer_len(&self) -> usize {
        if let Self::Request(request) = self {
            NetlinkSerializable::buffer_len(&**request)
        } else {
            0
        }
    }

    fn serialize(&self, buffer: &mut [u8]) {
        if let Self::Request(request) = self {
            request.serialize(buffer);
        }
    }
}

impl NetlinkDeserializable for Listed {
    type Error = DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, DecodeError> {
        let is_list = i32::from(header.message_type)
            == libc::NFNL_SUBSYS_NFTABLES << 8 | libc::NFT_MSG_NEWSETELEM;
        let mut elements = Vec::new();
        for attribute in
            NlasIterator::new(payload.get(HEADER..).filter(|_| is_list).unwrap_or_default())
        {
            let attribute = attribute?;
            if attribute.kind() != NFTA_SET_ELEM_LIST_ELEMENTS {
                continue;
            }
            for element in NlasIterator::new(attribute.value()) {
                let element = element?;
                if element.kind() == NFTA_LIST_ELEM {
                    elements.extend(one(element.value())?);
                }
            }
        }
        Ok(Self::Elements(elements))
    }
}

/// None without a key.
fn one(element: &[u8]) -> Result<Option<Element>, DecodeError> {
    let (mut key, mut value, mut ends_interval) = (None, Vec::new(), false);
    for part in NlasIterator::new(element) {
        let part = part?;
        match part.kind() {
            NFTA_SET_ELEM_KEY => key = data(part.value())?,
            NFTA_SET_ELEM_DATA => value = data(part.value())?.unwrap_or_default(),
            // 32 bits, the network's byte order.
            NFTA_SET_ELEM_FLAGS => {
                ends_interval =
                    part.value().last().is_some_and(|it| it & NFT_SET_ELEM_INTERVAL_END != 0);
            }
            _ => {}
        }
    }
    Ok(key.map(|key| Element { key, value, ends_interval }))
}

fn data(attributes: &[u8]) -> Result<Option<Vec<u8>>, DecodeError> {
    for attribute in NlasIterator::new(attributes) {
        let attribute = attribute?;
        if attribute.kind() == NFTA_DATA_VALUE {
            return Ok(Some(attribute.value().to_vec()));
        }
    }
    Ok(None)
}
