//! A request as a type, and the tables that each one is a line of.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A request, and what is answered to it.
pub trait Request {
    /// The requests that it is one of.
    type Of;
    /// The answer.
    type Reply: Serialize + DeserializeOwned;
    /// The messages after the answer, if any.
    type Then: Serialize + DeserializeOwned;

    /// Returns it as one of them.
    fn wrap(self) -> Self::Of;
}

/// Makes an enum of requests, each a type of its own with the type of its answer; and, after `with`,
/// of further such enums.
macro_rules! requests {
    (
        $(#[$of:meta])* $all:ident {
            $($(#[$about:meta])* $name:ident $content:tt -> $reply:ty $(, then $then:ty)?;)*
        }
        $(with $($group:ident($requests:ty)),*)?
    ) => {
        $(#[$of])*
        #[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[allow(missing_docs)]
        pub enum $all {
            $($name($name),)*
            $($($group($requests),)*)?
        }
        $(
            $crate::protocol::request::content!($(#[$about])* $name $content);

            impl $crate::protocol::Request for $name {
                type Of = $all;
                type Reply = $reply;
                type Then = $crate::protocol::request::then!($($then)?);

                fn wrap(self) -> $all {
                    $all::$name(self)
                }
            }
        )*
        $($(
            impl From<$requests> for $all {
                fn from(ask: $requests) -> Self {
                    Self::$group(ask)
                }
            }
        )*)?
    };
}

macro_rules! content {
    ($(#[$about:meta])* $name:ident { $($field:ident: $type:ty),* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
        #[allow(missing_docs)]
        pub struct $name { $(pub $field: $type),* }
    };
    ($(#[$about:meta])* $name:ident ($type:ty)) => {
        $(#[$about])*
        #[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
        pub struct $name(#[allow(missing_docs)] pub $type);
    };
}

macro_rules! then {
    () => {
        ()
    };
    ($then:ty) => {
        $then
    };
}

pub(super) use {content, requests, then};
