//! Actions, inside the one instruction that a flow has (`OFPIT_APPLY_ACTIONS`). Knows nothing of
//! messages.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use contract::mac::Mac;

use super::{
    Reader, length,
    matching::{self, CT_MARK, ETH_DST, PRESENT, REG0, VLAN_VID},
    pad,
};
use crate::flows::{Action, Commit, Ct, Nat, OfPort, config::Vlan};

/// `OFPIT_APPLY_ACTIONS`
const APPLY: u16 = 4;
/// `OFPAT_…`
const OUTPUT: u16 = 0;
const PUSH_VLAN: u16 = 17;
const POP_VLAN: u16 = 18;
const SET_FIELD: u16 = 25;
const EXPERIMENTER: u16 = 0xffff;
/// `NX_VENDOR_ID`
const NICIRA: u32 = 0x2320;
/// `NXAST_…`
const MOVE: u16 = 6;
const RESUBMIT_TABLE: u16 = 14;
const CT: u16 = 35;
const NAT: u16 = 36;
const CHECK_LARGER: u16 = 49;

/// `ETH_TYPE_VLAN_8021Q`
const TAG: u16 = 0x8100;
/// `OFPP_IN_PORT`, as 16 bits.
const ARRIVAL: u16 = 0xfff8;
/// `NX_CT_F_COMMIT`, `NX_CT_RECIRC_NONE`
const COMMIT: u16 = 1;
const NO_TABLE: u8 = 0xff;
/// `NX_NAT_F_SRC`, `NX_NAT_F_DST`
const SOURCE: u16 = 1;
const DESTINATION: u16 = 2;
/// `NX_NAT_RANGE_IPV4_MIN`, `NX_NAT_RANGE_IPV6_MIN`, `NX_NAT_RANGE_PROTO_MIN`
const RANGE_V4: u16 = 1;
const RANGE_V6: u16 = 4;
const RANGE_PORT: u16 = 16;
/// The headers of `NXM_OF_ETH_DST` and `NXM_OF_ETH_SRC`, which the bridge uses in a move, and of
/// the same fields of OpenFlow.
const NXM_ETH_DST: [u8; 4] = [0, 0, 2, 6];
const NXM_ETH_SRC: [u8; 4] = [0, 0, 4, 6];
const ETHERNET_BITS: u16 = 48;

/// The instructions for these actions; none for a drop.
pub(super) fn instructions(actions: &[Action]) -> Vec<u8> {
    if actions.is_empty() {
        return Vec::new();
    }
    let actions: Vec<u8> = actions.iter().flat_map(encode).collect();
    let mut bytes = [APPLY.to_be_bytes(), length(actions.len() + 8), [0; 2], [0; 2]].concat();
    bytes.extend(actions);
    bytes
}

fn encode(action: &Action) -> Vec<u8> {
    match action {
        Action::Output(port) => {
            let mut body = port.0.to_be_bytes().to_vec();
            // The length of what a controller would get, and padding.
            body.extend([0; 8]);
            plain(OUTPUT, &body)
        }
        Action::PopVlan => plain(POP_VLAN, &[0; 4]),
        Action::PushVlan => plain(PUSH_VLAN, &[TAG.to_be_bytes(), [0; 2]].concat()),
        Action::SetVlan(vlan) => {
            set_field(&VLAN_VID.with(&(vlan.number() | PRESENT).to_be_bytes()))
        }
        Action::SetMacDestination(mac) => set_field(&ETH_DST.with(&mac.octets())),
        Action::CopyMacDestinationToSource => {
            let mut body = [ETHERNET_BITS.to_be_bytes(), [0; 2], [0; 2]].concat();
            body.extend([NXM_ETH_DST, NXM_ETH_SRC].concat());
            nicira(MOVE, &body)
        }
        Action::Ct(ct) => nicira(CT, &encode_ct(ct)),
        Action::Resubmit(table) => {
            let mut body = ARRIVAL.to_be_bytes().to_vec();
            body.extend([*table, 0, 0, 0]);
            nicira(RESUBMIT_TABLE, &body)
        }
        Action::CheckLarger(bytes) => {
            let mut body = bytes.to_be_bytes().to_vec();
            // The first bit of the destination.
            body.extend([0; 2]);
            body.extend(REG0.header(4));
            nicira(CHECK_LARGER, &body)
        }
    }
}

