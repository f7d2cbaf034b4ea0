//! What is cut off is refused; what is unknown can be removed. The rest is a property for the
//! fuzzer (`fuzz/properties/src/flows.rs`), and compared with a real bridge
//! (`tests/external_bridge`).

use std::net::IpAddr;

use super::{bridge_side::answer, *};
use crate::flows::{Match, OfPort};

fn example() -> (Slot, Vec<Action>) {
    let matching = Match { in_port: Some(OfPort(7)), ..Match::default() };
    let slot = Slot {
        table: 3,
        priority: 100,
        matching: matching.destination(IpAddr::from([192, 0, 2, 1])),
    };
    (slot, vec![Action::Output(OfPort::LOCAL)])
}

#[test]
fn an_answer_that_is_cut_off_is_none() {
    let (slot, actions) = example();
    let body = answer(COOKIE, &slot, &actions);
    let found = Found { cookie: COOKIE, at: RawSlot::from(&slot), actions: Some(actions) };
    assert_eq!(part(&body), Some(Part::Flows { flows: vec![found], is_last: true }));
    // Eight bytes are an answer without flows.
    for end in (0..8).chain(9..body.len()) {
        assert_eq!(part(&body[..end]), None, "{end}");
    }
}

#[test]
fn a_flow_that_is_never_written_keeps_the_bytes_of_its_match() {
    let (slot, _) = example();
    let mut body = answer(COOKIE, &slot, &[]);
    // The field in_port becomes in_phy_port.
    let at = body.windows(4).position(|field| field == [0x80, 0, 0, 4]).unwrap();
    body[at + 2] = 1 << 1;
    let Some(Part::Flows { flows, .. }) = part(&body) else { panic!("no flows") };
    assert_eq!(flows[0].at.slot(), None);
    assert_eq!(flows[0].at.matching[..8], [0x80, 0, 2, 4, 0, 0, 0, 7]);
    assert_eq!(delete(&flows[0].at)[40..][4..12], [0x80, 0, 2, 4, 0, 0, 0, 7]);
}

#[test]
fn a_flow_with_a_time_limit_is_none_of_ours() {
    let (slot, actions) = example();
    let mut body = answer(COOKIE, &slot, &actions);
    // After the header, length, table, time and priority.
    body[8 + 2 + 10 + 2 + 1] = 30;
    let Some(Part::Flows { flows, .. }) = part(&body) else { panic!("no flows") };
    assert_eq!((flows[0].at.slot(), &flows[0].actions), (Some(slot), &None));
}
