//! The options of `ovnkube`, under their names in OVN-Kubernetes.
//!
//! ```text
//! arguments ─▶ command_line ─┐                               ┌─▶ NodeOptions ─ external_ids ─▶ NodeConfig
//! file      ─▶ conf_file ────┼─▶ Settings ─▶ Options ─▶ Program ─▶ ControlPlaneConfig
//! environment, service account             ▲                 └─▶ RemoveNodeConfig
//!           ─▶ surroundings ─┘     external_ids, once
//! ```
//!
//! | part | what it is |
//! |---|---|
//! | `table` | every option, once: the source of all the rest |
//! | `spec`, `kind` | the description of an option; the form of its value |
//! | `command_line`, `conf_file`, `environment` | the sources of values |
//! | `settings` | all values of all options, and which of them counts |
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
//! Precedence, highest first: command line, file, environment, the service account's files, `external_ids` of
//! Open vSwitch's database, default. An empty value counts as none. A node's server waits for that database
//! and follows it. The control plane and `--remove-node` read it once, before anything else. They may run on
//! a machine without Open vSwitch: then that source is missing.

use std::{collections::BTreeMap, convert::Infallible, ffi::OsString, path::PathBuf, str::FromStr};

use server::node::NodeConfig;

use crate::control_plane::{ControlPlaneConfig, RemoveNodeConfig};

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
mod go_style;
mod kind;
mod kubernetes;
mod management_port;
mod networks;
mod node_config;
mod print;
mod problems;
mod roles;
mod settings;
mod spec;
mod table;
mod values;

pub use command_line::command;
pub use environment::Environment;
pub use node_config::Early;
pub use print::Printed;
pub use problems::Problems;
pub use settings::Origin;
pub use spec::{Effect, Group, Key, OldKey, Part, Spec};
pub use table::all;

use self::{
    command_line::CommandLine,
    conf_file::Asked as FileAsked,
    effect::Effects,
    node_config::Known,
    problems::Gathered,
    roles::Asked,
    settings::{Setting, Settings},
};

/// All given values, except those in Open vSwitch's database.
#[derive(Debug, Clone)]
pub struct Options(Given);

#[derive(Debug, Clone)]
enum Given {
    Options {
        options: NodeOptions,
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
    ControlPlane(Box<ControlPlaneConfig>, NodeOptions),
    /// The control plane in one process with a node's server.
    Both(Box<ControlPlaneConfig>, NodeOptions),
    /// `--remove-node`
    RemoveNode(Box<RemoveNodeConfig>, NodeOptions),
    /// `--cleanup-node`
    CleanupNode(NodeOptions),
    /// `--print-config`
    PrintConfig(NodeOptions),
    /// Help or version, to be printed to standard output.
    Text(String),
    /// `--generate-documents`: manual, completion and reference pages, to be written into this directory.
    Documents(PathBuf),
}

/// The options of a process. For a node, an option that was not given may still come from Open vSwitch's
/// database, which need not run yet when the options are read.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    settings: Settings,
    notes: Vec<String>,
    problems: Gathered,
    looked: Looked,
}

/// The `external_ids` for a role that reads them once.
#[derive(Debug, Clone)]
enum Looked {
    /// Not read (yet).
    NotYet,
    /// All settings, with those of `external_ids`.
    Found(Settings),
    /// Why they cannot be read.
    Failed(String),
}

impl Options {
    /// Reads the command line, the program's name first, and the other sources of this process. Errors are
    /// returned by [`program`](Self::program).
    pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Self {
        Self::read_in(arguments, &Environment::of_process())
    }

    /// The same with other sources.
    pub fn read_in(arguments: impl IntoIterator<Item = OsString>, environment: &Environment) -> Self {
        let (mut settings, usage) = match command_line::read(arguments) {
            CommandLine::Text(text) => return Self(Given::Program(Program::Text(text))),
            CommandLine::Documents(directory) => return Self(Given::Program(Program::Documents(directory))),
            CommandLine::Options { settings, problems } => (settings, problems),
        };
        let understood = usage.is_empty();
        let (mut notes, mut problems) = (Vec::new(), Gathered::default());
        usage.into_iter().for_each(|problem| problems.add(problem));
        let file = settings.given(&table::roles::CONFIG_FILE).map(|setting| setting.value.clone().into());
        // After the command line, which may name the file.
        let asked = if file.is_some() { FileAsked::Explicitly } else { FileAsked::ByDefault };
        if let Some(file) = file.or_else(|| environment.conf_file.clone()) {
            conf_file::read(&file, asked, &mut settings, &mut problems, &mut notes);
        }
        environment.add_to(&mut settings);
        // Every value, also one that does not count: it would be an error once the better one is removed.
        for spec in all() {
            for setting in settings.every(spec) {
                problems.take(check(spec, setting));
            }
        }
        Self(Given::Options {
            options: NodeOptions { settings, notes, problems, looked: Looked::NotYet },
            understood,
        })
    }

