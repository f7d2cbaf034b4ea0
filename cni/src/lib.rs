//! The CNI plugin `ovn-k8s-cni-overlay`: called once per pod event, it gives a pod its network or takes it away.
//!
//! ```text
//! environment + stdin ─▶ Call ─▶ NetConf ─▶ wire::Request ═▶ server ═▶ PodInterface ─▶ Attachment ─▶ link + rows ─▶ CniResult
//! ```
//!
//! Each value can only be made from the one before it. What is done to links and rows is in [`podnet`]. What is where:
//!
//! | module | noun | reads | writes |
//! |---|---|---|---|
//! | [`mod@run`] | one call, from the environment to the exit status | all of these | standard output, log |
//! | [`invocation`] | [`invocation::Call`]: what the runtime asks for, checked | environment | – |
//! | [`mod@stdin`] | the bytes of the configuration, within limits of time and size | standard input | – |
//! | [`ask`] | [`ask::Server`]: the node-local server, as the plugin sees it | unix socket | unix socket |
//! | [`add`], [`del`], [`check`], [`status`], [`gc`] | one verb each | the server, [`podnet`] | through [`podnet`] |
//! | [`port`] | [`port::Port`]: an ADD's port, written by the server or by the plugin | the server, OVSDB | the same |
//! | [`result`] | [`result::CniResult`] in every CNI version | – | – |
//! | [`error`] | [`error::Failure`]: the one place that chooses an error's code, words and hint | – | – |
//! | [`timeline`] | [`timeline::Timeline`]: stages of an ADD, their times and deadline | clock | – |
//! | [`failpoint`] | for tests: where the plugin fails, dies or hangs | environment | – |
//!
//! Only [`error`], [`add`] and [`mod@run`] know [`error::Cause`]; every other module has an error of its own. Nothing here starts another program.

pub mod add;
pub mod ask;
pub mod check;
pub mod del;
pub mod error;
pub mod failpoint;
pub mod gc;
pub mod invocation;
pub mod port;
pub mod result;
pub mod run;
pub mod status;
pub mod stdin;
pub mod timeline;
