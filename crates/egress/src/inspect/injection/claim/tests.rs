//! Tests of signatures that can be read, and of others.

use hyper::Request;

use super::*;

const ID: &str = "AKIAPLACEHOLDER00001";
const SIGNATURE_TEXT: &str = "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31";
/// A minute after the time in the rows.
const NOW_S: u64 = 1_767_323_105;

fn authorization() -> String {
    format!(
        "AWS4-HMAC-SHA256 Credential={ID}/20260102/eu-west-1/s3/aws4_request, \
         SignedHeaders=host;x-amz-date, Signature={SIGNATURE_TEXT}"
    )
}

fn query() -> String {
    format!(
        "a=b&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={ID}%2F20260102%2Feu-west-1%2Fs3%2Faws4_request&\
         X-Amz-Date=20260102T030405Z&X-Amz-Expires=600&X-Amz-SignedHeaders=host&X-Amz-Signature={SIGNATURE_TEXT}"
    )
}

fn read_at(headers: &[(&str, &str)], query: &str, seconds: u64) -> Result<Claim, String> {
    let mut request = Request::builder().uri("/");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let (parts, ()) = request.body(()).unwrap().into_parts();
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    Claim::read(&parts.headers, query, ID, now)
}

fn read(headers: &[(&str, &str)], query: &str) -> Result<Claim, String> {
    read_at(headers, query, NOW_S)
}

const DATED: (&str, &str) = ("x-amz-date", "20260102T030405Z");
const IN_PIECES: (&str, &str) = ("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD");
const WITH_TRAILERS: (&str, &str) = (
    "x-amz-content-sha256",
    "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
);

