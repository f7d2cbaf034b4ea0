//! The fault matrix: every row is one or more tests called `row_NN_what_holds`, which `make faults` runs and counts.
//!
//! A row's test says what it breaks and what it saw; [`integration::faults::row`] gives it a lab and asks afterwards what every row asks (no
//! leak, the next pod works, bystanders keep their traffic, valid answers, bounded time):
//!
//! ```ignore
//! #[test]
//! fn row_16_without_ovs_vswitchd_add_ends_at_its_deadline_and_says_so() {
//!     row(16).traffic_may_stop().test(|site| {
//!         let pod = site.new_pod()?;                       // cleaned up by whoever made the site
//!         site.node.vswitchd.kill()?;
//!         let outcome = site.add_within(2, &pod)?;
//!         site.failed(&pod, &outcome, 11, &["stage ofport", "ovs-vswitchd"])?;
//!         site.node.start_vswitchd()                       // the fault must be over at the end
//!     });
//! }
//! ```
//!
//! The closure has to be written in the test itself. `row(N).within(…)`, `.in_lab(Lab::of_nodes(2))` change what is usual; a row whose full size
//! takes long asks [`integration::faults::long_forms`]. The rows and why one may be absent: [`integration::faults::matrix`].
//!
//! | file | rows |
//! |---|---|
//! | `attachments` | what keeps attachments alive: 6, 11, 46, 53, 54 |
//! | `annotations` | the pod's annotation: 29 to 32 |
//! | `sandboxes` | several calls for one pod or one sandbox: 33 to 35 |
//! | `links` | names that are taken, namespaces that go away: 36, 37, 52 |
//! | `del` | DEL with anything, container ids: 38 to 40 |
//! | `switch` | ovs-vswitchd and the bridge: 16 to 19 |
//! | `oracles` | none: shows that each thing that every row asks can fail |

mod annotations;
mod attachments;
mod del;
mod links;
mod oracles;
mod sandboxes;
mod switch;
