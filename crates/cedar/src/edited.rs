//! Policy files as they would be with one change, so that a suggested change can be evaluated
//! before it is proposed.

use std::ops::Range;
use std::str::FromStr;

use cedar_policy::{Policy, PolicySet};

use crate::decision::Deciding;
use crate::fault::place;
use crate::files::{Layer, PolicyFile};

/// The files of each layer, highest first.
pub type LayerFiles = Vec<(Layer, Vec<PolicyFile>)>;

/// Returns the source text of a policy, if a file has it.
#[must_use]
pub fn text_of(files: &[(Layer, Vec<PolicyFile>)], policy: &Deciding) -> Option<String> {
    let (_, file) = file_of(files, &policy.file)?;
    let text = std::str::from_utf8(&file.content).ok()?;
    Some(text.get(span(text, policy)?)?.to_owned())
}

/// Returns the layer of a policy.
#[must_use]
pub fn layer_of(files: &[(Layer, Vec<PolicyFile>)], policy: &Deciding) -> Option<Layer> {
    file_of(files, &policy.file).map(|(layer, _)| layer)
}

/// Returns the files without one policy. All other policies keep their lines.
#[must_use]
pub fn without(files: &[(Layer, Vec<PolicyFile>)], policy: &Deciding) -> Option<LayerFiles> {
    changed(files, &policy.file, |text| {
        let span = span(text, policy)?;
        let gone: String = text
            .get(span.clone())?
            .chars()
            .map(|one| if one == '\n' { '\n' } else { ' ' })
            .collect();
        Some([text.get(..span.start)?, &gone, text.get(span.end..)?].concat())
    })
}

/// Returns the files with an exception added to one policy: it no longer holds where `condition`
/// does.
#[must_use]
pub fn excepting(
    files: &[(Layer, Vec<PolicyFile>)],
    policy: &Deciding,
    condition: &str,
) -> Option<LayerFiles> {
    changed(files, &policy.file, |text| {
        let span = span(text, policy)?;
        let own = text.get(span.clone())?.trim_end().strip_suffix(';')?;
        let own = format!("{own} unless {{ {condition} }};");
        Some([text.get(..span.start)?, &own, text.get(span.end..)?].concat())
    })
}

/// Returns the files with a policy appended to one of them.
#[must_use]
pub fn with(files: &[(Layer, Vec<PolicyFile>)], file: &str, policy: &str) -> Option<LayerFiles> {
    changed(files, file, |text| Some(format!("{text}\n{policy}\n")))
}

fn file_of<'a>(
    files: &'a [(Layer, Vec<PolicyFile>)],
    name: &str,
) -> Option<(Layer, &'a PolicyFile)> {
    let mut all = files
        .iter()
        .flat_map(|(layer, files)| files.iter().map(move |file| (*layer, file)));
    all.find(|(_, file)| file.name == name)
}

fn changed(
    files: &[(Layer, Vec<PolicyFile>)],
    name: &str,
    change: impl FnOnce(&str) -> Option<String>,
) -> Option<LayerFiles> {
    let mut files = files.to_vec();
    let mut all = files.iter_mut().flat_map(|(_, files)| files.iter_mut());
    let file = all.find(|file| file.name == name)?;
    let text = std::str::from_utf8(&file.content).ok()?;
    file.content = change(text)?.into_bytes();
    Some(files)
}

/// Returns the byte range of a policy in its file, annotations included.
fn span(text: &str, policy: &Deciding) -> Option<Range<usize>> {
    let set = PolicySet::from_str(text).ok()?;
    let of = |one: &Policy| {
        let at = one.as_ref().loc()?;
        let begin = at.start();
        let is_line = place(text, begin).0 == policy.line;
        let is_id = one.annotation("id").is_none_or(|id| id == &*policy.id);
        (is_line && is_id).then(|| begin..at.end())
    };
    set.policies().find_map(of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Known, Layers};

    const TEXT: &str = "// Ä.\n@id(\"one\") @reason(\"r; s\")\nforbid(principal, action == Action::\"request\", resource)\n  when { context.method == \"POST\" };\npermit(principal, action, resource);\n";

    fn files() -> LayerFiles {
        let file = PolicyFile {
            name: "/a.cedar".to_owned(),
            content: TEXT.as_bytes().to_vec(),
        };
        vec![(Layer::User, vec![file])]
    }

    fn ids(files: &[(Layer, Vec<PolicyFile>)]) -> Vec<(String, u32)> {
        let layers = Layers::compile(files, &Known::default()).unwrap();
        let all: Vec<_> = layers
            .each()
            .flat_map(|(_, policies)| policies.list())
            .map(|(told, _)| (told.id.to_string(), told.line))
            .collect();
        all
    }

    fn first(files: &[(Layer, Vec<PolicyFile>)]) -> Deciding {
        let layers = Layers::compile(files, &Known::default()).unwrap();
        let (_, policies) = layers.each().next().unwrap();
        let list = policies.list();
        list[0].0.clone()
    }

    #[test]
    fn a_policy_is_told_taken_out_and_excepted_from() {
        let files = files();
        assert_eq!(
            ids(&files),
            [("one".to_owned(), 2), ("a.cedar:5".to_owned(), 5)]
        );
        let one = first(&files);
        let text = text_of(&files, &one).unwrap();
        assert!(
            text.starts_with("@id(\"one\")") && text.ends_with("};"),
            "{text}"
        );
        assert_eq!(layer_of(&files, &one), Some(Layer::User));
        // The others keep their lines, which are their names.
        let left = without(&files, &one).unwrap();
        assert_eq!(ids(&left), [("a.cedar:5".to_owned(), 5)]);
        let excepted = excepting(&files, &one, "context.path == \"/x\"").unwrap();
        assert_eq!(ids(&excepted), ids(&files));
        let text = text_of(&excepted, &first(&excepted)).unwrap();
        assert!(
            text.ends_with("unless { context.path == \"/x\" };"),
            "{text}"
        );
        let more = with(
            &files,
            "/a.cedar",
            "@id(\"more\") permit(principal, action, resource);",
        );
        assert_eq!(ids(&more.unwrap()).last().unwrap().0, "more");
        assert!(with(&files, "/b.cedar", "").is_none());
        assert!(text_of(&left, &one).is_none());
    }
}
