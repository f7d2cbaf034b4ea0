#!/usr/bin/env bash
# Runs the tests, or any command, with the Open vSwitch and OVN of other Debian releases; everything else is
# this machine's.
#
#   integration/compat.sh test [SUITE…]           every test that starts daemons, suite by suite (default: bookworm trixie sid)
#   integration/compat.sh with SUITE COMMAND…     COMMAND with that suite's programs in PATH and its schemas under their usual paths
#   integration/compat.sh path SUITE              the folder of that suite
#   integration/compat.sh mirror                  Debian's mirror
#   integration/compat.sh security-mirror         the one of its security updates
#
# A suite's packages are downloaded once, by debootstrap, and unpacked into a folder outside of the
# checkout. None of their scripts runs. Each of their programs is started by its own dynamic loader with its
# own libraries, and finds the paths that it was built for (sockets, pidfiles, logs, databases) in whatever
# namespace it is started in: so the lab needs to know nothing of this.
#
# To be root on Debian with debootstrap is enough. The mirror is the one that apt uses, unless DEBIAN_MIRROR
# names another.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PATH:$HOME/.cargo/bin:/usr/local/sbin:/usr/sbin:/sbin"

known=(bookworm trixie sid)
cache="${XDG_CACHE_HOME:-$HOME/.cache}/ovn-kubernetes/debian"
target="$(realpath -m "${CARGO_TARGET_DIR:-target}")"
# What the tests need that the packages' own dependencies bring: daemons, tools and schemas.
packages=openvswitch-switch,ovn-central,ovn-host

say() { echo "compat: $*" >&2; }
fail() { say "$@"; exit 1; }

main() {
    local command=${1:-}
    shift || true
    case $command in
    test) run_tests "$@" ;;
    with) [ $# -ge 2 ] || fail "with SUITE COMMAND…"; need_suite "$1"; with "$@" ;;
    path) [ $# -eq 1 ] || fail "path SUITE"; need_suite "$1"; folder_of "$1" ;;
    mirror) find_mirror ;;
    security-mirror) find_security_mirror ;;
    *) fail "test [SUITE…], with SUITE COMMAND…, path SUITE, mirror or security-mirror" ;;
    esac
}

# --- A suite's folder: root/ is what its packages contain, bin/ starts the programs of it -------------------------------------------

folder_of() { echo "$cache/$1"; }

# Makes it, if it is not there: under another name until it is complete, so that whoever interrupts this
# only has to run it again.
need_suite() {
    local suite=$1 folder
    folder=$(folder_of "$suite")
    [[ $suite =~ ^[a-z]+$ ]] || fail "'$suite' is no suite of Debian (like ${known[*]})"
    [ "$(id -u)" -eq 0 ] || fail "debootstrap and the lab's namespaces need root; as root, or: sudo env \"PATH=\$PATH\" make …"
    mkdir -p "$cache"
    local lock
    exec {lock}>"$cache/$suite.lock"
    # Somebody else may be making it.
    flock "$lock"
    [ -e "$folder" ] || make_folder "$suite" "$folder"
    # Not left to what is started from here, which may live longer.
    exec {lock}>&-
}

