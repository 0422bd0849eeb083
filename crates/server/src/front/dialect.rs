//! Everything that a dialect is written with.

pub(crate) use std::collections::BTreeMap;
pub(crate) use std::sync::Arc;

pub(crate) use atoll_model::RESIDENT;
pub(crate) use axum::body::Body;
pub(crate) use axum::http::request::Parts;
pub(crate) use axum::http::{HeaderMap, HeaderValue, Request, StatusCode, Uri, header};
pub(crate) use axum::response::Response;
pub(crate) use serde::Deserialize;
pub(crate) use serde_json::{Map, Value, json};

pub(crate) use super::answers::*;
pub(crate) use super::ask::{Front, Line, Next};
pub(crate) use super::caller::{Caller, Sandbox};
pub(crate) use super::form::{content_of, drained, form_of};
pub(crate) use super::idle::wrong_body;
pub(crate) use super::query::{Query, authority, pairs, plain_id};
pub(crate) use super::refusals::{Dialect, gone};
pub(crate) use super::stream::Out;
pub(crate) use crate::line::Stream;
pub(crate) use crate::protocol::{self, *};
pub(crate) use crate::rfc3339::{now_ms, rfc3339, time_of};
