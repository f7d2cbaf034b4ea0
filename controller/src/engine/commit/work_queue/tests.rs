//! Which key is next, and when.

use tokio::time::Instant;

use crate::{key::Part, rows::Table};

use super::*;

fn node(name: &str) -> Key {
    Key::Node(name.into())
}

fn pod(name: &str) -> Key {
    Key::Pod(contract::names::PodKey::new("ns", name).unwrap())
}

fn drain(work_queue: &mut WorkQueue) -> Vec<Key> {
    std::iter::from_fn(|| work_queue.pop()).map(|item| item.key).collect()
}

#[test]
fn what_others_need_comes_first_and_each_key_once() {
    let (mut work_queue, now) = (WorkQueue::default(), Instant::now());
    for key in [pod("b"), node("n"), pod("a"), pod("b"), Key::Cluster] {
        work_queue.mark(Item::whole(key, Cause::Rows), now);
    }
    assert_eq!(drain(&mut work_queue), [Key::Cluster, node("n"), pod("b"), pod("a")]);
    assert!(work_queue.turn().is_none());
}

#[test]
fn a_key_that_waits_goes_on_when_its_row_appears() {
    let (mut work_queue, now) = (WorkQueue::default(), Instant::now());
    let (switch, other) = (Table::LogicalSwitch.row("n"), Table::LogicalSwitch.row("m"));
    work_queue.wait(&pod("a"), std::slice::from_ref(&switch));
    work_queue.changed(&other, now);
    assert!(work_queue.turn().is_none());
    work_queue.changed(&switch, now);
    assert_eq!(drain(&mut work_queue), [pod("a")]);
    assert_eq!((work_queue.waiting(), work_queue.is_waited_for()), (0, false));
}

#[test]
fn an_error_is_new_unless_it_differs_in_uuids_alone() {
    let (mut work_queue, now) = (WorkQueue::default(), Instant::now());
    let mut is_new = |error: &str| work_queue.fail(&pod("a"), error.to_owned(), now).0;
    assert!(is_new(
        r#"rows "a" (1b4e28ba-2fa1-11d2-883f-0016d3cca427) and "b" have the same name"#
    ));
    assert!(!is_new(
        r#"rows "a" (6fa459ea-ee8a-3ca4-894e-db77e160355e) and "b" have the same name"#
    ));
    assert!(is_new(
        r#"rows "a" (6fa459ea-ee8a-3ca4-894e-db77e160355e) and "c" have the same name"#
    ));
}

#[test]
fn a_refused_key_is_tried_alone_after_a_pause_or_as_soon_as_something_changes() {
    let (mut work_queue, now) = (WorkQueue::default(), Instant::now());
    let (another, pause) = work_queue.fail(&pod("a"), "no".to_owned(), now);
    assert!(another && pause <= FIRST_PAUSE);
    assert!(work_queue.turn().is_none());
    work_queue.retry_due(now + pause);
    assert!(matches!(work_queue.turn(), Some(Turn::Suspects(keys)) if keys == [pod("a")]));

    let (another, longer) = work_queue.fail(&pod("a"), "no".to_owned(), now);
    assert!(!another && longer >= pause / 2 && work_queue.next_retry() == Some(now + longer));
    work_queue.mark(Item::whole(pod("a"), Cause::Rows), now);
    assert_eq!(work_queue.next_retry(), None);
    assert!(matches!(work_queue.turn(), Some(Turn::Suspects(keys)) if keys == [pod("a")]));
    assert!(work_queue.succeeded(&pod("a")) && !work_queue.succeeded(&pod("a")));
}

#[test]
fn a_contested_key_rests_whatever_happens_to_its_rows() {
    let (mut work_queue, now) = (WorkQueue::default(), Instant::now());
    let until = now + FIRST_PAUSE;
    work_queue.rest(&pod("a"), until);
    work_queue.mark(Item::whole(pod("a"), Cause::Rows), now);
    assert!(work_queue.turn().is_none());
    assert_eq!(work_queue.next_retry(), Some(until));
    work_queue.mark(Item::whole(pod("a"), Cause::Store), now);
    assert!(work_queue.turn().is_some(), "what it should have changed");
}

