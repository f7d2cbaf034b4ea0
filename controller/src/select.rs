//! What selects what: labels, selectors, and the sets of addresses that rules name.

pub mod labels;
pub mod matching;
pub mod name_changes;
pub mod names;
pub mod node_address_changes;
pub mod node_addresses;
pub mod peer;
pub mod port_changes;
pub mod ports;
pub mod resolver;
pub mod selector;
pub mod selectors;
pub mod set_changes;
pub mod set_rows;
pub mod sets;
