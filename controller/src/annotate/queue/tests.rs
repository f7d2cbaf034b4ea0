//! The order, number and retries of requests, without an API server.

use std::{collections::BTreeMap, time::Duration};

use contract::names::PodKey;
use kubeapi::{Kind, Trouble};

use crate::annotate::{Annotations, Only};

use super::*;

fn wish(name: &str, value: &str) -> Annotations {
    let object = Object::Pod(PodKey::new("shop", name).unwrap());
    Annotations {
        object,
        uid: "u".into(),
        values: BTreeMap::from([("a", value.to_owned())]),
        only: Only::Always,
    }
}

fn trouble(retry_after: Option<u64>) -> Trouble {
    Trouble {
        retry_after: retry_after.map(Duration::from_secs),
        ..Trouble::without_answer(Kind::Unavailable, "no".to_owned())
    }
}

fn of(queue: &mut Queue<Annotations>, names: impl IntoIterator<Item = usize>) {
    names.into_iter().for_each(|n| queue.wish(wish(&format!("p{n}"), "1")));
}

fn all(queue: &mut Queue<Annotations>, now: Instant) -> Vec<Arc<Annotations>> {
    std::iter::from_fn(|| queue.next(now)).collect()
}

#[test]
fn many_are_under_way_and_each_answer_makes_room_for_another() {
    let (mut queue, now) = (Queue::new(), Instant::now());
    of(&mut queue, 0..1000);
    let first = all(&mut queue, now);
    assert_eq!((first.len(), queue.next_at()), (MOST, None));
    queue.answered(&first[0], &Outcome::Written, now);
    assert_eq!((all(&mut queue, now).len(), queue.len()), (1, 999));
}

/// After a start with thousands of pods it kept the memory of all of them.
#[test]
fn a_queue_that_is_empty_again_is_small() {
    let (mut queue, now) = (Queue::new(), Instant::now());
    of(&mut queue, 0..20_000);
    while let Some(wish) = queue.next(now) {
        queue.answered(&wish, &Outcome::Written, now);
    }
    assert_eq!(queue.len(), 0);
    let (objects, ready) = (queue.objects.capacity(), queue.ready.capacity());
    assert!(objects.max(ready) <= 2 * KEPT, "room for {objects} objects, {ready} of them ready");
}

#[test]
fn an_object_has_one_request_under_way_and_its_newest_wish_wins() {
    let (mut queue, now) = (Queue::new(), Instant::now());
    queue.wish(wish("p", "1"));
    let first = queue.next(now).unwrap();
    queue.wish(wish("p", "2"));
    queue.wish(wish("p", "3"));
    assert_eq!(queue.next(now), None);
    queue.answered(&first, &Outcome::Gone, now);
    let second = queue.next(now).unwrap();
    assert_eq!(second.values["a"], "3");
    queue.answered(&second, &Outcome::Written, now);
    assert_eq!((queue.next(now), queue.len()), (None, 0));
}

#[test]
fn an_api_server_with_too_much_to_do_gets_less_for_as_long_as_it_wants_and_then_slowly_more() {
    let (mut queue, now) = (Queue::new(), Instant::now());
    of(&mut queue, 0..1000);
    let first = all(&mut queue, now);
    queue.answered(&first[0], &Outcome::Overloaded(trouble(Some(3))), now);
    for answered in &first[1..] {
        queue.answered(answered, &Outcome::Written, now);
    }
    assert_eq!(queue.next(now + Duration::from_millis(2900)), None);
    let again = queue.next_at().unwrap();
    assert!(again >= now + Duration::from_secs(3), "{:?}", again - now);
    let next = queue.next(again).unwrap();
    assert_eq!(next.object, first[0].object, "what was refused is first");
    queue.answered(&next, &Outcome::Overloaded(trouble(Some(1))), again);
    assert_eq!(queue.most, MOST / 2);
    let again = queue.next_at().unwrap();
    assert_eq!(all(&mut queue, again).len(), MOST / 2);
}

#[test]
fn an_api_server_that_is_away_is_asked_by_one_and_by_all_once_it_is_back() {
    let (mut queue, mut now) = (Queue::new(), Instant::now());
    of(&mut queue, 0..1000);
    for lost in all(&mut queue, now) {
        queue.answered(&lost, &Outcome::Silent(trouble(None)), now);
    }
    for _ in 0..10 {
        let at = queue.next_at().unwrap();
        assert!(at > now && at <= now + Duration::from_secs(8), "{:?}", at - now);
        now = at;
        let asked = all(&mut queue, now);
        assert_eq!(asked.len(), 1);
        queue.answered(&asked[0], &Outcome::Silent(trouble(None)), now);
    }
    now = queue.next_at().unwrap();
    let mut answers = 0;
    while queue.len() > 0 {
        let asked = all(&mut queue, now);
        assert!(!asked.is_empty() && asked.len() <= MOST);
        answers += asked.len();
        asked.iter().for_each(|asked| queue.answered(asked, &Outcome::Written, now));
    }
    assert_eq!((answers, queue.most), (1000, MOST));
}

