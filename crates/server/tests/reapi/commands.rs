//! Commands that lead elsewhere or ask for what nobody gives (I10, I11, I13): refused before anything is queued.

use bazel_remote_apis::build::bazel::remote::execution::v2::{Action, Command, Directory};
use bazel_remote_apis::google::protobuf::Duration;
use prost::Message;
use tonic::{Code, Status};

use crate::support::{Served, ask, digest};

async fn executed(
    served: &Served,
    change: impl Fn(&mut Command),
    timeout: Option<Duration>,
) -> Result<(), Status> {
    let mut command = Command { arguments: vec!["true".into()], ..Command::default() };
    change(&mut command);
    let (command, root) = (command.encode_to_vec(), Directory::default().encode_to_vec());
    let action = Action {
        command_digest: Some(digest(&command)),
        input_root_digest: Some(digest(&root)),
        timeout,
        ..Action::default()
    };
    let action = action.encode_to_vec();
    served.upload(&[&command, &root, &action]).await;
    served.execute(ask(&digest(&action))).await.map(drop)
}

#[tokio::test]
#[allow(deprecated)]
async fn i10_outputs_that_lead_elsewhere_are_refused() {
    let served = Served::start().await;
    for bad in ["/etc/passwd", "..", "a/../../b", "a//b", "a/", "a\0b"] {
        let refused = executed(&served, |command| command.output_paths = vec![bad.into()], None).await;
        assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument, "{bad:?}");
        let refused = executed(&served, |command| command.output_directories = vec![bad.into()], None).await;
        assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument, "{bad:?}");
    }
    let nested =
        executed(&served, |command| command.output_files = vec!["a".into(), "a/b".into()], None).await;
    assert_eq!(nested.unwrap_err().code(), Code::InvalidArgument, "a file above another");
    assert_eq!(served.tasks().await, 0);
    // A path may be named twice, above another, with dots that stay within the root, or empty for the whole working directory.
    let odd = ["a", "a", "a/b", "./c", "d/../e", ""].map(str::to_owned).to_vec();
    executed(&served, |command| command.output_paths.clone_from(&odd), None).await.unwrap();
    served.stop().await;
}

#[tokio::test]
async fn i11_a_working_directory_outside_the_root_is_refused() {
    let served = Served::start().await;
    for bad in ["/", "/tmp", "..", "a/..", "./a", "a/../../b"] {
        let refused = executed(&served, |command| command.working_directory = bad.into(), None).await;
        assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument, "{bad:?}");
    }
    assert_eq!(served.tasks().await, 0);
    served.stop().await;
}

/// None is the default, zero is none, and what is above the limit or below zero is refused.
#[tokio::test]
async fn i13_a_timeout_is_within_its_limits() {
    let served = Served::start().await;
    let day = 24 * 60 * 60;
    for (seconds, nanos) in [(-1, 0), (0, -1), (day + 1, 0), (i64::MAX, 0), (i64::MIN, 0), (day, 999_999_999)]
    {
        let refused = executed(&served, |_| {}, Some(Duration { seconds, nanos })).await;
        assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument, "{seconds} s {nanos} ns");
    }
    assert_eq!(served.tasks().await, 0);
    for timeout in [None, Some(Duration::default()), Some(Duration { seconds: day, nanos: 0 })] {
        executed(&served, |_| {}, timeout).await.unwrap();
    }
    served.stop().await;
}
