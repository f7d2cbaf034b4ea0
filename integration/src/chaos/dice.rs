//! Random numbers that a seed reproduces: SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom
//! number generators").

use std::time::{SystemTime, UNIX_EPOCH};

/// A source of decisions.
#[derive(Debug, Clone)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Another source, for another thread.
    pub(super) fn fork(&mut self) -> Self {
        Self(self.next())
    }

    /// A number below `limit`; 0 if that is 0.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit).expect("a count fits into 64 bits").max(1);
        usize::try_from(self.next() % limit).expect("less than a count is one")
    }

    /// True once in `times`.
    pub(super) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// From 0 to 1, both included.
    pub(super) fn fraction(&mut self) -> f64 {
        // 2^32 values are exact, and fine enough for a pause.
        f64::from(u32::try_from(self.next() >> 32).expect("32 bits")) / f64::from(u32::MAX)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// A seed from the clock, for a run without `--seed`.
pub(super) fn seed_of_the_clock() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (u64::from(now.subsec_nanos()) << 8) ^ now.as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_the_same_decisions_again_and_its_forks_differ() {
        let throw = |mut dice: Dice| (0..50).map(|_| dice.below(6)).collect::<Vec<_>>();
        assert_eq!(throw(Dice::new(7)), throw(Dice::new(7)));
        assert_ne!(throw(Dice::new(7)), throw(Dice::new(8)));
        let mut seeds = Dice::new(7);
        assert_ne!(throw(seeds.fork()), throw(seeds.fork()));
        assert!((0..6).all(|side| throw(Dice::new(7)).contains(&side)));
    }

    #[test]
    fn a_fraction_is_between_nothing_and_one() {
        let mut dice = Dice::new(1);
        assert!((0..1000).map(|_| dice.fraction()).all(|fraction| (0.0..=1.0).contains(&fraction)));
    }
}
