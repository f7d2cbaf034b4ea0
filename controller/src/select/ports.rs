//! The ports of a rule as matches: numbers, ranges, and the numbers that pods give to names.

use std::collections::{BTreeMap, BTreeSet};

use kubeapi::services::Protocol;

use crate::{
    frozen::FrozenSet,
    key::SetId,
    select::{
        matching::{any_family, ip, spelled},
        peer::{Number, Port},
        set_rows::set_name,
    },
    world::Store,
};

/// Which packets of a protocol a rule is about.
pub(crate) struct Ports {
    /// As the id of the ACL has it.
    pub(crate) protocol: &'static str,
    /// None: of all protocols.
    pub(crate) matching: Option<String>,
    pub(crate) sets: BTreeSet<SetId>,
}

impl Ports {
    /// The rule's ports, by protocol. None of them if none of the names has a number. `scope`: the
    /// namespace whose pods give numbers to names; none for all pods.
    pub(crate) fn of(
        store: &Store,
        scope: Option<&str>,
        ports: Option<&FrozenSet<Port>>,
    ) -> Vec<Self> {
        let Some(ports) = ports else {
            return vec![Self { protocol: "None", matching: None, sets: BTreeSet::new() }];
        };
        let mut of_protocol: BTreeMap<Protocol, Vec<&Number>> = BTreeMap::new();
        for Port { protocol, number } in ports {
            of_protocol.entry(*protocol).or_default().push(number);
        }
        let of_protocol = of_protocol.into_iter();
        of_protocol
            .filter_map(|(protocol, numbers)| Self::numbers(store, scope, protocol, &numbers))
            .collect()
    }

    fn numbers(
        store: &Store,
        scope: Option<&str>,
        protocol: Protocol,
        numbers: &[&Number],
    ) -> Option<Self> {
        let name = spelled(protocol);
        let all = |matching| {
            Some(Self { protocol: name, matching: Some(matching), sets: BTreeSet::new() })
        };
        if numbers.contains(&&Number::All) {
            return all(name.to_owned());
        }
        let (mut single, mut others, mut sets) = (Vec::new(), Vec::new(), BTreeSet::new());
        for number in numbers {
            match number {
                Number::All => {}
                Number::Range(first, last) if first == last => single.push(first.to_string()),
                Number::Range(first, last) => others.push(format!("{first}<={name}.dst<={last}")),
                Number::Named(port) => {
                    for number in store.port_numbers(scope, port, protocol) {
                        let set = SetId::port(scope, port, protocol, number);
                        // A number counts only at the pods that give it to the name.
                        let at = any_family(store, |family| {
                            Some(format!("{}.dst == ${}", ip(family), set_name(&set, family).name))
                        });
                        others.push(format!("({name}.dst=={number} && {at})"));
                        sets.insert(set);
                    }
                }
            }
        }
        match (&single[..], &others[..]) {
            ([], []) => None,
            ([one], []) => all(format!("{name} && {name}.dst=={one}")),
            (_, []) => all(format!("{name} && {name}.dst=={{{}}}", single.join(","))),
            ([], [one]) => {
                Some(Self { protocol: name, matching: Some(format!("{name} && {one}")), sets })
            }
            _ => {
                let single = single.iter().map(|number| format!("{name}.dst=={number}"));
                let terms: Vec<String> = single.chain(others.iter().cloned()).collect();
                let matching = Some(format!("{name} && ({})", terms.join(" || ")));
                Some(Self { protocol: name, matching, sets })
            }
        }
    }
}
