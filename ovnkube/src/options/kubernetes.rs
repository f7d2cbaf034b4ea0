//! The source of pods, and the way to the API server.

use base64::{Engine, prelude::BASE64_STANDARD};
use kubeapi::{ApiServer, Authority, Cluster, Credential};
use secrecy::SecretString;
use server::node::PodsFrom;

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
static REACH_ONE: [&Spec; 3] = [&table::KUBECONFIG, &table::BOOTSTRAP_KUBECONFIG, &table::API_SERVER];
/// Options without effect if there is a kubeconfig.
static IN_KUBECONFIG: [&Spec; 3] = [&table::API_SERVER, &table::CA_CERT, &table::CA_CERT_DATA];
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
    let is_given = |spec: &&Spec| settings.given(spec).is_some();
    is_given(&&POD_MANIFESTS)
        || REACH_ONE.iter().any(is_given)
        || SPEAK_OF_ONE.iter().any(|spec| speaks(settings, spec))
}

/// Whether an option was given on purpose. A service account does not count: every pod has one.
fn speaks(settings: &Settings, spec: &Spec) -> bool {
    settings
        .given(spec)
        .is_some_and(|setting| setting.insists && setting.origin.rank() < Origin::InCluster.rank())
}

/// The source of pods. `None` if it is not known yet, or has errors.
pub(super) fn pods(reading: &mut Reading) -> Option<PodsFrom> {
    if let Some(directory) = reading.settings.given(&POD_MANIFESTS) {
        return Some(PodsFrom::Manifests(directory.value.clone().into()));
    }
    server(reading, NOWHERE).map(PodsFrom::ApiServer)
}

/// How the control plane reaches the API server.
pub(super) fn api_server(reading: &mut Reading) -> Option<ApiServer> {
    server(reading, NO_API_SERVER)
}

/// The API server. `None` if it is not known yet, or has errors. `unknown`: the error if no source has it.
fn server(reading: &mut Reading, unknown: &str) -> Option<ApiServer> {
    let (cluster, reached) = cluster(reading, unknown)?;
    let credential = credential(reading, &reached);
    Some(ApiServer { cluster, credential })
}

/// The API server's address, and the setting that gave it.
fn cluster(reading: &mut Reading, unknown: &str) -> Option<(Cluster, Setting)> {
    let kubeconfig = kubeconfig(&reading.settings);
    let address = reading.settings.given(&table::API_SERVER).cloned();
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

/// The option that counts instead of this one. `is_node_alone`: the process has no other role, so with
/// manifests it needs no API server.
pub(super) fn in_place_of(settings: &Settings, spec: &Spec, is_node_alone: bool) -> Option<&'static Spec> {
    let is_one = |other: &&Spec| other.name == spec.name;
    if is_node_alone
        && settings.given(&POD_MANIFESTS).is_some()
        && REACH_ONE.iter().chain(&SPEAK_OF_ONE).any(is_one)
    {
        return Some(&POD_MANIFESTS);
    }
    let (other, kubeconfig) = kubeconfig(settings).filter(|_| IN_KUBECONFIG.iter().any(is_one))?;
    counts_before(&kubeconfig, settings.given(&table::API_SERVER)).then_some(other)
}

/// Whether the kubeconfig wins over the address: if it comes from a better source, or from the same.
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

/// The CA certificates: a file, or the certificates themselves, whichever has the better source; from the
/// same source, the file.
fn authority(reading: &mut Reading) -> Option<Authority> {
    let file = reading.settings.given(&table::CA_CERT).cloned();
    let data = reading.settings.given(&table::CA_CERT_DATA).cloned();
    let rank = |setting: &Setting| setting.origin.rank();
    match (file, data) {
        (Some(file), data) if data.as_ref().is_none_or(|data| rank(&file) <= rank(data)) => match file.origin
        {
            // The Python programs wrote the certificate there, with `\n` for line ends; later programs a
            // path.
            Origin::ExternalId(_) if file.value.contains("-----BEGIN") => {
                Some(Authority::Pem(file.value.replace("\\n", "\n")))
            }
            // A default in a file of the Python programs, which need not exist.
            _ if !file.insists && !std::path::Path::new(&file.value).exists() => None,
            _ => reading.awaited_file_of(&table::CA_CERT, &file).map(Authority::File),
        },
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

/// The credential with the best source; from the same source, the token's file wins over the token. With a
/// kubeconfig, which has a user of its own, only a credential from no worse source than the kubeconfig.
fn credential(reading: &mut Reading, reached: &Setting) -> Option<Credential> {
    let reached_by_kubeconfig =
        kubeconfig(&reading.settings).is_some_and(|(_, kubeconfig)| kubeconfig == *reached);
    let worst = if reached_by_kubeconfig { reached.origin.rank() } else { u8::MAX };
    let candidates = [&table::TOKEN_FILE, &table::TOKEN, &table::CLIENT_CERT];
    let given: Vec<(&'static Spec, Setting)> = candidates
        .into_iter()
        .filter_map(|spec| Some((spec, reading.settings.given(spec)?.clone())))
        .collect();
    // Of equal ranks `min_by_key` returns the first, so the order of the candidates counts.
    let (spec, setting) = given
        .iter()
        .filter(|(_, setting)| setting.origin.rank() <= worst)
        .min_by_key(|(_, setting)| setting.origin.rank())?;
    let certificate = given.iter().find(|(spec, _)| spec.name == table::CLIENT_CERT.name);
    if let Some((_, certificate)) =
        certificate.filter(|(other, of)| other.name != spec.name && of.origin.rank() == setting.origin.rank())
    {
        let (one, other) = (setting.origin.names(spec), certificate.origin.names(&table::CLIENT_CERT));
        reading.problems.add(format!("{one} and {other}: give a token or a certificate, not both"));
    }
    // Trimmed: a line end would be invalid in the HTTP header.
    if spec.name == table::TOKEN.name {
        return Some(Credential::Token(SecretString::from(setting.value.trim())));
    }
    let file = reading.awaited_file_of(spec, setting)?;
    if spec.name == table::TOKEN_FILE.name {
        return Some(Credential::TokenFile(file));
    }
    // As in the kubelet's files, one PEM file may hold both certificate and key.
    let is_key_given = reading.settings.given(&table::CLIENT_PRIVKEY).is_some();
    let key = if is_key_given { reading.awaited_file(&table::CLIENT_PRIVKEY)? } else { file.clone() };
    Some(Credential::Certificate { certificate: file, key })
}
