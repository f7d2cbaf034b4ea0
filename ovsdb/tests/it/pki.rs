//! Certificates for the tests, made by openssl(1).

use std::path::{Path, PathBuf};

use ovsdb::{Identity, Ssl};

use crate::daemon::run;

/// A directory with authorities, keys and certificates, by name: `ca.crt`, `ca.key`.
pub(crate) struct Pki {
    directory: PathBuf,
}

/// When a certificate is valid.
#[derive(Clone, Copy)]
pub(crate) enum Valid {
    Now,
    Before,
    Later,
}

impl Pki {
    /// A directory with the authority `ca`, and with `server` and `client`, which it signed.
    pub(crate) fn new(directory: PathBuf) -> Self {
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("serial"), "1000\n").unwrap();
        let pki = Self { directory };
        pki.authority("ca", Valid::Now);
        pki.signed("server", "ca", Valid::Now);
        pki.signed("client", "ca", Valid::Now);
        pki
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.directory.join(file)
    }

    pub(crate) fn authority(&self, name: &str, valid: Valid) {
        self.key(name);
        let subject = format!("/CN=authority {name}");
        self.openssl(&[
            "req",
            "-new",
            "-key",
            &self.text(&format!("{name}.key")),
            "-subj",
            &subject,
            "-out",
            &self.text("request"),
        ]);
        self.sign(
            name,
            "-selfsign",
            &format!("{name}.key"),
            "basicConstraints=critical,CA:true",
            valid,
        );
    }

    /// A key and a certificate with the DNS name `NAME.test` and the common name `the NAME`.
    pub(crate) fn signed(&self, name: &str, authority: &str, valid: Valid) {
        self.key(name);
        let subject = format!("/CN=the {name}");
        self.openssl(&[
            "req",
            "-new",
            "-key",
            &self.text(&format!("{name}.key")),
            "-subj",
            &subject,
            "-out",
            &self.text("request"),
        ]);
        let certificate = format!("-cert={}", self.text(&format!("{authority}.crt")));
        self.sign(
            name,
            &certificate,
            &format!("{authority}.key"),
            &format!("subjectAltName=DNS:{name}.test"),
            valid,
        );
    }

    fn key(&self, name: &str) {
        let curve = "ec_paramgen_curve:P-256";
        self.openssl(&[
            "genpkey",
            "-algorithm",
            "EC",
            "-pkeyopt",
            curve,
            "-out",
            &self.text(&format!("{name}.key")),
        ]);
    }

    fn sign(&self, name: &str, signer: &str, key: &str, extension: &str, valid: Valid) {
        let directory = self.directory.display();
        std::fs::write(
            self.path("conf"),
            format!(
                "[ca]\ndefault_ca=d\n[d]\ndatabase={directory}/index\nserial={directory}/serial\nnew_certs_dir={directory}\n\
                 default_md=sha256\nunique_subject=no\npolicy=p\nx509_extensions=x\nemail_in_dn=no\n[p]\ncommonName=supplied\n[x]\n{extension}\n"
            ),
        )
        .unwrap();
        std::fs::write(self.path("index"), "").unwrap();
        let (from, to) = match valid {
            Valid::Now => ("20200101000000Z", "20991231235959Z"),
            Valid::Before => ("20200101000000Z", "20210203040506Z"),
            Valid::Later => ("20980102030405Z", "20991231235959Z"),
        };
        let mut arguments = vec!["ca", "-batch", "-notext"];
        arguments.extend(signer.split('=').next());
        let signer = signer.split_once('=').map(|(_, path)| path.to_owned());
        arguments.extend(signer.as_deref());
        let (key, conf, request, out) = (
            self.text(key),
            self.text("conf"),
            self.text("request"),
            self.text(&format!("{name}.crt")),
        );
        arguments.extend([
            "-keyfile",
            &key,
            "-config",
            &conf,
            "-startdate",
            from,
            "-enddate",
            to,
            "-in",
            &request,
            "-out",
            &out,
        ]);
        self.openssl(&arguments);
    }

    pub(crate) fn openssl(&self, arguments: &[&str]) {
        run("openssl", arguments);
    }

    pub(crate) fn text(&self, file: &str) -> String {
        self.path(file).display().to_string()
    }

    /// A client's settings, by the names of the files.
    pub(crate) fn ssl(&self, identity: &str, authority: &str) -> Ssl {
        let mut ssl = Ssl::new(self.path(&format!("{authority}.crt")));
        ssl.identity = Some(Identity {
            private_key: self.path(&format!("{identity}.key")),
            certificate: self.path(&format!("{identity}.crt")),
        });
        ssl
    }

    /// The options of an `ovsdb-server`.
    pub(crate) fn server(&self, identity: &str, authority: &str) -> Vec<String> {
        let file = |option: &str, path: &Path| format!("--{option}={}", path.display());
        vec![
            file("private-key", &self.path(&format!("{identity}.key"))),
            file("certificate", &self.path(&format!("{identity}.crt"))),
            file("ca-cert", &self.path(&format!("{authority}.crt"))),
        ]
    }
}
