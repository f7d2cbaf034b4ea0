//! Documents made of the table: manual pages, completion, the configuration file with every
//! default, reference pages.
//!
//! | file | for |
//! |---|---|
//! | `man8/ovnkube.8`, `man5/ovn_k8s.conf.5`, `man8/ovn-k8s-cni-overlay.8` | `man` |
//! | `man8/ovn-k8s-overlay.8` and others of 2016 to 2018 | `man` |
//! | `completions/ovnkube.bash`, `completions/_ovnkube`, `completions/ovnkube.fish` | bash, zsh, fish |
//! | `ovn_k8s.conf` | the file as it is installed: nothing is set in it |
//! | `reference/options.md`, `reference/errors.md`, `reference/annotations.md`, `reference/limits.md` | `docs/` |

use std::{fs, io, path::Path};

use clap::Command;
use clap_complete::{Generator, Shell, generate};

mod conf;
mod manual;
mod pages;

pub use conf::conf_file;

/// Writes all documents into a directory. `program` has the commands and the options; `older` are
/// the programs of 2016 to 2018 that it is by other names.
///
/// # Errors
///
/// If a file or directory cannot be written.
pub fn write(directory: &Path, program: &Command, older: &[Command]) -> io::Result<()> {
    let put = |name: &str, text: Vec<u8>| {
        let path = directory.join(name);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(path, text)
    };
    put("man8/ovnkube.8", manual::of_server(program).into_bytes())?;
    put("man5/ovn_k8s.conf.5", manual::of_file().into_bytes())?;
    put("man8/ovn-k8s-cni-overlay.8", manual::of_plugin().into_bytes())?;
    for program in older {
        put(&format!("man8/{}.8", program.get_name()), manual::of_older(program).into_bytes())?;
    }
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let mut text = Vec::new();
        generate(shell, &mut program.clone(), "ovnkube", &mut text);
        put(&format!("completions/{}", shell.file_name("ovnkube")), text)?;
    }
    for (name, page) in reference_pages() {
        put(&format!("reference/{name}"), page.into_bytes())?;
    }
    put("ovn_k8s.conf", conf_file().into_bytes())
}

/// The pages of `docs/` that are made of tables in the code: file name and text.
pub fn reference_pages() -> [(&'static str, String); 4] {
    [
        ("options.md", pages::options()),
        ("errors.md", pages::errors()),
        ("annotations.md", pages::annotations()),
        ("limits.md", pages::limits()),
    ]
}
