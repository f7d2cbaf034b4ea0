//! What ovn-controller is to find in Open vSwitch's database.

use std::{path::PathBuf, time::Duration};

use super::{
    kind,
    node_config::Reading,
    settings::{Origin, Setting},
    spec::Spec,
    surroundings::readable,
    table::{databases, open_vswitch},
    values,
};
use crate::node::{Chassis, SouthboundTls};

/// Where the southbound database's socket was before OVN left Open vSwitch's repository.
const OLD_RUN_DIR: &str = "/var/run/openvswitch";
const SOCKET: &str = "ovnsb_db.sock";
/// PEM files that are used for `ssl:` if nobody names others: key, certificate, authority.
const FILES: [&str; 3] = ["/etc/openvswitch/ovnsb-privkey.pem", "/etc/openvswitch/ovnsb-cert.pem", "/etc/openvswitch/ovnsb-ca.cert"];

pub(super) fn chassis(reading: &mut Reading) -> Option<Chassis> {
    let (southbound, tls) = southbound(reading);
    northbound(reading);
    let encap_type = reading.read(&open_vswitch::ENCAP_TYPE, values::encap_type);
    let encap_ip = reading.read_given(&open_vswitch::ENCAP_IP, values::addresses);
    let encap_port = reading.read_given(&open_vswitch::ENCAP_PORT, |text| kind::number(text, 1, 65535));
    let inactivity = reading.number(&open_vswitch::INACTIVITY_PROBE);
    let openflow = reading.number(&open_vswitch::OPENFLOW_PROBE);
    let wait = reading.read_given(&open_vswitch::OFCTRL_WAIT_BEFORE_CLEAR, |text| kind::number(text, 0, u64::MAX));
    let (monitor_all, cache) = (reading.switch(&open_vswitch::MONITOR_ALL), reading.switch(&open_vswitch::LFLOW_CACHE));
    let limits = (reading.number(&open_vswitch::LFLOW_CACHE_LIMIT), reading.number(&open_vswitch::LFLOW_CACHE_LIMIT_KB));
    Some(Chassis {
        southbound: southbound?,
        tls,
        encap_type: encap_type?,
        encap_ip,
        encap_port: encap_port.and_then(|port| u16::try_from(port).ok()),
        inactivity_probe: Duration::from_millis(inactivity?),
        openflow_probe: Duration::from_secs(openflow?),
        ofctrl_wait_before_clear: wait.map(Duration::from_millis),
        monitor_all: monitor_all?,
        lflow_cache: cache?,
        lflow_cache_limit: limits.0.filter(|limit| *limit > 0),
        lflow_cache_limit_kb: limits.1.filter(|limit| *limit > 0),
    })
}

/// The database's address, and what ovn-controller shows there. Files that an administrator gave to Open vSwitch stay where neither
/// address nor files are options.
fn southbound(reading: &mut Reading) -> (Option<String>, Option<SouthboundTls>) {
    let files = [&databases::SB_CLIENT_PRIVKEY, &databases::SB_CLIENT_CERT, &databases::SB_CLIENT_CACERT];
    let is_given = files.iter().any(|spec| reading.settings.given(spec).is_some());
    let Some(address) = reading.settings.given(&databases::SB_ADDRESS).cloned() else {
        let local = local_socket(reading);
        if reading.complete {
            forbid(reading, &files, &local);
        }
        return (Some(local), None);
    };
    let Some(parsed) = reading.read(&databases::SB_ADDRESS, values::databases) else { return (None, None) };
    let text = parsed.to_string();
    if !values::is_tls(&parsed) {
        forbid(reading, &files, &text);
        return (Some(text), None);
    }
    if matches!(address.origin, Origin::ExternalId(_)) && !is_given {
        return (Some(text), None);
    }
    let [key, certificate, authority] = [0, 1, 2].map(|index| tls_file(reading, files[index], FILES[index], &address));
    let tls = key.zip(certificate).zip(authority);
    (Some(text), tls.map(|((private_key, certificate), authority)| SouthboundTls { private_key, certificate, authority }))
}

fn tls_file(reading: &mut Reading, spec: &'static Spec, usual: &str, address: &Setting) -> Option<PathBuf> {
    if reading.settings.given(spec).is_some() {
        return reading.file(spec);
    }
    let wrong = |reason| {
        let needs = address.names(&databases::SB_ADDRESS);
        format!("{needs} needs --{}; the usual file {usual} is not to be read: {reason}", spec.name)
    };
    reading.problems.take(readable(usual.as_ref()).map_err(wrong)).map(|()| usual.into())
}

/// Files for TLS where there is none: a mistake in one of the two.
fn forbid(reading: &mut Reading, files: &[&'static Spec], address: &str) {
    for spec in files {
        if let Some(setting) = reading.settings.given(spec).filter(|setting| setting.insists) {
            let problem = format!("{}: is for ssl:, and the database's address is {address}", setting.names(spec));
            reading.problems.add(problem);
        }
    }
}

/// The northbound database is the control plane's; a contradiction is one all the same. Newer programs use the files for something else,
/// where there is no address.
fn northbound(reading: &mut Reading) {
    let files = [&databases::NB_CLIENT_PRIVKEY, &databases::NB_CLIENT_CERT, &databases::NB_CLIENT_CACERT];
    if let Some(parsed) = reading.read_given(&databases::NB_ADDRESS, values::databases).filter(|parsed| !values::is_tls(parsed)) {
        forbid(reading, &files, &parsed.to_string());
    }
}

fn local_socket(reading: &Reading) -> String {
    let directory = reading.path(&databases::SB_RUN_DIR);
    let (path, old) = (directory.join(SOCKET), PathBuf::from(OLD_RUN_DIR).join(SOCKET));
    let is_default = reading.settings.given(&databases::SB_RUN_DIR).is_none();
    let path = if is_default && !path.exists() && old.exists() { old } else { path };
    format!("unix:{}", path.display())
}
