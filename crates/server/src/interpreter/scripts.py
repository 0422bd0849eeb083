"""Shell and R kernel of Atoll's code interpreter: runs each cell in a new interpreter process.

A cell leaves its working directory, variables, functions and options in a state file, which the
next cell reads: `exit` in a cell ends the cell, not the context.
"""
import os
import subprocess
import sys
import tempfile

import kernel

SAVE = r"""
__atoll_save() {
  { set +eux; } 2>/dev/null
  unset -v $__atoll_names
  eval "$__atoll_before"
  {
    printf 'cd %q\n' "$PWD"
    local n
    for n in $(compgen -v); do
      case $n in
        BASH*|EUID|UID|PPID|SHELLOPTS|FUNCNAME|GROUPS|DIRSTACK|PIPESTATUS|RANDOM|SRANDOM|SECONDS|LINENO|EPOCH*|_|__atoll_*|n|OPT*) ;;
        *) declare -p "$n" ;;
      esac
    done
    declare -f; alias -p; shopt -p; printf '%s\n' "$__atoll_options"
  } > "$__atoll_state.new" 2>/dev/null && mv "$__atoll_state.new" "$__atoll_state"
}
"""
WRAPPER = SAVE + r"""
__atoll_state=$1 __atoll_cell=$2 __atoll_names=$3
shopt -s expand_aliases
if [ -f "$__atoll_state" ]; then . "$__atoll_state" 2>/dev/null || :; fi
__atoll_options=$(set +o)
__atoll_before=$([ -z "$__atoll_names" ] || declare -p $__atoll_names 2>/dev/null | sed 's/^declare /declare -g /')
while IFS= read -r -d '' __atoll_pair; do export "$__atoll_pair"; done < "$__atoll_cell.env"
set --
trap '__atoll_status=$?; __atoll_options=$(set +o); __atoll_save; exit $__atoll_status' EXIT
. "$__atoll_cell"
"""
R_WRAPPER = r"""
a <- commandArgs(TRUE)
if (file.exists(a[1])) load(a[1], envir = globalenv())
if (file.exists(paste0(a[1], ".wd"))) setwd(readLines(paste0(a[1], ".wd")))
tryCatch(
  for (e in parse(file = a[2])) {
    r <- withVisible(eval(e, globalenv()))
    if (r$visible) print(r$value)
  },
  finally = {
    rm(list = intersect(c("a", "e", "r"), ls(globalenv())), envir = globalenv())
    b <- commandArgs(TRUE)
    save(list = setdiff(ls(globalenv()), "b"), envir = globalenv(), file = b[1])
    writeLines(getwd(), paste0(b[1], ".wd"))
  }
)
"""


class Scripts:
    """Runs cells of one language, each as a process."""

    def __init__(self, link, language):
        self.link, self.language = link, language
        self.environment = dict(os.environ)
        self.folder = tempfile.mkdtemp(prefix="atoll-cells-")
        self.state = os.path.join(self.folder, "state")
        self.wrapper = self._write("wrapper", R_WRAPPER if language == "r" else WRAPPER)

    def _write(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(self.folder, exist_ok=True)
        with open(path, "wb") as file:
            file.write(text.encode("utf-8", "surrogateescape"))
        return path

    def run(self, request):
        """Runs one cell; reports a status that is not zero as an error."""
        try:
            kernel.INTERRUPTS.inside = True
            status = self._run_process(request)
            kernel.INTERRUPTS.inside = False
        except KeyboardInterrupt:
            kernel.INTERRUPTS.inside = False
            self.link.error("KeyboardInterrupt", "the cell was interrupted")
            return
        if status:
            how = f"exit status {status}" if status > 0 else f"signal {-status}"
            self.link.error("CommandFailed", how, f"the cell ended with {how}")

    def _run_process(self, request):
        cell = self._write(f"Cell_{request['id']}", request["code"] + "\n")
        env = request["env"]
        self._write(f"Cell_{request['id']}.env", "".join(f"{key}={value}\0" for key, value in env.items()))
        environment = {**self.environment, **env} if self.language == "r" else self.environment
        if self.language == "r":
            command = ["Rscript", "--no-save", "--no-restore", self.wrapper, self.state, cell]
        else:
            command = ["bash", "--norc", "--noprofile", self.wrapper, self.state, cell, " ".join(env)]
        with subprocess.Popen(command, env=environment) as process:
            try:
                return process.wait()
            except KeyboardInterrupt:
                stop(process)
                raise
            finally:
                for path in (cell, cell + ".env"):
                    os.path.exists(path) and os.unlink(path)


def stop(process):
    """Gives an interrupted process two seconds to end."""
    try:
        process.wait(2)
    except subprocess.TimeoutExpired:
        process.kill()


def main():
    """Starts the kernel."""
    link = kernel.Link(int(sys.argv[2]))
    language = sys.argv[1]
    kernel.serve(link, lambda link: Scripts(link, language))


if __name__ == "__main__":
    main()
