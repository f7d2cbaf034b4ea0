//! The settings that ovn-controller reads: compares them with a database's, and builds the
//! transactions that write and remove them. Pure.

use std::{collections::BTreeMap, time::Duration};

use ovsdb::{Datum, Mutation, Row, Transaction, Until, Uuid};

use super::{Chassis, Southbound, SouthboundTls};

/// The key with the name of the chassis.
pub(crate) const SYSTEM_ID: &str = "system-id";
/// The key that lists the keys that this program wrote, separated by spaces, for `--cleanup-node`.
/// [`TLS`] among them stands for the SSL row.
pub(crate) const WRITTEN: &str = "ovnkube-wrote";
pub(crate) const TLS: &str = "ssl";
/// The key with the values that this program gave to those keys (a JSON object). If a key has
/// another value now, an administrator wrote it.
pub(crate) const VALUES: &str = "ovnkube-wrote-values";
/// The key with the local address of tunnels.
pub(crate) const ENCAP_IP: &str = "ovn-encap-ip";
/// The key with the endpoints of the southbound database.
pub(crate) const REMOTE: &str = "ovn-remote";
/// The key that has ovn-controller make tunnels to chassis of other zones.
pub(crate) const INTERCONNECT: &str = "ovn-is-interconn";

/// The desired settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    external_ids: BTreeMap<String, String>,
    /// The name of the chassis, if Open vSwitch's scripts or an administrator give it none.
    system_id: String,
    tls: Option<SouthboundTls>,
}

/// The actual settings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ChassisRecord {
    /// The only row of table `Open_vSwitch`.
    pub(crate) root: Uuid,
    pub(crate) external_ids: BTreeMap<String, String>,
    pub(crate) ssl: Option<(Uuid, SouthboundTls)>,
}

/// The settings to write.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Change {
    external_ids: BTreeMap<String, String>,
    tls: Option<SouthboundTls>,
}

impl Settings {
    /// The settings of node `name`. Keys and units are those of ovn-controller(8). `encap_ip` is
    /// `None` if it is not known yet.
    pub(crate) fn new(
        chassis: &Chassis,
        name: &str,
        encap_ip: Option<String>,
        system_id: String,
    ) -> Self {
        let Chassis {
            southbound,
            tls,
            encap_type,
            encap_ip: _,
            interconnect,
            inactivity_probe,
            openflow_probe,
            ofctrl_wait_before_clear,
            monitor_all,
            lflow_cache,
            lflow_cache_limit,
            lflow_cache_limit_kb,
        } = chassis;
        let milliseconds = |time: &Duration| time.as_millis().to_string();
        let always = [
            // A logical port's `requested-chassis` is the node's name, which OVN compares with name
            // and host name of a chassis (ovn-nb(5)).
            ("hostname", name.to_owned()),
            (REMOTE, southbound.clone()),
            ("ovn-encap-type", encap_type.clone()),
            ("ovn-remote-probe-interval", milliseconds(inactivity_probe)),
            ("ovn-openflow-probe-interval", openflow_probe.as_secs().to_string()),
            ("ovn-monitor-all", monitor_all.to_string()),
            ("ovn-enable-lflow-cache", lflow_cache.to_string()),
        ];
        let sometimes = [
            (ENCAP_IP, encap_ip),
            (INTERCONNECT, interconnect.then(|| "true".to_owned())),
            ("ovn-ofctrl-wait-before-clear", ofctrl_wait_before_clear.as_ref().map(milliseconds)),
            ("ovn-limit-lflow-cache", lflow_cache_limit.map(|limit| limit.to_string())),
            ("ovn-memlimit-lflow-cache-kb", lflow_cache_limit_kb.map(|limit| limit.to_string())),
        ];
        let sometimes = sometimes.into_iter().filter_map(|(key, value)| Some((key, value?)));
        let external_ids = always
            .into_iter()
            .chain(sometimes)
            .map(|(key, value)| (key.to_owned(), value))
            .collect();
        Self { external_ids, system_id, tls: tls.clone() }
    }

