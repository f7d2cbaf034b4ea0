//! The rows of the matrix of tenants: who tries what, and what has to hold. Pure. Each of its
//! modules has the rows of one who tries them.
//!
//! A number is never given to another attack, and an expectation never changes with the code: a row
//! that does not hold says so (`Row::fails`).

use std::sync::LazyLock;

mod kubelet;
mod neighbour;
mod other_zone;
mod pods;
mod policies;
mod prober;
mod raw;
mod server;
mod services;
mod zone;

/// Somebody who is not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Party {
    /// All rights in one namespace, in every field of every object.
    User,
    /// A pod with NET_RAW: any frame.
    Pod,
    /// One kubelet's credential.
    Kubelet,
    /// The service account of a node's server.
    Server,
    /// A compromised node of another zone: its annotations.
    OtherZone,
    /// A machine on the node's layer 2.
    Neighbour,
    /// Whoever runs a DNS zone.
    Zone,
    /// Whoever probes health checks.
    Prober,
}

impl Party {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::User,
        Self::Pod,
        Self::Kubelet,
        Self::Server,
        Self::OtherZone,
        Self::Neighbour,
        Self::Zone,
        Self::Prober,
    ];

    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Pod => "pod",
            Self::Kubelet => "kubelet",
            Self::Server => "node's server",
            Self::OtherZone => "another zone's node",
            Self::Neighbour => "neighbour",
            Self::Zone => "DNS zone",
            Self::Prober => "prober",
        }
    }

    /// As the title of its part of the table.
    pub fn title(self) -> &'static str {
        match self {
            Self::User => "A user with all rights in one namespace",
            Self::Pod => "A pod with a raw socket (NET_RAW)",
            Self::Kubelet => "One kubelet's credential",
            Self::Server => "The service account of a compromised node's server",
            Self::OtherZone => "A compromised node of another zone",
            Self::Neighbour => "A machine on the nodes' layer 2",
            Self::Zone => "Whoever runs a DNS zone",
            Self::Prober => "A prober of health checks and metrics",
        }
    }
}

/// One attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// From 1.
    pub number: u8,
    /// Who.
    pub party: Party,
    /// What it does.
    pub attack: &'static str,
    /// What has to hold, besides what the bystander must not notice.
    pub expected: &'static str,
    /// What OVN or Kubernetes itself cannot prevent, with upstream's and kube-proxy's behaviour
    /// beside it.
    pub beside: Option<&'static str>,
    /// Why it does not hold today.
    pub fails: Option<&'static str>,
}

const fn row(number: u8, party: Party, attack: &'static str, expected: &'static str) -> Row {
    Row { number, party, attack, expected, beside: None, fails: None }
}

impl Row {
    /// The expectation stays as it is; beside it, what cannot be prevented here.
    const fn beside(self, beside: &'static str) -> Self {
        Self { beside: Some(beside), ..self }
    }

    /// The expectation stays as it is, and is not met.
    const fn fails(self, reason: &'static str) -> Self {
        Self { fails: Some(reason), ..self }
    }
}

/// Every row, by ascending numbers.
pub static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| {
    let of_each = [
        policies::ROWS,
        services::ROWS,
        pods::ROWS,
        raw::ROWS,
        kubelet::ROWS,
        server::ROWS,
        other_zone::ROWS,
        neighbour::ROWS,
        zone::ROWS,
        prober::ROWS,
    ];
    let mut rows = of_each.concat();
    rows.sort_by_key(|row| row.number);
    rows
});

/// The row with this number.
pub fn find(number: u8) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.number == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_numbered_from_1_without_a_gap() {
        let numbers: Vec<u8> = ROWS.iter().map(|row| row.number).collect();
        assert!(numbers.iter().copied().eq((1..=u8::MAX).take(numbers.len())), "{numbers:?}");
    }
}
