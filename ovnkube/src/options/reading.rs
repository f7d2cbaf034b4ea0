//! Parses the values that count into typed ones, and gathers the errors. Which options a process
//! needs, its configuration knows.

use std::path::PathBuf;

use super::{
    Collected, check,
    environment::readable,
    external_ids::ExternalIds,
    kind,
    problems::Gathered,
    roles::Role,
    sentence,
    settings::{Origin, Setting, Settings},
    spec::Spec,
    table,
};

/// One pass over the options of a process.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) settings: Settings,
    pub(super) problems: Gathered,
    /// All sources have been read: a missing option is an error.
    pub(super) complete: bool,
    /// A server waits for files of credentials that do not exist yet; a command that ends does not.
    pub(super) waits: bool,
    /// Why `external_ids` could not be read, if they could not.
    pub(super) unread: Option<String>,
}

impl Collected {
    /// A pass over the options of `role`, which takes its own keys from `external_ids`.
    pub(super) fn reading(&self, role: Role, external_ids: &ExternalIds) -> Reading {
        let (mut settings, mut problems) = (self.settings.clone(), self.problems.clone());
        if let ExternalIds::Read(external_ids) = external_ids {
            settings = settings.with_external_ids(external_ids, role.external_ids());
            // Only these: the other values were checked when they were read.
            for spec in table::all() {
                let from_there = settings
                    .given(spec)
                    .filter(|setting| matches!(setting.origin, Origin::ExternalId(_)));
                problems.take(from_there.map_or(Ok(()), |setting| check(spec, setting)));
            }
        }
        let unread = if let ExternalIds::Unreadable(reason) = external_ids {
            Some(reason.clone())
        } else {
            None
        };
        let complete = !matches!(external_ids, ExternalIds::Awaited);
        Reading { settings, problems, complete, waits: true, unread }
    }
}

impl Reading {
    /// The value that counts, parsed.
    pub(super) fn read<T>(
        &mut self,
        spec: &'static Spec,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let setting = self.settings.value(spec);
        self.problems
            .take(parse(&setting.value).map_err(|reason| sentence(spec, &setting, &reason)))
    }

    /// The same; `None` if only the default counts.
    pub(super) fn read_given<T>(
        &mut self,
        spec: &'static Spec,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        if self.settings.given(spec).is_some() { self.read(spec, parse) } else { None }
    }

    pub(super) fn path(&self, spec: &'static Spec) -> PathBuf {
        self.settings.value(spec).value.into()
    }

    pub(super) fn switch(&mut self, spec: &'static Spec) -> Option<bool> {
        self.read(spec, kind::switch)
    }

    pub(super) fn number(&mut self, spec: &'static Spec) -> Option<u64> {
        self.read(spec, |text| kind::number(text, 0, u64::MAX))
    }

    /// The file that was given, if it can be read.
    pub(super) fn file(&mut self, spec: &'static Spec) -> Option<PathBuf> {
        let setting = self.settings.given(spec)?.clone();
        self.file_of(spec, &setting)
    }

    pub(super) fn file_of(&mut self, spec: &'static Spec, setting: &Setting) -> Option<PathBuf> {
        let path = PathBuf::from(&setting.value);
        let wrong = |reason: String| format!("{}: {reason}", setting.names(spec));
        self.problems.take(readable(&path).map_err(wrong)).map(|()| path)
    }

    /// A file with credentials. On a node that boots, or joins its cluster later, it need not exist
    /// yet.
    pub(super) fn awaited_file(&mut self, spec: &'static Spec) -> Option<PathBuf> {
        let setting = self.settings.given(spec)?.clone();
        self.awaited_file_of(spec, &setting)
    }

    pub(super) fn awaited_file_of(
        &mut self,
        spec: &'static Spec,
        setting: &Setting,
    ) -> Option<PathBuf> {
        let path = PathBuf::from(&setting.value);
        // Only if it surely does not exist: a directory, or one without permission, is an error
        // now.
        if self.waits && matches!(path.try_exists(), Ok(false)) {
            Some(path)
        } else {
            self.file_of(spec, setting)
        }
    }
}
