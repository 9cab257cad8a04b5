//! Protobuf messages that clients and workers send over gRPC.

use bazel_remote_apis::build::bazel::remote::execution::v2 as reapi;
use prost::Message;
use wire::grpc;

pub(crate) fn protobuf(input: &[u8]) {
    fn read<M: Message + Default>(input: &[u8]) {
        let Ok(message) = M::decode(input) else { return };
        assert!(M::decode(&*message.encode_to_vec()).is_ok(), "what was read can be written and read again");
    }
    read::<grpc::RegisterWorkerRequest>(input);
    read::<grpc::SubmitTasksRequest>(input);
    read::<reapi::ExecuteRequest>(input);
    read::<reapi::BatchUpdateBlobsRequest>(input);
    read::<reapi::UpdateActionResultRequest>(input);
    read::<reapi::Action>(input);
    read::<reapi::Command>(input);
    read::<reapi::Directory>(input);
    read::<reapi::Tree>(input);
}

pub(crate) fn protobufs() -> Vec<Vec<u8>> {
    let digest = Some(reapi::Digest { hash: "2c".repeat(32), size_bytes: 5 });
    let file = reapi::FileNode { name: "hello.c".into(), digest: digest.clone(), ..Default::default() };
    let directory = reapi::Directory { files: vec![file], ..Default::default() };
    let command = reapi::Command { arguments: vec!["cc".into()], ..Default::default() };
    let register = grpc::RegisterWorkerRequest { worker_id: "w".into(), ..Default::default() };
    vec![
        directory.encode_to_vec(),
        command.encode_to_vec(),
        reapi::Tree { root: Some(directory.clone()), children: vec![directory] }.encode_to_vec(),
        reapi::Action { command_digest: digest.clone(), input_root_digest: digest, ..Default::default() }
            .encode_to_vec(),
        register.encode_to_vec(),
    ]
}
