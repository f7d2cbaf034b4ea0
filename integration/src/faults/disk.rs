//! Full and read-only disks, over a directory of a node that the test names.

use anyhow::Result;

use crate::Node;

impl Node {
    /// Mounts a disk of so many kilobytes over `dir` and fills it to the last byte;
    /// [`Node::unmount`] undoes it.
    pub fn mount_full_disk(&self, dir: &str, kilobytes: u32) -> Result<()> {
        // The last command proves that the disk is full: one more byte has to fail.
        let fill = format!(
            "mount -t tmpfs -o size={kilobytes}k,mode=0755 full {dir}; cat /dev/zero > {dir}/fill 2>/dev/null || true; \
             ! echo x 2>/dev/null > {dir}/more"
        );
        self.shell(&fill).map(drop)
    }

    /// Makes `dir` read-only; [`Node::unmount`] undoes it.
    pub fn mount_read_only(&self, dir: &str) -> Result<()> {
        // The last command proves it: a new file has to fail.
        self.shell(&format!(
            "mount --bind {dir} {dir}; mount -o remount,bind,ro {dir}; ! touch {dir}/probe 2>/dev/null"
        ))
        .map(drop)
    }

    /// Removes the last mount over `dir`, even while files in it are open.
    pub fn unmount(&self, dir: &str) -> Result<()> {
        self.run(["umount", "--lazy", dir]).map(drop)
    }
}
