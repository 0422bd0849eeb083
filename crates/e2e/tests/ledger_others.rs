//! The ledger, checked by others' programs for tiled logs: Cloudflare's `signed_note` and
//! `tlog_tiles`, which are ported from those of Go's checksum database. Nothing of Atoll's checks
//! here: the test parses the lines of a proof and the lengths in a bundle, and everything that is
//! signed, hashed or proven is computed by those two.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use atoll_ledger::{Durability, StateDir};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use e2e::{World, fine};
use serde_json::json;
use signed_note::{Note, StandardVerifier, Verifier as _, VerifierList};
use tlog_tiles::{
    Checkpoint, Error, Hash, HashReader, Tile, TileHashReader, TileReader, check_record,
    check_tree, prove_record, prove_tree, record_hash, stored_hashes, tree_hash,
};

/// The reason why a proof is not accepted.
type Refused = String;

fn refused(why: impl ToString) -> Refused {
    why.to_string()
}

/// Opens a signed note by this key alone.
fn opened(note: &[u8], key: &str) -> Result<Checkpoint, Refused> {
    let key = StandardVerifier::new(key).map_err(refused)?;
    let name = key.name().to_owned();
    let note = Note::from_bytes(note).map_err(refused)?;
    let known = VerifierList::new(vec![Box::new(key)]);
    let (signed, _) = note.verify(&known).map_err(refused)?;
    assert_eq!(signed.len(), 1);
    let checkpoint = Checkpoint::from_bytes(note.text()).map_err(refused)?;
    match checkpoint.origin() == name {
        true => Ok(checkpoint),
        false => Err(refused("of another log")),
    }
}

/// An export, as a web server would serve it.
struct Tiles<'a>(&'a Path);

impl Tiles<'_> {
    /// Reads a tile, or the bundle of events beneath it. Go's database has the height in its paths
    /// and calls bundles `data`; C2SP's logs, all of this one height, do not.
    fn read(&self, tile: &Tile) -> Result<Vec<u8>, Refused> {
        let place = tile.path().replacen("tile/8/", "tile/", 1);
        let place = place.replacen("tile/data/", "tile/entries/", 1);
        fs::read(self.0.join(&place)).map_err(|why| format!("{place}: {why}"))
    }

    /// Returns all events, from the bundles.
    fn events(&self, size: u64) -> Result<Vec<Vec<u8>>, Refused> {
        let mut events = Vec::new();
        while (events.len() as u64) < size {
            let (number, rest) = (events.len() as u64 / 256, size - events.len() as u64);
            let width = u32::try_from(rest.min(256)).unwrap();
            let bundle = self.read(&Tile::new(8, 0, number, width, true))?;
            let mut bundle = bundle.as_slice();
            for _ in 0..width {
                let (length, more) = bundle.split_first_chunk().ok_or("cut short")?;
                let length = usize::from(u16::from_be_bytes(*length));
                let (event, more) = more.split_at_checked(length).ok_or("cut short")?;
                events.push(event.to_vec());
                bundle = more;
            }
            if !bundle.is_empty() {
                return Err(refused("more than there should be"));
            }
        }
        Ok(events)
    }
}

impl TileReader for Tiles<'_> {
    fn height(&self) -> u8 {
        8
    }

    fn read_tiles(&self, tiles: &[Tile]) -> Result<Vec<Vec<u8>>, Error> {
        let read = |tile| self.read(tile).map_err(|_| Error::InvalidTile);
        tiles.iter().map(read).collect()
    }

    fn save_tiles(&self, _: &[Tile], _: &[Vec<u8>]) {}
}

/// All hashes of a tree, in the order in which Go's database keeps them.
struct Stored(Vec<Hash>);

impl HashReader for Stored {
    fn read_hashes(&self, indexes: &[u64]) -> Result<Vec<Hash>, Error> {
        let hash = |index: &u64| self.0.get(*index as usize).copied();
        let hashes = indexes.iter().map(hash).collect::<Option<_>>();
        hashes.ok_or(Error::IndexesNotInTree)
    }
}

/// Reads a whole export: its checkpoint, and its events. The root is computed from the events, and
/// again from the tiles above; each tile has to follow from the events.
fn whole(export: &Path, key: &str) -> Result<(Checkpoint, Vec<Vec<u8>>), Refused> {
    let note = fs::read(export.join("checkpoint")).map_err(refused)?;
    let checkpoint = opened(&note, key)?;
    let (size, root, tiles) = (checkpoint.size(), *checkpoint.hash(), Tiles(export));
    let by_tiles = tree_hash(size, &TileHashReader::new(size, root, &tiles));
    let (events, mut stored) = (tiles.events(size)?, Stored(Vec::new()));
    for (seq, event) in (0..).zip(&events) {
        let more = stored_hashes(seq, event, &stored).map_err(refused)?;
        stored.0.extend(more);
    }
    let by_events = tree_hash(size, &stored).map_err(refused)?;
    if by_tiles.map_err(refused)? != root || by_events != root {
        return Err(refused("another root"));
    }
    for tile in Tile::new_tiles(8, 0, size) {
        if tile.read_data(&stored).map_err(refused)? != tiles.read(&tile)? {
            return Err(format!("another {}", tile.path()));
        }
    }
    Ok((checkpoint, events))
}

