use serde_json::{Value, json};

use super::{Dockerfile, read};

fn steps(text: &str) -> Vec<(String, Vec<String>)> {
    let file = read(text).unwrap();
    let texts = |value: &Value| -> Vec<String> { serde_json::from_value(value.clone()).unwrap() };
    let one = |step: &Value| {
        (
            step["type"].as_str().unwrap().to_owned(),
            texts(&step["args"]),
        )
    };
    file.steps.iter().map(one).collect()
}

fn mistake(text: &str) -> String {
    let mistake = read(text).unwrap_err();
    format!("{}: {}", mistake.line, mistake.what)
}

#[test]
fn a_usual_file_is_read_as_steps() {
    let text = r#"# syntax=docker/dockerfile:1
ARG VERSION=12
FROM --platform=linux/amd64 debian:${VERSION} AS it
ENV A=1 B="two words" \
    # a comment between
    C=$A
ENV OLD the old form
RUN apt-get update && \
    apt-get install -y curl
RUN ["printf", "%s", "a b"]
RUN <<EOF
set -e
echo "$A" > /data/a
EOF
RUN cat > /x <<-A && cat <<"B" >> /x
	one
	A
two
B
workdir /app
COPY --chown=user:user --chmod=644 a.txt ./b* /app/${A}/
COPY . .
ADD ["with space", "/x/"]
CMD ["run"]
EXPOSE 80
USER user
"#;
    let word = |kind: &str, words: &[&str]| {
        let words = words.iter().map(|one| (*one).to_owned());
        (kind.to_owned(), words.collect::<Vec<_>>())
    };
    assert_eq!(
        steps(text),
        [
            word("USER", &["root"]),
            word("WORKDIR", &["/"]),
            word("ENV", &["A", "1", "B", "two words", "C", "$A"]),
            word("ENV", &["OLD", "the old form"]),
            word("RUN", &["apt-get update &&     apt-get install -y curl"]),
            word("RUN", &["printf '%s' 'a b'"]),
            word("RUN", &["set -e\necho \"$A\" > /data/a\n"]),
            word(
                "RUN",
                &["cat > /x <<-A && cat <<\"B\" >> /x\n\tone\n\tA\ntwo\nB\n"]
            ),
            word("WORKDIR", &["/app"]),
            word("COPY", &["a.txt", "/app/1/", "user:user", "644"]),
            word("COPY", &["b*", "/app/1/", "user:user", "644"]),
            word("COPY", &[".", ".", "root", ""]),
            word("COPY", &["with space", "/x/", "root", ""]),
            word("USER", &["user"]),
        ]
    );
    let Dockerfile {
        from,
        left_out,
        copies,
        ..
    } = read(text).unwrap();
    assert_eq!((from.as_str(), copies), ("debian:12", true));
    assert_eq!(json!(left_out), json!(["CMD", "EXPOSE"]));
}

#[test]
fn programs_are_the_user_at_home_where_nothing_else_is_said() {
    let all = steps("FROM x\nRUN true");
    let last: Vec<_> = all
        .iter()
        .rev()
        .take(2)
        .map(|(_, words)| &words[0])
        .collect();
    assert_eq!(last, ["/home/user", "user"]);
}

#[test]
fn variables_that_the_image_may_have_stay() {
    let all = steps("FROM x\nENV A=a\nWORKDIR $HOME/${A}/${NONE:-d}/$$/${HOME}");
    assert_eq!(all[3].1, ["$HOME/a/d/$$/${HOME}"]);
}

#[test]
fn what_is_not_taken_is_named_with_its_line() {
    for (text, said) in [
        ("RUN true", "1: RUN comes before FROM"),
        ("", "1: it has no FROM"),
        (
            "FROM a\n\nFROM b",
            "3: FROM begins another stage: one is built",
        ),
        (
            "FROM scratch",
            "1: FROM begins with nothing, where nothing can run",
        ),
        ("FROM a\nCOPY --from=b x y", "2: COPY --from is not offered"),
        (
            "FROM a\nRUN --mount=type=cache true",
            "2: RUN --mount is not offered",
        ),
        ("FROM a\nCOPY x", "2: COPY needs a source and a target"),
        (
            "FROM a\nCOPY a b c",
            "2: COPY of many needs a target that ends with /",
        ),
        (
            "FROM a\nCOPY ../x /y",
            "2: COPY of ../x leads out of the context",
        ),
        (
            "FROM a\nADD https://example.com/x /y",
            "2: ADD of https://example.com/x is not offered",
        ),
        ("FROM a\nADD x.tar.gz /y", "2: ADD does not unpack x.tar.gz"),
        ("FROM a\nUSER", "2: USER names nothing"),
        ("FROM a\nENV A", "2: ENV has a name without a value"),
        (
            "FROM --platform=linux/none a",
            "1: FROM is of linux/none, and this machine is not",
        ),
        ("FROM a\nSHELL [\"x\"]", "2: SHELL is not taken"),
        ("FROM a\nENV A=1 B", "2: ENV has a name without a value"),
        ("FROM a\nENV A=\"1", "2: ENV has a quote without an end"),
        (
            "FROM a\nRUN <<EOF\nx",
            "2: RUN has no line \"EOF\" at its end",
        ),
        ("FROM a\nRUN", "2: RUN runs nothing"),
    ] {
        assert_eq!(mistake(text), said, "{text}");
    }
}
