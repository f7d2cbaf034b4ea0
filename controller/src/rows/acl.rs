//! A rule of a switch or of a group of ports. Columns follow ovn-nb(5), "ACL TABLE".

use contract::ovn::{self, ObjectId};
use ovsdb::Datum;

use super::{DesiredRow, Membership, RowName, Table, Value};

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acl {
    pub id: ObjectId,
    /// The switch or port group.
    pub of: RowName,
    pub direction: Direction,
    /// Of the rules that match a packet the one with the highest priority counts.
    pub priority: i64,
    /// In OVN's language of expressions, ovn-sb(5) "Logical_Flow TABLE".
    pub matching: String,
    pub action: Action,
}

/// Which packets a rule sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// On their way into a port.
    ToPort,
    /// On their way out of a port.
    FromPort,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// They pass, and so do the answers.
    AllowRelated,
    Drop,
}

/// Rules of namespaces' policies; admins' are in the tiers before, defaults in the one behind.
const TIER: i64 = 2;

impl From<Acl> for DesiredRow {
    fn from(acl: Acl) -> Self {
        let Acl { id, of, direction, priority, matching, action } = acl;
        let direction = match direction {
            Direction::ToPort => "to-lport",
            Direction::FromPort => "from-lport",
        };
        let action = match action {
            Action::AllowRelated => "allow-related",
            Action::Drop => "drop",
        };
        Self {
            id: Table::Acl.row(id.to_string()),
            columns: vec![
                ("direction", Value::Datum(Datum::set([direction]))),
                ("priority", Value::Datum(Datum::set([priority]))),
                ("match", Value::Datum(Datum::set([matching]))),
                ("action", Value::Datum(Datum::set([action]))),
                ("tier", Value::Datum(Datum::set([TIER]))),
                // For the day on which somebody switches the rule's log on.
                ("meter", Value::Datum(Datum::set([ovn::ACL_METER]))),
                ("external_ids", Value::Pairs(id.external_ids().into())),
            ],
            member_of: vec![Membership { of, column: "acls" }],
        }
    }
}
