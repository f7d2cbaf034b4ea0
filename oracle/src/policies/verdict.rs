//! Who may connect to whom in a world. What decides is the package `verdict`; here is which of the world's
//! objects are the two ends, and what holds for nodes.

pub use ::verdict::Place;
use ::verdict::{Direction, Policies, side::Connection};

use super::{End, Pod, World};

impl World {
    /// Whether `client` may connect to the pod: its own policies allow it to leave, and the pod's policies
    /// allow it to come in.
    pub fn allows(&self, client: End<'_>, server: &Pod, place: Place) -> bool {
        let policies = Policies {
            namespaces: &self.namespaces,
            policies: &self.policies,
            cluster_policies: &self.cluster_policies,
        };
        let is_ipv6 = place.is_ipv6;
        let connection = Connection { client: client.facts(is_ipv6), server: server.facts(is_ipv6), place };
        let allows = |direction| policies.side(direction, connection).allows;
        // "if the traffic source is the pod's local node"
        let is_own_node = client == End::Node(server.node);
        allows(Direction::Egress) && (is_own_node || allows(Direction::Ingress))
    }
}

impl Pod {
    fn facts(&self, is_ipv6: bool) -> ::verdict::End<'_> {
        let Self { namespace, name: _, node: _, host: _, labels, ports } = self;
        ::verdict::End {
            pod: Some(::verdict::Pod { namespace, labels, ports }),
            address: self.address(is_ipv6),
        }
    }
}

impl End<'_> {
    fn facts(&self, is_ipv6: bool) -> ::verdict::End<'_> {
        match self {
            Self::Pod(pod) => pod.facts(is_ipv6),
            Self::Node(_) => ::verdict::End { pod: None, address: self.address(is_ipv6) },
        }
    }
}
