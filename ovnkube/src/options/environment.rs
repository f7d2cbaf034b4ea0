//! The sources of options beside the command line, as a value that tests can replace.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use super::{
    kubernetes::is_server_known,
    settings::{Origin, Setting, Settings},
    table::{self, kubernetes},
};

/// The directory of a pod's credentials, mounted by the kubelet.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The environment of a process.
#[derive(Debug, Clone)]
pub struct Environment {
    /// Environment variables with values in UTF-8.
    pub variables: BTreeMap<String, String>,
    /// Directory with `token` and `ca.crt`.
    pub service_account: PathBuf,
    /// The configuration file to read if `--config-file` is not given.
    pub conf_file: Option<PathBuf>,
}

impl Environment {
    /// The environment of this process.
    pub fn of_process() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self {
            variables: std::env::vars_os().filter_map(text).collect(),
            service_account: SERVICE_ACCOUNT.into(),
            conf_file: Some(table::roles::CONFIG_FILE.default.into()),
        }
    }

    /// An empty environment: only the command line counts.
    pub fn none() -> Self {
        Self { variables: BTreeMap::new(), service_account: "/nonexistent".into(), conf_file: None }
    }

    pub(super) fn add_to(&self, settings: &mut Settings) {
        for spec in table::all() {
            if let Some((variable, value)) = spec
                .environment
                .and_then(|variable| Some((variable, self.variables.get(variable)?)))
            {
                settings.add(
                    spec,
                    Setting {
                        value: value.clone(),
                        origin: Origin::Environment(variable),
                        insists: true,
                    },
                );
            }
        }
        // A pod may have none (automountServiceAccountToken: false).
        for (spec, file) in [(&kubernetes::TOKEN_FILE, "token"), (&kubernetes::CA_CERT, "ca.crt")] {
            let path = self.service_account.join(file);
            if let Some(value) = path.to_str().filter(|_| path.is_file()) {
                settings.add(
                    spec,
                    Setting {
                        value: value.to_owned(),
                        origin: Origin::ServiceAccount(path.clone()),
                        insists: true,
                    },
                );
            }
        }
        if let Some(value) = self.in_cluster() {
            settings.add(
                &kubernetes::API_SERVER,
                Setting { value, origin: Origin::InCluster, insists: true },
            );
        }
    }

    /// Commands are for people, who have the file that kubectl reads. It counts where nothing else
    /// says where the API server is.
    pub(super) fn add_kubeconfig_of_user(&self, settings: &mut Settings) {
        let Some(home) = self.variables.get("HOME").filter(|home| !home.is_empty()) else { return };
        let path = Path::new(home).join(".kube/config");
        if let Some(value) = path.to_str().filter(|_| path.is_file() && !is_server_known(settings))
        {
            let value = value.to_owned();
            settings.add(
                &kubernetes::KUBECONFIG,
                Setting { value, origin: Origin::Default, insists: false },
            );
        }
    }

    /// The API server's address from the variables that the kubelet sets in every container.
    fn in_cluster(&self) -> Option<String> {
        let variable = |name: &str| self.variables.get(name).filter(|value| !value.is_empty());
        let (host, port) =
            (variable("KUBERNETES_SERVICE_HOST")?, variable("KUBERNETES_SERVICE_PORT")?);
        // The variable has an IPv6 address without the brackets that a URL needs.
        let is_v6 = host.contains(':') && !host.starts_with('[');
        Some(if is_v6 {
            format!("https://[{host}]:{port}")
        } else {
            format!("https://{host}:{port}")
        })
    }
}

/// Whether a file can be read. The error ends the text of a problem.
pub(super) fn readable(path: &Path) -> Result<(), String> {
    match std::fs::File::open(path).and_then(|file| file.metadata()) {
        Ok(metadata) if metadata.is_file() => Ok(()),
        Ok(_) => Err("is not a file".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
