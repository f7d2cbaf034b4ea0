//! The CNI plugin `ovn-k8s-cni-overlay`. The container runtime calls it once per pod event, to attach a pod
//! to its network or to detach it.
//!
//! ```text
//! environment + stdin ─▶ Call ─▶ NetConf ─▶ wire::Request ═▶ server
//!     ═▶ PodInterface ─▶ Attachment ─▶ link + rows ─▶ CniResult
//! ```
//!
//! Each value can only be made from the one before it. [`podnet`] does the work on links and rows. The
//! modules:
//!
//! | module | noun | reads | writes |
//! |---|---|---|---|
//! | [`mod@run`] | one call, from the environment to the exit status | all of these | standard output, log |
//! | [`invocation`] | [`invocation::Call`]: the runtime's request, checked | environment | – |
//! | [`mod@stdin`] | the bytes of the configuration, limited in time and size | standard input | – |
//! | [`ask`] | [`ask::Server`]: the node-local server, as the plugin sees it | unix socket | unix socket |
//! | [`add`], [`del`], [`check`], [`status`], [`gc`] | one verb each | server, [`podnet`] | [`podnet`] |
//! | [`port`] | [`port::Port`]: an ADD's port, written by server or plugin | server, OVSDB | the same |
//! | [`result`] | [`result::CniResult`] in every CNI version | – | – |
//! | [`error`] | [`error::Failure`]: chooses an error's code, message and hint | – | – |
//! | [`timeline`] | [`timeline::Timeline`]: stages of an ADD, their times and deadline | clock | – |
//! | [`netns_link`] | [`netns_link::NetnsLinks`]: names of pods' namespaces for `ip netns` | – | links |
//! | [`failpoint`] | for tests: where the plugin fails, dies or hangs | environment | – |
//!
//! Only [`error`], [`add`] and [`mod@run`] know [`error::Cause`]; every other module has its own error type.
//! Nothing here starts another program.

pub mod add;
pub mod ask;
pub mod check;
pub mod del;
pub mod error;
pub mod failpoint;
pub mod gc;
pub mod invocation;
pub mod netns_link;
pub mod port;
pub mod result;
pub mod run;
pub mod status;
pub mod stdin;
pub mod timeline;
