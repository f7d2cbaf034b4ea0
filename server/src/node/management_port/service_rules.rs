//! nftables rules that translate connections to addresses of Services: from other machines, and
//! from this host. One look at a map is enough for any number of Services, and a change of one
//! changes its elements alone.
//!
//! ```text
//! map services-v4 {                   address . number of lots . the one that is drawn . protocol . port
//!     0.0.0.0 . 1 . 0 . tcp . 30080 : 10.96.0.7 . 80            a node port: any address of the host
//!     198.51.100.7 . 1 . 0 . tcp . 80 : 10.96.0.7 . 80
//!     10.96.0.1 . 2 . 0 . tcp . 443 : 192.0.2.7 . 6443          endpoints on hosts
//!     10.96.0.1 . 2 . 1 . tcp . 443 : 192.0.2.8 . 6443
//! }
//! map local-services-v4               the same for connections from outside under `externalTrafficPolicy: Local`
//! set refused-v4                      of these, what has no endpoint here: address . protocol . port
//! set source-kept-v4                  targets whose clients keep their addresses
//! set masqueraded-v4                  targets on other hosts: these would answer the client themselves
//! set limited-v4                      what takes connections of some clients only: address . protocol . port
//! set clients-v4                      the same with a network of clients, as bytes
//! chain services-prerouting-late {
//!     type nat hook prerouting priority dstnat + 5
//!     meta l4proto udp th dport 6081 accept           a port of tunnels (`--encap-type`, `--encap-port`)
//!     iifname "ovn-k8s-mp0" accept
//!     ip daddr . meta l4proto . th dport @limited-v4 ip daddr . … . ip saddr != @clients-v4 drop
//!     ip daddr . meta l4proto . th dport @refused-v4 reject
//!     dnat ip to ip daddr . 1 . numgen random mod 1 . meta l4proto . th dport map @local-services-v4
//!     fib daddr type local ip daddr != 127.0.0.0/8 dnat ip to 0.0.0.0 . 1 . … map @local-services-v4
//!     dnat ip to ip daddr . 1 . … map @services-v4
//!     fib daddr type local ip daddr != 127.0.0.0/8 dnat ip to 0.0.0.0 . 1 . … map @services-v4
//! }
//! chain services-output-late          the first one, `limited-v4`, and the last two
//! chain services-postrouting {
//!     type nat hook postrouting priority srcnat - 5
//!     oifname "ovn-k8s-mp0" ct status dnat ip daddr . meta l4proto . th dport @source-kept-v4 snat ip to ip saddr
//!     oifname != "ovn-k8s-mp0" oifname != "lo" ct status dnat ip daddr . … @masqueraded-v4 masquerade
//! }
//! ```
//!
//! - There is a rule for each number of lots: most Services have one target, the cluster's address,
//!   and one lot. A number of targets that is no power of two has at least four lots for each
//!   target, some one more than others: a user who varies endpoints makes no more than nine
//!   numbers, and all rules of a chain fit into one message.
//! - Packets of tunnels between nodes are nobody's to translate, whatever addresses a Service has.
//! - Pods' connections are OVN's. One that comes here all the same is for the host.
//! - `loadBalancerSourceRanges` are checked before anything else, as kube-proxy does; what it
//!   forbids gets no answer. The rule and its sets are there with the first Service: a large change
//!   is several transactions, and none of them may let a connection through.
//! - Other programs that translate come first: kube-proxy, `portmap`.
//! - The chains of upstream's server have other names, because that one does not start where a
//!   chain of its names has another priority. They go in the transaction that makes these: nothing
//!   follows the Services in them any more.
//! - What leaves through the port gets its address, as everything of this host (`mgmtport-snat`):
//!   OVN knows the way back to no other one.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher},
    io,
    net::{IpAddr, SocketAddr},
};

use ipnet::IpNet;
use podnet::nftables::{
    Chain, Change, Content, Correction, Elements, Found, FoundSet, Kind, Rule, Set, Task, commit,
    create_table,
};

pub(crate) use self::translation::translation;
use self::wording::{draw, keep_source, leave_to_host, leave_tunnel, limit, masquerade, refuse};
use super::{
    rules::{TABLE, Worded},
    service_ranges::ClientAddresses,
};
use crate::services::{Destination, Protocol};

