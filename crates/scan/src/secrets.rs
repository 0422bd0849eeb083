//! Secrets, by rules in the format of gitleaks: a regular expression, words one of which has to be
//! there, and the least entropy of what is found.

mod plausible;
mod search;

use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use memchr::memmem;
use regex::bytes::{Regex, RegexBuilder};
use serde::Deserialize;

use crate::Unscanned;
use plausible::Check;

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
    /// Rules for malware, beside those built in.
    yara: Option<String>,
}

#[derive(Debug)]
struct Rule {
    id: String,
    expression: Expression,
    /// Words in lower case, one of which is in every content that it finds something in.
    keywords: Vec<String>,
    /// The group that is the secret; the first that there is if `None`.
    group: Option<usize>,
    entropy: Option<f64>,
    check: Option<Check>,
    /// Set for a rule that is built in: its keywords are in what it finds, or near to it.
    is_own: bool,
    allowed: Allowed,
}

/// An expression, which is compiled when it is needed first.
#[derive(Debug)]
struct Expression {
    text: String,
    compiled: OnceLock<Option<Regex>>,
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
    check: Option<Check>,
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
        Self::of(OWN, true)
    }

    /// Reads rules from the text of a file in the format of gitleaks. What it says of paths, commits
    /// and reports has no meaning here.
    ///
    /// # Errors
    /// [`RulesError`].
    pub fn read(text: &str) -> Result<Self, RulesError> {
        Self::of(text, false)
    }

    fn of(text: &str, is_own: bool) -> Result<Self, RulesError> {
        let file: File = toml::from_str(text)?;
        if file.rules.len() > RULES_MAX {
            return Err(RulesError::TooMany);
        }
        let mut rules = Vec::new();
        for rule in file.rules {
            rules.extend(Rule::of(rule, is_own)?);
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
            keywords: keywords
                .kind(Some(AhoCorasickKind::DFA))
                .build(words.iter().map(|(word, _)| word))?,
            of_keyword: words.into_iter().map(|(_, of)| of).collect(),
            yara: None,
        })
    }

    /// Adds rules for malware in the language of YARA to those built in. They are compiled when that
    /// scanner is asked for; [`Rules::check_yara`] does it before.
    #[must_use]
    pub fn with_yara(mut self, source: impl Into<String>) -> Self {
        self.yara = Some(source.into());
        self
    }

    /// Compiles the rules for malware, and drops the result.
    ///
    /// # Errors
    /// [`Unscanned::Rules`], or [`Unscanned::Missing`] where there are some and this build has no
    /// scanner for them.
    pub fn check_yara(&self) -> Result<(), Unscanned> {
        match &self.yara {
            None => Ok(()),
            #[cfg(feature = "yara")]
            Some(own) => crate::malware::check(own),
            #[cfg(not(feature = "yara"))]
            Some(_) => Err(Unscanned::Missing),
        }
    }

    #[cfg(feature = "yara")]
    pub(crate) fn yara(&self) -> Option<&str> {
        self.yara.as_deref()
    }
}

impl Rule {
    fn of(rule: FileRule, is_own: bool) -> Result<Option<Self>, RulesError> {
        let Some(expression) = &rule.regex else {
            return Ok(None);
        };
        let lists = rule.allowlists.into_iter().chain([rule.allowlist]);
        let of_it = Expression {
            text: expression.clone(),
            compiled: OnceLock::new(),
        };
        if !is_own {
            // A mistake of others is told at once.
            let _ = of_it.compiled.set(Some(compiled(&rule.id, expression)?));
        }
        Ok(Some(Self {
            expression: of_it,
            check: rule.check,
            is_own,
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

impl Expression {
    /// Returns it compiled; `None` where it is none, which a test excludes.
    fn compiled(&self) -> Option<&Regex> {
        let compiled = self.compiled.get_or_init(|| compiled("", &self.text).ok());
        compiled.as_ref()
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
    let mut counts = [0_u32; 256];
    for byte in bytes {
        if let Some(count) = counts.get_mut(usize::from(*byte)) {
            *count += 1;
        }
    }
    let total = f64::from(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    let counts = counts.iter().filter(|count| **count > 0);
    let parts = counts.map(|count| f64::from(*count) / total);
    parts.map(|part| -part * part.log2()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expressions of ours are compiled late: each of them is one.
    #[test]
    fn own_expressions_compile() {
        let rules = Rules::built_in().unwrap();
        assert!(rules.rules.len() > 120);
        for rule in rules.rules {
            let expression = rule.expression.compiled();
            let names = expression.unwrap().capture_names().flatten().count();
            let is_named = rule.check.is_some_and(|check| check != Check::Stored);
            assert_eq!(names > 0, is_named, "{}", rule.id);
        }
    }
}
