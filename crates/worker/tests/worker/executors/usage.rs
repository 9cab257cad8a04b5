//! The resource usage of commands in their results, and the limit on processor time.

use std::time::Duration;

use bazel_remote_apis::build::bazel::remote::execution::v2::{ActionResult, Command};
use prost::Message;
use wire::grpc::ResourceUsage;
use worker::executors::{self, Backend, ExecutorOptions, Limits};

use super::support::{stage, stage_with};
use crate::actions::support::{Tree, sh};

/// Of a second, in the unit that the kernel tells it in.
const BURNT_HUNDREDTHS: u32 = 30;
/// A fifth of one core, which no load of the machine makes more.
const LIMITS: Limits = Limits { cpu_cores: Some(0.2), memory_bytes: None, processes: None };
/// The largest share that a fifth can look like: the kernel grants it in slices, and the first one may be whole.
const MAX_SHARE: f64 = 0.5;

fn used(result: &ActionResult) -> Option<ResourceUsage> {
    let metadata = result.execution_metadata.as_ref().unwrap();
    let told = metadata.auxiliary_metadata.iter().find(|any| any.type_url.ends_with(".ResourceUsage"));
    told.map(|told| ResourceUsage::decode(&told.value[..]).unwrap())
}

/// Where the worker has a terminal, a sandbox has a session of its own and nobody knows what it used up.
fn has_terminal() -> bool {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    stat.rsplit_once(')').unwrap().1.split_whitespace().nth(4).unwrap() != "0"
}

fn seconds(duration: Option<&prost_types::Duration>) -> f64 {
    let duration = duration.copied().map(Duration::try_from);
    duration.unwrap().unwrap().as_secs_f64()
}

fn most_memory_of_this_process_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
}

/// Works until it has had so much processor time, however long it takes, and then takes some memory.
fn burn() -> Command {
    sh(&format!(
        "used=0; while [ $used -lt {BURNT_HUNDREDTHS} ]; do \
         n=0; while [ $n -lt 1000 ]; do n=$((n+1)); done; \
         read -r _ _ _ _ _ _ _ _ _ _ _ _ _ used _ < /proc/self/stat; done; \
         dd if=/dev/zero of=/dev/null bs=100M count=1 2> /dev/null"
    ))
}

#[tokio::test]
async fn r52_a_result_tells_the_processor_time_and_the_memory_that_its_command_took() {
    for backend in [Backend::Host, Backend::Sandbox] {
        let stage = stage(backend).await;
        let little = used(&stage.run(sh(":"), Tree::default()).await.unwrap());
        let result = stage.run(burn(), Tree::default()).await.unwrap();
        assert_eq!(result.exit_code, 0, "{backend}: {}", stage.stderr(&result));
        if backend == Backend::Sandbox && has_terminal() {
            assert_eq!((little, used(&result)), (None, None));
            continue;
        }
        let (little, much) = (little.unwrap(), used(&result).unwrap());
        let user_s = seconds(much.user_time.as_ref());
        assert!((0.25..10.0).contains(&user_s), "{backend}: {user_s} s");
        assert!(seconds(little.user_time.as_ref()) < user_s, "{backend}");
        assert_eq!(little.max_rss_bytes, 0, "{backend}: less than this process itself has");
        match much.max_rss_bytes >> 20 {
            // Other tests of this process may have needed much as well.
            0 => assert!(backend == Backend::Sandbox || most_memory_of_this_process_mib() >= 100),
            much => assert!(backend == Backend::Host && (100..400).contains(&much), "{backend}: {much} MiB"),
        }
    }
}

#[tokio::test]
async fn w14_a_command_gets_no_more_processor_time_than_it_may_or_the_worker_says_that_nothing_holds_it() {
    let dir = tempfile::tempdir().unwrap();
    let options = ExecutorOptions { limits: LIMITS, ..ExecutorOptions::new(Backend::Host, "w", dir.path()) };
    let checks = executors::check(&options).await;
    let told = checks.iter().find(|check| check.name == "limits").unwrap().result.clone().unwrap();
    if told != "held by control groups" {
        assert!(told.contains("cpu") && told.contains("processor time not at all"), "{told}");
        return;
    }
    for backend in [Backend::Host, Backend::Sandbox] {
        let stage = stage_with(backend, |options| options.limits = LIMITS).await;
        let result = stage.run(burn(), Tree::default()).await.unwrap();
        assert_eq!(result.exit_code, 0, "{backend}: {}", stage.stderr(&result));
        let took = result.execution_metadata.unwrap().virtual_execution_duration.unwrap();
        let took_s = took.seconds as f64 + f64::from(took.nanos) / 1e9;
        let burnt_s = f64::from(BURNT_HUNDREDTHS) / 100.0;
        assert!(burnt_s < MAX_SHARE * took_s, "{backend}: {burnt_s} s of {took_s} s");
    }
}
