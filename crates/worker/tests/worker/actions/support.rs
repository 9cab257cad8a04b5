//! A content store in memory, input trees in a few words, and a worker that runs actions over them.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bazel_remote_apis::build::bazel::remote::execution::v2::command::EnvironmentVariable;
use bazel_remote_apis::build::bazel::remote::execution::v2::{
    Action, ActionResult, Command, Digest as WireDigest, Directory, DirectoryNode, FileNode, SymlinkNode,
};
use blobs::{Digest, DigestFunction};
use bytes::Bytes;
use prost::Message;
use reapi_client::CasError;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use worker::executors::{Backend, ExecutorOptions, Host};
use worker::{ActionOptions, Actions, Cas, Executor, Failure};

pub(crate) const FUNCTION: DigestFunction = DigestFunction::Sha256;

#[derive(Default)]
pub(crate) struct MemoryCas {
    blobs: Mutex<HashMap<Digest, Bytes>>,
    calls: Mutex<Vec<&'static str>>,
    uploaded: Mutex<Vec<Digest>>,
}

impl MemoryCas {
    pub(crate) fn put(&self, content: impl Into<Bytes>) -> Digest {
        self.put_as(FUNCTION, content)
    }

    pub(crate) fn put_as(&self, function: DigestFunction, content: impl Into<Bytes>) -> Digest {
        let content = content.into();
        let digest = Digest::of(function, &content);
        self.blobs.lock().unwrap().insert(digest, content);
        digest
    }

    pub(crate) fn get(&self, digest: &Digest) -> Option<Bytes> {
        self.blobs.lock().unwrap().get(digest).cloned()
    }

    pub(crate) fn all(&self) -> Vec<(Digest, Bytes)> {
        self.blobs.lock().unwrap().iter().map(|(digest, content)| (*digest, content.clone())).collect()
    }

    pub(crate) fn forget(&self, digest: &Digest) {
        self.blobs.lock().unwrap().remove(digest);
    }

    /// The calls since this was last asked.
    pub(crate) fn take_calls(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    pub(crate) fn take_uploaded(&self) -> Vec<Digest> {
        std::mem::take(&mut self.uploaded.lock().unwrap())
    }

    fn called(&self, call: &'static str) {
        self.calls.lock().unwrap().push(call);
    }
}

#[tonic::async_trait]
impl Cas for MemoryCas {
    async fn find_missing(&self, _: &str, digests: &[Digest]) -> Result<Vec<Digest>, CasError> {
        self.called("find_missing");
        Ok(digests.iter().filter(|digest| self.get(digest).is_none()).copied().collect())
    }

    async fn read_many(&self, _: &str, digests: &[Digest]) -> Result<Vec<Option<Bytes>>, CasError> {
        self.called("read_many");
        Ok(digests.iter().map(|digest| self.get(digest)).collect())
    }

    async fn read_to_file(&self, _: &str, digest: &Digest, mut file: File) -> Result<bool, CasError> {
        self.called("read_to_file");
        let content = self.get(digest);
        Ok(content.map(|content| file.write_all(&content).unwrap()).is_some())
    }

    async fn upload_many(&self, _: &str, blobs: Vec<(Digest, Bytes)>) -> Result<(), CasError> {
        self.called("upload_many");
        for (digest, content) in blobs {
            self.uploaded.lock().unwrap().push(digest);
            if self.put_as(digest.function, content) != digest {
                return Err(CasError::Refused("the content is not what its digest says".to_owned()));
            }
        }
        Ok(())
    }

    async fn upload_file(&self, instance: &str, digest: &Digest, mut file: File) -> Result<(), CasError> {
        let mut content = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut content).unwrap();
        self.upload_many(instance, vec![(*digest, content.into())]).await
    }
}

pub(crate) fn wire(digest: &Digest) -> WireDigest {
    WireDigest { hash: digest.hash.to_string(), size_bytes: digest.size as i64 }
}

/// An input tree, by the paths of what is in it.
#[derive(Default)]
pub(crate) struct Tree {
    below: BTreeMap<String, Tree>,
    pub node: Directory,
}

impl Tree {
    pub(crate) fn file(self, cas: &MemoryCas, path: &str, content: &str) -> Tree {
        self.add(cas, path, content, false)
    }

    pub(crate) fn tool(self, cas: &MemoryCas, path: &str, content: &str) -> Tree {
        self.add(cas, path, content, true)
    }

    pub(crate) fn link(mut self, path: &str, target: &str) -> Tree {
        let (directory, name) = self.at(path);
        let link = SymlinkNode { name, target: target.to_owned(), ..SymlinkNode::default() };
        directory.node.symlinks.push(link);
        self
    }

    pub(crate) fn directory(mut self, path: &str) -> Tree {
        self.at(&format!("{path}/x"));
        self
    }

    fn add(mut self, cas: &MemoryCas, path: &str, content: &str, is_executable: bool) -> Tree {
        let digest = Some(wire(&cas.put(content.to_owned())));
        let (directory, name) = self.at(path);
        directory.node.files.push(FileNode { name, digest, is_executable, ..FileNode::default() });
        self
    }

