//! What a cloud provider does for Services of type `LoadBalancer`, and nothing else: it writes an
//! address into their status, and clients outside of the cluster reach the address by way of the
//! nodes that serve it. What becomes of their packets on a node is the network's part.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use anyhow::Result;
use futures_util::{StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::Service;
use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams},
    runtime::{WatchStreamExt as _, watcher},
};
use serde_json::{Value, json};

use super::{Cluster, pods::Soon};
use routes::{Balancing, Routes, Spread};

mod routes;

/// First address of the pool of each family, from the ranges for documentation (RFC 5737, RFC
/// 3849).
const POOL_V4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 0);
const POOL_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x198, 0x51, 0, 0, 0, 0);
/// What keeps a Service until its address has been given back; Kubernetes' own name.
const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

impl Cluster {
    /// Gives every Service of type `LoadBalancer` its addresses, from now on until the cluster
    /// ends.
    ///
    /// # Errors
    /// If clients outside of the cluster do not get their addresses.
    pub fn assign_load_balancers(&self) -> Result<()> {
        for client in routes::add_clients()? {
            if self.lab.has_world() {
                self.lab.world().lead_to_lab(client)?;
            }
        }
        let client = self.api.client.clone();
        let nodes = self.lab.nodes.iter().map(|node| node.index).collect();
        self.api.runtime.spawn(async move {
            let services = kube::Api::<Service>::all(client.clone());
            let events =
                watcher(services, watcher::Config::default()).backoff(Soon).applied_objects();
            pin_mut!(events);
            let mut pool = Pool { nodes, served: BTreeMap::new() };
            while let Some(event) = events.next().await {
                let Ok(service) = event else { continue };
                let api =
                    kube::Api::namespaced(client.clone(), &service.namespace().unwrap_or_default());
                match pool.serve(&api, &service).await {
                    Ok(()) => {}
                    // It went meanwhile.
                    Err(error) if is_gone(&error) => {}
                    Err(error) => eprintln!("load balancer of {}: {error:#}", service.name_any()),
                }
            }
        });
        Ok(())
    }
}

/// Which Service has which number of the pool, by the Service's UID.
#[derive(Debug)]
struct Pool {
    /// The nodes' numbers.
    nodes: Vec<u32>,
    served: BTreeMap<String, Served>,
}

#[derive(Debug)]
struct Served {
    number: u8,
    routes: Routes,
}

impl Pool {
    async fn serve(&mut self, api: &kube::Api<Service>, service: &Service) -> Result<()> {
        let spec = service.spec.clone().unwrap_or_default();
        let name = service.name_any();
        let uid = service.uid().unwrap_or_default();
        let mut finalizers = service.finalizers().to_vec();
        let is_kept = finalizers.iter().any(|finalizer| finalizer == FINALIZER);
        let wants = spec.type_.as_deref() == Some("LoadBalancer")
            // A class names another implementation.
            && spec.load_balancer_class.is_none()
            && service.metadata.deletion_timestamp.is_none();
        if !wants {
            let was_served = self.served.remove(&uid).is_some();
            if was_served {
                write_status(api, &name, &json!({"loadBalancer": {"ingress": null}})).await?;
            }
            if is_kept {
                finalizers.retain(|finalizer| finalizer != FINALIZER);
                write(api, &name, &json!({"metadata": {"finalizers": finalizers}})).await?;
            }
            return Ok(());
        }
        let balancing = Balancing {
            health_check: spec.health_check_node_port.and_then(|port| u16::try_from(port).ok()),
            spread: match spec.session_affinity.as_deref() {
                Some("ClientIP") => Spread::Clients,
                _ => Spread::Connections,
            },
        };
        if let Some(served) = self.served.get_mut(&uid) {
            served.routes.follow(balancing);
            return Ok(());
        }
        let is_taken = |number: u8| self.served.values().any(|served| served.number == number);
        let Some(number) = (1..=u8::MAX).find(|number| !is_taken(*number)) else {
            anyhow::bail!("all addresses are taken");
        };
        let addresses: Vec<IpAddr> = spec
            .ip_families
            .unwrap_or_default()
            .iter()
            .map(|family| address(family, number))
            .collect();
        let mut routes = Routes::new(addresses.clone(), self.nodes.clone());
        routes.follow(balancing);
        self.served.insert(uid, Served { number, routes });
        if !is_kept {
            finalizers.push(FINALIZER.to_owned());
            write(api, &name, &json!({"metadata": {"finalizers": finalizers}})).await?;
        }
        let ingress: Vec<Value> =
            addresses.iter().map(|address| json!({"ip": address, "ipMode": "VIP"})).collect();
        write_status(api, &name, &json!({"loadBalancer": {"ingress": ingress}})).await
    }
}

fn is_gone(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(kube::Error::Api(status)) if status.code == 404)
}

fn address(family: &str, number: u8) -> IpAddr {
    if family == "IPv6" {
        IpAddr::from(Ipv6Addr::from(u128::from(POOL_V6) + u128::from(number)))
    } else {
        IpAddr::from(Ipv4Addr::from(u32::from(POOL_V4) + u32::from(number)))
    }
}

async fn write(api: &kube::Api<Service>, name: &str, patch: &Value) -> Result<()> {
    Ok(api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)?)
}

async fn write_status(api: &kube::Api<Service>, name: &str, status: &Value) -> Result<()> {
    let patch = json!({"status": status});
    Ok(api.patch_status(name, &PatchParams::default(), &Patch::Merge(&patch)).await.map(drop)?)
}
