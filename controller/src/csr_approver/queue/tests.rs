use crate::csr_approver::request::Subject;

use super::*;

fn request(name: &str, user: &str) -> Request {
    Request {
        name: name.into(),
        uid: name.to_owned(),
        version: "1".to_owned(),
        is_open: true,
        user: user.to_owned(),
        groups: Vec::new(),
        nodes_of_token: Vec::new(),
        usages: Vec::new(),
        expiration_seconds: None,
        subject: Subject::Other { common_name: String::new() },
    }
}

/// The names of all that may be decided now.
fn ready(queue: &mut Queue, now: Instant) -> Vec<String> {
    std::iter::from_fn(|| match queue.next(now) {
        Next::Ready(request) => Some(request.name.to_string()),
        Next::At(_) | Next::Empty { .. } => None,
    })
    .collect()
}

#[tokio::test]
async fn requests_are_decided_in_their_order_and_once() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    for name in ["a", "b", "c"] {
        assert_eq!(queue.put(request(name, name), now), Queued::Waits);
    }
    // A newer version keeps the place; one that is decided leaves.
    queue.put(Request { version: "2".to_owned(), ..request("a", "a") }, now);
    queue.put(Request { is_open: false, ..request("b", "b") }, now);
    let Next::Ready(first) = queue.next(now) else { panic!("{queue:?}") };
    assert_eq!((&*first.name, first.version.as_str()), ("a", "2"));
    queue.remove("c");
    assert_eq!(queue.next(now), Next::Empty { left_out: 0 });
}

/// A node whose server starts again and again, or that is somebody else's by now.
#[tokio::test]
async fn one_users_flood_delays_nobody_else_and_is_left_out() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    let flood: Vec<Queued> =
        (0..10_000).map(|number| queue.put(request(&format!("x{number}"), "x"), now)).collect();
    assert_eq!(flood.iter().filter(|queued| **queued == Queued::Waits).count(), OF_ONE_USER);
    assert_eq!(flood.last(), Some(&Queued::TooManyOfUser));
    assert_eq!(queue.put(request("y", "y"), now), Queued::Waits);
    assert_eq!(ready(&mut queue, now), ["x0", "x1", "x2", "x3", "y"]);

    // It has used up its burst: the next one waits, others do not.
    for number in 0..3 {
        queue.put(request(&format!("z{number}"), "x"), now);
    }
    queue.put(request("w", "w"), now);
    assert_eq!(ready(&mut queue, now), ["w"]);
    assert_eq!(queue.next(now), Next::At(now + REFILL));
    assert_eq!(ready(&mut queue, now + REFILL), ["z0"]);
    assert_eq!(ready(&mut queue, now + 3 * REFILL), ["z1", "z2"]);
    let Next::Empty { left_out } = queue.next(now + 3 * REFILL) else { panic!("{queue:?}") };
    assert_eq!(left_out, 10_000 - u64::try_from(OF_ONE_USER).unwrap());
    queue.forgive();
    // Nothing is remembered of users that have been quiet.
    assert_eq!(queue.next(now + 20 * REFILL), Next::Empty { left_out: 0 });
    assert!(queue.users.is_empty());
}

#[tokio::test]
async fn the_queue_has_an_end_whoever_asks() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    for number in 0..LONGEST_QUEUE {
        let name = number.to_string();
        assert_eq!(queue.put(request(&name, &name), now), Queued::Waits);
    }
    assert_eq!(queue.put(request("late", "late"), now), Queued::TooMany);
    assert_eq!(queue.waiting.len(), LONGEST_QUEUE);
    // A list of all of them begins anew.
    queue.clear();
    assert_eq!(queue.put(request("late", "late"), now), Queued::Waits);
}

#[tokio::test]
async fn a_request_that_cannot_be_decided_yet_is_looked_at_later_unless_it_is_gone() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    queue.put(request("a", "a"), now);
    let Next::Ready(taken) = queue.next(now) else { panic!("{queue:?}") };
    let later = now + Duration::from_secs(10);
    queue.again(&taken, later);
    assert_eq!(queue.next(now), Next::At(later));
    queue.again(&taken, later);
    assert_eq!(ready(&mut queue, later), ["a"], "it is there once");
    queue.again(&taken, later);
    queue.remove("a");
    assert_eq!(ready(&mut queue, later), Vec::<String>::new());
}
