//! The outputs of an action: files, directories and links, by the newer field and by the older ones.

use bazel_remote_apis::build::bazel::remote::execution::v2::command::OutputDirectoryFormat;
use bazel_remote_apis::build::bazel::remote::execution::v2::symlink_absolute_path_strategy::Value as Absolute;
use bazel_remote_apis::build::bazel::remote::execution::v2::{
    ActionResult, Digest, Directory, OutputSymlink, Tree,
};
use prost::Message;
use tonic::Code;

use super::actions::Draft;
use super::client::Remote;
use super::content::digest;
use super::running::ran;
use crate::finding::must;
use crate::grpc::refused;
use crate::{Check, Finding, Subject};

pub(super) const CHECKS: &[Check] = &[
    Check::new(&["R47"], "output_paths are files or directories, and win over the older fields", |s| {
        Box::pin(paths(s))
    }),
    Check::new(&["R47"], "output_files and output_directories are honoured where there are no paths", |s| {
        Box::pin(older(s))
    }),
    Check::new(&["R47"], "the empty path is the whole working directory", |s| Box::pin(everything(s))),
    Check::new(&["R48"], "an output that is not there is left out", |s| Box::pin(absent(s))),
    Check::new(&["R48"], "a file where a directory was announced is FAILED_PRECONDITION", |s| {
        Box::pin(wrong_kind(s))
    }),
    Check::new(&["R49"], "a link is told as a link, in the field that its client knows", |s| {
        Box::pin(links(s))
    }),
    Check::new(&["R49"], "a link to an absolute path is told only where that is announced", |s| {
        Box::pin(absolute(s))
    }),
    Check::new(&["R50"], "a tree is whole, and parents come first where that is said", |s| Box::pin(tree(s))),
    Check::new(&["R50"], "a directory is told in the format that was asked for", |s| Box::pin(formats(s))),
];

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// The paths of a result's files and of its directories.
fn output_paths(result: &ActionResult) -> (Vec<&str>, Vec<&str>) {
    let files = result.output_files.iter().map(|file| file.path.as_str());
    let directories = result.output_directories.iter().map(|directory| directory.path.as_str());
    (files.collect(), directories.collect())
}

#[allow(deprecated)]
async fn paths(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let mut draft = Draft::of("echo 1 > sub/file && mkdir tree && echo 2 > tree/x && echo 3 > other")?;
    draft.command.output_paths = texts(&["sub/file", "tree"]);
    draft.command.output_files = texts(&["other"]);
    let result = ran(&remote, &draft).await?;
    must(output_paths(&result) == (vec!["sub/file"], vec!["tree"]), || {
        format!("the outputs are {:?}", output_paths(&result))
    })?;
    let content = remote.get(result.output_files[0].digest.as_ref().unwrap_or(&Digest::default())).await?;
    must(content == b"1\n", || format!("the output file has the content {content:?}"))
}

#[allow(deprecated)]
async fn older(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    // The parents of outputs are there, and an output directory itself is not.
    let mut draft = Draft::of("test ! -e a/tree && mkdir a/tree && echo > a/tree/x && echo > b/file")?;
    draft.command.output_files = texts(&["b/file"]);
    draft.command.output_directories = texts(&["a/tree"]);
    let result = ran(&remote, &draft).await?;
    must(output_paths(&result) == (vec!["b/file"], vec!["a/tree"]), || {
        format!(
            "the command ended with {}, and the outputs are {:?}",
            result.exit_code,
            output_paths(&result)
        )
    })
}

async fn everything(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let mut draft = Draft::of("echo > made")?;
    draft.command.output_paths = texts(&[""]);
    let result = ran(&remote, &draft).await?;
    must(output_paths(&result) == (vec![], vec![""]), || {
        format!("the outputs are {:?}", output_paths(&result))
    })?;
    let tree = read_tree(&remote, &result).await?;
    let names: Vec<&str> =
        tree.root.iter().flat_map(|root| &root.files).map(|file| file.name.as_str()).collect();
    must(names == ["made"], || format!("the working directory was told with the files {names:?}"))
}

async fn absent(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let mut draft = Draft::of("echo > there")?;
    draft.command.output_paths = texts(&["gone", "there"]);
    let result = ran(&remote, &draft).await?;
    must(result.exit_code == 0 && output_paths(&result) == (vec!["there"], vec![]), || {
        format!("the outputs are {:?}", output_paths(&result))
    })
}

#[allow(deprecated)]
async fn wrong_kind(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let mut draft = Draft::of("echo > file; mkdir directory")?;
    draft.command.output_directories = texts(&["file"]);
    let one = remote.prepare(&draft).await?;
    draft.command.output_directories.clear();
    draft.command.output_files = texts(&["directory"]);
    let other = remote.prepare(&draft).await?;
    for (what, action) in [("a file as a directory", one), ("a directory as a file", other)] {
        let answer = remote.outcome(remote.ask(&action)).await?;
        refused(what, answer, &[Code::FailedPrecondition])?;
    }
    Ok(())
}