fn hashes<'a>(lines: impl Iterator<Item = &'a str>) -> Result<Vec<Hash>, Refused> {
    lines
        .map(|line| Hash::parse_hash(line).map_err(refused))
        .collect()
}

/// Verifies a file of `ledger prove inclusion`; returns the event's number, and the hashes of its
/// proof.
fn included(proof: &[u8], key: &str) -> Result<(u64, Vec<Hash>), Refused> {
    let proof = std::str::from_utf8(proof).map_err(refused)?;
    let (facts, note) = proof.split_once("\n\n").ok_or("no checkpoint")?;
    let facts = facts.strip_prefix("c2sp.org/tlog-proof@v1\nextra ");
    let (event, facts) = facts.and_then(|rest| rest.split_once('\n')).ok_or("head")?;
    let mut lines = facts.lines();
    let index = lines.next().and_then(|line| line.strip_prefix("index "));
    let index: u64 = index.ok_or("no index")?.parse().map_err(refused)?;
    let (event, path) = (STANDARD.decode(event).map_err(refused)?, hashes(lines)?);
    let (checkpoint, leaf) = (opened(note.as_bytes(), key)?, record_hash(&event));
    let (size, root) = (checkpoint.size(), *checkpoint.hash());
    check_record(&path, size, root, index, leaf).map_err(refused)?;
    Ok((index, path))
}

/// Verifies a file of `ledger prove consistency`, from an old size and root hash to its checkpoint;
/// returns the hashes.
fn grown(proof: &[u8], key: &str, old: (u64, Hash)) -> Result<Vec<Hash>, Refused> {
    let proof = std::str::from_utf8(proof).map_err(refused)?;
    let (facts, note) = proof.split_once("\n\n").ok_or("no checkpoint")?;
    let mut lines = facts.lines();
    if lines.next() != Some(format!("old {}", old.0).as_str()) {
        return Err(refused("of another size"));
    }
    let path = hashes(lines)?;
    let checkpoint = opened(note.as_bytes(), key)?;
    let (size, root) = (checkpoint.size(), *checkpoint.hash());
    check_tree(&path, size, root, old.0, old.1).map_err(refused)?;
    Ok(path)
}

