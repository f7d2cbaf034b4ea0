//! Intervals of keys. A caller has the first and the last key of each; the kernel has a first key,
//! and one that is no more in it.

use super::{Elements, listed::Element};

/// The key after this one, as a number of so many bytes. The last of all has none: it stays.
pub(super) fn after(key: &[u8]) -> Vec<u8> {
    let mut next = key.to_vec();
    for byte in next.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            return next;
        }
    }
    key.to_vec()
}

fn before(key: &[u8]) -> Vec<u8> {
    let mut previous = key.to_vec();
    for byte in previous.iter_mut().rev() {
        let borrows = *byte == 0;
        *byte = byte.wrapping_sub(1);
        if !borrows {
            break;
        }
    }
    previous
}

/// Intervals from what the kernel lists in any order: an element for each start and for each end.
/// `None` if a start or an end is alone.
pub(super) fn paired(mut listed: Vec<Element>) -> Option<Elements> {
    // An interval may end where another one starts.
    listed.sort_unstable_by(|one, other| {
        one.key.cmp(&other.key).then(other.ends_interval.cmp(&one.ends_interval))
    });
    let (pairs, rest) = listed.as_chunks::<2>();
    let interval = |[start, end]: &[Element; 2]| {
        (!start.ends_interval && end.ends_interval).then(|| (start.key.clone(), before(&end.key)))
    };
    if rest.is_empty() { pairs.iter().map(interval).collect() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(key: [u8; 2], ends_interval: bool) -> Element {
        Element { key: key.into(), value: Vec::new(), ends_interval }
    }

    #[test]
    fn the_key_after_the_last_of_a_byte_carries() {
        for (key, next) in [([1, 2], [1, 3]), ([1, 255], [2, 0]), ([0, 255], [1, 0])] {
            assert_eq!(after(&key), next);
            assert_eq!(before(&next), key);
        }
        assert_eq!(after(&[255, 255]), [255, 255]);
    }

    #[test]
    fn intervals_that_touch_are_two() {
        let listed = vec![
            element([0, 9], true),
            element([0, 5], false),
            element([0, 5], true),
            element([0, 1], false),
        ];
        let wanted =
            Elements::from([([0, 1].into(), [0, 4].into()), ([0, 5].into(), [0, 8].into())]);
        assert_eq!(paired(listed), Some(wanted));
    }

    #[test]
    fn half_an_interval_is_none() {
        assert_eq!(paired(vec![element([0, 1], false)]), None);
        assert_eq!(paired(vec![element([0, 1], true), element([0, 2], false)]), None);
    }
}
