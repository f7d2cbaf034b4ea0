//! Runs a list of items on many workers at once, and rotates the order in which contestants take turns.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};

use super::floor::milliseconds;

/// Runs `work` on every item; each worker takes the next item as soon as it has finished one. Returns the
/// wall time in milliseconds and the results in the order of the items.
pub(crate) fn closed_loop<W: Send, T: Sync, R: Send>(
    workers: &mut [W],
    items: &[T],
    work: impl Fn(&mut W, &T) -> R + Sync,
) -> (f64, Vec<R>) {
    let next = AtomicUsize::new(0);
    let ready = Barrier::new(workers.len() + 1);
    let (next, ready, work) = (&next, &ready, &work);
    thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter_mut()
            .map(|worker| {
                scope.spawn(move || {
                    ready.wait();
                    let turns = std::iter::from_fn(|| {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        Some((index, items.get(index)?))
                    });
                    turns.map(|(index, item)| (index, work(worker, item))).collect::<Vec<_>>()
                })
            })
            .collect();
        // The barrier releases all workers at once: the time to start the threads is outside the measurement.
        ready.wait();
        let began = Instant::now();
        let results = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        let mut results: Vec<(usize, R)> = results.flatten().collect();
        let wall = milliseconds(began.elapsed());
        results.sort_by_key(|(index, _)| *index);
        (wall, results.into_iter().map(|(_, result)| result).collect())
    })
}

/// The same list, starting at another item, so that each contestant comes first in some round.
pub(crate) fn rotated<T: Clone>(list: &[T], turn: impl TryInto<usize>) -> Vec<T> {
    let mut list = list.to_vec();
    if !list.is_empty() {
        let turn = turn.try_into().unwrap_or_default() % list.len();
        list.rotate_left(turn);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_worked_on_once_and_results_keep_their_order() {
        let items: Vec<usize> = (0..100).collect();
        let (_, results) = closed_loop(&mut [0, 0, 0], &items, |done, item| {
            *done += 1;
            item * 2
        });
        assert_eq!(results, items.iter().map(|item| item * 2).collect::<Vec<_>>());
    }

    #[test]
    fn everybody_is_first_in_turn() {
        assert_eq!(
            [0, 1, 2].map(|turn: usize| rotated(&['a', 'b'], turn)),
            [['a', 'b'], ['b', 'a'], ['a', 'b']]
        );
        assert!(rotated(&[] as &[char], 3).is_empty());
    }
}