fn encode_ct(ct: &Ct) -> Vec<u8> {
    let Ct { zone, commit, nat, table } = ct;
    let flags = if commit.is_some() { COMMIT } else { 0 };
    let mut body = flags.to_be_bytes().to_vec();
    // The zone is a number, not a field.
    body.extend([0; 4]);
    body.extend(zone.to_be_bytes());
    // Table, padding, and no helper for a protocol.
    body.extend([table.unwrap_or(NO_TABLE), 0, 0, 0, 0, 0]);
    body.extend(nat.iter().flat_map(|nat| nicira(NAT, &encode_nat(nat))));
    let mark = commit.and_then(|commit| commit.mark);
    body.extend(mark.iter().flat_map(|mark| set_field(&CT_MARK.with(&mark.to_be_bytes()))));
    body
}

fn encode_nat(nat: &Nat) -> Vec<u8> {
    let (flags, address, port) = match nat {
        Nat::AsBefore => (0, None, None),
        Nat::Source(address) => (SOURCE, Some(*address), None),
        Nat::Destination(address, port) => (DESTINATION, Some(*address), *port),
    };
    let (range, octets) = match address {
        None => (0, Vec::new()),
        Some(IpAddr::V4(v4)) => (RANGE_V4, v4.octets().to_vec()),
        Some(IpAddr::V6(v6)) => (RANGE_V6, v6.octets().to_vec()),
    };
    let range = range | port.map_or(0, |_| RANGE_PORT);
    let mut body = [[0; 2], u16::to_be_bytes(flags), u16::to_be_bytes(range)].concat();
    body.extend(octets);
    body.extend(port.iter().flat_map(|port| port.to_be_bytes()));
    body
}

fn set_field(field: &[u8]) -> Vec<u8> {
    plain(SET_FIELD, field)
}

/// An action with its header, padded.
fn plain(kind: u16, body: &[u8]) -> Vec<u8> {
    let padded = (body.len() + 4).next_multiple_of(8);
    let mut bytes = [kind.to_be_bytes(), length(padded)].concat();
    bytes.extend(body);
    pad(&mut bytes);
    bytes
}

fn nicira(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = NICIRA.to_be_bytes().to_vec();
    bytes.extend(kind.to_be_bytes());
    bytes.extend(body);
    plain(EXPERIMENTER, &bytes)
}

/// The actions of a flow's instructions; `None` if one of them is of no [`Action`].
pub(super) fn from_instructions(mut instructions: Reader<'_>) -> Option<Vec<Action>> {
    let mut actions = Vec::new();
    while !instructions.0.is_empty() {
        let (kind, mut body) = instructions.typed_record()?;
        if kind != APPLY || !actions.is_empty() {
            return None;
        }
        body.skip(4)?;
        while !body.0.is_empty() {
            actions.push(decode(&mut body)?);
        }
    }
    Some(actions)
}

fn decode(actions: &mut Reader<'_>) -> Option<Action> {
    let (kind, mut body) = actions.typed_record()?;
    match kind {
        OUTPUT => Some(Action::Output(OfPort(body.u32()?))),
        POP_VLAN => Some(Action::PopVlan),
        PUSH_VLAN => (body.u16()? == TAG).then_some(Action::PushVlan),
        SET_FIELD => match field(body)? {
            (VLAN_VID, [high, low]) => {
                let number = u16::from_be_bytes([*high, *low]);
                Vlan::try_from(number & !PRESENT)
                    .ok()
                    .filter(|_| number & PRESENT != 0)
                    .map(Action::SetVlan)
            }
            (ETH_DST, value) => {
                let octets: [u8; 6] = value.try_into().ok()?;
                Mac::try_from(octets).ok().map(Action::SetMacDestination)
            }
            _ => None,
        },
        EXPERIMENTER => extension(body),
        _ => None,
    }
}

