//! Messages between a session and the client process of an upstream: a length, and JSON.

use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::block::Block;
use crate::database::Database;

/// The longest message, bytes.
pub(crate) const FRAME_BYTES_MAX: usize = 8 << 20;
/// The most tools of an upstream.
pub(crate) const OFFERED_MAX: usize = 512;
/// The most parts of a result.
pub(crate) const BLOCKS_MAX: usize = 256;

/// The way that a client process speaks with its upstream, which it is told first.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Speak {
    /// MCP with a program.
    Mcp,
    /// MCP over HTTP.
    McpByHttp { url: String, trust: Trust },
    /// HTTP, a request for each call.
    Http(Trust),
    /// SQL.
    Sql(Box<Database>),
}

/// The trust between a client process and its upstream.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Trust {
    /// The certificates that are trusted, PEM.
    pub(crate) roots: String,
    /// The headers of every request, with placeholders of credentials.
    pub(crate) headers: Vec<(String, String)>,
}

/// An order to the client process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Order {
    /// Call a tool, get a prompt, or read a resource.
    Call {
        id: u64,
        form: Form,
        /// The name of what is called; of a resource its address.
        name: String,
        arguments: Map<String, Value>,
        /// The answers to what the upstream asked before, with its own state.
        answers: Option<Answers>,
        askable: Askable,
        /// True if somebody listens to what is said meanwhile.
        listens: bool,
    },
    /// End a call.
    Cancel { id: u64 },
}

/// Its news.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum News {
    /// The upstream is there, or offers something else than before.
    Offered(Vec<Offered>),
    /// The upstream cannot be spoken with.
    Failed { why: String },
    /// Something that is said during a call.
    Said { id: u64, said: Said },
    /// The result of a call.
    Result { id: u64, given: Given },
    /// A call that has no result.
    Error { id: u64, why: String },
}

/// The result of a call.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Given {
    pub(crate) blocks: Vec<Block>,
    pub(crate) structured: Option<Value>,
    /// Set where the upstream says that it failed, or there is no result.
    pub(crate) is_error: bool,
    /// The form in which the call was sent, where that was made here.
    pub(crate) sent: Option<String>,
    /// The status of its answer over HTTP.
    #[serde(default)]
    pub(crate) status: Option<u16>,
    /// The questions that have to be answered before there is a result.
    pub(crate) asks: Option<Asks>,
}

impl Given {
    /// Makes one of these parts.
    pub(crate) fn of(blocks: Vec<Block>) -> Self {
        Self {
            blocks,
            structured: None,
            is_error: false,
            sent: None,
            status: None,
            asks: None,
        }
    }
}

/// The questions of an upstream to the client of a call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Asks {
    /// The requests, as MCP has them, by the upstream's names for them.
    pub requests: Map<String, Value>,
    /// The state that comes back with the answers.
    pub state: Option<String>,
    /// The kinds that the client would have to declare first: nothing is asked then.
    pub undeclared: Askable,
}

/// The answers of a client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answers {
    /// The answers, by the names of the requests.
    pub responses: Map<String, Value>,
    /// The state that came with the questions.
    pub state: Option<String>,
}

/// The kinds of questions that a client can be asked, as it has declared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Askable {
    /// Questions to its person.
    pub elicitation: bool,
    /// Questions to its model.
    pub sampling: bool,
    /// Questions for its directories.
    pub roots: bool,
}

/// Something that an upstream says during a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Said {
    /// The part of the call that is done.
    Progress {
        /// The work that is done.
        progress: f64,
        /// All of it, if that is known.
        total: Option<f64>,
        /// The words about it.
        message: Option<String>,
    },
    /// A message for a log.
    Log {
        /// Its level, as MCP names it.
        level: String,
        /// The part of the upstream that it is of.
        logger: Option<String>,
        /// Its content.
        data: Value,
    },
}

/// The form of what an upstream offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// A tool.
    #[default]
    Tool,
    /// A prompt.
    Prompt,
    /// A resource.
    Resource,
    /// A template of resources.
    Template,
}

impl Form {
    /// Returns its name, as people read it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Prompt => "prompt",
            Self::Resource => "resource",
            Self::Template => "template",
        }
    }

    fn is_tool(&self) -> bool {
        *self == Self::Tool
    }
}

/// A tool, a prompt, a resource or a template of resources, as an upstream offers it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offered {
    /// Its form.
    #[serde(default, skip_serializing_if = "Form::is_tool")]
    pub form: Form,
    /// Its name there; of a resource its address, or the template of it.
    pub name: String,
    /// Its name for people.
    pub title: Option<String>,
    /// Its description.
    pub description: Option<String>,
    /// The schema of its arguments; of a prompt their list, and of a resource the name and the media
    /// type, all as MCP has them.
    pub arguments: Value,
    /// The schema of its result.
    pub result: Option<Value>,
}

/// Writes a message.
pub(crate) fn write(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    if text.len() > FRAME_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut frame = (text.len() as u32).to_le_bytes().to_vec();
    frame.extend_from_slice(&text);
    to.write_all(&frame)
}

/// Reads a message; `None` at the end.
pub(crate) fn read<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = vec![0; length];
    from.read_exact(&mut text)?;
    Ok(Some(serde_json::from_slice(&text)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_pass_and_wrong_ones_are_refused() {
        let mut written = Vec::new();
        write(&mut written, &Order::Cancel { id: 7 }).unwrap();
        let mut from = written.as_slice();
        let read_back: Option<Order> = read(&mut from).unwrap();
        assert!(matches!(read_back, Some(Order::Cancel { id: 7 })));
        assert!(read::<Order>(&mut from).unwrap().is_none());
        let long = (FRAME_BYTES_MAX as u32 + 1).to_le_bytes();
        assert!(read::<Order>(&mut long.as_slice()).is_err());
        assert!(read::<Order>(&mut [9, 0, 0, 0, b'{'].as_slice()).is_err());
        assert!(read::<Order>(&mut [2, 0, 0, 0, b'{', b'}'].as_slice()).is_err());
    }
}
