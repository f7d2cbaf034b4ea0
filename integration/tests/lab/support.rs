//! What the tests of several subjects share.

pub(crate) mod api;
pub(crate) mod attached;
pub(crate) mod cluster_pods;
pub(crate) mod directions;
pub(crate) mod dns;
pub(crate) mod hosts;
pub(crate) mod in_service;
pub(crate) mod lasting;
pub(crate) mod late_nic;
pub(crate) mod managed;
pub(crate) mod planned;
pub(crate) mod policy_world;
pub(crate) mod second;
pub(crate) mod shape;
pub(crate) mod site;
pub(crate) mod two_zones;
pub(crate) mod view;
