//! A bound on the depth of a tree before there is one: trees are walked, compared, written and
//! freed by recursion.

use sqlparser::dialect::SQLiteDialect;
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

/// The most words on the way to the deepest part of a tree. A level takes at least one.
const WORDS_MAX: usize = 600;

/// The most UNION, INTERSECT and EXCEPT, each of which is a level.
const SETS_MAX: usize = 50;

/// The words of what is between parentheses: of the deepest member before the last comma, and since.
#[derive(Clone, Copy, Default)]
struct Words {
    most: usize,
    now: usize,
}

/// Returns the tokens of a text, and refuses one whose tree would be too deep.
pub fn tokens(text: &str) -> Result<Vec<TokenWithSpan>, String> {
    let tokens = Tokenizer::new(&SQLiteDialect {}, text)
        .tokenize_with_location()
        .map_err(|error| format!("the statement is invalid: {error}"))?;
    let mut outer: Vec<Words> = Vec::new();
    let mut words = Words::default();
    let mut sets = 0;
    for token in &tokens {
        match &token.token {
            Token::Whitespace(_) => {}
            Token::LParen => outer.push(std::mem::take(&mut words)),
            Token::RParen => {
                let inner = words.most.max(words.now);
                words = outer.pop().unwrap_or_default();
                words.now += inner + 1;
            }
            Token::Comma => {
                words.most = words.most.max(words.now);
                words.now = 0;
            }
            other => {
                words.now += 1;
                let is_set = |word: Keyword| {
                    matches!(word, Keyword::UNION | Keyword::INTERSECT | Keyword::EXCEPT)
                };
                sets += usize::from(matches!(other, Token::Word(word) if is_set(word.keyword)));
            }
        }
        if words.now > WORDS_MAX || outer.len() > WORDS_MAX || sets > SETS_MAX {
            return Err("the statement is too deeply nested or too long between commas".to_owned());
        }
    }
    Ok(tokens)
}
