#!/bin/sh
# rustc-wrapper.sh RUSTC ARGUMENTS: how `make build` has cargo compile (RUSTC_WRAPPER, which is in no hash: the workspace's wrapper would be).
#
# No directory of this machine is in an executable, so that two checkouts of a commit give the same bytes: sources are in /src, and what build
# scripts generate in /generated.
#
# The plugin is copied to hosts and started once per pod event: size counts (at most 4 MB), so it gets link-time optimisation; a panic has nothing
# to unwind to. A profile has both for all executables or for none, and a second profile would build every library twice. Thin LTO takes as long
# and is 0.3 MB larger; level 3 is over the limit. With a level of its own (Cargo.toml), cargo does not strip it.
#
# ovnkube has in a release a level of its own, and is not stripped by cargo either.
rustc=$1
shift
# The last that matches counts. OUT_DIR is below the directory of a workspace's member.
[ -z "${CARGO_MANIFEST_DIR-}" ] || set -- "$@" "--remap-path-prefix=${CARGO_MANIFEST_DIR%/*}=/src"
[ -z "${OUT_DIR-}" ] || set -- "$@" "--remap-path-prefix=$OUT_DIR=/generated"
case " $* " in
*" --crate-name ovn_k8s_cni_overlay "*" --crate-type bin "*)
    exec "$rustc" "$@" -C opt-level=2 -C lto=fat -C codegen-units=1 -C panic=abort -C strip=symbols -C relocation-model=static ;;
*" --crate-name ovnkube "*" --crate-type bin "*) exec "$rustc" "$@" -C strip=symbols ;;
*) exec "$rustc" "$@" ;;
esac
