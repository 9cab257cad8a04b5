//! The inputs of an action and its outputs, by the Remote Execution API.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Output;

use bazel_remote_apis::build::bazel::remote::execution::v2::{
    self as reapi, Action, ActionResult, Command, Directory, OutputFile,
};
use blobs::{Digest, DigestFunction};
use bytes::Bytes;
use execution::digest;
use prost::Message;
use reapi_client::{Cas as _, Client, Options};

const INSTANCE: &str = "";

pub(super) struct Content(Client);

impl Content {
    pub(super) fn connect(url: &str) -> Content {
        Content(Client::new(url, &Options::default()).unwrap())
    }

    /// Puts the input tree of an action into a directory, and gives the action's command.
    pub(super) async fn inputs(&self, action_digest: &str, root: &Path) -> Result<Command, String> {
        let action =
            Digest::parse(DigestFunction::Sha256, action_digest).map_err(|error| error.to_string())?;
        let action: Action = self.message(&digest::to_proto(&action)).await?;
        let command: Command = self.message(&action.command_digest.unwrap()).await?;
        let mut directories = vec![(root.to_owned(), action.input_root_digest.unwrap())];
        while let Some((path, digest)) = directories.pop() {
            std::fs::create_dir_all(&path).map_err(|error| error.to_string())?;
            let directory: Directory = self.message(&digest).await?;
            for file in directory.files {
                let content = self.read(&file.digest.unwrap()).await?;
                write(&path.join(file.name), &content, file.is_executable)
                    .map_err(|error| error.to_string())?;
            }
            let below = directory.directories.into_iter();
            directories.extend(below.map(|below| (path.join(below.name), below.digest.unwrap())));
        }
        Ok(command)
    }

    /// Uploads what a command has left behind, and describes it.
    pub(super) async fn outputs(
        &self,
        command: &Command,
        output: Output,
        root: &Path,
    ) -> Result<ActionResult, String> {
        let mut output_files = Vec::new();
        for path in &command.output_paths {
            let file = root.join(&command.working_directory).join(path);
            let Ok(content) = std::fs::read(&file) else { continue };
            let mode = file.metadata().map_err(|error| error.to_string())?.permissions().mode();
            output_files.push(OutputFile {
                path: path.clone(),
                digest: Some(self.upload(content).await?),
                is_executable: mode & 0o111 != 0,
                ..OutputFile::default()
            });
        }
        Ok(ActionResult {
            output_files,
            exit_code: output.status.code().unwrap_or(-1),
            stdout_digest: Some(self.upload(output.stdout).await?),
            stderr_digest: Some(self.upload(output.stderr).await?),
            ..ActionResult::default()
        })
    }

    async fn message<M: Message + Default>(&self, digest: &reapi::Digest) -> Result<M, String> {
        M::decode(self.read(digest).await?).map_err(|error| error.to_string())
    }

    async fn read(&self, digest: &reapi::Digest) -> Result<Bytes, String> {
        let digest = digest::from_proto(Some(digest), None, "content").map_err(|error| error.to_string())?;
        let found = self.0.read_many(INSTANCE, &[digest]).await.map_err(|error| error.to_string())?;
        found.into_iter().next().flatten().ok_or_else(|| format!("{digest} is missing"))
    }

    async fn upload(&self, content: Vec<u8>) -> Result<reapi::Digest, String> {
        let digest = Digest::of(DigestFunction::Sha256, &content);
        let uploaded = self.0.upload_many(INSTANCE, vec![(digest, content.into())]).await;
        uploaded.map_err(|error| error.to_string()).map(|()| digest::to_proto(&digest))
    }
}

fn write(path: &Path, content: &[u8], is_executable: bool) -> std::io::Result<()> {
    std::fs::write(path, content)?;
    let mode = if is_executable { 0o755 } else { 0o644 };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}
