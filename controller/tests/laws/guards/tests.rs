//! Each guard finds what it guards against. Without a server.

use super::*;

fn texts<const N: usize>(texts: [&str; N]) -> BTreeSet<String> {
    texts.map(str::to_owned).into()
}

fn port(address: &str) -> Port {
    let addresses = texts([&format!("0a:58:0a:00:01:03 {address}")]);
    Port {
        is_pods: true,
        port_security: addresses.clone(),
        addresses,
        switches: texts(["n1"]),
        groups: texts(["deny"]),
    }
}

fn commit(ports: &[(&str, Port)], set: &[&str]) -> Commit {
    Commit {
        ports: ports.iter().map(|(name, port)| ((*name).to_owned(), port.clone())).collect(),
        sets: BTreeMap::from([(
            "peers".to_owned(),
            Set {
                addresses: set.iter().map(|text| (*text).to_owned()).collect(),
                ports: "a".to_owned(),
            },
        )]),
        switches: BTreeSet::new(),
        acls: BTreeMap::new(),
    }
}

#[test]
fn a_port_without_its_isolation_or_its_port_security_is_found() {
    let guard = Closed {
        groups: |name: &str| if name == "open" { vec!["deny".to_owned()] } else { vec![] },
    };
    let broken = |port: Port| guard.broken(&commit(&[("open", port)], &[]));
    assert_eq!(broken(port("10.0.1.3")), Vec::<String>::new());
    assert_eq!(
        broken(Port { groups: texts(["another"]), ..port("10.0.1.3") }),
        ["open is open: it is not in the group deny"]
    );
    let any = broken(Port { port_security: BTreeSet::new(), ..port("10.0.1.3") });
    assert!(any[0].starts_with("open may send with any address"), "{any:?}");
    let none =
        Port { addresses: BTreeSet::new(), port_security: BTreeSet::new(), ..port("10.0.1.3") };
    assert_eq!(broken(none).len(), 1);
    assert_eq!(
        broken(Port { switches: texts(["n1", "n2"]), ..port("10.0.1.3") }),
        ["open is in 2 switches"]
    );
}

#[test]
fn an_address_of_two_pods_or_of_a_stranger_is_found() {
    let (first, second) = (port("10.0.1.3"), port("10.0.1.4"));
    let broken = |ports: &[(&str, Port)], set: &[&str]| NoStaleAddress.broken(&commit(ports, set));
    let both = [("a", first.clone()), ("b", second)];
    assert_eq!(broken(&both, &["10.0.1.3"]), Vec::<String>::new());
    assert_eq!(broken(&both[..1], &["10.0.1.4"]), Vec::<String>::new());
    assert_eq!(broken(&both, &["10.0.1.4"]), ["the set peers has 10.0.1.4, the address of b"]);
    assert_eq!(
        broken(&[("a", first.clone()), ("b", first)], &[]),
        ["a and b have the address 10.0.1.3"]
    );
}