/// The field that an action sets, without a mask.
fn field(mut body: Reader<'_>) -> Option<(matching::Field, &[u8])> {
    let matching::Value { field, value, mask } = matching::next(&mut body)?;
    mask.is_none().then_some((field, value))
}

fn extension(mut body: Reader<'_>) -> Option<Action> {
    if body.u32()? != NICIRA {
        return None;
    }
    match body.u16()? {
        MOVE => {
            let whole = (body.u16()?, body.u16()?, body.u16()?) == (ETHERNET_BITS, 0, 0);
            let (from, to): ([u8; 4], [u8; 4]) = (body.array()?, body.array()?);
            let is_ours = [NXM_ETH_DST, ETH_DST.header(6)].contains(&from)
                && [NXM_ETH_SRC, matching::ETH_SRC.header(6)].contains(&to);
            (whole && is_ours).then_some(Action::CopyMacDestinationToSource)
        }
        RESUBMIT_TABLE => {
            let port = body.u16()?;
            let table = body.u8()?;
            (port == ARRIVAL).then_some(Action::Resubmit(table))
        }
        CT => decode_ct(body).map(Action::Ct),
        CHECK_LARGER => {
            let (bytes, bit) = (body.u16()?, body.u16()?);
            let field: [u8; 4] = body.array()?;
            (bit == 0 && field == REG0.header(4)).then_some(Action::CheckLarger(bytes))
        }
        _ => None,
    }
}

fn decode_ct(mut body: Reader<'_>) -> Option<Ct> {
    let (flags, zone_field, zone, table) = (body.u16()?, body.u32()?, body.u16()?, body.u8()?);
    body.skip(3)?;
    if flags & !COMMIT != 0 || zone_field != 0 || body.u16()? != 0 {
        return None;
    }
    let mut ct = Ct::of(zone);
    ct.table = (table != NO_TABLE).then_some(table);
    ct.commit = (flags == COMMIT).then_some(Commit { mark: None });
    while !body.0.is_empty() {
        let (kind, mut inner) = body.typed_record()?;
        match kind {
            EXPERIMENTER if ct.nat.is_none() => {
                if (inner.u32()?, inner.u16()?) != (NICIRA, NAT) {
                    return None;
                }
                ct.nat = Some(decode_nat(inner)?);
            }
            SET_FIELD => match (field(inner)?, &mut ct.commit) {
                ((CT_MARK, value), Some(commit)) if commit.mark.is_none() => {
                    commit.mark = Some(u32::from_be_bytes(value.try_into().ok()?));
                }
                _ => return None,
            },
            _ => return None,
        }
    }
    Some(ct)
}

fn decode_nat(mut body: Reader<'_>) -> Option<Nat> {
    body.skip(2)?;
    let (flags, range) = (body.u16()?, body.u16()?);
    let address = match range & (RANGE_V4 | RANGE_V6) {
        0 => None,
        RANGE_V4 => Some(IpAddr::V4(Ipv4Addr::from(body.u32()?))),
        RANGE_V6 => Some(IpAddr::V6(Ipv6Addr::from(body.array::<16>()?))),
        _ => return None,
    };
    let port = if range & RANGE_PORT == 0 { None } else { Some(body.u16()?) };
    let is_known = range & !(RANGE_V4 | RANGE_V6 | RANGE_PORT) == 0;
    match (flags, address, port) {
        _ if !is_known => None,
        (0, None, None) => Some(Nat::AsBefore),
        (SOURCE, Some(address), None) => Some(Nat::Source(address)),
        (DESTINATION, Some(address), port) => Some(Nat::Destination(address, port)),
        _ => None,
    }
}
