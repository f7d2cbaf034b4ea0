//! `ovnkube hand-back`: removes from the northbound database what upstream's control plane, which
//! is to run again, neither knows nor removes: rows of [`OWN_KINDS`].
//!
//! In one transaction. A set or group that a rule of another kind still names stays: without it OVN
//! would drop that rule. A control plane of this program puts all of it back.

use std::{collections::BTreeSet, process::ExitCode};

use contract::ovn::{OWN_KINDS, OWNER_TYPE};
use ovsdb::{
    Condition, Connection, Datum, Mutation, Outcome, SelectedRow, Selection, Transaction, Uuid,
    Where,
};

use crate::{
    findings::{self, Finding, Format, Report, State},
    ovn_query::answer,
    status::{
        StatusConfig,
        databases::{NORTHBOUND, connect},
    },
};

const KIND: &str = "HandBack";
const ACL: &str = "ACL";
/// What an ACL may name, and how a match names it.
const NAMED: [(&str, char); 2] = [("Port_Group", '@'), ("Address_Set", '$')];

/// How it is done.
#[derive(Debug, Clone)]
pub struct HandBackQuestion {
    /// Only said, and not done.
    pub is_dry: bool,
    pub format: Format,
}

/// Removes the rows, and prints what that was.
pub fn run(config: &StatusConfig, question: &HandBackQuestion) -> ExitCode {
    findings::run(report(config, question), question.format)
}

async fn report(config: &StatusConfig, question: &HandBackQuestion) -> Report {
    let done = match connect(&config.northbound, NORTHBOUND).await {
        Ok(north) => hand_back(&north, question.is_dry).await,
        Err(why) => Err(why),
    };
    let findings = done.unwrap_or_else(|why| {
        vec![
            Finding::new(NORTHBOUND, "rows", State::Unknown, &why)
                .next("--nb-address, or run it where the database is"),
        ]
    });
    Report::new(KIND, findings)
}

async fn hand_back(north: &Connection, is_dry: bool) -> Result<Vec<Finding>, String> {
    let rows = OwnRows::read(north).await?;
    if !is_dry && !rows.is_empty() {
        answer(north.transact(rows.removal())).await?;
    }
    Ok(rows.findings(is_dry))
}

/// What is removed.
#[derive(Debug, Default)]
struct OwnRows {
    /// The ACLs, with their kinds.
    acls: Vec<(Uuid, String)>,
    /// Groups of others that hold some of them.
    holders: Vec<Uuid>,
    /// Groups and sets: their table, kind and row.
    named: Vec<(&'static str, String, Uuid)>,
    /// Names of those that stay, because rules of others name them.
    kept: Vec<String>,
}

impl OwnRows {
    async fn read(north: &Connection) -> Result<Self, String> {
        let mut query = Transaction::new();
        let acls = query.select(ACL, Where::all(), &["match", "external_ids"]);
        let named = NAMED.map(|(table, sigil)| {
            let columns: &[&str] = match table {
                "Port_Group" => &["name", "external_ids", "acls"],
                _ => &["name", "external_ids"],
            };
            (table, sigil, query.select(table, Where::all(), columns))
        });
        let outcome = answer(north.transact(query)).await?;
        Ok(Self::of(&outcome, acls, named))
    }

    fn of(outcome: &Outcome, acls: Selection, named: [(&'static str, char, Selection); 2]) -> Self {
        let mut own = Self::default();
        // What rules of others name, each with its sigil.
        let mut in_use = BTreeSet::new();
        for row in outcome.rows(acls) {
            match kind(row) {
                Some(kind) => own.acls.push((row.uuid(), kind)),
                None => in_use.extend(names(row.string("match").unwrap_or_default())),
            }
        }
        let removed: BTreeSet<Uuid> = own.acls.iter().map(|(uuid, _)| *uuid).collect();
        for (table, sigil, selection) in named {
            for row in outcome.rows(selection) {
                let name = format!("{sigil}{}", row.string("name").unwrap_or_default());
                let holds = || row.uuids("acls").iter().any(|acl| removed.contains(acl));
                match kind(row) {
                    Some(kind) if !in_use.contains(name.as_str()) => {
                        own.named.push((table, kind, row.uuid()));
                    }
                    Some(_) => own.kept.push(name),
                    None if holds() => own.holders.push(row.uuid()),
                    None => {}
                }
            }
        }
        own
    }

    fn is_empty(&self) -> bool {
        self.acls.is_empty() && self.named.is_empty()
    }

    /// An ACL that no group has is gone.
    fn removal(&self) -> Transaction {
        let mut removal = Transaction::new();
        let acls: Vec<Uuid> = self.acls.iter().map(|(uuid, _)| *uuid).collect();
        for holder in &self.holders {
            let without = Mutation::delete("acls", Datum::set(acls.clone()));
            removal.mutate("Port_Group", Condition::uuid(*holder), vec![without]);
        }
        for (table, _, uuid) in &self.named {
            removal.delete(table, Condition::uuid(*uuid));
        }
        removal.comment("ovnkube hand-back");
        removal
    }

    fn findings(&self, is_dry: bool) -> Vec<Finding> {
        let done = if is_dry { "would be removed" } else { "removed" };
        let mut findings = Vec::new();
        for kind in OWN_KINDS {
            let acls = self.acls.iter().filter(|(_, of)| of == kind).count();
            let of_table = |table: &str| {
                self.named.iter().filter(|(own, of, _)| *own == table && of == kind).count()
            };
            let counts = [("ACL", acls)].into_iter();
            let counts = counts.chain(NAMED.map(|(table, _)| (table, of_table(table))));
            let parts: Vec<String> = counts
                .filter(|(_, count)| *count > 0)
                .map(|(table, count)| format!("{count} of {table}"))
                .collect();
            if !parts.is_empty() {
                let said = format!("{done}: {}", parts.join(", "));
                findings.push(Finding::new(NORTHBOUND, kind, State::Ok, &said));
            }
        }
        findings.extend(self.kept.iter().map(|name| {
            let why = "stays: a rule of another kind names it";
            let next = "run it again once upstream's control plane is ready";
            Finding::new(NORTHBOUND, name, State::Warning, why).next(next)
        }));
        if findings.is_empty() {
            let none = "there are none of this program alone";
            findings.push(Finding::new(NORTHBOUND, "rows", State::Ok, none));
        }
        findings
    }
}

/// The row's kind, if it is one of [`OWN_KINDS`].
fn kind(row: &SelectedRow) -> Option<String> {
    let kind = row.map("external_ids").remove(OWNER_TYPE)?;
    OWN_KINDS.contains(&kind.as_str()).then_some(kind)
}

/// The groups and sets that a match names, each with its sigil.
fn names(matching: &str) -> impl Iterator<Item = String> {
    let words = matching.split(|c: char| !(c.is_alphanumeric() || "@$_.".contains(c)));
    words.filter(|word| word.starts_with(['@', '$'])).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_in_a_match_are_found() {
        let matching = "outport == @a123 && (ip4.src == {$a45, $a67_v4} || ip6.src==$b) && tcp";
        assert_eq!(names(matching).collect::<Vec<_>>(), ["@a123", "$a45", "$a67_v4", "$b"]);
    }
}