mod translation;
mod wording;

const PREROUTING: Chain =
    Chain { table: TABLE, name: "services-prerouting-late", task: Task::LatePrerouting };
const OUTPUT: Chain = Chain { table: TABLE, name: "services-output-late", task: Task::LateOutput };
const POSTROUTING: Chain =
    Chain { table: TABLE, name: "services-postrouting", task: Task::EarlySourceNat };
/// Those of upstream's server for the same, and of earlier versions of this program.
const FORMER: [Chain; 2] = [
    Chain { name: "services-prerouting", ..PREROUTING },
    Chain { name: "services-output", ..OUTPUT },
];

/// For the log, and what is lost without it.
pub(super) const WHAT: &str = "addresses of Services";
pub(super) const WITHOUT: &str = "node ports and external addresses are not served, nor this host by Services with endpoints on hosts";

/// Changes of one transaction, each of at most 400 elements with at most 80 bytes: the kernel takes
/// some 200 KiB at once. What is more follows in further transactions: elements do not depend on
/// each other.
const MOST_CHANGES: usize = 4;

// Types of nftables(8), as `nft` numbers them.
/// Bytes of any number. A set of intervals whose type is a concatenation, and which the kernel does
/// not have as one, ends `nft`.
const LL_ADDR: u32 = 6;
const IPV4_ADDR: u32 = 7;
const IPV6_ADDR: u32 = 8;
const INET_PROTO: u32 = 12;
const INET_SERVICE: u32 = 13;
const MARK: u32 = 19;

/// What a set is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Use {
    Clients,
    Limited,
    Services,
    LocalServices,
    Refused,
    SourceKept,
    Masqueraded,
}

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Family {
    V4,
    V6,
}

impl Family {
    const ALL: [Self; 2] = [Self::V4, Self::V6];

    fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// `NFPROTO_*`
    fn number(self) -> u8 {
        match self {
            Self::V4 => 2,
            Self::V6 => 10,
        }
    }

    fn unspecified(self) -> IpAddr {
        match self {
            Self::V4 => [0; 4].into(),
            Self::V6 => [0; 16].into(),
        }
    }

    /// Number of 32-bit words of an address.
    fn words(self) -> u32 {
        match self {
            Self::V4 => 1,
            Self::V6 => 4,
        }
    }

    /// Places of source and destination in the header (RFC 791, RFC 8200).
    fn offsets(self) -> [u32; 2] {
        match self {
            Self::V4 => [12, 16],
            Self::V6 => [8, 24],
        }
    }
}

impl Use {
    const ALL: [Self; 7] = [
        Self::Clients,
        Self::Limited,
        Self::Services,
        Self::LocalServices,
        Self::Refused,
        Self::SourceKept,
        Self::Masqueraded,
    ];

    fn set(self, family: Family) -> Set {
        let (address, bytes) = match family {
            Family::V4 => (IPV4_ADDR, 4),
            Family::V6 => (IPV6_ADDR, 16),
        };
        let join = |types: &[u32]| types.iter().fold(0, |joined, number| joined << 6 | number);
        let drawn = Kind {
            number: join(&[address, MARK, MARK, INET_PROTO, INET_SERVICE]),
            length: bytes + 16,
        };
        let plain = Kind { number: join(&[address, INET_PROTO, INET_SERVICE]), length: bytes + 8 };
        let target = Kind { number: join(&[address, INET_SERVICE]), length: bytes + 4 };
        let of_client = Kind { number: LL_ADDR, length: bytes + 8 + bytes };
        let (name, key, content) = match (self, family) {
            (Self::Clients, Family::V4) => ("clients-v4", of_client, Content::Ends),
            (Self::Clients, Family::V6) => ("clients-v6", of_client, Content::Ends),
            (Self::Limited, Family::V4) => ("limited-v4", plain, Content::Nothing),
            (Self::Limited, Family::V6) => ("limited-v6", plain, Content::Nothing),
            (Self::Services, Family::V4) => ("services-v4", drawn, Content::Values(target)),
            (Self::Services, Family::V6) => ("services-v6", drawn, Content::Values(target)),
            (Self::LocalServices, Family::V4) => {
                ("local-services-v4", drawn, Content::Values(target))
            }
            (Self::LocalServices, Family::V6) => {
                ("local-services-v6", drawn, Content::Values(target))
            }
            (Self::Refused, Family::V4) => ("refused-v4", plain, Content::Nothing),
            (Self::Refused, Family::V6) => ("refused-v6", plain, Content::Nothing),
            (Self::SourceKept, Family::V4) => ("source-kept-v4", plain, Content::Nothing),
            (Self::SourceKept, Family::V6) => ("source-kept-v6", plain, Content::Nothing),
            (Self::Masqueraded, Family::V4) => ("masqueraded-v4", plain, Content::Nothing),
            (Self::Masqueraded, Family::V6) => ("masqueraded-v6", plain, Content::Nothing),
        };
        Set { table: TABLE, name, key, content }
    }
}

