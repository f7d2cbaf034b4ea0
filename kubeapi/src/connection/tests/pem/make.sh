#!/bin/sh
# Makes the certificates for the tests of this folder, valid for a century. No program outside of them trusts
# any of these keys.
set -eu
cd "$(dirname "$0")"
key() { openssl ecparam -name prime256v1 -genkey -noout | openssl pkcs8 -topk8 -nocrypt -out "$1.key"; }
for n in 1 2; do
    key "authority$n"
    openssl req -x509 -key "authority$n.key" -out "authority$n.crt" -days 36500 -subj "/CN=authority $n" -addext "keyUsage=critical,keyCertSign"
    for who in server client; do
        key "$who$n"
        printf 'subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n' > extensions
        openssl req -new -key "$who$n.key" -subj "/CN=$who $n" |
            openssl x509 -req -CA "authority$n.crt" -CAkey "authority$n.key" -CAcreateserial -days 36500 -extfile extensions -out "$who$n.crt"
    done
done
rm -f extensions ./*.srl authority?.key
