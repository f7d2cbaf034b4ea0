//! OpenFlow with a bridge: the connection, and three questions: whether the bridge has a flow for
//! an address, which flows hand packets to the controller, and how many flows there are.
//!
//! Must not know what a flow means.

use std::{io, net::IpAddr, path::Path, time::Duration};

use tokio::time::timeout;

pub use connection::{Connection, Message, Version};
pub use count::FlowCounter;
pub use to_controller::{ToController, flows_to_controller};

mod connection;
mod count;
mod to_controller;

// Constants of the OpenFlow Switch Specification 1.3.5 (section 7); those of 1.5.1 are the same.

/// Versions in which the question is asked.
const VERSIONS: [Version; 2] = [Version::V1_3, Version::V1_5];
const ERROR: u8 = 1;
const MULTIPART_REQUEST: u8 = 18;
const MULTIPART_REPLY: u8 = 19;
/// `OFPMP_FLOW`; in 1.5 `OFPMP_FLOW_DESC`, with the same request.
const FLOWS: u16 = 1;
/// `OFPMPF_REPLY_MORE`
const MORE: u16 = 1;
/// Bytes of type, flags and padding of a multipart message.
const MULTIPART: usize = 8;

/// Whether `bridge`, whose socket is in `run_dir`, has a flow that matches the very destination
/// `address`, in any table.
///
/// # Errors
/// The bridge does not exist, refuses, or does not answer within `patience`.
pub async fn has_flow_to(
    run_dir: &Path,
    bridge: &str,
    address: IpAddr,
    patience: Duration,
) -> io::Result<bool> {
    let answered = timeout(patience, ask(run_dir, bridge, address)).await;
    answered.unwrap_or_else(|_| {
        Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("bridge {bridge}: no answer in OpenFlow"),
        ))
    })
}

async fn ask(run_dir: &Path, bridge: &str, address: IpAddr) -> io::Result<bool> {
    let mut connection = Connection::open(run_dir, bridge, &VERSIONS).await?;
    connection.send(&[Message { kind: MULTIPART_REQUEST, id: 1, body: question(address) }]).await?;
    loop {
        let message = connection.receive().await?;
        match message.kind {
            MULTIPART_REPLY if message.id == 1 => {
                // Type, flags and padding come before the flows.
                if message.body.len() > MULTIPART {
                    return Ok(true);
                }
                let flags = message.body.get(2..4).and_then(|flags| flags.try_into().ok());
                if flags.map(u16::from_be_bytes).unwrap_or_default() & MORE == 0 {
                    return Ok(false);
                }
            }
            ERROR => return Err(io::Error::other("the bridge refuses the question")),
            _ => {}
        }
    }
}

/// The flows of all tables that match the destination.
fn question(address: IpAddr) -> Vec<u8> {
    // `OFPXMC_OPENFLOW_BASIC`; the numbers of the fields are shifted by the bit that says whether a
    // mask follows.
    let field = |number: u8, value: &[u8]| {
        let length = u8::try_from(value.len()).unwrap_or_default();
        [&[0x80, 0, number << 1, length], value].concat()
    };
    // `OXM_OF_ETH_TYPE`, then `OXM_OF_IPV4_DST` or `OXM_OF_IPV6_DST`.
    let fields = match address {
        IpAddr::V4(v4) => [field(5, &0x0800_u16.to_be_bytes()), field(12, &v4.octets())].concat(),
        IpAddr::V6(v6) => [field(5, &0x86dd_u16.to_be_bytes()), field(27, &v6.octets())].concat(),
    };
    let length = u16::try_from(fields.len() + 4).unwrap_or_default();
    // `OFPMT_OXM`
    let mut matches = [1_u16.to_be_bytes(), length.to_be_bytes()].concat();
    matches.extend(fields);
    matches.resize(matches.len().next_multiple_of(8), 0);
    let mut body = [FLOWS.to_be_bytes(), [0; 2], [0; 2], [0; 2]].concat();
    // `OFPTT_ALL`, `OFPP_ANY`, `OFPG_ANY`, and no cookie.
    body.extend([0xff, 0, 0, 0]);
    body.extend([0xff; 8]);
    body.extend([0; 4 + 16]);
    body.extend(matches);
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_as_long_as_it_says() {
        let v4 = question([10, 96, 0, 1].into());
        assert_eq!(v4.len(), 8 + 32 + 24);
        assert_eq!(v4[40..58], [0, 1, 0, 18, 0x80, 0, 10, 2, 8, 0, 0x80, 0, 24, 4, 10, 96, 0, 1]);
        assert_eq!(question("fd00::1".parse().unwrap()).len(), 8 + 32 + 32);
    }

    #[tokio::test]
    async fn a_bridge_that_is_not_there_is_an_error_that_names_its_socket() {
        let error = has_flow_to(
            Path::new("/nowhere"),
            "br-int",
            [10, 96, 0, 1].into(),
            Duration::from_secs(1),
        );
        assert!(error.await.unwrap_err().to_string().contains("/nowhere/br-int.mgmt"));
    }
}
