//! Pods come and go: one driver for all runs in which calls follow each other without end.
//!
//! A run consists of rounds. In a round all actors work at once, each on a thread of its own, until
//! their work or the time is over, or one of them fails. Between two rounds no call is under way;
//! then a run looks at the node.
//!
//! | run | actors | looks at |
//! |---|---|---|
//! | [`chaos`] | runtimes whose calls are killed; a destroyer of daemons | network and leftovers, after its one round |
//! | [`soak`] | callers that replace the oldest pods | every resource, after each round |
//! | `tests/model` | a player of random steps | links and rows, after each step |

use std::{
    ops::ControlFlow,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use anyhow::Result;
use fastrand::Rng;

use crate::{let_pass, threads};

pub mod chaos;
pub mod soak;

/// What makes calls or kills daemons, one turn after another.
pub trait Actor: Send {
    /// Takes a turn, and says whether there is another one.
    ///
    /// # Errors
    /// What ends the run.
    fn turn(&mut self) -> Result<ControlFlow<()>>;
}

/// Runs a round: all actors at once, until each is done or `end` has come. A failure ends the round
/// for all.
///
/// # Errors
/// The first failure, in the order of the actors. No actor works any more then.
pub fn round(actors: &mut [&mut dyn Actor], end: Option<Instant>) -> Result<()> {
    let failed = AtomicBool::new(false);
    let goes_on = || !failed.load(Ordering::Relaxed) && end.is_none_or(|end| Instant::now() < end);
    let work = |actor: &mut dyn Actor| {
        while goes_on() {
            match actor.turn() {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => break,
                Err(error) => {
                    failed.store(true, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
        Ok(())
    };
    threads::at_once(actors.iter_mut(), |actor| work(&mut **actor)).map(drop)
}

/// Lets a random time pass, `longest` at most: calls and kills meet at moments that nothing
/// announces.
fn pause_up_to(rng: &mut Rng, longest: Duration) {
    let_pass(longest.mul_f64(rng.f64_inclusive()));
}

/// True once in `times`.
fn once_in(rng: &mut Rng, times: usize) -> bool {
    rng.usize(..times) == 0
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    struct Counter {
        turns: usize,
        last: usize,
        fails: bool,
    }

    impl Actor for Counter {
        fn turn(&mut self) -> Result<ControlFlow<()>> {
            self.turns += 1;
            match (self.turns == self.last, self.fails) {
                (false, _) => Ok(ControlFlow::Continue(())),
                (true, false) => Ok(ControlFlow::Break(())),
                (true, true) => Err(anyhow!("at its end")),
            }
        }
    }

    #[test]
    fn actors_work_until_they_are_done_and_a_failure_ends_the_round_for_all() {
        let mut short = Counter { turns: 0, last: 3, fails: false };
        let mut long = Counter { turns: 0, last: 7, fails: false };
        round(&mut [&mut short, &mut long], None).unwrap();
        assert_eq!((short.turns, long.turns), (3, 7));
        let mut endless = Counter { turns: 0, last: usize::MAX, fails: false };
        let mut failing = Counter { turns: 0, last: 2, fails: true };
        let error = round(&mut [&mut endless, &mut failing], None).unwrap_err();
        assert_eq!(error.to_string(), "at its end");
    }

    #[test]
    fn a_round_ends_with_its_time() {
        let mut endless = Counter { turns: 0, last: usize::MAX, fails: false };
        round(&mut [&mut endless], Some(Instant::now() + Duration::from_millis(20))).unwrap();
        assert!(endless.turns > 0);
        round(&mut [&mut endless], Some(Instant::now())).unwrap();
    }

    #[test]
    fn a_seed_makes_the_same_decisions_again_and_its_forks_differ() {
        let decide = |mut rng: Rng| (0..50).map(|_| once_in(&mut rng, 3)).collect::<Vec<_>>();
        assert_eq!(decide(Rng::with_seed(7)), decide(Rng::with_seed(7)));
        assert_ne!(decide(Rng::with_seed(7)), decide(Rng::with_seed(8)));
        let mut seeds = Rng::with_seed(7);
        assert_ne!(decide(seeds.fork()), decide(seeds.fork()));
        assert!([true, false].iter().all(|outcome| decide(Rng::with_seed(7)).contains(outcome)));
    }
}
