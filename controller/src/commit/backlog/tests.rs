//! Which key is next, and when.

use tokio::time::Instant;

use super::*;
use crate::rows::Table;

fn node(name: &str) -> Key {
    Key::Node(name.into())
}

fn pod(name: &str) -> Key {
    Key::Pod(contract::names::PodKey::new("ns", name).unwrap())
}

fn drain(backlog: &mut Backlog) -> Vec<Key> {
    std::iter::from_fn(|| backlog.pop()).map(|(key, _)| key).collect()
}

#[test]
fn what_others_need_comes_first_and_each_key_once() {
    let (mut backlog, now) = (Backlog::default(), Instant::now());
    for key in [pod("b"), node("n"), pod("a"), pod("b"), Key::Cluster] {
        backlog.mark(key, Cause::Rows, now);
    }
    assert_eq!(drain(&mut backlog), [Key::Cluster, node("n"), pod("b"), pod("a")]);
    assert!(backlog.turn().is_none());
}

#[test]
fn a_key_that_waits_goes_on_when_its_row_appears() {
    let (mut backlog, now) = (Backlog::default(), Instant::now());
    let (switch, other) = (Table::LogicalSwitch.row("n"), Table::LogicalSwitch.row("m"));
    backlog.wait(pod("a"), vec![switch.clone()]);
    backlog.appeared(&other, now);
    assert!(backlog.turn().is_none());
    backlog.appeared(&switch, now);
    assert_eq!(drain(&mut backlog), [pod("a")]);
    assert_eq!((backlog.waiting(), backlog.is_waited_for()), (0, false));
}

#[test]
fn a_refused_key_is_tried_alone_after_a_pause_or_as_soon_as_something_changes() {
    let (mut backlog, now) = (Backlog::default(), Instant::now());
    let (another, pause) = backlog.fail(pod("a"), "no".to_owned(), now);
    assert!(another && pause <= FIRST_PAUSE);
    assert!(backlog.turn().is_none());
    backlog.retry_due(now + pause);
    assert!(matches!(backlog.turn(), Some(Turn::Suspects(keys)) if keys == [pod("a")]));

    let (another, longer) = backlog.fail(pod("a"), "no".to_owned(), now);
    assert!(!another && longer >= pause / 2 && backlog.next_retry() == Some(now + longer));
    backlog.mark(pod("a"), Cause::Rows, now);
    assert_eq!(backlog.next_retry(), None);
    assert!(matches!(backlog.turn(), Some(Turn::Suspects(keys)) if keys == [pod("a")]));
    assert!(backlog.succeeded(&pod("a")) && !backlog.succeeded(&pod("a")));
}

#[test]
fn a_contested_key_rests_whatever_happens_to_its_rows() {
    let (mut backlog, now) = (Backlog::default(), Instant::now());
    let until = now + FIRST_PAUSE;
    backlog.rest(pod("a"), until);
    backlog.mark(pod("a"), Cause::Rows, now);
    assert!(backlog.turn().is_none());
    assert_eq!(backlog.next_retry(), Some(until));
    backlog.mark(pod("a"), Cause::Store, now);
    assert!(backlog.turn().is_some(), "what it should have changed");
}

#[test]
fn suspects_and_others_take_turns() {
    let (mut backlog, now) = (Backlog::default(), Instant::now());
    backlog.suspect(vec![pod("a")]);
    backlog.suspect(vec![pod("b")]);
    backlog.mark(pod("c"), Cause::Rows, now);
    backlog.mark(pod("a"), Cause::Rows, now);
    assert!(matches!(backlog.turn(), Some(Turn::Suspects(keys)) if keys == [pod("a")]));
    assert!(matches!(backlog.turn(), Some(Turn::Dirty)));
    assert_eq!(drain(&mut backlog), [pod("c")]);
    assert!(matches!(backlog.turn(), Some(Turn::Suspects(keys)) if keys == [pod("b")]));
    assert!(backlog.turn().is_none());
}

#[test]
fn pauses_double_up_to_a_minute() {
    assert!(pause(0) >= FIRST_PAUSE / 2 && pause(0) <= FIRST_PAUSE);
    assert!((0..100).all(|times| pause(times) <= LONGEST_PAUSE));
    assert!(pause(50) >= LONGEST_PAUSE / 2);
}

#[test]
fn only_what_has_changed_is_timed_and_not_everything_after_a_reconnection() {
    let (mut backlog, now) = (Backlog::default(), Instant::now());
    backlog.mark(pod("a"), Cause::Everything, now);
    backlog.mark(pod("b"), Cause::Everything, now);
    backlog.mark(pod("b"), Cause::Store, now);
    assert_eq!(drain(&mut backlog), [pod("b"), pod("a")]);
    assert_eq!((backlog.settled(&pod("a")), backlog.settled(&pod("b"))), (None, Some(now)));
}

#[test]
fn what_has_changed_comes_before_everything_that_is_only_looked_at() {
    let (mut backlog, now) = (Backlog::default(), Instant::now());
    for key in [node("n"), pod("a"), pod("b"), pod("c")] {
        backlog.mark(key, Cause::Everything, now);
    }
    backlog.mark(pod("c"), Cause::Store, now);
    backlog.mark(pod("d"), Cause::Store, now);
    backlog.mark(pod("b"), Cause::Rows, now);
    assert_eq!(drain(&mut backlog), [pod("c"), pod("d"), node("n"), pod("a"), pod("b")]);
    assert!(backlog.turn().is_none());
}
