//! The cluster and the user that the current context of a kubeconfig chooses. Programs that fetch
//! credentials (`exec`, `auth-provider`) are not run.

use std::path::{Path, PathBuf};

use base64::{Engine, engine::general_purpose::STANDARD};
use kube::config::{AuthInfo, Cluster};
use secrecy::ExposeSecret;

use super::config::{ConnectionConfig, ConnectionConfigError, Pem, Reader};

/// What the current context of a kubeconfig refers to.
pub(super) struct Kubeconfig {
    path: PathBuf,
    cluster: Cluster,
    user: AuthInfo,
}

impl Kubeconfig {
    pub(super) fn read(
        path: &Path,
        reader: &mut Reader<'_>,
    ) -> Result<Self, ConnectionConfigError> {
        let bytes = reader.read("kubeconfig", path)?;
        let bad =
            |problem: String| ConnectionConfigError::Kubeconfig { path: path.to_owned(), problem };
        // Report only the position: the parser's message may quote a secret.
        let file: kube::config::Kubeconfig =
            serde_yaml_ng::from_slice(&bytes).map_err(|error| match error.location() {
                Some(place) => bad(format!(
                    "line {}, column {}: not what a kubeconfig has there",
                    place.line(),
                    place.column()
                )),
                None => bad("it is not a kubeconfig".to_owned()),
            })?;
        let context_name = file
            .current_context
            .filter(|name| !name.is_empty())
            .ok_or_else(|| bad("it has no current-context".to_owned()))?;
        let context = file
            .contexts
            .into_iter()
            .find(|context| context.name == context_name)
            .and_then(|context| context.context);
        let context = context.ok_or_else(|| {
            bad(format!("it has no context {context_name:?}, its current-context"))
        })?;
        let cluster = file
            .clusters
            .into_iter()
            .find(|cluster| cluster.name == context.cluster)
            .and_then(|cluster| cluster.cluster);
        let cluster = cluster.ok_or_else(|| {
            bad(format!(
                "it has no cluster {:?}, as context {context_name:?} names it",
                context.cluster
            ))
        })?;
        // A missing user means anonymous requests, as in kubectl.
        let user = context
            .user
            .and_then(|name| file.auth_infos.into_iter().find(|user| user.name == name));
        Ok(Self {
            path: path.to_owned(),
            cluster,
            user: user.and_then(|user| user.auth_info).unwrap_or_default(),
        })
    }

    /// The configuration of the cluster, without credentials.
    pub(super) fn config(
        &self,
        reader: &mut Reader<'_>,
    ) -> Result<ConnectionConfig, ConnectionConfigError> {
        // Complete on purpose: a new field of kube's type has to be considered before this
        // compiles.
        let Cluster {
            server,
            insecure_skip_tls_verify,
            certificate_authority,
            certificate_authority_data,
            proxy_url,
            tls_server_name,
            disable_compression: _,
            extensions: _,
            other: _,
        } = &self.cluster;
        if proxy_url.as_ref().is_some_and(|url| !url.is_empty()) {
            return Err(self.bad("proxy-url is not supported: give the API server's own address"));
        }
        let server = server.as_deref().ok_or_else(|| self.bad("the cluster has no server"))?;
        let mut config = ConnectionConfig::new(server)?;
        config.config.accept_invalid_certs = insecure_skip_tls_verify.unwrap_or(false);
        config.origin.is_unverified = config.config.accept_invalid_certs;
        config.config.tls_server_name = tls_server_name.clone().filter(|name| !name.is_empty());
        if let Some(pem) = self.pem(
            "certificate-authority",
            certificate_authority_data.as_deref(),
            certificate_authority.as_deref(),
            reader,
        )? {
            config.trust(pem)?;
        }
        Ok(config)
    }

