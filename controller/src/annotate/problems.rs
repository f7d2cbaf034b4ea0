//! Failures of the patcher: logged once, reported as an event on the object, and counted by reason.

use std::collections::{BTreeSet, HashMap};

use kubeapi::{
    Trouble,
    events::{Event, EventReason, Recorder},
    object::Object,
};

use super::{AnnotationMetrics, Matter, Wish, patch::Outcome, queue::Standing};

/// Of one object's consecutive failures, the second is the first that becomes an event: a single
/// one is often transient.
const TOLD: u32 = 2;
/// After that, one failure in this many becomes an event: about every ten minutes, at the longest
/// backoff of 5 s. The API server drops events after an hour, so ten times as many would leave
/// gaps; a tenth would repeat the event every minute.
const TOLD_AGAIN: u32 = 120;

/// The failures that were last reported.
pub(super) struct Problems {
    recorder: Recorder,
    metrics: AnnotationMetrics,
    kind: &'static str,
    matter: Matter,
    /// Codes of the API server's answers after which nothing was tried again.
    unwritable: BTreeSet<Option<u16>>,
    /// Text of a failure that concerns all objects.
    general: Option<String>,
    /// Failures that concern one object.
    of: HashMap<Object, Problem>,
}

struct Problem {
    text: String,
    reason: &'static str,
    times: u32,
}

impl Problems {
    pub(super) fn new(
        kind: &'static str,
        matter: Matter,
        recorder: Recorder,
        metrics: AnnotationMetrics,
    ) -> Self {
        let unwritable = BTreeSet::new();
        Self { recorder, metrics, kind, matter, unwritable, general: None, of: HashMap::new() }
    }

    /// Reports the outcome of one patch. `standing`: the state of the queue after it.
    pub(super) fn tell(&mut self, written: &impl Wish, outcome: &Outcome, standing: Standing) {
        match (outcome, standing) {
            (Outcome::Written | Outcome::Gone | Outcome::Outdated, _) => {
                if self.general.take().is_some() {
                    tracing::info!(what = self.matter.name(), "objects are written again");
                }
                self.solved(&written.object());
            }
            (Outcome::Unwritable(trouble), _) => {
                // Once, not for each object: it says something about the kind, or about this
                // program's rights.
                if self.unwritable.insert(trouble.code) {
                    tracing::warn!(
                        what = self.matter.name(),
                        object = %written.object(),
                        problem = %trouble,
                        "an object cannot be written; it is tried again when it changes or at the next start"
                    );
                }
                self.solved(&written.object());
            }
            // The API server's flow control at work: no failure of this object, and no warning.
            (Outcome::Overloaded(trouble), _) => {
                if self.general.is_none() {
                    tracing::info!(
                        what = self.matter.name(),
                        problem = %trouble,
                        "objects are written more slowly"
                    );
                }
                self.general.get_or_insert_with(|| trouble.text.clone());
            }
            (Outcome::Silent(trouble), Standing::Away) => {
                if self.general.as_ref() != Some(&trouble.text) {
                    tracing::warn!(
                        what = self.matter.name(),
                        problem = %trouble,
                        "objects cannot be written at the moment; retrying"
                    );
                }
                self.general = Some(trouble.text.clone());
            }
            (Outcome::Silent(trouble) | Outcome::Refused(trouble), _) => {
                self.refused(written, trouble, standing)
            }
        }
    }

    fn solved(&mut self, object: &Object) {
        if let Some(Problem { reason, .. }) = self.of.remove(object) {
            self.metrics.refused(self.kind, reason, -1);
        }
    }

    fn refused(&mut self, written: &impl Wish, trouble: &Trouble, standing: Standing) {
        let (object, uid) = (written.object(), written.uid());
        let text = &trouble.text;
        // One line for all: otherwise each of thousands of objects would log its own.
        if standing == Standing::Refusing && self.general.is_none() {
            tracing::warn!(
                what = self.matter.name(),
                problem = text,
                "the API server refuses one object after the other; each is tried again"
            );
            self.general = Some(text.clone());
        }
        let reason = reason(trouble);
        let problem = self.of.entry(object.clone()).or_insert_with(|| {
            self.metrics.refused(self.kind, reason, 1);
            Problem { text: String::new(), reason, times: 0 }
        });
        // The object moves from one label of the gauge to another.
        if problem.reason != reason {
            self.metrics.refused(self.kind, std::mem::replace(&mut problem.reason, reason), -1);
            self.metrics.refused(self.kind, reason, 1);
        }
        problem.times = problem.times.saturating_add(1);
        // The same text is logged once, however often the patch is retried.
        if problem.text != *text && standing == Standing::Well {
            tracing::warn!(
                what = self.matter.name(),
                %object,
                problem = text,
                "the API server refuses this object; it is tried again, and others go on"
            );
        }
        if problem.times % TOLD_AGAIN == TOLD {
            let note = format!("{}: {text}", self.matter.note());
            self.recorder.event(Event::new(object, uid, self.matter.reason(), note));
        }
        problem.text.clone_from(text);
    }
}

impl Matter {
    fn name(self) -> &'static str {
        match self {
            Self::Annotations => "annotations",
            Self::Status => "status",
        }
    }

    /// `action` and `reason` of the events.
    fn reason(self) -> EventReason {
        match self {
            Self::Annotations => EventReason::new("WriteAnnotations", "AnnotationsRefused"),
            Self::Status => EventReason::new("WriteStatus", "StatusRefused"),
        }
    }

    fn note(self) -> &'static str {
        match self {
            Self::Annotations => {
                "its annotations, which say what its network is, cannot be written; they are tried again"
            }
            Self::Status => "its status cannot be written; it is tried again",
        }
    }
}

/// Label `reason` of the metric.
fn reason(trouble: &Trouble) -> &'static str {
    match trouble.code {
        // A missing role (RBAC), an admission webhook or an admission policy.
        Some(401 | 403) => "Forbidden",
        Some(409) => "Conflict",
        Some(400 | 422) => "Invalid",
        Some(500..) => "ServerError",
        Some(_) => "Refused",
        None => "NoAnswer",
    }
}
