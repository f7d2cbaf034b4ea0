//! `ovnkube support-bundle`: one archive with everything that the other commands read, and the
//! places in it from which they read it again (`--bundle FILE`).
//!
//! ```text
//! API server, databases, this machine ─▶ collect ─▶ scrub ─▶ Archive ─▶ FILE
//!                                                                        │
//! status, diagnose, trace, policy explain ◀─ StatusConfig ◀─ Replay ◀────┘
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | `collect` | what is read |
//! | `scrub` | what is left out of it: secrets |
//! | `archive` | the file, and its bound |
//! | `replay` | servers that answer from the file as the real ones did |

use std::{path::PathBuf, process::ExitCode};

use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    findings::{self, Finding, Format, Report, State},
    status::StatusConfig,
};

mod archive;
mod collect;
mod replay;
mod scrub;

pub use replay::Replay;

const KIND: &str = "SupportBundle";
/// The version of the archive's layout.
const VERSION: &str = "bundle.k8s.ovn.org/v1";
/// The description of the archive, its first entry.
const DESCRIPTION: &str = "bundle.json";
/// The directory of the databases' tables, each `DATABASE/TABLE.json`.
const DATABASES: &str = "databases";
/// The directory of the API server's lists, by their paths.
const API: &str = "api";
/// The findings about this machine.
const MACHINE: &str = "machine/findings.json";
/// The directory of what the server of this machine says of its pods' namespaces.
const INSIDE: &str = "machine/inside";

/// What is asked for.
#[derive(Debug, Clone)]
pub struct BundleQuestion {
    /// The archive.
    pub file: PathBuf,
    /// The most bytes of it.
    pub most: u64,
}

/// When and where an archive was made.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Description {
    api_version: String,
    /// Of this program.
    version: String,
    created: Timestamp,
    /// The control plane's namespace.
    namespace: String,
    /// The node on which it was made, if it was one.
    node: Option<String>,
}

/// Makes the archive. The exit status is the report's.
pub fn run(config: &StatusConfig, question: &BundleQuestion) -> ExitCode {
    // The rename below would replace a device. A link is replaced, and not followed.
    let found = question.file.symlink_metadata();
    if found.is_ok_and(|found| !found.is_file() && !found.is_symlink()) {
        let why = format!("{}: is there, and no file", question.file.display());
        let finding = Finding::new("archive", "file", State::Failed, &why).next("-o FILE");
        return Report::new(KIND, vec![finding]).print(Format::Text);
    }
    let partial = question.file.with_extension("partial");
    // Of a run that was killed.
    let _ = std::fs::remove_file(&partial);
    let made = findings::run(
        async {
            match collect::to_file(config, &partial, question.most).await {
                Ok(mut findings) => {
                    findings.push(finished(question, &partial));
                    Report::new(KIND, findings)
                }
                Err(error) => {
                    let why = format!("{}: {error}", partial.display());
                    Report::new(KIND, vec![Finding::new("archive", "file", State::Failed, &why)])
                }
            }
        },
        Format::Text,
    );
    // Left by a run that a signal or an error has ended.
    let _ = std::fs::remove_file(&partial);
    made
}

fn finished(question: &BundleQuestion, partial: &std::path::Path) -> Finding {
    let file = question.file.display();
    match std::fs::rename(partial, &question.file) {
        Ok(()) => {
            let bytes = question.file.metadata().map(|metadata| metadata.len()).unwrap_or_default();
            let said = format!("{file}, {bytes} bytes");
            Finding::new("archive", "file", State::Ok, &said)
                .next(&format!("ovnkube status --bundle {file}"))
        }
        Err(error) => Finding::new("archive", "file", State::Failed, &format!("{file}: {error}")),
    }
}
