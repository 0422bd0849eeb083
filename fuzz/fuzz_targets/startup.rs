//! The first packet of PostgreSQL: what is sent on is what was judged.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../crates/connectors/src/postgres/startup.rs"]
mod startup;

use startup::{Packet, read};

fuzz_target!(|bytes: &[u8]| {
    let Ok(packet) = read(bytes) else {
        return;
    };
    if let Packet::Startup(startup) = &packet {
        let sent = startup.packet();
        let words = |bytes: &[u8]| {
            bytes
                .split(|byte| *byte == 0)
                .map(<[u8]>::to_vec)
                .collect::<Vec<_>>()
        };
        // Nothing is in it that was not in what was read, but for the database of a user who
        // names none, and in the same order.
        let before = words(bytes.get(4..).unwrap_or_default());
        for word in words(sent.get(8..).unwrap_or_default()) {
            assert!(before.contains(&word) || word == b"database");
        }
        assert_eq!(read(&sent[4..]).as_ref(), Ok(&packet));
        assert!(!startup.user.is_empty() && !startup.database.is_empty());
        let other = |name: &str| {
            let is_one = |(one, _): &(String, String)| one.eq_ignore_ascii_case(name);
            startup.parameters.iter().any(is_one)
        };
        assert!(!["user", "database", "replication"].into_iter().any(other));
    }
});