/// Which connections a rule is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum To {
    /// A Service's own address.
    Service,
    /// Any address of the host but loopback.
    Host,
}

/// The desired elements and rules. A function of the destinations.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    sets: BTreeMap<(Use, Family), Elements>,
    /// The numbers of targets in each map.
    numbers: BTreeSet<(Use, Family, To, u32)>,
}

impl Plan {
    fn new(destinations: &[Destination]) -> Self {
        let mut plan = Self::default();
        destinations.iter().for_each(|destination| plan.add(destination));
        plan
    }

    fn add(&mut self, destination: &Destination) {
        let Destination { address, protocol, port, cluster, targets, local, hosts, clients } =
            destination;
        let family = Family::of(*cluster);
        let (to, address) = match address {
            Some(address) => (To::Service, *address),
            None => (To::Host, family.unspecified()),
        };
        let at = SocketAddr::new(address, *port);
        if let Some(clients) = clients {
            self.add_plain(Use::Limited, family, *protocol, &[at]);
            self.add_clients(family, *protocol, at, clients);
        }
        self.add_targets(Use::Services, (family, to), at, *protocol, targets);
        self.add_plain(Use::Masqueraded, family, *protocol, hosts);
        match local.as_deref() {
            None => {}
            // A node port is balanced by OVN, or by a local endpoint that is the host itself.
            Some([]) => self.add_plain(Use::Refused, family, *protocol, &[at]),
            Some(local) => {
                self.add_targets(Use::LocalServices, (family, to), at, *protocol, local);
                self.add_plain(Use::SourceKept, family, *protocol, local);
            }
        }
    }

    fn add_targets(
        &mut self,
        map: Use,
        (family, to): (Family, To),
        at: SocketAddr,
        protocol: Protocol,
        targets: &[SocketAddr],
    ) {
        let Some(number) = lots(targets.len()) else { return };
        let elements = self.sets.entry((map, family)).or_default();
        let key = |index: u32| {
            let mut key = octets(at.ip());
            // Numbers that the kernel makes are in its own byte order.
            key.extend(number.to_ne_bytes());
            key.extend(index.to_ne_bytes());
            key.extend(end(protocol, at.port()));
            key
        };
        for (index, target) in (0..number).zip(targets.iter().cycle()) {
            let mut value = octets(target.ip());
            value.extend(target.port().to_be_bytes());
            value.extend([0; 2]);
            elements.entry(key(index)).or_insert(value);
        }
        self.numbers.insert((map, family, to, number));
    }

    fn add_plain(&mut self, set: Use, family: Family, protocol: Protocol, all: &[SocketAddr]) {
        if all.is_empty() {
            return;
        }
        let elements = self.sets.entry((set, family)).or_default();
        for at in all {
            let mut key = octets(at.ip());
            key.extend(end(protocol, at.port()));
            elements.insert(key, Vec::new());
        }
    }

    fn add_clients(
        &mut self,
        family: Family,
        protocol: Protocol,
        at: SocketAddr,
        clients: &[IpNet],
    ) {
        let elements = self.sets.entry((Use::Clients, family)).or_default();
        let key = |client: IpAddr| {
            let mut key = octets(at.ip());
            key.extend(end(protocol, at.port()));
            key.extend(octets(client));
            key
        };
        elements.extend(clients.iter().map(|net| (key(net.network()), key(net.broadcast()))));
    }

    fn has(&self, set: Use, family: Family) -> bool {
        self.sets.contains_key(&(set, family))
    }

