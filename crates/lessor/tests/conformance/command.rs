//! `lessor conformance` as its users run it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

use crate::support::{Ran, lessor};
use crate::{mutant, server};

fn lines(ran: &Ran) -> Vec<Value> {
    ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_table_has_number_check_outcome_and_time_and_ends_with_a_sum() {
    let server = server();
    let ran = server.run(&["conformance", "--contract", "claim", "--only", "S2-25,s2-30"]).ok();
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(lines[0], "Contract claim");
    for heading in ["NUMBER", "CHECK", "OUTCOME", "MS"] {
        assert!(lines[1].contains(heading), "{heading} is missing: {}", lines[1]);
    }
    assert!(lines.iter().any(|line| line.starts_with("S2-30 ") && line.contains("PASS")), "{}", ran.stdout);
    assert!(ran.stdout.contains("claim: 4 passed, 0 failed, 0 skipped in "), "{}", ran.stdout);
    assert!(!ran.stdout.contains('\u{1b}'), "colours are for terminals");
}

#[test]
fn json_is_one_object_a_line_and_a_sum() {
    let server = server();
    let ran =
        server.run(&["conformance", "--contract", "native,claim", "--only", "S0-20,S2-30", "--json"]).ok();
    let lines = lines(&ran);
    assert_eq!(lines.len(), 4, "{}", ran.stdout);
    assert_eq!((&lines[0]["numbers"], &lines[0]["outcome"]), (&json!(["S0-20"]), &json!("PASS")));
    assert!(lines[0]["ms"].is_u64() && lines[0]["check"].is_string() && lines[0].get("reason").is_none());
    for (sum, contract) in [(&lines[1], "native"), (&lines[3], "claim")] {
        assert_eq!(
            (&sum["contract"], &sum["passed"], &sum["failed"]),
            (&json!(contract), &json!(1), &json!(0))
        );
    }
}

#[test]
fn a_server_of_the_remote_execution_api_may_be_named_as_its_clients_name_it() {
    let server = server();
    let url = server.url().replace("http://", "grpc://");
    let arguments =
        ["conformance", "--contract", "reapi", "--only", "R14", "--url", &url, "--instance", "some/where"];
    let ran = server.run(&arguments).ok();
    assert!(ran.stdout.contains("reapi: 1 passed, 0 failed, 0 skipped in "), "{}", ran.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_broken_is_named_with_what_was_said_and_ends_with_1() {
    let server = server();
    let both = |call: &mutant::Call, reply: &mut mutant::Reply| {
        if call.is("fail") {
            mutant::set(reply, "dlq", true);
        }
    };
    let url = mutant::start(&server.url(), both).await;
    let run = |json: bool| {
        let mut command = lessor(&["conformance", "--contract", "claim", "--only", "S2-25", "--url", &url]);
        Ran::from(command.args(json.then_some("--json")).output().unwrap())
    };
    let (text, objects) = tokio::task::block_in_place(|| (run(false), run(true)));
    assert_eq!((text.code, objects.code), (1, 1), "{text:?}");
    for expected in
        ["FAIL", "POST /internal/worker/fail answered 200", "`dlq` should be false", "does not conform"]
    {
        assert!(text.stdout.contains(expected), "{expected:?} is missing: {}", text.stdout);
    }
    let broken: Vec<Value> = lines(&objects).into_iter().filter(|line| line["outcome"] == "FAIL").collect();
    assert!(!broken.is_empty() && broken.iter().all(|line| line["reason"].is_string()), "{objects:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_requests_of_a_run_are_spread_over_all_urls() {
    let server = server();
    let counts = [(); 3].map(|()| Arc::new(AtomicU32::new(0)));
    let mut arguments = vec!["conformance".to_owned(), "--contract=claim".to_owned()];
    for count in counts.clone() {
        let counted = move |_: &mutant::Call, _: &mut mutant::Reply| {
            count.fetch_add(1, Ordering::Relaxed);
        };
        arguments.push(format!("--url={}", mutant::start(&server.url(), counted).await));
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let run = |arguments: &[&str]| tokio::task::block_in_place(|| lessor(arguments).output().unwrap());
    Ran::from(run(&arguments)).ok();
    let counts = counts.map(|count| count.load(Ordering::Relaxed));
    assert!(counts.iter().all(|count| *count > 10), "{counts:?}");
    let one_silent = [&arguments[..], &["--url", "http://127.0.0.1:1"]].concat();
    Ran::from(run(&one_silent)).fails(1, &["no server answers at http://127.0.0.1:1"]);
}

#[test]
fn a_list_needs_no_server() {
    let ran = Ran::from(
        lessor(&["conformance", "--list", "--contract", "grpc", "--json", "--url", "http://127.0.0.1:1"])
            .output()
            .unwrap(),
    );
    let lines = lines(&ran.ok());
    let numbers: BTreeSet<String> = lines
        .iter()
        .flat_map(|line| line["numbers"].as_array().unwrap().clone())
        .map(|number| number.as_str().unwrap().to_owned())
        .collect();
    assert_eq!(numbers, (9..=40).map(|n| format!("S3-{n}")).collect());
    let ran = Ran::from(lessor(&["conformance", "--list", "--contract", "native"]).output().unwrap()).ok();
    assert!(ran.stdout.contains("S0-20") && ran.stdout.contains("not observable"), "{}", ran.stdout);
    let all = Ran::from(lessor(&["conformance", "--list"]).output().unwrap()).ok().stdout;
    for contract in ["native", "claim", "callback", "grpc", "reapi"] {
        assert!(all.contains(&format!("Contract {contract}\n")), "{contract}: {all}");
    }
}

#[test]
fn nonsense_and_silence_are_told_apart() {
    let run = |arguments: &[&str]| Ran::from(lessor(arguments).output().unwrap());
    run(&["conformance", "--contract", "claim", "--only", "S9-1"]).fails(2, &["S9-1", "--list"]);
    run(&["conformance", "--contract", "soap"]).fails(2, &["soap", "native"]);
    run(&["conformance"]).fails(2, &["--contract"]);
    let nobody = run(&["conformance", "--contract", "claim", "--url", "http://127.0.0.1:1"]);
    nobody.fails(1, &["http://127.0.0.1:1", "no server answers"]);
}
