//! An ACL of a switch or of a port group. Columns follow ovn-nb(5), "ACL TABLE".

use contract::{
    namespace_annotation::Severity,
    ovn::{self, LONGEST_ACL_NAME, ObjectId},
};
use ovsdb::Datum;

use crate::rows::{DesiredRow, Membership, RowName, Table, Value};

pub mod spelling;

/// The priority of what NetworkPolicies allow, as upstream's.
pub(crate) const ALLOW: i64 = 1001;

/// An ACL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acl {
    pub id: ObjectId,
    /// The switch or port group.
    pub of: RowName,
    pub direction: Direction,
    pub tier: Tier,
    /// Within a tier, the matching ACL with the highest priority decides.
    pub priority: i64,
    /// In OVN's expression language, ovn-sb(5) "Logical_Flow TABLE".
    pub matching: String,
    pub action: Action,
    /// None: it has no name, and whether it is logged is the administrator's.
    pub log: Option<Log>,
    /// Rows that the match names.
    pub needs: Vec<RowName>,
}

/// How an ACL is logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// Its name in log lines.
    pub name: String,
    /// None: it is not logged.
    pub severity: Option<Severity>,
    /// The name of the meter that limits its lines.
    pub meter: &'static str,
}

/// Which packets an ACL sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Packets on their way to a port.
    ToPort,
    /// Packets that come from a port, with the addresses that load balancers have given them.
    FromPort,
    /// Packets that come from a port, with the addresses to which they were sent.
    FromPortAsSent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The packets pass.
    Allow,
    /// The packets pass, and so do the replies.
    AllowRelated,
    /// The packets pass, and their connections are not tracked.
    AllowStateless,
    Drop,
    /// The next tier decides. Only where the database takes the word ([`Tiers`]).
    Pass,
}

/// A tier of ACLs. The first tier that decides is the last one that is asked. A database without
/// tiers has one, where the priorities alone decide (`kinds/cluster_policy/rows.rs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// Without ACLs of policies.
    First,
    /// Of administrators, before the network policies of namespaces.
    Admin,
    NetworkPolicy,
    /// Behind the network policies.
    Baseline,
}

impl Tier {
    /// As the column `tier` has it.
    pub fn number(self) -> i64 {
        match self {
            Self::First => 0,
            Self::Admin => 1,
            Self::NetworkPolicy => 2,
            Self::Baseline => 3,
        }
    }
}

/// The columns of a row with all that it may have.
const COLUMNS: usize = 11;

impl From<Acl> for DesiredRow {
    fn from(acl: Acl) -> Self {
        let Acl { id, of, direction, tier, priority, matching, action, log, needs } = acl;
        let options = match direction {
            Direction::ToPort | Direction::FromPortAsSent => None,
            Direction::FromPort => Some([("apply-after-lb", "true".to_owned())]),
        };
        let direction = match direction {
            Direction::ToPort => "to-lport",
            Direction::FromPort | Direction::FromPortAsSent => "from-lport",
        };
        let action = match action {
            Action::Allow => "allow",
            Action::AllowRelated => "allow-related",
            Action::AllowStateless => "allow-stateless",
            Action::Drop => "drop",
            Action::Pass => "pass",
        };
        let tier = tier.number();
        let meter = log.as_ref().map_or(ovn::ACL_METER, |log| log.meter);
        let mut columns = Vec::with_capacity(COLUMNS);
        columns.extend([
            ("direction", Value::Datum(Datum::set([direction]))),
            ("priority", Value::Datum(Datum::set([priority]))),
            ("match", Value::Match(matching)),
            ("action", Value::Datum(Datum::set([action]))),
            ("tier", Value::Datum(Datum::set([tier]))),
            // Limits log lines. Has no effect until the ACL's `log` is set.
            ("meter", Value::Datum(Datum::set([meter]))),
            ("external_ids", Value::pairs(id.external_ids())),
        ]);
        columns.extend(options.map(|options| ("options", Value::pairs(options))));
        let mut or_columns = Vec::new();
        if let Some(Log { name, severity, meter: _ }) = log {
            let of_name = |name: String| ("name", Value::Datum(Datum::set([name])));
            let (short, place) = (short_name(&name), columns.len());
            let text = severity.map(Severity::as_str);
            columns.push(of_name(short.clone()));
            columns.push(("log", Value::Datum(Datum::set([severity.is_some()]))));
            columns.push(("severity", Value::Datum(Datum::set(text))));
            if short != name {
                // Upstream's. Names of objects are ASCII, so that any byte ends a character.
                or_columns.clone_from(&columns);
                or_columns[place] = of_name(name.chars().take(LONGEST_ACL_NAME).collect());
            }
        }
        Self {
            id: Table::Acl.row(id.to_string()),
            columns,
            member_of: vec![Membership::of(of, "acls")],
            or_member_of: Vec::new(),
            or_columns,
            needs,
        }
    }
}

