//! The options of `ovnkube`, under their names in OVN-Kubernetes.
//!
//! ```text
//! arguments ─▶ command_line ─┐                            ┌─▶ NodeOptions: Early ─ external_ids ─▶ NodeConfig
//! file      ─▶ conf_file ────┼─▶ Collected ─▶ Reading ────┼─▶ ControlPlaneConfig
//! environment, service account                 ▲          └─▶ RemoveNodeConfig
//!           ─▶ environment ──┘        external_ids, once
//! ```
//!
//! | part | what it is |
//! |---|---|
//! | `table` | every option, once: the source of all the rest |
//! | `spec`, `kind` | the description of an option; the form of its value |
//! | `command_line`, `conf_file`, `environment` | the sources of values |
//! | `settings` | all values of all options, and which of them counts |
//! | `external_ids` | the source in Open vSwitch's database |
//! | `reading` | parses the values that count, once, and gathers the errors |
//! | `values` | parsers from text to typed values |
//! | `roles` | the role or command of a process |
//! | `node_config`, `kubernetes`, `chassis`, `management_port` | the configuration of a node's server |
//! | `control_plane`, `cluster`, `networks` | the configuration of the control plane |
//! | `databases` | OVN's databases, for both |
//! | `effect` | options without effect in this process, and the reasons |
//! | `print` | `--print-config` |
//! | [`documents`] | manual, completion, and the file with every default |
//! | `problems` | all errors of the options, reported together |
//!
//! Precedence, highest first: command line, file, environment, the service account's files,
//! `external_ids` of Open vSwitch's database, default. An empty value counts as none. A node's
//! server waits for that database and follows it. The control plane and `--remove-node` read it
//! once, before anything else. They may run on a machine without Open vSwitch: then that source is
//! missing.

use std::{convert::Infallible, ffi::OsString, path::PathBuf, str::FromStr};

use clap::ArgMatches;
use kubeapi::ApiServer;

use crate::{
    check::CheckConfig,
    control_plane::{AdoptConfig, ControlPlaneConfig, RemoveNodeConfig},
    explain::ExplainConfig,
    exporter::ExporterPlaces,
    legacy::LegacyConfig,
    status::StatusConfig,
};

mod chassis;
mod cluster;
mod command_line;
pub mod conf_file;
mod control_plane;
mod databases;
pub mod documents;
mod effect;
mod environment;
mod external_ids;
mod gateway;
mod go_style;
mod kind;
mod kubernetes;
mod legacy;
mod management_port;
mod networks;
mod node_config;
mod print;
mod problems;
mod reading;
mod roles;
mod settings;
mod spec;
mod status;
mod table;
mod values;

pub use command_line::{Source, arguments, command};
pub use environment::Environment;
pub use go_style::with_two_dashes;
pub use node_config::{Early, NodeOptions};
pub use print::Printed;
pub use problems::Problems;
pub use settings::Origin;
pub use spec::{Effect, Group, Key, OldKey, Part, Spec};
pub use table::all;
pub(crate) use values::bind_address;

use self::{
    command_line::CommandLine,
    conf_file::Naming,
    effect::Effects,
    external_ids::ExternalIds,
    problems::Gathered,
    roles::Role,
    settings::{Setting, Settings},
};

/// What the arguments ask for, with the values from all sources but Open vSwitch's database.
#[derive(Debug, Clone)]
pub struct Options(Given);

#[derive(Debug, Clone)]
enum Given {
    Options {
        collected: Collected,
        external_ids: ExternalIds,
        /// Every argument on the command line is a known option.
        understood: bool,
    },
    /// The command line asks for help, the version or documents: the options do not count.
    Program(Program),
}

/// What a command line asks for.
#[derive(Debug, Clone)]
pub enum Program {
    /// `--init-node`
    Node(NodeOptions),
    /// `--init-master`, `--init-cluster-manager`, `--init-ovnkube-controller`
    ControlPlane(Box<ControlPlaneConfig>, Collected),
    /// The control plane in one process with a node's server.
    Both(Box<ControlPlaneConfig>, NodeOptions),
    /// `--remove-node`
    RemoveNode(Box<RemoveNodeConfig>),
    /// `--adopt`
    Adopt(Box<AdoptConfig>),
    /// `--cleanup-node`
    CleanupNode(Box<Early>),
    /// `--hand-back-node`
    HandBackNode(Box<Early>),
    /// `--print-config`
    PrintConfig(Collected),
    /// Help or version, to be printed to standard output.
    Text(String),
    /// `--generate-documents`: manual, completion and reference pages, to be written into this
    /// directory.
    Documents(PathBuf),
}

