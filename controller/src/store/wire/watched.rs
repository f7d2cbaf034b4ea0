//! The kinds of objects that the control plane watches.

use contract::names::{PodKey, ServiceKey, SliceKey};
use kubeapi::watch::Watched;

use super::{NodeObject, PodObject, ServiceObject, SliceObject};
use crate::{
    key::NodeName,
    store::{Node, Pod, Service, Slice},
};

impl Watched for NodeObject {
    type Key = NodeName;
    type Value = Node;
    const PATH: &'static str = "/api/v1/nodes";
    const KIND: &'static str = "nodes";

    fn version(&self) -> &str {
        self.metadata.resource_version.as_deref().unwrap_or_default()
    }

    fn key(&self) -> Result<NodeName, String> {
        let name = self.metadata.name.as_deref().filter(|name| !name.is_empty());
        Ok(name.ok_or("it has no name")?.into())
    }

    fn value(self) -> Result<Node, String> {
        Ok(self.into_node())
    }
}

impl Watched for PodObject {
    type Key = PodKey;
    type Value = (PodKey, Pod);
    const PATH: &'static str = "/api/v1/pods";
    const KIND: &'static str = "pods";

    fn version(&self) -> &str {
        self.metadata.resource_version.as_deref().unwrap_or_default()
    }

    fn key(&self) -> Result<PodKey, String> {
        let part = |text: &Option<String>| text.clone().unwrap_or_default();
        PodKey::new(&part(&self.metadata.namespace), &part(&self.metadata.name))
            .map_err(|error| error.to_string())
    }

    fn value(self) -> Result<(PodKey, Pod), String> {
        self.into_pod().map_err(|error| error.to_string())
    }
}

impl Watched for ServiceObject {
    type Key = ServiceKey;
    type Value = (ServiceKey, Service);
    const PATH: &'static str = "/api/v1/services";
    const KIND: &'static str = "services";

    fn version(&self) -> &str {
        self.metadata.resource_version.as_deref().unwrap_or_default()
    }

    fn key(&self) -> Result<ServiceKey, String> {
        let part = |text: &Option<String>| text.clone().unwrap_or_default();
        ServiceKey::new(&part(&self.metadata.namespace), &part(&self.metadata.name))
            .map_err(|error| error.to_string())
    }

    fn value(self) -> Result<(ServiceKey, Service), String> {
        Ok((self.key()?, self.into_service()))
    }
}

impl Watched for SliceObject {
    type Key = SliceKey;
    type Value = (SliceKey, Slice);
    const PATH: &'static str = "/apis/discovery.k8s.io/v1/endpointslices";
    const KIND: &'static str = "endpointslices";

    fn version(&self) -> &str {
        self.metadata.resource_version.as_deref().unwrap_or_default()
    }

    fn key(&self) -> Result<SliceKey, String> {
        let part = |text: &Option<String>| text.clone().unwrap_or_default();
        SliceKey::new(&part(&self.metadata.namespace), &part(&self.metadata.name))
            .map_err(|error| error.to_string())
    }

    fn value(self) -> Result<(SliceKey, Slice), String> {
        let key = self.key()?;
        let slice = self.into_slice(&key);
        Ok((key, slice))
    }
}
