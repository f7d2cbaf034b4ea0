//! One nftables chain in the kernel, over netlink (`linux/netfilter/nf_tables.h`): reads it, and replaces it
//! in one transaction. Must not know what its rules mean.

use std::io;

use netlink_packet_core::{NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REQUEST, NetlinkMessage};
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

/// The expressions of a rule.
pub type Rule = Vec<ListAttribute<ExpressionAttribute>>;

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
    /// Where destinations of this host's own packets are translated.
    Output,
    /// Where packets that are not of this host, nor for it, are let through or not.
    Forward,
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
        let chain = match exchange(vec![message(get, NLM_F_REQUEST)]).await {
            Ok(answers) => answers.into_iter().find_map(|answer| {
                if let NfTablesMessage::NewChain(chain) = answer { Some(chain) } else { None }
            }),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(Found::Nothing),
            Err(error) => return Err(error),
        };
        let Some(chain) = chain else { return Ok(Found::Nothing) };
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
        let flush = || NfTablesMessage::DeleteRule(RuleMessage { attributes: self.of_rule() });
        let mut changes = vec![(NfTablesMessage::NewTable(self.table_message()), NLM_F_CREATE)];
        // The hook of a chain cannot be changed: the chain has to go, and its rules before it.
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

    /// Removes the whole table, and returns whether there was one.
    ///
    /// # Errors
    /// The table is still there, or the kernel has no nftables.
    pub async fn remove_table(self) -> io::Result<bool> {
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

    /// Hook, priority and type.
    fn base(self) -> [ChainAttribute; 2] {
        // `NF_IP_PRI_NAT_SRC`, `NF_IP_PRI_NAT_DST` and `NF_IP_PRI_FILTER`.
        let (number, priority, kind) = match self.task {
            Task::SourceNat => (InetHookNumber::PostRouting, 100, "nat"),
            Task::Output => (InetHookNumber::LocalOut, (-100_i32).cast_unsigned(), "nat"),
            Task::Forward => (InetHookNumber::Forward, 0, "filter"),
        };
        let hook = vec![Hook::Number(number.into()), Hook::Priority(priority)];
        [ChainAttribute::Hook(hook), ChainAttribute::Type(kind.to_owned())]
    }

    fn of_rule(self) -> Vec<RuleAttribute> {
        vec![RuleAttribute::Table(self.table.to_owned()), RuleAttribute::Chain(self.name.to_owned())]
    }
}

fn message(inner: NfTablesMessage, flags: u16) -> NetlinkMessage<NetfilterMessage> {
    let mut message = NetlinkMessage::from(NetfilterMessage::new(
        NetfilterHeader::new(NetfilterProtoFamily::Inet, 0, 0),
        inner,
    ));
    message.header.flags = flags;
    message
}

/// Makes all changes or none.
async fn transact(changes: Vec<(NfTablesMessage, u16)>) -> io::Result<()> {
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
    batch.extend(changes.into_iter().enumerate().map(|(index, (change, flags))| {
        // An acknowledgement of the last change shows that all were accepted. The first refusal is answered
        // without being asked for.
        let ack = if index == last { NLM_F_ACK } else { 0 };
        message(change, NLM_F_REQUEST | ack | flags)
    }));
    batch.push(control(ControlMessage::BatchEnd));
    exchange(batch).await.map(drop)
}

/// Sends nftables messages together, and returns the answers.
async fn exchange(messages: Vec<NetlinkMessage<NetfilterMessage>>) -> io::Result<Vec<NfTablesMessage>> {
    let pick = |answer: NetfilterMessage| {
        if let NetfilterMessageInner::NfTables(inner) = answer.inner { Some(inner) } else { None }
    };
    batch::exchange(NETLINK_NETFILTER, messages, pick).await
}
