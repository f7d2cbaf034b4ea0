//! Flows that a bridge tells: any flow that can be written is read as the same value, and what is
//! understood of any answer means the same when it is written and read again.

use arbitrary::{Result, Unstructured};
use uplink::flows::{
    Action, Commit, ConnectionState, Ct, Family, Icmp, Match, Nat, OfPort, Packet, Protocol, Slot,
    Vlan, bridge_side,
};

use crate::draw;

/// `data` is an answer, and the source of a drawn flow.
pub fn check(data: &[u8]) {
    for (cookie, slot, actions) in bridge_side::read(data).unwrap_or_default() {
        if let (Some(slot), Some(actions)) = (slot, actions) {
            assert_same(cookie, slot, actions);
        }
    }
    let mut u = Unstructured::new(data);
    // The only error is the end of the bytes to draw from.
    if let Ok((cookie, slot, actions)) = flow(&mut u) {
        assert_same(cookie, slot, actions);
    }
}

fn assert_same(cookie: u64, slot: Slot, actions: Vec<Action>) {
    let body = bridge_side::answer(cookie, &slot, &actions);
    assert_eq!(bridge_side::read(&body), Some(vec![(cookie, Some(slot), Some(actions))]));
}

fn flow(u: &mut Unstructured<'_>) -> Result<(u64, Slot, Vec<Action>)> {
    let slot = Slot { table: u.arbitrary()?, priority: u.arbitrary()?, matching: matching(u)? };
    let actions = (0..u.int_in_range(0..=4)?).map(|_| action(u)).collect::<Result<_>>()?;
    Ok((u.arbitrary()?, slot, actions))
}

/// A match whose fields have what they require.
fn matching(u: &mut Unstructured<'_>) -> Result<Match> {
    let family = *u.choose(&[Family::V4, Family::V6])?;
    let packet = match u.int_in_range(0..=4)? {
        0 => None,
        1 => Some(Packet::Arp),
        2 => Some(Packet::Ip(family)),
        3 => Some(Packet::Transport(family, protocol(u)?)),
        _ => Some(Packet::Icmp(family)),
    };
    let mut matching = Match {
        packet,
        reg0: u.arbitrary()?,
        ct_mark: u.arbitrary()?,
        in_port: u.arbitrary::<Option<u32>>()?.map(OfPort),
        ..Match::default()
    };
    if u.arbitrary()? {
        matching.mac_source = Some(draw::mac(u)?);
        matching.mac_destination = Some(draw::mac(u)?);
        matching.vlan = Some(vlan(u)?);
    }
    if u.arbitrary()? {
        use ConnectionState::{Established, Related};
        matching.state = Some(*u.choose(&[Established, Related])?);
    }
    match packet {
        None => {}
        Some(Packet::Arp) => matching.arp_request = u.arbitrary::<Option<u32>>()?.map(Into::into),
        Some(packet) => {
            let net = draw::net(u)?.trunc();
            if Family::of(net.addr()) == family {
                matching = matching.source(net).destination(net);
            }
            matching.fragment = u.arbitrary()?;
            if matches!(packet, Packet::Transport(..)) {
                matching.source_port = u.arbitrary()?;
                matching.destination_port = u.arbitrary()?;
            }
            if matches!(packet, Packet::Icmp(_)) && u.arbitrary()? {
                matching.icmp = Some(Icmp { kind: u.arbitrary()?, code: u.arbitrary()? });
                let target = u.arbitrary::<Option<u128>>()?.map(Into::into);
                matching.nd_target = target.filter(|_| family == Family::V6);
            }
        }
    }
    Ok(matching)
}

fn action(u: &mut Unstructured<'_>) -> Result<Action> {
    Ok(match u.int_in_range(0..=8)? {
        0 => Action::Output(OfPort(u.arbitrary()?)),
        1 => Action::PopVlan,
        2 => Action::PushVlan,
        3 => Action::SetVlan(vlan(u)?),
        4 => Action::SetMacDestination(draw::mac(u)?),
        5 => Action::CopyMacDestinationToSource,
        6 => Action::Resubmit(u.arbitrary()?),
        7 => Action::CheckLarger(u.arbitrary()?),
        _ => {
            let address = draw::net(u)?.addr();
            let nat = match u.int_in_range(0..=3)? {
                0 => None,
                1 => Some(Nat::AsBefore),
                2 => Some(Nat::Source(address)),
                _ => Some(Nat::Destination(address, u.arbitrary()?)),
            };
            let mark = u.arbitrary()?;
            let commit = if u.arbitrary()? { Some(Commit { mark }) } else { None };
            // Table 255 does not exist; the bridge means none by it.
            let table = u.arbitrary::<Option<u8>>()?.filter(|table| *table != u8::MAX);
            Action::Ct(Ct { zone: u.arbitrary()?, commit, nat, table })
        }
    })
}

fn protocol(u: &mut Unstructured<'_>) -> Result<Protocol> {
    Ok(*u.choose(&Protocol::ALL)?)
}

fn vlan(u: &mut Unstructured<'_>) -> Result<Vlan> {
    Ok(u.int_in_range(1..=4094_u16)?.try_into().expect("in the range"))
}