/// Returns copies of a file with a byte changed, each in turn.
fn changed(content: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    (0..content.len()).map(move |at| {
        let mut content = content.to_vec();
        content[at] ^= 1;
        content
    })
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn key(world: &World) -> String {
    let key = fine(world, &["ledger", "key"]).out();
    key.trim_end().to_owned()
}

fn checkpoint(world: &World) -> Vec<u8> {
    let printed = fine(world, &["ledger", "checkpoint"]).out();
    let kept = fs::read(world.state().join("atoll/ledger/checkpoint")).unwrap();
    assert_eq!(printed.as_bytes(), kept);
    kept
}

/// Adds events until there are so many.
fn fill(world: &World, from: u64, to: u64) {
    let state = StateDir::open(&world.state().join("atoll")).unwrap();
    let ledger = atoll_store::open_ledger(&state, SystemTime::now).unwrap();
    for seq in from..to {
        let durability = match seq + 1 == to {
            true => Durability::Durable,
            false => Durability::Buffered,
        };
        let body = json!({ "number": seq });
        let place = ledger.record(None, "test.noted", body, durability).unwrap();
        assert_eq!(place.seq, seq);
    }
}

/// Returns the first so many events as they are in the ledger.
fn events(world: &World, count: usize) -> Vec<Vec<u8>> {
    let segment = fs::read(world.state().join("atoll/ledger/000001.seg")).unwrap();
    let lines = segment.split(|byte| *byte == b'\n').take(count);
    lines.map(|line| line[65..].to_vec()).collect()
}

fn export(world: &World, name: &str) -> PathBuf {
    let to = world.top().join(name);
    let _ = fine(world, &["ledger", "export", "--tiles", text(&to)]);
    to
}

/// Returns the proof that `ledger prove` writes.
fn proof(world: &World, how: &str, what: u64) -> Vec<u8> {
    let to = world.top().join("proofs");
    let _ = fs::remove_dir_all(&to);
    let what = what.to_string();
    let _ = fine(world, &["ledger", "prove", how, &what, "--to", text(&to)]);
    let mut written = fs::read_dir(&to).unwrap().map(|entry| entry.unwrap());
    let content = fs::read(written.next().unwrap().path()).unwrap();
    assert!(written.next().is_none());
    content
}

#[test]
fn others_open_a_checkpoint_by_the_printed_key_and_no_changed_one() {
    let world = World::new("others_open_a_checkpoint_by_the_printed_key_and_no_changed_one");
    let _ = world.run_inside("true").success();
    let (first, note) = (key(&world), checkpoint(&world));
    let read = opened(&note, &first).unwrap();
    let verified = fine(&world, &["ledger", "verify"]).out();
    assert!(
        verified.contains(&format!("{} events", read.size())),
        "{verified}"
    );
    for changed in changed(&note) {
        let shown = String::from_utf8_lossy(&changed).into_owned();
        assert!(opened(&changed, &first).is_err(), "{shown}");
    }
    let other = World::new("others_open_a_checkpoint_by_the_printed_key_and_no_changed_one");
    let _ = other.run_inside("true").success();
    let foreign = opened(&note, &key(&other)).unwrap_err();
    assert!(foreign.contains("no verifiable signatures"), "{foreign}");
    // While one key hands over to another, whoever has either.
    let _ = fine(&world, &["ledger", "key", "rotate"]);
    let (second, by_both) = (key(&world), checkpoint(&world));
    for key in [&first, &second] {
        assert!(opened(&by_both, key).unwrap().size() > read.size());
    }
    let _ = world.run_inside("true").success();
    let note = checkpoint(&world);
    assert!(opened(&note, &second).is_ok() && opened(&note, &first).is_err());
}

#[test]
fn others_read_our_tiles_and_check_our_proofs_and_refuse_changed_ones() {
    let world = World::new("others_read_our_tiles_and_check_our_proofs_and_refuse_changed_ones");
    let _ = world.run_inside("true").success();
    let key = key(&world);
    let mut before = vec![opened(&checkpoint(&world), &key).unwrap()];
    // One tile that is full, one more event, and some tiles with another level.
    for size in [256, 257, 700] {
        fill(&world, before.last().unwrap().size(), size);
        before.push(opened(&checkpoint(&world), &key).unwrap());
    }
    let tiles = export(&world, "tiles");
    let (newest, read) = whole(&tiles, &key).unwrap();
    assert_eq!(newest.size(), 700);
    assert_eq!(read, events(&world, 700));
    let served = Tiles(&tiles);
    let reader = TileHashReader::new(700, *newest.hash(), &served);
    for seq in [0, 1, 255, 256, 257, 511, 512, 699] {
        let proof = proof(&world, "inclusion", seq);
        let theirs = prove_record(700, seq, &reader).unwrap();
        assert_eq!(included(&proof, &key).unwrap(), (seq, theirs));
        for changed in changed(&proof).step_by(if seq == 257 { 1 } else { 61 }) {
            let shown = String::from_utf8_lossy(&changed).into_owned();
            assert!(included(&changed, &key).is_err(), "{shown}");
        }
    }
    for old in &before[..3] {
        let (proof, old) = (
            proof(&world, "consistency", old.size()),
            (old.size(), *old.hash()),
        );
        let theirs = prove_tree(700, old.0, &reader).unwrap();
        assert_eq!(grown(&proof, &key, old).unwrap(), theirs);
        // Neither of another beginning.
        assert!(grown(&proof, &key, (old.0, record_hash(&read[0]))).is_err());
        for changed in changed(&proof).step_by(if old.0 == 257 { 1 } else { 61 }) {
            let shown = String::from_utf8_lossy(&changed).into_owned();
            assert!(grown(&changed, &key, old).is_err(), "{shown}");
        }
    }
    for (name, spared) in [
        ("tile/0/000", 509),
        ("tile/0/001", 509),
        ("tile/0/002.p/188", 509),
        ("tile/1/000.p/2", 7),
        ("tile/entries/000", 4_001),
        ("tile/entries/001", 4_001),
        ("tile/entries/002.p/188", 4_001),
        ("checkpoint", 31),
    ] {
        let path = tiles.join(name);
        let sound = fs::read(&path).unwrap();
        for changed in changed(&sound).step_by(spared) {
            fs::write(&path, changed).unwrap();
            assert!(whole(&tiles, &key).is_err(), "{name}");
        }
        fs::write(&path, sound).unwrap();
    }
    assert!(whole(&tiles, &key).is_ok());
}

/// More than one full tile of tiles.
#[test]
fn others_read_tiles_of_three_levels() {
    const EVENTS: u64 = 256 * 256 + 300;
    let world = World::new("others_read_tiles_of_three_levels");
    let _ = world.run_inside("true").success();
    let key = key(&world);
    let old = opened(&checkpoint(&world), &key).unwrap();
    fill(&world, old.size(), EVENTS);
    let _ = checkpoint(&world);
    let tiles = export(&world, "tiles");
    let (newest, read) = whole(&tiles, &key).unwrap();
    assert_eq!((newest.size(), read.len() as u64), (EVENTS, EVENTS));
    for tile in ["0/256", "0/257.p/44", "1/000", "1/001.p/1", "2/000.p/1"] {
        assert!(tiles.join("tile").join(tile).exists(), "{tile}");
    }
    let last = proof(&world, "inclusion", EVENTS - 1);
    assert_eq!(included(&last, &key).unwrap().0, EVENTS - 1);
    let growth = proof(&world, "consistency", old.size());
    grown(&growth, &key, (old.size(), *old.hash())).unwrap();
}
