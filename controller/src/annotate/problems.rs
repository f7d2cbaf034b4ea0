//! Failures of the patcher: logged once, reported as an event on the object, and counted by reason.

use std::collections::HashMap;

use kubeapi::{
    Trouble,
    events::{Event, EventReason, Recorder},
    object::Object,
};

use super::{AnnotationMetrics, DesiredAnnotation, patch::Outcome, queue::Standing};

/// `action` and `reason` of the events.
const ACTION: &str = "WriteAnnotations";
const REASON: &str = "AnnotationsRefused";
/// Of one object's consecutive failures, the second is the first that becomes an event: a single one is often
/// transient.
const TOLD: u32 = 2;
/// After that, one failure in this many becomes an event: about every ten minutes, at the longest backoff of
/// 5 s. The API server drops events after an hour, so ten times as many would leave gaps; a tenth would
/// repeat the event every minute.
const TOLD_AGAIN: u32 = 120;

/// The failures that were last reported.
pub(super) struct Problems {
    recorder: Recorder,
    metrics: AnnotationMetrics,
    kind: &'static str,
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
    pub(super) fn new(kind: &'static str, recorder: Recorder, metrics: AnnotationMetrics) -> Self {
        Self { recorder, metrics, kind, general: None, of: HashMap::new() }
    }

    /// Reports the outcome of one patch. `standing`: the state of the queue after it.
    pub(super) fn tell(&mut self, written: &impl DesiredAnnotation, outcome: &Outcome, standing: Standing) {
        match (outcome, standing) {
            (Outcome::Written | Outcome::Gone | Outcome::Outdated, _) => {
                if self.general.take().is_some() {
                    tracing::info!("annotations are written again");
                }
                if let Some(Problem { reason, .. }) = self.of.remove(&written.object()) {
                    self.metrics.refused(self.kind, reason, -1);
                }
            }
            // The API server's flow control at work: no failure of this object, and no warning.
            (Outcome::Overloaded(trouble), _) => {
                if self.general.is_none() {
                    tracing::info!(problem = %trouble, "annotations are written more slowly");
                }
                self.general.get_or_insert_with(|| trouble.text.clone());
            }
            (Outcome::Silent(trouble), Standing::Away) => {
                if self.general.as_ref() != Some(&trouble.text) {
                    tracing::warn!(
                        problem = %trouble,
                        "annotations cannot be written at the moment; retrying"
                    );
                }
                self.general = Some(trouble.text.clone());
            }
            (Outcome::Silent(trouble) | Outcome::Refused(trouble), _) => {
                self.refused(written, trouble, standing)
            }
        }
    }

    fn refused(&mut self, written: &impl DesiredAnnotation, trouble: &Trouble, standing: Standing) {
        let (object, uid) = (written.object(), written.uid());
        let text = &trouble.text;
        // One line for all: otherwise each of thousands of objects would log its own.
        if standing == Standing::Refusing && self.general.is_none() {
            tracing::warn!(
                problem = text,
                "the API server refuses the annotations of one object after the other; each is tried again"
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
                %object,
                problem = text,
                "the annotations of this object are refused; they are tried again, and others go on"
            );
        }
        if problem.times % TOLD_AGAIN == TOLD {
            let note = format!(
                "its annotations, which say what its network is, cannot be written; \
                 they are tried again: {text}"
            );
            self.recorder.event(Event::new(object, uid, EventReason::new(ACTION, REASON), note));
        }
        problem.text.clone_from(text);
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
