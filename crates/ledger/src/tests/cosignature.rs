use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::*;
use crate::note::{key_id, typed_key};

const NAME: &str = "witness.example/w1";
const TIME_S: u64 = 1_679_315_147;

/// Makes the key of a witness, and its line for a checkpoint.
fn cosign(seed: u8, checkpoint: &Checkpoint) -> (WitnessKey, String) {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap();
    let public = pair.public_key().as_ref();
    let key = WitnessKey::parse(&typed_key(NAME, 4, public)).unwrap();
    let (body, _) = checkpoint.text().rsplit_once("\n\n").unwrap();
    let text = format!("cosignature/v1\ntime {TIME_S}\n{body}\n");
    let mut bytes = key_id(NAME, 4, public).to_vec();
    bytes.extend_from_slice(&TIME_S.to_be_bytes());
    bytes.extend_from_slice(pair.sign(text.as_bytes()).as_ref());
    (key, format!("\u{2014} {NAME} {}\n", STANDARD.encode(bytes)))
}

#[test]
fn a_cosignature_holds_for_its_checkpoint_and_no_other() {
    let place = Place::new();
    note(&place.ledger(), 1);
    let first = place.ledger().checkpoint(&place.state).unwrap();
    note(&place.ledger(), 2);
    let second = place.ledger().checkpoint(&place.state).unwrap();
    let (key, line) = cosign(1, &first);
    let (other, foreign) = cosign(2, &first);
    assert_eq!(WitnessKey::parse(&key.to_string()), Ok(key.clone()));

    let cosigned = Cosigned::of(&first, &format!("{foreign}{line}"), &key).unwrap();
    assert_eq!(cosigned.time_s, TIME_S);
    assert_eq!(cosigned.note, format!("{}{line}", first.text()));
    // The ledger's own key opens it as before, which is how it is kept and read.
    let own = Ledger::key(&place.state).unwrap();
    assert_eq!(Checkpoint::open(&cosigned.note, &own).unwrap().size(), 1);
    assert_eq!(Cosigned::kept_size(&place.state, &own), None);
    cosigned.keep(&place.state).unwrap();
    assert_eq!(Cosigned::kept_size(&place.state, &own), Some(1));

    assert!(matches!(
        Cosigned::of(&second, &line, &key),
        Err(NoteFault::BadSignature(_))
    ));
    for lines in ["", &foreign] {
        let refused = Cosigned::of(&first, lines, &key);
        assert!(matches!(refused, Err(NoteFault::OtherKey(_))), "{lines}");
    }
    assert!(Cosigned::of(&first, &foreign, &other).is_ok());
    for (at, _) in line.char_indices() {
        let changed: String = line
            .char_indices()
            .map(|(here, one)| match (here == at, one) {
                (true, 'A') => 'B',
                (true, _) => 'A',
                (false, one) => one,
            })
            .collect();
        assert!(Cosigned::of(&first, &changed, &key).is_err(), "{changed}");
    }
}

#[test]
fn a_key_of_another_type_is_no_witness() {
    let place = Place::new();
    note(&place.ledger(), 1);
    let own = Ledger::key(&place.state).unwrap().to_string();
    let (key, _) = cosign(1, &place.ledger().checkpoint(&place.state).unwrap());
    for text in [own.as_str(), "", "a+b+c", &key.to_string()[1..]] {
        assert!(WitnessKey::parse(text).is_err(), "{text}");
    }
    assert!(VerifierKey::parse(&key.to_string()).is_err());
}
