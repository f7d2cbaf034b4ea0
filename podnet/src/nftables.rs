//! Chains and sets of nftables in the kernel, over netlink (`linux/netfilter/nf_tables.h`): reads
//! them, and changes them in transactions. Must not know what rules and elements mean. The drop of
//! `ingress` alone has a meaning.

use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REQUEST, NetlinkMessage,
};
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily,
    nftables::{
        ChainAttribute, ChainMessage, ExpressionAttribute, Hook, InetHookNumber, ListAttribute,
        NfTablesMessage, RuleAttribute, RuleMessage, TableAttribute, TableMessage,
    },
    none::ControlMessage,
};
use netlink_sys::protocols::NETLINK_NETFILTER;
use nix::libc;

use crate::netlink::batch;

pub mod closed;
pub mod ingress;
mod set;

pub use set::{Content, Correction, Elements, FoundSet, Kind, Set};

/// The expressions of a rule.
pub type Rule = Vec<ListAttribute<ExpressionAttribute>>;

/// A change of a transaction, with its flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change(NfTablesMessage, u16);

/// A base chain in a table of family `inet`.
#[derive(Debug, Clone, Copy)]
pub struct Chain {
    pub table: &'static str,
    pub name: &'static str,
    pub task: Task,
}

/// What a base chain is for: its type, hook and priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// After routing, where sources are translated.
    SourceNat,
    /// The same, earlier.
    EarlySourceNat,
    /// The same, between these two.
    ForwardedSourceNat,
    /// Where destinations of packets from outside are translated, after other programs that do so:
    /// the first one that translates a connection is the only one.
    LatePrerouting,
    /// Where destinations of this host's own packets are translated, after other programs that do
    /// so.
    LateOutput,
    /// Where packets that are not of this host, nor for it, are let through or not.
    Forward,
    /// Where packets for this host are let through or not.
    Input,
}

/// What exists under the name of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    Nothing,
    /// A chain with another hook, priority or type, or without any.
    Other,
    /// The chain, with its rules in order.
    Rules(Vec<Rule>),
}

impl Chain {
    /// Reads what exists now. Needs a tokio runtime.
    ///
    /// # Errors
    /// The kernel refuses, or has no nftables.
    pub async fn look(self) -> io::Result<Found> {
        let get = NfTablesMessage::GetChain(ChainMessage { attributes: self.names() });
        let pick =
            |answer| if let NfTablesMessage::NewChain(chain) = answer { Some(chain) } else { None };
        let Some(chain) = find(get, pick).await? else { return Ok(Found::Nothing) };
        if !self.base().iter().all(|wanted| chain.attributes.contains(wanted)) {
            return Ok(Found::Other);
        }
        // The answers are checked for table and chain below: the list may have rules of others.
        let list = NfTablesMessage::GetRule(RuleMessage { attributes: self.of_rule() });
        let answers = exchange(vec![message(list, NLM_F_REQUEST | NLM_F_DUMP)]).await?;
        let rules = answers.into_iter().filter_map(|answer| match answer {
            NfTablesMessage::NewRule(rule)
                if self.of_rule().iter().all(|name| rule.attributes.contains(name)) =>
            {
                rule.attributes.into_iter().find_map(|attribute| {
                    if let RuleAttribute::Expressions(rule) = attribute { Some(rule) } else { None }
                })
            }
            _ => None,
        });
        Ok(Found::Rules(rules.collect()))
    }

    /// Replaces what exists with `rules`. Packets see the old rules or the new ones.
    ///
    /// # Errors
    /// The kernel has refused, and changed nothing.
    pub async fn replace(self, found: &Found, rules: &[Rule]) -> io::Result<()> {
        let table = [create_table(self.table)];
        commit(table.into_iter().chain(self.replacement(found, rules)).collect()).await
    }

    /// The changes that replace what exists with `rules`. The table has to be there before.
    pub fn replacement(self, found: &Found, rules: &[Rule]) -> Vec<Change> {
        // The hook of a chain cannot be changed: the chain has to go, and its rules before it.
        let mut changes = if *found == Found::Other { self.removal(found) } else { Vec::new() };
        let attributes = [self.names(), self.base().into()].concat();
        changes.push(Change(NfTablesMessage::NewChain(ChainMessage { attributes }), NLM_F_CREATE));
        changes.push(self.flush());
        changes.extend(rules.iter().map(|rule| {
            let attributes =
                [self.of_rule(), vec![RuleAttribute::Expressions(rule.clone())]].concat();
            Change(
                NfTablesMessage::NewRule(RuleMessage { attributes }),
                NLM_F_CREATE | NLM_F_APPEND,
            )
        }));
        changes
    }

    /// The changes that remove the chain, if it was found.
    pub fn removal(self, found: &Found) -> Vec<Change> {
        if *found == Found::Nothing {
            return Vec::new();
        }
        let delete = NfTablesMessage::DeleteChain(ChainMessage { attributes: self.names() });
        vec![self.flush(), Change(delete, 0)]
    }

    /// The change that removes all rules of the chain.
    pub fn flush(self) -> Change {
        Change(NfTablesMessage::DeleteRule(RuleMessage { attributes: self.of_rule() }), 0)
    }

