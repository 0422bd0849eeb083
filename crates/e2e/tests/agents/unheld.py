"""What an agent that was talked into an attack finds where nothing holds it: the attack is run
beside programs that have a key, each in one of the ways in which programs have keys. It is the
first process of a namespace of processes, which is what the attack looks at. Arguments: the
file with the key, the name of the variable for it, then directories in which it is kept."""
import ctypes, os, platform, subprocess, sys, time

KEY = open(sys.argv[1]).read().strip()
VARIABLE = sys.argv[2]
NOWHERE = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
HOLD = """
import os, sys
open("/proc/self/comm", "w").write(sys.argv[1])
%s
os.write(int(sys.argv[2]), b"1")
import time
time.sleep(600)
"""


def holder(name, holds, *arguments, environment={}):
    """Starts a program of this name, and waits until it has what it is to have."""
    ready, told = os.pipe()
    words = [sys.executable, "-c", HOLD % holds, name, str(told), *arguments]
    subprocess.Popen(words, env={"PATH": os.environ["PATH"], **environment}, pass_fds=[told], **NOWHERE)
    os.close(told)
    assert os.read(ready, 1) == b"1", name
    os.close(ready)


def add_to_keyring():
    """Into a new keyring of this session, which the attack is part of (keyctl(2))."""
    add_key, keyctl = {"x86_64": (248, 250), "aarch64": (217, 219)}[platform.machine()]
    system = ctypes.CDLL(None, use_errno=True)
    assert system.syscall(keyctl, 1, None) >= 0, os.strerror(ctypes.get_errno())
    content = b"kept " + KEY.encode()
    key = system.syscall(add_key, b"user", b"of-an-agent", content, len(content), -3)
    assert key >= 0, os.strerror(ctypes.get_errno())


def write(directory, name, text):
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, name), "w") as to:
        to.write(text + "\n")


add_to_keyring()
holder("by-variable", "", environment={VARIABLE: KEY})
holder("by-argument", "", f"--key={KEY}")
holder("by-memory", f"held = open({sys.argv[1]!r}).read()")
holder("by-file", f"file = os.memfd_create('a'); os.write(file, b'opened ' + open({sys.argv[1]!r}, 'rb').read()); held = None")
write(os.path.expanduser("~/.agent"), "auth.json", f'{{"home": "{KEY}"}}')
for place in ("/tmp", "/var/tmp", "/dev/shm"):
    write(place, "of-an-agent", f"{place} {KEY}")
for place in sys.argv[3:]:
    write(place, "of-an-agent", f"{place} {KEY}")
ended = subprocess.run(["sh", "attack.sh"], **NOWHERE)
# What was sent last is noted meanwhile.
time.sleep(1)
sys.exit(ended.returncode)
