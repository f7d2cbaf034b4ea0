//! A list that mostly has one element, which is stored inline, without an allocation; and maps that
//! mostly have few entries.

use std::{borrow::Borrow, collections::HashMap, hash::Hash, ops::Deref, slice};

/// Entries for which an empty map or queue keeps its memory. At the start it may have one for each
/// object, some megabytes in a large cluster; afterwards some dozens. A much smaller value would
/// allocate it again in each burst.
pub(crate) const KEPT: usize = 1024;

/// Gives back the memory of a map that has become empty.
pub(crate) fn give_back<K: Eq + Hash, V>(map: &mut HashMap<K, V>) {
    if map.is_empty() && map.capacity() > KEPT {
        map.shrink_to(KEPT);
    }
}

/// Removes an element from the list of a key, and the list with its last element.
pub(crate) fn leave<K, Q, E>(lists: &mut HashMap<K, Few<E>>, key: &Q, element: &E)
where
    K: Borrow<Q> + Eq + Hash,
    Q: Eq + Hash + ?Sized,
    E: PartialEq,
{
    if let Some(list) = lists.get_mut(key) {
        list.remove(element);
        if list.is_empty() {
            lists.remove(key);
        }
    }
}

/// A list that reads as a slice. It is sorted if it is filled by [`insert`](Self::insert) alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Few<T> {
    One(T),
    /// Any number of elements. A list that shrinks to one element stays `Many`.
    Many(Vec<T>),
}

impl<T> Few<T> {
    pub(crate) fn push(&mut self, element: T) {
        *self = match std::mem::take(self) {
            Self::One(first) => Self::Many(vec![first, element]),
            Self::Many(all) if all.is_empty() => Self::One(element),
            Self::Many(mut all) => {
                all.push(element);
                Self::Many(all)
            }
        };
    }

    /// Removes the element, and returns whether it was present.
    pub(crate) fn remove(&mut self, element: &T) -> bool
    where
        T: PartialEq,
    {
        match self {
            Self::One(first) if first == element => *self = Self::default(),
            Self::One(_) => return false,
            Self::Many(all) => {
                let Some(place) = all.iter().position(|other| other == element) else {
                    return false;
                };
                all.remove(place);
            }
        }
        true
    }

    /// Adds an element to a sorted list, which stays sorted and without duplicates.
    pub(crate) fn insert(&mut self, element: T)
    where
        T: Ord,
    {
        match self.binary_search(&element) {
            Ok(_) => {}
            // `push` stores a first element inline.
            Err(place) if place == self.len() => self.push(element),
            Err(place) => {
                let mut all = std::mem::take(self).into_vec();
                all.insert(place, element);
                *self = Self::Many(all);
            }
        }
    }

    fn into_vec(self) -> Vec<T> {
        match self {
            Self::One(first) => vec![first],
            Self::Many(all) => all,
        }
    }
}

impl<T> From<Vec<T>> for Few<T> {
    fn from(mut all: Vec<T>) -> Self {
        if all.len() > 1 {
            all.shrink_to_fit();
            return Self::Many(all);
        }
        all.pop().map_or_else(Self::default, Self::One)
    }
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl<T> Deref for Few<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::One(first) => slice::from_ref(first),
            Self::Many(all) => all,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_sorted_set(steps in prop::collection::vec((any::<bool>(), 0_u8..5), 0..20)) {
            let (mut few, mut set) = (Few::default(), BTreeSet::new());
            for (comes, element) in steps {
                if comes {
                    few.insert(element);
                    set.insert(element);
                } else {
                    prop_assert_eq!(few.remove(&element), set.remove(&element));
                }
                prop_assert_eq!(few.to_vec(), set.iter().copied().collect::<Vec<_>>());
            }
        }
    }
}
