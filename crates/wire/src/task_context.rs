//! The fields that describe a task to its worker and that Lessor passes on: no other file of this crate lists them.
//!
//! [`with_task_context`] appends them to a struct, so that the JSON stays flat and unknown fields are still refused, which
//! serde's `flatten` cannot do; [`in_task_context`] fills them in.

use crate::{Json, TaskEnvelope};

/// The fields as one value. An envelope has defaults for those that the submitter left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskContext {
    pub run_id: Option<String>,
    pub asset_id: Option<String>,
    pub task_key: Option<String>,
    pub resources: Option<Json>,
}

/// The fields of an envelope, in which some are never missing.
#[derive(Clone, Debug, PartialEq)]
pub struct EnvelopeContext {
    pub run_id: String,
    pub asset_id: Option<String>,
    pub task_key: String,
    pub resources: Json,
}

/// Defines a struct that ends with the fields of a [`TaskContext`], or of an [`EnvelopeContext`] after `envelope`.
macro_rules! with_task_context {
    (
        $(#[$meta:meta])* pub struct $Name:ident { $($own:tt)* }
        $($(#[$doc:meta])+ resources)?
    ) => {
        $(#[$meta])*
        pub struct $Name {
            $($own)*
            pub run_id: Option<String>,
            pub asset_id: Option<String>,
            pub task_key: Option<String>,
            $($(#[$doc])+)?
            pub resources: Option<Json>,
        }

        impl $Name {
            /// Takes the fields that describe the task to its worker.
            pub fn take_context(&mut self) -> crate::TaskContext {
                crate::TaskContext {
                    run_id: self.run_id.take(),
                    asset_id: self.asset_id.take(),
                    task_key: self.task_key.take(),
                    resources: self.resources.take(),
                }
            }
        }
    };
    (envelope $(#[$meta:meta])* pub struct $Name:ident { $($own:tt)* }) => {
        $(#[$meta])*
        pub struct $Name {
            $($own)*
            /// `run_{taskId}` when the submitter gave none.
            pub run_id: String,
            pub asset_id: Option<String>,
            /// The queue's name when the submitter gave none.
            pub task_key: String,
            /// An empty object when the submitter gave none.
            pub resources: Json,
        }
    };
}
pub(crate) use with_task_context;

/// A value whose type ends with the fields of a context: `in_task_context!(Lease { lease_id, attempt: 1, ..context })`.
#[macro_export]
macro_rules! in_task_context {
    ($Name:path { $($field:ident $(: $value:expr)?,)* ..$context:expr }) => {{
        let context = $context;
        $Name {
            $($field $(: $value)?,)*
            run_id: context.run_id,
            asset_id: context.asset_id,
            task_key: context.task_key,
            resources: context.resources,
        }
    }};
}

impl TaskContext {
    /// The context in an envelope, with the defaults of that contract.
    pub fn in_envelope(self, task_id: &str, queue: &str) -> EnvelopeContext {
        EnvelopeContext {
            run_id: self.run_id.unwrap_or_else(|| format!("run_{task_id}")),
            asset_id: self.asset_id,
            task_key: self.task_key.unwrap_or_else(|| queue.to_owned()),
            resources: self.resources.unwrap_or_else(Json::empty_object),
        }
    }
}

impl TaskEnvelope {
    /// Takes the fields that describe the task to its worker.
    pub fn take_context(&mut self) -> TaskContext {
        TaskContext {
            run_id: Some(std::mem::take(&mut self.run_id)),
            asset_id: self.asset_id.take(),
            task_key: Some(std::mem::take(&mut self.task_key)),
            resources: Some(std::mem::replace(&mut self.resources, Json::null())),
        }
    }
}
