//! What of a NetworkPolicy cannot be used, or does not do what its author may expect.

use super::Unusable;

/// Something of a policy that its owner should know of. The rest of it counts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyTrouble {
    #[error(transparent)]
    Unusable(Box<Unusable>),
    #[error(
        "its annotation k8s.ovn.org/acl-stateless has no effect without the option --enable-stateless-netpol; \
         the connections that it allows are tracked"
    )]
    StatelessOff,
}

impl PolicyTrouble {
    /// One word for an event's `reason`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unusable(unusable) => unusable.reason(),
            Self::StatelessOff => "AnnotationWithoutEffect",
        }
    }
}
