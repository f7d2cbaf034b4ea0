//! The spelling of fields in a line: those of an event as `key=value`, those of a request's span as
//! `ADD shop/cart-0 sandbox=0123456789ab eth0`.

use std::{
    error::Error,
    fmt::{self, Debug},
};

use tracing::field::{Field, Visit};
use tracing_subscriber::{
    field::RecordFields,
    fmt::{FormatFields, format::Writer},
};

use super::escape::Escaped;

/// The characters of a container id that are shown. Enough to recognise it in the output of `crictl
/// ps`, and short enough for each line of a request.
const SHORT_ID: usize = 12;

/// Formats the fields of a span: command, pod, sandbox, interface, then all others. Fields recorded
/// later come last.
#[derive(Debug, Clone, Copy, Default)]
pub struct OvsFields;

/// The fields of one span, or of one event.
#[derive(Debug, Default)]
pub(super) struct Fields {
    pub(super) message: String,
    command: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    sandbox: Option<String>,
    ifname: Option<String>,
    others: Vec<(&'static str, String)>,
}

impl<'writer> FormatFields<'writer> for OvsFields {
    fn format_fields<R: RecordFields>(
        &self,
        mut writer: Writer<'writer>,
        fields: R,
    ) -> fmt::Result {
        let mut visitor = Fields::default();
        fields.record(&mut visitor);
        writer.write_str(&visitor.request())
    }
}

impl Fields {
    /// The fields of a span as text.
    fn request(&self) -> String {
        let pod = match (&self.namespace, &self.name) {
            (Some(namespace), Some(name)) => Some(format!("{namespace}/{name}")),
            (namespace, name) => namespace.clone().or_else(|| name.clone()),
        };
        let sandbox = self
            .sandbox
            .as_ref()
            .map(|id| format!("sandbox={}", id.chars().take(SHORT_ID).collect::<String>()));
        let known = [self.command.clone(), pod, sandbox, self.ifname.clone()];
        let words: Vec<String> = known
            .into_iter()
            .flatten()
            .filter(|word| !word.is_empty())
            .chain(self.others())
            .collect();
        words.join(" ")
    }

    /// The fields that have no place of their own in a line, as `key=value`.
    pub(super) fn others(&self) -> impl Iterator<Item = String> {
        self.others.iter().map(|(key, value)| format!("{key}={}", quoted(value)))
    }

    fn set(&mut self, field: &Field, value: impl fmt::Display) {
        // All fields pass here, so no control character reaches a line.
        let value = Escaped::text(value);
        match field.name() {
            "message" => self.message = value,
            "cni.command" => self.command = Some(value),
            "pod.namespace" => self.namespace = Some(value),
            "pod.name" => self.name = Some(value),
            "sandbox" => self.sandbox = Some(value),
            "ifname" => self.ifname = Some(value),
            other => self.others.push((other, value)),
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.set(field, format_args!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, value);
    }

    fn record_error(&mut self, field: &Field, error: &(dyn Error + 'static)) {
        let causes = std::iter::successors(error.source(), |error| (*error).source());
        self.set(field, causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}")));
    }
}

/// The value, in quotes if it is empty or has white space or quotes, so that fields can be told
/// apart.
fn quoted(value: &str) -> String {
    if value.is_empty() || value.contains(|c: char| c.is_whitespace() || c == '"') {
        let mut text = String::with_capacity(value.len() + 2);
        text.push('"');
        value.chars().for_each(|c| if c == '"' { text.push_str("\\\"") } else { text.push(c) });
        text.push('"');
        return text;
    }
    value.to_owned()
}
