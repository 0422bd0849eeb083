//! The parts of a result, in the form of MCP.

use serde::{Deserialize, Serialize};

/// A part of a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub enum Block {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// A picture.
    Image {
        /// Its content, base64.
        data: String,
        /// Its media type.
        mime_type: String,
    },
    /// A sound.
    Audio {
        /// Its content, base64.
        data: String,
        /// Its media type.
        mime_type: String,
    },
    /// A resource with its content.
    Resource {
        /// The resource.
        resource: Contents,
    },
    /// The address of a resource.
    ResourceLink {
        /// The address.
        uri: String,
        /// The name.
        name: String,
        /// The description.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
        /// The media type.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mime_type: Option<String>,
    },
}

/// The content of a resource: text, or bytes in base64.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Contents {
    /// The address.
    pub uri: String,
    /// The media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// The text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<String>,
}

/// Returns the texts of parts that are text.
#[must_use]
pub fn text_of(blocks: &[Block]) -> String {
    let texts = blocks.iter().filter_map(|block| match block {
        Block::Text { text } => Some(text.as_str()),
        Block::Resource { resource } => resource.text.as_deref(),
        Block::Image { .. } | Block::Audio { .. } | Block::ResourceLink { .. } => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

impl Block {
    /// Makes one of text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// Returns its content, if that is text.
    pub(crate) fn content_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::Text { text } => Some(text),
            Self::Resource { resource } if resource.blob.is_none() => resource.text.as_mut(),
            Self::Resource { .. }
            | Self::Image { .. }
            | Self::Audio { .. }
            | Self::ResourceLink { .. } => None,
        }
    }

    /// Returns every text in it that a model reads.
    pub(crate) fn texts_mut(&mut self) -> Vec<&mut String> {
        match self {
            Self::Text { text } => vec![text],
            Self::Image { mime_type, .. } | Self::Audio { mime_type, .. } => vec![mime_type],
            Self::Resource { resource } => {
                let Contents {
                    uri,
                    mime_type,
                    text,
                    ..
                } = resource;
                [Some(uri), mime_type.as_mut(), text.as_mut()]
                    .into_iter()
                    .flatten()
                    .collect()
            }
            Self::ResourceLink {
                uri,
                name,
                description,
                mime_type,
            } => [
                Some(uri),
                Some(name),
                description.as_mut(),
                mime_type.as_mut(),
            ]
            .into_iter()
            .flatten()
            .collect(),
        }
    }

    /// Returns the size of the bytes in it that are no text, in base64.
    pub(crate) fn data_bytes(&self) -> usize {
        match self {
            Self::Image { data, .. } | Self::Audio { data, .. } => data.len(),
            Self::Resource { resource } => resource.blob.as_ref().map_or(0, String::len),
            Self::Text { .. } | Self::ResourceLink { .. } => 0,
        }
    }
}
