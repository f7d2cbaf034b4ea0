//! Services, EndpointSlices and ServiceCIDRs, and their load balancers.

pub mod changes;
pub mod fanout;
pub mod problem;
pub mod range_changes;
pub mod ranges;
pub mod rows;
pub mod state;
pub mod template_use;
pub mod templates;
