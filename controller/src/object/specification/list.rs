//! Lists with a bound, of which the elements beyond are counted and not kept. Knows nothing of the
//! elements.

use std::{fmt, marker::PhantomData};

use contract::limits::NETWORK_POLICY_ELEMENTS;
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, SeqAccess, Visitor},
};

/// A list of at most as many elements as the matches of a policy may have. What is beyond it could
/// not be used in any case.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Bounded<T> {
    pub(crate) elements: Vec<T>,
    /// With those that are not kept.
    pub(crate) count: usize,
}

/// The same without elements that equal the one before, each with its place in the list: a list of
/// 400,000 equal elements is one element.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Distinct<T> {
    pub(crate) elements: Vec<(usize, T)>,
    pub(crate) count: usize,
}

impl<T> Default for Bounded<T> {
    fn default() -> Self {
        Self { elements: Vec::new(), count: 0 }
    }
}

impl<T> Default for Distinct<T> {
    fn default() -> Self {
        Self { elements: Vec::new(), count: 0 }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Bounded<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (elements, count) = deserializer
            .deserialize_seq(Elements { is_like: |_: &T, _: &T| false, of: PhantomData })?;
        Ok(Self { elements: elements.into_iter().map(|(_, element)| element).collect(), count })
    }
}

impl<'de, T: Deserialize<'de> + PartialEq> Deserialize<'de> for Distinct<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (elements, count) = deserializer.deserialize_seq(Elements {
            is_like: |one: &T, other: &T| one == other,
            of: PhantomData,
        })?;
        Ok(Self { elements, count })
    }
}

/// Leaves out an element that is like the one before.
struct Elements<T, F: Fn(&T, &T) -> bool> {
    is_like: F,
    of: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>, F: Fn(&T, &T) -> bool> Visitor<'de> for Elements<T, F> {
    /// The elements with their places, and how many there are.
    type Value = (Vec<(usize, T)>, usize);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut elements: Vec<(usize, T)> = Vec::new();
        let mut place = 0;
        while elements.len() < NETWORK_POLICY_ELEMENTS.most {
            let Some(element) = list.next_element()? else { break };
            if elements.last().is_none_or(|(_, before)| !(self.is_like)(before, &element)) {
                elements.push((place, element));
            }
            place += 1;
        }
        let mut count = elements.len();
        while list.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        elements.shrink_to_fit();
        Ok((elements, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_that_are_equal_are_one_and_places_are_those_of_the_list() {
        let read: Distinct<u8> = serde_json::from_str("[7,7,7,8,7]").unwrap();
        assert_eq!((read.elements, read.count), (vec![(0, 7), (3, 8), (4, 7)], 3));
        let read: Bounded<u8> = serde_json::from_str("[7,7,7,8,7]").unwrap();
        assert_eq!((read.elements, read.count), (vec![7, 7, 7, 8, 7], 5));
    }

    #[test]
    fn elements_beyond_the_bound_are_counted_and_not_kept() {
        let all: Vec<usize> = (0..NETWORK_POLICY_ELEMENTS.most + 5).collect();
        let read: Distinct<usize> =
            serde_json::from_str(&serde_json::to_string(&all).unwrap()).unwrap();
        assert_eq!((read.elements.len(), read.count), (NETWORK_POLICY_ELEMENTS.most, all.len()));
    }
}
