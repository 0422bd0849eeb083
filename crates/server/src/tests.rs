#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use crate::{Configuration, NetworkWord};

#[test]
fn the_configuration_is_read_whole_or_refused() {
    assert_eq!(Configuration::parse("").unwrap(), Configuration::default());
    let read = Configuration::parse("network = 'internet'\n[quota]\nsandboxes = 3").unwrap();
    assert_eq!(
        (read.network, read.quota.sandboxes),
        (NetworkWord::Internet, 3)
    );
    for wrong in [
        "listen = '10.0.0.1:80'",
        "listen = 'x'",
        "listn = ''",
        "[defaults]\nmemory = 1",
        "[defaults]\ncpus = 0",
        "[quota]\ncreates_a_minute = 0",
        "network = 'some'",
    ] {
        assert!(Configuration::parse(wrong).is_err(), "{wrong}");
    }
}
