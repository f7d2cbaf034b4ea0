use super::*;

#[test]
fn a_move_waits_for_ports_groups_services_and_chassis_that_are_missing() {
    let set = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let before = ZoneRows {
        ports: ["a", "b"].map(|name| (name.to_owned(), "node1".to_owned())).into(),
        groups: set(&["pg a"]),
        services: set(&["tcp 10.96.0.1:443"]),
        chassis: set(&["other"]),
        ..ZoneRows::default()
    };
    let nothing = ZoneRows::default();
    assert_eq!(
        before.lacking_in(&nothing),
        ["port a", "port b", "group pg a", "Service tcp 10.96.0.1:443", "chassis other"]
    );
    assert!(before.lacking_in(&before).is_empty());
    // More rows than before do not matter.
    assert!(nothing.lacking_in(&before).is_empty());
    let many = ZoneRows { chassis: set(&["1", "2", "3", "4", "5", "6", "7"]), ..nothing };
    let lacking = many.lacking_in(&ZoneRows::default());
    assert_eq!(lacking.last().map(String::as_str), Some("and 2 more"));
    assert_eq!(lacking.len(), NAMED + 1);
}
