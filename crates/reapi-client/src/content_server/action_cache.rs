//! Results on the content server.
//!
//! A committed result has the key of its action, and a mark with the position of its record: what somebody else stored
//! under this key has none, and counts as uploaded. Results that clients upload, and bodies of the HTTP cache, have keys that are
//! derived from theirs, so that none of them can be taken for a committed result.

use bazel_remote_apis::google::protobuf::Any;
use blobs::{
    ActionCache, ActionKey, BoxFuture, CachedResult, Digest, DigestFunction, Error, Origin, RawKey, Result,
    Serve, Tenant,
};
use bytes::Bytes;
use execution::reapi::{ActionResult, ExecutedActionMetadata};
use execution::{cached_result, digest};

use super::ContentServer;

const POSITION_TYPE: &str = "type.googleapis.com/lessor.CommittedAt";
/// The exit code of a result that was removed: no client takes a failed result from a cache.
const REMOVED_EXIT_CODE: i32 = 255;
const REMOVED_WORKER: &str = "lessor: removed";
/// The name that the server's default workspace has without being named.
const DEFAULT_WORKSPACE: &str = "default";

impl ContentServer {
    async fn result(&self, tenant: &Tenant, instance: &str, action: &Digest) -> Result<Option<ActionResult>> {
        let found = self.calls(tenant)?.action_result(instance_name(instance), action).await;
        Ok(found.map_err(|error| self.failed(error))?.filter(|result| !is_removed(result)))
    }

    async fn store_result(
        &self,
        tenant: &Tenant,
        instance: &str,
        action: &Digest,
        result: &ActionResult,
    ) -> Result<()> {
        let stored = self.calls(tenant)?.update_action_result(instance_name(instance), action, result).await;
        stored.map_err(|error| self.failed(error))
    }
}

impl ActionCache for ContentServer {
    fn get_result<'a>(
        &'a self,
        tenant: &'a Tenant,
        key: &'a ActionKey,
        serve: Serve,
    ) -> BoxFuture<'a, Result<Option<CachedResult>>> {
        Box::pin(async move {
            let mut foreign = None;
            if let Some(mut result) = self.result(tenant, &key.instance, &key.action).await? {
                match take_position(&mut result) {
                    Some(position) => return Ok(Some(cached(Origin::Committed, position, &result))),
                    None => foreign = Some(result),
                }
            }
            if serve == Serve::Committed {
                return Ok(None);
            }
            let uploaded = self.result(tenant, &key.instance, &uploaded_key(&key.action)).await?;
            Ok(uploaded.or(foreign).map(|result| cached(Origin::Uploaded, 0, &result)))
        })
    }

    fn put_result<'a>(
        &'a self,
        tenant: &'a Tenant,
        key: &'a ActionKey,
        origin: Origin,
        result: Bytes,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (position, mut result) = cached_result::decode(&result).ok_or_else(|| {
                Error::Unavailable(
                    "the result cannot be sent to the content server: it cannot be read".into(),
                )
            })?;
            match origin {
                Origin::Committed => {
                    set_position(&mut result, position);
                    self.store_result(tenant, &key.instance, &key.action, &result).await
                }
                Origin::Uploaded => {
                    // A mark that a client sends says nothing.
                    take_position(&mut result);
                    self.store_result(tenant, &key.instance, &uploaded_key(&key.action), &result).await
                }
            }
        })
    }

    /// The protocol cannot remove anything: the results are replaced by one that is none.
    fn remove_result<'a>(&'a self, tenant: &'a Tenant, key: &'a ActionKey) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            for action in [key.action, uploaded_key(&key.action)] {
                if self.result(tenant, &key.instance, &action).await?.is_some() {
                    self.store_result(tenant, &key.instance, &action, &removed()).await?;
                }
            }
            Ok(())
        })
    }

    fn get_raw<'a>(&'a self, tenant: &'a Tenant, key: &'a RawKey) -> BoxFuture<'a, Result<Option<Digest>>> {
        Box::pin(async move {
            let Some(result) = self.result(tenant, DEFAULT_WORKSPACE, &raw_key(key)).await? else {
                return Ok(None);
            };
            let body = digest::from_proto(result.stdout_digest.as_ref(), DigestFunction::Sha256, "the body");
            let Ok(body) = body else { return Ok(None) };
            Ok(self.missing(tenant, &[body]).await?.is_empty().then_some(body))
        })
    }

    fn put_raw<'a>(&'a self, tenant: &'a Tenant, key: &'a RawKey, body: Digest) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let stdout_digest = Some(digest::to_proto(&body));
            let result = ActionResult { stdout_digest, ..ActionResult::default() };
            self.store_result(tenant, DEFAULT_WORKSPACE, &raw_key(key), &result).await
        })
    }
}

