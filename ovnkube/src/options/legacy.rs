//! What the commands of 2016 to 2018 take from options, file and `external_ids`.

use std::mem::{replace, take};

use kubeapi::ApiServer;

use super::{
    Collected, Problems,
    databases::NORTHBOUND,
    external_ids::{ExternalIds, read_now},
    kind, kubernetes,
    reading::Reading,
    roles::Role,
    table::{cni, gateway, node, open_vswitch},
    values,
};
use crate::legacy::LegacyConfig;

impl Collected {
    pub(super) fn legacy(&self) -> Result<LegacyConfig, Problems> {
        self.problems.clone().none_or()?;
        let external_ids =
            self.ovsdb().map_or(ExternalIds::Ignored, |endpoint| read_now(&endpoint));
        // Not `complete`: which of them a command needs, it says in its own words. Not `waits`: it
        // ends.
        let reading = self.reading(Role::Status, &external_ids);
        let mut reading = Reading { waits: false, complete: false, ..reading };
        let config = reading.legacy();
        reading.problems.none_or()?;
        config.ok_or_else(Problems::incomplete)
    }
}

impl Reading {
    fn legacy(&mut self) -> Option<LegacyConfig> {
        let is_given = self.settings.given(NORTHBOUND.address).is_some();
        let northbound = if is_given { Some(NORTHBOUND.database(self)?) } else { None };
        let zone = self.read(&gateway::CONNTRACK_ZONE, |text| kind::number(text, 1, 65531))?;
        Some(LegacyConfig {
            ovsdb: self.ovsdb()?,
            run_dir: self.path(&open_vswitch::OVS_RUN_DIR),
            northbound,
            mtu: self.read(&node::MTU, values::mtu)?,
            conntrack_zone: u16::try_from(zone).ok()?,
            cni_conf_dir: self.path(&cni::CONF_DIR),
            cni_bin_dir: self.path(&cni::BIN_DIR),
            plugin: self.settings.value(&cni::PLUGIN_NAME).value,
            api_server: self.api_server_or_why(),
        })
    }
    /// A problem of it is one of the commands that need it, and of no other.
    fn api_server_or_why(&mut self) -> Result<ApiServer, String> {
        let before = take(&mut self.problems);
        let found = kubernetes::api_server(self);
        let problems = replace(&mut self.problems, before);
        problems.none_or().map_err(|problems| problems.to_string())?;
        found.ok_or_else(|| {
            "K8S_API_SERVER not set: ovs-vsctl set Open_vSwitch . \
             external_ids:k8s-api-server=HOST:PORT"
                .to_owned()
        })
    }
}
