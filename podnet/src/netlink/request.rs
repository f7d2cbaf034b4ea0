//! Blocking requests to the kernel's links, addresses and routes (rtnetlink(7)).
//!
//! The kernel carries out a request while it is being sent, so the answer is there when sendmsg(2)
//! returns. Nothing has to be waited for. An answer that is not there is lost, and the effect of
//! the request is unknown.
//!
//! Must not know what the messages are about.

use std::{
    io,
    sync::{Mutex, PoisonError},
};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::{RouteNetlinkMessage, address::AddressMessage, route::RouteMessage};
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use nix::libc::MSG_DONTWAIT;

use super::dump::{DATAGRAM, MOST_TRIES, is_torn, messages, torn};

/// A socket of the network namespace in which it was opened. Blocks for as long as the kernel
/// works.
#[derive(Debug)]
pub struct Netlink(Mutex<Conversation>);

#[derive(Debug)]
struct Conversation {
    socket: Socket,
    /// The sequence number of the last message that was sent.
    sequence: u32,
    answer: Vec<u8>,
}

/// Why a request had no effect, or an unknown one.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// The kernel has refused, and changed nothing.
    #[error(transparent)]
    Refused(io::Error),
    /// The request was not sent; or it was, and its effect is unknown.
    #[error("no answer of the kernel")]
    Lost(#[source] io::Error),
}

impl NetlinkError {
    /// The error number of a refusal.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Refused(error) => error.raw_os_error(),
            Self::Lost(_) => None,
        }
    }
}

impl From<NetlinkError> for io::Error {
    fn from(error: NetlinkError) -> Self {
        match error {
            NetlinkError::Refused(error) => error,
            lost @ NetlinkError::Lost(_) => Self::other(lost),
        }
    }
}

impl Netlink {
    /// Opens a socket of the namespace that this thread is in.
    ///
    /// # Errors
    /// The kernel has no socket left.
    pub fn open() -> io::Result<Self> {
        Ok(Self(Mutex::new(Conversation {
            socket: Socket::new(NETLINK_ROUTE)?,
            sequence: 0,
            answer: Vec::with_capacity(DATAGRAM),
        })))
    }

    /// The same, for lists of which the kernel makes only what the message asks for (since 4.20,
    /// with strict checks of the message). An older one does not know the option and sends
    /// everything.
    ///
    /// # Errors
    /// The kernel has no socket left.
    pub fn open_filtering() -> io::Result<Self> {
        let netlink = Self::open()?;
        let _ = netlink
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .socket
            .set_netlink_get_strict_chk(true);
        Ok(netlink)
    }

    /// Sends a message with these flags besides those of a request. Returns the kernel's answer, if
    /// it is more than an acknowledgement.
    ///
    /// # Errors
    /// [`NetlinkError::Refused`] with the kernel's error number; [`NetlinkError::Lost`] if the
    /// effect is unknown.
    pub fn request(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<Option<RouteNetlinkMessage>, NetlinkError> {
        let mut said = None;
        self.converse(vec![(message, flags)], |answer| said = Some(answer))
            .map_err(|(_, error)| error)?;
        Ok(said)
    }

    /// Sends messages together. The kernel carries out all of them in this order, even after it has
    /// refused one.
    ///
    /// # Errors
    /// The index of the first message that was refused, from 0, or of the first without an answer.
    pub fn request_all(
        &self,
        messages: Vec<(RouteNetlinkMessage, u16)>,
    ) -> Result<(), (usize, NetlinkError)> {
        self.converse(messages, |_| {})
    }

    /// Requests a list, again if it changes meanwhile, and keeps what `pick` makes of each entry.
    ///
    /// # Errors
    /// The kernel refuses, an answer is lost, or the list changed during each attempt
    /// ([`is_torn`]).
    pub fn dump<T>(
        &self,
        message: &RouteNetlinkMessage,
        mut pick: impl FnMut(RouteNetlinkMessage) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        for tries_left in (0..MOST_TRIES).rev() {
            let mut entries = Vec::new();
            match self
                .converse(vec![(message.clone(), NLM_F_DUMP)], |entry| entries.extend(pick(entry)))
            {
                Ok(()) => return Ok(entries),
                Err((_, NetlinkError::Lost(error))) if is_torn(&error) && tries_left > 0 => {}
                Err((_, error)) => return Err(error.into()),
            }
        }
        Err(torn())
    }

    /// [`dump`](Self::dump) of the addresses of all links. Where the kernel lists those of one
    /// link, it does not tell when they change meanwhile (`inet_dump_addr`; seen in Linux 6.18):
    /// `pick` has to look at the index.
    ///
    /// # Errors
    /// Those of [`dump`](Self::dump).
    pub fn addresses<T>(
        &self,
        mut pick: impl FnMut(AddressMessage) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        self.dump(
            &RouteNetlinkMessage::GetAddress(AddressMessage::default()),
            |entry| match entry {
                RouteNetlinkMessage::NewAddress(address) => pick(address),
                _ => None,
            },
        )
    }

    /// [`dump`](Self::dump) of the routes that `request` asks for.
    ///
    /// # Errors
    /// Those of [`dump`](Self::dump).
    pub fn routes<T>(
        &self,
        request: RouteMessage,
        mut pick: impl FnMut(RouteMessage) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        self.dump(&RouteNetlinkMessage::GetRoute(request), |entry| match entry {
            RouteNetlinkMessage::NewRoute(route) => pick(route),
            _ => None,
        })
    }

    fn converse(
        &self,
        messages: Vec<(RouteNetlinkMessage, u16)>,
        take: impl FnMut(RouteNetlinkMessage),
    ) -> Result<(), (usize, NetlinkError)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).converse(messages, take)
    }
}