    /// Reads `external_ids` for the roles that read them once, if Open vSwitch's database answers within 2 s.
    #[must_use]
    pub fn with_external_ids(mut self) -> Self {
        if let Given::Options { options, understood: true } = &mut self.0 {
            options.look();
        }
        self
    }

    /// What the options ask for.
    ///
    /// # Errors
    ///
    /// All problems together. For a node's server, without those that its `external_ids` may still solve.
    pub fn program(self) -> Result<Program, Problems> {
        let (mut options, understood) = match self.0 {
            Given::Program(program) => return Ok(program),
            Given::Options { options, understood } => (options, understood),
        };
        if !understood {
            // Only these problems: an option that seems to be missing may be one that is misspelt.
            options.problems.clone().none_or()?;
        }
        // Before the roles: it also prints options that do not go together.
        if node_config::switch(&options.settings, &table::roles::PRINT_CONFIG) {
            return Ok(Program::PrintConfig(options));
        }
        let asked = roles::asked(&options.settings, &mut options.problems);
        match asked {
            Some(Asked::Node) => options.resolve(Known::NotYet).map(|_| Program::Node(options)),
            Some(Asked::ControlPlane(roles)) => {
                let config = options.control_plane(roles, false, &options.looked)?;
                Ok(Program::ControlPlane(Box::new(config), options))
            }
            Some(Asked::Beside(roles)) => {
                let (config, node) =
                    (options.control_plane(roles, true, &options.looked), options.resolve(Known::NotYet));
                let config = problems::both(config, node.map(drop))?;
                Ok(Program::Both(Box::new(config), options))
            }
            Some(Asked::CleanupNode) => options.early().map(|_| Program::CleanupNode(options)),
            Some(Asked::RemoveNode) => {
                let config = options.remove_node(&options.looked)?;
                Ok(Program::RemoveNode(Box::new(config), options))
            }
            // There is a problem already; this adds the others.
            None => options.resolve(Known::NotYet).map(|_| Program::Node(options)),
        }
    }
}

impl NodeOptions {
    /// The configuration of a node's server, with `external_ids` (of the `Open_vSwitch` table) as the last
    /// source before the defaults.
    ///
    /// # Errors
    ///
    /// All problems together.
    pub fn config(&self, external_ids: &BTreeMap<String, String>) -> Result<NodeConfig, Problems> {
        self.resolve(Known::Read(external_ids))?
            .ok_or_else(|| Problems::from("the options are incomplete".to_owned()))
    }

    /// The part of the configuration that does not depend on Open vSwitch's database.
    ///
    /// # Errors
    ///
    /// All problems of this part together.
    pub fn early(&self) -> Result<Early, Problems> {
        self.resolve_early()
    }

    /// Checks that the source of pods is known. If only `external_ids` can have it, reads them now: otherwise
    /// the server would wait for the database, only to report a missing option.
    ///
    /// # Errors
    ///
    /// If `external_ids` lack it, too, or cannot be read: all problems together.
    pub fn confirm(&self) -> Result<(), Problems> {
        if kubernetes::is_source_known(&self.settings) {
            return Ok(());
        }
        let (external_ids, reason) = match external_ids::read_now(&self.early()?.ovsdb) {
            Ok(external_ids) => (external_ids, None),
            Err(reason) => (BTreeMap::new(), Some(reason)),
        };
        let mut problems = Gathered::default();
        for problem in self.config(&external_ids).as_ref().err().into_iter().flat_map(Problems::iter) {
            problems.add(problem);
        }
        if let Some(reason) = reason {
            problems.add(external_ids::unread(&reason));
        }
        problems.none_or()
    }

    /// Reads `external_ids` for a role that reads them once. `--print-config` reads them itself.
    fn look(&mut self) {
        let prints = node_config::switch(&self.settings, &table::roles::PRINT_CONFIG);
        let Some(asked) = self.role().filter(|asked| !prints && asked.reads_once()) else { return };
        self.looked = match self.reading(Known::NotYet).ovsdb() {
            None => return,
            Some(endpoint) => match external_ids::read_now(&endpoint) {
                Ok(external_ids) => Looked::Found(self.settings_once(asked, &external_ids)),
                Err(reason) => Looked::Failed(reason),
            },
        };
    }

    /// The settings of a role that reads `external_ids` once. Only the keys for this role count, not those
    /// for ovn-controller, such as the interval of its probes.
    fn settings_once(&self, asked: Asked, external_ids: &BTreeMap<String, String>) -> Settings {
        self.settings.with_external_ids_of(external_ids, asked.external_ids())
    }

    fn role(&self) -> Option<Asked> {
        roles::asked(&self.settings, &mut Gathered::default())
    }

    /// Remarks on given options that have no effect, a sentence for each reason, for the log and standard
    /// error.
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

    /// A command line as one text, without quoting and without other sources: for tests and examples.
    fn from_str(line: &str) -> Result<Self, Infallible> {
        Ok(Self::read_in(
            std::iter::once("ovnkube").chain(line.split_whitespace()).map(OsString::from),
            &Environment::none(),
        ))
    }
}

#[cfg(test)]
mod tests;