    /// The southbound database that ovn-controller follows, if it is another one than desired. Then
    /// the settings leave it where it is, until it is [led](Self::lead) away.
    pub(crate) fn stay(&mut self, seen: &ChassisRecord) -> Option<Southbound> {
        let there = seen.external_ids.get(REMOTE).filter(|there| !there.is_empty())?;
        if self.external_ids.get(REMOTE) == Some(there) {
            return None;
        }
        self.external_ids.insert(REMOTE.to_owned(), there.clone());
        self.tls = None;
        let tls = seen.ssl.as_ref().map(|(_, tls)| tls.clone());
        Some(Southbound { remote: there.clone(), tls })
    }

    /// Has ovn-controller follow this database.
    pub(crate) fn lead(&mut self, to: Southbound) {
        self.external_ids.insert(REMOTE.to_owned(), to.remote);
        self.tls = to.tls;
    }

    /// What is missing for that.
    pub(crate) fn leading(&self, seen: &ChassisRecord) -> Change {
        let Change { mut external_ids, tls } = self.differing(seen);
        external_ids.retain(|key, _| key == REMOTE);
        Change { external_ids, tls }
    }

    /// Changes the desired tunnel address.
    pub(crate) fn set_encap_ip(&mut self, address: String) {
        self.external_ids.insert(ENCAP_IP.to_owned(), address);
    }

    /// The tunnel address, if the database has none, or another one that this program wrote before.
    pub(crate) fn moved(&self, seen: &ChassisRecord) -> Change {
        let there = seen.external_ids.get(ENCAP_IP);
        let is_ours = there.is_none() || is_ours(&seen.external_ids, ENCAP_IP);
        let wanted = self
            .external_ids
            .get_key_value(ENCAP_IP)
            .filter(|(_, wanted)| is_ours && there != Some(*wanted));
        Change { external_ids: owned(wanted.into_iter()), tls: None }
    }

    /// The settings that are missing or have another value. Without the name of the chassis: Open
    /// vSwitch's scripts write it a moment after the database is there, and a chassis must not
    /// change its name.
    pub(crate) fn differing(&self, seen: &ChassisRecord) -> Change {
        let differs =
            |(key, value): &(&String, &String)| seen.external_ids.get(*key) != Some(value);
        let tls =
            self.tls.clone().filter(|tls| seen.ssl.as_ref().map(|(_, there)| there) != Some(tls));
        Change { external_ids: owned(self.external_ids.iter().filter(differs)), tls }
    }

    /// The settings that are missing, with the name of the chassis. Another value counts as
    /// intended.
    pub(crate) fn missing(&self, seen: &ChassisRecord) -> Change {
        let system_id = (&SYSTEM_ID.to_owned(), &self.system_id);
        let absent = |(key, _): &(&String, &String)| !seen.external_ids.contains_key(*key);
        let tls = self.tls.clone().filter(|_| seen.ssl.is_none());
        Change {
            external_ids: owned(self.external_ids.iter().chain([system_id]).filter(absent)),
            tls,
        }
    }
}

fn owned<'a>(pairs: impl Iterator<Item = (&'a String, &'a String)>) -> BTreeMap<String, String> {
    pairs.map(|(key, value)| (key.clone(), value.clone())).collect()
}

impl Change {
    pub(crate) fn is_empty(&self) -> bool {
        self.external_ids.is_empty() && self.tls.is_none()
    }

    /// The settings, for the log.
    pub(crate) fn describe(&self) -> String {
        let pairs = self.external_ids.iter().map(|(key, value)| format!("{key}={value}"));
        pairs.chain(self.tls.as_ref().map(|_| TLS.to_owned())).collect::<Vec<_>>().join(" ")
    }

