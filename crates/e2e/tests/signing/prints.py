#!/usr/bin/python3 -I
"""Prints a key of AWS as a credential_process does, another one each time, and writes down that it
was run and which key it has given. Arguments: the directory of the world, and how it is to go."""
import fcntl, json, os, sys, time

WORLD, HOW = sys.argv[1:3]
with open(os.path.join(WORLD, "runs"), "a+") as runs:
    fcntl.flock(runs, fcntl.LOCK_EX)
    runs.seek(0)
    number = len(runs.readlines())
    names = [name for name in os.environ if name.startswith("AWS_")]
    runs.write(json.dumps({"how": sys.argv[2:], "at": os.getcwd(), "variables": names}) + "\n")

LIFE = {"short": 14, "expired": -10}.get(HOW, 3600)
ID = f"ASIAPR1NT3DK3YTEST{number:02}"
SECRET = f"pr1nt3dS3c/0fTh1sT3st+Wh1chN0bodyM4yS{number:03}"
TOKEN = "-" if HOW == "bare" else f"FwoGpr1nt3dT0/OfTh1sT3st+Wh1chN0bodyM4yS33InAnyPlace{number:02}=="
with open(os.path.join(WORLD, "keys"), "a") as keys:
    keys.write(f"{ID} {SECRET} {TOKEN} {time.time() + LIFE}\n")

ends = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(time.time() + LIFE))
key = {"Version": 1, "AccessKeyId": ID, "SecretAccessKey": SECRET, "SessionToken": TOKEN, "Expiration": ends}
match HOW:
    case "slow":
        time.sleep(2)
    case "bare":
        del key["SessionToken"], key["Expiration"]
    case "version":
        key["Version"] = 2
    case "half":
        del key["SecretAccessKey"]
    case "odd":
        key["AccessKeyId"] = SECRET
    case "undated":
        key["Expiration"] = "soon"
    case "plain":
        print(SECRET)
        sys.exit()
    case "silent":
        sys.exit()
    case "hangs":
        time.sleep(600)
    case "floods":
        key["More"] = SECRET * 2000
    case "fails":
        print(json.dumps(key), flush=True)
        print(f"first line\nthe session has ended for {SECRET}: log in", file=sys.stderr)
        sys.exit(255)
print(json.dumps(key, indent=2))