#[test]
fn chunked_body_claim_is_parsed_strictly() {
    let written = authorization().replace(
        "host;x-amz-date",
        "host;x-amz-date;x-amz-decoded-content-length;x-amz-trailer",
    );
    let begun = [("authorization", &written[..]), DATED];
    type Read = Result<(u64, Option<Vec<String>>), String>;
    let told = |more: &[(&str, &str)]| -> Read {
        match read(&[&begun[..], more].concat(), "")?.payload {
            Payload::Pieces { told, body } => {
                assert_eq!(told, more[0].1);
                Ok((body.bytes, body.trailers))
            }
            other => panic!("{other:?}"),
        }
    };
    let length = |text| ("x-amz-decoded-content-length", text);
    let trailer = |text| ("x-amz-trailer", text);
    let named = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
    assert_eq!(told(&[IN_PIECES, length("66560")]), Ok((66560, None)));
    type Headers<'a> = &'a [(&'a str, &'a str)];
    let rows: [(Headers<'_>, Option<Vec<String>>); 3] = [
        (&[], named(&[])),
        (
            &[trailer("x-amz-checksum-crc32")],
            named(&["x-amz-checksum-crc32"]),
        ),
        (&[trailer("X-A, x-b")], named(&["x-a", "x-b"])),
    ];
    for (more, names) in rows {
        let all = [&[WITH_TRAILERS, length("0")], more].concat();
        assert_eq!(told(&all), Ok((0, names)));
    }
    for (row, why) in [
        (&[IN_PIECES][..], "without X-Amz-Decoded-Content-Length"),
        (
            &[IN_PIECES, length("")],
            "without X-Amz-Decoded-Content-Length",
        ),
        (
            &[IN_PIECES, length("+1")],
            "without X-Amz-Decoded-Content-Length",
        ),
        (
            &[IN_PIECES, length("1 ")],
            "without X-Amz-Decoded-Content-Length",
        ),
        (
            &[IN_PIECES, length("18446744073709551616")],
            "without X-Amz-Decoded",
        ),
        (&[IN_PIECES, length("1"), length("1")], "more than once"),
        (
            &[WITH_TRAILERS, length("1"), trailer("a"), trailer("b")],
            "more than once",
        ),
    ] {
        let refused = told(row).unwrap_err();
        assert!(refused.contains(why), "{row:?}: {refused}");
    }
    // In a query there is no signature that pieces could follow.
    let query = format!("{}&X-Amz-Content-Sha256={}", query(), IN_PIECES.1);
    assert!(read(&[], &query).unwrap_err().contains("as it is written"));
}

#[test]
fn signature_is_read_from_header_and_query() {
    let written = authorization();
    let both = [("authorization", &written[..]), DATED];
    let claim = read(&both, "a=b").unwrap();
    assert_eq!((claim.form, claim.payload), (Form::Header, Payload::Digest));
    assert_eq!(claim.scope.text(), "20260102/eu-west-1/s3/aws4_request");
    assert_eq!(claim.signed, ["host", "x-amz-date"]);
    for told in [
        "UNSIGNED-PAYLOAD",
        "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        SIGNATURE_TEXT,
    ] {
        let claim = read(&[both[0], DATED, ("x-amz-content-sha256", told)], "");
        assert_eq!(claim.unwrap().payload, Payload::Told(told.to_owned()));
    }
    let claim = read(&[], &query()).unwrap();
    let unsigned = Payload::Told("UNSIGNED-PAYLOAD".to_owned());
    assert_eq!((claim.form, claim.payload), (Form::Query, unsigned));
    let of_another = query().replace("%2Fs3%2F", "%2Fpolly%2F");
    assert_eq!(read(&[], &of_another).unwrap().payload, Payload::Digest);
}

#[test]
fn signature_time_must_be_current() {
    let written = authorization();
    let both = [("authorization", &written[..]), DATED];
    let made = NOW_S - 60;
    for (seconds, is_good) in [
        (made - 901, false),
        (made - 900, true),
        (made + 900, true),
        (made + 901, false),
    ] {
        let read = read_at(&both, "", seconds);
        assert_eq!(read.is_ok(), is_good, "{seconds}: {read:?}");
    }
    for (seconds, is_good) in [
        (made - 901, false),
        (made - 900, true),
        (made + 600, true),
        (made + 601, false),
    ] {
        let read = read_at(&[], &query(), seconds);
        assert_eq!(read.is_ok(), is_good, "{seconds}: {read:?}");
    }
}

#[test]
fn signature_ambiguous_is_refused() {
    let with = |from: &str, to: &str| {
        let written = authorization();
        assert!(written.contains(from), "{from}");
        written.replace(from, to)
    };
    let two_credentials = format!(
        "{}, Credential={ID}/20260102/eu-west-1/s3/aws4_request",
        authorization()
    );
    for (written, why) in [
        (with("AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256"), "SigV4A"),
        (
            with("AWS4-HMAC-SHA256", "AWS4-HMAC-SHA512"),
            "is not of AWS4-HMAC-SHA256",
        ),
        (two_credentials, "more than once"),
        (with("Credential=", "Credential=x"), "cannot be read"),
        (
            with("AKIAPLACEHOLDER00001/", "AKIAPLACEHOLDER00001x/"),
            "cannot be read",
        ),
        (with("host;x-amz-date", "x-amz-date"), "is not of the host"),
        (
            with("host;x-amz-date", "host"),
            "is not of the header x-amz-date",
        ),
        (
            with("host;x-amz-date", "x-amz-date;host"),
            "signed headers in a way",
        ),
        (
            with("host;x-amz-date", "host;host;x-amz-date"),
            "signed headers in a way",
        ),
        (
            with("host;x-amz-date", "Host;x-amz-date"),
            "signed headers in a way",
        ),
        (with("host;", "content\u{e9};host;"), "cannot be read"),
        (with("20260102/", "20260103/"), "has two dates"),
        (with("20260102/", "/"), "cannot be read"),
        (with("Signature=5f", "Signature=5"), "cannot be read"),
        (with(", Signature", ", Other"), "cannot be read"),
    ] {
        let refused = read(&[("authorization", &written), DATED], "").unwrap_err();
        assert!(refused.contains(why), "{written}: {refused}");
    }
    let one = authorization();
    let one = ("authorization", &one[..]);
    let beside = ("authorization", "Bearer other");
    type Headers<'a> = &'a [(&'a str, &'a str)];
    let rows: &[(Headers<'_>, &str, &str)] = &[
        (&[one], "", "no X-Amz-Date"),
        (&[one, DATED, DATED], "", "more than once"),
        (&[one, beside, DATED], "", "more than once"),
        (&[beside, one, DATED], "", "more than once"),
        (&[one, DATED], "X-Amz-Signature=00", "more than once"),
        (&[one, DATED], "x-amz-credential=00", "cannot be read"),
        (&[one, DATED], "X-Amz-Security-Token=00", "more than once"),
        (
            &[one, ("x-amz-date", "20260102T030465Z")],
            "",
            "date that cannot",
        ),
        (
            &[one, ("x-amz-date", "20261302T030405Z")],
            "",
            "date that cannot",
        ),
        (
            &[one, ("x-amz-date", "Fri, 02 Jan 2026")],
            "",
            "date that cannot",
        ),
        (&[one, DATED, ("x-amz-acl", "public-read")], "", "x-amz-acl"),
        (
            &[one, DATED, IN_PIECES],
            "",
            "without X-Amz-Decoded-Content-Length",
        ),
        (
            &[
                one,
                DATED,
                ("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-EVENTS"),
            ],
            "",
            "as it is written",
        ),
        (
            &[one, DATED, ("x-amz-content-sha256", "nothing")],
            "",
            "cannot be read",
        ),
    ];
    for (headers, query, why) in rows {
        let refused = read(headers, query).unwrap_err();
        assert!(refused.contains(why), "{headers:?} {query}: {refused}");
    }
    for (from, to, why) in [
        (
            "X-Amz-Date=",
            "X-Amz-Date=20260102T030405Z&X-Amz-Date=",
            "more than once",
        ),
        ("X-Amz-Date=", "x-amz-date=1&X-Amz-Date=", "more than once"),
        ("Expires=600", "Expires=0", "time that cannot be read"),
        ("Expires=600", "Expires=604801", "time that cannot be read"),
        ("Expires=600", "Expires=+600", "time that cannot be read"),
        ("X-Amz-Expires=600&", "", "cannot be read"),
        (
            "SignedHeaders=host",
            "SignedHeaders=date",
            "is not of the host",
        ),
        ("AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256", "SigV4A"),
    ] {
        let query = query();
        assert!(query.contains(from), "{from}");
        let refused = read(&[], &query.replace(from, to)).unwrap_err();
        assert!(refused.contains(why), "{to}: {refused}");
    }
    let refused = read(&[DATED], &query()).unwrap_err();
    assert!(refused.contains("more than once"), "{refused}");
}

#[test]
fn signature_scope_must_match_binding() {
    let written = authorization();
    let claim = read(&[("authorization", &written), DATED], "").unwrap();
    let bound = |regions: &[&str], services: &[&str]| SignatureScope {
        regions: regions.iter().map(|one| (*one).to_owned()).collect(),
        services: services.iter().map(|one| (*one).to_owned()).collect(),
    };
    let beyond = |regions: &[&str], services: &[&str]| claim.is_beyond(&bound(regions, services));
    assert_eq!(beyond(&["us-east-1", "eu-west-1"], &["sts", "s3"]), None);
    assert!(
        beyond(&["us-east-1"], &["s3"])
            .unwrap()
            .contains("the region \"eu-west-1\"")
    );
    assert!(
        beyond(&["eu-west-1"], &["s"])
            .unwrap()
            .contains("the service \"s3\"")
    );
    assert!(beyond(&[], &[]).is_some());
}
