"""A person's first day with Atoll, from an empty home: installs it, logs an agent in, puts a password
into the vault, has the agent mend a program, looks at its server, and takes the work over. Arguments:
where packages of npm are, the agent's program, a file with the password."""
import atexit, base64, json, os, re, shutil, subprocess, sys, time, urllib.parse, urllib.request

npm, codex, hub = sys.argv[1:]
home = os.environ["HOME"]
work = os.path.join(home, "work")
assert os.listdir(home) == [], os.listdir(home)
password = os.environ.pop("GIT_PASSWORD")
APP = '''import http.server

def add(a, b):
    return a - b

class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/go":
            open("seen", "w").close()
        text = f"2 + 3 = {add(2, 3)}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

if __name__ == "__main__":
    http.server.ThreadingHTTPServer(("127.0.0.1", 3000), Page).serve_forever()
'''
PROFILE = f'''extends = ["codex"]
[files]
read = [{json.dumps(npm)}]
[network]
allow = [{{ preset = "git-push", repositories = ["git.example/repo"] }}]
[credential.hub]
source = {{ vault = "hub" }}
to = "git.example"
place = {{ basic = "*" }}
variable = "HUB_TOKEN"
'''
CODEX = '''model = "scripted"
model_provider = "openai-by-login"
[model_providers.openai-by-login]
name = "openai"
base_url = "https://api.openai.com/v1"
requires_openai_auth = true
wire_api = "responses"
supports_websockets = false
[shell_environment_policy]
inherit = "all"
ignore_default_excludes = true
'''


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)


def here(*words):
    subprocess.run(words, cwd=work if os.path.isdir(work) else home, check=True, stdin=subprocess.DEVNULL)


def tree(top):
    """All that is there: names, kinds, rights, content. What is in files is read by others: among
    them is the login, and this is one of the processes that are searched for it."""
    found, files = {}, []
    for place, directories, names in os.walk(top):
        for name in directories + names:
            path = os.path.join(place, name)
            facts = os.lstat(path)
            found[os.path.relpath(path, top)] = (facts.st_mode, facts.st_uid)
            if os.path.isfile(path) and not os.path.islink(path):
                files.append(path)
    sums = subprocess.run(["xargs", "-0", "sha256sum"], input="\0".join(files), check=True, capture_output=True, text=True)
    for path, line in zip(files, sums.stdout.splitlines()):
        found[os.path.relpath(path, top)] += (line.split()[0],)
    return found


def different(one, other):
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def said(*words):
    return subprocess.run(words, cwd=work, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout.strip()


def log_in():
    """The person's browser goes where the agent says, and comes back with a code."""
    words = ["atoll", "login", "codex", "--profile", "mine", "--yes", "--", "node", codex, "login"]
    run = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    came_back = False
    for line in run.stdout:
        sys.stderr.write(line)
        address = re.search(r"https://\S*/oauth/authorize\?\S*", line)
        if address and not came_back:
            query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(address[0]).query))
            back = {"code": "good", "state": query["state"]}
            to = query["redirect_uri"].replace("localhost", "127.0.0.1")
            opener.open(to + "?" + urllib.parse.urlencode(back), timeout=60).read()
            came_back = True
    print("logged in:", run.wait())


opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
# Installing is one file.
programs = os.path.join(home, ".local/bin")
os.makedirs(programs)
shutil.copy(os.environ["ATOLL"], os.path.join(programs, "atoll"))
os.environ["PATH"] = programs + ":" + os.environ["PATH"]
begun = time.monotonic()
with open(hub) as password_file:
    subprocess.run(["atoll", "secret", "set", "hub"], stdin=password_file, check=True, stdout=sys.stderr)
write(os.path.join(os.environ["XDG_CONFIG_HOME"], "atoll/profiles/mine.toml"), PROFILE)
write(os.path.join(home, ".codex/config.toml"), CODEX)
log_in()
# What there is to work on, as the person had it before.
basic = base64.b64encode(f"git:{password}".encode()).decode()
as_known = ["-c", f"http.extraHeader=Authorization: Basic {basic}"]
here("git", *as_known, "clone", "-q", "https://git.example/repo.git", "work")
write(os.path.join(work, "app.py"), APP)
write(os.path.join(work, "test.py"), "import app\nassert app.add(2, 3) == 5\nprint('mended')\n")
for name, value in (("user.name", "p"), ("user.email", "p@example.com")):
    here("git", "config", name, value)
here("git", "add", ".")
here("git", "commit", "-qm", "an app")
here("git", *as_known, "push", "-q", "origin", "HEAD:main")

before = tree(home)
agent = f"node '{codex}' exec --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox 'mend it'"
run = subprocess.Popen(
    ["atoll", "run", "--keep", "--profile", "mine", "--", "sh", "-c", agent],
    cwd=work, stdin=subprocess.DEVNULL, stdout=sys.stderr,
)
atexit.register(run.kill)


def get(url):
    try:
        return opener.open(url, timeout=60).read().decode()
    except OSError as error:
        return type(getattr(error, "reason", error)).__name__


def listening():
    told = subprocess.run(["atoll", "ports", "--json"], capture_output=True, text=True).stdout
    return [one["port"] for run in json.loads(told or "[]") for one in run["listening"]]


while run.poll() is None and 3000 not in listening():
    time.sleep(0.2)
print("unasked:", get("http://127.0.0.1:3000/sum"))
subprocess.run(["atoll", "publish", "last", "3000", "--to", "8080"], check=True, stdout=sys.stderr)
print("seen from here:", get("http://127.0.0.1:8080/sum"))
get("http://127.0.0.1:8080/go")
print("ended:", run.wait())
print("took less than ten minutes:", time.monotonic() - begun < 600)
after = tree(home)
print("changed unasked:", different(before, after))
subprocess.run(["atoll", "apply", "last"], cwd=work, check=True, stdout=sys.stderr)
# Besides, there are what git and the agent keep for themselves (`.git`, `.codex`).
print("changed by taking over:", [name for name in different(after, tree(home)) if name.startswith("work/") and not name.startswith("work/.git")])
print("taken over:", "return a + b" in open(os.path.join(work, "app.py")).read())
print("the same commit here and there:", said("git", "rev-parse", "HEAD") == said("git", *as_known, "ls-remote", "-q", "origin", "main").split()[0])
