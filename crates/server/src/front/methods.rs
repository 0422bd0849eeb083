//! The methods that resources of E2B's control API take.

use axum::http::Method;

use super::dialect::*;

/// Returns the answer to a method that the resource at this path does not take; `None` where it takes
/// that one, or there is no resource.
pub(crate) fn not_allowed(path: &[&str], method: &Method) -> Option<Response> {
    let allowed = allowed(path)?;
    if allowed.split(", ").any(|one| one == method.as_str()) {
        return None;
    }
    let status = StatusCode::METHOD_NOT_ALLOWED;
    let what = format!("{method} is not offered here: it takes {allowed}");
    let mut response = answer_json(status, &json!({ "code": status.as_u16(), "message": what }));
    let allow = HeaderValue::from_static(allowed);
    response.headers_mut().insert(header::ALLOW, allow);
    Some(response)
}

/// Returns the methods of a resource, if there is one at this path.
fn allowed(path: &[&str]) -> Option<&'static str> {
    let methods = match path {
        ["v3", "templates", ..] => return allowed(path.get(1..)?),
        ["sandboxes" | "templates" | "volumes"] | ["events", "webhooks"] => "GET, POST",
        ["health" | "ready" | "metrics" | "snapshots"]
        | ["sandboxes", "metrics"]
        | ["sandboxes", _, "metrics" | "logs"]
        | ["events", "sandboxes"]
        | ["events", "sandboxes", _]
        | ["templates", "aliases", _]
        | ["templates", _, "builds", _, "status"] => "GET",
        ["sandboxes", _] | ["templates", _] | ["volumes", _] => "GET, DELETE",
        [
            "sandboxes",
            _,
            "timeout" | "refreshes" | "connect" | "pause" | "resume" | "fork" | "snapshots",
        ]
        | ["templates", _, "builds", _] => "POST",
        ["sandboxes", _, "network"] => "PUT",
        ["events", "webhooks", _] => "GET, PATCH, DELETE",
        ["templates", _, "files", _] => "GET, PUT",
        ["volumecontent", _, "path"] => "GET, PATCH, DELETE",
        ["volumecontent", _, "dir"] => "GET, POST",
        ["volumecontent", _, "file"] => "GET, PUT",
        _ => return None,
    };
    Some(methods)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_methods_of_a_resource_are_named() {
        let check = |path: &str, method: Method| {
            let path: Vec<&str> = path.split('/').collect();
            let response = not_allowed(&path, &method)?;
            let allow = response.headers().get(header::ALLOW)?.to_str().ok()?;
            Some((response.status().as_u16(), allow.to_owned()))
        };
        let refused = |allow: &str| Some((405, allow.to_owned()));
        assert_eq!(check("sandboxes", Method::PUT), refused("GET, POST"));
        assert_eq!(check("sandboxes/i1", Method::PUT), refused("GET, DELETE"));
        assert_eq!(check("sandboxes/i1/network", Method::POST), refused("PUT"));
        assert_eq!(check("v3/templates", Method::PUT), refused("GET, POST"));
        assert_eq!(check("sandboxes", Method::POST), None);
        assert_eq!(check("v3/templates", Method::POST), None);
        assert_eq!(check("no/such/thing", Method::PUT), None);
    }
}
