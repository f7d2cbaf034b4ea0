//! CoreDNS: two replicas, and their Service `kube-dns` at the address that every kubelet tells its
//! pods.
//!
//! Must not know: how a Service gets to its pods.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};

use super::{Cluster, attached::is_ready, programs};
use crate::{Families, mounts, world::Machine};

/// Address of the Service, which every kubelet tells its pods.
pub const ADDRESS: &str = "10.96.0.10";
/// The same in a cluster with IPv6 alone.
const ADDRESS_V6: &str = "fd00:10:96::a";
/// Namespace of the Deployment.
pub const NAMESPACE: &str = "kube-system";
/// Replicas in the manifest.
const REPLICAS: usize = 2;

/// How long CoreDNS may take to be ready: a second after its pods' network on an idle machine; the
/// rest is for a busy one.
const PATIENCE: Duration = Duration::from_secs(90);

/// Address of the Service in a cluster of these families.
pub(super) fn address(families: Families) -> &'static str {
    match families {
        Families::V4 | Families::Dual => ADDRESS,
        Families::V6 => ADDRESS_V6,
    }
}

impl Cluster {
    /// Starts CoreDNS and waits until both replicas are ready, i.e. have read the cluster's
    /// services.
    ///
    /// # Errors
    /// If they are not ready in time.
    pub fn start_dns(&self) -> Result<()> {
        let archive = programs::dns_image()?;
        self.each_node(|node, worker| worker.import_image(node, &archive))?;
        let [fallthrough, forward, others] = match &self.name_server {
            Some(_) => {
                let forward =
                    format!("forward . {}", self.lab.world().addresses(Machine::Resolver)[0]);
                ["fallthrough in-addr.arpa ip6.arpa".to_owned(), forward.clone(), forward]
            }
            None => [
                String::new(),
                String::new(),
                "template ANY ANY {\n            rcode NXDOMAIN\n        }".to_owned(),
            ],
        };
        let manifest = include_str!("coredns.yaml")
            .replace("ADDRESS", address(self.families))
            .replace("IMAGE", programs::COREDNS)
            .replace("FALLTHROUGH", &fallthrough)
            .replace("FORWARD", &forward)
            .replace("OTHERS", &others);
        let file = Path::new(mounts::LAB).join("coredns.yaml");
        fs::write(&file, manifest).with_context(|| format!("write {}", file.display()))?;
        self.kubectl(["create", "--filename", &file.to_string_lossy()])?;
        self.pods.wait("both replicas of CoreDNS are ready", PATIENCE, |known| {
            let prefix = format!("{NAMESPACE}/coredns-");
            let ready =
                known.iter().filter(|(key, pod)| key.starts_with(&prefix) && is_ready(pod)).count();
            ensure!(ready == REPLICAS, "{ready} are");
            Ok(())
        })
    }
}
