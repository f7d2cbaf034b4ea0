//! An ACL of a switch or of a port group. Columns follow ovn-nb(5), "ACL TABLE".

use contract::{
    namespace_annotation::Severity,
    ovn::{self, LONGEST_ACL_NAME, ObjectId},
};
use ovsdb::Datum;

pub mod spelling;

use super::{DesiredRow, Membership, RowName, Table, Value};

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
    /// The next tier decides. Of OVN 23.09 and later.
    Pass,
}

/// A tier of ACLs. The first tier that decides is the last one that is asked. A database without tiers has
/// one, where the priorities alone decide (`desired/cluster_policy.rs`).
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
        let mut columns = vec![
            ("direction", Value::Datum(Datum::set([direction]))),
            ("priority", Value::Datum(Datum::set([priority]))),
            ("match", Value::Match(matching)),
            ("action", Value::Datum(Datum::set([action]))),
            ("tier", Value::Datum(Datum::set([tier]))),
            // Limits log lines. Has no effect until the ACL's `log` is set.
            ("meter", Value::Datum(Datum::set([ovn::ACL_METER]))),
            ("external_ids", Value::Pairs(id.external_ids().into())),
        ];
        columns.extend(options.map(|options| ("options", Value::Pairs(options.into()))));
        if let Some(Log { name, severity }) = log {
            // Names of objects are ASCII, so that any byte ends a character.
            let name = name.chars().take(LONGEST_ACL_NAME).collect::<String>();
            let text = severity.map(Severity::as_str);
            columns.push(("name", Value::Datum(Datum::set([name]))));
            columns.push(("log", Value::Datum(Datum::set([severity.is_some()]))));
            columns.push(("severity", Value::Datum(Datum::set(text))));
        }
        Self {
            id: Table::Acl.row(id.to_string()),
            columns,
            member_of: vec![Membership::of(of, "acls")],
            or_member_of: Vec::new(),
            or_columns: Vec::new(),
            needs,
        }
    }
}