/// A change of its rows would have ended the wait, and nothing would have compared the key again.
#[test]
fn a_contested_key_that_waits_for_rows_is_not_forgotten_when_its_own_change() {
    let (mut work_queue, now) = (WorkQueue::default(), Instant::now());
    work_queue.rest(&pod("a"), now);
    work_queue.retry_due(now);
    assert!(matches!(work_queue.turn(), Some(Turn::Suspects(keys)) if keys == [pod("a")]));
    work_queue.wait(&pod("a"), &[Table::LogicalSwitch.row("n")]);
    work_queue.mark(Item::whole(pod("a"), Cause::Rows), now);
    assert!(matches!(work_queue.turn(), Some(Turn::Suspects(keys)) if keys == [pod("a")]));
    assert_eq!((work_queue.waiting(), work_queue.is_waited_for()), (0, false));
}

#[test]
fn a_key_that_changed_while_its_rows_were_refused_is_tried_without_a_pause() {
    let (mut work_queue, now) = (WorkQueue::default(), Instant::now());
    work_queue.fail(&pod("a"), "no".to_owned(), now);
    work_queue.mark(Item::whole(pod("a"), Cause::Store), now);
    work_queue.fail(&pod("a"), "no".to_owned(), now);
    assert_eq!((work_queue.dirty(), work_queue.next_retry()), (1, None));
    assert!(matches!(work_queue.turn(), Some(Turn::Suspects(keys)) if keys == [pod("a")]));
    assert_eq!(work_queue.dirty(), 0);
}

#[test]
fn suspects_and_others_take_turns() {
    let (mut work_queue, now) = (WorkQueue::default(), Instant::now());
    work_queue.suspect(vec![pod("a")]);
    work_queue.suspect(vec![pod("b")]);
    work_queue.mark(Item::whole(pod("c"), Cause::Rows), now);
    work_queue.mark(Item::whole(pod("a"), Cause::Rows), now);
    assert!(matches!(work_queue.turn(), Some(Turn::Suspects(keys)) if keys == [pod("a")]));
    assert!(matches!(work_queue.turn(), Some(Turn::Dirty)));
    assert_eq!(drain(&mut work_queue), [pod("c")]);
    assert!(matches!(work_queue.turn(), Some(Turn::Suspects(keys)) if keys == [pod("b")]));
    assert!(work_queue.turn().is_none());
}

#[test]
fn pauses_double_up_to_a_minute() {
    assert!(pause(0) >= FIRST_PAUSE / 2 && pause(0) <= FIRST_PAUSE);
    assert!((0..100).all(|times| pause(times) <= LONGEST_PAUSE));
    assert!(pause(50) >= LONGEST_PAUSE / 2);
}

#[test]
fn only_what_has_changed_is_timed_and_not_everything_after_a_reconnection() {
    let (mut work_queue, now) = (WorkQueue::default(), Instant::now());
    work_queue.mark(Item::whole(pod("a"), Cause::Everything), now);
    work_queue.mark(Item::whole(pod("b"), Cause::Everything), now);
    work_queue.mark(Item::whole(pod("b"), Cause::Store), now);
    assert_eq!(drain(&mut work_queue), [pod("b"), pod("a")]);
    assert_eq!((work_queue.settled(&pod("a")), work_queue.settled(&pod("b"))), (None, Some(now)));
}

#[test]
fn what_has_changed_comes_before_everything_that_is_only_looked_at() {
    let (mut work_queue, now) = (WorkQueue::default(), Instant::now());
    for key in [node("n"), pod("a"), pod("b"), pod("c")] {
        work_queue.mark(Item::whole(key, Cause::Everything), now);
    }
    work_queue.mark(Item::whole(pod("c"), Cause::Store), now);
    work_queue.mark(Item::whole(pod("d"), Cause::Store), now);
    work_queue.mark(Item::whole(pod("b"), Cause::Rows), now);
    assert_eq!(drain(&mut work_queue), [pod("c"), pod("d"), node("n"), pod("a"), pod("b")]);
    assert!(work_queue.turn().is_none());
}

