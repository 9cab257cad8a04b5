//! Where the tasks of a queue are pushed to.

use super::Property;
use crate::record::error::DecodeError;

#[derive(Clone, PartialEq, prost::Message)]
pub struct PushTarget {
    #[prost(string, tag = "1")]
    pub url: String,
    #[prost(uint32, tag = "2")]
    pub concurrency: u32,
    #[prost(message, repeated, tag = "3")]
    pub headers: Vec<Property>,
    #[prost(string, optional, tag = "4")]
    pub secret: Option<String>,
}

impl From<&authority::PushTarget> for PushTarget {
    fn from(target: &authority::PushTarget) -> PushTarget {
        let headers = target.headers.iter();
        PushTarget {
            url: target.url.to_string(),
            concurrency: target.concurrency,
            headers: headers
                .map(|(name, value)| Property { name: name.to_string(), value: value.to_string() })
                .collect(),
            secret: target.secret.as_deref().map(str::to_owned),
        }
    }
}

impl TryFrom<PushTarget> for authority::PushTarget {
    type Error = DecodeError;

    fn try_from(target: PushTarget) -> Result<authority::PushTarget, DecodeError> {
        if !target.headers.is_sorted_by(|a, b| a.name < b.name) {
            return Err(DecodeError::Invalid("the headers of a push target are out of order"));
        }
        let headers = target.headers.into_iter().map(|header| (header.name.into(), header.value.into()));
        Ok(authority::PushTarget {
            url: target.url.into(),
            concurrency: target.concurrency,
            headers: headers.collect(),
            secret: target.secret.map(Into::into),
        })
    }
}
