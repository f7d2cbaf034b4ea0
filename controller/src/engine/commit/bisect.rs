//! Narrows down which keys of a refused transaction are at fault. Pure.

use std::collections::BTreeSet;

/// The keys of a refused transaction.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Bisection<T> {
    /// One key is at fault, and the others are not.
    Found { at_fault: T, innocent: Vec<T> },
    /// Groups to try apart from each other, with at least one key at fault among them.
    Suspects { groups: Vec<Vec<T>>, innocent: Vec<T> },
}

/// The times of the first and the last event that a key follows from; none for a repair.
pub(crate) type Events<T> = Option<(T, T)>;

/// `blamed`: indexes of the keys that the server's answer is about; none if it names no operation.
/// `events`: those of a key. Halves part keys of one event only where no other cut is left.
pub(crate) fn bisect<T, Time: Ord + Copy>(
    mut keys: Vec<T>,
    blamed: &[usize],
    events: impl Fn(&T) -> Events<Time>,
) -> Bisection<T> {
    let blamed: BTreeSet<usize> = blamed.iter().copied().collect();
    // A key that was alone is at fault, whatever the answer is about.
    let is_blamed = |place: usize, all: usize| all == 1 || blamed.contains(&place);
    let all = keys.len();
    if all > 1 && (blamed.is_empty() || blamed.len() == all) {
        // The answer narrows nothing down: try either half.
        keys.sort_by_key(&events);
        let second = keys.split_off(cut(&keys.iter().map(events).collect::<Vec<_>>()));
        return Bisection::Suspects { groups: vec![keys, second], innocent: Vec::new() };
    }
    let (mut at_fault, mut innocent) = (Vec::new(), Vec::new());
    for (place, key) in keys.into_iter().enumerate() {
        if is_blamed(place, all) { at_fault.push(key) } else { innocent.push(key) }
    }
    match <[T; 1]>::try_from(at_fault) {
        Ok([at_fault]) => Bisection::Found { at_fault, innocent },
        Err(several) => Bisection::Suspects { groups: vec![several], innocent },
    }
}

/// The cut nearest to the middle that no event spans, of keys in the order of their events; the
/// middle if there is none.
fn cut<Time: Ord + Copy>(events: &[Events<Time>]) -> usize {
    let middle = events.len() / 2;
    let mut last = None;
    let mut between = Vec::new();
    for (place, pair) in events.windows(2).enumerate() {
        last = last.max(pair[0].map(|(_, last)| last));
        if last.is_none() || pair[1].is_some_and(|(first, _)| last < Some(first)) {
            between.push(place + 1);
        }
    }
    between.into_iter().min_by_key(|place| place.abs_diff(middle)).unwrap_or(middle)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repairs(_: &&str) -> Events<u8> {
        None
    }

    #[test]
    fn the_keys_of_a_refused_operation_are_tried_apart_from_the_others() {
        let one = bisect(vec!["a", "b", "c"], &[1, 1], repairs);
        assert_eq!(one, Bisection::Found { at_fault: "b", innocent: vec!["a", "c"] });
        let two = bisect(vec!["a", "b", "c"], &[2, 0], repairs);
        assert_eq!(two, Bisection::Suspects { groups: vec![vec!["a", "c"]], innocent: vec!["b"] });
    }

    /// Neither half is at fault before it was tried, even if it has one key.
    #[test]
    fn an_answer_that_names_nothing_or_everything_halves_the_keys() {
        for blamed in [&[][..], &[0, 1, 2]] {
            let groups = vec![vec!["a"], vec!["b", "c"]];
            assert_eq!(
                bisect(vec!["a", "b", "c"], blamed, repairs),
                Bisection::Suspects { groups, innocent: vec![] }
            );
        }
    }

    #[test]
    fn a_key_that_was_alone_is_at_fault() {
        for blamed in [&[][..], &[0]] {
            assert_eq!(
                bisect(vec!["a"], blamed, repairs),
                Bisection::Found { at_fault: "a", innocent: vec![] }
            );
        }
    }

    /// A pod's port in its groups without its address in the sets may open what neither the state
    /// before nor the one after opens.
    #[test]
    fn keys_of_one_event_stay_together() {
        let halves = |keys: &[Events<u8>]| {
            let keys: Vec<_> = keys.iter().copied().enumerate().collect();
            let Bisection::Suspects { groups, .. } = bisect(keys, &[], |(_, events)| *events)
            else {
                panic!("several keys are no fault of one");
            };
            groups
                .into_iter()
                .map(|group| group.into_iter().map(|(key, _)| key).collect())
                .collect::<Vec<Vec<usize>>>()
        };
        let (one, two, three) = (Some((1, 1)), Some((2, 2)), Some((3, 3)));
        assert_eq!(halves(&[two, one, two, one, two]), [vec![1, 3], vec![0, 2, 4]]);
        assert_eq!(halves(&[one, two, two, two]), [vec![0], vec![1, 2, 3]]);
        // The second key follows from the first two events, so all three keys of these go together.
        assert_eq!(halves(&[one, Some((1, 2)), two, three]), [vec![0, 1, 2], vec![3]]);
        assert_eq!(halves(&[None, one, one, one]), [vec![0], vec![1, 2, 3]]);
        // Nothing else is left.
        assert_eq!(halves(&[one, one, one]), [vec![0], vec![1, 2]]);
    }
}
