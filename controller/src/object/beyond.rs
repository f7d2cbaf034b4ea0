//! How many objects are beyond a limit, by their kind. Knows neither objects nor limits.

use std::collections::BTreeMap;

/// The numbers. A kind of which one object was beyond a limit stays, with a number that may be
/// zero.
#[derive(Debug, Default)]
pub(crate) struct BeyondLimits(BTreeMap<&'static str, usize>);

/// Whether an object is beyond a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    WithinLimits,
    BeyondLimits,
}

impl Size {
    pub(crate) fn of(is_too_large: bool) -> Self {
        if is_too_large { Self::BeyondLimits } else { Self::WithinLimits }
    }
}

impl BeyondLimits {
    /// An object has changed from one size to another. One that is not there is within its limits.
    pub(crate) fn follow(&mut self, kind: &'static str, before: Size, now: Size) {
        match (before, now) {
            (Size::WithinLimits, Size::BeyondLimits) => *self.0.entry(kind).or_default() += 1,
            (Size::BeyondLimits, Size::WithinLimits) => {
                self.0.entry(kind).and_modify(|count| *count = count.saturating_sub(1));
            }
            (Size::WithinLimits, Size::WithinLimits) | (Size::BeyondLimits, Size::BeyondLimits) => {
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, usize)> {
        self.0.iter().map(|(kind, count)| (*kind, *count))
    }
}
