#!/usr/bin/env bash
# Makes a release: what administrators download, with sums, bills of materials and provenance.
#
#   integration/release.sh make VERSION        from the commit that is checked out, into target/release-VERSION
#   integration/release.sh check VERSION       only what must hold before it: version, CHANGELOG.md, checkout, tag
#   integration/release.sh rehearse STAGE      with what `make install` put into STAGE instead of builds: every refusal, the assembly twice, a signature
#
#   SIGN_KEY       key of gpg that signs SHA256SUMS (fingerprint or address); without it nothing is signed
#   BUILDER_ID     URI of the builder, for the provenance statement
#   ARCH           amd64 or arm64 (default: this machine's); for the other one, executables are tried under qemu's emulation
#
# A release is built twice, from clean checkouts in directories of different names, with another time zone, and each file
# has to be the same, byte by byte. Whoever repeats that with the same commit gets the same SHA256SUMS.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PATH:$HOME/.cargo/bin"
export LC_ALL=C
largest_ovnkube=20000000 largest_plugin=4000000

this_machine=$(uname -m)
case $this_machine in x86_64) this_machine=amd64 ;; aarch64) this_machine=arm64 ;; esac
architecture=${ARCH:-$this_machine} machine=$(uname -m) emulator=()
if [ "$architecture" != "$this_machine" ]; then
    case $architecture in amd64) machine=x86_64 ;; arm64) machine=aarch64 ;; *) echo "release: '$architecture' is none of: amd64, arm64" >&2; exit 1 ;; esac
    emulator=("qemu-$machine-static")
fi

say() { echo "release: $*" >&2; }
fail() { say "$@"; exit 1; }

main() {
    local command=${1:-} argument=${2:-}
    [ -n "$argument" ] || fail "make VERSION, check VERSION, or rehearse STAGE; as in: make release VERSION=$(version_of_executables)"
    case $command in
    check) check "$argument" ;;
    make) check "$argument"; make_release "$argument" ;;
    rehearse) rehearse "$(realpath "$argument")" ;;
    *) fail "'$command' is none of: make, check, rehearse" ;;
    esac
}

# --- What must hold ---------------------------------------------------------------------------------------------------------------------------

check() {
    local version=$1 tagged
    [[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$ ]] || fail "'$version' is no version like 1.2.3 or 1.2.3-rc.1"
    [ "$(version_of_executables)" = "$version" ] ||
        fail "ovnkube --version would say $(version_of_executables): write version = \"$version\" into Cargo.toml ([workspace.package]), run cargo update --workspace"
    [ -n "$(notes "$version")" ] || fail "CHANGELOG.md has no section for it, or an empty one: '## $version - YYYY-MM-DD' belongs below '## Unreleased'"
    [ -z "$(git status --porcelain)" ] || fail "the checkout has changes, which no tag has: $(git status --porcelain | head -n 3 | tr '\n' ' ')"
    tagged=$(git rev-parse --quiet --verify "refs/tags/v$version^{commit}" || true)
    [ -z "$tagged" ] || [ "$tagged" = "$(git rev-parse HEAD)" ] || fail "the tag v$version is another commit: $tagged"
    [ -z "${SIGN_KEY-}" ] || gpg --batch --quiet --list-secret-keys "$SIGN_KEY" >/dev/null 2>&1 || fail "gpg has no secret key for SIGN_KEY=$SIGN_KEY"
}

version_of_executables() { sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml; }

# What CHANGELOG.md says about a version, without blank lines at its ends.
notes() {
    awk -v version="$1" '/^## / { found = $2 == version && (NF == 2 || NF == 4 && $3 == "-" && $4 ~ /^[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]$/); next } found' CHANGELOG.md |
        sed -e '/./,$!d' | sed -e :a -e '/^\n*$/{$d;N;ba' -e '}'
}

# --- Two builds -------------------------------------------------------------------------------------------------------------------------------

