//! Texts that look like secrets, and are none: ids, digests, placeholders, references to secrets, keys
//! that are public, code about passwords.

use super::random::{Random, base64};
use super::{Sample, surrounded};

/// The samples of each form.
const EACH: usize = 6;

/// Lines without a secret; `«..»` are filled.
const LINES: [(&str, &str); 78] = [
    // Ids and digests.
    ("uuid", "request_id: «h:8»-«h:4»-4«h:3»-a«h:3»-«h:12»"),
    (
        "uuid-key",
        "  \"idempotency_key\": \"«h:8»-«h:4»-4«h:3»-b«h:3»-«h:12»\",",
    ),
    ("git-commit", "commit «h:40»"),
    ("git-checkout", "        ref: «h:40»"),
    (
        "git-dependency",
        "foo = { git = \"https://github.com/a/foo\", rev = \"«h:40»\" }",
    ),
    ("action", "      - uses: actions/checkout@«h:40» # v4"),
    ("sha256sum", "«h:64»  dist/app-1.0.tar.gz"),
    ("sha256-hash", "--hash=sha256:«h:64» \\"),
    ("checksum", "checksum = \"«h:64»\""),
    ("md5", "md5: «h:32»"),
    ("image-digest", "FROM debian@sha256:«h:64»"),
    ("integrity", "      \"integrity\": \"sha512-«b:86»==\","),
    (
        "subresource",
        "<script src=\"a.js\" integrity=\"sha384-«b:64»\" crossorigin></script>",
    ),
    ("go-sum", "golang.org/x/net v0.17.0 h1:«b:43»="),
    ("etag", "ETag: \"«h:32»\""),
    ("trace", "traceparent: 00-«h:32»-«h:16»-01"),
    ("nix", "  sha256 = \"«l:52»\";"),
    ("cache-key", "cache_key = \"build-«h:40»\""),
    ("object-id", "db.users.find({ _id: ObjectId(\"«h:24»\") })"),
    ("partition-key", "partition_key = \"customer_region\""),
    ("session-id-name", "PRIMARY KEY (session_key, user_id)"),
    (
        "s3-key",
        "s3.get_object(Bucket=\"data\", Key=\"exports/2026/05/report-«h:8».csv\")",
    ),
    (
        "i18n-key",
        "  \"password_reset_key\": \"auth.password.reset.title\",",
    ),
    (
        "api-key-id",
        "api_key_id = \"«h:8»-«h:4»-4«h:3»-a«h:3»-«h:12»\"",
    ),
    ("ulid", "event «U:26» stored"),
    ("color-tokens", "  --color-token-primary: #«h:6»;"),
    (
        "font",
        "src: url(data:font/woff2;base64,d09GMgABAAAA«b:300»)",
    ),
    (
        "image",
        "<img src=\"data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAA«b:400»\">",
    ),
    (
        "source-map",
        "//# sourceMappingURL=data:application/json;base64,eyJ2ZXJzaW9uIjozLCJmaWxlIjoi«b:200»",
    ),
    ("bitcoin-txid", "txid «h:64» confirmed"),
    // Placeholders.
    ("angle", "API_KEY=<YOUR_API_KEY>"),
    ("your-key", "api_key: \"your-api-key-goes-here\""),
    ("your-under", "ANTHROPIC_API_KEY=your_api_key_here"),
    (
        "xxxx",
        "GITHUB_TOKEN=ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    ),
    (
        "xxxx-key",
        "secret_key = \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"",
    ),
    ("stars", "password: \"****************\""),
    ("dots", "export TOKEN=\"sk_live_...\""),
    ("changeme", "DB_PASSWORD=changeme"),
    ("change-me-long", "SECRET_KEY=change-me-in-production"),
    ("insert", "client_secret = \"INSERT_CLIENT_SECRET_HERE\""),
    ("replace", "password: REPLACE_WITH_REAL_PASSWORD"),
    ("later", "api_token = \"SET_ME_LATER\""),
    ("empty", "password = \"\""),
    ("null", "\"password\": null, \"token\": false"),
    ("aws-example", "aws_access_key_id = AKIAIOSFODNN7EXAMPLE"),
    (
        "aws-example-secret",
        "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    ),
    ("dummy", "fake_token = \"dummy-token-for-tests\""),
    ("test-password", "login(user='alice', password='test')"),
    ("example-password", "  password: examplePassword123"),
    (
        "url-placeholder",
        "DATABASE_URL=postgres://user:password@localhost:5432/app",
    ),
    ("url-angle", "postgres://<user>:<password>@<host>/db"),
    ("zeros", "token: \"00000000000000000000000000000000\""),
    ("sequence", "api_key = \"1234567890abcdef1234567890abcdef\""),
    ("redacted", "authorization: Bearer [REDACTED]"),
    ("bearer-doc", "Authorization: Bearer YOUR_ACCESS_TOKEN"),
    // References.
    ("env-dollar", "PASSWORD=${DB_PASSWORD}"),
    ("env-simple", "export TOKEN=$GITHUB_TOKEN"),
    ("env-url", "url: postgres://app:${DB_PASSWORD}@db/app"),
    (
        "actions-secret",
        "        token: ${{ secrets.GITHUB_TOKEN }}",
    ),
    ("jinja", "db_password: \"{{ vault_db_password }}\""),
    ("python-env", "password = os.environ[\"DATABASE_PASSWORD\"]"),
    (
        "python-getenv",
        "api_key = os.getenv(\"SERVICE_API_KEY_PRODUCTION\")",
    ),
    ("node-env", "const apiKey = process.env.SERVICE_API_KEY;"),
    ("go-env", "secret := os.Getenv(\"CLIENT_SECRET_VALUE\")"),
    (
        "rust-env",
        "let api_key = std::env::var(\"SERVICE_API_KEY\")?;",
    ),
    (
        "java-config",
        "String password = config.getString(\"database.password\");",
    ),
    ("terraform-var", "  password = var.database_password"),
    (
        "terraform-data",
        "  secret = data.aws_secretsmanager_secret_version.db.secret_string",
    ),
    (
        "k8s-ref",
        "        secretKeyRef: { name: database-credentials, key: password }",
    ),
    ("secret-name", "secretName: wildcard-example-com-tls"),
    (
        "secret-file",
        "password_file: /run/secrets/database_password",
    ),
    (
        "arn",
        "SecretId: arn:aws:secretsmanager:eu-west-1:«d:12»:secret:prod/db-«a:6»",
    ),
    // Code and words about them.
    (
        "password-type",
        "interface Login { username: string; password: string; remember: boolean }",
    ),
    (
        "password-field",
        "password = forms.CharField(widget=forms.PasswordInput, min_length=12)",
    ),
    (
        "function",
        "let access_token = self.token_of_session(session_id);",
    ),
    (
        "hash-call",
        "password_hash = generate_password_hash(form.password.data)",
    ),
    (
        "error-text",
        "throw new Error('password: must have at least twelve characters');",
    ),
    ("constant", "AUTH_TOKEN_HEADER = \"X-Authentication-Token\""),
];

/// More of the same kinds, which have no letters to fill.
const TEXTS: [(&str, &str); 22] = [
    (
        "prose",
        "The password is asked for at the terminal; the token is kept in the keychain.",
    ),
    (
        "docs-table",
        "| `api_key` | string | required | the key of your account, see Settings > Keys |",
    ),
    (
        "docs-command",
        "$ docker run --env OPENAI_API_KEY agent exec 'fix the tests'",
    ),
    ("regex", "const TOKEN_RE = /ghp_[0-9A-Za-z]{36}/;"),
    ("regex-aws", "AWS_KEY = re.compile(r\"AKIA[0-9A-Z]{16}\")"),
    (
        "enum",
        "enum TokenKind { AccessToken, RefreshToken, IdToken, SecretAccessKey }",
    ),
    (
        "css",
        ".password-input-wrapper > .token-field { color: red }",
    ),
    (
        "html",
        "<input type=\"password\" name=\"password\" autocomplete=\"current-password\" placeholder=\"Password\">",
    ),
    (
        "public-pem",
        "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAu1SU1LfVLPHCozMxH2Mo\n4lgOEePzNm0tRgeLezV6ffAt0gunVTLw7onLRnrq0/IzW7yWR7QkrmBL7jTKEn5u\n-----END PUBLIC KEY-----",
    ),
    (
        "certificate",
        "-----BEGIN CERTIFICATE-----\nMIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG9w0BAQUFADBaMQswCQYDVQQGEwJJ\nRTESMBAGA1UEChMJQmFsdGltb3JlMRMwEQYDVQQLEwpDeWJlclRydXN0MSIwIAYD\n-----END CERTIFICATE-----",
    ),
    (
        "pem-marker",
        "if text.startswith('-----BEGIN RSA PRIVATE KEY-----'):\n    raise ValueError('a key must not be here')",
    ),
    (
        "import",
        "from app.security import SECRET_KEY, ACCESS_TOKEN_EXPIRE_MINUTES, verify_password",
    ),
    (
        "keyboard",
        "key = \"ArrowLeft\"; if (event.key === \"Backspace\") return;",
    ),
    (
        "map-key",
        "cache.put(key, value); map.get(\"user:profile:settings\")",
    ),
    (
        "primary",
        "ALTER TABLE tokens ADD CONSTRAINT tokens_pkey PRIMARY KEY (token_id);",
    ),
    (
        "foreign",
        "secrets: FOREIGN KEY (secret_id) REFERENCES secrets(id)",
    ),
    (
        "tokenizer",
        "tokens = tokenizer.encode(text, max_length=512, truncation=True)",
    ),
    (
        "token-count",
        "max_tokens: 4096\nprompt_tokens=1532 completion_tokens=204",
    ),
    (
        "expiry",
        "ACCESS_TOKEN_LIFETIME=3600\nPASSWORD_MIN_LENGTH=12\nSECRET_ROTATION_DAYS=90",
    ),
    (
        "grpc",
        "rpc RefreshToken(RefreshTokenRequest) returns (RefreshTokenResponse);",
    ),
    (
        "k8s",
        "kind: Secret\nmetadata:\n  name: database-credentials\ntype: Opaque",
    ),
    (
        "minified",
        "!function(e,t){\"use strict\";var n=e.token||\"\",r=t.password,o=n.secretKey;for(var i=0;i<r.length;i++)o[i]=n.accessToken(r[i]);e.apiKey=function(){return this._key}}(window,document);",
    ),
];

pub(super) fn samples(random: &mut Random) -> Vec<Sample> {
    let mut all = Vec::new();
    for (kind, form) in LINES {
        for _ in 0..EACH {
            // Braces are the line's own.
            let form = form.replace('{', "\u{1}").replace('}', "\u{2}");
            let filled = random.fill(&form.replace('«', "{").replace('»', "}"));
            let line = filled.replace('\u{1}', "{").replace('\u{2}', "}");
            all.push(benign(random, kind, &line));
        }
    }
    for (kind, text) in TEXTS {
        all.push(benign(random, kind, text));
    }
    for _ in 0..EACH {
        all.extend(made(random));
    }
    all
}

fn benign(random: &mut Random, kind: &str, line: &str) -> Sample {
    let before = ["# notes of the project", "version: 3"];
    let (text, _) = surrounded(random, &before, line, &["# end"]);
    Sample {
        kind: kind.to_owned(),
        text,
        line: None,
    }
}

/// Texts that are put together.
fn made(random: &mut Random) -> Vec<Sample> {
    let mut ssh = b"\0\0\0\x0bssh-ed25519\0\0\0 ".to_vec();
    ssh.extend(random.bytes(32));
    let ssh = format!("ssh-ed25519 {} dev@host", base64(&ssh));
    let picture: Vec<String> = [b"\x89PNG\r\n\x1a\n".to_vec(), random.bytes(400)]
        .concat()
        .chunks(57)
        .map(base64)
        .collect();
    let locked: Vec<String> = (0..8)
        .map(|number| {
            let sum = random.fill("{h:64}");
            format!("[[package]]\nname = \"dep-{number}\"\nversion = \"1.{number}.0\"\nchecksum = \"{sum}\"\n")
        })
        .collect();
    let yarn: Vec<String> = (0..6)
        .map(|number| {
            let (sum, short) = (random.fill("{b:86}=="), random.hex(40));
            format!("dep-{number}@^1.0.0:\n  resolved \"https://registry.yarnpkg.com/dep/-/dep-1.0.{number}.tgz#{short}\"\n  integrity sha512-{sum}\n")
        })
        .collect();
    let id = random.uuid();
    let log = format!(
        "2026-05-01T10:00:00Z INFO login ok user=alice session={id} token_type=Bearer expires_in=3600"
    );
    [
        ("ssh-public-key", ssh),
        ("picture", picture.join("\n")),
        ("cargo-lock", locked.join("\n")),
        ("yarn-lock", yarn.join("\n")),
        ("login-log", log),
    ]
    .into_iter()
    .map(|(kind, text)| benign(random, kind, &text))
    .collect()
}
