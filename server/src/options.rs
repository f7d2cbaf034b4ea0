//! The options of `ovnkube`, under the names that they have in OVN-Kubernetes.
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
//! | `table` | every option, once: all else is made of it |
//! | `spec`, `kind` | what there is to know of an option; what its value looks like |
//! | `command_line`, `conf_file`, `surroundings` | where values come from |
//! | `settings` | all values of all options, and which of them counts |
//! | `values` | texts as what they mean |
//! | `roles` | what a process is asked to be |
//! | `node_config`, `kubernetes`, `chassis`, `management_port` | what the values mean together for a node |
//! | `control_plane`, `cluster`, `networks` | what they mean together for the control plane |
//! | `databases` | OVN's databases, for both |
//! | `effect` | which of them have no effect in this process, and why |
//! | `print` | `--print-config` |
//! | [`documents`] | manual, completion, and the file with every default |
//! | `problems` | everything that is wrong, at once |
//!
//! A value on the command line wins over one in the file, that over the environment, that over the service account's files, that over
//! `external_ids` of Open vSwitch's database, and that over the default. An empty value counts as none. A node's server waits for that
//! database and follows it. The control plane, which need not run where an Open vSwitch is, and `--remove-node` read it once, before all
//! else; where there is none, there is no such source.

use std::{collections::BTreeMap, convert::Infallible, ffi::OsString, path::PathBuf, str::FromStr};

use crate::{
    control_plane::{ControlPlaneConfig, RemoveNodeConfig},
    node::NodeConfig,
};

mod chassis;
mod cluster;
mod command_line;
pub mod conf_file;
mod control_plane;
mod databases;
pub mod documents;
mod effect;
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
mod surroundings;
mod table;
mod values;

pub use command_line::command;
pub use node_config::Early;
pub use print::Printed;
pub use problems::Problems;
pub use settings::Origin;
pub use spec::{Effect, Group, Key, OldKey, Part, Spec};
pub use surroundings::Surroundings;
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

/// What was given, from everywhere but Open vSwitch's database.
#[derive(Debug, Clone)]
pub struct Options(Given);

#[derive(Debug, Clone)]
enum Given {
    Options {
        options: NodeOptions,
        /// There is nothing on the command line that is no option.
        understood: bool,
    },
    /// Nothing else counts.
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
    /// Help or version: to be printed.
    Text(String),
    /// `--generate-documents`: manual, completion and the like, to be written into this directory.
    Documents(PathBuf),
}

/// The options of a server. What nobody gave may, for a node, be in Open vSwitch's database, which is not there yet when they are read.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    settings: Settings,
    notes: Vec<String>,
    problems: Gathered,
    looked: Looked,
}

/// What `external_ids` said to a role that reads them once.
#[derive(Debug, Clone)]
enum Looked {
    /// Nobody has asked.
    NotYet,
    /// All settings, with those of `external_ids`.
    Found(Settings),
    /// Why they cannot be read.
    Failed(String),
}

impl Options {
    /// Reads the command line of this process, the program's name first, and everything else that options are read from.
    pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Self {
        Self::read_in(arguments, &Surroundings::of_process())
    }

    /// The same, elsewhere.
    pub fn read_in(arguments: impl IntoIterator<Item = OsString>, surroundings: &Surroundings) -> Self {
        let (mut settings, usage) = match command_line::read(arguments) {
            CommandLine::Text(text) => return Self(Given::Program(Program::Text(text))),
            CommandLine::Documents(directory) => return Self(Given::Program(Program::Documents(directory))),
            CommandLine::Options { settings, problems } => (settings, problems),
        };
        let understood = usage.is_empty();
        let (mut notes, mut problems) = (Vec::new(), Gathered::default());
        usage.into_iter().for_each(|problem| problems.add(problem));
        let file = settings.given(&table::roles::CONFIG_FILE).map(|setting| setting.value.clone().into());
        let asked = if file.is_some() { FileAsked::Explicitly } else { FileAsked::ByDefault };
        if let Some(file) = file.or_else(|| surroundings.conf_file.clone()) {
            conf_file::read(&file, asked, &mut settings, &mut problems, &mut notes);
        }
        surroundings.add_to(&mut settings);
        for spec in all() {
            for setting in settings.every(spec) {
                problems.take(check(spec, setting));
            }
        }
        Self(Given::Options { options: NodeOptions { settings, notes, problems, looked: Looked::NotYet }, understood })
    }

    /// Reads `external_ids` for the roles that read them once, if Open vSwitch's database answers soon.
    #[must_use]
    pub fn with_external_ids(mut self) -> Self {
        if let Given::Options { options, understood: true } = &mut self.0 {
            options.look();
        }
        self
    }

    /// What the options ask for, or everything that is wrong with them whatever Open vSwitch's database says.
    pub fn program(self) -> Result<Program, Problems> {
        let (mut options, understood) = match self.0 {
            Given::Program(program) => return Ok(program),
            Given::Options { options, understood } => (options, understood),
        };
        if !understood {
            // What is missing may be among what is not understood.
            options.problems.clone().none_or()?;
        }
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
                let (config, node) = (options.control_plane(roles, true, &options.looked), options.resolve(Known::NotYet));
                let config = problems::both(config, node.map(drop))?;
                Ok(Program::Both(Box::new(config), options))
            }
            Some(Asked::CleanupNode) => options.early().map(|_| Program::CleanupNode(options)),
            Some(Asked::RemoveNode) => {
                let config = options.remove_node(&options.looked)?;
                Ok(Program::RemoveNode(Box::new(config), options))
            }
            // What else is wrong is said, too.
            None => options.resolve(Known::NotYet).map(|_| Program::Node(options)),
        }
    }
}

impl NodeOptions {
    /// What the server is told, where `external_ids` (of the `Open_vSwitch` table) are the last source before the defaults.
    pub fn config(&self, external_ids: &BTreeMap<String, String>) -> Result<NodeConfig, Problems> {
        self.resolve(Known::Read(external_ids))?.ok_or_else(|| Problems::from("the options are incomplete".to_owned()))
    }

    /// What can be said without Open vSwitch's database.
    pub fn early(&self) -> Result<Early, Problems> {
        self.resolve_early()
    }

    /// Where nothing but `external_ids` can say where pods are known from, whether they do: nobody waits for a database only to hear that
    /// an option is missing.
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

    /// Asks Open vSwitch's database for what the role reads once.
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

    /// The settings of a role that reads `external_ids` once: only what is meant for it counts. What is ovn-controller's, such as how often
    /// it probes its database, is not.
    fn settings_once(&self, asked: Asked, external_ids: &BTreeMap<String, String>) -> Settings {
        self.settings.with_external_ids_of(external_ids, asked.external_ids())
    }

    fn role(&self) -> Option<Asked> {
        roles::asked(&self.settings, &mut Gathered::default())
    }

    /// What was given without being of use, a sentence for each reason: for the log and standard error.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.notes.clone();
        notes.extend(Effects::of(&self.settings).notes());
        notes
    }
}

/// Why a value cannot be one of this option.
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

    /// A command line as one text, without quoting and without anything around it: for tests and examples.
    fn from_str(line: &str) -> Result<Self, Infallible> {
        Ok(Self::read_in(std::iter::once("ovnkube").chain(line.split_whitespace()).map(OsString::from), &Surroundings::none()))
    }
}

#[cfg(test)]
mod tests;
