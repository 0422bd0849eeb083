//! Signatures as AWS has published them, and as its own programs make them.

use hyper::header::{HeaderName, HeaderValue};

use super::*;

const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
const SECRET_OF_S3: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

struct Row {
    secret: &'static str,
    scope: &'static str,
    time: &'static str,
    method: &'static str,
    host: &'static str,
    target: &'static str,
    headers: &'static [(&'static str, &'static str)],
    signed: &'static str,
    payload: &'static str,
    path: PathCanonicalization,
    signature: &'static str,
}

impl Row {
    fn with<T>(&self, work: impl FnOnce(Signable<'_>) -> T) -> T {
        let mut headers = HeaderMap::new();
        for (name, value) in self.headers {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.append(name, HeaderValue::from_static(value));
        }
        let signed: Vec<String> = self.signed.split(';').map(str::to_owned).collect();
        work(Signable {
            method: self.method,
            target: self.target,
            headers: &headers,
            host: self.host,
            signed: &signed,
            payload: self.payload,
            time: self.time,
            scope: &Scope::parse(self.scope).unwrap(),
        })
    }
}

/// A row of AWS's test suite; others differ from it only in what they name.
const SUITE: Row = Row {
    secret: SECRET,
    scope: "20150830/us-east-1/service/aws4_request",
    time: "20150830T123600Z",
    method: "GET",
    host: "example.amazonaws.com",
    target: "/",
    headers: &[("x-amz-date", "20150830T123600Z")],
    signed: "host;x-amz-date",
    payload: EMPTY,
    path: PathCanonicalization::Sent,
    signature: "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
};

/// A row of the examples in the documentation of S3.
const S3: Row = Row {
    secret: SECRET_OF_S3,
    scope: "20130524/us-east-1/s3/aws4_request",
    time: "20130524T000000Z",
    host: "examplebucket.s3.amazonaws.com",
    headers: &[
        ("x-amz-content-sha256", EMPTY),
        ("x-amz-date", "20130524T000000Z"),
    ],
    signed: "host;x-amz-content-sha256;x-amz-date",
    target: "/?lifecycle",
    signature: "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
    ..SUITE
};

/// A row of botocore 1.44.5's signatures.
const BOTOCORE: Row = Row {
    scope: "20260102/eu-west-1/execute-api/aws4_request",
    time: "20260102T030405Z",
    host: "h.example",
    headers: &[("x-amz-date", "20260102T030405Z")],
    target: "/a%20b/%C3%A9/../x//y/?b=2&a=1&a=0&c=%2F",
    path: PathCanonicalization::Normal,
    signature: "d7f29ea6c1eabe974d61675480d2ee2b4d5126593c6fabe2b260a03cbd012399",
    ..SUITE
};

const ROWS: &[Row] = &[
    SUITE,
    Row {
        target: "/?Param2=value2&Param1=value1",
        signature: "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        ..SUITE
    },
    Row {
        method: "POST",
        signature: "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
        ..SUITE
    },
    Row {
        target: "/%E1%88%B4",
        signature: "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85",
        ..SUITE
    },
    Row {
        headers: &[
            ("my-header1", " value1"),
            ("my-header2", " \"a   b   c\""),
            ("x-amz-date", "20150830T123600Z"),
        ],
        signed: "host;my-header1;my-header2;x-amz-date",
        signature: "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736",
        ..SUITE
    },
    Row {
        scope: "20150830/us-east-1/iam/aws4_request",
        host: "iam.amazonaws.com",
        target: "/?Action=ListUsers&Version=2010-05-08",
        headers: &[
            (
                "content-type",
                "application/x-www-form-urlencoded; charset=utf-8",
            ),
            ("x-amz-date", "20150830T123600Z"),
        ],
        signed: "content-type;host;x-amz-date",
        signature: "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7",
        ..SUITE
    },
    S3,
    Row {
        target: "/?max-keys=2&prefix=J",
        signature: "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ..S3
    },
    Row {
        target: "/test.txt",
        headers: &[
            ("range", "bytes=0-9"),
            ("x-amz-content-sha256", EMPTY),
            ("x-amz-date", "20130524T000000Z"),
        ],
        signed: "host;range;x-amz-content-sha256;x-amz-date",
        signature: "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ..S3
    },
    Row {
        method: "PUT",
        target: "/test%24file.text",
        headers: &[
            ("date", "Fri, 24 May 2013 00:00:00 GMT"),
            (
                "x-amz-content-sha256",
                "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
            ),
            ("x-amz-date", "20130524T000000Z"),
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
        ],
        signed: "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
        payload: "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
        signature: "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        ..S3
    },
    // Within the query, where it is not of itself.
    Row {
        target: "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature=anything",
        headers: &[],
        signed: "host",
        payload: "UNSIGNED-PAYLOAD",
        signature: "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404",
        ..S3
    },
    BOTOCORE,
    Row {
        scope: "20260102/eu-west-1/lambda/aws4_request",
        method: "POST",
        target: "/2015-03-31/functions/arn%3Aaws%3Alambda/invocations",
        headers: &[
            ("x-amz-date", "20260102T030405Z"),
            ("x-amz-two", "  a   b "),
        ],
        signed: "host;x-amz-date;x-amz-two",
        payload: "015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862",
        signature: "da4f1a2d549e272d60b74d736dff5ea18ca7acd3d01e5532fe53d72417c5eda8",
        ..BOTOCORE
    },
    Row {
        scope: "20260102/eu-west-1/s3/aws4_request",
        target: "/a%20b/%C3%A9/../x//y/?list-type=2&prefix=a%2Fb",
        headers: &[
            ("x-amz-date", "20260102T030405Z"),
            ("x-amz-content-sha256", EMPTY),
        ],
        signed: "host;x-amz-content-sha256;x-amz-date",
        path: PathCanonicalization::Sent,
        signature: "eb5a32c7b1a332083e78892ff351d52e3ac3c776e0e2778a27d861ba76812af7",
        ..BOTOCORE
    },
];

#[test]
fn sigv4_matches_published_vectors() {
    for row in ROWS {
        let reading = Canonicalization {
            path: row.path,
            query: QueryCanonicalization::Sent,
        };
        row.with(|signable| {
            let what = format!("{} {}", row.method, row.target);
            assert_eq!(
                signable.sign(row.secret.as_bytes(), reading),
                row.signature,
                "{what}"
            );
            // Who has it is believed, by whichever reading; with another secret nobody is.
            let signature = Signature::parse(row.signature).unwrap();
            let proven = signable.proof(row.secret.as_bytes(), &signature);
            let proven = proven.expect(&what);
            let again = signable.sign(row.secret.as_bytes(), proven);
            assert_eq!(again, row.signature, "{what}");
            assert!(
                signable
                    .proof(b"another-secret-of-such-a-length", &signature)
                    .is_none()
            );
        });
    }
}

#[test]
fn sigv4_any_change_is_detected() {
    let row = &ROWS[ROWS.len() - 2];
    let signature = Signature::parse(row.signature).unwrap();
    let is_right = |row: &Row| {
        row.with(|signable| signable.proof(row.secret.as_bytes(), &signature).is_some())
    };
    assert!(is_right(row));
    let changed = [
        Row {
            method: "PUT",
            ..*row
        },
        Row {
            host: "i.example",
            ..*row
        },
        Row {
            target: "/2015-03-31/functions/arn%3Aaws%3Alambda/invocation",
            ..*row
        },
        Row {
            target: "/2015-03-31/functions/arn%3Aaws%3Alambda/invocations?a",
            ..*row
        },
        Row {
            time: "20260102T030406Z",
            ..*row
        },
        Row {
            scope: "20260102/eu-west-2/lambda/aws4_request",
            ..*row
        },
        Row {
            scope: "20260102/eu-west-1/s3/aws4_request",
            ..*row
        },
        Row {
            payload: EMPTY,
            ..*row
        },
        Row {
            signed: "host;x-amz-date",
            ..*row
        },
        Row {
            headers: &[("x-amz-date", "20260102T030405Z"), ("x-amz-two", "a c")],
            ..*row
        },
        Row {
            headers: &[
                ("x-amz-date", "20260102T030405Z"),
                ("x-amz-two", "a b"),
                ("x-amz-two", "c"),
            ],
            ..*row
        },
    ];
    for row in &changed {
        assert!(!is_right(row), "{} {}", row.method, row.target);
    }
}

#[test]
fn sigv4_malformed_scope_is_refused() {
    for text in [
        "",
        "20260102/eu-west-1/s3",
        "20260102/eu-west-1/s3/aws5_request",
        "20260102//s3/aws4_request",
        "20260102/eu-west-1/s3/aws4_request/",
        "20260102/eu-west-1/s3/aws4_request/more",
    ] {
        assert_eq!(Scope::parse(text), None, "{text}");
    }
    for text in ["", "00", &"0".repeat(63), &"0".repeat(66), &"g".repeat(64)] {
        assert!(Signature::parse(text).is_none(), "{text}");
    }
    assert!(Signature::parse(&"0".repeat(64)).is_some());
    assert!(undigested(EMPTY).is_some());
    assert!(undigested("UNSIGNED-PAYLOAD").is_none());
}
