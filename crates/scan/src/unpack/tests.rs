use std::io::{Read, Write};

use zip::write::{SimpleFileOptions, ZipWriter};

use super::*;
use crate::{Finding, Rules, Scanner, scan};

/// An archive of `tar` with two entries, `bzip2 -9`.
const TAR_BZIP2: &str = "\
    425a6839314159265359e5c7b86200009f5f82ca906801fde26448ddb07be7ff40000808083000b921aa26418ca6\
    3d50068340c836a66286daa1800000001a0d006806804a242683d4d0f287a81a00000681a7bead2952a8c4009044\
    415444074740f2b044e68c2544105025e6fe921e1f4d1dbbc2e90262673041a2821cb844216e3cea54cb0bf6c237\
    0406d2b42423e13abeeda15ed399755b1dd369b2054343e08b8aaf0c38195c57931a9ecee750b36d2663d477619d\
    724b279c4a7c3a2d43289c11894e6d61e781fc5dc914e14243971ee188";

/// The text by `xz -9`.
const TAR_XZ: &str = "\
    fd377a585a000004e6d6b446020021011c00000010cf58cce027ff00b95d00319bca18850c9370d5f1cdc2231478\
    86fc8b6412a9a281932a16e7eb6fa7355986e8e6349816bc628b4aa6ad8c037bac09a793bce6be934c51c3134fea\
    031561ac2497acd0c8ee1fcd96cc4711f0db10c2da4035af7a55de052f47e6f06bf238434b4112fa517b8b798116\
    20d003aff70109713976d365e17210ca4dcc82e2ec15ba1f7dbbbaa12287f217495efa100a4c7f0e97c02a68b6ae\
    962bd13a2732bbf32d3dea4bcbe6efe1acaf39d24fcba4bbbb82e9f6d383db0000000000e5ce58f5435921b10001\
    d501805000007ae8233db1c467fb020000000004595a";

/// The text by `zstd -19`.
const TAR_ZSTD: &str = "\
    28b52ffd0468bd040072471a1850db01aa11bab066a89ecdfa10798812431ab067e64830295d16090c8ee14d7173\
    ff6f207a1b06bcb210068b1c897bff998bffb406ec0621daa5bc55436c49a3236709c93c94845595330106e3b47b\
    e76b96677bd06e0d37bcbd8fea5dabf5461f13e3780beec52d10207097dd0eff3f881ec01d40ea30707563eab32c\
    758004607cdaea9ba30e903c24c7400e0605b034892feabff8cf";

/// Two streams of bzip2, one of several blocks.
const TWO_BZIP2: &str = "\
    425a6839314159265359521c933f000004110040000244a000223f546419a0a8e45c78bb9229c2848290e499f842\
    5a6831314159265359dd466846001f39c1c0c0000404908000020008200050860409aaa699a3aa921ad4408bfa1c\
    a194328708ee4a48785dc914e142437519a118";

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn scanned(scanner: Scanner, content: &[u8]) -> Result<Vec<Finding>, Unscanned> {
    scan(scanner, content, &Rules::built_in().unwrap())
}

fn found(scanner: Scanner, content: &[u8]) -> Vec<(String, String)> {
    let found = scanned(scanner, content).unwrap().into_iter();
    found.map(|one| (one.rule, one.place)).collect()
}

