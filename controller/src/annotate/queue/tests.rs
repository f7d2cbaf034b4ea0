use std::{collections::BTreeMap, time::Duration};

use contract::names::PodKey;

use super::*;
use crate::api_server::{Kind, Trouble};

fn wish(name: &str, value: &str) -> Annotations {
    let object = Object::Pod(PodKey::new("shop", name).unwrap());
    Annotations { object, uid: "u".into(), values: BTreeMap::from([("a", value.to_owned())]) }
}

fn trouble(retry_after: Option<u64>) -> Trouble {
    Trouble { retry_after: retry_after.map(Duration::from_secs), ..Trouble::without_answer(Kind::Unavailable, "no".to_owned()) }
}

fn of(queue: &mut Queue, names: impl IntoIterator<Item = usize>) {
    names.into_iter().for_each(|n| queue.wish(wish(&format!("p{n}"), "1")));
}

fn all(queue: &mut Queue, now: Instant) -> Vec<Arc<Annotations>> {
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
        queue.answered(&lost, &Outcome::Unavailable(trouble(None)), now);
    }
    for _ in 0..10 {
        let at = queue.next_at().unwrap();
        assert!(at > now && at <= now + Duration::from_secs(8), "{:?}", at - now);
        now = at;
        let asked = all(&mut queue, now);
        assert_eq!(asked.len(), 1);
        queue.answered(&asked[0], &Outcome::Unavailable(trouble(None)), now);
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
