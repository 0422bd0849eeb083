//! Secrets of many issuers, in files as they are written.

use super::kinds::{BY_FORM, BY_NAME};
use super::random::{Random, base64};
use super::{Sample, surrounded};

/// The values of each kind, and the files that each is put in.
const VALUES: usize = 4;
const FILES: usize = 4;

/// Lines that have a secret in them, whatever it is; `{..}` are filled.
const LINES: [(&str, &str); 22] = [
    (
        "postgres-url",
        "DATABASE_URL=postgres://app:{a:16}@db{d:1}.internal:5432/app",
    ),
    (
        "mysql-url",
        "url: mysql://root:{z:6}{d:4}@10.0.{d:1}.7/shop",
    ),
    (
        "mongo-url",
        "const uri = 'mongodb+srv://svc:{a:14}@cluster0.{l:5}.mongodb.net/db';",
    ),
    ("redis-url", "REDIS_URL=redis://:{a:20}@cache:6379/0"),
    (
        "amqp-url",
        "  broker: amqps://worker:{a:12}@mq.internal/vhost",
    ),
    (
        "https-url",
        "git clone https://deploy:{a:20}@git.corp.net/team/app.git",
    ),
    (
        "sqlalchemy",
        "engine = create_engine(\"postgresql+psycopg2://app:{a:12}!x@db/app\")",
    ),
    (
        "jdbc",
        "jdbc:sqlserver://db:1433;databaseName=a;user=sa;password={a:12}!;encrypt=true",
    ),
    (
        "ado-net",
        "\"Server=tcp:db.corp.net;Database=a;User ID=app;Password={a:14};Encrypt=True\"",
    ),
    (
        "basic-header",
        "curl -H 'Authorization: Basic {base64}' https://api.corp.net/v1",
    ),
    (
        "bearer-header",
        "    headers = {'Authorization': 'Bearer {a:40}'}",
    ),
    (
        "bearer-curl",
        "curl -H \"Authorization: Bearer {w:48}\" https://api.corp.net/me",
    ),
    (
        "curl-user",
        "curl -u admin:{a:14} https://nexus.corp.net/repository/",
    ),
    ("netrc", "machine git.corp.net login ci password {a:18}"),
    (
        "npmrc",
        "//registry.corp.net/:_authToken={h:8}-{h:4}-{h:4}-{h:4}-{h:12}",
    ),
    ("sql-user", "CREATE USER app WITH PASSWORD '{a:14}';"),
    (
        "sql-identified",
        "ALTER USER 'root'@'localhost' IDENTIFIED BY '{z:5}{d:4}!';",
    ),
    ("mysql-option", "mysqldump -u root -p{a:12} shop > dump.sql"),
    ("sshpass", "sshpass -p '{a:11}' ssh deploy@10.1.2.3"),
    (
        "api-header",
        "curl -H 'X-Api-Key: {a:32}' https://api.corp.net/v2/items",
    ),
    (
        "query",
        "GET https://api.corp.net/v1/data?api_key={h:32}&limit=10",
    ),
    (
        "docker-auth",
        "{\"auths\":{\"registry.corp.net\":{\"auth\":\"{base64}\"}}}",
    ),
];

/// Files around an assignment: a name, lines before, the line (`$N` is the name, `$V` the value), and
/// lines after.
type File = (
    &'static str,
    &'static [&'static str],
    &'static str,
    &'static [&'static str],
);

