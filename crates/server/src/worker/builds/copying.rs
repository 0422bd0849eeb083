//! Files of a build that are put in place.

use std::sync::Arc;

use super::super::builds::Templates;
use super::super::living::Living;
use super::digest::is_gzip;
use super::progress::Log;
use super::shell::{Shell, advised_of_copy, as_root};
use crate::protocol::{BuildStep, Refusal};

/// Defines whether there are other users than root: an ordinary user's server without subordinate ids
/// has none (user_namespaces(7)).
pub(super) const HAS_USERS: &str = r#"
has_users() {
  ids=0
  while read -r inside outside count; do ids=$((ids + count)); done < /proc/self/uid_map
  [ "$ids" -gt 1 ]
}
"#;

/// Puts uploaded files in place: the source, the target, the owner, the mode, the directory to
/// which they were unpacked, the working directory, and the owner where none is named.
const COPY: &str = r#"
set -e
cd "$5"
case "$2" in /*) to=$2;; *) to=$6/$2;; esac
if has_users; then chown -R "${3:-$7}" .
else
  case "${3%%:*}" in ''|root|0|"$7") ;;
  *) echo "root is the only user here, so nothing is copied for $3" >&2; exit 78;;
  esac
fi
[ -z "$4" ] || chmod -R "$4" .
IFS=
set -- $1
if [ ! -e "$1" ] && [ ! -L "$1" ]; then echo "nothing is called $1" >&2; exit 1; fi
for from do
  if [ -d "$from" ] && [ ! -L "$from" ]; then
    mkdir -p "$to"; cp -a "$from"/. "$to"/
  elif [ $# -gt 1 ] || [ -d "$to" ] || [ "${to%/}" != "$to" ]; then
    mkdir -p "$to"; cp -a "$from" "$to"/
  else
    mkdir -p "$(dirname "$to")"; cp -a "$from" "$to"
  fi
done
"#;

impl Templates {
    /// Carries out a step that copies; another has nothing to do.
    pub(super) async fn copy(
        self: &Arc<Self>,
        living: &Arc<Living>,
        id: &str,
        step: &BuildStep,
        shell: &Shell,
        log: &Log,
    ) -> Result<(), Refusal> {
        let BuildStep::Copy {
            upload,
            from,
            to,
            owner,
            mode,
        } = step
        else {
            return Ok(());
        };
        let file = self.upload_place(id, upload);
        let unpacked = format!("/data/.copy-{}", super::name(10)?);
        let script = "mkdir -p \"$1\" && cd \"$1\" && \
                      if [ \"$2\" = gzip ]; then gzip -dc; else cat; fi | tar -xof -";
        let packing = if is_gzip(&file)? { "gzip" } else { "" };
        let words = ["-c", script, "sh", &unpacked, packing];
        let mut ask = as_root(words.map(str::to_owned).to_vec(), shell);
        ask.input = true;
        self.run_logged(living, ask, Some(&file), log).await?;
        let owner = owner.as_deref().unwrap_or_default();
        let mode = mode.as_deref().unwrap_or_default();
        let here = shell.place("");
        let script = format!("{HAS_USERS}{COPY}");
        let user = &shell.user;
        let words = [
            "-c", &script, "sh", from, to, owner, mode, &unpacked, &here, user,
        ];
        let ask = as_root(words.map(str::to_owned).to_vec(), shell);
        let copied = self.run_logged(living, ask, None, log).await;
        copied.map_err(|refusal| advised_of_copy(refusal, to))?;
        let words = ["-c", "rm -rf \"$1\"", "sh", &unpacked];
        let ask = as_root(words.map(str::to_owned).to_vec(), shell);
        self.run_logged(living, ask, None, log).await
    }
}
