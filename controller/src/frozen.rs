//! A set that does not change once it is made.

use std::{ops::Deref, slice};

/// A sorted slice without duplicates. A `BTreeSet` has room for eleven elements from the first on;
/// thousands of policies have some small sets each.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrozenSet<T>(Box<[T]>);

impl<T: Ord> FromIterator<T> for FrozenSet<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        let mut all: Vec<T> = elements.into_iter().collect();
        all.sort_unstable();
        all.dedup();
        Self(all.into())
    }
}

impl<T> Default for FrozenSet<T> {
    fn default() -> Self {
        Self([].into())
    }
}

impl<T> Deref for FrozenSet<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<'a, T> IntoIterator for &'a FrozenSet<T> {
    type Item = &'a T;
    type IntoIter = slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_has_the_order_and_the_equality_of_a_set(of in any::<[Vec<u8>; 2]>()) {
            let frozen = of.clone().map(|elements| elements.into_iter().collect::<FrozenSet<u8>>());
            let sets = of.map(|elements| elements.into_iter().collect::<BTreeSet<u8>>());
            prop_assert_eq!(frozen[0].cmp(&frozen[1]), sets[0].cmp(&sets[1]));
            for (frozen, set) in frozen.iter().zip(&sets) {
                prop_assert!(frozen.iter().eq(set));
            }
        }
    }
}
