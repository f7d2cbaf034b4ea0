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

/// `blamed`: indexes of the keys that the server's answer is about; none if it names no operation.
pub(crate) fn bisect<T>(keys: Vec<T>, blamed: &[usize]) -> Bisection<T> {
    let blamed: BTreeSet<usize> = blamed.iter().copied().collect();
    // A key that was alone is at fault, whatever the answer is about.
    let is_blamed = |place: usize, all: usize| all == 1 || blamed.contains(&place);
    let all = keys.len();
    if all > 1 && (blamed.is_empty() || blamed.len() == all) {
        // The answer narrows nothing down: try either half.
        let mut first = keys;
        let second = first.split_off(all / 2);
        return Bisection::Suspects { groups: vec![first, second], innocent: Vec::new() };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_a_refused_operation_are_tried_apart_from_the_others() {
        let one = bisect(vec!["a", "b", "c"], &[1, 1]);
        assert_eq!(one, Bisection::Found { at_fault: "b", innocent: vec!["a", "c"] });
        let two = bisect(vec!["a", "b", "c"], &[2, 0]);
        assert_eq!(two, Bisection::Suspects { groups: vec![vec!["a", "c"]], innocent: vec!["b"] });
    }

    /// Neither half is at fault before it was tried, even if it has one key.
    #[test]
    fn an_answer_that_names_nothing_or_everything_halves_the_keys() {
        for blamed in [&[][..], &[0, 1, 2]] {
            let groups = vec![vec!["a"], vec!["b", "c"]];
            assert_eq!(bisect(vec!["a", "b", "c"], blamed), Bisection::Suspects { groups, innocent: vec![] });
        }
    }

    #[test]
    fn a_key_that_was_alone_is_at_fault() {
        for blamed in [&[][..], &[0]] {
            assert_eq!(bisect(vec!["a"], blamed), Bisection::Found { at_fault: "a", innocent: vec![] });
        }
    }
}
