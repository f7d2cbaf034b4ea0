//! Base chains of other programs that let through only what they know: their policy, or their last
//! rule, is a drop or a refusal.
//!
//! Reads only. Must not know who made them, nor what for. What iptables-legacy has is not in
//! nftables.

use std::{collections::BTreeMap, io};

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST};
use netlink_packet_netfilter::{
    NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily,
    nftables::{
        ChainAttribute, ChainMessage, Cmp, DataAttribute, ExpressionAttribute, Expressions, Hook,
        HookNumber, Immediate, InetHookNumber, ListAttribute, Meta, MetaKey, NfTablesMessage,
        RuleAttribute, RuleMessage, Verdict, VerdictAttribute,
    },
};
use netlink_sys::protocols::NETLINK_NETFILTER;

use super::{Rule, message_of};
use crate::netlink::batch;

/// The families of IP packets.
const FAMILIES: [NetfilterProtoFamily; 3] =
    [NetfilterProtoFamily::Inet, NetfilterProtoFamily::IPv4, NetfilterProtoFamily::IPv6];
/// `NF_DROP`
const DROP: u32 = 0;
/// A shorter beginning of a name would be found in other values, too.
const SHORTEST_PATTERN: usize = 3;

/// Where a chain looks at packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum At {
    Input,
    Forward,
}

/// A chain that lets through only what it knows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Closed {
    pub table: String,
    pub chain: String,
    pub at: At,
}

/// The closed chains whose tables have no rule about this interface. Needs a tokio runtime.
///
/// # Errors
/// The kernel refuses, has no nftables, or shows rules that cannot be read.
pub async fn closed_to(interface: &str) -> io::Result<Vec<Closed>> {
    let mut all = Vec::new();
    for family in FAMILIES {
        let chains = chains(family).await?;
        if chains.is_empty() {
            continue;
        }
        // By table, and within it by chain, in order.
        let mut rules: BTreeMap<String, Vec<(String, Rule)>> = BTreeMap::new();
        for (table, chain, rule) in all_rules(family).await? {
            rules.entry(table).or_default().push((chain, rule));
        }
        all.extend(chains.into_iter().filter_map(|(closed, drops)| {
            let of_table = rules.get(&closed.table).map_or(&[][..], Vec::as_slice);
            let mut of_chain = of_table.iter().filter(|(chain, _)| *chain == closed.chain);
            let is_closed =
                drops || of_chain.next_back().is_some_and(|(_, rule)| refuses_all(rule));
            let is_known = of_table.iter().any(|(_, rule)| is_about(rule, interface));
            (is_closed && !is_known).then_some(closed)
        }));
    }
    Ok(all)
}

/// The filtering base chains at both hooks, and whether their policy is to drop.
async fn chains(family: NetfilterProtoFamily) -> io::Result<Vec<(Closed, bool)>> {
    let get = NfTablesMessage::GetChain(ChainMessage { attributes: Vec::new() });
    dump(family, get, |answer| {
        let NfTablesMessage::NewChain(ChainMessage { attributes }) = answer else { return None };
        let (mut table, mut chain, mut at, mut drops, mut filters) =
            (None, None, None, false, false);
        for attribute in attributes {
            match attribute {
                ChainAttribute::Table(name) => table = Some(name),
                ChainAttribute::Name(name) => chain = Some(name),
                ChainAttribute::Policy(policy) => drops = policy == DROP,
                ChainAttribute::Type(kind) => filters = kind == "filter",
                ChainAttribute::Hook(hooks) => {
                    at = hooks.iter().find_map(|hook| match hook {
                        Hook::Number(HookNumber::Inet(InetHookNumber::LocalIn)) => Some(At::Input),
                        Hook::Number(HookNumber::Inet(InetHookNumber::Forward)) => {
                            Some(At::Forward)
                        }
                        _ => None,
                    });
                }
                _ => {}
            }
        }
        filters.then_some((Closed { table: table?, chain: chain?, at: at? }, drops))
    })
    .await
}

async fn all_rules(family: NetfilterProtoFamily) -> io::Result<Vec<(String, String, Rule)>> {
    let get = NfTablesMessage::GetRule(RuleMessage { attributes: Vec::new() });
    dump(family, get, |answer| {
        let NfTablesMessage::NewRule(RuleMessage { attributes }) = answer else { return None };
        let (mut table, mut chain, mut rule) = (None, None, Rule::new());
        for attribute in attributes {
            match attribute {
                RuleAttribute::Table(name) => table = Some(name),
                RuleAttribute::Chain(name) => chain = Some(name),
                RuleAttribute::Expressions(expressions) => rule = expressions,
                _ => {}
            }
        }
        Some((table?, chain?, rule))
    })
    .await
}

