//! The API server of a site: one that the test plays, or a real one with etcd.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicU64, Ordering},
};

use anyhow::{Context as _, Result};
use integration::cluster;
use serde_json::{Value, json};

use crate::support::api;

/// What rows do with objects. An object has at least its kind and names.
pub(crate) trait Objects {
    /// Creates it, or makes it what this says; returns it as it is then.
    fn put(&self, object: &Value) -> Result<Value>;
    /// Changes what a merge patch names.
    fn patch(&self, object: &Value, patch: &Value) -> Result<Value>;
    /// Deletes it, if it is there.
    fn remove(&self, object: &Value) -> Result<()>;
    /// As it is now.
    fn read(&self, object: &Value) -> Result<Value>;
    /// The reasons of all events so far.
    fn events(&self) -> Result<Vec<String>>;
    /// Where nodes reach it.
    fn address(&self) -> SocketAddr;
}

/// The one that the test plays. It takes what a real one would refuse.
pub(crate) struct Played<'a> {
    pub(crate) api: &'a api::Api,
    pub(crate) uids: AtomicU64,
}

impl Objects for Played<'_> {
    fn put(&self, object: &Value) -> Result<Value> {
        let mut object = object.clone();
        let before = self.api.read(&object);
        let metadata = &mut object["metadata"];
        let number = self.uids.fetch_add(1, Ordering::Relaxed);
        let fresh = json!({
            "uid": format!("00000000-0000-4000-9000-{number:012}"),
            "creationTimestamp": format!("2026-11-28T{:02}:{:02}:{:02}Z", number / 3600 % 24, number / 60 % 60, number % 60),
        });
        for field in ["uid", "creationTimestamp"] {
            if metadata[field].is_null() {
                let known = before.as_ref().map(|before| before["metadata"][field].clone());
                metadata[field] = known.unwrap_or_else(|| fresh[field].clone());
            }
        }
        self.api.put(object.clone());
        Ok(object)
    }

    fn patch(&self, object: &Value, patch: &Value) -> Result<Value> {
        self.api.patch(object, patch).with_context(|| format!("there is no {object}"))
    }

    fn remove(&self, object: &Value) -> Result<()> {
        self.api.remove(object);
        Ok(())
    }

    fn read(&self, object: &Value) -> Result<Value> {
        self.api.read(object).with_context(|| format!("there is no {object}"))
    }

    fn events(&self) -> Result<Vec<String>> {
        Ok(self.api.events())
    }

    fn address(&self) -> SocketAddr {
        address(self.api.url())
    }
}

/// A real one, as its administrator.
pub(crate) struct Real<'a> {
    pub(crate) api: &'a cluster::Api,
}

impl Objects for Real<'_> {
    fn put(&self, object: &Value) -> Result<Value> {
        let created = self.api.create(&collection(object)?, object);
        let exists =
            created.as_ref().is_err_and(|error| format!("{error:#}").contains("AlreadyExists"));
        if exists { self.patch(object, object) } else { created }
    }

    fn patch(&self, object: &Value, patch: &Value) -> Result<Value> {
        let path = path(object)?;
        // The status has a path of its own, whatever else changes.
        if patch["status"].is_object() {
            self.api.patch(&format!("{path}/status"), &json!({"status": patch["status"]}))?;
        }
        self.api.patch(&path, patch)
    }

    fn remove(&self, object: &Value) -> Result<()> {
        // Nothing here ends a namespace: one that was deleted stays, and takes nothing from another
        // row.
        if object["kind"] == "Namespace" {
            return Ok(());
        }
        // No kubelet ends a pod.
        let path = format!("{}?gracePeriodSeconds=0", path(object)?);
        match self.api.delete(&path) {
            Err(error) if !format!("{error:#}").contains("NotFound") => Err(error),
            _ => Ok(()),
        }
    }

    fn read(&self, object: &Value) -> Result<Value> {
        self.api.read(&path(object)?)
    }

    fn events(&self) -> Result<Vec<String>> {
        let events = self.api.read("/apis/events.k8s.io/v1/events")?;
        let reasons = events["items"].as_array().into_iter().flatten();
        Ok(reasons.filter_map(|event| event["reason"].as_str().map(str::to_owned)).collect())
    }

    fn address(&self) -> SocketAddr {
        address(cluster::control_plane::URL)
    }
}

fn address(url: &str) -> SocketAddr {
    let (_, address) = url.split_once("://").expect("a URL");
    address.parse().expect("an address and a port")
}

fn path(object: &Value) -> Result<String> {
    let name = object["metadata"]["name"].as_str().context("an object has a name")?;
    Ok(format!("{}/{name}", collection(object)?))
}

fn collection(object: &Value) -> Result<String> {
    let kind = object["kind"].as_str().context("an object has a kind")?;
    let (group, plural) = match kind {
        "Node" => ("/api/v1", "nodes"),
        "Namespace" => ("/api/v1", "namespaces"),
        "Pod" => ("/api/v1", "pods"),
        "Service" => ("/api/v1", "services"),
        "EndpointSlice" => ("/apis/discovery.k8s.io/v1", "endpointslices"),
        "NetworkPolicy" => ("/apis/networking.k8s.io/v1", "networkpolicies"),
        "EgressFirewall" => ("/apis/k8s.ovn.org/v1", "egressfirewalls"),
        other => anyhow::bail!("no row has a {other}"),
    };
    Ok(match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{group}/namespaces/{namespace}/{plural}"),
        None => format!("{group}/{plural}"),
    })
}
