use contract::names::{Network, PodKey};

use super::*;

const PATIENCE: Duration = Duration::from_secs(30);

fn suspect(sandbox: &str, reason: Reason) -> StaleAttachment {
    let identity = Identity {
        sandbox: sandbox.parse().unwrap(),
        if_name: "eth0".parse().unwrap(),
        network: Network::Default,
    };
    StaleAttachment {
        identity,
        pod: PodKey::new("shop", "cart-0").unwrap(),
        uid: String::new(),
        reason,
        witnesses: Witnesses::Server,
    }
}

#[tokio::test(start_paused = true)]
async fn one_look_is_not_enough_and_neither_are_two_in_a_row() {
    let (mut suspicion, begin) = (StaleCandidates::default(), Instant::now());
    let suspects = || vec![suspect("c1", Reason::LinkGone)];
    assert_eq!(suspicion.confirm(suspects(), begin, PATIENCE), []);
    assert_eq!(suspicion.due(), Some(begin + PATIENCE));
    assert_eq!(suspicion.confirm(suspects(), begin + PATIENCE / 2, PATIENCE), []);
    assert_eq!(suspicion.confirm(suspects(), begin + PATIENCE, PATIENCE), suspects());
}

#[tokio::test(start_paused = true)]
async fn a_first_look_after_a_long_time_confirms_nothing() {
    let (mut suspicion, begin) = (StaleCandidates::default(), Instant::now());
    assert_eq!(
        suspicion.confirm(
            vec![suspect("c1", Reason::PodGone)],
            begin + PATIENCE * 9,
            Duration::ZERO
        ),
        []
    );
}

#[tokio::test(start_paused = true)]
async fn who_was_cleared_in_between_begins_anew() {
    let (mut suspicion, begin) = (StaleCandidates::default(), Instant::now());
    suspicion.confirm(vec![suspect("c1", Reason::PodGone)], begin, PATIENCE);
    suspicion.confirm(Vec::new(), begin + PATIENCE / 2, PATIENCE);
    assert_eq!(suspicion.due(), None);
    assert_eq!(
        suspicion.confirm(vec![suspect("c1", Reason::PodGone)], begin + PATIENCE, PATIENCE),
        []
    );
}

#[tokio::test(start_paused = true)]
async fn another_reason_is_another_suspicion() {
    let (mut suspicion, begin) = (StaleCandidates::default(), Instant::now());
    suspicion.confirm(vec![suspect("c1", Reason::PodGone)], begin, PATIENCE);
    assert_eq!(
        suspicion.confirm(vec![suspect("c1", Reason::LinkGone)], begin + PATIENCE, PATIENCE),
        []
    );
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_removed_is_not_tried_at_every_look() {
    let (mut suspicion, begin) = (StaleCandidates::default(), Instant::now());
    let suspects = || vec![suspect("c1", Reason::LinkGone)];
    suspicion.confirm(suspects(), begin, PATIENCE);
    assert_eq!(suspicion.confirm(suspects(), begin + PATIENCE, PATIENCE).len(), 1);
    assert_eq!(suspicion.confirm(suspects(), begin + PATIENCE + PATIENCE / 2, PATIENCE), []);
}

#[tokio::test(start_paused = true)]
async fn who_has_neither_link_nor_device_makes_every_add_slow_for_two_seconds_only() {
    let (mut suspicion, begin) = (StaleCandidates::default(), Instant::now());
    let deviceless = || {
        vec![StaleAttachment { witnesses: Witnesses::Vswitchd, ..suspect("c1", Reason::LinkGone) }]
    };
    assert_eq!(suspicion.confirm(deviceless(), begin, PATIENCE), []);
    assert_eq!(suspicion.due(), Some(begin + DEVICELESS));
    assert_eq!(suspicion.confirm(deviceless(), begin + DEVICELESS / 2, PATIENCE), []);
    assert_eq!(suspicion.confirm(deviceless(), begin + DEVICELESS, PATIENCE), deviceless());
    // A shorter grace period of the administrator's wins.
    suspicion.confirm(deviceless(), begin, DEVICELESS / 2);
    assert_eq!(suspicion.due(), Some(begin + DEVICELESS / 2));
}

#[tokio::test(start_paused = true)]
async fn a_device_that_ovs_vswitchd_has_keeps_its_port_for_as_long_as_before() {
    let (mut suspicion, begin) = (StaleCandidates::default(), Instant::now());
    let suspects =
        |witnesses| vec![StaleAttachment { witnesses, ..suspect("c1", Reason::LinkGone) }];
    assert_eq!(suspicion.confirm(suspects(Witnesses::Server), begin, PATIENCE), []);
    assert_eq!(suspicion.confirm(suspects(Witnesses::Server), begin + DEVICELESS, PATIENCE), []);
    assert_eq!(suspicion.confirm(suspects(Witnesses::Server), begin + PATIENCE / 2, PATIENCE), []);
    // ovs-vswitchd has lost the device meanwhile: the time until then counts.
    assert_eq!(
        suspicion.confirm(suspects(Witnesses::Vswitchd), begin + PATIENCE / 2, PATIENCE).len(),
        1
    );
}
