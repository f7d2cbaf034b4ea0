//! Kinds of objects that exist in a cluster once an administrator has added their definitions
//! (CustomResourceDefinitions): where the API has them, and the versions of them that these programs can
//! read.

/// A kind of object that a definition adds to the API.
#[derive(Debug, PartialEq, Eq)]
pub struct Definition {
    pub group: &'static str,
    /// The resource: the name of its collections.
    pub plural: &'static str,
    /// Versions with the same fields, as far as these programs read them. The newest comes first.
    pub versions: &'static [&'static str],
}

/// v1beta1 has the fields of v1alpha2.
pub const CLUSTER_NETWORK_POLICY: Definition = Definition {
    group: "policy.networking.k8s.io",
    plural: "clusternetworkpolicies",
    versions: &["v1beta1", "v1alpha2"],
};

pub const ADMIN_NETWORK_POLICY: Definition =
    Definition { group: "policy.networking.k8s.io", plural: "adminnetworkpolicies", versions: &["v1alpha1"] };

pub const BASELINE_ADMIN_NETWORK_POLICY: Definition = Definition {
    group: "policy.networking.k8s.io",
    plural: "baselineadminnetworkpolicies",
    versions: &["v1alpha1"],
};

pub const EGRESS_FIREWALL: Definition =
    Definition { group: "k8s.ovn.org", plural: "egressfirewalls", versions: &["v1"] };

impl Definition {
    /// The newest version that these programs can read.
    pub fn newest(&self) -> &'static str {
        self.versions[0]
    }

    /// `apiVersion` of its objects.
    pub fn api_version(&self, version: &str) -> String {
        format!("{}/{version}", self.group)
    }

    /// The collection of all objects.
    pub fn path(&self, version: &str) -> String {
        format!("/apis/{}/{version}/{}", self.group, self.plural)
    }

    /// The collection of a namespace's objects.
    pub fn path_in(&self, version: &str, namespace: &str) -> String {
        format!("/apis/{}/{version}/namespaces/{namespace}/{}", self.group, self.plural)
    }

    /// The resource with its group, as roles and `kubectl` name it.
    pub fn resource(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }
}
