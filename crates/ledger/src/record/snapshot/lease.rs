//! The lease of a leased task.

use std::sync::Arc;

use authority::{Position, Time};

use crate::record::value::Id;

#[derive(Clone, PartialEq, prost::Message)]
pub struct Lease {
    #[prost(uint64, tag = "1")]
    pub fencing_token: u64,
    #[prost(string, tag = "2")]
    pub worker: String,
    #[prost(string, optional, tag = "3")]
    pub session: Option<String>,
    #[prost(message, optional, tag = "4")]
    pub request: Option<Id>,
    #[prost(uint64, tag = "5")]
    pub granted_at: u64,
    #[prost(uint64, tag = "6")]
    pub length_ms: u64,
    #[prost(uint64, tag = "7")]
    pub expires_at: u64,
    #[prost(uint64, tag = "8")]
    pub extended_at: u64,
    #[prost(string, optional, tag = "9")]
    pub started_by: Option<String>,
}

impl From<&authority::Lease> for Lease {
    fn from(lease: &authority::Lease) -> Lease {
        Lease {
            fencing_token: lease.fencing_token.0,
            worker: lease.worker.to_string(),
            session: lease.session.as_deref().map(str::to_owned),
            request: lease.request.as_ref().map(Id::from),
            granted_at: lease.granted_at.0,
            length_ms: lease.length_ms,
            expires_at: lease.expires_at.0,
            extended_at: lease.extended_at.0,
            started_by: lease.started_by.as_deref().map(str::to_owned),
        }
    }
}

impl From<Lease> for authority::Lease {
    fn from(lease: Lease) -> authority::Lease {
        authority::Lease {
            fencing_token: Position(lease.fencing_token),
            worker: lease.worker.into(),
            session: lease.session.map(Arc::from),
            request: lease.request.map(Into::into),
            granted_at: Time(lease.granted_at),
            length_ms: lease.length_ms,
            expires_at: Time(lease.expires_at),
            extended_at: Time(lease.extended_at),
            started_by: lease.started_by.map(Arc::from),
        }
    }
}
