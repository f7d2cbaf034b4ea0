//! CNI results: a result of this project that is converted for an older version equals the same
//! result rendered in that version. Results of other programs are converted without a panic.

use arbitrary::{Result, Unstructured};
use cni::result::{CniResult, Interface, IpConfig, PrevResult, Route, convert};
use contract::{mtu::Mtu, spec_version::SpecVersion};
use serde_json::Value;

use crate::draw;

/// `data` is a result in JSON, and also the source of a drawn result of this project.
pub fn check(data: &[u8]) {
    if let Ok(foreign) = serde_json::from_slice::<Value>(data) {
        for version in SpecVersion::ALL {
            let converted = convert(foreign.clone(), version);
            if foreign.is_object() {
                assert_eq!(converted["cniVersion"], version.as_str());
            }
        }
    }
    if let Ok(result) = drawn(&mut Unstructured::new(data)) {
        check_own(&result);
    }
}

fn drawn(u: &mut Unstructured<'_>) -> Result<CniResult> {
    let interface = |u: &mut Unstructured<'_>, name: &str, sandbox| {
        let mtu = Mtu::try_from(u.int_in_range(576..=65535)?).expect("in its range");
        Ok(Interface { name: name.to_owned(), mac: draw::mac(u)?, mtu, sandbox })
    };
    let interfaces =
        [interface(u, "c0ffee", None)?, interface(u, "eth0", Some("/run/netns/x".to_owned()))?];
    let mut ips = Vec::new();
    for _ in 0..u.int_in_range(0..=3)? {
        let address = draw::net(u)?;
        ips.push(IpConfig {
            address,
            gateway: u.arbitrary::<bool>()?.then(|| draw::ip_of(u, address)).transpose()?,
        });
    }
    let mut routes = Vec::new();
    for _ in 0..u.int_in_range(0..=3)? {
        let destination = draw::net(u)?;
        routes.push(Route {
            destination,
            next_hop: u.arbitrary::<bool>()?.then(|| draw::ip_of(u, destination)).transpose()?,
        });
    }
    Ok(CniResult { interfaces, ips, routes })
}

fn check_own(result: &CniResult) {
    let newest = result.render(SpecVersion::V1_1_0);
    for version in SpecVersion::ALL {
        let rendered = result.render(version);
        assert_eq!(convert(newest.clone(), version), rendered, "the way over the newest version");
        assert_eq!(rendered["cniVersion"], version.as_str());
        if version < SpecVersion::V0_3_0 {
            check_by_family(result, &rendered);
        } else {
            check_list(result, &rendered, version);
        }
    }
}

/// Checks 0.3.0 and later: everything that CHECK and DEL read is preserved.
fn check_list(result: &CniResult, rendered: &Value, version: SpecVersion) {
    let back: PrevResult = serde_json::from_value(rendered.clone())
        .unwrap_or_else(|error| panic!("{rendered}: {error}"));
    let ips: Vec<IpConfig> =
        back.ips.iter().map(|ip| IpConfig { address: ip.address, gateway: ip.gateway }).collect();
    let routes: Vec<Route> = back
        .routes
        .iter()
        .map(|route| Route { destination: route.dst, next_hop: route.gw })
        .collect();
    assert_eq!((&ips, &routes), (&result.ips, &result.routes), "{version}");
    assert_eq!(back.addresses_of("eth0").count(), ips.len(), "{version}: they are the pod's");
    for (theirs, ours) in back.interfaces.iter().zip(&result.interfaces) {
        assert_eq!((&theirs.name, &theirs.mac), (&ours.name, &ours.mac.to_string()));
        assert_eq!(
            theirs.mtu.is_some(),
            version >= SpecVersion::V1_1_0,
            "the MTU is as new as 1.1.0"
        );
    }
    for ip in rendered["ips"].as_array().expect("a list") {
        assert_eq!(ip.get("version").is_some(), version < SpecVersion::V1_0_0, "{version}: {ip}");
    }
}

/// Checks 0.1.0 and 0.2.0: the first address of each family with that family's routes, and nothing
/// else.
fn check_by_family(result: &CniResult, rendered: &Value) {
    for (key, v4) in [("ip4", true), ("ip6", false)] {
        let first = result.ips.iter().find(|ip| ip.address.addr().is_ipv4() == v4);
        let Some(first) = first else {
            assert_eq!(rendered.get(key), None);
            continue;
        };
        assert_eq!(rendered[key]["ip"], first.address.to_string());
        assert_eq!(
            rendered[key].get("gateway").and_then(Value::as_str),
            first.gateway.map(|gateway| gateway.to_string()).as_deref()
        );
        let routes =
            result.routes.iter().filter(|route| route.destination.addr().is_ipv4() == v4).count();
        assert_eq!(rendered[key]["routes"].as_array().map(Vec::len), Some(routes));
    }
    let known = ["cniVersion", "dns", "ip4", "ip6"];
    assert!(
        rendered.as_object().expect("an object").keys().all(|key| known.contains(&key.as_str())),
        "{rendered}"
    );
}
