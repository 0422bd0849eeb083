//! Kinds of secrets: those whose value says what it is, and those whose name does.

/// A kind of secret: its name here, forms of its value, and names that people give it.
pub(super) type Kind = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
);

/// Kinds whose value says what it is.
pub(super) const BY_FORM: [Kind; 42] = [
    (
        "aws-access-key",
        &["AKIA{3:16}", "ASIA{3:16}"],
        &["AWS_ACCESS_KEY_ID", "access_key", "awsKey"],
    ),
    (
        "github-classic",
        &["ghp_{a:36}", "gho_{a:36}", "ghs_{a:36}"],
        &["GITHUB_TOKEN", "token", "GH_PAT"],
    ),
    (
        "github-fine-grained",
        &["github_pat_{a:22}_{a:59}"],
        &["GITHUB_TOKEN", "pat"],
    ),
    (
        "gitlab",
        &["glpat-{w:20}", "gldt-{w:20}", "glrt-{w:20}"],
        &["GITLAB_TOKEN", "CI_JOB", "value"],
    ),
    (
        "slack",
        &[
            "xoxb-{d:12}-{d:13}-{a:24}",
            "xoxp-{d:12}-{d:12}-{d:12}-{h:32}",
            "xapp-1-{U:11}-{d:13}-{h:64}",
        ],
        &["SLACK_TOKEN", "bot"],
    ),
    (
        "slack-webhook",
        &["https://hooks.slack.com/services/T{U:10}/B{U:10}/{a:24}"],
        &["SLACK_URL", "webhook"],
    ),
    (
        "stripe",
        &["sk_live_{a:24}", "rk_live_{a:99}", "sk_test_{a:24}"],
        &["STRIPE_KEY", "stripe"],
    ),
    (
        "google-api",
        &["AIza{w:35}"],
        &["GOOGLE_API_KEY", "mapsKey", "key"],
    ),
    (
        "google-oauth-secret",
        &["GOCSPX-{w:28}"],
        &["GOOGLE_CLIENT_SECRET", "secret"],
    ),
    ("npm", &["npm_{a:36}"], &["NPM_TOKEN", "_authToken"]),
    (
        "pypi",
        &["pypi-AgEIcHlwaS5vcmc{w:80}"],
        &["TWINE_PASSWORD", "password"],
    ),
    (
        "sendgrid",
        &["SG.{w:22}.{w:43}"],
        &["SENDGRID_API_KEY", "mail"],
    ),
    (
        "openai",
        &["sk-proj-{a:74}T3BlbkFJ{a:74}", "sk-{a:20}T3BlbkFJ{a:20}"],
        &["OPENAI_API_KEY", "key"],
    ),
    (
        "anthropic",
        &["sk-ant-api03-{w:93}AA"],
        &["ANTHROPIC_API_KEY", "key"],
    ),
    ("hugging-face", &["hf_{a:34}"], &["HF_TOKEN", "token"]),
    (
        "azure-storage",
        &[
            "DefaultEndpointsProtocol=https;AccountName=store{d:4};AccountKey={b:86}==;EndpointSuffix=core.windows.net",
        ],
        &["AZURE_STORAGE_CONNECTION_STRING", "conn"],
    ),
    (
        "azure-client-secret",
        &["{a:3}8Q~{a:34}", "{a:3}7Q~{a:34}"],
        &["AZURE_CLIENT_SECRET", "client_secret"],
    ),
    (
        "digitalocean",
        &["dop_v1_{h:64}", "doo_v1_{h:64}"],
        &["DO_TOKEN", "token"],
    ),
    (
        "shopify",
        &["shpat_{h:32}", "shpss_{h:32}"],
        &["SHOPIFY_TOKEN", "shop"],
    ),
    (
        "square",
        &["EAAA{w:60}", "sq0csp-{w:43}"],
        &["SQUARE_ACCESS_TOKEN", "square"],
    ),
    ("twilio-key", &["SK{h:32}"], &["TWILIO_API_KEY", "sid"]),
    ("mailgun", &["key-{h:32}"], &["MAILGUN_API_KEY", "mailgun"]),
    (
        "mailchimp",
        &["{h:32}-us12"],
        &["MAILCHIMP_API_KEY", "mailchimp_key"],
    ),
    (
        "telegram",
        &["{d:10}:AA{w:33}"],
        &["TELEGRAM_BOT_TOKEN", "bot_token"],
    ),
    (
        "discord-webhook",
        &["https://discord.com/api/webhooks/{d:18}/{w:68}"],
        &["DISCORD_URL", "hook"],
    ),
    (
        "new-relic",
        &["NRAK-{U:27}", "NRJS-{h:19}"],
        &["NEW_RELIC_API_KEY", "relic"],
    ),
    (
        "grafana",
        &["glsa_{a:32}_{h:8}", "glc_{b:60}"],
        &["GRAFANA_TOKEN", "grafana"],
    ),
    (
        "hashicorp-vault",
        &["hvs.{w:95}", "hvb.{w:140}"],
        &["VAULT_TOKEN", "vault"],
    ),
    (
        "terraform-cloud",
        &["{a:14}.atlasv1.{a:67}"],
        &["TFE_TOKEN", "token"],
    ),
    (
        "databricks",
        &["dapi{h:32}"],
        &["DATABRICKS_TOKEN", "token"],
    ),
    ("linear", &["lin_api_{a:40}"], &["LINEAR_API_KEY", "linear"]),
    (
        "notion",
        &["ntn_{d:11}{a:35}", "secret_{a:43}"],
        &["NOTION_TOKEN", "notion"],
    ),
    ("figma", &["figd_{w:40}"], &["FIGMA_TOKEN", "figma"]),
    (
        "atlassian",
        &["ATATT3xFfGF0{w:180}={H:8}"],
        &["JIRA_TOKEN", "atlassian"],
    ),
    ("docker-hub", &["dckr_pat_{w:27}"], &["DOCKER_TOKEN", "hub"]),
    (
        "rubygems",
        &["rubygems_{h:48}"],
        &["GEM_HOST_API_KEY", "gems"],
    ),
    ("age", &["AGE-SECRET-KEY-1{q:58}"], &["AGE_KEY", "identity"]),
    (
        "planetscale",
        &["pscale_tkn_{w:43}", "pscale_pw_{w:43}"],
        &["PLANETSCALE_TOKEN", "db"],
    ),
    (
        "postman",
        &["PMAK-{h:24}-{h:34}"],
        &["POSTMAN_KEY", "postman"],
    ),
    ("sentry", &["sntryu_{h:64}"], &["SENTRY_TOKEN", "sentry"]),
    ("doppler", &["dp.pt.{a:43}"], &["DOPPLER_TOKEN", "doppler"]),
    (
        "web-token",
        &["eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIx{w:60}.{w:43}"],
        &["JWT", "session", "authorization"],
    ),
];

