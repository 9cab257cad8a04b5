//! A queue's full name.

use authority::Scope;

#[derive(Clone, PartialEq, prost::Message)]
pub struct QueueKey {
    #[prost(string, tag = "1")]
    pub tenant: String,
    #[prost(string, tag = "2")]
    pub workspace: String,
    #[prost(string, tag = "3")]
    pub name: String,
}

impl From<&authority::QueueKey> for QueueKey {
    fn from(key: &authority::QueueKey) -> QueueKey {
        QueueKey {
            tenant: key.scope.tenant.to_string(),
            workspace: key.scope.workspace.to_string(),
            name: key.name.to_string(),
        }
    }
}

impl From<QueueKey> for authority::QueueKey {
    fn from(key: QueueKey) -> authority::QueueKey {
        let scope = Scope { tenant: key.tenant.into(), workspace: key.workspace.into() };
        authority::QueueKey { scope, name: key.name.into() }
    }
}
