//! An ACL of a switch or of a port group. Columns follow ovn-nb(5), "ACL TABLE".

use contract::ovn::{self, ObjectId};
use ovsdb::Datum;

use super::{DesiredRow, Membership, RowName, Table, Value};

/// An ACL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acl {
    pub id: ObjectId,
    /// The switch or port group.
    pub of: RowName,
    pub direction: Direction,
    /// Within a tier, the matching ACL with the highest priority decides.
    pub priority: i64,
    /// In OVN's expression language, ovn-sb(5) "Logical_Flow TABLE".
    pub matching: String,
    pub action: Action,
}

/// Which packets an ACL sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Packets on their way to a port.
    ToPort,
    /// Packets that come from a port.
    FromPort,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The packets pass, and so do the replies.
    AllowRelated,
    Drop,
}

/// The tier of namespaces' network policies. Administrators' policies are in the tiers before, default
/// policies in the tier behind.
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
                // Has no effect until an administrator enables the ACL's `log`.
                ("meter", Value::Datum(Datum::set([ovn::ACL_METER]))),
                ("external_ids", Value::Pairs(id.external_ids().into())),
            ],
            member_of: vec![Membership { of, column: "acls" }],
            or_member_of: Vec::new(),
            needs: Vec::new(),
        }
    }
}
