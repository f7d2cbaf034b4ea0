//! What options are read from beside the command line, so that tests can say what it is.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use super::{
    settings::{Origin, Setting, Settings},
    table::{self, kubernetes},
};

/// Where Kubernetes puts a pod's credentials.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The machine around a process.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// Variables of the environment, as far as they are text.
    pub environment: BTreeMap<String, String>,
    /// Directory with `token` and `ca.crt`.
    pub service_account: PathBuf,
    /// The configuration file that is read if none is asked for.
    pub conf_file: Option<PathBuf>,
}

impl Surroundings {
    /// Those of this process.
    pub fn of_process() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        Self {
            environment: std::env::vars_os().filter_map(text).collect(),
            service_account: SERVICE_ACCOUNT.into(),
            conf_file: Some(table::roles::CONFIG_FILE.default.into()),
        }
    }

    /// Nothing at all: the command line alone counts.
    pub fn none() -> Self {
        Self { environment: BTreeMap::new(), service_account: "/nonexistent".into(), conf_file: None }
    }

    pub(super) fn add_to(&self, settings: &mut Settings) {
        for spec in table::all() {
            if let Some((variable, value)) = spec.environment.and_then(|variable| Some((variable, self.environment.get(variable)?))) {
                settings.add(spec, Setting { value: value.clone(), origin: Origin::Environment(variable), insists: true });
            }
        }
        for (spec, file) in [(&kubernetes::TOKEN_FILE, "token"), (&kubernetes::CA_CERT, "ca.crt")] {
            let path = self.service_account.join(file);
            if let Some(value) = path.to_str().filter(|_| path.is_file()) {
                settings.add(spec, Setting { value: value.to_owned(), origin: Origin::ServiceAccount(path.clone()), insists: true });
            }
        }
        if let Some(value) = self.in_cluster() {
            settings.add(&kubernetes::API_SERVER, Setting { value, origin: Origin::InCluster, insists: true });
        }
    }

    /// The API server's address as every pod is told it.
    fn in_cluster(&self) -> Option<String> {
        let variable = |name: &str| self.environment.get(name).filter(|value| !value.is_empty());
        let (host, port) = (variable("KUBERNETES_SERVICE_HOST")?, variable("KUBERNETES_SERVICE_PORT")?);
        let is_v6 = host.contains(':') && !host.starts_with('[');
        Some(if is_v6 { format!("https://[{host}]:{port}") } else { format!("https://{host}:{port}") })
    }
}

/// Whether a file can be read, in words for a problem.
pub(super) fn readable(path: &Path) -> Result<(), String> {
    match std::fs::File::open(path).and_then(|file| file.metadata()) {
        Ok(metadata) if metadata.is_file() => Ok(()),
        Ok(_) => Err("is not a file".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
