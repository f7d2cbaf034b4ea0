//! How many flows a bridge has, from its tables' own counters: it goes through no flow.

use std::{io, path::Path, time::Duration};

use tokio::time::timeout;

use super::{
    Connection, ERROR, MORE, MULTIPART, MULTIPART_REPLY, MULTIPART_REQUEST, Message, Version,
};

/// `OFPMP_TABLE`
const TABLES: u16 = 3;
/// Bytes of `struct ofp_table_stats`.
const TABLE: usize = 24;
/// Where it has the number of flows.
const ACTIVE: std::ops::Range<usize> = 4..8;

/// A connection that stays open between questions.
#[derive(Debug)]
pub struct FlowCounter {
    connection: Connection,
    /// Of the last question.
    id: u32,
}

impl FlowCounter {
    /// Connects to the bridge whose socket is in `run_dir`.
    ///
    /// # Errors
    /// The bridge does not exist, does not speak OpenFlow 1.3, or does not answer within
    /// `patience`.
    pub async fn open(run_dir: &Path, bridge: &str, patience: Duration) -> io::Result<Self> {
        let opened = timeout(patience, Connection::open(run_dir, bridge, &[Version::V1_3])).await;
        let connection = opened.unwrap_or(Err(io::ErrorKind::TimedOut.into()))?;
        Ok(Self { connection, id: 0 })
    }

    /// The flows of all tables.
    ///
    /// # Errors
    /// The bridge refuses, or does not answer within `patience`: the connection is of no use then.
    pub async fn count(&mut self, patience: Duration) -> io::Result<u64> {
        let counted = timeout(patience, self.ask()).await;
        counted.unwrap_or(Err(io::ErrorKind::TimedOut.into()))
    }

    async fn ask(&mut self) -> io::Result<u64> {
        self.id = self.id.wrapping_add(1);
        let body = [TABLES.to_be_bytes(), [0; 2], [0; 2], [0; 2]].concat();
        let question = Message { kind: MULTIPART_REQUEST, id: self.id, body };
        self.connection.send(&[question]).await?;
        let mut flows = 0;
        loop {
            let Message { kind, id, body } = self.connection.receive().await?;
            if id != self.id {
                continue;
            }
            match kind {
                MULTIPART_REPLY => {
                    flows += active(&body);
                    let flags = body.get(2..4).and_then(|flags| flags.try_into().ok());
                    if flags.map(u16::from_be_bytes).unwrap_or_default() & MORE == 0 {
                        return Ok(flows);
                    }
                }
                ERROR => return Err(io::Error::other("the bridge refuses the question")),
                _ => {}
            }
        }
    }
}

/// The flows of the tables in one reply.
fn active(reply: &[u8]) -> u64 {
    let tables = reply.get(MULTIPART..).unwrap_or_default().chunks_exact(TABLE);
    let count = |table: &[u8]| table[ACTIVE].try_into().map(u32::from_be_bytes).unwrap_or_default();
    tables.map(|table| u64::from(count(table))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flows_of_all_tables_are_added_and_half_a_table_is_none() {
        let mut reply = vec![0; MULTIPART + 2 * TABLE + 7];
        reply[MULTIPART + 7] = 3;
        reply[MULTIPART + TABLE + 6] = 1;
        reply[MULTIPART + 2 * TABLE + 6] = 1;
        assert_eq!(active(&reply), 259);
        assert_eq!(active(&[]), 0);
    }
}
