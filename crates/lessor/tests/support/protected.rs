//! A server with TLS that admits clients with a certificate and an API key only.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::certificates::{Authority, Files};
use super::{Ran, Server, lessor};

pub(crate) struct Protected {
    pub server: Server,
    pub ca_file: PathBuf,
    /// A certificate that the server accepts.
    pub client: Files,
    admin_key: String,
    /// The files of both sides.
    pub files: TempDir,
}

impl Protected {
    pub(crate) fn start(arguments: &[&str]) -> Protected {
        Protected::start_at("127.0.0.1:0", arguments, |command| command)
    }

    /// Starts at an address, by a command that may be wrapped in another one.
    pub(crate) fn start_at(
        listen: &str,
        arguments: &[&str],
        wrap: impl FnOnce(Command) -> Command,
    ) -> Protected {
        let (files, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let ca = Authority::new("ours");
        let host = listen.rsplit_once(':').unwrap().0;
        let server = ca.issue_for(files.path(), "server", &["localhost", host]);
        let (client, ca_file) = (ca.issue(files.path(), "client"), ca.write(files.path(), "ca.pem"));
        let small = ["--segment-mib", "32", "--preallocate-mib", "1"];
        let data = dir.path().join("data");
        let init = lessor(&["init", "--data"]).arg(&data).args(small).output().unwrap();
        let admin_key = Ran::from(init).ok().stdout.trim().to_owned();
        let mut command = lessor(&["up", "--auth", "keys", "--listen", listen, "--data"]);
        command.arg(&data).args(small).arg("--tls-certificate").arg(&server.certificate);
        command.arg("--tls-key").arg(&server.key).arg("--tls-client-ca").arg(&ca_file);
        command.args(["--tls-client-certificates", "required"]).args(arguments);
        let server = Server::start_by(wrap(command), dir);
        Protected { server, ca_file, client, admin_key, files }
    }

    /// A new key with these roles in the tenant `default`.
    pub(crate) fn key(&self, roles: &[&str]) -> String {
        self.key_by(roles, |command| command)
    }

    /// The same, by a command that may be wrapped in another one.
    pub(crate) fn key_by(&self, roles: &[&str], wrap: impl FnOnce(Command) -> Command) -> String {
        let mut command = self.command(&["key", "create", "--tenant", "default", "--name", roles[0]]);
        command.args(roles.iter().flat_map(|role| ["--role", role]));
        command.env("LESSOR_API_KEY", &self.admin_key);
        Ran::from(wrap(command).output().unwrap()).ok().stdout.trim().to_owned()
    }

    /// A client command that connects with the certificate, and without a key.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.server.command(arguments);
        command
            .env("LESSOR_CA_FILE", &self.ca_file)
            .env("LESSOR_CLIENT_CERTIFICATE", &self.client.certificate)
            .env("LESSOR_CLIENT_KEY", &self.client.key);
        command
    }

    pub(crate) fn file(&self, name: &str) -> String {
        path_text(&self.files.path().join(name))
    }
}

pub(crate) fn path_text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}
