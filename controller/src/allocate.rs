//! Who gets which subnet, number and address. Pure: knows neither the API nor OVN.
//!
//! | module | noun |
//! |---|---|
//! | [`node_assignments`] | [`NodeAssignments`](node_assignments::NodeAssignments): what the cluster manager gives to nodes |

pub mod node_assignments;
