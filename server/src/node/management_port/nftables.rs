//! One nftables chain in the kernel, over netlink (`linux/netfilter/nf_tables.h`): what is in it, and its replacement in one transaction.
//! Knows nothing of what its rules mean.

use std::{io, time::Duration};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily,
    nftables::{
        ChainAttribute, ChainMessage, ExpressionAttribute, Hook, InetHookNumber, ListAttribute, NfTablesMessage, RuleAttribute,
        RuleMessage, TableAttribute, TableMessage,
    },
    none::ControlMessage,
};
use netlink_sys::{AsyncSocket as _, AsyncSocketExt as _, SocketAddr, TokioSocket, protocols::NETLINK_NETFILTER};
use nix::libc;
use tokio::time::timeout;

/// How long the kernel may take to answer: a lost answer must hold up nothing.
const DEADLINE: Duration = Duration::from_secs(5);

/// The expressions of a rule.
pub(super) type Rule = Vec<ListAttribute<ExpressionAttribute>>;

/// A chain for source NAT, of a table of family `inet`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chain {
    pub(super) table: &'static str,
    pub(super) name: &'static str,
}

/// What is where a chain is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    /// A chain by this name that packets come through elsewhere, or not at all.
    Other,
    Rules(Vec<Rule>),
}

impl Chain {
    pub(super) async fn look(self) -> io::Result<Found> {
        let get = NfTablesMessage::GetChain(ChainMessage { attributes: self.names() });
        let chain = match exchange(vec![message(get, NLM_F_REQUEST)]).await {
            Ok(answers) => {
                answers.into_iter().find_map(|answer| if let NfTablesMessage::NewChain(chain) = answer { Some(chain) } else { None })
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(Found::Nothing),
            Err(error) => return Err(error),
        };
        let Some(chain) = chain else { return Ok(Found::Nothing) };
        if !self.base().iter().all(|wanted| chain.attributes.contains(wanted)) {
            return Ok(Found::Other);
        }
        let list = NfTablesMessage::GetRule(RuleMessage { attributes: self.of_rule() });
        let answers = exchange(vec![message(list, NLM_F_REQUEST | NLM_F_DUMP)]).await?;
        let rules = answers.into_iter().filter_map(|answer| match answer {
            NfTablesMessage::NewRule(rule) if self.of_rule().iter().all(|name| rule.attributes.contains(name)) => rule
                .attributes
                .into_iter()
                .find_map(|attribute| if let RuleAttribute::Expressions(rule) = attribute { Some(rule) } else { None }),
            _ => None,
        });
        Ok(Found::Rules(rules.collect()))
    }

    /// Puts `rules` in place of what is there; packets see the one or the other.
    pub(super) async fn replace(self, found: &Found, rules: &[Rule]) -> io::Result<()> {
        let flush = || NfTablesMessage::DeleteRule(RuleMessage { attributes: self.of_rule() });
        let mut changes = vec![(NfTablesMessage::NewTable(self.table_message()), NLM_F_CREATE)];
        if *found == Found::Other {
            changes.push((flush(), 0));
            changes.push((NfTablesMessage::DeleteChain(ChainMessage { attributes: self.names() }), 0));
        }
        let attributes = [self.names(), self.base().into()].concat();
        changes.push((NfTablesMessage::NewChain(ChainMessage { attributes }), NLM_F_CREATE));
        changes.push((flush(), 0));
        changes.extend(rules.iter().map(|rule| {
            let attributes = [self.of_rule(), vec![RuleAttribute::Expressions(rule.clone())]].concat();
            (NfTablesMessage::NewRule(RuleMessage { attributes }), NLM_F_CREATE | NLM_F_APPEND)
        }));
        transact(changes).await
    }

    /// Removes the whole table; whether there was one.
    pub(super) async fn remove_table(self) -> io::Result<bool> {
        match transact(vec![(NfTablesMessage::DeleteTable(self.table_message()), 0)]).await {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn table_message(self) -> TableMessage {
        TableMessage { attributes: vec![TableAttribute::Name(self.table.to_owned())] }
    }

    fn names(self) -> Vec<ChainAttribute> {
        vec![ChainAttribute::Table(self.table.to_owned()), ChainAttribute::Name(self.name.to_owned())]
    }

    /// Where packets come through: behind routing, where sources are translated (`NF_IP_PRI_NAT_SRC`).
    fn base(self) -> [ChainAttribute; 2] {
        let hook = vec![Hook::Number(InetHookNumber::PostRouting.into()), Hook::Priority(100)];
        [ChainAttribute::Hook(hook), ChainAttribute::Type("nat".to_owned())]
    }

    fn of_rule(self) -> Vec<RuleAttribute> {
        vec![RuleAttribute::Table(self.table.to_owned()), RuleAttribute::Chain(self.name.to_owned())]
    }
}

fn message(inner: NfTablesMessage, flags: u16) -> NetlinkMessage<NetfilterMessage> {
    let mut message = NetlinkMessage::from(NetfilterMessage::new(NetfilterHeader::new(NetfilterProtoFamily::Inet, 0, 0), inner));
    message.header.flags = flags;
    message
}

/// All changes or none.
async fn transact(changes: Vec<(NfTablesMessage, u16)>) -> io::Result<()> {
    let control = |inner: ControlMessage| {
        let header = NetfilterHeader::new(NetfilterProtoFamily::Unspec, 0, u16::try_from(libc::NFNL_SUBSYS_NFTABLES).unwrap_or_default());
        let mut message = NetlinkMessage::from(NetfilterMessage::new(header, inner));
        message.header.flags = NLM_F_REQUEST;
        message
    };
    let last = changes.len().saturating_sub(1);
    let mut batch = vec![control(ControlMessage::BatchBegin)];
    batch.extend(changes.into_iter().enumerate().map(|(index, (change, flags))| {
        // The answer to the last one says that all were taken; the first that is refused is answered anyway.
        let ack = if index == last { NLM_F_ACK } else { 0 };
        message(change, NLM_F_REQUEST | ack | flags)
    }));
    batch.push(control(ControlMessage::BatchEnd));
    exchange(batch).await.map(drop)
}

/// Sends messages in one go, on a socket of their own, and gathers the answers: up to the first error, an acknowledgement, the end of a
/// dump, or the only message of an answer that is none.
async fn exchange(messages: Vec<NetlinkMessage<NetfilterMessage>>) -> io::Result<Vec<NfTablesMessage>> {
    let is_single = matches!(&messages[..], [only] if only.header.flags & (NLM_F_DUMP | NLM_F_ACK) == 0);
    let mut bytes = Vec::new();
    for (number, mut message) in messages.into_iter().enumerate() {
        message.header.sequence_number = u32::try_from(number).unwrap_or_default();
        message.finalize();
        let begin = bytes.len();
        bytes.resize(begin + message.buffer_len(), 0);
        message.serialize(&mut bytes[begin..]);
    }
    let mut socket = TokioSocket::new(NETLINK_NETFILTER)?;
    socket.socket_mut().bind_auto()?;
    socket.socket_mut().connect(&SocketAddr::new(0, 0))?;
    socket.send(&bytes).await?;
    timeout(DEADLINE, answers(&socket, is_single)).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

async fn answers(socket: &TokioSocket, is_single: bool) -> io::Result<Vec<NfTablesMessage>> {
    let mut all = Vec::new();
    loop {
        let (datagram, _) = socket.recv_from_full().await?;
        let mut rest = &datagram[..];
        while let Ok(buffer) = NetlinkBuffer::new_checked(rest) {
            let length = usize::try_from(buffer.length()).unwrap_or(usize::MAX).next_multiple_of(4);
            let message = NetlinkMessage::<NetfilterMessage>::deserialize(rest).map_err(io::Error::other)?;
            match message.payload {
                NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
                NetlinkPayload::Error(_) | NetlinkPayload::Done(_) => return Ok(all),
                NetlinkPayload::InnerMessage(NetfilterMessage { inner: NetfilterMessageInner::NfTables(inner), .. }) => all.push(inner),
                _ => {}
            }
            rest = rest.get(length..).unwrap_or_default();
        }
        if is_single && !all.is_empty() {
            return Ok(all);
        }
    }
}
