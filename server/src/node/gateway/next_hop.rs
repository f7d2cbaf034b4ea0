//! Which interface leads out, and to which routers: chosen from the options and the default routes.
//! Pure.

use std::{collections::BTreeSet, net::IpAddr};

use contract::names::IfName;

/// A default route of the host. The kernel prefers the first one of its family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DefaultRoute {
    /// The name of its interface.
    pub(super) link: String,
    /// Its router. `None` on a link without one (a tunnel).
    pub(super) via: Option<IpAddr>,
    pub(super) is_v4: bool,
}

/// Why no interface can be chosen yet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Undecided {
    #[error(
        "the host has no default route yet; --gateway-interface names an interface to the outside"
    )]
    NoDefaultRoute,
    #[error(
        "the default route of IPv4 is over {v4} and that of IPv6 over {v6}: --gateway-interface has to name \
         one of them"
    )]
    Apart { v4: String, v6: String },
}

/// The interface to the outside: the one that is configured, or else that of the default routes.
pub(super) fn interface(
    configured: Option<&IfName>,
    routes: &[DefaultRoute],
) -> Result<String, Undecided> {
    if let Some(name) = configured {
        return Ok(name.as_str().to_owned());
    }
    let link =
        |is_v4: bool| routes.iter().find(|route| route.is_v4 == is_v4).map(|route| &route.link);
    match (link(true), link(false)) {
        (Some(v4), Some(v6)) if v4 != v6 => {
            Err(Undecided::Apart { v4: v4.clone(), v6: v6.clone() })
        }
        (Some(link), _) | (None, Some(link)) => Ok(link.clone()),
        (None, None) => Err(Undecided::NoDefaultRoute),
    }
}

/// The interfaces of default routes that lead elsewhere than over `links`, the gateway's.
pub(super) fn elsewhere<'r>(
    routes: &'r [DefaultRoute],
    links: &BTreeSet<&str>,
) -> BTreeSet<&'r str> {
    let of_family = |is_v4: bool| routes.iter().find(|route| route.is_v4 == is_v4);
    let preferred =
        [true, false].into_iter().filter_map(of_family).map(|route| route.link.as_str());
    preferred.filter(|link| !links.contains(link)).collect()
}

/// The next routers, IPv4 first: of each family the one that is configured, or else that of a
/// default route over one of `links`, the interface and its bridge, or else that of `before`.
pub(super) fn next_hops(
    configured: &[IpAddr],
    routes: &[DefaultRoute],
    links: &BTreeSet<&str>,
    before: &[IpAddr],
) -> Vec<IpAddr> {
    let of_family = |is_v4: bool| {
        let given = configured.iter().copied().find(|hop| hop.is_ipv4() == is_v4);
        let found = || {
            let leads_out =
                |route: &&DefaultRoute| route.is_v4 == is_v4 && links.contains(route.link.as_str());
            routes.iter().find(leads_out).and_then(|route| route.via)
        };
        // A router of the other family (RFC 5549) is no next hop for OVN.
        let hop = given.or_else(found).filter(|hop| hop.is_ipv4() == is_v4);
        hop.or_else(|| before.iter().copied().find(|hop| hop.is_ipv4() == is_v4))
    };
    [true, false].into_iter().filter_map(of_family).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(link: &str, via: &str) -> DefaultRoute {
        let via: IpAddr = via.parse().unwrap();
        DefaultRoute { link: link.to_owned(), via: Some(via), is_v4: via.is_ipv4() }
    }

    #[test]
    fn the_default_routes_name_the_interface_unless_it_is_configured() {
        let routes = [route("eth0", "192.0.2.1"), route("eth0", "fe80::1")];
        assert_eq!(interface(None, &routes).as_deref(), Ok("eth0"));
        assert_eq!(interface(None, &routes[1..]).as_deref(), Ok("eth0"));
        assert_eq!(interface(Some(&"eth1".parse().unwrap()), &routes).as_deref(), Ok("eth1"));
        assert_eq!(interface(None, &[]), Err(Undecided::NoDefaultRoute));
    }

    #[test]
    fn families_that_leave_over_different_interfaces_are_named() {
        let error =
            interface(None, &[route("eth0", "192.0.2.1"), route("eth1", "fe80::1")]).unwrap_err();
        assert!(
            error.to_string().contains("IPv4 is over eth0 and that of IPv6 over eth1"),
            "{error}"
        );
    }

    #[test]
    fn routers_are_those_behind_the_bridge_and_configured_ones_come_first() {
        let routes = [route("breth0", "192.0.2.1"), route("eth9", "fe80::1")];
        let links = BTreeSet::from(["eth0", "breth0"]);
        let hops = |configured: &[&str]| {
            let configured: Vec<IpAddr> =
                configured.iter().map(|hop| hop.parse().unwrap()).collect();
            next_hops(&configured, &routes, &links, &["192.0.2.9".parse().unwrap()])
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        assert_eq!(hops(&[]), ["192.0.2.1"]);
        assert_eq!(hops(&["2001:db8::1"]), ["192.0.2.1", "2001:db8::1"]);
        assert_eq!(hops(&["192.0.2.254"]), ["192.0.2.254"]);
    }
}
