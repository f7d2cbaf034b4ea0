//! How the plugin's last ADD for a pod ended on this node, with the milliseconds of its stages, as
//! the plugin's log tells it.

use std::path::Path;

use contract::{
    names::PodKey,
    paths::{CALL_DONE, CALL_FAILED, PLUGIN_LOG},
};

use super::TIME_LINE;
use crate::{
    file_end,
    findings::{Finding, State},
};

/// The finding's name.
pub(super) const ADD: &str = "ADD";
/// Bytes of the log's end that are read: some thousand calls.
const READ: u64 = 1 << 20;

/// Nothing where the log says nothing of the pod: on another machine, or long ago.
pub(super) fn finding(pod: &PodKey) -> Option<Finding> {
    let text = file_end::read(Path::new(PLUGIN_LOG), READ).ok()?;
    let line = last(&text, pod)?;
    let (time, _) = line.split_once('|')?;
    let (_, outcome) = line.split_once("] ")?;
    let found = |state, said: &str| Finding::new(TIME_LINE, ADD, state, said);
    match outcome.strip_prefix(CALL_DONE) {
        Some(times) => Some(found(State::Ok, &format!("{time},{times}"))),
        None => {
            let next = format!("grep 'ADD {pod} ' {PLUGIN_LOG}");
            Some(found(State::Failed, &format!("{time}, {outcome}")).next(&next))
        }
    }
}

/// The last line about the end of an ADD for the pod.
fn last<'t>(text: &'t str, pod: &PodKey) -> Option<&'t str> {
    let call = format!("|[ADD {pod} ");
    let is_end = |line: &&str| {
        let outcome = line.split_once(&call).and_then(|(_, rest)| rest.split_once("] "));
        let ends = |text: &str| [CALL_DONE, CALL_FAILED].iter().any(|end| text.starts_with(end));
        outcome.is_some_and(|(_, text)| ends(text))
    };
    text.lines().rev().find(is_end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_end_of_an_add_for_this_pod_counts() {
        let line = |pod: &str, rest: &str| {
            format!(
                "2026-01-01T00:00:00.000Z|00001|run|INFO|[ADD {pod} sandbox=cf00 eth0] {rest}\n"
            )
        };
        let text = [
            line("shop/cart-1", "failed code=11 ms=1.1 stages=\"netns 0.1\" error=\"…\""),
            line("shop/cart-1", "done ms=33.1 stages=\"netns 0.1, veth 9\""),
            line("shop/cart-10", "failed code=11 ms=2.1 stages=\"\" error=\"…\""),
            line("shop/cart-1", "called container_id=cf00"),
        ]
        .concat();
        let found = |name| last(&text, &PodKey::new("shop", name).unwrap());
        assert!(found("cart-1").is_some_and(|line| line.contains("] done ms=33.1")));
        assert!(found("cart-10").is_some_and(|line| line.contains("] failed code=11 ms=2.1")));
        assert_eq!(found("cart-2"), None);
    }
}
