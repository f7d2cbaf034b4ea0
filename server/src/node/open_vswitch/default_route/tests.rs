use super::*;

fn best_of(messages: &[RouteMessage]) -> Option<DefaultRoute> {
    preferred_first(messages.iter().flat_map(DefaultRoute::read).collect()).into_iter().next()
}

fn route(prefix: u8, table: u8, attributes: Vec<RouteAttribute>) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.destination_prefix_length = prefix;
    message.header.table = table;
    message.header.kind = RouteType::Unicast;
    message.attributes = attributes;
    message
}

fn address(
    scope: AddressScope,
    flags: AddressFlags,
    local: Option<&str>,
    address: &str,
) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.scope = scope;
    message.attributes =
        vec![AddressAttribute::Address(address.parse().unwrap()), AddressAttribute::Flags(flags)];
    message.attributes.extend(local.map(|local| AddressAttribute::Local(local.parse().unwrap())));
    message
}

#[test]
fn the_default_route_with_the_lowest_metric_counts() {
    let routes = [
        route(24, 254, vec![RouteAttribute::Oif(1)]),
        route(0, 254, vec![RouteAttribute::Oif(2), RouteAttribute::Priority(600)]),
        route(
            0,
            254,
            vec![
                RouteAttribute::Oif(3),
                RouteAttribute::Priority(100),
                RouteAttribute::Gateway(RouteAddress::Inet([192, 0, 2, 254].into())),
            ],
        ),
        route(0, 100, vec![RouteAttribute::Oif(4)]),
        route(0, 0, vec![RouteAttribute::Oif(5), RouteAttribute::Table(1000)]),
    ];
    assert_eq!(
        best_of(&routes),
        Some(DefaultRoute {
            link: 3,
            metric: 100,
            source: None,
            via: Some("192.0.2.254".parse().unwrap())
        })
    );
    assert_eq!(best_of(&routes[..1]), None);
}

#[test]
fn the_routes_own_source_address_is_known() {
    let source = RouteAttribute::PrefSource(RouteAddress::Inet([192, 0, 2, 1].into()));
    let routes = [route(0, 254, vec![RouteAttribute::Oif(3), source])];
    assert_eq!(best_of(&routes).and_then(|route| route.source), Some("192.0.2.1".parse().unwrap()));
}

#[test]
fn the_first_address_that_stays_and_is_for_others_counts() {
    let none = AddressFlags::empty();
    let list = [
        address(AddressScope::Link, none, None, "169.254.0.1"),
        address(AddressScope::Universe, AddressFlags::Secondary, None, "192.0.2.9"),
        address(AddressScope::Universe, none, Some("192.0.2.1"), "192.0.2.2"),
        address(AddressScope::Universe, none, None, "192.0.2.3"),
    ];
    assert_eq!(
        first(&list, AddressFamily::Inet),
        Some("192.0.2.1".parse().unwrap()),
        "of two, the own end"
    );
    assert_eq!(first(&list[3..], AddressFamily::Inet), Some("192.0.2.3".parse().unwrap()));
    assert_eq!(first(&list, AddressFamily::Inet6), None);
}
