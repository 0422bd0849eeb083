//! Secrets, by rules in the format of gitleaks: a regular expression, words one of which has to be
//! there, and the least entropy of what is found.

use std::collections::HashMap;

use aho_corasick::AhoCorasick;
use memchr::memmem;
use regex::bytes::{Regex, RegexBuilder};
use serde::Deserialize;

use crate::Finding;

/// The rules that are built in.
const OWN: &str = include_str!("secrets.toml");
/// The most memory of one compiled expression, bytes.
const REGEX_BYTES_MAX: usize = 4 << 20;
/// The most rules of a file.
const RULES_MAX: usize = 2_000;

/// A file of rules cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// No TOML of this form.
    #[error(transparent)]
    Form(#[from] toml::de::Error),
    /// An expression is none that is understood.
    #[error("rule {rule}: {error}")]
    Expression {
        /// The rule's id.
        rule: String,
        /// The reason.
        error: Box<regex::Error>,
    },
    /// Their keywords are too many.
    #[error(transparent)]
    Keywords(#[from] aho_corasick::BuildError),
    /// There are too many.
    #[error("it has more than {RULES_MAX} rules")]
    TooMany,
}

/// Rules for secrets.
#[derive(Debug)]
pub struct Rules {
    rules: Vec<Rule>,
    allowed: Allowed,
    /// The keywords of all rules, each with the rules that it is of.
    keywords: AhoCorasick,
    of_keyword: Vec<Vec<usize>>,
}

#[derive(Debug)]
struct Rule {
    id: String,
    expression: Regex,
    /// Words in lower case, one of which is in every content that it finds something in.
    keywords: Vec<String>,
    /// The group that is the secret; the first that there is if `None`.
    group: Option<usize>,
    entropy: Option<f64>,
    allowed: Allowed,
}

#[derive(Debug, Default)]
struct Allowed {
    expressions: Vec<Regex>,
    words: Vec<String>,
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    extend: Extend,
    #[serde(default)]
    rules: Vec<FileRule>,
    #[serde(default)]
    allowlist: FileAllowed,
    #[serde(default)]
    allowlists: Vec<FileAllowed>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Extend {
    use_default: bool,
    disabled_rules: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FileRule {
    id: String,
    /// A rule about paths alone has none, and finds nothing in content.
    regex: Option<String>,
    #[serde(default)]
    keywords: Vec<String>,
    secret_group: Option<usize>,
    entropy: Option<f64>,
    #[serde(default)]
    allowlist: FileAllowed,
    #[serde(default)]
    allowlists: Vec<FileAllowed>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FileAllowed {
    regexes: Vec<String>,
    stopwords: Vec<String>,
}

impl Rules {
    /// Returns the rules that are built in.
    ///
    /// # Errors
    /// [`RulesError`], which is a defect.
    pub fn built_in() -> Result<Self, RulesError> {
        Self::read(OWN)
    }

    /// Reads rules from the text of a file in the format of gitleaks. What it says of paths, commits
    /// and reports has no meaning here.
    ///
    /// # Errors
    /// [`RulesError`].
    pub fn read(text: &str) -> Result<Self, RulesError> {
        let file: File = toml::from_str(text)?;
        if file.rules.len() > RULES_MAX {
            return Err(RulesError::TooMany);
        }
        let mut rules = Vec::new();
        for rule in file.rules {
            rules.extend(Rule::of(rule)?);
        }
        if file.extend.use_default {
            let own = Self::built_in()?.rules.into_iter();
            let is_other = |one: &Rule| rules.iter().all(|rule: &Rule| rule.id != one.id);
            let own: Vec<Rule> = own.filter(is_other).collect();
            rules.extend(own);
        }
        rules.retain(|rule| !file.extend.disabled_rules.contains(&rule.id));
        let lists = file.allowlists.into_iter().chain([file.allowlist]);
        let mut words: Vec<(String, Vec<usize>)> = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            for word in &rule.keywords {
                match words.iter_mut().find(|(known, _)| known == word) {
                    Some((_, of)) => of.push(index),
                    None => words.push((word.clone(), vec![index])),
                }
            }
        }
        let mut keywords = AhoCorasick::builder();
        let keywords = keywords.ascii_case_insensitive(true);
        Ok(Self {
            rules,
            allowed: Allowed::of("allowlist", lists)?,
            keywords: keywords.build(words.iter().map(|(word, _)| word))?,
            of_keyword: words.into_iter().map(|(_, of)| of).collect(),
        })
    }

    /// Returns, for each rule, whether a content can have anything for it.
    fn likely(&self, content: &[u8]) -> Vec<bool> {
        let none = |rule: &Rule| rule.keywords.is_empty();
        let mut likely: Vec<bool> = self.rules.iter().map(none).collect();
        let mut left = self.of_keyword.len();
        let mut seen = vec![false; left];
        for found in self.keywords.find_overlapping_iter(content) {
            let word = found.pattern().as_usize();
            let is_new = seen
                .get_mut(word)
                .is_some_and(|seen| !std::mem::replace(seen, true));
            if !is_new {
                continue;
            }
            for rule in self.of_keyword.get(word).into_iter().flatten() {
                if let Some(likely) = likely.get_mut(*rule) {
                    *likely = true;
                }
            }
            left -= 1;
            if left == 0 {
                break;
            }
        }
        likely
    }

    /// Finds secrets.
    pub(crate) fn scan(&self, content: &[u8]) -> Vec<Finding> {
        let mut found = Vec::new();
        let likely = self.likely(content).into_iter();
        let rules = self.rules.iter().zip(likely).filter(|(_, likely)| *likely);
        for (rule, _) in rules {
            for captures in rule.expression.captures_iter(content) {
                let groups = rule.group.map_or(1..2, |group| group..group + 1);
                let secret = groups.filter_map(|group| captures.get(group)).next();
                let Some(secret) = secret.or_else(|| captures.get(0)) else {
                    continue;
                };
                let bytes = secret.as_bytes();
                let bits = entropy(bytes);
                if rule.entropy.is_some_and(|least| bits < least)
                    || rule.allowed.has(bytes)
                    || self.allowed.has(bytes)
                {
                    continue;
                }
                let confidence = if rule.entropy.is_some() { 70 } else { 95 };
                let finding = Finding::at_line(&rule.id, content, secret.start(), confidence);
                found.push(finding);
                if found.len() >= crate::FINDINGS_MAX {
                    return found;
                }
            }
        }
        found
    }
}

impl Rule {
    fn of(rule: FileRule) -> Result<Option<Self>, RulesError> {
        let Some(expression) = &rule.regex else {
            return Ok(None);
        };
        let lists = rule.allowlists.into_iter().chain([rule.allowlist]);
        Ok(Some(Self {
            expression: compiled(&rule.id, expression)?,
            keywords: rule
                .keywords
                .into_iter()
                .filter(|word| !word.is_empty())
                .collect(),
            group: rule.secret_group.filter(|group| *group > 0),
            entropy: rule.entropy.filter(|least| *least > 0.0),
            allowed: Allowed::of(&rule.id, lists)?,
            id: rule.id,
        }))
    }
}

impl Allowed {
    fn of(rule: &str, lists: impl Iterator<Item = FileAllowed>) -> Result<Self, RulesError> {
        let mut allowed = Self::default();
        for list in lists {
            for expression in &list.regexes {
                allowed.expressions.push(compiled(rule, expression)?);
            }
            let words = list.stopwords.iter().map(|word| word.to_ascii_lowercase());
            allowed.words.extend(words);
        }
        Ok(allowed)
    }

    fn has(&self, secret: &[u8]) -> bool {
        let lower = secret.to_ascii_lowercase();
        let mut words = self.words.iter();
        words.any(|word| memmem::find(&lower, word.as_bytes()).is_some())
            || self.expressions.iter().any(|one| one.is_match(secret))
    }
}

fn compiled(rule: &str, expression: &str) -> Result<Regex, RulesError> {
    let mut builder = RegexBuilder::new(expression);
    let builder = builder.size_limit(REGEX_BYTES_MAX);
    // `\b` and `\w` are of ASCII, as for gitleaks: no other text is searched as fast. A class of other
    // letters is none of bytes.
    let built = builder.unicode(false).build();
    let built = built.or_else(|_| builder.unicode(true).build());
    built.map_err(|error| RulesError::Expression {
        rule: rule.to_owned(),
        error: Box::new(error),
    })
}

/// Returns Shannon's entropy, bits for each byte.
fn entropy(bytes: &[u8]) -> f64 {
    let mut counts: HashMap<u8, u32> = HashMap::new();
    for byte in bytes {
        *counts.entry(*byte).or_default() += 1;
    }
    let total = f64::from(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    let parts = counts.values().map(|count| f64::from(*count) / total);
    parts.map(|part| -part * part.log2()).sum()
}