#[test]
fn one_that_is_refused_waits_alone_and_for_ever() {
    let (mut queue, mut now) = (Queue::new(), Instant::now());
    of(&mut queue, 0..3);
    for _ in 0..20 {
        let refused = queue.next(now).unwrap();
        queue.answered(&refused, &Outcome::Refused(trouble(None)), now);
        for other in all(&mut queue, now) {
            queue.answered(&other, &Outcome::Written, now);
        }
        assert_eq!((queue.len(), queue.next(now)), (1, None));
        now = queue.next_at().unwrap();
    }
}

fn begun(
    queue: &mut Queue<Annotations>,
    names: impl IntoIterator<Item = usize>,
    now: Instant,
) -> Vec<Arc<Annotations>> {
    of(queue, names);
    all(queue, now)
}

/// A webhook that refuses one pod, or a role that is missing in one namespace, kept every new pod
/// of the cluster waiting.
#[test]
fn one_that_always_fails_keeps_no_other_waiting_whatever_the_failure_is() {
    let failures = [Outcome::Refused, Outcome::Overloaded, Outcome::Silent];
    for fail in failures {
        let (mut queue, mut now) = (Queue::new(), Instant::now());
        queue.wish(wish("broken", "1"));
        let mut waited = Duration::ZERO;
        for new in 0..50 {
            // It is retried alone.
            for _ in 0..10 {
                now = queue.next_at().unwrap_or(now);
                let broken = queue.next(now).unwrap();
                assert_eq!(broken.object.name(), "broken");
                queue.answered(&broken, &fail(trouble(None)), now);
            }
            of(&mut queue, [new]);
            let since = now;
            let mut pauses = 0;
            loop {
                now = queue.next_at().unwrap_or(now);
                let asked = queue.next(now).unwrap();
                let is_new = asked.object.name() != "broken";
                queue.answered(
                    &asked,
                    &if is_new { Outcome::Written } else { fail(trouble(None)) },
                    now,
                );
                if is_new {
                    break;
                }
                pauses += 1;
                assert!(pauses < 2, "{fail:?}");
            }
            waited = waited.max(now - since);
        }
        if matches!(fail(trouble(None)), Outcome::Refused(_)) {
            assert_eq!(
                waited,
                Duration::ZERO,
                "an API server that answers is asked at once for others"
            );
        }
    }
}

#[test]
fn repetitions_leave_room_for_others() {
    let (mut queue, mut now) = (Queue::new(), Instant::now());
    let failing = begun(&mut queue, 0..MOST, now);
    for (place, failing) in failing.iter().enumerate() {
        // Writes in between show that only these pods are refused.
        queue.answered(failing, &Outcome::Refused(trouble(None)), now);
        if place % 8 == 0 {
            let fine = begun(&mut queue, [1000 + place], now);
            fine.iter().for_each(|fine| queue.answered(fine, &Outcome::Written, now));
        }
    }
    now += Duration::from_secs(10);
    assert_eq!(all(&mut queue, now).len(), MOST / REPETITIONS);
    assert_eq!(begun(&mut queue, 2000..3000, now).len(), MOST - MOST / REPETITIONS);
}

/// While an API server has no database, the pods of a large cluster must not all be retried every
/// few seconds.
#[test]
fn an_api_server_that_refuses_everything_is_asked_slowly_and_for_new_objects_at_once() {
    let (mut queue, mut now) = (Queue::new(), Instant::now());
    of(&mut queue, 0..1000);
    let mut asked = 0;
    while let Some(refused) = queue.next(now) {
        queue.answered(&refused, &Outcome::Refused(trouble(None)), now);
        asked += 1;
    }
    assert_eq!((asked, queue.standing()), (1000, Standing::Refusing));
    // Each was sent once; retries go one after the other.
    let end = now + Duration::from_secs(60);
    let mut repeated = 0;
    while now < end {
        now = queue.next_at().unwrap();
        for refused in all(&mut queue, now) {
            queue.answered(&refused, &Outcome::Refused(trouble(None)), now);
            repeated += 1;
        }
    }
    assert!(repeated < 60, "{repeated} in a minute");
    let new = begun(&mut queue, [5000], now);
    assert_eq!(new.len(), 1);
    queue.answered(&new[0], &Outcome::Written, now);
    assert_eq!(queue.standing(), Standing::Well);
}

/// One request runs into its deadline because of its webhook.
#[test]
fn silence_about_one_object_is_no_silence_while_others_are_answered() {
    let (mut queue, now) = (Queue::new(), Instant::now());
    let both = begun(&mut queue, 0..2, now);
    queue.answered(&both[1], &Outcome::Written, now + Duration::from_secs(1));
    queue.answered(&both[0], &Outcome::Silent(trouble(None)), now + Duration::from_secs(30));
    assert_eq!((queue.standing(), queue.most), (Standing::Well, MOST));
    let now = now + Duration::from_secs(30);
    assert_eq!(begun(&mut queue, 2..3, now).len(), 1);
}
