//! Disks that are full or cannot be written, under the directory of a node that a test names.

use anyhow::Result;

use crate::Node;

impl Node {
    /// Mounts a disk of so many kilobytes over `dir`, and fills it to the last byte; undone by [`Node::unmount`].
    pub fn mount_full_disk(&self, dir: &str, kilobytes: u32) -> Result<()> {
        let fill = format!(
            "mount -t tmpfs -o size={kilobytes}k,mode=0755 full {dir}; cat /dev/zero > {dir}/fill 2>/dev/null || true; \
             ! echo x 2>/dev/null > {dir}/more"
        );
        self.shell(&fill).map(drop)
    }

    /// Makes `dir` read-only; undone by [`Node::unmount`].
    pub fn mount_read_only(&self, dir: &str) -> Result<()> {
        self.shell(&format!("mount --bind {dir} {dir}; mount -o remount,bind,ro {dir}; ! touch {dir}/probe 2>/dev/null")).map(drop)
    }

    /// Takes the last mount over `dir` away, although files of it may be open.
    pub fn unmount(&self, dir: &str) -> Result<()> {
        self.run(["umount", "--lazy", dir]).map(drop)
    }
}