make_release() {
    local version=$1 target out work
    integration/prerequisites.sh build packages sbom
    [ ${#emulator[@]} -eq 0 ] || integration/prerequisites.sh "$architecture"
    target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
    out=$target/release-$version${emulator:+-$architecture} work=$target/release-work
    rm -rf "$work" "$out"
    mkdir -p "$work"
    # One after the other: each fills a gigabyte and keeps all processors busy.
    build "$work/1/ovn-kubernetes" "$work/1/stage"
    TZ=Asia/Kathmandu build "$work/second/build/in/a/directory/with/a/longer/name" "$work/second/stage"
    same "$work/1/stage" "$work/second/stage"
    is_fit "$version" "$work/1/stage"
    assemble "$version" "$work/1/stage" "$out"
    sign "$out"
    rm -rf "$work"
    say "$out: $(find "$out" -type f | wc -l) files"
    git rev-parse --quiet --verify "refs/tags/v$version" >/dev/null || say "to publish it: git tag -s v$version && git push origin v$version"
}

# build CHECKOUT STAGE
build() {
    local checkout=$1 stage=$2
    git clone --quiet --no-local . "$checkout"
    git -C "$checkout" checkout --quiet --detach "$(git rev-parse HEAD)"
    say "building in $checkout"
    (
        umask 022
        unset CARGO_TARGET_DIR
        export CARGO_INCREMENTAL=0
        make --no-print-directory -C "$checkout" install PROFILE=dist CNI_BIN_DIR=/usr/libexec/cni DESTDIR="$stage" >&2
    )
    # Only what was installed is compared.
    rm -rf "$checkout"
}

# The same names, modes and bytes.
same() {
    local one=$1 other=$2
    diff <(listing "$one") <(listing "$other") >&2 || fail "two builds of one commit have other files or modes (above)"
    diff -rq --no-dereference "$one" "$other" >&2 || fail "two builds of one commit differ (above)"
}
listing() { (cd "$1" && find . -printf '%P %y %m %l\n' | sort); }

# is_fit VERSION STAGE: static, small, and what they say that they are.
is_fit() {
    local version=$1 executable limit size says
    while read -r executable limit; do
        # No program that loads libraries.
        ! readelf --program-headers --wide "$executable" | grep -qw INTERP || fail "$executable is not static"
        size=$(stat -c %s "$executable")
        [ "$size" -le "$limit" ] || fail "$executable has $size bytes; at most $limit"
        says=$("${emulator[@]}" "$executable" --version)
        [ "${says##* }" = "$version" ] || fail "$executable --version says '$says', not $version"
    done <<-END
		$2/usr/bin/ovnkube $largest_ovnkube
		$2/usr/libexec/cni/ovn-k8s-cni-overlay $largest_plugin
	END
}

# --- Assembly -------------------------------------------------------------------------------------------------------------------------------

# assemble VERSION STAGE DIRECTORY: the same bytes for the same commit and STAGE, wherever and whenever.
assemble() {
    local version=$1 stage=$2 out=$3 name
    name=ovn-kubernetes-$version-linux-$architecture
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
    export SOURCE_DATE_EPOCH
    umask 022
    rm -rf "$out"
    mkdir -p "$out"
    tar --create --directory "$stage" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=a+rX,u+w,go-w --format=gnu . |
        gzip -9n >"$out/$name.tar.gz"
    install -m 755 "$stage/usr/bin/ovnkube" "$out/ovnkube-$version-linux-$architecture"
    install -m 755 "$stage/usr/libexec/cni/ovn-k8s-cni-overlay" "$out/ovn-k8s-cni-overlay-$version-linux-$architecture"
    install -m 644 -t "$out" "$stage"/usr/share/doc/ovn-kubernetes/sbom/*.cdx.json
    integration/packages/build.sh "$stage" "$version" "$out" >&2
    notes "$version" >"$out/NOTES.md"
    provenance "$version" "$out" >"$out/../provenance.$$"
    mv "$out/../provenance.$$" "$out/provenance.intoto.json"
    (cd "$out" && find . -type f ! -name SHA256SUMS -printf '%P\0' | sort -z | xargs -0 sha256sum >"../sums.$$" && mv "../sums.$$" SHA256SUMS)
}

# An in-toto statement with the predicate of SLSA 1.0: what was built, from what, by what. No time: it would be another one in each build.
provenance() {
    local version=$1 out=$2 file comma='' commit origin
    commit=$(git rev-parse HEAD)
    # Where others find it; a directory of this machine is not such a place, and no password may be in it.
    origin=$(git remote get-url origin 2>/dev/null | sed -En 's#^(https?|ssh)://([^/@]*@)?#\1://#p' | tr -d '"')
    printf '{"_type":"https://in-toto.io/Statement/v1","subject":['
    while read -r -d '' file; do
        printf '%s\n{"name":"%s","digest":{"sha256":"%s"}}' "$comma" "$file" "$(sha256sum "$out/$file" | cut -d ' ' -f 1)"
        comma=,
    done < <(cd "$out" && find . -type f -printf '%P\0' | sort -z)
    printf '],\n"predicateType":"https://slsa.dev/provenance/v1","predicate":{"buildDefinition":{'
    printf '"buildType":"urn:ovn-kubernetes:make-release:1",\n"externalParameters":{"version":"%s","command":"make release VERSION=%s"},\n' "$version" "$version${emulator:+ ARCH=$architecture}"
    printf '"internalParameters":{"rustc":"%s","profile":"dist","target":"%s-unknown-linux-musl"},\n' "$(rustc --version)" "$machine"
    printf '"resolvedDependencies":[{%s"digest":{"gitCommit":"%s"}},\n' "${origin:+\"uri\":\"git+$origin@refs/tags/v$version\",}" "$commit"
    printf '{"name":"Cargo.lock","digest":{"sha256":"%s"}}]},\n' "$(git show HEAD:Cargo.lock | sha256sum | cut -d ' ' -f 1)"
    printf '"runDetails":{"builder":{"id":"%s"}}}}\n' "${BUILDER_ID:-urn:ovn-kubernetes:by-hand}"
}

# SHA256SUMS has the sums of everything else, so its signature is enough.
sign() {
    if [ -z "${SIGN_KEY-}" ]; then say "SHA256SUMS is not signed: SIGN_KEY is not set"; return; fi
    gpg --batch --yes --quiet --local-user "$SIGN_KEY" --armor --output "$1/SHA256SUMS.asc" --detach-sign "$1/SHA256SUMS" || fail "gpg cannot sign as $SIGN_KEY"
}

# --- Rehearsal ------------------------------------------------------------------------------------------------------------------------------

# In a checkout of its own, in which the version of the executables has a section.
rehearse() {
    local stage=$1 script=$PWD/integration/release.sh version work
    integration/prerequisites.sh packages
    version=$(version_of_executables)
    work=$(mktemp -d)
    # shellcheck disable=SC2064 # of now
    trap "rm -rf '$work'" EXIT
    git clone --quiet --no-local . "$work/checkout"
    cd "$work/checkout"
    # What is tested is what is in this directory, and of its packages the contents, not their size.
    cp "$script" integration/release.sh
    export LEVEL=1
    git config user.name Rehearsal
    git config user.email rehearsal@localhost
    git config commit.gpgSign false
    git config tag.gpgSign false
    commit() { git commit --quiet --all --allow-empty --message "$1"; }
    refuses() {
        local said
        if said=$(integration/release.sh check "$2" 2>&1); then fail "a release goes on, although $1"; fi
        [[ $said == *"$3"* ]] || fail "although $1, it says: $said"
    }

    say "rehearsal: refusals"
    sed -i "/^## ${version//./\\.}\( \|\$\)/d" CHANGELOG.md
    commit "no section"
    refuses "CHANGELOG.md has no section" "$version" "has no section for it"
    sed -i "s/^## Unreleased\$/## Unreleased\n\n## $version - 2026-01-01\n\n## 0.0.0\n/" CHANGELOG.md
    commit "an empty section"
    refuses "the section is empty" "$version" "or an empty one"
    sed -i "s/^## $version - 2026-01-01\$/&\n\n- A line about it./" CHANGELOG.md
    refuses "the checkout has changes" "$version" "the checkout has changes"
    commit "a section"
    refuses "the executables say another version" 99.0.0 "ovnkube --version would say $version"
    refuses "it is no version" "v$version" "is no version"
    git tag --force "v$version" HEAD~1 >/dev/null
    refuses "the tag is another commit" "$version" "is another commit"
    git tag --delete "v$version" >/dev/null
    SIGN_KEY=nobody@localhost refuses "there is no such key" "$version" "no secret key"
    check "$version"
    [ "$(notes "$version")" = "- A line about it." ] || fail "the notes are: $(notes "$version")"

    say "rehearsal: two assemblies, the second with another umask, time zone and other times of files"
    assemble "$version" "$stage" "$work/1/out"
    cp -a "$stage" "$work/other-stage"
    find "$work/other-stage" -exec touch -h -d 2001-02-03 {} +
    (umask 077 && TZ=Asia/Kathmandu assemble "$version" "$work/other-stage" "$work/second/out" 2>/dev/null)
    same "$work/1/out" "$work/second/out"
    (cd "$work/1/out" && sha256sum --quiet --strict --check SHA256SUMS)
    sums_are_in "$work/1/out"
    [ "$("$stage/usr/bin/ovnkube" --version)" = "ovnkube $version" ] || fail "ovnkube --version is not $version"
    # One that differs is seen.
    echo >>"$work/second/out/NOTES.md"
    if (same "$work/1/out" "$work/second/out" 2>/dev/null); then fail "builds that differ are called the same"; fi

    say "rehearsal: signature"
    sign "$work/1/out" 2>/dev/null
    [ ! -e "$work/1/out/SHA256SUMS.asc" ] || fail "it is signed without SIGN_KEY"
    export GNUPGHOME=$work/gpg
    mkdir -m 700 "$GNUPGHOME"
    gpg --batch --quiet --passphrase '' --quick-generate-key rehearsal@localhost ed25519 sign 1d 2>/dev/null
    SIGN_KEY=rehearsal@localhost sign "$work/1/out"
    gpg --batch --quiet --verify "$work/1/out/SHA256SUMS.asc" "$work/1/out/SHA256SUMS" 2>/dev/null || fail "the signature is not good"
    gpgconf --kill gpg-agent
    say "rehearsal: passed"
}

# Each file but the statement itself is a subject of it, with the same sum.
sums_are_in() {
    local sum file
    while read -r sum file; do
        [ "$file" != provenance.intoto.json ] || continue
        grep -qF "{\"name\":\"$file\",\"digest\":{\"sha256\":\"$sum\"}}" "$1/provenance.intoto.json" || fail "$file is not in provenance.intoto.json"
    done <"$1/SHA256SUMS"
}

main "$@"