fn zipped(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in entries {
        zip.start_file(*name, SimpleFileOptions::default()).unwrap();
        zip.write_all(content).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

fn gzipped(content: &[u8]) -> Vec<u8> {
    let mut to = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    to.write_all(content).unwrap();
    to.finish().unwrap()
}

#[test]
fn compressed_archives_are_looked_through() {
    for packed in [TAR_BZIP2, TAR_XZ, TAR_ZSTD].map(bytes) {
        assert!(found(Scanner::Archives, &packed).is_empty());
        for (scanner, rule, place) in [
            (Scanner::Secrets, "assigned-secret", "conf/app.env, line 2"),
            (Scanner::PersonalData, "e-mail", "bin/run, line 2"),
            (Scanner::Programs, "script", "bin/run, byte 0"),
        ] {
            let expected = [(rule.to_owned(), place.to_owned())];
            assert_eq!(found(scanner, &packed), expected);
            let within = zipped(&[("a.txt", b"text"), ("in.tar", &packed)]);
            let expected = [(rule.to_owned(), format!("in.tar: {place}"))];
            assert_eq!(found(scanner, &within), expected);
        }
    }
}

/// The bytes of an archive that stores them as they are have findings too, once.
#[test]
fn findings_are_told_once() {
    let mut stored = Vec::new();
    Stream::Zstd
        .reader(&bytes(TAR_ZSTD))
        .read_to_end(&mut stored)
        .unwrap();
    let expected = [("e-mail".to_owned(), "bin/run, line 2".to_owned())];
    assert_eq!(found(Scanner::PersonalData, &stored), expected);
    // Behind the last entry, which only the bytes have.
    stored.extend(b"\nben@example.org");
    assert_eq!(found(Scanner::PersonalData, &stored), expected);
    let zip = [zipped(&[("a", b"text")]), b"4111 1111 1111 1111".to_vec()].concat();
    assert_eq!(found(Scanner::PersonalData, &zip).len(), 1);
}

#[test]
fn damaged_streams_are_no_pass() {
    for packed in [TAR_BZIP2, TAR_XZ, TAR_ZSTD].map(bytes) {
        for scanner in [Scanner::Archives, Scanner::Secrets, Scanner::Programs] {
            let cut = scanned(scanner, &packed[..packed.len() - 20]);
            assert!(matches!(cut, Err(Unscanned::Unreadable(_))), "{cut:?}");
        }
    }
    // Their checksums are of each byte.
    for packed in [TAR_BZIP2, TAR_XZ].map(bytes) {
        for at in (12..packed.len() - 12).step_by(3) {
            let mut damaged = packed.clone();
            damaged[at] ^= 0x10;
            let scanned = scanned(Scanner::PersonalData, &damaged);
            assert!(scanned.is_err(), "{at}");
        }
    }
}

#[test]
fn several_streams_of_bzip2_are_one() {
    let mut unpacked = Vec::new();
    let packed = bytes(TWO_BZIP2);
    Stream::Bzip2
        .reader(&packed)
        .read_to_end(&mut unpacked)
        .unwrap();
    let expected = [
        "hello ".repeat(3).into_bytes(),
        "world".repeat(60).into_bytes(),
    ]
    .concat();
    assert_eq!(unpacked[..expected.len()], expected);
    assert_eq!(unpacked.len(), expected.len() + 1_000_000);
    assert!(unpacked[expected.len()..].iter().all(|byte| *byte == 0));
    for cut in 0..packed.len() {
        let read = Stream::Bzip2
            .reader(&packed[..cut])
            .read_to_end(&mut Vec::new());
        // The first stream is whole alone.
        assert_eq!(read.is_ok(), cut == 45, "{cut}");
    }
}

/// A bound that is hit is an error for whoever looks at content, and a finding for archives.
#[test]
fn bounds_are_no_pass() {
    let zeros = vec![0; 8 << 20];
    let mut nested = b"text".to_vec();
    for _ in 0..4 {
        nested = gzipped(&nested);
    }
    let many: Vec<String> = (0..=ENTRIES_MAX).map(|number| number.to_string()).collect();
    let many: Vec<(&str, &[u8])> = many.iter().map(|name| (name.as_str(), &b""[..])).collect();
    for (packed, rule) in [
        (gzipped(&zeros), "grows-without-bounds"),
        (zipped(&[("bomb", &zeros)]), "grows-without-bounds"),
        (nested, "nested-archives"),
        (zipped(&many), "many-entries"),
    ] {
        let told = found(Scanner::Archives, &packed);
        assert_eq!(told.first().map(|(one, _)| one.as_str()), Some(rule));
        for scanner in [Scanner::Secrets, Scanner::PersonalData, Scanner::Programs] {
            let scanned = scanned(scanner, &packed);
            assert!(
                matches!(scanned, Err(Unscanned::Unreadable(_))),
                "{scanned:?}"
            );
        }
    }
}

#[test]
fn unknown_archives_are_no_pass() {
    for (first, _) in UNKNOWN {
        let content = [first, b"more"].concat();
        for scanner in [Scanner::Archives, Scanner::Secrets, Scanner::PersonalData] {
            assert!(scanned(scanner, &content).is_err());
            assert!(scanned(scanner, &zipped(&[("in", &content)])).is_err());
        }
    }
    for text in ["BZh", "BZhang", "Rar", "7z", "LZIP", "PK", "MSCF"] {
        assert_eq!(scanned(Scanner::Secrets, text.as_bytes()), Ok(Vec::new()));
    }
}