#[allow(deprecated)]
async fn links(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let mut draft = Draft::of("ln -s nowhere link")?;
    draft.command.output_paths = texts(&["link"]);
    let result = ran(&remote, &draft).await?;
    let shown = |links: &[OutputSymlink]| -> Vec<(String, String)> {
        links.iter().map(|link| (link.path.clone(), link.target.clone())).collect()
    };
    let expected = [("link".to_owned(), "nowhere".to_owned())];
    must(shown(&result.output_symlinks) == expected, || {
        format!(
            "the link was told as {:?}, with the files {:?}",
            result.output_symlinks,
            output_paths(&result)
        )
    })?;
    draft.command.output_paths.clear();
    draft.command.output_files = texts(&["link"]);
    let result = ran(&remote, &draft).await?;
    let either = [&result.output_file_symlinks, &result.output_symlinks];
    must(either.iter().any(|links| shown(links) == expected), || {
        format!("the link of an output file was told as {:?}", result.output_file_symlinks)
    })
}

async fn absolute(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let strategy = remote.cache().await?.symlink_absolute_path_strategy();
    let mut draft = Draft::of("ln -s /no/such/file link")?;
    draft.command.output_paths = texts(&["link"]);
    let action = remote.prepare(&draft).await?;
    let answer = remote.outcome(remote.ask(&action)).await?;
    if strategy != Absolute::Allowed {
        return refused("a link to an absolute path", answer, &[Code::FailedPrecondition]);
    }
    let target =
        answer.ok().and_then(|answer| answer.result?.output_symlinks.first().map(|link| link.target.clone()));
    must(target.as_deref() == Some("/no/such/file"), || {
        format!("the link was told with the target {target:?}")
    })
}

async fn read_tree(remote: &Remote<'_>, result: &ActionResult) -> Result<Tree, Finding> {
    let of = result.output_directories.first().and_then(|directory| directory.tree_digest.as_ref());
    let of = of.ok_or_else(|| Finding::broken("the output directory has no tree_digest"))?;
    let bytes = remote.get(of).await?;
    Tree::decode(&bytes[..]).map_err(|error| Finding::broken(format!("the tree cannot be read: {error}")))
}

async fn tree(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let mut draft = Draft::of("mkdir -p t/b/c t/a && echo 1 > t/b/c/x && echo 2 > t/f && ln -s f t/l")?;
    draft.command.output_paths = texts(&["t"]);
    let result = ran(&remote, &draft).await?;
    let sorted = result.output_directories.first().is_some_and(|directory| directory.is_topologically_sorted);
    let tree = read_tree(&remote, &result).await?;
    let root = tree.root.clone().unwrap_or_default();
    let names = |directory: &Directory| -> Vec<String> {
        let directories = directory.directories.iter().map(|node| node.name.clone());
        let files = directory.files.iter().map(|node| node.name.clone());
        directories.chain(files).chain(directory.symlinks.iter().map(|node| node.name.clone())).collect()
    };
    must(names(&root) == ["a", "b", "f", "l"], || format!("the root of the tree has {:?}", names(&root)))?;
    let known: Vec<Digest> =
        tree.children.iter().map(|directory| digest(&directory.encode_to_vec())).collect();
    let all = std::iter::once(&root).chain(&tree.children).enumerate();
    for (number, directory) in all {
        for node in &directory.directories {
            let at = known.iter().position(|one| Some(one) == node.digest.as_ref());
            let at = at.ok_or_else(|| Finding::broken(format!("{:?} is not in the tree", node.name)))?;
            must(!sorted || at >= number, || format!("{:?} comes before its parent", node.name))?;
        }
    }
    let mut again = draft.clone();
    again.action.salt = super::content::random(16)?;
    let again = ran(&remote, &again).await?;
    let digests = |result: &ActionResult| {
        result.output_directories.first().and_then(|directory| directory.tree_digest.clone())
    };
    must(digests(&again) == digests(&result), || "the same tree has two digests".into())
}

async fn formats(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    for (format, tree, root) in [
        (OutputDirectoryFormat::TreeOnly, true, false),
        (OutputDirectoryFormat::DirectoryOnly, false, true),
        (OutputDirectoryFormat::TreeAndDirectory, true, true),
    ] {
        let mut draft = Draft::of("mkdir -p t/a && echo > t/a/x")?;
        draft.command.output_paths = texts(&["t"]);
        draft.command.output_directory_format = format.into();
        let result = ran(&remote, &draft).await?;
        let answer = result.output_directories.first().cloned().unwrap_or_default();
        let has = (answer.tree_digest.is_some(), answer.root_directory_digest.is_some());
        must(has == (tree, root), || format!("{}: tree and root are told as {has:?}", format.as_str_name()))?;
        if let Some(root) = &answer.root_directory_digest {
            let root = Directory::decode(&remote.get(root).await?[..]);
            let names =
                root.map(|root| root.directories.into_iter().map(|node| node.name).collect::<Vec<_>>());
            must(names.as_deref() == Ok(&["a".to_owned()]), || format!("the root directory has {names:?}"))?;
        }
    }
    Ok(())
}
