//! The fault matrix: every row is one or more tests named `row_NN_what_holds`, which `make faults`
//! runs and counts.
//!
//! A row's test injects its fault and checks what it saw. [`integration::faults::row`] gives it a
//! lab and afterwards checks what every row must satisfy (no leak, the next pod works, bystanders
//! keep their traffic, valid answers, bounded time):
//!
//! ```ignore
//! #[test]
//! fn row_16_without_ovs_vswitchd_add_ends_at_its_deadline_and_says_so() {
//!     row(16).traffic_may_stop().test(|site| {
//!         let pod = site.new_pod()?;                       // the site removes it afterwards
//!         site.node.vswitchd.kill()?;
//!         let outcome = site.add_within(2, &pod)?;
//!         site.failed(&pod, &outcome, 11, &["stage ofport", "ovs-vswitchd"])?;
//!         site.node.start_vswitchd()                       // the fault must be over at the end
//!     });
//! }
//! ```
//!
//! The closure has to be written in the test itself. `row(N).within(…)`,
//! `.in_lab(Lab::of_nodes(2))` change the defaults; a row whose full size takes long checks
//! [`integration::faults::long_forms`]. The rows, and why one may be absent:
//! [`integration::faults::matrix`].
//!
//! | file | rows |
//! |---|---|
//! | `server` | the node-local server: 1 to 4, 8, 9 |
//! | `crashes` | kill -9 at every place of an ADD: 5 to 7 |
//! | `database` | Open vSwitch's database: 10, 12 to 15 |
//! | `switch` | ovs-vswitchd and the bridge: 16 to 19 |
//! | `ovn` | ovn-controller, ovn-northd, southbound database, logical ports: 20 to 24 |
//! | `api_server` | the API server is away, refuses, breaks off: 25 to 28; 31's Event; 46 with its pods |
//! | `api_server::status` | the API server is away while runtimes ask for STATUS: 67 |
//! | `api_server::unreadable` | unreadable objects of the API server, refused writes: 78 to 81 |
//! | `attachments` | what keeps attachments alive: 6, 11, 53, 54 |
//! | `api_server::all_databases` | both databases of OVN are lost under a whole cluster: 77 |
//! | `keeper` | the task that keeps attachments gets wrong data, or has much to do: 75, 76 |
//! | `annotations` | the pod's annotation: 29 to 32 |
//! | `sandboxes` | several calls for one pod or one sandbox: 33 to 35 |
//! | `links` | names that are taken, namespaces that go away: 36, 37, 52 |
//! | `del` | DEL with anything, container ids: 38 to 40 |
//! | `disks` | full and read-only disks: 41 to 43 |
//! | `limits` | descriptors and threads: 44, 45 |
//! | `memory` | memory: 46 |
//! | `clocks` | the wall clock: 47 |
//! | `callers` | unauthorised and excessive callers of the server's socket: 48, 49 |
//! | `kernel` | a storm of link changes, requests that the kernel refuses: 50, 51 |
//! | `gc`, `check` | the verbs of those names: 55, 56, 58 |
//! | `health` | STATUS: 57 |
//! | `versions` | plugin and server of other versions, and while they are replaced: 59 |
//! | `ending` | the server gets SIGTERM, or is killed repeatedly; many pods come and go: 60 to 62 |
//! | `stuck` | server and database that hang, and other users at the locks of calls: 63 to 65 |
//! | `connections` | tracked connections of an address that was given to another pod: 66 |
//! | `boot` | systemd starts the units of `conf/` on a node that boots: 71 to 73; its address changes: 74 |
//! | `leadership` | the control plane's leader dies, stops, ends, has the wrong database: 82 to 86, 96 |
//! | `leadership::other_cluster` | the control plane has another cluster's database or API server: 87, 88 |
//! | `runtimes` | how a container runtime judges a node: 67 to 70 |
//! | `gateways` | the gateway of a node: rules, flows, routes, ovs-vswitchd, its own server: 89 to 93 |
//! | `zones` | two zones: databases, chassis, numbers, addresses, clocks, a zone alone: 97 to 102 |
//! | `oracles` | none: shows that each check that every row makes can fail |

mod annotations;
mod api_server;
mod attachments;
mod boot;
mod callers;
mod check;
mod clocks;
mod connections;
mod crashes;
mod database;
mod del;
mod disks;
mod ending;
mod gateways;
mod gc;
mod health;
mod keeper;
mod kernel;
mod leadership;
mod limits;
mod links;
mod memory;
mod oracles;
mod ovn;
mod runtimes;
mod sandboxes;
mod server;
mod stuck;
mod switch;
mod versions;
mod zones;
