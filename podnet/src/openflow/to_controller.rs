//! Flows that hand packets to the bridge's controller, with what they say to it and how many
//! packets they have had. Must not know what the controller makes of it.
//!
//! Open vSwitch selects them by the port `CONTROLLER`, so that a bridge with many flows answers
//! with few.

use std::{io, path::Path, time::Duration};

use tokio::time::timeout;

use super::{
    Connection, ERROR, FLOWS, MORE, MULTIPART, MULTIPART_REPLY, MULTIPART_REQUEST, Message, Version,
};

// Constants of the OpenFlow Switch Specification 1.3.5 (section 7), and of Open vSwitch's
// include/openflow/nicira-ext.h and lib/ofp-actions.c.

/// `OFPP_CONTROLLER`
const CONTROLLER: [u8; 4] = [0xff, 0xff, 0xff, 0xfd];
/// Bytes of `struct ofp_flow_stats` before the match.
const BEFORE_MATCH: usize = 48;
/// Where it has the number of packets.
const PACKETS: std::ops::Range<usize> = 32..40;
/// `OFPIT_APPLY_ACTIONS`
const APPLY_ACTIONS: u16 = 4;
/// `OFPAT_EXPERIMENTER`, `NX_VENDOR_ID` and `NXAST_RAW_CONTROLLER2`: the first bytes of the action.
const EXPERIMENTER: u16 = 0xffff;
const CONTROLLER_WITH_DATA: [u8; 6] = [0, 0, 0x23, 0x20, 0, 37];
/// `NXAC2PT_USERDATA`
const USER_DATA: u16 = 3;

/// A flow that hands its packets to the controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToController {
    /// Packets that have matched.
    pub packets: u64,
    /// `controller(userdata=…)`
    pub data: Vec<u8>,
}

/// The flows of `bridge`, whose socket is in `run_dir`, that hand packets to the controller with
/// data for it.
///
/// # Errors
/// The bridge does not exist, does not speak OpenFlow 1.3, refuses, or does not answer within
/// `patience`.
pub async fn flows_to_controller(
    run_dir: &Path,
    bridge: &str,
    patience: Duration,
) -> io::Result<Vec<ToController>> {
    let answered = timeout(patience, ask(run_dir, bridge)).await;
    answered.unwrap_or_else(|_| {
        Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("bridge {bridge}: no answer in OpenFlow"),
        ))
    })
}

async fn ask(run_dir: &Path, bridge: &str) -> io::Result<Vec<ToController>> {
    // Later versions answer in another form.
    let mut connection = Connection::open(run_dir, bridge, &[Version::V1_3]).await?;
    connection.send(&[Message { kind: MULTIPART_REQUEST, id: 1, body: question() }]).await?;
    let mut found = Vec::new();
    loop {
        let message = connection.receive().await?;
        match message.kind {
            MULTIPART_REPLY if message.id == 1 => {
                let (flows, is_last) = answer(&message.body).ok_or_else(|| {
                    io::Error::new(io::ErrorKind::InvalidData, "a flow that is cut off")
                })?;
                found.extend(flows);
                if is_last {
                    return Ok(found);
                }
            }
            ERROR => return Err(io::Error::other("the bridge refuses to tell its flows")),
            _ => {}
        }
    }
}

fn question() -> Vec<u8> {
    let mut body = [FLOWS.to_be_bytes(), [0; 2], [0; 2], [0; 2]].concat();
    // `OFPTT_ALL`, the port, `OFPG_ANY`, and no cookie.
    body.extend([0xff, 0, 0, 0]);
    body.extend(CONTROLLER);
    body.extend([0xff; 4]);
    body.extend([0; 4 + 16]);
    // `OFPMT_OXM` without fields, padded.
    body.extend([0, 1, 0, 4, 0, 0, 0, 0]);
    body
}

