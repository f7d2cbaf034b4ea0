# The facts of an advisory of the RustSec database, without its text: what it is about, which versions, since when. In TOML, as it was, below
# it a title that is made of them. A key or table that this does not know is an error: it may say which versions are meant.

function fail(what) {
    print FILENAME ": " what > "/dev/stderr"
    failed = 1
    exit 1
}

BEGIN {
    split("id package date withdrawn informational categories aliases", list, " ")
    for (i in list) kept["advisory", list[i]]
    kept["affected", "arch"]; kept["affected", "os"]; kept["versions", "patched"]; kept["versions", "unaffected"]
    split("url title description cvss keywords related references license yanked", list, " ")
    for (i in list) left_out["advisory", list[i]]
    left_out["affected", "functions"]
    split("advisory affected versions", tables, " ")
}

/^```/ {
    if (inside) exit
    inside = 1
    next
}
!inside { next }

# Comments are text; no value here has such a character.
{ sub(/[ \t]*#.*/, "") }
/^[ \t]*$/ { next }

# The rest of an array.
open {
    if (keep) value[table, key] = value[table, key] $0 (/,[ \t]*$/ ? " " : "")
    if (/\]/) open = 0
    next
}
/^\[/ {
    table = $0
    gsub(/[][ \t]/, "", table)
    if (table != "advisory" && table != "affected" && table != "versions" && table != "affected.functions") fail("table " $0)
    next
}
# Which of its functions are meant: a call of one cannot be told from a lock file.
table == "affected.functions" {
    open = /\[/ && !/\][ \t]*$/
    keep = 0
    next
}
{
    key = $1
    if (!((table, key) in kept) && !((table, key) in left_out)) fail(table "." key)
    keep = (table, key) in kept
    text = $0
    sub(/^[^=]*=[ \t]*/, "", text)
    open = text ~ /^(\[|\{)/ && text !~ /(\]|\})[ \t]*$/
    if (keep) value[table, key] = text
}

END {
    if (failed) exit 1
    if (!(("advisory", "id") in value) || !(("versions", "patched") in value)) fail("no id or no versions")
    print "```toml"
    for (t = 1; t <= 3; t++) {
        lines = ""
        for (k = 1; k <= split("id package date withdrawn informational categories aliases arch os patched unaffected", keys, " "); k++)
            if ((tables[t], keys[k]) in value) lines = lines keys[k] " = " tidy(value[tables[t], keys[k]]) "\n"
        if (lines != "") printf "%s[%s]\n%s", (t > 1 ? "\n" : ""), tables[t], lines
    }
    print "```\n"
    kind = bare(value["advisory", "informational"])
    categories = bare(value["advisory", "categories"])
    what = kind == "" ? "vulnerable" : kind == "notice" ? "worth a notice" : kind
    print "# " bare(value["advisory", "package"]) ": " what (categories == "" ? "" : " (" categories ")")
}

function tidy(text) {
    gsub(/[ \t]+/, " ", text)
    sub(/^\[ /, "[", text)
    sub(/,? ?\]$/, "]", text)
    return text
}

function bare(text) {
    text = tidy(text)
    gsub(/[]["]/, "", text)
    return text
}