/// All given values, and the errors of single ones.
#[derive(Debug, Clone)]
pub struct Collected {
    settings: Settings,
    notes: Vec<String>,
    problems: Gathered,
}

impl Options {
    /// Reads the command line, the program's name first, and the other sources of this process.
    /// Errors are returned by [`program`](Self::program).
    pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Self {
        Self::read_in(arguments, &Environment::of_process())
    }

    /// The same with other sources.
    pub fn read_in(
        arguments: impl IntoIterator<Item = OsString>,
        environment: &Environment,
    ) -> Self {
        match command_line::read(arguments) {
            CommandLine::Text(text) => Self(Given::Program(Program::Text(text))),
            CommandLine::Documents(directory) => {
                Self(Given::Program(Program::Documents(directory)))
            }
            CommandLine::Options { settings, problems } => {
                Self::given(settings, problems, environment)
            }
        }
    }

    /// The options of a command, which has those of [`arguments`]; and the other sources of this
    /// process.
    pub fn of_command(matches: &ArgMatches) -> Self {
        let environment = Environment::of_process();
        let Self(mut given) =
            Self::given(command_line::settings(matches), Vec::new(), &environment);
        if let Given::Options { collected, .. } = &mut given {
            environment.add_kubeconfig_of_user(&mut collected.settings);
        }
        Self(given)
    }

    fn given(mut settings: Settings, usage: Vec<String>, environment: &Environment) -> Self {
        let understood = usage.is_empty();
        let (mut notes, mut problems) = (Vec::new(), Gathered::default());
        usage.into_iter().for_each(|problem| problems.add(problem));
        let file =
            settings.given(&table::roles::CONFIG_FILE).map(|setting| setting.value.clone().into());
        // After the command line, which may name the file.
        let naming = if file.is_some() { Naming::Explicit } else { Naming::Default };
        if let Some(file) = file.or_else(|| environment.conf_file.clone()) {
            conf_file::read(&file, naming, &mut settings, &mut problems, &mut notes);
        }
        environment.add_to(&mut settings);
        // Every value, also one that does not count: it would be an error once the better one is
        // removed.
        for spec in all() {
            for setting in settings.every(spec) {
                problems.take(check(spec, setting));
            }
        }
        let collected = Collected { settings, notes, problems };
        Self(Given::Options { collected, external_ids: ExternalIds::Ignored, understood })
    }

    /// Reads `external_ids` for the roles that read them once, if Open vSwitch's database answers
    /// within 2 s. `--print-config` reads them itself.
    #[must_use]
    pub fn with_external_ids(mut self) -> Self {
        if let Given::Options { collected, external_ids, understood: true } = &mut self.0
            && !collected.is_on(&table::roles::PRINT_CONFIG)
            && collected.role().is_some_and(Role::reads_once)
            && let Some(endpoint) = collected.ovsdb()
        {
            *external_ids = external_ids::read_now(&endpoint);
        }
        self
    }

    /// The configuration of `policy explain`, which has these options. External ids are read as for
    /// other roles.
    ///
    /// # Errors
    ///
    /// All problems together.
    pub fn explanation(self) -> Result<ExplainConfig, Problems> {
        let Given::Options { collected, understood, .. } = self.0 else {
            return Err(Problems::incomplete());
        };
        if !understood {
            collected.problems.clone().none_or()?;
        }
        let external_ids = match collected.ovsdb() {
            Some(endpoint) => external_ids::read_now(&endpoint),
            None => ExternalIds::Ignored,
        };
        collected.explanation(&external_ids)
    }

    /// Where `status` looks. Options that cannot be used make one part of it unknown.
    ///
    /// # Errors
    ///
    /// All problems of single values together.
    pub fn status(self) -> Result<StatusConfig, Problems> {
        let Given::Options { collected, .. } = self.0 else { return Err(Problems::incomplete()) };
        let external_ids = match collected.ovsdb() {
            Some(endpoint) => external_ids::read_now(&endpoint),
            None => ExternalIds::Ignored,
        };
        collected.status(&external_ids)
    }

    /// What the commands of 2016 to 2018 take from the sources of options.
    ///
    /// # Errors
    ///
    /// All problems of single values together.
    pub fn legacy(self) -> Result<LegacyConfig, Problems> {
        let Given::Options { collected, .. } = self.0 else { return Err(Problems::incomplete()) };
        collected.legacy()
    }

