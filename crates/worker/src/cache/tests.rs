//! Tests of the cache: right contents, read-only, and nothing that was changed.

use std::os::unix::fs::MetadataExt;

use super::*;
use crate::dirfd::Directory;
use blobs::DigestFunction::Sha256;

fn key(content: &[u8], is_executable: bool) -> Key {
    Key { digest: Digest::of(Sha256, content), is_executable }
}

struct Setting {
    _dir: tempfile::TempDir,
    cache_dir: PathBuf,
    work: PathBuf,
    into: Directory,
}

fn setting() -> Setting {
    let dir = tempfile::tempdir().unwrap();
    let work = dir.path().join("work");
    fs::create_dir(&work).unwrap();
    let into = Directory::open(&work).unwrap();
    Setting { cache_dir: dir.path().join("cache"), work, into, _dir: dir }
}

#[test]
fn a_content_is_linked_read_only_in_the_variant_that_is_asked_for() {
    let at = setting();
    let cache = Cache::open(&at.cache_dir, 1_000).unwrap();
    let (plain, tool) = (key(b"content", false), key(b"content", true));
    assert_eq!(cache.missing(&[plain, tool]).unwrap(), [plain, tool]);
    cache.add_bytes(&plain, b"content").unwrap();
    assert_eq!(cache.missing(&[plain, tool]).unwrap(), [], "the other variant is copied");
    assert!(cache.link(&plain, &at.into, "a").unwrap() && cache.link(&tool, &at.into, "b").unwrap());
    for (name, mode) in [("a", 0o444), ("b", 0o555)] {
        let about = fs::metadata(at.work.join(name)).unwrap();
        assert_eq!((about.mode() & 0o7777, about.nlink()), (mode, 2), "{name}");
        assert_eq!(fs::read(at.work.join(name)).unwrap(), b"content");
    }
}

#[test]
fn a_content_that_is_not_what_its_digest_says_is_refused() {
    let at = setting();
    let cache = Cache::open(&at.cache_dir, 1_000).unwrap();
    assert!(is_wrong_content(&cache.add_bytes(&key(b"a", false), b"b").unwrap_err()));
    let (_, path) = cache.temporary().unwrap();
    fs::write(&path, "b").unwrap();
    assert!(is_wrong_content(&cache.add_file(&key(b"a", false), path).unwrap_err()));
    assert_eq!(fs::read_dir(at.cache_dir.join(TEMPORARY)).unwrap().count(), 0);
    assert_eq!(cache.missing(&[key(b"a", false)]).unwrap().len(), 1);
}

