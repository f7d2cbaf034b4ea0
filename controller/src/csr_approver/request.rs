//! A CertificateSigningRequest as it was read. Requests that are not for the server of a node are
//! dropped here: their text is not kept.

use std::{collections::BTreeMap, sync::Arc};

use contract::node_identity::{KUBELET_PREFIX, NODE_OF_TOKEN, SIGNER, USER_PREFIX};
use kubeapi::watch::Watched;
use rustls::pki_types::{CertificateSigningRequestDer, pem::PemObject};
use serde::Deserialize;
use x509_cert::{
    der::{
        Decode as _, Tag, Tagged as _,
        oid::db::rfc4519::{COMMON_NAME, ORGANIZATION_NAME},
    },
    name::Name,
    request::CertReq,
};

use crate::key::NodeName;

/// The longest request that is read, in bytes of PEM. One with a key of RSA with 4096 bits has 1.7
/// kB.
const LONGEST: usize = 16 * 1024;

/// A request for the certificate of a node's server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) name: Arc<str>,
    pub(super) uid: String,
    /// `resourceVersion`
    pub(super) version: String,
    /// Nobody has decided yet.
    pub(super) is_open: bool,
    /// Who asks, as the API server has authenticated it.
    pub(super) user: String,
    pub(super) groups: Vec<String>,
    /// The nodes that the user's token belongs to: one, or none if it is not a pod's.
    pub(super) nodes_of_token: Vec<String>,
    pub(super) usages: Vec<String>,
    pub(super) expiration_seconds: Option<i32>,
    pub(super) subject: Subject,
}

/// What the certificate is requested to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Subject {
    /// One organization and one common name, and nothing else.
    Plain { organization: String, common_name: String },
    /// More or less than that.
    Other { common_name: String },
    /// Extensions, such as further names.
    WithExtensions { common_name: String },
}

/// The object, as far as it is used.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct SigningRequest {
    metadata: Metadata,
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    resource_version: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    request: k8s_openapi::ByteString,
    #[serde(default)]
    signer_name: String,
    #[serde(default)]
    usages: Vec<String>,
    #[serde(default)]
    username: String,
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default)]
    extra: BTreeMap<String, Vec<String>>,
    expiration_seconds: Option<i32>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Status {
    #[serde(default)]
    conditions: Vec<Condition>,
    certificate: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Clone, Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    type_: String,
}

impl Watched for SigningRequest {
    type Key = Arc<str>;
    /// None for a request that is not about the server of a node.
    type Value = Option<Request>;
    const PATH: &'static str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    const KIND: &'static str = "certificatesigningrequests";

    fn version(&self) -> &str {
        &self.metadata.resource_version
    }

    fn key(&self) -> Result<Arc<str>, String> {
        Ok(self.metadata.name.as_str().into())
    }

    fn value(self) -> Result<Option<Request>, String> {
        let Self { metadata, spec, status } = self;
        if spec.signer_name != SIGNER || spec.request.0.len() > LONGEST {
            return Ok(None);
        }
        // Other programs' requests may be anything; the API server checks only that there is one in
        // PEM.
        let Some(subject) = Subject::of(&spec.request.0) else { return Ok(None) };
        let mut extra = spec.extra;
        let is_decided = status
            .conditions
            .iter()
            .any(|condition| ["Approved", "Denied"].contains(&&*condition.type_));
        Ok(Some(Request {
            name: metadata.name.into(),
            uid: metadata.uid,
            version: metadata.resource_version,
            is_open: !is_decided && status.certificate.is_none(),
            user: spec.username,
            groups: spec.groups,
            nodes_of_token: extra.remove(NODE_OF_TOKEN).unwrap_or_default(),
            usages: spec.usages,
            expiration_seconds: spec.expiration_seconds,
            subject,
        }))
    }
}

impl Request {
    /// The node whose kubelet or server asks; none if it is another user.
    pub(super) fn own_node(&self) -> Option<NodeName> {
        let node = self
            .user
            .strip_prefix(USER_PREFIX)
            .or_else(|| self.user.strip_prefix(KUBELET_PREFIX))?;
        Some(node.into())
    }
}

impl Subject {
    /// `None` if it is not about a user of a node's server.
    fn of(pem: &[u8]) -> Option<Self> {
        let der = CertificateSigningRequestDer::from_pem_slice(pem).ok()?;
        let request = CertReq::from_der(&der).ok()?;
        let subject = &request.info.subject;
        // Any of several common names: which of them a signer would take is not known.
        let common_name =
            texts(subject, COMMON_NAME).into_iter().find(|name| name.starts_with(USER_PREFIX))?;
        if !request.info.attributes.is_empty() {
            return Some(Self::WithExtensions { common_name });
        }
        let organizations = texts(subject, ORGANIZATION_NAME);
        match <[String; 1]>::try_from(organizations) {
            Ok([organization]) if subject.iter().count() == 2 => {
                Some(Self::Plain { organization, common_name })
            }
            _ => Some(Self::Other { common_name }),
        }
    }
}

/// The values of an attribute that are text in ASCII or UTF-8. Other forms stand for other
/// characters than their bytes say.
fn texts(name: &Name, oid: x509_cert::der::oid::ObjectIdentifier) -> Vec<String> {
    name.iter()
        .filter(|attribute| attribute.oid == oid)
        .filter(|attribute| matches!(attribute.value.tag(), Tag::Utf8String | Tag::PrintableString))
        .filter_map(|attribute| String::from_utf8(attribute.value.value().to_vec()).ok())
        .collect()
}

#[cfg(test)]
pub(super) mod tests;
