//! What OVN's ACLs do with the first packet of a connection (ovn-nb(5), "ACL TABLE").
//!
//! OVN asks ACLs in three stages: those of packets from a port as they were sent, those of packets
//! from a port behind load balancers (`apply-after-lb`), and those of packets to a port. In each
//! stage the tiers are asked in turn, and in a tier the ACL with the highest priority that matches.
//! No I/O: the caller knows which ACLs count for a port.
//!
//! | module | what it is |
//! |---|---|
//! | here | [`Acl`], [`Carried`]: which ACLs decide |
//! | [`expression`] | [`Expression`]: the match of an ACL |

pub mod expression;

pub use expression::{Expression, Packet, Port, Sets};

/// An ACL, as far as it decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acl {
    /// `from-lport` or `to-lport`
    pub direction: String,
    pub after_load_balancers: bool,
    /// 0 in a database without tiers.
    pub tier: i64,
    pub priority: i64,
    pub action: String,
    /// None: it cannot be read.
    pub matching: Option<Expression>,
}

/// The end of a connection whose ACLs are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End<'a> {
    /// The port that the packet comes from.
    Client(&'a Port),
    /// The port that the packet goes to.
    Server(&'a Port),
    /// The two ports of a switch that it passes on its way to a router. Asked are the ACLs on the
    /// way to the second one, which also know the first.
    Leaving { client: &'a Port, router: &'a Port },
}

/// What the ACLs of one end do with a packet. `T` has an [`Acl`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carried<T> {
    /// None: an ACL that could decide cannot be evaluated.
    pub allows: Option<bool>,
    /// The ACL that decides in each stage, if one does.
    pub by: Vec<T>,
    /// Those that cannot be evaluated.
    pub unknown: Vec<T>,
}

impl<T> Carried<T> {
    /// What the ACLs that count for the end's port do with the packet. With neither of them, OVN
    /// allows it.
    pub fn of<'a>(
        acls: impl Iterator<Item = &'a T> + Clone,
        end: End<'_>,
        packet: &Packet<'_>,
        sets: &Sets,
    ) -> Self
    where
        T: AsRef<Acl> + Clone + 'a,
    {
        let (packet, stages): (_, &[_]) = match end {
            End::Client(port) => (
                Packet { inport: Some(port), ..*packet },
                &[("from-lport", false), ("from-lport", true)],
            ),
            End::Server(port) => {
                (Packet { outport: Some(port), ..*packet }, &[("to-lport", false)])
            }
            End::Leaving { client, router } => (
                Packet { inport: Some(client), outport: Some(router), ..*packet },
                &[("to-lport", false)],
            ),
        };
        let mut carried = Self { allows: Some(true), by: Vec::new(), unknown: Vec::new() };
        for (direction, after) in stages {
            let of_stage = |acl: &&T| {
                let Acl { direction: own, after_load_balancers, .. } = (*acl).as_ref();
                own == direction && after_load_balancers == after
            };
            carried.stage(acls.clone().filter(of_stage).collect(), &packet, sets);
            if carried.allows != Some(true) {
                break;
            }
        }
        carried
    }

    fn stage(&mut self, mut acls: Vec<&T>, packet: &Packet<'_>, sets: &Sets)
    where
        T: AsRef<Acl> + Clone,
    {
        acls.sort_by_key(|acl| (acl.as_ref().tier, std::cmp::Reverse(acl.as_ref().priority)));
        let mut passed = None;
        for acl in acls {
            let Acl { tier, action, matching, .. } = acl.as_ref();
            // The rest of a tier that a rule has passed over.
            if passed == Some(*tier) {
                continue;
            }
            let matches = matching.as_ref().and_then(|expression| expression.matches(packet, sets));
            match (matches, action.as_str()) {
                (Some(false), _) => {}
                (None, _) => {
                    self.allows = None;
                    self.unknown.push(acl.clone());
                    return;
                }
                (Some(true), action) => {
                    self.by.push(acl.clone());
                    match action {
                        "pass" => passed = Some(*tier),
                        "allow" | "allow-related" | "allow-stateless" => return,
                        _ => {
                            self.allows = Some(false);
                            return;
                        }
                    }
                }
            }
        }
    }
}

impl AsRef<Self> for Acl {
    fn as_ref(&self) -> &Self {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(tier: i64, priority: i64, action: &str, matching: &str) -> Acl {
        Acl {
            direction: "to-lport".to_owned(),
            after_load_balancers: false,
            tier,
            priority,
            action: action.to_owned(),
            matching: Expression::parse(matching),
        }
    }

    /// An EgressFirewall's rules are about the port that the packet comes from, and are asked
    /// behind it.
    #[test]
    fn on_the_way_to_a_router_both_ports_are_known() {
        let [source, destination] = ["10.0.0.1", "192.0.2.7"].map(|text| text.parse().unwrap());
        let packet =
            Packet { source, destination, protocol: "tcp", port: 80, inport: None, outport: None };
        let port = |name: &str, group: &str| Port {
            name: name.to_owned(),
            groups: [group.to_owned()].into(),
        };
        let (client, router) = (port("shop_web", "a1"), port("stor-n1", "a2"));
        let drop = acl(1, 5, "drop", "ip4.dst == 192.0.2.0/24 && inport == @a1 && outport == @a2");
        let acls = std::slice::from_ref(&drop).iter();
        let asked = |end| Carried::of(acls.clone(), end, &packet, &Sets::new()).allows;
        assert_eq!(asked(End::Leaving { client: &client, router: &router }), Some(false));
        assert_eq!(asked(End::Client(&client)), Some(true));
    }

    fn asked(acls: &[Acl]) -> Carried<Acl> {
        let [source, destination] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().unwrap());
        let packet =
            Packet { source, destination, protocol: "tcp", port: 80, inport: None, outport: None };
        Carried::of(acls.iter(), End::Server(&Port::default()), &packet, &Sets::new())
    }

    #[test]
    fn in_a_tier_the_highest_priority_decides_and_what_passes_skips_the_rest_of_it() {
        let drop = acl(1, 5, "drop", "ip4");
        assert_eq!(asked(&[]).allows, Some(true));
        assert_eq!(asked(std::slice::from_ref(&drop)).allows, Some(false));
        assert_eq!(asked(&[drop.clone(), acl(1, 6, "allow-related", "tcp")]).allows, Some(true));
        assert_eq!(asked(&[drop.clone(), acl(1, 6, "allow-related", "udp")]).allows, Some(false));
        let passed = asked(&[drop, acl(1, 6, "pass", "tcp"), acl(2, 1, "allow", "ip4")]);
        assert_eq!((passed.allows, passed.by.len()), (Some(true), 2));
    }

    #[test]
    fn an_acl_that_cannot_be_evaluated_leaves_the_answer_open_unless_one_decides_before() {
        let unknown = acl(1, 5, "drop", "ct.est");
        assert_eq!(asked(std::slice::from_ref(&unknown)).allows, None);
        assert_eq!(asked(&[unknown, acl(0, 1, "drop", "ip4")]).allows, Some(false));
        let of_others = Acl { direction: "from-lport".to_owned(), ..acl(1, 5, "drop", "ip4") };
        assert_eq!(asked(&[of_others]).allows, Some(true));
    }
}
