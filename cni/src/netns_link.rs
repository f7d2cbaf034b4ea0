//! A name for a pod's network namespace in the directory of `ip netns`, as the Python programs gave
//! it: the container's id. For people who look into a pod (`ip netns exec`); the network does not
//! need it, so a failure is a warning. Knows nothing of interfaces.

use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use contract::{names::SandboxId, paths::NETNS_DIR};

/// The names of the namespaces of this host's pods.
#[derive(Debug)]
pub struct NetnsLinks {
    directory: PathBuf,
}

impl Default for NetnsLinks {
    fn default() -> Self {
        Self { directory: NETNS_DIR.into() }
    }
}

impl NetnsLinks {
    /// Names the sandbox's namespace. A link of an earlier ADD is replaced; a namespace of that
    /// name that another program mounted there stays.
    pub fn make(&self, sandbox: &SandboxId, netns: &Path) {
        let path = self.path(sandbox);
        if netns == path {
            return;
        }
        match self.try_make(&path, netns) {
            Ok(()) => {
                tracing::debug!(path = %path.display(), netns = %netns.display(), "named the namespace")
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "the namespace gets no name for ip netns");
            }
        }
    }

    fn try_make(&self, path: &Path, netns: &Path) -> io::Result<()> {
        fs::create_dir_all(&self.directory)?;
        remove(path)?;
        symlink(netns, path)
    }

    /// Removes the sandbox's name, if it is a link.
    pub fn remove(&self, sandbox: &SandboxId) {
        let path = self.path(sandbox);
        if let Err(error) = remove(&path) {
            tracing::warn!(path = %path.display(), %error, "the name of the pod's namespace stays");
        }
    }

    /// The id has no slash and does not begin with a dot ([`SandboxId`]).
    fn path(&self, sandbox: &SandboxId) -> PathBuf {
        self.directory.join(sandbox.as_str())
    }
}

/// Removes a symbolic link, and nothing else: a namespace that is mounted there is a file.
fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(there) if there.is_symlink() => fs::remove_file(path),
        Ok(_) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links() -> (tempfile::TempDir, NetnsLinks, SandboxId) {
        let directory = tempfile::tempdir().unwrap();
        let links = NetnsLinks { directory: directory.path().join("netns") };
        (directory, links, "a2f5796e82e92868".parse().unwrap())
    }

    #[test]
    fn an_attached_pods_namespace_has_a_name_until_it_is_detached() {
        let (_directory, links, sandbox) = links();
        for netns in ["/proc/31180/ns/net", "/proc/31181/ns/net"] {
            links.make(&sandbox, netns.as_ref());
            assert_eq!(
                fs::read_link(links.path(&sandbox)).unwrap().to_str(),
                Some(netns),
                "the last ADD's"
            );
        }
        for _ in 0..2 {
            links.remove(&sandbox);
            assert!(fs::symlink_metadata(links.path(&sandbox)).is_err());
        }
    }

    #[test]
    fn what_another_program_mounted_under_the_name_stays() {
        let (_directory, links, sandbox) = links();
        let path = links.path(&sandbox);
        fs::create_dir(&links.directory).unwrap();
        fs::write(&path, "a namespace").unwrap();
        links.make(&sandbox, "/proc/1/ns/net".as_ref());
        links.make(&sandbox, &path);
        links.remove(&sandbox);
        assert_eq!(fs::read_to_string(&path).unwrap(), "a namespace");
    }
}
