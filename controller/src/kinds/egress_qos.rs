//! EgressQoSes (`k8s.ovn.org/v1`): DSCP marks on what the pods of a namespace send.

pub mod changes;
pub mod object;
pub mod rows;