#[test]
fn r54_what_a_command_changed_is_never_handed_out_again() {
    let at = setting();
    let cache = Cache::open(&at.cache_dir, 1_000).unwrap();
    let key = key(b"content", false);
    cache.add_bytes(&key, b"content").unwrap();
    assert!(cache.link(&key, &at.into, "a").unwrap());
    let linked = cache.now();
    assert_eq!(cache.changed(&[key], linked), []);
    // As a command can that runs with the worker's own rights.
    fs::set_permissions(at.work.join("a"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(at.work.join("a"), "CONTENT").unwrap();
    assert!(!cache.link(&key, &at.into, "b").unwrap());
    assert_eq!(cache.missing(&[key]).unwrap(), [key]);
    cache.add_bytes(&key, b"content").unwrap();
    assert_eq!(cache.changed(&[key], linked), [key], "whoever had it meanwhile hears of it");
    let linked = cache.now();
    assert!(cache.link(&key, &at.into, "c").unwrap());
    assert_eq!(fs::read(at.work.join("c")).unwrap(), b"content");
    fs::set_permissions(at.work.join("c"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(cache.changed(&[key], linked), [key]);
    assert_eq!(cache.changed(&[key], cache.now()), []);
}

#[test]
fn r54_damage_is_heard_of_also_when_the_content_had_to_go() {
    let at = setting();
    let cache = Cache::open(&at.cache_dir, 1_000).unwrap();
    let (whole, damaged) = (key(b"whole", false), key(b"damaged", false));
    let begun = cache.now();
    for (key, content) in [(whole, &b"whole"[..]), (damaged, b"damaged")] {
        cache.add_bytes(&key, content).unwrap();
        assert!(cache.link(&key, &at.into, &key.digest.size.to_string()).unwrap());
    }
    fs::set_permissions(at.work.join("7"), fs::Permissions::from_mode(0o644)).unwrap();
    cache.evict(u64::MAX);
    assert_eq!(cache.missing(&[whole, damaged]).unwrap().len(), 2);
    assert_eq!(cache.changed(&[whole, damaged], begun), [damaged]);
}

#[test]
fn r54_a_content_that_comes_twice_stays_the_file_that_was_linked() {
    let at = setting();
    let cache = Cache::open(&at.cache_dir, 1_000).unwrap();
    let key = key(b"content", false);
    cache.add_bytes(&key, b"content").unwrap();
    let linked = cache.now();
    assert!(cache.link(&key, &at.into, "a").unwrap());
    cache.add_bytes(&key, b"content").unwrap();
    assert_eq!(fs::read_dir(at.cache_dir.join(TEMPORARY)).unwrap().count(), 0);
    fs::set_permissions(at.work.join("a"), fs::Permissions::from_mode(0o644)).unwrap();
    cache.add_bytes(&key, b"content").unwrap();
    assert_eq!(cache.changed(&[key], linked), [key]);
    assert!(cache.link(&key, &at.into, "b").unwrap());
    assert_eq!(fs::metadata(at.work.join("b")).unwrap().permissions().mode() & 0o777, 0o444);
}

#[test]
fn a_content_whose_file_is_gone_is_fetched_again_however_it_is_used() {
    let at = setting();
    let cache = Cache::open(&at.cache_dir, 1_000).unwrap();
    let (key, begun) = (key(b"content", false), cache.now());
    for is_linked in [true, false] {
        cache.add_bytes(&key, b"content").unwrap();
        fs::remove_file(cache.path(&key)).unwrap();
        let is_there =
            if is_linked { cache.link(&key, &at.into, "a") } else { cache.copy(&key, &at.into, "a", 0o644) };
        assert!(!is_there.unwrap());
        assert_eq!(cache.missing(&[key]).unwrap(), [key]);
    }
    assert_eq!(cache.changed(&[key], begun), [], "what others have of it is as it was");
}

#[test]
fn after_a_restart_a_damaged_content_is_found_before_it_is_used() {
    let at = setting();
    let (good, bad) = (key(b"good", false), key(b"damaged", false));
    let cache = Cache::open(&at.cache_dir, 1_000).unwrap();
    cache.add_bytes(&good, b"good").unwrap();
    cache.add_bytes(&bad, b"damaged").unwrap();
    let path = cache.path(&bad);
    drop(cache);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&path, "DAMAGED").unwrap();
    fs::write(at.cache_dir.join("00/nonsense"), "").unwrap();
    let cache = Cache::open(&at.cache_dir, 1_000).unwrap();
    assert!(!at.cache_dir.join("00/nonsense").exists());
    assert_eq!(cache.missing(&[good, bad]).unwrap(), [bad]);
    assert!(cache.link(&good, &at.into, "good").unwrap());
}

#[test]
fn a_directory_with_files_of_somebody_else_is_left_alone() {
    let at = setting();
    let precious = at.cache_dir.join("ab/precious");
    fs::create_dir_all(precious.parent().unwrap()).unwrap();
    fs::write(&precious, "mine").unwrap();
    let refused = Cache::open(&at.cache_dir, 1_000).unwrap_err().to_string();
    assert!(refused.contains("is not empty"), "{refused}");
    assert_eq!(fs::read(precious).unwrap(), b"mine");
    assert_eq!(fs::read_dir(&at.cache_dir).unwrap().count(), 1);
}

#[test]
fn the_least_recently_used_goes_when_there_is_too_much() {
    let at = setting();
    let cache = Cache::open(&at.cache_dir, 100).unwrap();
    let contents: Vec<Vec<u8>> = (0..4_u8).map(|n| vec![n; 30]).collect();
    let keys: Vec<Key> = contents.iter().map(|content| key(content, false)).collect();
    for n in 0..3 {
        cache.add_bytes(&keys[n], &contents[n]).unwrap();
    }
    assert!(cache.link(&keys[0], &at.into, "used").unwrap());
    cache.add_bytes(&keys[3], &contents[3]).unwrap();
    assert_eq!(cache.missing(&keys).unwrap(), [keys[1]]);
    assert!(!cache.path(&keys[1]).exists());
}

#[test]
fn w16_room_is_made_of_what_was_not_used_for_longest() {
    let at = setting();
    let cache = Cache::open(&at.cache_dir, 1_000).unwrap();
    let contents = [&b"first"[..], b"second", b"third"];
    let keys = contents.map(|content| key(content, false));
    for (key, content) in keys.iter().zip(contents) {
        cache.add_bytes(key, content).unwrap();
    }
    assert!(cache.has_all(&keys[..1]), "it is used again");
    cache.evict(1);
    assert_eq!(cache.missing(&keys).unwrap(), keys[1..2]);
    cache.evict(u64::MAX);
    assert_eq!(cache.missing(&keys).unwrap(), keys);
}
