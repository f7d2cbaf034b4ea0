//! Keys and rows: dirty keys are compared with the replica of the database, and the difference is
//! one transaction. Names no kind of object.

pub mod commit;
pub mod diff;
pub mod northbound;
pub(crate) mod once;
pub mod reconcile;
