//! docs/records.md has every event and message with its tags. `LESSOR_REWRITE=1` writes the lists again.

use std::path::Path;

use authority::{event_table, message_table};

/// A field: tag, name and Rust type.
type Field = (u32, &'static str, &'static str);

macro_rules! events {
    ($($(#[$doc:meta])* $tag:literal $Name:ident($payload:ty) of $subject:ident {
        $($(#[$field_doc:meta])* $field_tag:literal $json:literal $field:ident: $type:ty,)*
    })*) => {
        const EVENTS: &[(u32, &str, &[Field])] =
            &[$(($tag, stringify!($Name), &[$(($field_tag, stringify!($field), stringify!($type)),)*]),)*];
    };
}

macro_rules! messages {
    ($($(#[$doc:meta])* $Name:ident {
        $($(#[$field_doc:meta])* $tag:literal $json:literal $field:ident: $type:ty,)*
    })*) => {
        const MESSAGES: &[(&str, &[Field])] =
            &[$((stringify!($Name), &[$(($tag, stringify!($field), stringify!($type)),)*]),)*];
    };
}

event_table!(events);
message_table!(messages);

#[test]
fn the_documented_events_and_messages_are_those_of_the_tables() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/records.md");
    let documented = std::fs::read_to_string(&path).unwrap();
    let mut events = "| tag | event | fields |\n|---|---|---|\n".to_owned();
    for (tag, name, fields) in EVENTS {
        events += &format!("| {tag} | {name} | {} |\n", list(fields));
    }
    let mut messages = "| message | fields |\n|---|---|\n".to_owned();
    for (name, fields) in MESSAGES {
        messages += &format!("| {name} | {} |\n", list(fields));
    }
    let expected = replace(&replace(&documented, "events", &events), "messages", &messages);
    if std::env::var_os("LESSOR_REWRITE").is_some() {
        std::fs::write(&path, &expected).unwrap();
    } else {
        assert!(
            documented == expected,
            "docs/records.md is out of date; run this test with LESSOR_REWRITE=1"
        );
    }
}

fn list(fields: &[Field]) -> String {
    // The compiler may print types with or without spaces.
    let fields =
        fields.iter().map(|(tag, name, rust)| format!("{tag} {name}: {}", protobuf(&rust.replace(' ', ""))));
    fields.collect::<Vec<_>>().join(", ")
}

/// The type in the terms of the document.
fn protobuf(rust: &str) -> String {
    if let Some(inner) = rust.strip_prefix("Option<").and_then(|rest| rest.strip_suffix('>')) {
        return format!("{}?", protobuf(inner));
    }
    let name = match rust {
        "TaskId" | "Digest" => "id",
        "u32" => "uint32",
        "u64" => "uint64",
        "i32" => "sint32",
        "bool" => "bool",
        "Arc<str>" => "string",
        "Arc<[u8]>" => "bytes",
        "Position" => "position",
        "Time" => "time",
        "NextStep" => "time?",
        "Arc<QueueKey>" => "queue key",
        "Arc<Properties>" => "repeated property",
        "Arc<PushTarget>" => "push target",
        "Arc<TaskOptions>" => "TaskOptions",
        "QueueConfig" | "DeadReport" => rust,
        "TaskError" => "error",
        "Backoff" => "backoff",
        "Dedup" => "dedup",
        "Vec<TaskId>" => "packed fixed64",
        "Vec<Category>" => "categories",
        "ExpiryCause" => "expiry cause",
        "ReleaseCause" => "release cause",
        "CancelCause" => "cancel cause",
        "DeadReason" => "dead reason",
        "Contract" => "contract",
        "Arc<ReportDetails>" => "ReportDetails",
        "Arc<ApiKey>" => "ApiKey",
        "SecretHash" => "bytes",
        "Vec<Arc<str>>" => "repeated string",
        "Vec<Role>" => "repeated role",
        "Arc<Actor>" => "Actor",
        "ActorKind" => "actor kind",
        other => panic!("docs/records.md has no name for {other}"),
    };
    name.to_owned()
}

/// Replaces what stands between two marks.
fn replace(text: &str, mark: &str, content: &str) -> String {
    let (begin, end) = (format!("<!-- {mark} -->\n"), format!("<!-- end of {mark} -->"));
    let (before, rest) = text.split_once(&begin).expect("the list begins with a mark");
    let (_, after) = rest.split_once(&end).expect("the list ends with a mark");
    format!("{before}{begin}{content}{end}{after}")
}