/// Kinds whose value is any text: its name says what it is.
pub(super) const BY_NAME: [Kind; 18] = [
    (
        "aws-secret-key",
        &["{b:40}"],
        &["AWS_SECRET_ACCESS_KEY", "aws_secret_key", "secretAccessKey"],
    ),
    (
        "twilio-token",
        &["{h:32}"],
        &["TWILIO_AUTH_TOKEN", "twilioAuthToken"],
    ),
    (
        "datadog",
        &["{h:32}", "{h:40}"],
        &["DATADOG_API_KEY", "DD_APP_KEY", "datadog_app_key"],
    ),
    (
        "heroku",
        &["{h:8}-{h:4}-{h:4}-{h:4}-{h:12}"],
        &["HEROKU_API_KEY", "heroku_api_key"],
    ),
    (
        "cloudflare",
        &["{w:40}", "{h:37}"],
        &["CLOUDFLARE_API_TOKEN", "cf_api_key", "cloudflareApiKey"],
    ),
    ("okta", &["00{w:40}"], &["OKTA_API_TOKEN", "okta_token"]),
    (
        "algolia",
        &["{l:32}"],
        &["ALGOLIA_ADMIN_KEY", "algoliaApiKey"],
    ),
    (
        "snyk",
        &["{h:8}-{h:4}-{h:4}-{h:4}-{h:12}"],
        &["SNYK_TOKEN", "snyk_api_token"],
    ),
    (
        "generic-api-key",
        &["{a:32}", "{h:32}", "{w:43}", "{l:24}"],
        &["API_KEY", "apiKey", "service_api_key", "X_API_KEY"],
    ),
    (
        "generic-token",
        &["{a:40}", "{h:40}", "{w:32}"],
        &["AUTH_TOKEN", "accessToken", "refresh_token", "BEARER_TOKEN"],
    ),
    (
        "generic-secret",
        &["{a:32}", "{b:44}", "{w:24}"],
        &["CLIENT_SECRET", "appSecret", "signing_secret", "SECRET_KEY"],
    ),
    (
        "encryption-key",
        &["{h:64}", "{b:43}="],
        &["ENCRYPTION_KEY", "master_key", "hmacKey"],
    ),
    (
        "password-random",
        &["{a:16}", "{a:8}!{a:6}", "{l:6}#{U:5}", "{w:20}"],
        &["DB_PASSWORD", "password", "smtp_passwd", "adminPassword"],
    ),
    (
        "password-human",
        &[
            "Harbor{d:4}!",
            "{z:6}{d:3}",
            "Winter{d:2}@{z:5}",
            "{Z:1}{z:5}-{Z:1}{z:6}-{d:2}",
        ],
        &[
            "DB_PASSWORD",
            "password",
            "passwd",
            "rootPassword",
            "MYSQL_PWD",
        ],
    ),
    (
        "passphrase",
        &["{z:5}-{z:6}-{z:4}-{d:3}"],
        &["KEY_PASSPHRASE", "passphrase"],
    ),
    (
        "redis-password",
        &["{a:24}"],
        &["REDIS_PASSWORD", "requirepass", "redisAuth"],
    ),
    (
        "session-secret",
        &["{h:48}"],
        &["SESSION_SECRET", "cookie_secret"],
    ),
    (
        "webhook-secret",
        &["whsec_{a:32}"],
        &["WEBHOOK_SECRET", "signingSecret"],
    ),
];