/// The flows of a part of the answer, and whether it is the last one. None: it is cut off.
fn answer(body: &[u8]) -> Option<(Vec<ToController>, bool)> {
    let flags = u16::from_be_bytes(body.get(2..4)?.try_into().ok()?);
    let mut rest = body.get(MULTIPART..)?;
    let mut found = Vec::new();
    while !rest.is_empty() {
        let length = usize::from(u16_at(rest, 0)?);
        let (flow, behind) = rest.split_at_checked(length).filter(|_| length >= BEFORE_MATCH)?;
        let packets = u64::from_be_bytes(flow.get(PACKETS)?.try_into().ok()?);
        let of_match = usize::from(u16_at(flow, BEFORE_MATCH + 2)?).next_multiple_of(8);
        let mut data = Vec::new();
        records(flow.get(BEFORE_MATCH + of_match..)?, |kind, instruction| {
            if kind == APPLY_ACTIONS {
                // Padding comes before the actions.
                records(instruction.get(4..)?, |kind, action| {
                    if kind == EXPERIMENTER && action.starts_with(&CONTROLLER_WITH_DATA) {
                        // Six more bytes of padding come before the properties.
                        properties(action.get(12..)?, &mut data)?;
                    }
                    Some(())
                })?;
            }
            Some(())
        })?;
        found.extend(data.into_iter().map(|data| ToController { packets, data }));
        rest = behind;
    }
    Some((found, flags & MORE == 0))
}

/// Calls `each` with the kind and the content of each record, whose lengths count their own four
/// bytes.
fn records(bytes: &[u8], mut each: impl FnMut(u16, &[u8]) -> Option<()>) -> Option<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let length = usize::from(u16_at(rest, 2)?);
        let (record, behind) = rest.split_at_checked(length).filter(|_| length >= 4)?;
        each(u16_at(record, 0)?, &record[4..])?;
        rest = behind;
    }
    Some(())
}

/// Reads the properties of an action, each of which is padded to eight bytes.
fn properties(bytes: &[u8], data: &mut Vec<Vec<u8>>) -> Option<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let (kind, length) = (u16_at(rest, 0)?, usize::from(u16_at(rest, 2)?));
        let property = rest.get(4..length)?;
        if kind == USER_DATA {
            data.push(property.to_vec());
        }
        rest = rest.get(length.next_multiple_of(8)..)?;
    }
    Some(())
}

fn u16_at(bytes: &[u8], place: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(place..place + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Open vSwitch 3.1 answers: two flows with `controller(userdata=…)`, one of them with a
    /// meter, and `resubmit` behind it. The first one's number of packets is changed to 259.
    const ANSWER: &str = "\
        0001000000000000009808000000000029e6edc0000500000000000000000000000000000000000000000000000001030000\
        0000000000000001000a80000a0208000000000000000004005800000000ffff004000002320002500000000000000030024\
        0000000700000000010644727952756e3a73686f703a64623a496e6772657373000000000005000800000001ffff00100000\
        2320000efff8090000000090080000000000280de80000060000000000000000000000000000000000000000000000000000\
        00000000000000000001000a80000a0208000000000000000004005000000000ffff00380000232000250000000000000003\
        00240000000700000000010644727952756e3a73686f703a64623a496e677265737300000000ffff001000002320000efff8\
        09000000";

    fn bytes() -> Vec<u8> {
        let digits: Vec<u32> = ANSWER.chars().filter_map(|digit| digit.to_digit(16)).collect();
        digits.chunks(2).map(|pair| u8::try_from(pair[0] << 4 | pair[1]).unwrap()).collect()
    }

    #[test]
    fn packets_and_data_of_each_flow_are_read() {
        let (found, is_last) = answer(&bytes()).unwrap();
        let data = [&[0, 0, 0, 7, 0, 0, 0, 0, 1, 6][..], b"DryRun:shop:db:Ingress"].concat();
        let flow = |packets| ToController { packets, data: data.clone() };
        assert_eq!((found, is_last), (vec![flow(259), flow(0)], true));
        assert_eq!(answer(&[0, 1, 0, 1, 0, 0, 0, 0]), Some((Vec::new(), false)));
    }

    #[test]
    fn an_answer_that_is_cut_off_or_lies_about_lengths_is_none_and_never_a_panic() {
        let whole = bytes();
        for end in 9..whole.len() {
            // It may end behind the first flow.
            let is_whole = answer(&whole[..end]).is_some();
            assert_eq!(is_whole, end == 8 + 0x98, "{end}");
        }
        for place in 8..whole.len() {
            for value in [0, 1, 4, 0xff] {
                let mut changed = whole.clone();
                changed[place] = value;
                let _ = answer(&changed);
            }
        }
    }

    #[tokio::test]
    async fn a_bridge_that_is_not_there_is_an_error_that_names_its_socket() {
        let error = flows_to_controller(Path::new("/nowhere"), "br-int", Duration::from_secs(1));
        assert!(error.await.unwrap_err().to_string().contains("/nowhere/br-int.mgmt"));
    }
}
