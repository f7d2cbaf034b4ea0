//! Whoever runs a DNS zone.

use super::{Party, Row, row};

pub(super) const ROWS: &[Row] = &[
    row(
        50,
        Party::Zone,
        "an answer with addresses of nodes, for a name that an EgressFirewall allows",
        "the nodes stay closed to the pods",
    ),
    row(51, Party::Zone, "an answer with the API server's address", "it stays closed to the pods"),
    row(
        52,
        Party::Zone,
        "an answer with link-local, loopback and masquerading addresses",
        "they stay closed to the pods",
    ),
    row(
        53,
        Party::Zone,
        "an answer with another tenant's pod and a Service",
        "the other tenant's closed pod stays closed",
    ),
    row(
        54,
        Party::Zone,
        "silence about 500 names of one tenant",
        "another tenant's name has its first answer within 15 s",
    ),
    row(
        55,
        Party::Zone,
        "other addresses with each answer",
        "a connection that had been let out goes on",
    ),
];