    /// Whether the set has to exist, also without elements.
    fn needs(&self, set: Use, family: Family) -> bool {
        let is_of_limits = matches!(set, Use::Clients | Use::Limited);
        self.has(set, family) || is_of_limits && self.draws_any(family)
    }

    fn draws_any(&self, family: Family) -> bool {
        self.numbers.iter().any(|(_, of, ..)| *of == family)
    }

    fn prerouting(&self, tunnel_ports: &BTreeSet<u16>) -> Vec<Rule> {
        let refused =
            Family::ALL.into_iter().filter(|family| self.has(Use::Refused, *family)).map(refuse);
        let rules: Vec<Rule> = self
            .limits()
            .chain(refused)
            .chain(self.draws(Use::LocalServices))
            .chain(self.draws(Use::Services))
            .collect();
        if rules.is_empty() {
            rules
        } else {
            [leave_tunnels(tunnel_ports), vec![leave_to_host()], rules].concat()
        }
    }

    fn output(&self, tunnel_ports: &BTreeSet<u16>) -> Vec<Rule> {
        let rules: Vec<Rule> = self.limits().chain(self.draws(Use::Services)).collect();
        if rules.is_empty() { rules } else { [leave_tunnels(tunnel_ports), rules].concat() }
    }

    fn limits(&self) -> impl Iterator<Item = Rule> {
        Family::ALL.into_iter().filter(|family| self.draws_any(*family)).map(limit)
    }

    fn postrouting(&self) -> Vec<Rule> {
        let of = |set: Use, rule: fn(Family) -> Rule| {
            Family::ALL.into_iter().filter(move |family| self.has(set, *family)).map(rule)
        };
        of(Use::SourceKept, keep_source).chain(of(Use::Masqueraded, masquerade)).collect()
    }

    fn draws(&self, map: Use) -> impl Iterator<Item = Rule> {
        let of_map = self.numbers.iter().filter(move |(of, ..)| *of == map);
        of_map.map(|(map, family, to, number)| draw(*map, *family, *to, *number))
    }
}

/// How many lots there are for so many targets; none without a target.
fn lots(targets: usize) -> Option<u32> {
    let targets = u32::try_from(targets).ok().filter(|targets| *targets > 0)?;
    if targets.is_power_of_two() {
        Some(targets)
    } else {
        targets.checked_mul(4)?.checked_next_power_of_two()
    }
}