/// Other caches may know no instance but the one without a name.
fn instance_name(workspace: &str) -> &str {
    if workspace == DEFAULT_WORKSPACE { "" } else { workspace }
}

fn cached(origin: Origin, position: u64, result: &ActionResult) -> CachedResult {
    CachedResult { origin, bytes: cached_result::encode(position, result).into() }
}

fn uploaded_key(action: &Digest) -> Digest {
    Digest::of(
        action.function,
        format!("lessor uploaded result of {}/{action}", action.function.name()).as_bytes(),
    )
}

fn raw_key(key: &RawKey) -> Digest {
    let name = format!("lessor body of {} below {}", key.key, key.prefix);
    Digest::of(DigestFunction::Sha256, name.as_bytes())
}

fn removed() -> ActionResult {
    let worker = REMOVED_WORKER.to_owned();
    let execution_metadata = Some(ExecutedActionMetadata { worker, ..ExecutedActionMetadata::default() });
    ActionResult { exit_code: REMOVED_EXIT_CODE, execution_metadata, ..ActionResult::default() }
}

fn is_removed(result: &ActionResult) -> bool {
    let metadata = result.execution_metadata.as_ref();
    result.exit_code == REMOVED_EXIT_CODE
        && metadata.is_some_and(|metadata| metadata.worker == REMOVED_WORKER)
}

fn set_position(result: &mut ActionResult, position: u64) {
    take_position(result);
    let mark = Any { type_url: POSITION_TYPE.to_owned(), value: position.to_le_bytes().to_vec() };
    result.execution_metadata.get_or_insert_default().auxiliary_metadata.push(mark);
}

/// Takes the mark of a committed result off.
fn take_position(result: &mut ActionResult) -> Option<u64> {
    let metadata = result.execution_metadata.as_mut()?;
    let mut position = None;
    metadata.auxiliary_metadata.retain(|mark| {
        let is_mark = mark.type_url == POSITION_TYPE;
        if is_mark {
            position = mark.value.as_slice().try_into().ok().map(u64::from_le_bytes);
        }
        !is_mark
    });
    if *metadata == ExecutedActionMetadata::default() {
        result.execution_metadata = None;
    }
    position
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_taken_off_as_it_was_put_on() {
        let plain = ActionResult { exit_code: 3, ..ActionResult::default() };
        let mut marked = plain.clone();
        set_position(&mut marked, 7);
        set_position(&mut marked, 9);
        assert_ne!(marked, plain);
        assert_eq!(take_position(&mut marked), Some(9));
        assert_eq!((take_position(&mut marked), marked), (None, plain));
    }

    #[test]
    fn keys_of_different_kinds_differ() {
        let action = Digest::of(DigestFunction::Sha256, b"action");
        let raw = |prefix: &str| raw_key(&RawKey { prefix: prefix.into(), key: action.hash });
        let keys = [action, uploaded_key(&action), raw(""), raw("a")];
        assert_eq!(keys.iter().collect::<std::collections::HashSet<_>>().len(), keys.len());
    }
}