make_folder() {
    local suite=$1 folder=$2 new=$2.partial began=$SECONDS mirror package proxy
    integration/prerequisites.sh compat
    # debootstrap's own downloads go by the environment.
    proxy=$(apt-config shell http_proxy Acquire::http::Proxy)
    [ -z "$proxy" ] || eval "export $proxy"
    mirror=$(find_mirror)
    say "downloading Open vSwitch and OVN of Debian's $suite from $mirror"
    rm -rf "$new"
    # What was downloaded before an interruption is not downloaded again.
    mkdir -p "$new/root" "$new/bin" "$folder.packages"
    debootstrap --download-only --variant=minbase --include="$packages" --cache-dir="$folder.packages" "$suite" "$new/packages" "$mirror" \
        >"$folder.log" 2>&1 || { tail -n 5 "$folder.log" >&2; fail "debootstrap cannot get $suite from $mirror; its log: $folder.log"; }
    say "unpacking into $folder"
    for package in "$new"/packages/var/cache/apt/archives/*.deb; do
        dpkg-deb --extract "$package" "$new/root"
    done
    make_programs "$new" "$folder"
    rm -rf "$new/packages" "$folder.packages"
    mv -T "$new" "$folder"
    say "$suite is ready after $((SECONDS - began)) s, $(du -sh "$folder" | cut -f 1) (remove $folder to have it made again)"
}

# One script per program, in NEW/bin, for the time when NEW is called FOLDER.
make_programs() {
    local new=$1 folder=$2 loaders libraries=() directory program
    shopt -s nullglob
    # Debian before 13 has some libraries in /lib, which was a directory of its own when its packages were
    # made.
    for directory in "$new"/root/usr/lib/*-linux-gnu* "$new"/root/lib/*-linux-gnu*; do libraries+=("$folder${directory#"$new"}"); done
    # Not /lib64: its links are absolute.
    loaders=("$new"/root/{usr/,}lib/*-linux-gnu*/ld-linux*.so.*)
    [ ${#loaders[@]} -gt 0 ] || fail "there is no dynamic loader in $new/root"
    for program in "$new"/root/{usr/,}{bin,sbin}/ov[ns]* "$new"/root/usr/lib/openvswitch-*/ov[ns]*; do
        # Not the scripts.
        [ "$(head -c 4 "$program" | tr -d '\0')" = $'\177ELF' ] || continue
        cat >"$new/bin/${program##*/}" <<-END
			#!/bin/sh
			exec '$folder${loaders[0]#"$new"}' --inhibit-cache --library-path '$(IFS=:; echo "${libraries[*]}")' \\
			    '$folder${program#"$new"}' "\$@"
		END
    done
    shopt -u nullglob
    chmod 755 "$new"/bin/*
}

# Where apt gets Debian from on this machine.
find_mirror() {
    local mirror=${DEBIAN_MIRROR:-}
    [ -n "$mirror" ] || mirror=$(mirror_of_apt)
    # apt knows whose a repository is from what it downloaded of it.
    [ -n "$mirror" ] || { say "asking apt for Debian's mirror"; apt-get update -qq >&2; mirror=$(mirror_of_apt); }
    [ -n "$mirror" ] || fail "apt knows no mirror of Debian; name one: DEBIAN_MIRROR=http://… make test-compat"
    echo "$mirror"
}
mirror_of_apt() {
    # shellcheck disable=SC2016 # apt's own variables
    apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(REPO_URI)' 'Created-By: Packages' | sed -n "s/^Debian|${1:-Debian}|\(https\?:.*\)/\1/p" | sed -n 1p
}
# Unless apt has some on this machine, beside the mirror.
find_security_mirror() {
    local mirror found
    mirror=$(find_mirror)
    found=$(mirror_of_apt Debian-Security)
    echo "${found:-${mirror%/}-security/}"
}

# --- A command with a suite's programs ---------------------------------------------------------------------------------------------

# Ends as COMMAND does.
with() {
    local folder
    folder=$(folder_of "$1")
    shift
    # shellcheck disable=SC2016 # expanded by the inner shell
    PATH="$folder/bin:$PATH" unshare --mount --propagation private -- sh -euc '
        folder=$1
        shift
        for schemas in /usr/share/openvswitch /usr/share/ovn; do mount --bind "$folder/root$schemas" "$schemas"; done
        exec "$@"
    ' sh "$folder" "$@"
}

# --- The tests -------------------------------------------------------------------------------------------------------------------

run_tests() {
    local suite suites=("$@") failed=()
    [ $# -gt 0 ] || suites=("${known[@]}")
    summary=()
    mkdir -p "$target/compat"
    # All of them before the first test, which may run for long.
    for suite in "${suites[@]}"; do need_suite "$suite"; done
    for suite in "${suites[@]}"; do
        run_suite "$suite" || failed+=("$suite")
    done
    printf '%s\n' "=== compat" "${summary[@]}"
    [ ${#failed[@]} -eq 0 ] || fail "not passed: ${failed[*]}"
}

run_suite() {
    local suite=$1 log="$target/compat/$1.log" began=$SECONDS versions result=passed counts
    if ! versions=$(with "$suite" "$target/debug/integration" lab --nodes 1 --by-hand 2>&1 | tee "$log" | sed -n 's/^running: //p') ||
        [ "$versions" != "$(versions_of "$suite")" ]; then
        cat "$log" >&2
        summary+=("$suite: the lab does not run with ${versions:-it} (expected: $(versions_of "$suite"))")
        return 1
    fi
    echo "=== $suite: $versions"
    # Tests that start no daemons have nothing to do with their version.
    with "$suite" cargo nextest run --locked --workspace --features "${TEST_FEATURES:-cni/failpoints,ovnkube/failpoints}" -E 'kind(test)' 2>&1 | tee "$log" ||
        result=FAILED
    counts=$(sed -n 's/^ *Summary \[[^]]*\] *//p' "$log" | tail -n 1)
    summary+=("$suite: $versions: $result: ${counts:-no tests ran}, $((SECONDS - began)) s")
    [ "$result" = passed ]
}

# What the lab must say that it runs, from the programs themselves.
versions_of() {
    local bin
    bin="$(folder_of "$1")/bin"
    echo "Open vSwitch $("$bin/ovs-vswitchd" --version | sed -n '1s/.* //p'), OVN $("$bin/ovn-controller" --version | sed -n '1s/.* //p')"
}

main "$@"