async fn dump<T>(
    family: NetfilterProtoFamily,
    get: NfTablesMessage,
    mut pick: impl FnMut(NfTablesMessage) -> Option<T>,
) -> io::Result<Vec<T>> {
    let asked = vec![message_of(family, get, NLM_F_REQUEST | NLM_F_DUMP)];
    batch::exchange(NETLINK_NETFILTER, asked, |answer: NetfilterMessage| match answer.inner {
        NetfilterMessageInner::NfTables(inner) => pick(inner),
        _ => None,
    })
    .await
}

fn expressions(rule: &Rule) -> impl Iterator<Item = &Expressions> {
    let attributes = rule.iter().flat_map(|element| match element {
        ListAttribute::Element(attributes) => attributes.as_slice(),
        _ => &[],
    });
    attributes.filter_map(|attribute| match attribute {
        ExpressionAttribute::Data(expression) => Some(expression),
        _ => None,
    })
}

/// Whether the rule ends the way of every packet that comes so far. Counters do not matter.
fn refuses_all(rule: &Rule) -> bool {
    let mut verdicts = expressions(rule).filter(|expression| {
        !matches!(expression, Expressions::Other { expression_type, .. } if expression_type == "counter")
    });
    let (Some(only), None) = (verdicts.next(), verdicts.next()) else { return false };
    match only {
        Expressions::Other { expression_type, .. } => expression_type == "reject",
        Expressions::Immediate(attributes) => attributes.iter().any(|attribute| match attribute {
            Immediate::Data(DataAttribute::Verdict(verdict)) => verdict
                .iter()
                .any(|part| matches!(part, VerdictAttribute::Code(Verdict::Other(DROP)))),
            _ => false,
        }),
        _ => false,
    }
}

/// Whether the rule names the interface, or a beginning of its name, or a set of interfaces, which
/// may have it.
fn is_about(rule: &Rule, interface: &str) -> bool {
    let mut name = interface.as_bytes().to_vec();
    name.resize(16, 0);
    let mut asks_for_interface = false;
    expressions(rule).any(|expression| match expression {
        Expressions::Meta(attributes) => {
            let keys = [Meta::Key(MetaKey::Iifname), Meta::Key(MetaKey::Oifname)];
            asks_for_interface = attributes.iter().any(|attribute| keys.contains(attribute));
            false
        }
        Expressions::Cmp(attributes) => attributes.iter().any(|attribute| match attribute {
            Cmp::Data(DataAttribute::Value(value)) => {
                value.len() >= SHORTEST_PATTERN && name.starts_with(value)
            }
            _ => false,
        }),
        Expressions::Lookup(_) => asks_for_interface,
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// In a network namespace of its own: the closed chains with these rules of nft(8).
    fn closed(rules: &'static str) -> Vec<String> {
        let read = std::thread::spawn(move || {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)
                .expect("a network namespace: this test runs as root");
            let status = Command::new("nft").arg(rules).status().expect("nft can be started");
            assert!(status.success(), "{rules}");
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(closed_to("ovn-k8s-mp0")).unwrap()
        });
        let all = read.join().unwrap();
        all.into_iter()
            .map(|Closed { table, chain, at }| format!("{table} {chain} {at:?}"))
            .collect()
    }

    #[test]
    fn a_firewall_that_drops_what_it_does_not_know_is_found_unless_it_knows_the_interface() {
        let docker = "table ip filter {
            chain DOCKER { iifname docker0 accept; }
            chain FORWARD { type filter hook forward priority 0; policy drop; jump DOCKER; }
            chain OUTPUT { type filter hook output priority 0; policy drop; }
        }";
        assert_eq!(closed(docker), ["filter FORWARD Forward"]);
        let firewalld = "table inet firewalld {
            chain filter_INPUT { type filter hook input priority 10; ct state established accept; \
               counter reject with icmpx admin-prohibited; }
            chain filter_FORWARD { type filter hook forward priority 10; ip saddr 192.0.2.1 drop; }
        }";
        assert_eq!(closed(firewalld), ["firewalld filter_INPUT Input"]);
        for known in [
            "iifname \"ovn-k8s-mp0\" accept",
            "oifname \"ovn*\" accept",
            "iifname { eth1, eth2 } accept",
        ] {
            let chain = "chain FORWARD { type filter hook forward priority 0; policy drop";
            let rules = format!("table ip filter {{\n{chain}; {known}; }}\n}}");
            assert_eq!(closed(rules.leak()), [""; 0], "{known}");
        }
        assert_eq!(
            closed(
                "table inet open {\nchain a { type filter hook input priority 0; tcp dport 1 drop; }\n}"
            ),
            [""; 0]
        );
    }
}