/// Between what is left of a name and the hash of the whole. No name of an object has it.
const CUT: char = '~';

/// A name of an ACL as the database takes it. Of one that is too long, direction and rule stay, and
/// a hash tells apart objects that begin alike: `NP:shop:a-policy-wh~a6124…:Ingress:0`.
fn short_name(name: &str) -> String {
    if name.len() <= LONGEST_ACL_NAME {
        return name.to_owned();
    }
    // `NP:NAMESPACE:POLICY:DIRECTION:RULE`, `NP:NAMESPACE:DIRECTION`, `EF:NAMESPACE:RULE`
    let parts = name.matches(':').count() / 2;
    let end =
        name.rmatch_indices(':').nth(parts.saturating_sub(1)).map_or(name.len(), |(at, _)| at);
    let tail = format!("{CUT}{}{}", ovn::hash(name), &name[end..]);
    let room = LONGEST_ACL_NAME.saturating_sub(tail.len());
    let head: String = name.chars().take(room).collect();
    format!("{head}{tail}")
}

/// Whether the ACLs of the database have tiers. Without them no ACL can leave a connection to
/// NetworkPolicies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tiers {
    Absent,
    /// All rows may be another program's still, which are not to be changed.
    #[default]
    Present,
    /// Every one is asked about connections that a policy has stopped (`kinds/cluster/tiers.rs`).
    Asked,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two policies with the first letters in common were one in the log, without direction and
    /// rule.
    #[test]
    fn a_name_that_is_too_long_still_says_direction_and_rule_and_is_no_others() {
        let namespace = "n".repeat(63);
        let name =
            |end: &str| short_name(&format!("NP:{namespace}:{}{end}:Egress:4095", "p".repeat(240)));
        let (one, other) = (name("a"), name("b"));
        assert_ne!(one, other);
        for (name, end) in [
            (one, ":Egress:4095"),
            (other, ":Egress:4095"),
            (short_name(&format!("NP:{namespace}:Ingress")), ":Ingress"),
            (short_name(&format!("EF:{namespace}:17")), ":17"),
        ] {
            assert!(name.starts_with("NP:nnn") || name.starts_with("EF:nnn"), "{name}");
            assert!(name.ends_with(end) && name.len() <= LONGEST_ACL_NAME, "{name}");
        }
        assert_eq!(short_name("NP:shop:db:Ingress:0"), "NP:shop:db:Ingress:0");
    }

    #[test]
    fn an_acl_whose_name_upstream_has_cut_off_stays() {
        let row = DesiredRow::from(Acl {
            id: ObjectId::isolated("n", "Ingress"),
            of: Table::PortGroup.row("a1"),
            direction: Direction::ToPort,
            tier: Tier::NetworkPolicy,
            priority: 1000,
            matching: "ip4".to_owned(),
            action: Action::Drop,
            log: Some(Log {
                name: format!("NP:{}:Ingress", "n".repeat(63)),
                severity: None,
                meter: ovn::ACL_METER,
            }),
            needs: Vec::new(),
        });
        let of = |columns: &[(&'static str, Value)]| {
            columns.iter().map(|(name, _)| *name).collect::<Vec<_>>()
        };
        assert_eq!(of(&row.columns), of(&row.or_columns), "all others have to be right");
        let cut = Value::Datum(Datum::set([format!("NP:{}", "n".repeat(60))]));
        assert!(row.or_columns.contains(&("name", cut)), "{:?}", row.or_columns);
    }
}
