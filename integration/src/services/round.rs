//! One pod that becomes ready, and its Service, whose address has refused connections from the
//! other node so far.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context as _, Result, ensure};
use futures_util::{StreamExt as _, pin_mut};
use integration::{
    cluster::{
        attached::{address_of, is_ready},
        manifest,
    },
    eventually, executable,
    peer::{Moment, Pace},
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{
    Api,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event},
    },
};
use serde::Serialize;
use serde_json::{Value, json};

use super::site::{PATIENCE, PODS, Side, Site};

pub(super) const SERVICES: &str = "/api/v1/namespaces/default/services";
/// The port of a Service, and that of its server.
pub(super) const PORT: u16 = 80;
pub(super) const SERVER_PORT: u16 = 8080;
/// For so long, in milliseconds, a Service is refused before its pod is created. kube-proxy gathers
/// for a second what changes after a change: the pod must not wait for that.
const QUIET: f64 = 2000.0;

/// A pod, in milliseconds from the moment at which a watch of the API server shows it as ready.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Round {
    /// Until a watch shows it as ready in an EndpointSlice of its Service: Kubernetes' own part.
    pub(crate) listed: f64,
    /// Until the first connection to its Service is established.
    pub(crate) answered: f64,
}

impl Site {
    pub(crate) fn round(&self, side: &Side, number: u8) -> Result<Round> {
        let (name, api) = (format!("{}-{number}", side.network), &self.cluster.api);
        let listed = self.first_listed(&name);
        let address = self.create_service(&name)?;
        let to = SocketAddr::new(address, PORT);
        let connections = self.cluster.lab.connections(&side.client, to, Pace::FAST)?;
        connections.wait("the Service without a pod is refused", PATIENCE, |seen| {
            let first = seen.iter().find(|connection| connection.by.is_none())?;
            (seen.last()?.answered.milliseconds_since(first.answered) > QUIET).then_some(())
        })?;
        api.create(PODS, &self.server(&name, side)?)?;
        let key = format!("default/{name}");
        let (ready, server) = self.cluster.pods.wait("the pod is ready", PATIENCE, |known| {
            let pod = known.get(&key).filter(|pod| is_ready(pod)).context("it is not")?;
            Ok((Moment::now(), address_of(pod).map(str::to_owned)))
        })?;
        let server: IpAddr = server.context("a ready pod has an address")?.parse()?;
        let first = connections.first_by(SocketAddr::new(server, SERVER_PORT), PATIENCE)?;
        drop(connections);
        let listed = eventually("a slice has the pod", PATIENCE, || {
            listed.lock().unwrap_or_else(PoisonError::into_inner).context("none has")
        })?;
        api.delete(&format!("{SERVICES}/{name}"))?;
        api.delete(&format!("{PODS}/{name}"))?;
        self.cluster.pods.wait("the pod is gone", PATIENCE, |known| {
            ensure!(!known.contains_key(&key), "it is there");
            Ok(())
        })?;
        Ok(Round {
            listed: listed.milliseconds_since(ready),
            answered: first.answered.milliseconds_since(ready),
        })
    }

    /// Creates the Service of the pod of that name; its address.
    pub(super) fn create_service(&self, name: &str) -> Result<IpAddr> {
        let service = self.cluster.api.create(
            SERVICES,
            &json!({
                "apiVersion": "v1", "kind": "Service", "metadata": { "name": name },
                "spec": { "selector": { "name": name }, "ports": [{ "port": PORT, "targetPort": SERVER_PORT }] },
            }),
        )?;
        Ok(service["spec"]["clusterIP"].as_str().context("the Service has no address")?.parse()?)
    }

    /// A pod whose container answers as soon as it runs, with what the clients of
    /// [`integration::connections`] read: this program, in the node's root, which has its
    /// libraries.
    pub(super) fn server(&self, name: &str, side: &Side) -> Result<Value> {
        let program = executable::of_package("integration")?;
        let container = json!({
            "command": ["chroot", "/node", program, "peer", "answer", format!("$(ADDRESS):{SERVER_PORT}")],
            "env": [{ "name": "ADDRESS", "valueFrom": { "fieldRef": { "fieldPath": "status.podIP" } } }],
            "volumeMounts": [{ "name": "node", "mountPath": "/node" }],
        });
        let mut pod = manifest::on_node(manifest::pod(name, &container), &self.nodes(side)[0].name);
        pod["spec"]["volumes"] = json!([{ "name": "node", "hostPath": { "path": "/" } }]);
        Ok(pod)
    }

    /// The moment at which an EndpointSlice of the Service first has a ready endpoint, once there
    /// is one.
    fn first_listed(&self, service: &str) -> Arc<Mutex<Option<Moment>>> {
        let seen = Arc::new(Mutex::new(None));
        let (noting, client) = (Arc::clone(&seen), self.cluster.api.client.clone());
        let of_service =
            watcher::Config::default().labels(&format!("kubernetes.io/service-name={service}"));
        self.cluster.api.runtime.spawn(async move {
            let slices = Api::<EndpointSlice>::namespaced(client, "default");
            let events = watcher::watcher(slices, of_service).default_backoff();
            pin_mut!(events);
            while let Some(event) = events.next().await {
                if let Ok(Event::InitApply(slice) | Event::Apply(slice)) = event
                    && slice.endpoints.iter().any(|endpoint| {
                        endpoint
                            .conditions
                            .as_ref()
                            .is_some_and(|conditions| conditions.ready == Some(true))
                    })
                {
                    *noting.lock().unwrap_or_else(PoisonError::into_inner) = Some(Moment::now());
                    return;
                }
            }
        });
        seen
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "listed after {:.1} ms, answered after {:.1} ms", self.listed, self.answered)
    }
}
