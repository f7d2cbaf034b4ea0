//! One request for a certificate: a key, a CertificateSigningRequest, and the wait for the answer.
//! The private key leaves this program only into the file of the certificate.

use std::{fmt, time::Duration};

use contract::node_identity::{self, GROUP, SHORTEST_SECONDS, SIGNER, USAGES};
use k8s_openapi::{
    ByteString,
    api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, api::PostParams};
use kubeapi::{
    Connection, Trouble,
    watch::{self as objects, Observer, Prompt, Selection, Watched, WrongVersion},
};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ECDSA_P256_SHA256};
use serde::Deserialize;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// The timeout of one answer of the API server.
const PATIENCE: Duration = Duration::from_secs(30);
/// The API server completes the name.
const NAME: &str = "csr-ovn-node-";

/// A certificate chain and its key, as PEM.
pub(super) struct Issued {
    pub(super) chain: String,
    pub(super) key: String,
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub(super) enum RequestError {
    #[error("a key cannot be made: {0}")]
    Key(#[from] rcgen::Error),
    #[error("a certificate signing request cannot be made: {0}")]
    Create(Trouble),
    #[error("certificate signing request {name} is denied: {why}")]
    Denied { name: String, why: String },
    #[error("certificate signing request {name} is approved, and the signer has failed: {why}")]
    Failed { name: String, why: String },
    #[error("certificate signing request {0} was deleted before it was approved")]
    Deleted(String),
    #[error(
        "the certificate signing request was not approved within {0:?}: does the cluster manager approve them \
         (--approve-node-certificates)?"
    )]
    Pending(Duration),
    #[error("the certificate that the cluster has signed cannot be used: {0}")]
    Unusable(String),
}

/// Requests a certificate for the server of `node`, and waits for it without a limit.
pub(super) async fn issue(
    connection: &Connection,
    node: &str,
    duration: Duration,
) -> Result<Issued, RequestError> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let requests = Api::<CertificateSigningRequest>::all(connection.client().clone());
    let request = object(signing_request(node, &key)?, duration);
    let created = connection.ask(PATIENCE, requests.create(&PostParams::default(), &request)).await;
    let name = created.map_err(RequestError::Create)?.metadata.name.unwrap_or_default();
    tracing::info!(node, name, "requested a client certificate; waiting for its approval");
    let chain = wait(connection, name).await?;
    Ok(Issued { chain, key: key.serialize_pem() })
}

/// The request in the form of PKCS #10, as PEM.
fn signing_request(node: &str, key: &KeyPair) -> Result<String, rcgen::Error> {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::OrganizationName, GROUP);
    subject.push(DnType::CommonName, node_identity::user(node));
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = subject;
    params.serialize_request(key)?.pem()
}

fn object(request: String, duration: Duration) -> CertificateSigningRequest {
    // The options give whole seconds of a year at most.
    let seconds = i32::try_from(duration.as_secs().max(SHORTEST_SECONDS)).unwrap_or(i32::MAX);
    CertificateSigningRequest {
        metadata: ObjectMeta { generate_name: Some(NAME.to_owned()), ..ObjectMeta::default() },
        spec: CertificateSigningRequestSpec {
            request: ByteString(request.into_bytes()),
            signer_name: SIGNER.to_owned(),
            usages: Some(USAGES.map(str::to_owned).to_vec()),
            expiration_seconds: Some(seconds),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    }
}

/// Waits until the request is signed or denied.
async fn wait(connection: &Connection, name: String) -> Result<String, RequestError> {
    let (answers, mut answered) = unbounded_channel();
    let selection = Selection { patience: PATIENCE, ..Selection::named(&name) };
    let observer = AnswerObserver { answers, complained: None };
    let following =
        objects::follow::<Answer, _>(connection.clone(), selection, Prompt::default(), observer);
    let answer = tokio::select! {
        answer = answered.recv() => answer.flatten(),
        _ = following => None,
    };
    match answer {
        None => Err(RequestError::Deleted(name)),
        Some(Verdict::Signed(chain)) => Ok(chain),
        Some(Verdict::Denied(why)) => Err(RequestError::Denied { name, why }),
        Some(Verdict::Failed(why)) => Err(RequestError::Failed { name, why }),
    }
}

/// What became of the request.
enum Verdict {
    /// The chain, as PEM.
    Signed(String),
    Denied(String),
    Failed(String),
}

/// The request as the API server sends it.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
struct Answer(CertificateSigningRequest);

impl Watched for Answer {
    type Key = ();
    /// None as long as it is open.
    type Value = Option<Verdict>;
    const PATH: &'static str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    const KIND: &'static str = "certificatesigningrequests";

    fn version(&self) -> &str {
        self.0.metadata.resource_version.as_deref().unwrap_or_default()
    }

    /// The selection has one object at most, so it needs no key.
    fn key(&self) -> Result<(), String> {
        Ok(())
    }

    fn value(self) -> Result<Option<Verdict>, String> {
        let status = self.0.status.unwrap_or_default();
        if let Some(chain) = status.certificate.filter(|chain| !chain.0.is_empty()) {
            return Ok(Some(Verdict::Signed(String::from_utf8_lossy(&chain.0).into_owned())));
        }
        let conditions = status.conditions.unwrap_or_default();
        Ok(conditions.into_iter().find_map(|condition| {
            let why = condition.message.or(condition.reason).unwrap_or_default();
            match condition.type_.as_str() {
                "Denied" => Some(Verdict::Denied(why)),
                "Failed" => Some(Verdict::Failed(why)),
                _ => None,
            }
        }))
    }
}

struct AnswerObserver {
    /// None once the request is gone.
    answers: UnboundedSender<Option<Verdict>>,
    /// The last failure that was logged, to log each one once.
    complained: Option<String>,
}

impl AnswerObserver {
    fn tell(&self, answer: Option<Verdict>) {
        // Nobody waits any more after the first one.
        let _ = self.answers.send(answer);
    }
}

impl Observer<Answer> for AnswerObserver {
    fn all(&mut self, mut objects: Vec<Option<Verdict>>, _version: String) {
        match objects.pop() {
            None => self.tell(None),
            Some(None) => {}
            Some(verdict) => self.tell(verdict),
        }
    }

    fn applied(&mut self, verdict: Option<Verdict>, _version: &str) -> Result<(), WrongVersion> {
        if verdict.is_some() {
            self.tell(verdict);
        }
        Ok(())
    }

    fn deleted(&mut self, (): (), _version: &str) -> Result<(), WrongVersion> {
        self.tell(None);
        Ok(())
    }

    fn left_out(&mut self, _reason: &str) {}

    fn heard(&mut self) {
        self.complained = None;
    }

    fn lost(&mut self, why: &str) {
        if self.complained.as_deref() != Some(why) {
            tracing::warn!(
                problem = why,
                "cannot see what becomes of the certificate signing request"
            );
            self.complained = Some(why.to_owned());
        }
    }

    fn begins_anew(&mut self, _why: &str) {}
}

impl Issued {
    /// The certificate first, then the key, as client-go writes them.
    pub(super) fn to_pem(&self) -> String {
        let Self { chain, key } = self;
        format!("{}\n{key}", chain.trim_end())
    }
}

impl fmt::Debug for Issued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issued").finish_non_exhaustive()
    }
}

impl RequestError {
    /// The API server does not know the credential.
    pub(super) fn is_unauthorized(&self) -> bool {
        matches!(self, Self::Create(trouble) if trouble.code == Some(401))
    }

    /// The pause that the API server asks for.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Create(trouble) => trouble.retry_after,
            _ => None,
        }
    }
}
