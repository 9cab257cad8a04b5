//! How an attempt failed.

use std::sync::Arc;

use super::Enumeration;
use crate::record::error::DecodeError;

#[derive(Clone, PartialEq, prost::Message)]
pub struct TaskError {
    #[prost(uint32, tag = "1")]
    pub category: u32,
    #[prost(string, optional, tag = "2")]
    pub code: Option<String>,
    #[prost(string, tag = "3")]
    pub message: String,
}

/// The categories of a queue's retry policy.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Categories {
    #[prost(uint32, repeated, tag = "1")]
    pub numbers: Vec<u32>,
}

impl From<&authority::TaskError> for TaskError {
    fn from(error: &authority::TaskError) -> TaskError {
        TaskError {
            category: error.category.number(),
            code: error.code.as_deref().map(str::to_owned),
            message: error.message.to_string(),
        }
    }
}

impl TryFrom<TaskError> for authority::TaskError {
    type Error = DecodeError;

    fn try_from(error: TaskError) -> Result<authority::TaskError, DecodeError> {
        Ok(authority::TaskError {
            category: authority::Category::from_number(error.category)?,
            code: error.code.map(Arc::from),
            message: error.message.into(),
        })
    }
}
