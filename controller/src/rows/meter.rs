//! A rate limit. Columns follow ovn-nb(5), "Meter TABLE" and "Meter_Band TABLE".

use ovsdb::Datum;

use crate::rows::{DesiredRow, Table, Value};

/// Drops packets above a rate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meter {
    pub name: String,
    pub packets_per_second: u32,
    pub sharing: Sharing,
}

/// Whose packets a meter counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Those of each user by itself (`fair`).
    Each,
    /// Those of all users.
    Together,
}

impl From<Meter> for DesiredRow {
    fn from(Meter { name, packets_per_second, sharing }: Meter) -> Self {
        let band = vec![
            ("action", Datum::set(["drop"])),
            ("rate", Datum::set([i64::from(packets_per_second)])),
        ];
        Self {
            id: Table::Meter.row(name),
            columns: vec![
                ("unit", Value::Datum(Datum::set(["pktps"]))),
                ("fair", Value::Datum(Datum::set([sharing == Sharing::Each]))),
                ("bands", Value::Parts { table: Table::MeterBand, rows: vec![band] }),
            ],
            member_of: Vec::new(),
            or_member_of: Vec::new(),
            or_columns: Vec::new(),
            needs: Vec::new(),
        }
    }
}
