//! Names of interfaces that ovs-vswitchd may know: those in Open vSwitch's database, and those that
//! were deleted there in the last ten seconds.

use std::{
    collections::{HashSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// How long ovs-vswitchd may take to notice that an interface is gone; it takes a second where
/// hundreds come and go. If this is too short, a new link of the same name may get the state of the
/// old one, and its pod no packet passes (docs/decisions/names-that-come-back.md). If it is longer,
/// only sandboxes that come back within that time pay: their plugins write their ports themselves.
const SIGHT: Duration = Duration::from_secs(10);

/// The names, for ADDs that are about to create a link.
#[derive(Debug, Default)]
pub(crate) struct Names(Mutex<NameSets>);

#[derive(Debug, Default)]
struct NameSets {
    there: HashSet<Box<str>>,
    /// Deleted names, the oldest first.
    gone: VecDeque<(Instant, Box<str>)>,
}

impl Names {
    /// `names` is the complete current set; all others count as deleted at `now`.
    pub(crate) fn are<'a>(&self, names: impl Iterator<Item = &'a str>, now: Instant) {
        let mut known = self.known();
        let there: HashSet<Box<str>> = names.map(Box::from).collect();
        let gone: Vec<_> = known.there.difference(&there).cloned().collect();
        known.there = there;
        // They went at an unknown time since the last look; counted from now, none is free too
        // early.
        known.gone.extend(gone.into_iter().map(|name| (now, name)));
    }

    pub(crate) fn comes(&self, name: &str) {
        self.known().there.insert(name.into());
    }

    pub(crate) fn goes(&self, name: &str, now: Instant) {
        let mut known = self.known();
        known.forget(now);
        if let Some(name) = known.there.take(name) {
            known.gone.push_back((now, name));
        }
    }

    /// Whether ovs-vswitchd may know an interface of this name.
    pub(crate) fn may_be_held(&self, name: &str, now: Instant) -> bool {
        let mut known = self.known();
        known.forget(now);
        known.there.contains(name) || known.gone.iter().any(|(_, gone)| **gone == *name)
    }

    fn known(&self) -> MutexGuard<'_, NameSets> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NameSets {
    fn forget(&mut self, now: Instant) {
        while self.gone.front().is_some_and(|(since, _)| now.duration_since(*since) > SIGHT) {
            self.gone.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_held_while_it_is_there_and_for_a_while_after() {
        let (names, start) = (Names::default(), Instant::now());
        assert!(!names.may_be_held("c0ffee", start));
        names.comes("c0ffee");
        names.comes("decaf");
        let long_after = start + 10 * SIGHT;
        assert!(names.may_be_held("c0ffee", long_after));
        names.goes("c0ffee", long_after);
        assert!(names.may_be_held("c0ffee", long_after + SIGHT));
        assert!(!names.may_be_held("c0ffee", long_after + SIGHT + Duration::from_millis(1)));
        assert!(names.may_be_held("decaf", long_after + 2 * SIGHT));
    }

    #[test]
    fn what_went_while_nobody_looked_went_now() {
        let (names, start) = (Names::default(), Instant::now());
        names.are(["c0ffee", "decaf"].into_iter(), start);
        names.are(["decaf", "tea"].into_iter(), start + 5 * SIGHT);
        for name in ["c0ffee", "decaf", "tea"] {
            assert!(names.may_be_held(name, start + 6 * SIGHT), "{name}");
        }
        assert!(!names.may_be_held("c0ffee", start + 7 * SIGHT));
        assert!(names.may_be_held("tea", start + 7 * SIGHT));
    }

    #[test]
    fn names_that_are_long_gone_take_no_room() {
        let (names, start) = (Names::default(), Instant::now());
        for second in 0..1000_u32 {
            let (name, now) = (format!("sandbox{second}"), start + Duration::from_secs(1) * second);
            names.comes(&name);
            names.goes(&name, now);
        }
        let known = names.known();
        assert!(known.there.is_empty() && known.gone.len() == 11, "{known:?}");
    }
}
