use contract::names::{Network, PodKey};

use super::*;

fn verdict(goal: Goal, change: impl FnOnce(&mut Interface)) -> Option<Result<(), String>> {
    let (name, iface_id) = names();
    let mut row = Interface { name: "c1".to_owned(), ..Interface::default() };
    row.external_ids.insert("iface-id".to_owned(), "shop_cart-0".to_owned());
    change(&mut row);
    judge(goal, Row::There(&row), &name, &iface_id)
        .map(|verdict| verdict.map_err(|error| error.to_string()))
}

fn names() -> (IfName, IfaceId) {
    (
        "c1".parse().unwrap(),
        IfaceId::new(&PodKey::new("shop", "cart-0").unwrap(), &Network::Default),
    )
}

#[test]
fn a_new_row_is_waited_on() {
    assert_eq!(verdict(Goal::Ofport, |_| {}), None);
    assert_eq!(verdict(Goal::OvnInstalled, |row| row.ofport = Some(3)), None);
}

#[test]
fn each_goal_is_reached_by_its_own_sign() {
    assert_eq!(verdict(Goal::Ofport, |row| row.ofport = Some(3)), Some(Ok(())));
    let installed = |row: &mut Interface| {
        row.ofport = Some(3);
        row.external_ids.insert("ovn-installed".to_owned(), "true".to_owned());
    };
    assert_eq!(verdict(Goal::OvnInstalled, installed), Some(Ok(())));
}

#[test]
fn a_device_that_cannot_be_used_ends_the_wait_at_once() {
    let refused = verdict(Goal::OvnInstalled, |row| {
        row.ofport = Some(-1);
        row.error = Some("could not open network device c1 (No such device)".to_owned());
    });
    assert_eq!(
        refused,
        Some(Err(
            "ovs-vswitchd cannot use the device: could not open network device c1 (No such device)"
                .to_owned()
        ))
    );
    assert!(matches!(verdict(Goal::Ofport, |row| row.ofport = Some(-1)), Some(Err(_))));
}

#[test]
fn a_row_that_is_taken_away_or_over_ends_the_wait() {
    let (name, iface_id) = names();
    assert!(judge(Goal::Ofport, Row::NotYet, &name, &iface_id).is_none(), "not there yet");
    assert!(matches!(
        judge(Goal::Ofport, Row::Gone, &name, &iface_id),
        Some(Err(NotInstalled::Removed(_)))
    ));
    let other = verdict(Goal::Ofport, |row| {
        drop(row.external_ids.insert("iface-id".to_owned(), "a_b".to_owned()))
    });
    assert_eq!(other, Some(Err("port c1 belongs to \"a_b\" now".to_owned())));
}