impl Conversation {
    fn converse(
        &mut self,
        requests: Vec<(RouteNetlinkMessage, u16)>,
        mut take: impl FnMut(RouteNetlinkMessage),
    ) -> Result<(), (usize, NetlinkError)> {
        let lost = |answered: usize| move |error| (answered, NetlinkError::Lost(error));
        let count = requests.len();
        if count == 0 {
            return Ok(());
        }
        let first = self.sequence.wrapping_add(1);
        let bytes = self.serialize(requests);
        self.socket.send(&bytes, 0).map_err(lost(0))?;
        let (mut answered, mut interrupted) = (0, false);
        let mut refused = None;
        while answered < count {
            self.answer.clear();
            // The kernel has answered inside send(2), or continues a dump inside recv(2): there is
            // nothing to wait for.
            self.socket.recv(&mut self.answer, MSG_DONTWAIT).map_err(lost(answered))?;
            for message in messages::<RouteNetlinkMessage>(&self.answer) {
                let NetlinkMessage { header, payload, .. } = message.map_err(lost(answered))?;
                // An answer that is left of an earlier exchange, of which one was lost.
                if header.sequence_number.wrapping_sub(first) as usize != answered {
                    continue;
                }
                interrupted |= header.flags & NLM_F_DUMP_INTR != 0;
                let outcome = match payload {
                    NetlinkPayload::InnerMessage(answer) => {
                        take(answer);
                        continue;
                    }
                    NetlinkPayload::Error(error) if error.code.is_some() => Err(error.to_io()),
                    NetlinkPayload::Done(done) if done.code < 0 => {
                        Err(io::Error::from_raw_os_error(-done.code))
                    }
                    _ => Ok(()),
                };
                // The first refusal counts, but the other answers have to be read, too.
                if let (Err(error), None) = (outcome, &refused) {
                    refused = Some((answered, NetlinkError::Refused(error)));
                }
                answered += 1;
            }
        }
        match refused {
            Some(refused) => Err(refused),
            None if interrupted => Err((0, NetlinkError::Lost(torn()))),
            None => Ok(()),
        }
    }

    fn serialize(&mut self, requests: Vec<(RouteNetlinkMessage, u16)>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (request, flags) in requests {
            self.sequence = self.sequence.wrapping_add(1);
            let mut message = NetlinkMessage::from(request);
            message.header.sequence_number = self.sequence;
            message.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
            message.finalize();
            let start = bytes.len();
            // Each begins at a multiple of four bytes (netlink(7)).
            bytes.resize(start + message.buffer_len().next_multiple_of(4), 0);
            message.serialize(&mut bytes[start..start + message.buffer_len()]);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::link::{LinkAttribute, LinkMessage};
    use nix::libc::ENODEV;

    use super::*;

    fn get(name: &str) -> (RouteNetlinkMessage, u16) {
        let mut link = LinkMessage::default();
        link.attributes.push(LinkAttribute::IfName(name.to_owned()));
        (RouteNetlinkMessage::GetLink(link), 0)
    }

    fn index(answer: &RouteNetlinkMessage) -> u32 {
        let RouteNetlinkMessage::NewLink(link) = answer else { panic!("{answer:?}") };
        link.header.index
    }

    #[test]
    fn what_is_asked_for_is_returned_and_a_refusal_has_its_number() {
        let netlink = Netlink::open().unwrap();
        for _ in 0..3 {
            let (message, flags) = get("lo");
            assert_eq!(netlink.request(message, flags).unwrap().as_ref().map(index), Some(1));
            let (message, flags) = get("no-such-link");
            assert_eq!(netlink.request(message, flags).unwrap_err().errno(), Some(ENODEV));
        }
    }

    #[test]
    fn of_messages_that_are_sent_at_once_the_first_refusal_counts() {
        let netlink = Netlink::open().unwrap();
        netlink.request_all(vec![get("lo"), get("lo")]).unwrap();
        let (number, error) = netlink
            .request_all(vec![get("lo"), get("none-1"), get("lo"), get("none-2")])
            .unwrap_err();
        assert_eq!((number, error.errno()), (1, Some(ENODEV)));
        netlink.request_all(Vec::new()).unwrap();
        netlink.request_all(vec![get("lo")]).unwrap();
    }

    #[test]
    fn a_list_is_handed_over_to_its_end() {
        let netlink = Netlink::open().unwrap();
        let found: Vec<u32> = netlink
            .dump(&RouteNetlinkMessage::GetLink(LinkMessage::default()), |link| Some(index(&link)))
            .unwrap();
        assert!(found.contains(&1), "{found:?}");
        assert!(
            netlink.dump(&RouteNetlinkMessage::NewLink(LinkMessage::default()), Some).is_err(),
            "creations cannot be listed"
        );
    }
}
