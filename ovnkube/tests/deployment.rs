//! The files that an administrator installs in a cluster (`conf/kubernetes`, `conf/helm`, the
//! images' recipes and entry point, `conf/logrotate.d`, dashboard and alerts), each loaded by its
//! real reader: the types of Kubernetes' API, `ovnkube`'s own options, logrotate, Helm, kustomize.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

#[path = "deployment/manifests.rs"]
mod manifests;

#[path = "deployment/chart.rs"]
mod chart;
#[path = "deployment/control_plane.rs"]
mod control_plane;
#[path = "deployment/daemon_sets.rs"]
mod daemon_sets;
#[path = "deployment/entry_point.rs"]
mod entry_point;
#[path = "deployment/image.rs"]
mod image;
#[path = "deployment/kubernetes.rs"]
mod kubernetes;
#[path = "deployment/kustomize.rs"]
mod kustomize;
#[path = "deployment/logrotate.rs"]
mod logrotate;
#[path = "deployment/monitoring.rs"]
mod monitoring;
