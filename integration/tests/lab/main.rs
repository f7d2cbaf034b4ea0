//! All tests of the lab, one module for each subject.
//!
//! They are one program: each would be linked with the same libraries once more.
//!
//! | module | what it needs besides |
//! |---|---|
//! | `cluster` | a whole Kubernetes: `make test-cluster` |
//! | `faults` | failpoints, and a whole Kubernetes for some rows: `make faults` |
//! | `tenants` | the same: `make tenants` |
//! | `page` | Chromium: `make test-page` |

mod again;
mod applied;
mod attach;
mod bridges;
mod bundle;
mod chain;
mod chaos;
mod cluster;
mod cnitool;
mod concurrency;
mod connections;
mod crio;
mod daemon_metrics;
mod day_two;
mod detach;
mod egress_firewall;
mod egress_qos;
mod failpoints;
mod faults;
mod floor;
mod gateway_changes;
mod gateway_node;
mod gateways;
mod gc;
mod hand_back;
mod host_stack;
mod keeping;
mod limits;
mod management_port;
mod model;
mod multicast;
mod networks;
mod node_ports;
mod node_services;
mod page;
mod policies;
mod ports;
mod raft;
mod real_machines;
mod reports;
mod restarts;
mod results;
mod services;
mod status;
mod support;
mod take_over;
mod tenants;
mod trace;
mod traffic;
mod upgrade;
mod uplinks;
mod waiting;
mod walkthrough;
mod world;
mod zones;