    /// Adds the credentials of the kubeconfig, as far as it has any.
    pub(super) fn present_user(
        &self,
        config: &mut ConnectionConfig,
        reader: &mut Reader<'_>,
    ) -> Result<(), ConnectionConfigError> {
        let AuthInfo { username, password, token, token_file, exec, auth_provider, .. } =
            &self.user;
        if exec.is_some() || auth_provider.is_some() {
            return Err(self.bad(
                "the user's credentials come from a program (exec or auth-provider), \
                 which is not run on a node: use a token file or a client certificate",
            ));
        }
        // Nothing else is handed on: kube would read the files of credentials once and for all, and
        // an unknown entry may hold a secret that no message should show.
        config.config.auth_info = AuthInfo {
            impersonate: self.user.impersonate.clone(),
            impersonate_uid: self.user.impersonate_uid.clone(),
            impersonate_groups: self.user.impersonate_groups.clone(),
            impersonate_user_extra: self.user.impersonate_user_extra.clone(),
            ..AuthInfo::default()
        };
        self.present_client_certificate(config, reader)?;
        let certificate = config.origin.credential.clone();
        // The file takes precedence, as in kubectl: the token beside it dates from when the
        // kubeconfig was written.
        match (token_file.as_deref().filter(|path| !path.is_empty()), token) {
            (Some(path), _) => config.present_token_file(&self.resolve(path), reader)?,
            (None, Some(token)) if !token.expose_secret().is_empty() => config.present_token(
                token.expose_secret(),
                format!("the token in {}", self.path.display()),
            )?,
            (None, _) if username.is_some() && password.is_some() => {
                let auth_info = &mut config.config.auth_info;
                (auth_info.username, auth_info.password) = (username.clone(), password.clone());
                config.origin.credential = format!("the password in {}", self.path.display());
            }
            (None, _) => return Ok(()),
        }
        if config.config.auth_info.client_certificate_data.is_some() {
            config.origin.credential = format!("{certificate} and {}", config.origin.credential);
        }
        Ok(())
    }

    fn present_client_certificate(
        &self,
        config: &mut ConnectionConfig,
        reader: &mut Reader<'_>,
    ) -> Result<(), ConnectionConfigError> {
        let AuthInfo {
            client_certificate,
            client_certificate_data,
            client_key,
            client_key_data,
            ..
        } = &self.user;
        let data = client_certificate_data.as_deref();
        let chain = self.pem("client-certificate", data, client_certificate.as_deref(), reader)?;
        let Some(chain) = chain else { return Ok(()) };
        let data = client_key_data.as_ref().map(ExposeSecret::expose_secret);
        let key = self.pem("client-key", data, client_key.as_deref(), reader)?;
        let key =
            key.ok_or_else(|| self.bad("the user has a client-certificate without client-key"))?;
        let is_same_file = key.origin == chain.origin;
        config.present_certificate(chain, Some(key).filter(|_| !is_same_file))
    }

    /// The PEM of one entry: inline data takes precedence over a file, as in kubectl.
    fn pem(
        &self,
        what: &'static str,
        data: Option<&str>,
        path: Option<&str>,
        reader: &mut Reader<'_>,
    ) -> Result<Option<Pem>, ConnectionConfigError> {
        if let Some(data) = data.filter(|data| !data.is_empty()) {
            let bytes = STANDARD
                .decode(data)
                .map_err(|_| self.bad(&format!("{what}-data is not base64")))?;
            return Ok(Some(Pem {
                bytes,
                origin: format!("{what}-data of {}", self.path.display()),
            }));
        }
        let Some(path) = path.filter(|path| !path.is_empty()).map(|path| self.resolve(path)) else {
            return Ok(None);
        };
        Ok(Some(Pem { bytes: reader.read(what, &path)?, origin: path.display().to_string() }))
    }

    /// A path relative to the kubeconfig's directory.
    fn resolve(&self, path: &str) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(path)
    }

    fn bad(&self, problem: &str) -> ConnectionConfigError {
        ConnectionConfigError::Kubeconfig { path: self.path.clone(), problem: problem.to_owned() }
    }
}
