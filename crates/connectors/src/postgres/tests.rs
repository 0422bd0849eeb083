//! First packets of programs, with any content.

use proptest::prelude::*;

use super::startup::{
    HEADER_BYTES, Key, PACKET_BYTES_MAX, Packet, PacketError, Startup, length, read,
};
use super::startup::{cancel_request, tls_request};

/// Returns a packet of version 3.0 with these bytes after it.
fn packet(text: &[u8]) -> Vec<u8> {
    [&(3_u32 << 16).to_be_bytes()[..], text].concat()
}

fn startup(text: &[u8]) -> Result<Startup, PacketError> {
    match read(&packet(text)) {
        Ok(Packet::Startup(startup)) => Ok(startup),
        Ok(other) => panic!("{other:?}"),
        Err(invalid) => Err(invalid),
    }
}

#[test]
fn postgres_startup_is_parsed_strictly() {
    let read_as = |text: &[u8]| {
        let Startup {
            user,
            database,
            parameters,
        } = startup(text).unwrap();
        (user, database, parameters.len())
    };
    let of = |user: &str, database: &str, more| (user.to_owned(), database.to_owned(), more);
    assert_eq!(
        read_as(b"user\0app\0database\0shop\0\0"),
        of("app", "shop", 0)
    );
    // Its own name is the database of a user who names none.
    assert_eq!(read_as(b"user\0app\0\0"), of("app", "app", 0));
    assert_eq!(read_as(b"database\0\0user\0app\0\0"), of("app", "app", 0));
    let more =
        b"user\0app\0application_name\0psql\0options\0-c work_mem=1 -cGEQO=off\0DateStyle\0ISO\0\0";
    assert_eq!(read_as(more), of("app", "app", 3));
    let malformed: &[&[u8]] = &[
        b"",
        b"\0",
        b"user\0app\0",
        b"user\0app",
        b"user\0app\0\0\0",
        b"user\0app\0\0x",
        b"user\0\0\0",
        b"user\0app\0user\0root\0\0",
        b"user\0app\0database\0a\0database\0b\0\0",
        b"user\0app\0User\0root\0\0",
        b"user\0app\0DATABASE\0other\0\0",
        b"user\0a\np\0\0",
        b"user\0\xff\0\0",
        b"user\0app\0a b\0c\0\0",
        b"user\0app\0TimeZone\0a\0timezone\0b\0\0",
    ];
    for text in malformed {
        let invalid = startup(text).unwrap_err();
        assert!(matches!(invalid, PacketError::Malformed(_)), "{invalid:?}");
    }
    let refused: &[&[u8]] = &[
        b"user\0app\0replication\0database\0\0",
        b"user\0app\0Replication\0true\0\0",
        b"user\0app\0_pq_.command\0x\0\0",
        b"user\0app\0options\0endpoint=other\0\0",
        b"user\0app\0options\0--cluster=other\0\0",
        b"user\0app\0Options\0project=other\0\0",
        b"user\0app\0options\0-c\0\0",
        b"user\0app\0options\0-c geqo=a\\ -cb=c\0\0",
        b"user\0app\0options\0-c geqo=on -h\0\0",
        // What stands before a server may take these for another one.
        b"user\0app\0options\0-c cluster=other\0\0",
        b"user\0app\0options\0-ccluster=other\0\0",
        b"user\0app\0options\0-c geqo=on -cCluster=other\0\0",
        b"user\0app\0options\0-c a.b=1\0\0",
        b"user\0app\0options\0-c application_name=-ccluster=other\0\0",
        b"user\0app\0options\0-c application_name=--cluster=other\0\0",
        "user\0app\0options\0-c geqo=on\u{a0}-ccluster\0\0".as_bytes(),
    ];
    for text in refused {
        let invalid = startup(text).unwrap_err();
        assert!(matches!(invalid, PacketError::Refused(_)), "{invalid:?}");
    }
    let many = "a\0b\0".replace('a', "k");
    let many: String = (0..65)
        .map(|at| many.replace('k', &format!("k{at}")))
        .collect();
    let many = [b"user\0app\0", many.as_bytes(), b"\0"].concat();
    assert!(startup(&many).is_err());
    for version in [2 << 16, (3 << 16) + 1, 4 << 16, 0] {
        let text = [&u32::to_be_bytes(version)[..], b"user\0app\0\0"].concat();
        assert_eq!(read(&text), Err(PacketError::Version));
    }
}

#[test]
fn postgres_negotiation_has_no_trailing_bytes() {
    let without_length = |packet: Vec<u8>| packet[4..].to_vec();
    let tls = without_length(tls_request());
    assert_eq!(read(&tls), Ok(Packet::Tls));
    assert!(read(&[&tls[..], &[0]].concat()).is_err());
    assert!(read(&tls[..3]).is_err());
    let key = Key {
        process: 7,
        secret: u32::MAX,
    };
    let cancel = without_length(cancel_request(key));
    assert_eq!(read(&cancel), Ok(Packet::Cancel(key)));
    assert!(read(&cancel[..11]).is_err());
    assert!(read(&[&cancel[..], &[0]].concat()).is_err());
    assert!(!format!("{key:?}").contains('7'));
}

#[test]
fn postgres_packet_length_is_bounded() {
    let of = |bytes: usize| length(u32::try_from(bytes).unwrap().to_be_bytes());
    assert_eq!(of(HEADER_BYTES), Ok(HEADER_BYTES));
    assert_eq!(of(PACKET_BYTES_MAX), Ok(PACKET_BYTES_MAX));
    for bytes in [
        0,
        4,
        HEADER_BYTES - 1,
        PACKET_BYTES_MAX + 1,
        u32::MAX as usize,
    ] {
        assert!(of(bytes).is_err(), "{bytes}");
    }
}

proptest! {
    /// A parsed packet is sent on in one form, which is parsed as the same; nothing panics.
    #[test]
    fn postgres_startup_is_sent_as_judged(text in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&text);
        if let Ok(startup) = startup(&text) {
            check(&startup)?;
        }
    }

    #[test]
    fn postgres_names_round_trip(
        names in prop::collection::vec(("[a-zA-Z_.]{0,12}", "[^\0]{0,12}"), 0..6)
    ) {
        let mut text = Vec::new();
        for (name, value) in [("user".to_owned(), "app".to_owned())].iter().chain(&names) {
            text.extend([name.as_bytes(), &[0], value.as_bytes(), &[0]].concat());
        }
        text.push(0);
        if let Ok(startup) = startup(&text) {
            check(&startup)?;
        }
    }
}

fn check(startup: &Startup) -> Result<(), TestCaseError> {
    let sent = startup.packet();
    let header = *sent.first_chunk().unwrap();
    if let Ok(whole) = length(header) {
        prop_assert_eq!(whole, sent.len());
    }
    prop_assert_eq!(read(&sent[4..]), Ok(Packet::Startup(startup.clone())));
    Ok(())
}
