//! Kinds of objects that exist in a cluster once an administrator has added their definitions
//! (CustomResourceDefinitions): where the API has them, and the versions of them that these
//! programs can read.

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

pub const ADMIN_NETWORK_POLICY: Definition = Definition {
    group: "policy.networking.k8s.io",
    plural: "adminnetworkpolicies",
    versions: &["v1alpha1"],
};

pub const BASELINE_ADMIN_NETWORK_POLICY: Definition = Definition {
    group: "policy.networking.k8s.io",
    plural: "baselineadminnetworkpolicies",
    versions: &["v1alpha1"],
};

pub const EGRESS_FIREWALL: Definition =
    Definition { group: "k8s.ovn.org", plural: "egressfirewalls", versions: &["v1"] };

pub const EGRESS_QOS: Definition =
    Definition { group: "k8s.ovn.org", plural: "egressqoses", versions: &["v1"] };

/// A kind of object that this project defines: a namespace has one at most, by the name
/// [`CUSTOM_NAME`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CustomKind {
    EgressFirewall,
    EgressQos,
}

/// The only name that an object of a [`CustomKind`] can have.
pub const CUSTOM_NAME: &str = "default";

/// What programs have to know of a [`CustomKind`].
struct CustomFacts {
    /// `kind` in the API, and the owner type in the ids of rows.
    kind: &'static str,
    plural: &'static str,
    words: &'static str,
    /// Status of an object whose rows are in the database, in upstream's words.
    applied: &'static str,
    /// Status of an object with a part that cannot be used.
    not_applied: &'static str,
    /// The collection of all objects, of the newest version.
    collection: &'static str,
    definition: &'static Definition,
}

impl CustomKind {
    pub const ALL: [Self; 2] = [Self::EgressFirewall, Self::EgressQos];

    const fn facts(self) -> &'static CustomFacts {
        match self {
            Self::EgressFirewall => &CustomFacts {
                kind: "EgressFirewall",
                plural: "EgressFirewalls",
                words: "egress firewall",
                applied: "EgressFirewall Rules applied",
                not_applied: "EgressFirewall Rules not correctly applied",
                collection: "/apis/k8s.ovn.org/v1/egressfirewalls",
                definition: &EGRESS_FIREWALL,
            },
            Self::EgressQos => &CustomFacts {
                kind: "EgressQoS",
                plural: "EgressQoSes",
                words: "egress QoS",
                applied: "EgressQoS Rules applied",
                not_applied: "EgressQoS Rules not correctly applied",
                collection: "/apis/k8s.ovn.org/v1/egressqoses",
                definition: &EGRESS_QOS,
            },
        }
    }

    /// `kind` in the API, and the owner type in the ids of its rows.
    pub const fn as_str(self) -> &'static str {
        self.facts().kind
    }

    /// The same, in the plural.
    pub const fn plural(self) -> &'static str {
        self.facts().plural
    }

    /// The same in words, for log and messages.
    pub const fn words(self) -> &'static str {
        self.facts().words
    }

    /// The status of an object whose rows are in the database.
    pub const fn applied(self) -> &'static str {
        self.facts().applied
    }

    /// The status of an object with a part that cannot be used.
    pub const fn not_applied(self) -> &'static str {
        self.facts().not_applied
    }

    /// The collection of all objects, of the newest version that these programs can read.
    pub const fn collection(self) -> &'static str {
        self.facts().collection
    }

    /// Where the API has the kind.
    pub const fn definition(self) -> &'static Definition {
        self.facts().definition
    }
}

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