    /// Removes the whole table, and returns whether there was one.
    ///
    /// # Errors
    /// The table is still there, or the kernel has no nftables.
    pub async fn remove_table(self) -> io::Result<bool> {
        let attributes = vec![TableAttribute::Name(self.table.to_owned())];
        match commit(vec![Change(NfTablesMessage::DeleteTable(TableMessage { attributes }), 0)])
            .await
        {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn names(self) -> Vec<ChainAttribute> {
        vec![
            ChainAttribute::Table(self.table.to_owned()),
            ChainAttribute::Name(self.name.to_owned()),
        ]
    }

    /// Hook, priority and type.
    fn base(self) -> [ChainAttribute; 2] {
        // `NF_IP_PRI_NAT_SRC` (100), `NF_IP_PRI_NAT_DST` (-100) and `NF_IP_PRI_FILTER` (0).
        let (number, priority, kind) = match self.task {
            Task::SourceNat => (InetHookNumber::PostRouting, 100, "nat"),
            Task::EarlySourceNat => (InetHookNumber::PostRouting, 95, "nat"),
            Task::ForwardedSourceNat => (InetHookNumber::PostRouting, 96, "nat"),
            Task::LatePrerouting => (InetHookNumber::PreRouting, (-95_i32).cast_unsigned(), "nat"),
            Task::LateOutput => (InetHookNumber::LocalOut, (-95_i32).cast_unsigned(), "nat"),
            Task::Forward => (InetHookNumber::Forward, 0, "filter"),
            Task::Input => (InetHookNumber::LocalIn, 0, "filter"),
        };
        let hook = vec![Hook::Number(number.into()), Hook::Priority(priority)];
        [ChainAttribute::Hook(hook), ChainAttribute::Type(kind.to_owned())]
    }

    fn of_rule(self) -> Vec<RuleAttribute> {
        vec![
            RuleAttribute::Table(self.table.to_owned()),
            RuleAttribute::Chain(self.name.to_owned()),
        ]
    }
}

fn message(inner: NfTablesMessage, flags: u16) -> NetlinkMessage<NetfilterMessage> {
    message_of(NetfilterProtoFamily::Inet, inner, flags)
}

fn message_of(
    family: NetfilterProtoFamily,
    inner: NfTablesMessage,
    flags: u16,
) -> NetlinkMessage<NetfilterMessage> {
    let header = NetfilterHeader::new(family, 0, 0);
    let mut message = NetlinkMessage::from(NetfilterMessage::new(header, inner));
    message.header.flags = flags;
    message
}

/// Whether this is the error of a kernel without nftables.
pub fn has_no_nftables(error: &io::Error) -> bool {
    let absent = [libc::EPROTONOSUPPORT, libc::EOPNOTSUPP, libc::EAFNOSUPPORT];
    error.raw_os_error().is_some_and(|number| absent.contains(&number))
}

/// The change that makes a table, if it does not exist.
pub fn create_table(name: &str) -> Change {
    let attributes = vec![TableAttribute::Name(name.to_owned())];
    Change(NfTablesMessage::NewTable(TableMessage { attributes }), NLM_F_CREATE)
}

/// Makes all changes or none. Needs a tokio runtime.
///
/// # Errors
/// The kernel has refused one, and changed nothing; `EMSGSIZE` if they are more than the socket
/// takes, some 150 KiB.
pub async fn commit(changes: Vec<Change>) -> io::Result<()> {
    commit_of(NetfilterProtoFamily::Inet, changes).await
}

async fn commit_of(family: NetfilterProtoFamily, changes: Vec<Change>) -> io::Result<()> {
    let control = |inner: ControlMessage| {
        let header = NetfilterHeader::new(
            NetfilterProtoFamily::Unspec,
            0,
            u16::try_from(libc::NFNL_SUBSYS_NFTABLES).unwrap_or_default(),
        );
        let mut message = NetlinkMessage::from(NetfilterMessage::new(header, inner));
        message.header.flags = NLM_F_REQUEST;
        message
    };
    let last = changes.len().saturating_sub(1);
    let mut batch = vec![control(ControlMessage::BatchBegin)];
    batch.extend(changes.into_iter().enumerate().map(|(index, Change(change, flags))| {
        // An acknowledgement of the last change shows that all were accepted. The first refusal is
        // answered without being asked for.
        let ack = if index == last { NLM_F_ACK } else { 0 };
        message_of(family, change, NLM_F_REQUEST | ack | flags)
    }));
    batch.push(control(ControlMessage::BatchEnd));
    exchange(batch).await.map(drop)
}

/// Asks for one thing by its name. None if there is no such thing.
async fn find<T>(
    get: NfTablesMessage,
    pick: impl FnMut(NfTablesMessage) -> Option<T>,
) -> io::Result<Option<T>> {
    match exchange(vec![message(get, NLM_F_REQUEST)]).await {
        Ok(answers) => Ok(answers.into_iter().find_map(pick)),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Sends nftables messages together, and returns the answers.
async fn exchange(
    messages: Vec<NetlinkMessage<NetfilterMessage>>,
) -> io::Result<Vec<NfTablesMessage>> {
    let pick = |answer: NetfilterMessage| {
        if let NetfilterMessageInner::NfTables(inner) = answer.inner { Some(inner) } else { None }
    };
    batch::exchange(NETLINK_NETFILTER, messages, pick).await
}
