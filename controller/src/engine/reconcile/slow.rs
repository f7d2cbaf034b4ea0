//! The object whose rows take long to compare. Meanwhile all others wait.

use std::time::Duration;

use crate::key::Key;

/// A comparison takes microseconds, and milliseconds of an object at its limits. Of one that takes
/// so long a limit is missing.
const SLOW: Duration = Duration::from_secs(1);

/// The last such object, until it is compared in less time.
#[derive(Debug, Default)]
pub(crate) struct SlowKey(Option<(Key, Duration)>);

impl SlowKey {
    /// The rows of the key were compared.
    pub(crate) fn compared(&mut self, key: &Key, took: Duration) {
        if took >= SLOW {
            tracing::warn!(%key, ?took, "comparing the rows of this object takes long, and all others wait meanwhile");
            self.0 = Some((key.clone(), took));
        } else if self.0.as_ref().is_some_and(|(slow, _)| slow == key) {
            self.0 = None;
        }
    }

    /// The object and its time, for `/readyz`.
    pub(crate) fn report(&self) -> Option<String> {
        let (key, took) = self.0.as_ref()?;
        Some(format!("slow object: {key}, {:.1} s to compare its rows", took.as_secs_f64()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_takes_more_than_a_second_is_named_until_it_takes_less() {
        let [one, other] = ["one", "other"].map(|name| Key::Isolation(name.into()));
        let mut slow = SlowKey::default();
        slow.compared(&one, Duration::from_millis(999));
        assert_eq!(slow.report(), None);
        slow.compared(&one, Duration::from_millis(1500));
        slow.compared(&other, Duration::from_millis(1));
        assert_eq!(slow.report(), Some(format!("slow object: {one}, 1.5 s to compare its rows")));
        slow.compared(&one, Duration::from_millis(1));
        assert_eq!(slow.report(), None);
    }
}
