//! How `ovnkube` is linked.
//!
//! The kernel loads it at a random address, so it reads its 55,000 relocations at the start and
//! keeps these pages: 1.3 MB, and packed a few kB. Linkers before binutils 2.38 warn that they
//! ignore the option.

#![allow(clippy::print_stdout, reason = "cargo reads it")]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
}
