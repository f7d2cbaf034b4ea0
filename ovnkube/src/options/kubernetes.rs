//! The source of pods, and the way to the API server.

use base64::{Engine, prelude::BASE64_STANDARD};
use kubeapi::{ApiServer, Authority, Cluster, Credential};
use secrecy::SecretString;
use server::node::{CertificateConfig, PodsFrom};

use super::{
    external_ids,
    reading::Reading,
    settings::{Origin, Setting, Settings},
    spec::Spec,
    table::{kubernetes as table, kubernetes::POD_MANIFESTS},
    values,
};

const NOWHERE: &str = "say where pods are known from: --pod-manifests DIR, a directory of Pod manifests, \
                       or the API server: --k8s-kubeconfig FILE, \
                       or --k8s-apiserver URL with --k8s-cacert and --k8s-token-file";
const NO_API_SERVER: &str = "say how the control plane reaches the API server: --k8s-kubeconfig FILE, \
                             or --k8s-apiserver URL with --k8s-cacert and --k8s-token-file";

/// Options with the address of an API server, or with a file that has it.
static REACH_ONE: [&Spec; 3] =
    [&table::KUBECONFIG, &table::BOOTSTRAP_KUBECONFIG, &table::API_SERVER];
/// Options without effect if there is a kubeconfig.
static IN_KUBECONFIG: [&Spec; 3] = [&table::API_SERVER, &table::CA_CERT, &table::CA_CERT_DATA];
/// Options that give a credential. From the same source, an earlier one wins.
static CREDENTIALS: [&Spec; 3] = [&table::TOKEN_FILE, &table::TOKEN, &table::CLIENT_CERT];
/// The same for a node whose server requests a certificate.
static NODE_CREDENTIALS: [&Spec; 4] =
    [&table::TOKEN_FILE, &table::TOKEN, &table::CLIENT_CERT, &table::CERT_DIR];

/// Options that only make sense with an API server.
static SPEAK_OF_ONE: [&Spec; 6] = [
    &table::TOKEN_FILE,
    &table::TOKEN,
    &table::CLIENT_CERT,
    &table::CLIENT_PRIVKEY,
    &table::CA_CERT,
    &table::CA_CERT_DATA,
];

/// Whether the source of pods is known without `external_ids`.
pub(super) fn is_source_known(settings: &Settings) -> bool {
    settings.given(&POD_MANIFESTS).is_some() || is_server_known(settings)
}

/// Whether any option says where the API server is.
pub(super) fn is_server_known(settings: &Settings) -> bool {
    REACH_ONE.iter().any(|spec| settings.given(spec).is_some())
        || SPEAK_OF_ONE.iter().any(|spec| speaks(settings, spec))
}

/// Whether an option was given on purpose. A service account does not count: every pod has one.
fn speaks(settings: &Settings, spec: &Spec) -> bool {
    settings
        .given(spec)
        .is_some_and(|setting| setting.insists && setting.origin.rank() < Origin::InCluster.rank())
}

/// The source of a node's pods, and the certificate with which the API server is reached, if this
/// program requests one.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) pods: PodsFrom,
    pub(super) certificate: Option<CertificateConfig>,
}

/// The source of pods. `None` if it is not known yet, or has errors.
pub(super) fn pods(reading: &mut Reading) -> Option<Source> {
    if let Some(directory) = reading.settings.given(&POD_MANIFESTS) {
        let pods = PodsFrom::Manifests(directory.value.clone().into());
        return Some(Source { pods, certificate: None });
    }
    let requested = certificate(reading)?;
    let bootstrap = if requested.is_some() { Bootstrap::Requests } else { Bootstrap::Counts };
    let (cluster, reached) = cluster(reading, bootstrap, NOWHERE)?;
    let worst = match &requested {
        // The user of a kubeconfig that requests certificates counts for nothing else.
        Some(_) if is_bootstrap(&reading.settings, &reached) => u8::MAX,
        _ => worst_rank(&reading.settings, &reached),
    };
    let candidates = if requested.is_some() { &NODE_CREDENTIALS[..] } else { &CREDENTIALS };
    let chosen = chosen(reading, worst, candidates);
    let (credential, certificate) = match (chosen, requested) {
        (Some((spec, _)), Some(config)) if is(spec, &table::CERT_DIR) => {
            (Some(config.credential()), Some(config))
        }
        (Some((spec, setting)), _) => (credential(reading, spec, &setting), None),
        (None, _) => (None, None),
    };
    Some(Source { pods: PodsFrom::ApiServer(ApiServer { cluster, credential }), certificate })
}