#[test]
fn parts_of_a_key_add_up_and_a_key_that_may_be_wrong_is_compared_as_a_whole() {
    let (mut work_queue, now) = (WorkQueue::default(), Instant::now());
    let part = |last: u8| Scope::part(Part::Address([10, 0, 0, last].into()));
    let item = |scope: Scope, cause: Cause| Item { key: pod("a"), scope, cause };
    let both =
        Scope::Parts(Box::new([1, 2].map(|last| Part::Address([10, 0, 0, last].into())).into()));
    work_queue.mark(item(part(1), Cause::Rows), now);
    work_queue.mark(item(part(2), Cause::Store), now);
    assert_eq!(work_queue.pop(), Some(item(both, Cause::Store)));

    work_queue.mark(item(part(1), Cause::Store), now);
    work_queue.mark(item(Scope::Whole, Cause::Rows), now);
    work_queue.mark(item(part(2), Cause::Store), now);
    assert_eq!(work_queue.pop(), Some(item(Scope::Whole, Cause::Store)));
    assert_eq!(work_queue.pop(), None);

    work_queue.wait(&pod("a"), &[Table::AddressSet.row("s")]);
    work_queue.mark(item(part(1), Cause::Store), now);
    assert_eq!(
        work_queue.pop(),
        Some(item(Scope::Whole, Cause::Store)),
        "its other rows are missing"
    );

    work_queue.fail(&pod("a"), "no".to_owned(), now);
    work_queue.mark(item(part(1), Cause::Store), now);
    assert!(matches!(work_queue.turn(), Some(Turn::Suspects(keys)) if keys == [pod("a")]));
}

/// A policy whose edits fill a transaction came before all pods, each time that it changed.
#[test]
fn a_policy_with_large_edits_that_changes_again_and_again_holds_up_no_pod() {
    let (mut work_queue, now) = (WorkQueue::default(), Instant::now());
    let policy = |name: &str| Key::Policy(contract::names::PolicyKey::new("ns", name).unwrap());
    work_queue.weigh(&policy("large"), LARGE);
    work_queue.weigh(&policy("small"), LARGE - 1);
    work_queue.weigh(&pod("a"), LARGE);
    let mut turns = Vec::new();
    for _ in 0..2 {
        for key in [policy("large"), pod("a"), policy("small")] {
            work_queue.mark(Item::whole(key, Cause::Store), now);
        }
        while let Some(turn) = work_queue.turn() {
            match turn {
                Turn::Dirty => turns.push(drain(&mut work_queue)),
                Turn::Apart(item) => turns.push(vec![item.key]),
                Turn::Suspects(_) => panic!("none failed"),
            }
        }
    }
    let others = vec![policy("small"), pod("a")];
    assert_eq!(turns, [others.clone(), vec![policy("large")], others, vec![policy("large")]]);
    assert!(work_queue.turn().is_none() && work_queue.dirty() == 0);
    // As soon as its edits are small again, it is as any other.
    work_queue.weigh(&policy("large"), 1);
    work_queue.mark(Item::whole(policy("large"), Cause::Store), now);
    assert_eq!(drain(&mut work_queue), [policy("large")]);
}

/// Two hundred Services with rows for each of 500 nodes took three seconds, and a pod's network
/// came after them.
#[test]
fn a_pod_came_after_all_services_that_were_dirty_before_it() {
    let (mut work_queue, now) = (WorkQueue::default(), Instant::now());
    let service = |number: usize| {
        Key::Service(contract::names::ServiceKey::new("ns", &format!("s{number}")).unwrap())
    };
    for key in (0..200).map(service).chain([pod("a"), pod("b")]) {
        work_queue.mark(Item::whole(key, Cause::Rows), now);
    }
    let order = drain(&mut work_queue);
    assert_eq!(order[..4], [pod("a"), service(0), pod("b"), service(1)]);
    // And the other way round.
    for key in (0..200).map(|number| pod(&format!("p{number}"))).chain([service(0)]) {
        work_queue.mark(Item::whole(key, Cause::Rows), now);
    }
    assert!(drain(&mut work_queue)[..2].contains(&service(0)));
}