const ASSIGNED: [File; 20] = [
    (
        "env",
        &["# settings", "APP_ENV=production", "PORT=8080"],
        "$N=$V",
        &["LOG_LEVEL=info"],
    ),
    (
        "env-quoted",
        &["APP_ENV=production"],
        "$N=\"$V\"",
        &["DEBUG=false"],
    ),
    (
        "shell",
        &["#!/bin/bash", "set -eu"],
        "export $N='$V'",
        &["exec ./server --port 80"],
    ),
    (
        "python",
        &["import os", "", "TIMEOUT = 30"],
        "$N = \"$V\"",
        &["", "def main():", "    pass"],
    ),
    (
        "python-dict",
        &["config = {", "    'host': 'localhost',"],
        "    '$N': '$V',",
        &["}"],
    ),
    (
        "python-call",
        &["client = Client("],
        "    $N='$V',",
        &["    timeout=30,", ")"],
    ),
    (
        "javascript",
        &["'use strict';", "const port = 3000;"],
        "const $N = '$V';",
        &["module.exports = { port };"],
    ),
    (
        "typescript",
        &["export const config = {", "  retries: 3,"],
        "  $N: '$V',",
        &["};"],
    ),
    (
        "go",
        &["package main", "", "var timeout = 30"],
        "var $N = \"$V\"",
        &["", "func main() {}"],
    ),
    (
        "go-short",
        &["func connect() {"],
        "\t$N := \"$V\"",
        &["\treturn", "}"],
    ),
    (
        "java",
        &["public class Config {"],
        "    private static final String $N = \"$V\";",
        &["}"],
    ),
    (
        "csharp",
        &["public class Config {"],
        "    public string $N { get; set; } = \"$V\";",
        &["}"],
    ),
    (
        "rust",
        &["pub struct Config;"],
        "const $N: &str = \"$V\";",
        &["fn main() {}"],
    ),
    (
        "terraform",
        &["provider \"x\" {", "  region = \"eu-west-1\""],
        "  $N = \"$V\"",
        &["}"],
    ),
    (
        "yaml",
        &["server:", "  port: 80"],
        "  $N: $V",
        &["  debug: false"],
    ),
    (
        "yaml-quoted",
        &["env:", "  - name: A", "    value: b"],
        "  $N: \"$V\"",
        &["replicas: 2"],
    ),
    (
        "json",
        &["{", "  \"port\": 80,"],
        "  \"$N\": \"$V\",",
        &["  \"debug\": false", "}"],
    ),
    ("ini", &["[server]", "port = 80"], "$N = $V", &["", "[log]"]),
    (
        "log",
        &["2026-05-01T10:00:00Z INFO started"],
        "2026-05-01T10:00:01Z DEBUG loaded $N=$V from env",
        &["2026-05-01T10:00:02Z INFO ready"],
    ),
    ("php", &["<?php", "return ["], "    '$N' => '$V',", &["];"]),
];

pub(super) fn samples(random: &mut Random) -> Vec<Sample> {
    let mut all = Vec::new();
    for (kind, forms, names) in BY_FORM.iter().chain(&BY_NAME) {
        for _ in 0..VALUES {
            for _ in 0..FILES {
                let form = random.pick(forms);
                let value = random.fill(form);
                let file = random.below(ASSIGNED.len());
                let name = random.pick(names);
                all.extend(
                    ASSIGNED
                        .get(file)
                        .map(|file| assigned(random, kind, file, &[name, &value])),
                );
            }
        }
    }
    for (kind, form) in LINES {
        for _ in 0..VALUES * 2 {
            all.push(line(random, kind, form));
        }
    }
    for label in ["RSA ", "EC ", "OPENSSH ", "", "ENCRYPTED ", "DSA "] {
        for _ in 0..VALUES {
            all.extend(private_keys(random, label));
        }
    }
    all
}

fn assigned(random: &mut Random, kind: &str, file: &File, parts: &[&str]) -> Sample {
    let [name, value] = parts else {
        return Sample {
            kind: kind.to_owned(),
            text: String::new(),
            line: None,
        };
    };
    let (of, before, line, after) = file;
    let line = line.replace("$N", name).replace("$V", value);
    let (text, line) = surrounded(random, before, &line, after);
    Sample {
        kind: format!("{kind} in {of}"),
        text,
        line: Some(line),
    }
}

fn line(random: &mut Random, kind: &str, form: &str) -> Sample {
    let pair = random.fill("svc:{a:16}");
    let form = form.replace("{base64}", &base64(pair.as_bytes()));
    // Braces that are the line's own.
    let own = form.replace("{\"", "\u{1}\"").replace("{'", "\u{1}'");
    let line = random.fill(&own).replace('\u{1}', "{");
    let before = ["# deployment", "set -e"];
    let (text, line) = surrounded(random, &before, &line, &["# end"]);
    Sample {
        kind: kind.to_owned(),
        text,
        line: Some(line),
    }
}

/// Makes a private key, in a file and within a text of JSON.
fn private_keys(random: &mut Random, label: &str) -> [Sample; 2] {
    let body: Vec<String> = (0..12).map(|_| random.fill("{b:64}")).collect();
    let kind = format!("private-key {}", label.trim());
    let (head, foot) = (
        format!("-----BEGIN {label}PRIVATE KEY-----"),
        format!("-----END {label}PRIVATE KEY-----"),
    );
    let file = format!("{head}\n{}\n{foot}", body.join("\n"));
    let (text, line) = surrounded(random, &["# key of the host"], &file, &[]);
    let file = Sample {
        kind: format!("{kind} in file"),
        text,
        line: Some(line),
    };
    let json = format!(
        "  \"private_key\": \"{head}\\n{}\\n{foot}\\n\",",
        body.join("\\n")
    );
    let before = ["{", "  \"type\": \"service_account\","];
    let (text, line) = surrounded(random, &before, &json, &["  \"client_id\": \"1\"", "}"]);
    [
        file,
        Sample {
            kind: format!("{kind} in json"),
            text,
            line: Some(line),
        },
    ]
}