    /// The transaction that writes the settings, if the database still has those of `seen`. Keys of
    /// other programs stay.
    pub(crate) fn transaction(&self, seen: &ChassisRecord) -> Transaction {
        let mut written: Vec<&str> = written(&seen.external_ids).collect();
        written.extend(
            self.external_ids.keys().map(String::as_str).chain(self.tls.as_ref().map(|_| TLS)),
        );
        written.sort_unstable();
        written.dedup();

        let mut pairs = self.external_ids.clone();
        // A record without values is of an earlier version: its keys count as written with the
        // values of now.
        let mut values =
            recorded(&seen.external_ids).unwrap_or_else(|| all_written(&seen.external_ids));
        values.extend(self.external_ids.clone());
        pairs.insert(WRITTEN.to_owned(), written.join(" "));
        pairs.insert(VALUES.to_owned(), serde_json::json!(values).to_string());
        // The list of written keys is read and written back: the guard keeps it whole beside other
        // writers.
        let mut tx = guarded(seen);
        // Deleted first: an insertion leaves a key that is there as it is (RFC 7047, section 5.1).
        let old = Mutation::delete_keys("external_ids", pairs.keys().map(String::as_str));
        tx.mutate("Open_vSwitch", seen.root, vec![old, Mutation::insert("external_ids", pairs)]);
        if let Some(SouthboundTls { private_key, certificate, authority }) = &self.tls {
            let text = |path: &std::path::Path| path.to_string_lossy().into_owned();
            let row = Row::new()
                .with("private_key", text(private_key))
                .with("certificate", text(certificate))
                .with("ca_cert", text(authority))
                .with("bootstrap_ca_cert", false);
            // The schema allows one SSL row at most (`maxRows`).
            match &seen.ssl {
                Some((uuid, _)) => drop(tx.update("SSL", *uuid, row)),
                None => {
                    let row = tx.insert("SSL", row);
                    tx.update("Open_vSwitch", seen.root, Row::new().with("ssl", &row));
                }
            }
        }
        tx.comment("ovnkube: settings for ovn-controller");
        tx
    }
}

/// The keys that this program wrote.
pub(crate) fn written(external_ids: &BTreeMap<String, String>) -> impl Iterator<Item = &str> {
    external_ids.get(WRITTEN).map_or("", String::as_str).split_whitespace()
}

/// The values that this program wrote. `None` if there is no record, or one of an earlier version,
/// which has the keys only.
fn recorded(external_ids: &BTreeMap<String, String>) -> Option<BTreeMap<String, String>> {
    serde_json::from_str(external_ids.get(VALUES)?).ok()
}

/// The keys that this program wrote, with the values that they have now.
fn all_written(external_ids: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let pairs = written(external_ids).filter_map(|key| external_ids.get_key_value(key));
    pairs.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Whether the value of a key is the one that this program wrote.
fn is_ours(external_ids: &BTreeMap<String, String>, key: &str) -> bool {
    let is_as_written = |values: BTreeMap<String, String>| values.get(key) == external_ids.get(key);
    written(external_ids).any(|written| written == key)
        && recorded(external_ids).is_none_or(is_as_written)
}

/// The value of a key, if this program wrote it.
pub(crate) fn own<'a>(external_ids: &'a BTreeMap<String, String>, key: &str) -> Option<&'a str> {
    external_ids.get(key).filter(|_| is_ours(external_ids, key)).map(String::as_str)
}

/// The `external_ids` without those that this program wrote at an earlier start. Those are not
/// configuration: each start computes them anew.
pub fn of_administrator(external_ids: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    owned(external_ids.iter().filter(|(key, _)| !is_ours(external_ids, key)))
}

/// The transaction that removes what this program wrote, with the keys. `None` if it wrote nothing.
pub(crate) fn removal(seen: &ChassisRecord) -> Option<(Transaction, Vec<String>)> {
    let keys: Vec<String> = written(&seen.external_ids).map(str::to_owned).collect();
    if !seen.external_ids.contains_key(WRITTEN) {
        return None;
    }
    let mut tx = guarded(seen);
    // A key that was changed since goes, too
    // (docs/decisions/only-missing-settings-are-put-back.md).
    let all = keys.iter().map(String::as_str).filter(|key| *key != TLS).chain([WRITTEN, VALUES]);
    tx.mutate("Open_vSwitch", seen.root, vec![Mutation::delete_keys("external_ids", all)]);
    if keys.iter().any(|key| key == TLS) {
        // ovsdb-server deletes an SSL row that nothing refers to.
        tx.update("Open_vSwitch", seen.root, Row::new().with("ssl", Datum::Set(Vec::new())));
    }
    tx.comment("ovnkube: node cleaned up");
    Some((tx, keys))
}

/// A transaction that fails if the `external_ids` are no longer those of `seen`.
pub(crate) fn guarded(seen: &ChassisRecord) -> Transaction {
    let mut tx = Transaction::new();
    let row = Row::new().with("external_ids", seen.external_ids.clone());
    tx.wait("Open_vSwitch", seen.root, &["external_ids"], Until::Equal, vec![row], Duration::ZERO);
    tx
}

#[cfg(test)]
pub(crate) mod tests;