    /// Where `check` looks. `external_ids` are not read: nothing is installed yet.
    ///
    /// # Errors
    ///
    /// All problems of single values together.
    pub fn check(self) -> Result<CheckConfig, Problems> {
        let Given::Options { collected, .. } = self.0 else { return Err(Problems::incomplete()) };
        collected.check()
    }

    /// Where the metrics of this machine's daemons are read.
    ///
    /// # Errors
    ///
    /// All problems together.
    pub fn exporter(self) -> Result<ExporterPlaces, Problems> {
        let Given::Options { collected, .. } = self.0 else { return Err(Problems::incomplete()) };
        collected.exporter()
    }

    /// The API server of a command that needs nothing else.
    ///
    /// # Errors
    ///
    /// All problems together.
    pub fn api_server(self) -> Result<ApiServer, Problems> {
        let Given::Options { collected, .. } = self.0 else { return Err(Problems::incomplete()) };
        collected.api_server()
    }

    /// What the options ask for.
    ///
    /// # Errors
    ///
    /// All problems together. For a node's server, without those that its `external_ids` may still
    /// solve.
    pub fn program(self) -> Result<Program, Problems> {
        let (mut collected, external_ids, understood) = match self.0 {
            Given::Program(program) => return Ok(program),
            Given::Options { collected, external_ids, understood } => {
                (collected, external_ids, understood)
            }
        };
        if !understood {
            // Only these problems: an option that seems to be missing may be one that is misspelt.
            collected.problems.clone().none_or()?;
        }
        // Before the roles: it also prints options that do not go together.
        if collected.is_on(&table::roles::PRINT_CONFIG) {
            return Ok(Program::PrintConfig(collected));
        }
        match roles::asked(&collected.settings, &mut collected.problems) {
            Some(Role::ControlPlane(roles)) => {
                let config =
                    collected.control_plane(Role::ControlPlane(roles), roles, &external_ids)?;
                Ok(Program::ControlPlane(Box::new(config), collected))
            }
            Some(Role::Beside(roles)) => {
                let config = collected.control_plane(Role::Beside(roles), roles, &external_ids);
                let (config, node) = problems::both(config, NodeOptions::of(collected))?;
                Ok(Program::Both(Box::new(config), node))
            }
            Some(Role::CleanupNode) => {
                Ok(Program::CleanupNode(Box::new(collected.early(&external_ids)?)))
            }
            // It asks no API server.
            Some(Role::HandBackNode) => {
                Ok(Program::HandBackNode(Box::new(collected.early(&ExternalIds::Ignored)?)))
            }
            Some(Role::RemoveNode) => {
                Ok(Program::RemoveNode(Box::new(collected.remove_node(&external_ids)?)))
            }
            Some(Role::Adopt) => Ok(Program::Adopt(Box::new(collected.adopt(&external_ids)?))),
            // Without a role there is a problem already; this adds the others.
            Some(Role::Node | Role::Explain | Role::Status) | None => {
                NodeOptions::of(collected).map(Program::Node)
            }
        }
    }
}

impl Collected {
    fn role(&self) -> Option<Role> {
        roles::asked(&self.settings, &mut Gathered::default())
    }

    /// Whether a switch is on. A wrong value is off here; [`check`] reports it.
    fn is_on(&self, spec: &'static Spec) -> bool {
        kind::switch(&self.settings.value(spec).value).unwrap_or(false)
    }

    /// Remarks on given options that have no effect, a sentence for each reason, for the log and
    /// standard error.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.notes.clone();
        notes.extend(Effects::of(&self.settings).notes());
        notes
    }
}

/// Why the option cannot have this value.
fn check(spec: &Spec, setting: &Setting) -> Result<(), String> {
    spec.kind.check(&setting.value).map_err(|reason| sentence(spec, setting, &reason))
}

/// The option as it was given, and what is wrong with it.
fn sentence(spec: &Spec, setting: &Setting, reason: &str) -> String {
    let between = if reason.starts_with('"') { "" } else { ":" };
    format!("{}{between} {reason}", setting.origin.names(spec))
}

impl FromStr for Options {
    type Err = Infallible;

    /// A command line as one text, without quoting and without other sources: for tests and
    /// examples.
    fn from_str(line: &str) -> Result<Self, Infallible> {
        Ok(Self::read_in(
            std::iter::once("ovnkube").chain(line.split_whitespace()).map(OsString::from),
            &Environment::none(),
        ))
    }
}

#[cfg(test)]
mod tests;