/// How the control plane reaches the API server.
pub(super) fn api_server(reading: &mut Reading) -> Option<ApiServer> {
    let (cluster, reached) = cluster(reading, Bootstrap::Counts, NO_API_SERVER)?;
    let worst = worst_rank(&reading.settings, &reached);
    let credential = chosen(reading, worst, &CREDENTIALS)
        .and_then(|(spec, setting)| credential(reading, spec, &setting));
    Some(ApiServer { cluster, credential })
}

/// What a bootstrap kubeconfig is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bootstrap {
    /// It is a kubeconfig where no other is given.
    Counts,
    /// It requests a certificate. Its address counts only where no other is given.
    Requests,
}

/// The certificate that a node's server requests. `None` inside if it requests none, outside if the
/// options have errors.
fn certificate(reading: &mut Reading) -> Option<Option<CertificateConfig>> {
    let Some(directory) = reading.settings.given(&table::CERT_DIR).cloned() else {
        return Some(None);
    };
    let duration = reading.read(&table::CERT_DURATION, values::certificate_duration);
    let Some(bootstrap) = reading.settings.given(&table::BOOTSTRAP_KUBECONFIG).cloned() else {
        reading.problems.add(format!(
            "{} needs --bootstrap-kubeconfig FILE: the credential with which the first certificate is requested",
            directory.names(&table::CERT_DIR)
        ));
        return None;
    };
    let bootstrap = reading.awaited_file_of(&table::BOOTSTRAP_KUBECONFIG, &bootstrap);
    let bootstrap = ApiServer { cluster: Cluster::Kubeconfig(bootstrap?), credential: None };
    let directory = directory.value.into();
    Some(Some(CertificateConfig { bootstrap, directory, duration: duration? }))
}

/// Whether the API server's address is that of the bootstrap kubeconfig.
fn is_bootstrap(settings: &Settings, reached: &Setting) -> bool {
    kubeconfig(settings).is_some_and(|(spec, kubeconfig)| {
        spec.name == table::BOOTSTRAP_KUBECONFIG.name && kubeconfig == *reached
    })
}

/// The API server's address, and the setting that gave it.
fn cluster(
    reading: &mut Reading,
    bootstrap: Bootstrap,
    unknown: &str,
) -> Option<(Cluster, Setting)> {
    let address = reading.settings.given(&table::API_SERVER).cloned();
    let kubeconfig = kubeconfig(&reading.settings).filter(|(spec, _)| match bootstrap {
        Bootstrap::Counts => true,
        Bootstrap::Requests => address.is_none() || !is(spec, &table::BOOTSTRAP_KUBECONFIG),
    });
    match (kubeconfig, address) {
        (Some((spec, kubeconfig)), address) if counts_before(&kubeconfig, address.as_ref()) => {
            let path = reading.awaited_file_of(spec, &kubeconfig)?;
            Some((Cluster::Kubeconfig(path), kubeconfig))
        }
        (_, Some(address)) => url(reading, address),
        (_, None) => {
            // A credential, or CA certificates, without an address mean the default address.
            if SPEAK_OF_ONE.iter().any(|spec| speaks(&reading.settings, spec)) {
                let default = reading.settings.value(&table::API_SERVER);
                return url(reading, default);
            }
            if reading.complete {
                reading.problems.add(unknown);
                if let Some(reason) = reading.unread.take() {
                    reading.problems.add(external_ids::unread(&reason));
                }
            }
            None
        }
    }
}

/// The option that counts instead of this one. `is_node_alone`: the process has no other role, so
/// with manifests it needs no API server.
pub(super) fn in_place_of(
    settings: &Settings,
    spec: &Spec,
    is_node_alone: bool,
) -> Option<&'static Spec> {
    let is_one = |other: &&Spec| other.name == spec.name;
    if is_node_alone
        && settings.given(&POD_MANIFESTS).is_some()
        && REACH_ONE.iter().chain(&SPEAK_OF_ONE).any(is_one)
    {
        return Some(&POD_MANIFESTS);
    }
    let (other, kubeconfig) = kubeconfig(settings).filter(|_| IN_KUBECONFIG.iter().any(is_one))?;
    // It only requests certificates.
    if is(other, &table::BOOTSTRAP_KUBECONFIG) && settings.given(&table::CERT_DIR).is_some() {
        return None;
    }
    counts_before(&kubeconfig, settings.given(&table::API_SERVER)).then_some(other)
}

/// Whether the kubeconfig wins over the address: if it comes from a better source, or from the
/// same.
fn counts_before(kubeconfig: &Setting, address: Option<&Setting>) -> bool {
    address.is_none_or(|address| kubeconfig.origin.rank() <= address.origin.rank())
}

/// The kubeconfig that is given, if any.
fn kubeconfig(settings: &Settings) -> Option<(&'static Spec, Setting)> {
    let given = |spec: &'static Spec| Some((spec, settings.given(spec)?.clone()));
    given(&table::KUBECONFIG).or_else(|| given(&table::BOOTSTRAP_KUBECONFIG))
}