    fn at(&mut self, path: &str) -> (&mut Tree, String) {
        match path.split_once('/') {
            Some((first, rest)) => self.below.entry(first.to_owned()).or_default().at(rest),
            None => (self, path.to_owned()),
        }
    }

    pub(crate) fn store(&self, cas: &MemoryCas) -> Digest {
        let mut node = self.node.clone();
        for (name, tree) in &self.below {
            let digest = Some(wire(&tree.store(cas)));
            node.directories.push(DirectoryNode { name: name.clone(), digest });
        }
        cas.put(node.encode_to_vec())
    }
}

/// A worker that runs actions, without a coordinator.
pub(crate) struct Stage {
    pub dir: TempDir,
    pub cas: Arc<MemoryCas>,
    pub actions: Arc<Actions>,
}

/// Plain processes with the PATH of the tests.
pub(crate) fn host(dir: &TempDir) -> Arc<Host> {
    let options = ExecutorOptions::new(Backend::Host, "w", dir.path().join("executor"));
    Arc::new(Host::open(&ExecutorOptions { env_allow: vec!["PATH".to_owned()], ..options }).unwrap())
}

impl Stage {
    pub(crate) async fn new() -> Stage {
        Stage::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut ActionOptions)) -> Stage {
        let dir = tempfile::tempdir().unwrap();
        let host = host(&dir);
        Stage::by(dir, host, change).await
    }

    /// With everything below a directory, through an executor.
    pub(crate) async fn by(
        dir: TempDir,
        executor: Arc<dyn Executor>,
        change: impl FnOnce(&mut ActionOptions),
    ) -> Stage {
        let mut options = ActionOptions::below(dir.path());
        change(&mut options);
        let cas = Arc::new(MemoryCas::default());
        let actions = Actions::open("w", &options, executor, cas.clone()).await.unwrap();
        Stage { dir, cas, actions: Arc::new(actions) }
    }

    pub(crate) async fn run(&self, command: Command, inputs: Tree) -> Result<ActionResult, Failure> {
        self.run_action(self.action(command, &inputs, None)).await
    }

    pub(crate) async fn run_action(&self, action: Digest) -> Result<ActionResult, Failure> {
        self.actions.run("", action, &CancellationToken::new(), || {}).await
    }

    pub(crate) fn action(&self, command: Command, inputs: &Tree, timeout: Option<Duration>) -> Digest {
        let timeout = timeout.map(|timeout| bazel_remote_apis::google::protobuf::Duration {
            seconds: timeout.as_secs() as i64,
            nanos: timeout.subsec_nanos() as i32,
        });
        let action = Action {
            command_digest: Some(wire(&self.cas.put(command.encode_to_vec()))),
            input_root_digest: Some(wire(&inputs.store(&self.cas))),
            timeout,
            ..Action::default()
        };
        self.cas.put(action.encode_to_vec())
    }

    pub(crate) fn content(&self, digest: Option<&WireDigest>) -> Vec<u8> {
        let Some(digest) = digest else { return Vec::new() };
        let digest = Digest::new(FUNCTION, &digest.hash, digest.size_bytes).unwrap();
        self.cas.get(&digest).expect("what a result names is in the store").to_vec()
    }

    pub(crate) fn text(&self, digest: Option<&WireDigest>) -> String {
        String::from_utf8(self.content(digest)).unwrap()
    }

    pub(crate) fn stdout(&self, result: &ActionResult) -> String {
        self.text(result.stdout_digest.as_ref())
    }

    pub(crate) fn stderr(&self, result: &ActionResult) -> String {
        self.text(result.stderr_digest.as_ref())
    }

    pub(crate) fn message<M: Message + Default>(&self, digest: Option<&WireDigest>) -> M {
        M::decode(&self.content(digest)[..]).unwrap()
    }

    /// Where attempts run.
    pub(crate) fn work(&self) -> PathBuf {
        let work = self.dir.path().join("work");
        let is_own = |name: &std::ffi::OsStr| name.to_str().unwrap().starts_with("w-");
        let mut dirs = work.read_dir().unwrap().flatten().filter(|entry| entry.path().is_dir());
        dirs.find(|entry| is_own(&entry.file_name())).unwrap().path()
    }

    /// Asserts that nothing of any attempt is left on disk.
    pub(crate) async fn is_clean(&self) {
        worker::Performer::settle(&*self.actions).await;
        let left: Vec<_> = self.work().read_dir().unwrap().flatten().map(|entry| entry.path()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// A shell script as a command.
pub(crate) fn sh(script: &str) -> Command {
    command(&["/bin/sh", "-c", script])
}

pub(crate) fn command(arguments: &[&str]) -> Command {
    Command { arguments: strings(arguments), ..Command::default() }
}

pub(crate) fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

pub(crate) fn variable(name: &str, value: &str) -> EnvironmentVariable {
    EnvironmentVariable { name: name.to_owned(), value: value.to_owned() }
}

/// Whether a process runs; one that is dead and not reaped does not.
pub(crate) fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.trim()).join("stat"));
    stat.is_ok_and(|stat| !stat.rsplit_once(')').unwrap().1.trim_start().starts_with('Z'))
}
