//! A prober of health checks and metrics.

use super::{Party, Row, row};

pub(super) const ROWS: &[Row] = &[
    row(
        45,
        Party::Prober,
        "100 idle connections to a health check of a Service",
        "a true prober has each answer within a second",
    ),
    row(
        46,
        Party::Prober,
        "100 connections to it that send a byte now and then",
        "a true prober has each answer within a second",
    ),
    row(
        47,
        Party::Prober,
        "300 idle connections of a pod to a node's metrics",
        "a true scraper has each answer within a second",
    ),
    row(
        48,
        Party::Prober,
        "300 connections to the control plane's metrics that send a byte now and then",
        "a true scraper has each answer within a second",
    ),
    row(
        49,
        Party::Prober,
        "requests of 50 MB without an end of the line, to node and control plane",
        "the connection ends, the next one is answered",
    ),
];