fn leave_tunnels(ports: &BTreeSet<u16>) -> Vec<Rule> {
    ports.iter().copied().map(leave_tunnel).collect()
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// The end of every key. Each part takes a whole number of registers.
fn end(protocol: Protocol, port: u16) -> [u8; 8] {
    // `IPPROTO_*`
    let protocol = match protocol {
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
        Protocol::Sctp => 132,
    };
    let [high, low] = port.to_be_bytes();
    [protocol, 0, 0, 0, high, low, 0, 0]
}

/// The rules in the kernel.
#[derive(Debug, Default)]
pub(super) struct ServiceRules {
    clients: ClientAddresses,
    tunnel_ports: BTreeSet<u16>,
    worded: [Worded; 3],
    /// The hash of the destinations for which the kernel is right, unless another program has
    /// changed it since. To read thousands of elements costs more than everything else of a
    /// comparison.
    right_for: Option<u64>,
}

impl ServiceRules {
    pub(super) fn new(clients: ClientAddresses, tunnel_ports: BTreeSet<u16>) -> Self {
        Self { clients, tunnel_ports, ..Self::default() }
    }

    /// The table has changed, or may have: the next correction reads it.
    pub(super) fn doubt(&mut self) {
        self.right_for = None;
    }

    /// Corrects what differs. Returns whether anything did. Nothing is made where nothing is to be
    /// translated, and nothing is read where nothing has changed.
    pub(super) async fn correct(&mut self, destinations: &[Destination]) -> io::Result<bool> {
        let wanted = BuildHasherDefault::<DefaultHasher>::default().hash_one(destinations);
        if self.right_for == Some(wanted) {
            return Ok(false);
        }
        self.doubt();
        let has_differed = self.compare(destinations).await?;
        self.right_for = Some(wanted);
        Ok(has_differed)
    }

    async fn compare(&mut self, destinations: &[Destination]) -> io::Result<bool> {
        let mut plan = Plan::new(destinations);
        if self.clients == ClientAddresses::Given {
            plan.sets.retain(|(purpose, _), _| *purpose != Use::SourceKept);
        }
        let chains = [
            (PREROUTING, plan.prerouting(&self.tunnel_ports)),
            (OUTPUT, plan.output(&self.tunnel_ports)),
            (POSTROUTING, plan.postrouting()),
        ];
        let (mut sets, mut obsolete) = (vec![create_table(TABLE)], Vec::new());
        let (mut elements, mut unlimited) = (Vec::new(), Vec::new());
        let none = Elements::new();
        for (purpose, family) in
            Use::ALL.into_iter().flat_map(|it| Family::ALL.map(|family| (it, family)))
        {
            let set = purpose.set(family);
            let wanted = plan.sets.get(&(purpose, family)).unwrap_or(&none);
            let found = match set.look().await? {
                FoundSet::Elements(found) => found,
                FoundSet::Nothing if !plan.needs(purpose, family) => continue,
                FoundSet::Nothing => {
                    sets.push(set.create());
                    Elements::new()
                }
                FoundSet::Other => {
                    obsolete.push(set.remove());
                    sets.push(set.create());
                    Elements::new()
                }
            };
            let Correction { removals, additions } = set.correct(&found, wanted);
            // A limit is there before what it limits, and goes after it.
            let first = if purpose == Use::Limited { &mut unlimited } else { &mut elements };
            first.extend(removals);
            elements.extend(additions);
        }
        elements.extend(unlimited);
        let (mut former_rules, mut rules, mut written) = (Vec::new(), Vec::new(), Vec::new());
        let mut flushes = Vec::new();
        if plan.draws_any(Family::V4) || plan.draws_any(Family::V6) {
            for former in FORMER {
                former_rules.extend(former.removal(&former.look().await?));
            }
        }
        for ((chain, wanted), worded) in chains.into_iter().zip(&mut self.worded) {
            let found = chain.look().await?;
            if found != Found::Nothing {
                flushes.push(chain.flush());
            }
            let is_right =
                worded.is(&found, &wanted) || found == Found::Nothing && wanted.is_empty();
            if !is_right || !obsolete.is_empty() {
                rules.push(chain.replacement(&found, &wanted));
                written.push((chain, wanted, worded));
            }
        }
        if !former_rules.is_empty() {
            rules.insert(0, former_rules);
        }
        if elements.is_empty() && rules.is_empty() && sets.len() == 1 {
            return Ok(false);
        }
        // No rule may refer to a set that goes.
        if !obsolete.is_empty() {
            commit(flushes.into_iter().chain(obsolete).collect()).await?;
        }
        transact(sets, elements, rules).await?;
        for (chain, wanted, worded) in written {
            worded.learn(chain, wanted).await?;
        }
        Ok(true)
    }
}

/// Removes all of it. Returns the names of the chains that there were.
pub(super) async fn remove() -> io::Result<Vec<&'static str>> {
    let (mut names, mut changes) = (Vec::new(), Vec::new());
    for chain in [PREROUTING, OUTPUT, POSTROUTING] {
        let removal = chain.removal(&chain.look().await?);
        names.extend((!removal.is_empty()).then_some(chain.name));
        changes.extend(removal);
    }
    // After the rules that refer to them.
    for set in
        Use::ALL.into_iter().flat_map(|purpose| Family::ALL.map(|family| purpose.set(family)))
    {
        changes.extend((set.look().await? != FoundSet::Nothing).then(|| set.remove()));
    }
    if !changes.is_empty() {
        commit(changes).await?;
    }
    Ok(names)
}

/// Makes the changes in transactions of a size that the kernel takes. `rules`: of each chain.
async fn transact(
    sets: Vec<Change>,
    elements: Vec<Change>,
    rules: Vec<Vec<Change>>,
) -> io::Result<()> {
    let mut rest = elements.into_iter().peekable();
    let mut changes = sets;
    loop {
        changes.extend(rest.by_ref().take(MOST_CHANGES));
        if rest.peek().is_none() {
            break;
        }
        commit(std::mem::take(&mut changes)).await?;
    }
    if changes.len() > 1 {
        commit(changes).await?;
    }
    // Last: the rules that go may still need elements that go, and the new ones find theirs.
    for of_chain in rules {
        commit(of_chain).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
