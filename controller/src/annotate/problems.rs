//! What stands in the way of annotations: said in the log once, as an event on the object, and counted by reason.

use std::collections::HashMap;

use kubeapi::{
    Trouble,
    events::{About, Notice, Teller},
    object::Object,
};

use super::{Annotations, Metrics, patch::Outcome, queue::Standing};

/// What was being done, in events.
const ACTION: &str = "WriteAnnotations";
const REASON: &str = "AnnotationsRefused";
/// Of one object's failures in a row the second is told, for the first may be a moment's; and then one in so many, about every ten minutes:
/// the API server forgets events after an hour.
const TOLD: u32 = 2;
const TOLD_AGAIN: u32 = 120;

/// What was last said to stand in the way.
pub(super) struct Problems {
    teller: Teller,
    metrics: Metrics,
    kind: &'static str,
    /// Of everything.
    general: Option<String>,
    /// Of one object.
    of: HashMap<Object, Problem>,
}

struct Problem {
    text: String,
    reason: &'static str,
    times: u32,
}

impl Problems {
    pub(super) fn new(kind: &'static str, teller: Teller, metrics: Metrics) -> Self {
        Self { teller, metrics, kind, general: None, of: HashMap::new() }
    }

    /// `standing`: with this outcome.
    pub(super) fn tell(&mut self, written: &Annotations, outcome: &Outcome, standing: Standing) {
        match (outcome, standing) {
            (Outcome::Written | Outcome::Gone | Outcome::Outdated, _) => {
                if self.general.take().is_some() {
                    tracing::info!("annotations are written again");
                }
                if let Some(Problem { reason, .. }) = self.of.remove(&written.object) {
                    self.metrics.refused(self.kind, reason, -1);
                }
            }
            (Outcome::Overloaded(trouble), _) => {
                if self.general.is_none() {
                    tracing::info!(problem = %trouble, "annotations are written more slowly");
                }
                self.general.get_or_insert_with(|| trouble.text.clone());
            }
            (Outcome::Silent(trouble), Standing::Away) => {
                if self.general.as_ref() != Some(&trouble.text) {
                    tracing::warn!(problem = %trouble, "annotations are not written at the moment; it is tried again until they are");
                }
                self.general = Some(trouble.text.clone());
            }
            (Outcome::Silent(trouble) | Outcome::Refused(trouble), _) => self.refused(written, trouble, standing),
        }
    }

    fn refused(&mut self, written: &Annotations, trouble: &Trouble, standing: Standing) {
        let Annotations { object, uid, values: _, only: _ } = written;
        let text = &trouble.text;
        if standing == Standing::Refusing && self.general.is_none() {
            tracing::warn!(problem = text, "the API server refuses the annotations of one object after the other; each is tried again");
            self.general = Some(text.clone());
        }
        let reason = reason(trouble);
        let problem = self.of.entry(object.clone()).or_insert_with(|| {
            self.metrics.refused(self.kind, reason, 1);
            Problem { text: String::new(), reason, times: 0 }
        });
        if problem.reason != reason {
            self.metrics.refused(self.kind, std::mem::replace(&mut problem.reason, reason), -1);
            self.metrics.refused(self.kind, reason, 1);
        }
        problem.times = problem.times.saturating_add(1);
        if problem.text != *text && standing == Standing::Well {
            tracing::warn!(%object, problem = text, "the annotations of this object are refused; they are tried again, and others go on");
        }
        if problem.times % TOLD_AGAIN == TOLD {
            let note = format!("its annotations, which say what its network is, cannot be written; they are tried again: {text}");
            self.teller.tell(Notice::new(object.clone(), uid, About::new(ACTION, REASON), note));
        }
        problem.text.clone_from(text);
    }
}

/// One word for a metric's label.
fn reason(trouble: &Trouble) -> &'static str {
    match trouble.code {
        // A role that is missing, or what an admission webhook or policy says.
        Some(401 | 403) => "Forbidden",
        Some(409) => "Conflict",
        Some(400 | 422) => "Invalid",
        Some(500..) => "ServerError",
        Some(_) => "Refused",
        None => "NoAnswer",
    }
}