fn url(reading: &mut Reading, address: Setting) -> Option<(Cluster, Setting)> {
    let url = reading.read(&table::API_SERVER, values::server_url);
    let authority = authority(reading);
    Some((Cluster::Url { url: url?, authority }, address))
}

/// The CA certificates: a file, or the certificates themselves, whichever has the better source;
/// from the same source, the file.
fn authority(reading: &mut Reading) -> Option<Authority> {
    let file = reading.settings.given(&table::CA_CERT).cloned();
    let data = reading.settings.given(&table::CA_CERT_DATA).cloned();
    let rank = |setting: &Setting| setting.origin.rank();
    match (file, data) {
        (Some(file), data) if data.as_ref().is_none_or(|data| rank(&file) <= rank(data)) => {
            match file.origin {
                // The Python programs wrote the certificate there, with `\n` for line ends; later
                // programs a path.
                Origin::ExternalId(_) if file.value.contains("-----BEGIN") => {
                    Some(Authority::Pem(file.value.replace("\\n", "\n")))
                }
                // A default in a file of the Python programs, which need not exist.
                _ if !file.insists && !std::path::Path::new(&file.value).exists() => None,
                _ => reading.awaited_file_of(&table::CA_CERT, &file).map(Authority::File),
            }
        }
        (_, Some(_)) => reading.read(&table::CA_CERT_DATA, pem).map(Authority::Pem),
        (_, None) => None,
    }
}

fn pem(base64: &str) -> Result<String, String> {
    let bytes = BASE64_STANDARD
        .decode(base64.split_whitespace().collect::<String>())
        .map_err(|error| format!("is not base64: {error}"))?;
    let text = String::from_utf8(bytes).ok().filter(|text| text.contains("-----BEGIN"));
    text.ok_or_else(|| "is not the base64 of PEM (-----BEGIN CERTIFICATE-----)".to_owned())
}

/// The worst source that a credential may have. With a kubeconfig, which has a user of its own,
/// that of the kubeconfig.
fn worst_rank(settings: &Settings, reached: &Setting) -> u8 {
    let reached_by_kubeconfig =
        kubeconfig(settings).is_some_and(|(_, kubeconfig)| kubeconfig == *reached);
    if reached_by_kubeconfig { reached.origin.rank() } else { u8::MAX }
}

/// The option with the credential of the best source; from the same source, the token's file wins
/// over the token.
fn chosen(
    reading: &mut Reading,
    worst: u8,
    candidates: &[&'static Spec],
) -> Option<(&'static Spec, Setting)> {
    let given: Vec<(&'static Spec, Setting)> = candidates
        .iter()
        .filter_map(|spec| Some((*spec, reading.settings.given(spec)?.clone())))
        .collect();
    // Of equal ranks `min_by_key` returns the first, so the order of the candidates counts.
    let (spec, setting) = given
        .iter()
        .filter(|(_, setting)| setting.origin.rank() <= worst)
        .min_by_key(|(_, setting)| setting.origin.rank())?;
    let is_certificate = |spec: &Spec| is(spec, &table::CLIENT_CERT) || is(spec, &table::CERT_DIR);
    let conflict = given.iter().find(|(other, of)| {
        is_certificate(other) && !is(other, spec) && of.origin.rank() == setting.origin.rank()
    });
    if let Some((other, of)) = conflict {
        let (one, other) = (setting.origin.names(spec), of.origin.names(other));
        let what =
            if is_certificate(spec) { "one certificate" } else { "a token or a certificate" };
        reading.problems.add(format!("{one} and {other}: give {what}, not both"));
    }
    Some((spec, setting.clone()))
}

/// The credential that the option `spec` names.
fn credential(reading: &mut Reading, spec: &'static Spec, setting: &Setting) -> Option<Credential> {
    // Trimmed: a line end would be invalid in the HTTP header.
    if is(spec, &table::TOKEN) {
        return Some(Credential::Token(SecretString::from(setting.value.trim())));
    }
    let file = reading.awaited_file_of(spec, setting)?;
    if is(spec, &table::TOKEN_FILE) {
        return Some(Credential::TokenFile(file));
    }
    // As in the kubelet's files, one PEM file may hold both certificate and key.
    let is_key_given = reading.settings.given(&table::CLIENT_PRIVKEY).is_some();
    let key =
        if is_key_given { reading.awaited_file(&table::CLIENT_PRIVKEY)? } else { file.clone() };
    Some(Credential::Certificate { certificate: file, key })
}

fn is(spec: &Spec, other: &Spec) -> bool {
    spec.name == other.name
}
