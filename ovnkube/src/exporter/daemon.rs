//! ovn-controller and ovn-northd, by their control sockets. What Open vSwitch's database has of
//! ovn-controller is in `chassis`.

use std::io::ErrorKind;

use podnet::control_socket::{ControlCommand, ControlSocket, KeptSocket};

use super::{
    ExporterPlaces, PATIENCE,
    counters::{
        OF_CONTROLLER, OF_NORTHD, WATCHES_OF_CONTROLLER, WATCHES_OF_NORTHD, coverage, stopwatches,
    },
    families::MetricSet,
    output::versions,
};

const BUILD_INFO: &str = "Always 1; the labels are the versions.";

/// ovn-controller.
pub(super) struct ControllerReader(KeptSocket);

/// ovn-northd.
pub(super) struct NorthdReader(KeptSocket);

/// The answers to these questions, in their order, empty where a release lacks the command; `None`
/// if there is no such daemon here.
///
/// # Errors
///
/// It does not answer.
pub(super) async fn answers<const N: usize>(
    socket: &mut KeptSocket,
    questions: [ControlCommand<'_>; N],
) -> Result<Option<[String; N]>, ()> {
    match socket.ask(questions, PATIENCE).await {
        Ok(answers) => Ok(Some(answers.map(Result::unwrap_or_default))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(_) => Err(()),
    }
}

/// A command without arguments.
pub(super) fn bare(command: &str) -> ControlCommand<'_> {
    (command, &[])
}

/// Notes whether the daemon answers. `None` if it does not, or is not here.
pub(super) fn noted<T>(
    families: &mut MetricSet,
    daemon: &str,
    answer: Result<Option<T>, ()>,
) -> Option<T> {
    if !matches!(answer, Ok(None)) {
        families.up(daemon, answer.is_ok());
    }
    answer.ok().flatten()
}

impl ControllerReader {
    pub(super) fn new(places: &ExporterPlaces) -> Self {
        Self(KeptSocket::new(ControlSocket::of(&places.ovn_run_dir, "ovn-controller")))
    }

    pub(super) async fn read(&mut self) -> MetricSet {
        let mut families = MetricSet::default();
        let commands = ["version", "connection-status", "coverage/show", "stopwatch/show"];
        let answer = answers(&mut self.0, commands.map(bare)).await;
        let Some([version, status, events, watches]) =
            noted(&mut families, "ovn-controller", answer)
        else {
            return families;
        };
        let prefix = "ovn_controller";
        let (own, library) = versions(&version);
        let labels = [("version", own.as_str()), ("ovs_lib_version", &library)];
        families.info("ovn_controller_build_info", BUILD_INFO, &labels);
        let is_connected = status.trim() == "connected";
        families.set(
            "ovn_controller_southbound_database_connected",
            "Whether ovn-controller is connected to the southbound database (1) or not (0).",
            &[],
            f64::from(u8::from(is_connected)),
        );
        coverage(&mut families, prefix, &OF_CONTROLLER, &events);
        stopwatches(&mut families, prefix, &WATCHES_OF_CONTROLLER, &watches);
        families
    }
}

impl NorthdReader {
    pub(super) fn new(places: &ExporterPlaces) -> Self {
        Self(KeptSocket::new(ControlSocket::of(&places.ovn_run_dir, "ovn-northd")))
    }

    pub(super) async fn read(&mut self) -> MetricSet {
        let mut families = MetricSet::default();
        let commands = [
            "version",
            "status",
            "nb-connection-status",
            "sb-connection-status",
            "coverage/show",
            "stopwatch/show",
        ];
        let answer = answers(&mut self.0, commands.map(bare)).await;
        let Some([version, status, north, south, events, watches]) =
            noted(&mut families, "ovn-northd", answer)
        else {
            return families;
        };
        let prefix = "ovn_northd";
        let (own, library) = versions(&version);
        let labels = [("version", own.as_str()), ("ovs_lib_version", &library)];
        families.info("ovn_northd_build_info", BUILD_INFO, &labels);
        let state = match status.trim().trim_start_matches("Status:").trim() {
            "standby" => 0.0,
            "active" => 1.0,
            "paused" => 2.0,
            _ => -1.0,
        };
        let help = "Whether this ovn-northd stands by (0), is active (1) or paused (2).";
        families.set("ovn_northd_status", help, &[], state);
        for (name, status) in [("nb", north), ("sb", south)] {
            let value = match status.trim() {
                "connected" => 1.0,
                "not connected" => 0.0,
                _ => -1.0,
            };
            let help = "Whether ovn-northd is connected to the database (1) or not (0).";
            families.set(&format!("ovn_northd_{name}_connection_status"), help, &[], value);
        }
        coverage(&mut families, prefix, &OF_NORTHD, &events);
        stopwatches(&mut families, prefix, &WATCHES_OF_NORTHD, &watches);
        families
    }
}
